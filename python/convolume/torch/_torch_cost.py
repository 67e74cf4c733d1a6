# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""A model of the time that PyTorch takes for a convolution (docs/performance/log/pytorch.md)."""
from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import torch

from .. import _core
from ._problem import BLOCK_BYTES, Problem


class _Sizes(NamedTuple):
    """Numbers of a problem: samples, channels, their groups, voxels of x and y, and products of a pair of channels."""

    batch: int
    inputs: int
    outputs: int
    groups: int
    x_voxels: int
    y_voxels: int
    products: int
    item: int  # bytes


# Shares of the peak of multiply-adds that oneDNN reaches: forward; in the gradients; in those with a stride, or with
# fewer results than lanes; depthwise forward; and in loops that are not vectorised.
_FORWARD, _FEW_FORWARD, _BACKWARD, _SLOW_BACKWARD, _DEPTHWISE, _SCALAR = 1.0, 0.6, 0.6, 0.3, 0.17, 0.03
# The share that the matrix product of unfolded tensors reaches, and seconds of a core to unfold an element, or to add
# it back ("fold"). Training takes so many times as long as the forward pass.
_GEMM, _UNFOLD, _FOLD, _UNFOLD_TRAINING, _FOLD_TRAINING = 0.8, 1.3e-9, 4.4e-9, 3.2, 2.3
# Bytes per second of tensors that are written: those that the C library keeps, and larger ones, whose pages are new.
_WRITE, _WRITE_NEW, _NEW = 12e9, 3e9, 32_000_000
# Seconds of a call, and of its backward pass.
_ONEDNN_CALL, _UNFOLD_CALL = (150e-6, 400e-6), (40e-6, 160e-6)
_CONVERT_CALLS = 30e-6  # seconds of the calls that convert x and y
# oneDNN reads and writes tensors in channels_last_3d without conversion.
_CHANNELS_LAST = 0.8
# How many times as fast as floats oneDNN multiplies narrow types, by flags of the processor, the best first. With
# others it converts them to floats.
_NARROW = {torch.bfloat16: {"amx_bf16": 8.0, "avx512_bf16": 1.7}, torch.float16: {"amx_fp16": 8.0, "avx512_fp16": 1.7}}
# PyTorch gives a narrow type to oneDNN if the processor has one of these flags.
_NARROW_FLAGS = {torch.bfloat16: ("avx512bw", "avx_ne_convert"), torch.float16: ("avx512_fp16", "avx_ne_convert")}


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _batched(problem: Problem) -> tuple[int, ...]:
    """Returns the shape of x with N."""
    return (1, *problem.x_shape) if len(problem.x_shape) == 4 else tuple(problem.x_shape)


def _sizes(problem: Problem, y_shape: Sequence[int]) -> _Sizes:
    x = _batched(problem)
    x_voxels, y_voxels = math.prod(x[2:]), math.prod(y_shape[2:])
    products = x[0] * math.prod(problem.w_shape[2:]) * (x_voxels if problem.geometry.transposed else y_voxels)
    return _Sizes(x[0], x[1], y_shape[1], problem.geometry.groups, x_voxels, y_voxels, products,
                  problem.dtype.itemsize)


@functools.cache
def _processor_flags() -> frozenset[str]:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def _narrow_rate(problem: Problem) -> float:
    """Returns how many times as fast as floats oneDNN multiplies the type of autocast."""
    rates = _NARROW.get(problem.narrow, {}) if problem.narrow is not None else {}
    return next((rate for flag, rate in rates.items() if flag in _processor_flags()), 1.0)


def uses_onednn(problem: Problem) -> bool:
    """Returns whether PyTorch uses oneDNN, if it has several threads. Otherwise it unfolds x, and multiplies matrices.

    This is the rule of 2.13, for floats: several samples, groups, wide kernels, and all but small inputs. Narrow types
    are all oneDNN's if it has instructions for them.
    """
    x = _batched(problem)
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if problem.dtype is not torch.float32 or not available:
        return False
    if problem.narrow is not None:
        return not _processor_flags().isdisjoint(_NARROW_FLAGS.get(problem.narrow, ()))
    kernel = problem.w_shape[2:]
    return problem.geometry.groups > 1 or min(kernel[1:]) > 3 or x[0] > 1 or math.prod(x[:4]) > 20480


def writes_channels_last(problem: Problem) -> bool:
    """Returns whether the result is in channels_last_3d: x or w is, and oneDNN keeps that."""
    return problem.channels_last and uses_onednn(problem)


def writes_block(problem: Problem) -> bool:
    """Returns whether the result lies as one channel block: channels last, and as many as a block holds."""
    geometry, w = problem.geometry, problem.w_shape
    outputs = w[1] * geometry.groups if geometry.transposed else w[0]
    return outputs * problem.dtype.itemsize == BLOCK_BYTES and writes_channels_last(problem)


def _lanes(item: int) -> int:
    return (64 if "AVX3" in _core.available_simd_targets() else 32) // item


def _written(number: int) -> float:
    return number / (_WRITE_NEW if number >= _NEW else _WRITE)


def _unfolded(problem: Problem, s: _Sizes, peak: float, cores: float) -> float:
    folds = problem.geometry.transposed
    elements = s.products * (s.outputs if folds else s.inputs)
    forward = 2 * s.products * s.inputs * s.outputs / s.groups / (_GEMM * peak)
    forward += elements * (_FOLD if folds else _UNFOLD) / cores
    return forward * ((_FOLD_TRAINING if folds else _UNFOLD_TRAINING) if problem.want else 1)


def _by_onednn(problem: Problem, s: _Sizes, peak: float) -> float:
    geometry, lanes = problem.geometry, _lanes(s.item)
    inputs, outputs = s.inputs // s.groups, s.outputs // s.groups
    flops, passes = 2 * s.products * s.groups, len(problem.want)
    if s.groups > 1 and inputs == outputs == 1:
        vectorised = max(geometry.dilation) == 1 and not geometry.transposed
        return flops / (_DEPTHWISE if vectorised else _SCALAR) / peak + passes * flops / (_SCALAR * peak)
    if s.groups > 1 and outputs < lanes:
        return (1 + passes) * flops * inputs * outputs / (_SCALAR * peak)
    if s.groups == 1 and not geometry.transposed:  # measured: the others are no faster than in floats
        peak *= _narrow_rate(problem)
    # Channels are filled up to whole blocks, but not the few of a first layer.
    outputs_up, inputs_up = _up(outputs, lanes), _up(inputs, lanes)
    inputs_read = inputs if inputs <= 4 else inputs_up
    slow = max(geometry.stride) > 1 or outputs < lanes
    if geometry.transposed:
        rates = {"": _SLOW_BACKWARD, "dx": _FORWARD, "dw": _SLOW_BACKWARD}
        channels = {name: outputs_up * inputs_up for name in rates}
    else:
        backward = _SLOW_BACKWARD if slow else _BACKWARD
        rates = {"": _FEW_FORWARD if outputs < lanes else _FORWARD, "dx": backward, "dw": backward}
        channels = {"": outputs_up * inputs_read, "dx": outputs_up * inputs_up, "dw": outputs_up * inputs_read}
    return sum(flops * channels[one] / (rates[one] * peak) for one in ("", *problem.want))


def seconds_to_convert(problem: Problem, y_shape: Sequence[int]) -> float:
    """Returns the expected seconds to convert x to floats and y back, and their gradients, under autocast."""
    if problem.narrow is None:
        return 0.0
    s = _sizes(problem, y_shape)
    elements = s.batch * (s.inputs * s.x_voxels * (2 if "dx" in problem.want else 1) +
                          s.outputs * s.y_voxels * (2 if problem.want else 1))
    return elements * (s.item + problem.narrow.itemsize) / _WRITE + _CONVERT_CALLS * (2 if problem.want else 1)


def seconds_of_torch(problem: Problem, y_shape: Sequence[int]) -> float:
    """Returns the expected seconds of a call, and of the gradients that the problem wants, one thread per core.

    It reads neither the clock nor the number of threads.
    """
    s, rates = _sizes(problem, y_shape), _core.machine_rates()
    peak = rates["gflops_per_core"] * rates["cores"] * 1e9 * 4 / s.item
    y_bytes, x_bytes = s.item * s.batch * s.outputs * s.y_voxels, s.item * s.batch * s.inputs * s.x_voxels
    seconds = _written(y_bytes)
    if "dx" in problem.want:
        seconds += _written(x_bytes)
    if problem.want:
        seconds += y_bytes / _WRITE
    if uses_onednn(problem):
        seconds += _by_onednn(problem, s, peak)
        call = _ONEDNN_CALL
        if problem.channels_last:
            seconds *= _CHANNELS_LAST
    else:
        seconds += _unfolded(problem, s, peak, rates["cores"])
        call = _UNFOLD_CALL
    return seconds + call[0] + (call[1] if problem.want else 0)
