"""Fourier transforms with the names and the arguments of scipy.fft.

`workers` are the threads of a call; None takes those of convolume.set_threads(). `plan` is always None, as in SciPy.
float32 stays float32.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core

__all__ = ["fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "next_fast_len", "rfft", "rfft2",
           "rfftn"]

Array = npt.NDArray[Any]
Axes = int | Sequence[int] | None

_R2C, _C2R, _FORWARD, _BACKWARD = range(4)
_MOST_AXES = 3  # of one plan


def _floats(x: Any, real: bool) -> Array:
    """Returns x as float32, float64, or the complex numbers of these."""
    a = np.asarray(x)
    if a.dtype == np.longdouble or a.dtype == np.clongdouble:
        raise TypeError(f"x has dtype {a.dtype}; use float64 or complex128")
    if a.dtype.kind not in "biufc":
        raise TypeError(f"x has dtype {a.dtype}; use numbers")
    if real and a.dtype.kind == "c":
        raise TypeError("x must be a real sequence: it has dtype " + str(a.dtype))
    if a.dtype.kind == "c":
        kind: npt.DTypeLike = a.dtype.newbyteorder("=")
    elif a.dtype.kind == "f":
        kind = np.float32 if a.dtype.itemsize <= 4 else np.float64
    else:
        kind = np.float64
    return a.astype(kind, copy=False)


def _complex(a: Array) -> Array:
    return a if a.dtype.kind == "c" else a.astype(np.complex64 if a.dtype == np.float32 else np.complex128)


def _numbers(name: str, value: Any) -> list[int]:
    try:
        return [operator.index(value)]
    except TypeError:
        pass
    try:
        return [operator.index(one) for one in value]
    except TypeError:
        raise ValueError(f"{name} must be a scalar or iterable of integers") from None


def _shape_and_axes(a: Array, s: Axes, axes: Axes) -> tuple[list[int], list[int]]:
    """Returns the extents and the axes of a transform, as SciPy resolves them."""
    if axes is None:
        chosen = list(range(a.ndim)) if s is None else list(range(a.ndim - len(_numbers("shape", s)), a.ndim))
        if chosen and chosen[0] < 0:
            raise ValueError("shape requires more axes than are present")
    else:
        chosen = [axis + a.ndim if axis < 0 else axis for axis in _numbers("axes", axes)]
        if any(axis >= a.ndim or axis < 0 for axis in chosen):
            raise ValueError("axes exceeds dimensionality of input")
        if len(set(chosen)) != len(chosen):
            raise ValueError("all axes must be unique")
    if s is None:
        extents = [a.shape[axis] for axis in chosen]
    else:
        extents = [a.shape[axis] if one == -1 else one for one, axis in zip(_numbers("shape", s), chosen)]
        if len(_numbers("shape", s)) != len(chosen):
            raise ValueError("when given, axes and shape arguments have to be of the same length")
    if any(one < 1 for one in extents):
        raise ValueError(f"invalid number of data points ({extents}) specified")
    if not chosen:
        raise ValueError("at least 1 axis must be transformed")
    return extents, chosen


def _fitted(a: Array, extents: Sequence[int], axes: Sequence[int]) -> Array:
    """Crops the array, or pads it with zeros, so that it has these extents along the axes."""
    crop = [slice(None)] * a.ndim
    shape = list(a.shape)
    for extent, axis in zip(extents, axes):
        crop[axis] = slice(0, extent)
        shape[axis] = extent
    part = a[tuple(crop)]
    if list(part.shape) == shape:
        return part
    padded = np.zeros(shape, a.dtype)
    padded[tuple(slice(0, one) for one in part.shape)] = part
    return padded


def _scale(norm: str | None, forward: bool, points: int) -> float:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm!r}; should be "backward", "ortho" or "forward"')
    if norm == "ortho":
        return 1 / math.sqrt(points)
    return 1 / points if forward == (norm == "forward") else 1.0


def _readable(a: Array) -> Array:
    """Returns an array whose elements a plan can address: positive strides, nothing shared."""
    reach = 0
    for stride, extent in sorted((stride, extent) for stride, extent in zip(a.strides, a.shape) if extent > 1):
        if stride <= reach or stride % a.itemsize:
            return np.ascontiguousarray(a)
        reach += stride * (extent - 1)
    return a


def _workers(workers: int | None) -> int:
    if workers is None:
        return 0
    number = operator.index(workers)
    if number < 0:
        cpus = _core.available_cpus()
        if number < -cpus:
            raise ValueError(f"workers value out of range; got {number}, must not be less than {-cpus}")
        number += cpus + 1
    if number == 0:
        raise ValueError("workers must not be zero")
    return number


def _run(a: Array, y: Array, kind: int, axes: Sequence[int], workers: int) -> None:
    """Transforms a to y along at most three axes."""
    others = [axis for axis in range(a.ndim) if axis not in axes and a.shape[axis] > 1]
    if a.size == 0 or y.size == 0:
        return
    # The longest of the other axes is the batch of a plan. The others are looped over.
    batch = max(others, key=lambda axis: a.shape[axis], default=-1)
    looped = [axis for axis in others if axis != batch]
    for place in np.ndindex(*(a.shape[axis] for axis in looped)):
        index: list[Any] = [slice(None)] * a.ndim
        for axis, at in zip(looped, place):
            index[axis] = slice(at, at + 1)
        _core.transform(a[tuple(index)], y[tuple(index)], kind, list(axes), batch, workers)


def _c2c(x: Any, forward: bool, s: Axes, axes: Axes, norm: str | None, workers: int | None) -> Array:
    a = _complex(_floats(x, real=False))
    extents, chosen = _shape_and_axes(a, s, axes)
    scale, threads = _scale(norm, forward, math.prod(extents)), _workers(workers)
    a = _readable(_fitted(a, extents, chosen))
    for first in range(len(chosen), 0, -_MOST_AXES):
        y = np.empty(a.shape, a.dtype)
        _run(a, y, _FORWARD if forward else _BACKWARD, chosen[max(0, first - _MOST_AXES):first], threads)
        a = y
    if scale != 1:
        np.multiply(a, a.real.dtype.type(scale), out=a)
    return a


def _r2c(x: Any, s: Axes, axes: Axes, norm: str | None, workers: int | None) -> Array:
    a = _floats(x, real=True)
    extents, chosen = _shape_and_axes(a, s, axes)
    scale, threads = _scale(norm, True, math.prod(extents)), _workers(workers)
    a = _readable(_fitted(a, extents, chosen))
    shape = list(a.shape)
    shape[chosen[-1]] = extents[-1] // 2 + 1
    y = np.empty(shape, np.complex64 if a.dtype == np.float32 else np.complex128)
    _run(a, y, _R2C, chosen[-_MOST_AXES:], threads)
    for first in range(len(chosen) - _MOST_AXES, 0, -_MOST_AXES):
        done = np.empty(shape, y.dtype)
        _run(y, done, _FORWARD, chosen[max(0, first - _MOST_AXES):first], threads)
        y = done
    if scale != 1:
        np.multiply(y, y.real.dtype.type(scale), out=y)
    return y


def _c2r(x: Any, s: Axes, axes: Axes, norm: str | None, workers: int | None) -> Array:
    a = _complex(_floats(x, real=False))
    # Without s, the last axis has an even number of points.
    if s is None:
        extents, chosen = _shape_and_axes(a, None, axes)
        extents[-1] = 2 * (a.shape[chosen[-1]] - 1)
    else:
        extents, chosen = _shape_and_axes(a, s, axes)
    if extents[-1] < 1:
        raise ValueError(f"Invalid number of data points ({extents[-1]}) specified")
    scale, threads = _scale(norm, False, math.prod(extents)), _workers(workers)
    half = [*extents[:-1], extents[-1] // 2 + 1]
    a = _readable(_fitted(a, half, chosen))
    for last in range(0, len(chosen) - _MOST_AXES, _MOST_AXES):
        done = np.empty(a.shape, a.dtype)
        _run(a, done, _BACKWARD, chosen[last:min(last + _MOST_AXES, len(chosen) - _MOST_AXES)], threads)
        a = done
    shape = list(a.shape)
    shape[chosen[-1]] = extents[-1]
    y = np.empty(shape, np.float32 if a.dtype == np.complex64 else np.float64)
    _run(a, y, _C2R, chosen[-_MOST_AXES:], threads)
    if scale != 1:
        np.multiply(y, y.dtype.type(scale), out=y)
    return y


def _one(n: int | None) -> list[int] | None:
    return None if n is None else [operator.index(n)]


def fftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the discrete Fourier transform along several axes."""
    return _c2c(x, True, s, axes, norm, workers)


def ifftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of fftn()."""
    return _c2c(x, False, s, axes, norm, workers)


def rfftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the transform of real numbers along several axes: the first half of the last one."""
    return _r2c(x, s, axes, norm, workers)


def irfftn(x: Any, s: Axes = None, axes: Axes = None, norm: str | None = None, overwrite_x: bool = False,
           workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of rfftn()."""
    return _c2r(x, s, axes, norm, workers)


def fft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns fftn() along two axes."""
    return _c2c(x, True, s, axes, norm, workers)


def ifft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of fft2()."""
    return _c2c(x, False, s, axes, norm, workers)


def rfft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns rfftn() along two axes."""
    return _r2c(x, s, axes, norm, workers)


def irfft2(x: Any, s: Axes = None, axes: Axes = (-2, -1), norm: str | None = None, overwrite_x: bool = False,
           workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of rfft2()."""
    return _c2r(x, s, axes, norm, workers)


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
        workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the discrete Fourier transform along one axis, cropped or padded to n points."""
    return _c2c(x, True, _one(n), [axis], norm, workers)


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of fft()."""
    return _c2c(x, False, _one(n), [axis], norm, workers)


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
         workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the first half of the transform of real numbers along one axis."""
    return _r2c(x, _one(n), [axis], norm, workers)


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None, overwrite_x: bool = False,
          workers: int | None = None, *, plan: None = None) -> Array:
    """Returns the inverse of rfft()."""
    return _c2r(x, _one(n), [axis], norm, workers)


def next_fast_len(target: int, real: bool = False) -> int:
    """Returns the smallest number of points from `target` on that has no prime factor above 7."""
    number = operator.index(target)
    if number < 1:
        raise ValueError(f"target is {number}; it must be positive")
    return _core.good_size(number)
