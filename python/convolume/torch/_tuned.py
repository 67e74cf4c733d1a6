# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""Measures a convolution in the package and in PyTorch, and remembers the seconds in the wisdom store."""
from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from .. import _core
from ._problem import Options, Problem

_SECONDS, _LEAST, _MOST = 0.3, 3, 50  # for both sides together; calls of each


def measured_seconds(problem: Problem, options: Options, plan: _core.Plan) -> tuple[float, float]:
    """Returns the seconds of a call with its gradients, ours and PyTorch's, with the threads of now.

    They come from the wisdom store if it has them. Otherwise both are measured in turn: the median of their calls.
    """
    key = _key(problem, options, plan)
    try:
        ours, theirs = map(float, (_core.find_wisdom(key) or "").split())
        return ours, theirs
    except (OSError, ValueError):  # the store has no such key, or cannot be read: measure
        pass
    ours, theirs = _measured(problem, plan)
    try:
        _core.store_wisdom(key, f"{ours:.3g} {theirs:.3g}")
    except (OSError, _core.FormatError):
        pass  # the times are still valid; the next process measures again
    return ours, theirs


def _key(problem: Problem, options: Options, plan: _core.Plan) -> str:
    g = problem.geometry
    parts = ["torch", torch.__version__, _core.version(), _core.cpu_name(), _core.machine_row(),
             f"threads={torch.get_num_threads()}",
             f"x={tuple(problem.x_shape)}", f"w={tuple(problem.w_shape)}", str(problem.dtype), f"bias={problem.bias}",
             f"stride={g.stride}", f"padding={g.padding}", f"dilation={g.dilation}", f"groups={g.groups}",
             f"transposed={g.transposed}", f"output_padding={g.output_padding}", f"want={'+'.join(problem.want)}",
             f"channels_last={problem.channels_last}", f"blocked={problem.x_blocked}",
             f"narrow={problem.narrow}", f"budget={options.memory_budget}", plan.choice]
    return " ".join(parts).replace("=", ":")  # in the store, "=" ends a key


def _measured(problem: Problem, plan: _core.Plan) -> tuple[float, float]:
    from . import _convolution
    g = problem.geometry
    before = [first for first, _ in g.padding]
    layout = torch.channels_last_3d if problem.channels_last else torch.contiguous_format
    generator = torch.Generator().manual_seed(0)

    def tensor(shape: torch.Size, wanted: bool, dtype: torch.dtype = problem.dtype) -> Tensor:
        made = torch.randn(shape, generator=generator, dtype=dtype, device="cpu")
        return (made.contiguous(memory_format=layout) if len(shape) == 5 else made).requires_grad_(wanted)

    # Hooks of the program must not see what is saved here.
    unhooked = torch.autograd.graph.saved_tensors_hooks(lambda one: one, lambda one: one)
    # Each training step converts the weights anew.
    autocast = torch.autocast("cpu", dtype=problem.narrow, enabled=problem.narrow is not None, cache_enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), autocast, unhooked:
        # Under autocast, the layer before gives x in the narrow type.
        x = tensor(problem.x_shape, "dx" in problem.want, problem.narrow or problem.dtype)
        w = tensor(problem.w_shape, "dw" in problem.want)
        bias = tensor(torch.Size(plan.y_shape[1:2]), False) if problem.bias > 0 else None

        def own() -> Tensor:
            return _convolution.convolve(plan, problem, x.to(problem.dtype), w, bias, problem.narrow)

        def theirs() -> Tensor:
            if g.transposed:
                y: Tensor = _convolution.torch_conv_transpose3d(x, w, bias, g.stride, before, g.output_padding,
                                                                g.groups, g.dilation)
            else:
                # Only "same" pads more behind.
                padding = before if all(first == last for first, last in g.padding) else "same"
                y = _convolution.torch_conv3d(x, w, bias, g.stride, padding, g.dilation, g.groups)
            return y

        inputs = [one for one in (x, w) if one.requires_grad]
        return _in_turn(_training(own, inputs), _training(theirs, inputs))


def _training(call: Callable[[], Tensor], inputs: list[Tensor]) -> Callable[[], object]:
    if not inputs:
        return call
    dy = torch.ones_like(call())
    return lambda: torch.autograd.grad(call(), inputs, dy)


def _in_turn(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    calls = (ours, theirs)
    times: tuple[list[float], list[float]] = ([], [])
    for call in calls:
        call()
    end = time.perf_counter() + _SECONDS
    while len(times[0]) < _LEAST or (len(times[0]) < _MOST and time.perf_counter() < end):
        for call, found in zip(calls, times):
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    middles = [sorted(found)[len(found) // 2] for found in times]
    return middles[0], middles[1]
