"""Convolutions of arrays, and plans for them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _core
from ._kept import Kept

Array = npt.NDArray[Any]
Numbers = int | Sequence[int]
Padding = int | str | Sequence[int] | Sequence[Sequence[int]]
Slope = str | tuple[str, float] | None

_FORMAT = 1  # of pickled plans
_ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh", "softsign")
_GRADIENTS = ("dx", "dw", "dbias")


class Gradients(NamedTuple):
    """Results of a backward pass; None for those that were not wanted."""

    dx: Array | None
    dw: Array | None
    dbias: Array | None


def _array(name: str, value: Any) -> Array:
    """Returns what numpy.asarray makes of an object without a copy."""
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        raise TypeError(f"{name} is None; pass an array")
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    if isinstance(value, (list, tuple, int, float, str)):
        raise TypeError(f"{name} is a {type(value).__name__}, not an array; use numpy.asarray with a dtype")
    return np.asarray(value)


def _triple(name: str, value: Numbers) -> tuple[int, int, int]:
    """Returns one number per axis (Z, Y, X)."""
    if isinstance(value, (int, np.integer)):
        return int(value), int(value), int(value)
    numbers = tuple(int(one) for one in value)
    if len(numbers) != 3:
        raise _core.InvalidArgument(f"{name} has {len(numbers)} numbers; give one, or one for each of Z, Y and X")
    return numbers[0], numbers[1], numbers[2]


def _padding(value: Padding, kernel: tuple[int, int, int], stride: tuple[int, int, int],
             dilation: tuple[int, int, int]) -> tuple[int, ...]:
    """Returns the voxels of padding before and behind each axis."""
    if isinstance(value, str):
        if value == "valid":
            return (0,) * 6
        if value != "same":
            raise _core.InvalidArgument(f"padding is '{value}'; use numbers, 'same' or 'valid'")
        if stride != (1, 1, 1):
            raise _core.InvalidArgument(f"padding 'same' needs stride 1, not {stride}; give numbers")
        span = [d * (k - 1) for d, k in zip(dilation, kernel)]
        return tuple(side for s in span for side in (s // 2, s - s // 2))
    if isinstance(value, (int, np.integer)):
        return (int(value),) * 6
    sides: list[int] = []
    for one in value:
        pair = (int(one), int(one)) if isinstance(one, (int, np.integer)) else tuple(int(side) for side in one)
        if len(pair) != 2:
            raise _core.InvalidArgument(f"padding has {len(pair)} numbers for an axis; give one or two")
        sides += pair
    if len(sides) != 6:
        raise _core.InvalidArgument(f"padding has {len(sides) // 2} axes; give one number, or one or a pair for each of "
                                    "Z, Y and X")
    return tuple(sides)


def _activation(value: Slope) -> tuple[str, float]:
    """Returns the name and the slope of an activation."""
    name, slope = (value, 0.01) if isinstance(value, str) or value is None else value
    if name is None:
        return "", slope
    if name not in _ACTIVATIONS:
        raise _core.InvalidArgument(f"activation is '{name}'; use None, {', '.join(_ACTIVATIONS)}, or "
                                    "('leaky_relu', slope)")
    return name, float(slope)


def _shape(name: str, shape: Sequence[int], axes: tuple[int, ...]) -> tuple[int, ...]:
    numbers = tuple(int(one) for one in shape)
    if len(numbers) not in axes:
        raise _core.InvalidArgument(f"{name} has {len(numbers)} axes; it must have "
                                    f"{' or '.join(str(one) for one in axes)}")
    return numbers


def _dtype(value: Any) -> str:
    """Returns the name of the type of all arrays of a plan."""
    name = str(np.dtype(value).name)
    if name not in ("float32", "float64"):
        raise TypeError(f"dtype is {name}; use float32 or float64")
    return name


def _wanted(want: Sequence[str]) -> tuple[bool, ...]:
    if isinstance(want, str):
        raise TypeError(f"want is the text '{want}'; give a tuple, for example ('{want}',)")
    for one in want:
        if one not in _GRADIENTS:
            raise _core.InvalidArgument(f"want has '{one}'; use 'dx', 'dw' and 'dbias'")
    return tuple(one in want for one in _GRADIENTS)


class ConvPlan:
    """A way to compute one convolution, which is planned once and executed many times, from any thread.

    Shapes are (N, C, Z, Y, X), or (C, Z, Y, X) for one sample, and for w PyTorch's: (out, in / groups, Z, Y, X), or
    (in, out / groups, Z, Y, X) if `transposed`. `want` are the gradients whose time the choice counts; the plan computes
    all of them. A choice text of another plan (`choice`) gives its bits.

    A plan with `want=()` has the bits of conv3d(). A plan with gradients may choose otherwise, and then rounds
    otherwise. Plans can be pickled: they keep their choice.
    """

    __slots__ = ("_arguments", "_plan")

    def __init__(self, x_shape: Sequence[int], w_shape: Sequence[int], *, dtype: npt.DTypeLike = "float32",
                 stride: Numbers = 1, padding: Padding = 0, dilation: Numbers = 1, groups: int = 1, bias: bool = False,
                 activation: Slope = None, transposed: bool = False, output_padding: Numbers = 0,
                 engine: str = "automatic", choice: str = "", want: Sequence[str] = ("dx", "dw"),
                 low_error: bool = False, memory_budget: int = 0,
                 _blocked: tuple[bool, bool] = (False, False)) -> None:
        x = _shape("x_shape", x_shape, (4, 5))
        w = _shape("w_shape", w_shape, (5,))
        steps, spread = _triple("stride", stride), _triple("dilation", dilation)
        sides = _padding(padding, (w[2], w[3], w[4]), steps, spread)
        wanted = _wanted(want)
        self._arguments = (x if len(x) == 5 else (1, *x), w, _dtype(dtype), steps, sides, spread, int(groups),
                           bool(transposed), _triple("output_padding", output_padding), bool(bias),
                           *_activation(activation), engine, choice, wanted[0], wanted[1], bool(low_error),
                           int(memory_budget), *_blocked)
        self._plan = _core.Plan(*self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        # The choice, not what the cost model of another machine would choose.
        arguments = list(self._arguments)
        arguments[12] = "automatic"
        arguments[13] = self.choice
        return _restored, (_FORMAT, tuple(arguments))

    def forward(self, x: Any, w: Any, bias: Any = None, *, out: Any = None, x_hat: _core.Spectra | None = None,
                threads: int | None = None) -> Array:
        """Returns y. `w` is an array or what prepare() returned. `out` receives y if it is given.

        `x_hat` of spectra() is filled if the engine keeps spectra of x for the weight gradient.
        """
        return self._plan.forward(_array("x", x), w if isinstance(w, _core.PreparedWeights) else _array("w", w),
                                  None if bias is None else _array("bias", bias),
                                  None if out is None else _array("out", out), x_hat, threads or 0)

    def backward(self, x: Any, dy: Any, w: Any, *, y: Any = None, x_hat: _core.Spectra | None = None,
                 want: Sequence[str] = ("dx", "dw"), threads: int | None = None) -> Gradients:
        """Returns the gradients dx, dw and dbias that are wanted. `x` may be None if dw is not; `y` is needed if the plan
        has an activation."""
        dx, dw, dbias = _wanted(want)
        return Gradients(*self._plan.backward(None if x is None else _array("x", x), _array("dy", dy),
                                              w if isinstance(w, _core.PreparedWeights) else _array("w", w),
                                              None if y is None else _array("y", y), x_hat, dx, dw, dbias, threads or 0))

    def prepare(self, w: Any, *, threads: int | None = None) -> _core.PreparedWeights:
        """Returns the weights in the form that the engine reads, for weights that do not change."""
        return self._plan.prepare(_array("w", w), threads or 0)

    def spectra(self) -> _core.Spectra:
        """Returns an empty cache for the spectra of x, which forward() fills and backward() reads."""
        return self._plan.spectra()

    def explain(self) -> str:
        """Returns why the engine was chosen: each engine with its estimate or the reason against it."""
        return self._plan.explain()

    @property
    def choice(self) -> str:
        """The choice as text, for the argument `choice`."""
        return self._plan.choice

    @property
    def numerics(self) -> str:
        """Everything that decides rounding. Equal texts promise equal bits."""
        return self._plan.numerics

    @property
    def engine(self) -> str:
        """The name of the engine."""
        return self._plan.engine

    @property
    def seconds(self) -> float:
        """Estimated seconds on one core, for comparing plans."""
        return self._plan.seconds

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of y, with N."""
        return tuple(self._plan.y_shape)


def _restored(version: int, arguments: tuple[Any, ...]) -> ConvPlan:
    if version != _FORMAT:
        raise _core.FormatError(f"a pickled ConvPlan has format {version}, this package reads {_FORMAT}; plan again")
    plan = ConvPlan.__new__(ConvPlan)
    plan._arguments = arguments  # noqa: SLF001
    plan._plan = _core.Plan(*arguments)  # noqa: SLF001
    return plan


_plans: Kept[_core.Plan] = Kept(plans=True)


def plans_kept() -> int:
    """Returns the number of plans that conv3d() and conv_transpose3d() keep, at most 256."""
    return len(_plans)


def hashable(value: Any) -> Any:
    return tuple(hashable(one) for one in value) if isinstance(value, (list, tuple, np.ndarray)) else value


def _plan_for(x: Array, w: Array, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, activation: Any,
              engine: Any, transposed: bool, output_padding: Any) -> _core.Plan:
    """Returns the plan of a call, from the cache if it has one."""
    key = (x.shape, w.shape, x.dtype.char, bias is None, stride, padding, dilation, groups, activation, engine,
           transposed, output_padding)
    try:
        found = _plans.get(key)
    except TypeError:  # lists are not hashable
        key = tuple(hashable(one) for one in key)
        found = _plans.get(key)
    if found is not None:
        return found
    if x.ndim not in (4, 5):
        raise _core.InvalidArgument(f"x has {x.ndim} axes; it must have 5 (N, C, Z, Y, X), or 4 without N")
    if w.ndim != 5:
        raise _core.InvalidArgument(f"w has {w.ndim} axes; it must have 5")
    if x.dtype != w.dtype:
        raise TypeError(f"x has dtype {x.dtype}, w has {w.dtype}; convert one of them")
    shape = (max(1, x.shape[0]), *x.shape[1:]) if x.ndim == 5 else x.shape
    made = ConvPlan(shape, w.shape, dtype=x.dtype, stride=stride, padding=padding, dilation=dilation, groups=groups,
                    bias=bias is not None, activation=activation, transposed=transposed, output_padding=output_padding,
                    engine=engine, want=())._plan  # noqa: SLF001
    _plans.add(key, made)
    return made


def _convolve(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, activation: Any,
              out: Any, engine: Any, threads: Any, transposed: bool, output_padding: Any) -> Array:
    x, w = _array("x", x), _array("w", w)
    plan = _plan_for(x, w, bias, stride, padding, dilation, groups, activation, engine, transposed, output_padding)
    if x.ndim == 5 and x.shape[0] == 0:
        empty = np.empty((0, *plan.y_shape[1:]), x.dtype)
        if out is not None and np.shape(out) != empty.shape:
            raise _core.ShapeMismatch(f"out has shape {np.shape(out)}; y has {empty.shape}")
        return empty if out is None else _array("out", out)
    return plan.forward(x, w, None if bias is None else _array("bias", bias),
                        None if out is None else _array("out", out), None, threads or 0)


def conv3d(x: Any, w: Any, bias: Any = None, *, stride: Numbers = 1, padding: Padding = 0, dilation: Numbers = 1,
           groups: int = 1, activation: Slope = None, out: Any = None, engine: str = "automatic",
           threads: int | None = None) -> Array:
    """Returns the cross-correlation of x with w, as torch.nn.functional.conv3d.

    x is (N, C, Z, Y, X), or (C, Z, Y, X); then y has no N either. w is (out, C / groups, Z, Y, X), and bias has one value
    per output channel. All have one dtype, float32 or float64. Numbers are one for all axes, or three (Z, Y, X); padding
    may also be three pairs, "same" (stride 1; the larger half lies behind) or "valid". `activation` is applied to the sum:
    None, "relu", "leaky_relu", ("leaky_relu", slope), "sigmoid", "tanh" or "softsign". `out` receives y if it is given; it must not
    overlap an input.

    Arrays are read in place if their rows along X are contiguous, whatever their other strides are; otherwise they are
    copied once. Plans are kept for the next calls of the same form, at most 256. Bits do not depend on that, nor on the
    threads. The GIL is released while anything is computed.
    """
    return _convolve(x, w, bias, stride, padding, dilation, groups, activation, out, engine, threads, False, 0)


def conv_transpose3d(x: Any, w: Any, bias: Any = None, *, stride: Numbers = 1, padding: Padding = 0,
                     output_padding: Numbers = 0, groups: int = 1, dilation: Numbers = 1, activation: Slope = None,
                     out: Any = None, engine: str = "automatic", threads: int | None = None) -> Array:
    """Returns the transposed convolution of x with w, as torch.nn.functional.conv_transpose3d.

    w is (C, out / groups, Z, Y, X). Everything else is as in conv3d().
    """
    return _convolve(x, w, bias, stride, padding, dilation, groups, activation, out, engine, threads, True,
                     output_padding)
