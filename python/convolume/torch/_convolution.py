# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""conv3d() and conv_transpose3d() of tensors, as functions that autograd knows."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _core
from . import _calls, _policy, _threads, _torch_cost
from ._problem import BLOCK_BYTES, Geometry, Ints, Options, Problem, geometry_of

_threads.use_team_of_pytorch()

# PyTorch's functions. The attributes of its modules are others while accelerated() is on.
torch_conv3d: Any = torch.conv3d
torch_conv_transpose3d: Any = torch.conv_transpose3d

_CLASSES = (Tensor, torch.nn.Parameter)
_TYPES = (torch.float32, torch.float64)
# Results of so many bytes lie in memory that the package keeps. New pages of the system would take longer to write than
# most convolutions need.
_KEPT_BYTES = 1 << 20


def _with_rows(tensor: Tensor) -> Tensor:
    """Returns the tensor, or a copy whose rows are contiguous along X."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _as_block(tensor: Tensor) -> Tensor:
    """Returns the tensor of one channel block, or a copy, in channels_last_3d from an address that blocks begin at."""
    tensor = tensor.contiguous(memory_format=torch.channels_last_3d)
    if tensor.data_ptr() % BLOCK_BYTES == 0:
        return tensor
    return _empty(tensor.shape, tensor, blocked=True).copy_(tensor)


def _located(tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.stride()


def _laid_out(tensor: Tensor, blocked: bool) -> Tensor:
    """Returns a tensor that lies as a plan reads x or dy, or a copy."""
    return _as_block(tensor) if blocked else _with_rows(tensor)


def _empty(shape: Sequence[int], like: Tensor, blocked: bool = False) -> Tensor:
    """Returns a contiguous tensor of the type of another one, or one in channels_last_3d."""
    if math.prod(shape) * like.itemsize < _KEPT_BYTES:
        return torch.empty(shape, dtype=like.dtype,
                           memory_format=torch.channels_last_3d if blocked else torch.contiguous_format)
    if not blocked:
        return torch.from_numpy(_core.empty(shape, like.dtype is torch.float32, False))
    # NumPy moves the axes, because autograd would forbid to change a view of PyTorch in place.
    n, c, *extents = shape
    return torch.from_numpy(_core.empty((n, *extents, c), like.dtype is torch.float32, False).transpose(0, 4, 1, 2, 3))


def run_forward(plan: _core.Plan, x: Tensor, w: Tensor | _core.PreparedWeights, bias: Tensor | None,
                x_hat: _core.Spectra | None = None) -> Tensor:
    """Returns y. Rows of x are contiguous, or x lies as one channel block if the plan reads it so."""
    shape = plan.y_shape
    y = _empty(shape if x.dim() == 5 else shape[1:], x, plan.y_blocked)
    if isinstance(w, Tensor):
        w = _with_rows(w)  # lives until the end of the call
    if bias is not None:
        bias = bias.contiguous()
    plan.forward_at(_located(x), _located(w) if isinstance(w, Tensor) else w, 0 if bias is None else bias.data_ptr(),
                    y.data_ptr(), x_hat, torch.get_num_threads())
    return y


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, plan: _core.Plan, geometry: Geometry) -> Tensor:
        # The spectra of x serve the gradient of the weights.
        ctx.x_hat = plan.spectra() if ctx.needs_input_grad[1] and plan.keeps_x_hat else None
        ctx.x_at = _located(x)
        y = run_forward(plan, x, w, bias, ctx.x_hat)
        ctx.plan, ctx.geometry = plan, geometry
        ctx.save_for_backward(x, w)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, w = ctx.saved_tensors
        mask = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled() or _is_watched() or not _has_address(dy):
            # Second derivatives are wanted, or PyTorch needs to see its operator.
            return (*_differentiable_backward(dy, x, w, ctx.geometry, mask), None, None)
        # Hooks of saved tensors may return others with the same values.
        x = _laid_out(x, ctx.plan.x_blocked)
        x_at = _located(x)
        # torch.utils.checkpoint computes x again, and then the spectra belong to another tensor.
        x_hat = ctx.x_hat if ctx.x_at == x_at else None
        # Programs keep a loss, and so this, until the next one is computed. A second pass computes the spectra again.
        ctx.x_hat = None
        dx = _empty(x.shape, x, ctx.plan.x_blocked) if mask[0] else None
        dw = _empty(w.shape, x) if mask[1] else None
        dbias = x.new_empty(ctx.plan.y_shape[1]) if mask[2] else None
        dy, w = _laid_out(dy.resolve_neg(), ctx.plan.y_blocked), _with_rows(w)
        addresses = [0 if one is None else one.data_ptr() for one in (dx, dw, dbias)]
        _calls.timed(0, ctx.plan.backward_at, x_at, _located(dy), _located(w), x_hat, *addresses,
                     torch.get_num_threads())
        return dx, dw, dbias, None, None


def _has_address(dy: Tensor) -> bool:
    try:
        dy.data_ptr()
    except RuntimeError:  # a batch of gradients (is_grads_batched)
        return False
    return True


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


def serves(x: Any, w: Any, bias: Any) -> bool:
    """Returns whether these are tensors that the package computes with: dense floats of CPUs, of one type.

    Tracers, graphs and other libraries use tensors of their own classes. PyTorch computes those.
    """
    if type(x) not in _CLASSES or type(w) not in _CLASSES or torch.compiler.is_compiling():
        return False
    if x.dtype not in _TYPES or w.dtype is not x.dtype or not x.is_cpu or not w.is_cpu:
        return False
    if x.layout is not torch.strided or w.layout is not torch.strided or x.dim() not in (4, 5) or x.numel() == 0:
        return False
    if bias is not None and (type(bias) not in _CLASSES or bias.dtype is not x.dtype or bias.dim() != 1
                             or not bias.is_cpu or bias.is_neg() or bias.numel() == 0):
        return False
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return not (tracing or x.is_neg() or w.is_neg() or _is_watched())


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


def problem_of(x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry,
               narrow: torch.dtype | None = None) -> Problem:
    """Returns the problem of tensors that serves() accepts, and of the type of autocast."""
    want: tuple[str, ...] = ()
    if torch.is_grad_enabled():
        if x.requires_grad:
            want = ("dx", "dw") if w.requires_grad else ("dx",)
        elif w.requires_grad:
            want = ("dw",)
    channels_last = _is_channels_last(x, w)
    return Problem(x.shape, w.shape, x.dtype, 0 if bias is None else bias.shape[0], geometry, want, channels_last,
                   channels_last and _is_block(x), narrow)


def wants_gradients(x: Tensor, w: Tensor, bias: Tensor | None) -> bool:
    return torch.is_grad_enabled() and (x.requires_grad or w.requires_grad or
                                        (bias is not None and bias.requires_grad))


def convolve(plan: _core.Plan, problem: Problem, x: Tensor, w: Tensor | _core.PreparedWeights, bias: Tensor | None,
             dtype: torch.dtype | None = None) -> Tensor:
    """Convolves by a plan. The result has the memory format that PyTorch's would have, and this type; None: that of x.
    """
    x = _laid_out(x, plan.x_blocked)  # once, and not in each pass
    if isinstance(w, Tensor) and wants_gradients(x, w, bias):
        y: Tensor = _calls.timed(1, _Convolution.apply, x, w, bias, plan, problem.geometry)
    else:
        y = _calls.timed(1, run_forward, plan, x, w, bias)
    if not plan.y_blocked and _torch_cost.writes_channels_last(problem):
        y = y.contiguous(memory_format=torch.channels_last_3d)
    return y if dtype is None else y.to(dtype)


def _is_channels_last(x: Tensor, w: Tensor) -> bool:
    """Returns whether x or w is in channels_last_3d."""
    if x.dim() == 4 or (x.is_contiguous() and w.is_contiguous()):
        return False
    return any(one.is_contiguous(memory_format=torch.channels_last_3d) and not one.is_contiguous() for one in (x, w))


def _is_block(x: Tensor) -> bool:
    """Returns whether a tensor in channels_last_3d lies as one channel block of the package."""
    return (x.shape[1] * x.itemsize == BLOCK_BYTES and x.data_ptr() % BLOCK_BYTES == 0
            and x.is_contiguous(memory_format=torch.channels_last_3d))


def autocast(x: Any, w: Any, bias: Any) -> tuple[Any, Any, Any, torch.dtype | None]:
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
    x, w, b, dtype = autocast(input, weight, bias)
    geometry = geometry_of(w, stride, padding, dilation, groups) if serves(x, w, b) else None
    return None if geometry is None else Call(x, w, b, geometry, dtype)


def call_of_conv_transpose3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
                             output_padding: Any = 0, groups: Any = 1, dilation: Any = 1) -> Call | None:
    """Takes the arguments of torch.conv_transpose3d. Returns None if PyTorch has to compute it."""
    x, w, b, dtype = autocast(input, weight, bias)
    geometry = geometry_of(w, stride, padding, dilation, groups, True, output_padding) if serves(x, w, b) else None
    return None if geometry is None else Call(x, w, b, geometry, dtype)


def compute(call: Call | None, options: Options) -> Tensor | None:
    """Returns the result of a call. None means that PyTorch has to compute it: there is no call, no engine serves it,
    or the policy says so."""
    if call is not None:
        problem = problem_of(call.x, call.w, call.bias, call.geometry, call.dtype)
        plan = _policy.decide(problem, options).plan
        if plan is not None:
            return convolve(plan, problem, call.x, call.w, call.bias, call.dtype)
    _calls.left()
    return None


def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0,
           dilation: Ints = 1, groups: int = 1) -> Tensor:
    """As torch.nn.functional.conv3d. What the package does not serve is computed by PyTorch: other types and devices,
    tensors of other classes, and everything under tracers, modes and transforms.

    Under autocast it is computed in float32, and returned in the type that autocast was given.
    """
    y = compute(call_of_conv3d(input, weight, bias, stride, padding, dilation, groups), Options())
    if y is None:
        return torch_conv3d(input, weight, bias, stride, padding, dilation, groups)  # type: ignore[no-any-return]
    return y


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """As torch.nn.functional.conv_transpose3d; see conv3d()."""
    call = call_of_conv_transpose3d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    y = compute(call, Options())
    if y is None:
        return torch_conv_transpose3d(input, weight, bias, stride, padding,  # type: ignore[no-any-return]
                                      output_padding, groups, dilation)
    return y
