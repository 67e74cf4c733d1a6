# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""accelerated(): PyTorch's own functions use the package, for programs that cannot be edited."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit import _builtins

from . import _calls, _convolution
from ._calls import Calls
from ._convolution import Call
from ._problem import Options, checked_options

# The options of those who switched it on, the last one last. A new tuple takes the place of the old one, so that calls
# read it without a lock.
_active: tuple[tuple[Options, Calls], ...] = ()
# What the attributes were before.
_before: list[tuple[Any, str, Any]] = []


def _replacement(original: Any, call_of: Callable[..., Call | None]) -> Any:
    """Returns a function that takes the place of PyTorch's `original`."""

    def replacement(*args: Any, **kwargs: Any) -> Any:
        active = _active
        if not active:  # somebody has kept this function
            return original(*args, **kwargs)
        try:
            call = call_of(*args, **kwargs)
        except (TypeError, ValueError):  # PyTorch takes the arguments, or says in its own words why not
            call = None
        y = _convolution.compute(call, active[-1][0])
        return original(*args, **kwargs) if y is None else y

    # A pickle has the name of PyTorch's function, so it can be loaded without the package.
    replacement.__name__ = replacement.__qualname__ = original.__name__
    replacement.__module__ = "torch.nn.functional"
    replacement.__doc__ = original.__doc__
    # torch.compile looks for this attribute, and then traces the original.
    replacement._torchdynamo_inline = original  # type: ignore[attr-defined]
    return replacement


_REPLACEMENTS = {"conv3d": _replacement(_convolution.torch_conv3d, _convolution.call_of_conv3d),
                 "conv_transpose3d": _replacement(_convolution.torch_conv_transpose3d,
                                                  _convolution.call_of_conv_transpose3d)}


def _switch_on(calls: Calls, options: Options) -> None:
    global _active
    with _calls.lock:
        if not _active:
            for name, function in _REPLACEMENTS.items():
                # torch.jit.script looks for operators in a table of functions.
                _builtins._register_builtin(function, f"aten::{name}")  # noqa: SLF001
                for module in (torch, torch.nn.functional):
                    _before.append((module, name, getattr(module, name)))
            for module, name, _ in _before:
                setattr(module, name, _REPLACEMENTS[name])
        _active += ((options, calls),)
        _calls.begin(calls)


def _switch_off(calls: Calls) -> None:
    global _active
    with _calls.lock:
        _calls.end(calls)
        _active = tuple(one for one in _active if one[1] is not calls)
        if not _active:
            for module, name, function in _before:
                setattr(module, name, function)
            _before.clear()


def start(calls: Calls, policy: str, memory_budget: int | None) -> None:
    """Does what accelerated() does, until the process ends."""
    _switch_on(calls, Options(policy, memory_budget))


@contextlib.contextmanager
def accelerated(policy: str = "fastest", memory_budget: int | None = 0) -> Iterator[Calls]:
    """Makes PyTorch's conv3d and conv_transpose3d use the package, in all threads of the process, until the block ends.

    The attributes torch.conv3d, torch.nn.functional.conv3d and those of conv_transpose3d are replaced, which layers of
    torch.nn call. A program that has copied one of these functions before (`from torch.nn.functional import conv3d`)
    keeps PyTorch's. What the package does not serve is computed by PyTorch, as are calls under tracers, modes and
    transforms.

    `policy` says which convolutions are ours: "fastest", "tuned" or "always". `memory_budget` limits the bytes of
    spectra that a call keeps from forward to backward; None means no limit. Blocks may be nested, and several threads
    may have blocks. The one that began last sets the policy. When the last one ends, the attributes are what they were.

    Yields the numbers of calls and the seconds of this block, and of all threads. Raises ValueError for other policies
    and for a negative budget.

    >>> import torch, convolume.torch
    >>> layer = torch.nn.Conv3d(4, 8, 3)
    >>> with convolume.torch.accelerated("always") as calls:
    ...     y = layer(torch.zeros(1, 4, 8, 8, 8))
    >>> calls.ours
    1
    """
    options = checked_options(policy, memory_budget)
    calls = Calls()
    _switch_on(calls, options)
    try:
        yield calls
    finally:
        _switch_off(calls)
