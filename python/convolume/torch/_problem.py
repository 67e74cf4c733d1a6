# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""What is convolved: the geometry by PyTorch's arguments, and the options of a call."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._convolution import hashable

Ints = int | Sequence[int]

BLOCK_BYTES = 64  # of the channels that lie side by side in a blocked tensor, and the alignment of a block


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

    policy: str = "always"  # which of them are ours; see POLICIES
    memory_budget: int | None = None  # bytes of spectra that may live from forward to backward; None: no limit


# "fastest": those that are expected to be faster than PyTorch's. "tuned": those that were measured to be faster.
# "always": all that the package serves.
POLICIES = ("fastest", "tuned", "always")


def checked_options(policy: str, memory_budget: int | None) -> Options:
    """Returns options. Raises ValueError that names a wrong one."""
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}; it is {policy!r}")
    if memory_budget is not None and memory_budget < 0:
        raise ValueError(f"memory_budget must not be negative; it is {memory_budget}")
    return Options(policy, memory_budget)


class Problem(NamedTuple):
    """A convolution of tensors of certain shapes, with the gradients that are wanted. x may have no N."""

    x_shape: torch.Size
    w_shape: torch.Size
    dtype: torch.dtype
    bias: int  # its values; 0: there is none
    geometry: Geometry
    want: tuple[str, ...]  # of "dx" and "dw"; PyTorch computes forward only if it is empty
    channels_last: bool  # the format of x or w, and so that of y
    x_blocked: bool = False  # x lies as one channel block: channels last, and as many as a block holds
    narrow: torch.dtype | None = None  # under autocast, the type in which PyTorch would compute; None: dtype


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
