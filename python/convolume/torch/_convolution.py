# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""conv3d() and conv_transpose3d() of tensors, as functions that autograd knows."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _core
from .._convolution import ConvPlan, hashable
from .._kept import Kept
from . import _calls, _threads

_threads.use_team_of_pytorch()

# PyTorch's functions. The attributes of its modules are others while accelerated() is on.
torch_conv3d: Any = torch.conv3d
torch_conv_transpose3d: Any = torch.conv_transpose3d

Ints = int | Sequence[int]

_CLASSES = (Tensor, torch.nn.Parameter)
# What is left to PyTorch: no engine serves it, or it cannot be, which PyTorch says in its own words.
REFUSALS = (_core.Unsupported, _core.InvalidArgument, _core.ShapeMismatch)
_TYPES = {torch.float32: "float32", torch.float64: "float64"}


class Geometry(NamedTuple):
    """What a convolution is besides its tensors. Three numbers are along Z, Y, X. Padding is before and behind."""

    stride: tuple[int, int, int]
    padding: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    dilation: tuple[int, int, int]
    groups: int
    transposed: bool = False
    output_padding: tuple[int, int, int] = (0, 0, 0)


class Options(NamedTuple):
    """How convolutions are computed."""

    policy: str = "always"  # which of them are ours: "always", all that are served
    memory_budget: int | None = None  # bytes of spectra that may live from forward to backward; None: no limit


_plans: Kept[_core.Plan] = Kept()


def _plan_budget(options: Options) -> int:
    """Returns the budget of a plan, in which 0 means no limit."""
    return 0 if options.memory_budget is None else max(options.memory_budget, 1)


def _plan_for(x: Tensor, w: Tensor, bias: bool, geometry: Geometry, want: tuple[str, ...],
              options: Options) -> _core.Plan:
    key = (x.shape, w.shape, x.dtype, bias, geometry, want, options.memory_budget)
    found = _plans.get(key)
    if found is None:
        found = ConvPlan(tuple(x.shape), tuple(w.shape), dtype=_TYPES[x.dtype], stride=geometry.stride,
                         padding=geometry.padding, dilation=geometry.dilation, groups=geometry.groups, bias=bias,
                         transposed=geometry.transposed, output_padding=geometry.output_padding, want=want,
                         memory_budget=_plan_budget(options))._plan  # noqa: SLF001
        _plans.add(key, found)
    return found


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy()


def _y_like(plan: _core.Plan, x: Tensor) -> Tensor:
    shape = plan.y_shape
    return torch.empty(shape if x.dim() == 5 else shape[1:], dtype=x.dtype)


def run_forward(plan: _core.Plan, x: Tensor, w: Any, bias: Tensor | None, x_hat: _core.Spectra | None = None) -> Tensor:
    """Returns y. `w` is an array or prepared weights."""
    y = _y_like(plan, x)
    plan.forward(_array(x), w, None if bias is None else _array(bias), y.numpy(), x_hat, torch.get_num_threads())
    return y


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, options: Options) -> Tensor:
        want = tuple(name for name, wanted in zip(("dx", "dw"), ctx.needs_input_grad) if wanted)
        plan = _plan_for(x, w, bias is not None, geometry, want, options)
        # The spectra of x serve the gradient of the weights.
        ctx.x_hat = plan.spectra() if "dw" in want else None
        ctx.x_at = (x.data_ptr(), x.stride())
        y = run_forward(plan, x, _array(w), bias, ctx.x_hat)
        ctx.plan, ctx.geometry, ctx.has_bias = plan, geometry, bias is not None
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, w = ctx.saved_tensors
        mask = (ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.has_bias and ctx.needs_input_grad[2])
        try:
            gradient = _array(dy)
        except RuntimeError:  # dy is a batch of gradients (is_grads_batched), which has no address
            gradient = None
        if torch.is_grad_enabled() or gradient is None or _is_watched():
            # Second derivatives are wanted, or PyTorch needs to see its operator.
            return (*_differentiable_backward(dy, x, w, ctx.geometry, mask), None, None)
        # torch.utils.checkpoint computes x again, and then the spectra belong to another tensor.
        x_hat = ctx.x_hat if ctx.x_at == (x.data_ptr(), x.stride()) else None
        dx, dw, dbias = _calls.timed(0, ctx.plan.backward, _array(x), gradient, _array(w), None, x_hat, *mask,
                                     torch.get_num_threads())
        return _tensor(dx), _tensor(dw), _tensor(dbias), None, None


def _tensor(array: Any) -> Tensor | None:
    return None if array is None else torch.from_numpy(array)


def _differentiable_backward(dy: Tensor, x: Tensor, w: Tensor, g: Geometry,
                             mask: tuple[bool, bool, bool]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Returns the gradients by PyTorch's own operator, which has derivatives."""
    batched = x.dim() == 5
    if not batched:
        x, dy = x.unsqueeze(0), dy.unsqueeze(0)
    # That operator pads both sides alike. More padding is part of x.
    before = [min(pair) for pair in g.padding]
    extra = [(first - least, last - least) for (first, last), least in zip(g.padding, before)]
    around = [one for pair in reversed(extra) for one in pair]
    padded = F.pad(x, around) if any(around) else x
    bias_size = [w.shape[1] * g.groups if g.transposed else w.shape[0]]
    dx, dw, dbias = torch.ops.aten.convolution_backward(dy, padded, w, bias_size, g.stride, before, g.dilation,
                                                        g.transposed, g.output_padding, g.groups, mask)
    if dx is not None and any(around):
        dx = F.pad(dx, [-one for one in around])
    if dx is not None and not batched:
        dx = dx.squeeze(0)
    return dx, dw, dbias


def _three(value: Ints) -> tuple[int, int, int] | None:
    """Returns three numbers, or None if there are others."""
    if isinstance(value, int):
        return (value, value, value)
    numbers = tuple(value)
    if len(numbers) == 1:
        numbers *= 3
    return numbers if len(numbers) == 3 else None


def _same(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Returns the padding that keeps the extents. The larger half is behind, as in PyTorch."""
    total = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return tuple((one // 2, one - one // 2) for one in total)


def geometry_of(w: Tensor, stride: Ints, padding: Ints | str, dilation: Ints, groups: int, transposed: bool = False,
                output_padding: Ints = 0) -> Geometry | None:
    """Returns the geometry, or None if the arguments are not those of a convolution: PyTorch then says why."""
    try:
        return _geometry(w.shape, stride, padding, dilation, groups, transposed, output_padding)
    except TypeError:  # lists are not hashable
        return _geometry(w.shape, *map(hashable, (stride, padding, dilation)), groups, transposed,
                         hashable(output_padding))


@functools.lru_cache(maxsize=1024)
def _geometry(w: torch.Size, stride: Any, padding: Any, dilation: Any, groups: int, transposed: bool,
              output_padding: Any) -> Geometry | None:
    steps, gaps, more = _three(stride), _three(dilation), _three(output_padding)
    if len(w) != 5 or steps is None or gaps is None or more is None or groups < 1:
        return None
    if isinstance(padding, str):
        if padding not in ("same", "valid") or transposed or (padding == "same" and steps != (1, 1, 1)):
            return None
        pairs: Any = _same(w[2:], gaps) if padding == "same" else ((0, 0),) * 3
    else:
        three = _three(padding)
        if three is None or min(three) < 0:
            return None
        pairs = tuple((one, one) for one in three)
    return Geometry(steps, pairs, gaps, groups, transposed, more)


def serves(x: Any, w: Any, bias: Any) -> bool:
    """Returns whether these are tensors that the package computes with: dense floats of CPUs, of one type.

    Tracers, graphs and other libraries use tensors of their own classes. PyTorch computes those.
    """
    if type(x) not in _CLASSES or type(w) not in _CLASSES:
        return False
    if x.dtype not in _TYPES or w.dtype != x.dtype or not (x.is_cpu and w.is_cpu):
        return False
    if x.layout is not torch.strided or w.layout is not torch.strided or x.dim() not in (4, 5) or x.numel() == 0:
        return False
    if bias is not None and (type(bias) not in _CLASSES or bias.dtype != x.dtype or bias.dim() != 1 or not bias.is_cpu):
        return False
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return not (tracing or torch.compiler.is_compiling() or x.is_neg() or w.is_neg() or _is_watched())


# Every call asks for these numbers, so they are functions here. PyTorch has no public names for them.
_dispatch_modes = torch._C._len_torch_dispatch_stack  # noqa: SLF001
_function_modes = torch._C._len_torch_function_stack  # noqa: SLF001
_has_transforms = torch._C._are_functorch_transforms_active  # noqa: SLF001
_forward_mode = torch.autograd.forward_ad


def _is_watched() -> bool:
    """Returns whether PyTorch needs to see the operator: under modes, transforms of torch.func, and forward-mode
    differentiation."""
    if _dispatch_modes() or _has_transforms() or _forward_mode._current_level >= 0:  # noqa: SLF001
        return True
    return _function_modes() > 0 and _is_under_function_modes()


def _is_under_function_modes() -> bool:
    """Returns whether there is another mode than that of torch.set_default_device(), which does not count."""
    modes = [torch._C._get_function_stack_at(one) for one in range(_function_modes())]  # noqa: SLF001
    return any(type(mode).__module__ != "torch.utils._device" for mode in modes)


def convolve(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, options: Options) -> Tensor:
    """Convolves tensors that serves() accepts. The result has the memory format that PyTorch's would have."""
    channels_last = x.dim() == 5 and _is_channels_last(x, w)
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        x = x.contiguous()  # once, and not in each pass
    wanted = torch.is_grad_enabled() and (x.requires_grad or w.requires_grad or
                                          (bias is not None and bias.requires_grad))
    if wanted:
        y: Tensor = _Convolution.apply(x, w, bias, geometry, options)  # type: ignore[no-untyped-call]
    else:
        y = run_forward(_plan_for(x, w, bias is not None, geometry, (), options), x, _array(w), bias)
    return y.contiguous(memory_format=torch.channels_last_3d) if channels_last else y


def _is_channels_last(x: Tensor, w: Tensor) -> bool:
    """Returns whether PyTorch's result would be in channels_last_3d."""
    return any(one.is_contiguous(memory_format=torch.channels_last_3d) and not one.is_contiguous() for one in (x, w))


def _autocast(x: Any, w: Any, bias: Any) -> tuple[Any, Any, Any, torch.dtype | None]:
    """Returns the tensors in float32, and the type of the result, if autocast is on."""
    if not torch.is_autocast_enabled("cpu"):
        return x, w, bias, None
    tensors = [one for one in (x, w, bias) if one is not None]
    if any(type(one) not in _CLASSES or not one.is_floating_point() or one.dtype == torch.float64
           for one in tensors):
        return x, w, bias, None
    return x.float(), w.float(), None if bias is None else bias.float(), torch.get_autocast_dtype("cpu")


class Call(NamedTuple):
    """What compute() takes: tensors that serves() accepts, a geometry, and the type of the result (None: that of x)."""

    x: Tensor
    w: Tensor
    bias: Tensor | None
    geometry: Geometry
    dtype: torch.dtype | None


def call_of_conv3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                   groups: Any = 1) -> Call | None:
    """Takes the arguments of torch.conv3d. Returns None if PyTorch has to compute it."""
    x, w, b, dtype = _autocast(input, weight, bias)
    geometry = geometry_of(w, stride, padding, dilation, groups) if serves(x, w, b) else None
    return None if geometry is None else Call(x, w, b, geometry, dtype)


def call_of_conv_transpose3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                             output_padding: Any = 0, groups: Any = 1, dilation: Any = 1) -> Call | None:
    """Takes the arguments of torch.conv_transpose3d. Returns None if PyTorch has to compute it."""
    x, w, b, dtype = _autocast(input, weight, bias)
    geometry = geometry_of(w, stride, padding, dilation, groups, True, output_padding) if serves(x, w, b) else None
    return None if geometry is None else Call(x, w, b, geometry, dtype)


def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0,
           dilation: Ints = 1, groups: int = 1) -> Tensor:
    """As torch.nn.functional.conv3d. What the package does not serve is computed by PyTorch: other types and devices,
    tensors of other classes, and everything under tracers.

    Under autocast it is computed in float32, and returned in the type that autocast was given.
    """
    call = call_of_conv3d(input, weight, bias, stride, padding, dilation, groups)
    if call is None:
        return torch_conv3d(input, weight, bias, stride, padding, dilation, groups)  # type: ignore[no-any-return]
    return compute(*call, Options())


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """As torch.nn.functional.conv_transpose3d; see conv3d()."""
    call = call_of_conv_transpose3d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    if call is None:
        return torch_conv_transpose3d(input, weight, bias, stride, padding,  # type: ignore[no-any-return]
                                      output_padding, groups, dilation)
    return compute(*call, Options())


def compute(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, dtype: torch.dtype | None,
            options: Options) -> Tensor:
    """Convolves, and returns a result of this type; None: that of x. PyTorch computes what no engine serves."""
    try:
        y = _calls.timed(1, convolve, x, w, bias, geometry, options)
    except REFUSALS:
        # PyTorch has its own message for what cannot be, and computes the rest.
        return _by_pytorch(x, w, bias, geometry, dtype)
    return y if dtype is None else y.to(dtype)


def _by_pytorch(x: Tensor, w: Tensor, bias: Tensor | None, g: Geometry, dtype: torch.dtype | None) -> Tensor:
    _calls.left()
    before = [first for first, _ in g.padding]
    with torch.autocast("cpu", enabled=False):
        if g.transposed:
            y: Tensor = torch_conv_transpose3d(x, w, bias, g.stride, before, g.output_padding, g.groups, g.dilation)
        else:
            # Only "same" pads more behind.
            padding = before if all(first == last for first, last in g.padding) else "same"
            y = torch_conv3d(x, w, bias, g.stride, padding, g.dilation, g.groups)
    return y if dtype is None else y.to(dtype)
