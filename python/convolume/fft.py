"""Fourier transforms with the names and the arguments of scipy.fft, and plans for them.

`workers` are the threads of a call; None takes those of convolume.set_threads(). `plan` is always None, as in SciPy.
float32 stays float32. `scipy.fft.set_backend(convolume.fft)` makes SciPy use them.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from . import _core, _fft_backend
from ._fft_plan import Plan
from ._transforms import Array, Axes, c2c, c2r, r2c

__all__ = ["Plan", "fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "next_fast_len",
           "rfft", "rfft2", "rfftn"]


def _one(n: int | None) -> list[int] | None:
    return None if n is None else [operator.index(n)]


def fftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the discrete Fourier transform along several axes."""
    return c2c(x, True, s, axes, norm, workers, plan)


def ifftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of fftn()."""
    return c2c(x, False, s, axes, norm, workers, plan)


def rfftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the transform of real numbers along several axes: the first half of the last one."""
    return r2c(x, s, axes, norm, workers, plan)


def irfftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
           workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of rfftn()."""
    return c2r(x, s, axes, norm, workers, plan)


def fft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns fftn() along two axes."""
    return c2c(x, True, s, axes, norm, workers, plan)


def ifft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of fft2()."""
    return c2c(x, False, s, axes, norm, workers, plan)


def rfft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns rfftn() along two axes."""
    return r2c(x, s, axes, norm, workers, plan)


def irfft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
           workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of rfft2()."""
    return c2r(x, s, axes, norm, workers, plan)


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
        workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the discrete Fourier transform along one axis, cropped or padded to n points."""
    return c2c(x, True, _one(n), [axis], norm, workers, plan)


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of fft()."""
    return c2c(x, False, _one(n), [axis], norm, workers, plan)


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the first half of the transform of real numbers along one axis."""
    return r2c(x, _one(n), [axis], norm, workers, plan)


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of rfft()."""
    return c2r(x, _one(n), [axis], norm, workers, plan)


def next_fast_len(target: int, real: bool = False) -> int:
    """Returns the smallest number of points from `target` on that has no prime factor above 7."""
    number = operator.index(target)
    if number < 1:
        raise ValueError(f"target is {number}; it must be positive")
    return _core.good_size(number)


_TRANSFORMS = {function.__name__: function for function in (fft, ifft, rfft, irfft, fft2, ifft2, rfft2, irfft2,
                                                            fftn, ifftn, rfftn, irfftn)}

__ua_domain__ = "numpy.scipy.fft"


def __ua_function__(method: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Computes a call of scipy.fft for which this module is the backend, or returns NotImplemented."""
    return _fft_backend.call(_TRANSFORMS, method, arguments, options)
