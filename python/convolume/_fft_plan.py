"""Plans of transforms."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core
from ._transforms import BACKWARD, C2R, FORWARD, MOST_AXES, R2C, Axes, factor_of, integers, threads_of

_KINDS = {"rfftn": R2C, "irfftn": C2R, "fftn": FORWARD, "ifftn": BACKWARD}
_REAL = ("float32", "float64")
_MOST_BYTES = 1 << 47
_COMPLEX = {"complex64": "float32", "complex128": "float64"}


def _axes_of(axes: Axes, shape: Sequence[int]) -> list[int]:
    """Returns the transformed axes as numbers from 0 on."""
    given = list(range(len(shape))) if axes is None else integers("axes", axes)
    chosen = [axis + len(shape) if axis < 0 else axis for axis in given]
    for axis, number in zip(chosen, given):
        if not 0 <= axis < len(shape):
            raise _core.InvalidArgument(f"axes has {number}; s has {len(shape)} axes, so use {-len(shape)} to "
                                        f"{len(shape) - 1}")
        if chosen.count(axis) > 1:
            raise _core.InvalidArgument(f"axes has {number} twice; give each axis once")
        if shape[axis] < 1:
            raise _core.InvalidArgument(f"s has {shape[axis]} points along axis {number}; a transform needs at least 1")
    if not chosen:
        raise _core.InvalidArgument("axes is empty; give at least one axis")
    if len(chosen) > MOST_AXES:
        raise _core.Unsupported(f"axes has {len(chosen)} axes; a plan transforms at most {MOST_AXES}, so give "
                                "`axes`, or call the function, which takes any number")
    return chosen


def _precision(kind: str, dtype: npt.DTypeLike) -> str:
    """Returns float32 or float64."""
    name = np.dtype(dtype).name
    if name in _REAL:
        return name
    if kind == "rfftn":
        raise TypeError(f"dtype is {name}; rfftn transforms float32 or float64")
    if name not in _COMPLEX:
        raise TypeError(f"dtype is {name}; use float32 or complex64, or float64 or complex128")
    return _COMPLEX[name]


class Plan(_core.TransformPlan):
    """A transform of arrays of one shape, which is planned once and executed many times, from any thread.

    `kind` is "rfftn", "irfftn", "fftn" or "ifftn", the function whose result a call returns. `s` is the shape of the
    array before a forward transform, or after a backward one, with all axes. At most three of them are transformed,
    which `axes` names; None takes all. `dtype` is float32 or float64: x and the result then have this type if they are
    real, and complex numbers of it otherwise. `norm` and `workers` are those of the functions.

    plan(x, out=None) returns the transform of x. `out` receives it if it is given; it is C-contiguous and overlaps no
    byte of x. An x that is not C-contiguous is copied once. The bits are those of the function, for any workers.
    """

    __slots__ = ("_arguments",)

    def __init__(self, kind: str, s: int | Sequence[int], axes: Axes = None, *, dtype: npt.DTypeLike = "float32",
                 norm: str | None = None, workers: int | None = None) -> None:
        if kind not in _KINDS:
            raise _core.InvalidArgument(f"kind is {kind!r}; use {', '.join(_KINDS)}")
        if s is None:
            raise TypeError("s is None; give the shape of the array")
        shape = integers("s", s)
        if any(extent < 0 for extent in shape):
            raise _core.InvalidArgument(f"s is {tuple(shape)}; extents must not be negative")
        chosen, name = _axes_of(axes, shape), _precision(kind, dtype)
        size = math.prod(max(1, extent) for extent in shape) * (16 if name == "float64" else 8)
        if size > _MOST_BYTES:
            raise _core.OverflowError(f"s is {tuple(shape)}: {size} bytes of complex numbers; at most 2^47 "
                                        "are supported")
        factor = factor_of(norm, kind in ("rfftn", "fftn"), math.prod(shape[axis] for axis in chosen))
        threads = threads_of(workers)
        super().__init__(_KINDS[kind], name == "float32", shape, chosen, factor, threads)
        self._arguments = (kind, tuple(shape), tuple(chosen), name, norm, workers)

    def __reduce__(self) -> tuple[Any, ...]:
        return _planned, self._arguments

    def __repr__(self) -> str:
        kind, shape, axes, name, norm, workers = self._arguments
        return f"Plan({kind!r}, {shape}, {axes}, dtype={name!r}, norm={norm!r}, workers={workers})"

    @property
    def kind(self) -> str:
        """The name of the function."""
        return self._arguments[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The argument `s`. x_shape and y_shape are the shapes of x and of the result."""
        return self._arguments[1]

    @property
    def axes(self) -> tuple[int, ...]:
        """The transformed axes, counted from 0."""
        return self._arguments[2]

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return np.dtype(self._arguments[3])

    @property
    def norm(self) -> str | None:
        """The argument `norm`."""
        return self._arguments[4]

    @property
    def workers(self) -> int | None:
        """The argument `workers`."""
        return self._arguments[5]


def _planned(kind: str, shape: tuple[int, ...], axes: tuple[int, ...], name: str, norm: str | None,
             workers: int | None) -> Plan:
    return Plan(kind, shape, axes, dtype=name, norm=norm, workers=workers)
