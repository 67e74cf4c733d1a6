"""What the functions of convolume.fft and its plans share: arguments as SciPy reads them, and the transforms."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core
from ._kept import Kept

Array = npt.NDArray[Any]
Axes = int | Sequence[int] | None

R2C, C2R, FORWARD, BACKWARD = range(4)
MOST_AXES = 3  # of one plan


def floats(x: Any, real: bool) -> Array:
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


def as_complex(a: Array) -> Array:
    return a if a.dtype.kind == "c" else a.astype(np.complex64 if a.dtype == np.float32 else np.complex128)


def integers(name: str, value: Any) -> list[int]:
    try:
        return [operator.index(value)]
    except TypeError:
        pass
    try:
        return [operator.index(one) for one in value]
    except TypeError:
        raise ValueError(f"{name} must be a scalar or iterable of integers") from None


def shape_and_axes(a: Array, s: Axes, axes: Axes) -> tuple[list[int], list[int]]:
    """Returns the extents and the axes of a transform, as SciPy resolves them."""
    if axes is None:
        chosen = list(range(a.ndim)) if s is None else list(range(a.ndim - len(integers("shape", s)), a.ndim))
        if chosen and chosen[0] < 0:
            raise ValueError("shape requires more axes than are present")
    else:
        chosen = [axis + a.ndim if axis < 0 else axis for axis in integers("axes", axes)]
        if any(axis >= a.ndim or axis < 0 for axis in chosen):
            raise ValueError("axes exceeds dimensionality of input")
        if len(set(chosen)) != len(chosen):
            raise ValueError("all axes must be unique")
    if s is None:
        extents = [a.shape[axis] for axis in chosen]
    else:
        extents = [a.shape[axis] if one == -1 else one for one, axis in zip(integers("shape", s), chosen)]
        if len(integers("shape", s)) != len(chosen):
            raise ValueError("when given, axes and shape arguments have to be of the same length")
    if any(one < 1 for one in extents):
        raise ValueError(f"invalid number of data points ({extents}) specified")
    return extents, chosen


def fitted(a: Array, extents: Sequence[int], axes: Sequence[int]) -> Array:
    """Crops the array, or pads it with zeros, so that it has these extents along the axes."""
    crop = [slice(None)] * a.ndim
    shape = list(a.shape)
    for extent, axis in zip(extents, axes):
        crop[axis] = slice(0, extent)
        shape[axis] = extent
    if list(a.shape) == shape:
        return a
    part = a[tuple(crop)]
    if list(part.shape) == shape:
        return part
    padded = np.zeros(shape, a.dtype)
    padded[tuple(slice(0, one) for one in part.shape)] = part
    return padded


def factor_of(norm: str | None, forward: bool, points: int) -> float:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm!r}; should be "backward", "ortho" or "forward"')
    if norm == "ortho":
        return 1 / math.sqrt(points)
    return 1 / points if forward == (norm == "forward") else 1.0


def readable(a: Array) -> Array:
    """Returns an array whose elements a plan can address: positive strides, nothing shared."""
    reach = 0
    for stride, extent in sorted((stride, extent) for stride, extent in zip(a.strides, a.shape) if extent > 1):
        if stride <= reach or stride % a.itemsize:
            return np.ascontiguousarray(a)
        reach += stride * (extent - 1)
    return a


def threads_of(workers: int | None) -> int:
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


def no_plan(plan: None) -> None:
    if plan is not None:
        raise NotImplementedError("a precomputed plan cannot be passed; call a convolume.fft.Plan itself, plan(x)")


_plans: Kept[_core.TransformPlan] = Kept()


def _tuple(value: Axes) -> tuple[int, ...] | None:
    """Returns s or axes for the key of a plan. Raises TypeError if it is no number, tuple or list of integers."""
    if value is None:
        return None
    if type(value) is int:
        return (value,)
    if type(value) is not tuple and type(value) is not list:
        raise TypeError
    return tuple(map(operator.index, value))


def _kept(kind: int, x: Any, s: Axes, axes: Axes, norm: str | None, workers: int | None,
          plan: None) -> tuple[tuple[Any, ...] | None, _core.TransformPlan | None]:
    """Returns the key of a call in the cache of plans, or None if the call cannot have a plan; and its plan, if it is
    there."""
    if type(x) is not np.ndarray or not x.flags.c_contiguous or plan is not None or (
            workers is not None and (type(workers) is not int or workers < 1)):
        return None, None
    try:
        key = (kind, x.shape, x.dtype, _tuple(s), _tuple(axes), norm, workers)
        return key, _plans.get(key)
    except TypeError:
        return None, None


def _planned(key: tuple[Any, ...] | None, kind: int, a: Array, x: Any, shape: Sequence[int], axes: list[int],
             factor: float, workers: int) -> _core.TransformPlan | None:
    """Makes a plan for this call and later ones with the same key, if x is transformed as it is."""
    if key is None or a is not x or len(axes) > MOST_AXES:
        return None
    made = _core.TransformPlan(kind, a.dtype in (np.float32, np.complex64), list(shape), axes, factor, workers)
    _plans.add(key, made)
    return made


def c2c(x: Any, forward: bool, s: Axes, axes: Axes, norm: str | None, workers: int | None, plan: None) -> Array:
    kind = FORWARD if forward else BACKWARD
    key, ready = _kept(kind, x, s, axes, norm, workers, plan)
    if ready is not None:
        return ready(x)
    no_plan(plan)
    a = as_complex(floats(x, real=False))
    extents, chosen = shape_and_axes(a, s, axes)
    scale, threads = factor_of(norm, forward, math.prod(extents)), threads_of(workers)
    if not chosen:
        return a
    a = readable(fitted(a, extents, chosen))
    ready = _planned(key, kind, a, x, a.shape, chosen, scale, threads)
    if ready is not None:
        return ready(x)
    single = a.dtype == np.complex64
    for first in range(len(chosen), 0, -MOST_AXES):
        y = _core.empty(a.shape, single, True)
        _core.transform(a, y, kind, chosen[max(0, first - MOST_AXES):first], threads)
        a = y
    if scale != 1:
        _core.scale(a, scale, threads)
    return a


def r2c(x: Any, s: Axes, axes: Axes, norm: str | None, workers: int | None, plan: None) -> Array:
    key, ready = _kept(R2C, x, s, axes, norm, workers, plan)
    if ready is not None:
        return ready(x)
    no_plan(plan)
    a = floats(x, real=True)
    extents, chosen = shape_and_axes(a, s, axes)
    if not chosen:
        raise ValueError("at least 1 axis must be transformed")
    scale, threads = factor_of(norm, True, math.prod(extents)), threads_of(workers)
    a = readable(fitted(a, extents, chosen))
    ready = _planned(key, R2C, a, x, a.shape, chosen, scale, threads)
    if ready is not None:
        return ready(x)
    shape = list(a.shape)
    shape[chosen[-1]] = extents[-1] // 2 + 1
    single = a.dtype == np.float32
    y = _core.empty(shape, single, True)
    _core.transform(a, y, R2C, chosen[-MOST_AXES:], threads)
    for first in range(len(chosen) - MOST_AXES, 0, -MOST_AXES):
        done = _core.empty(shape, single, True)
        _core.transform(y, done, FORWARD, chosen[max(0, first - MOST_AXES):first], threads)
        y = done
    if scale != 1:
        _core.scale(y, scale, threads)
    return y


def c2r(x: Any, s: Axes, axes: Axes, norm: str | None, workers: int | None, plan: None) -> Array:
    key, ready = _kept(C2R, x, s, axes, norm, workers, plan)
    if ready is not None:
        return ready(x)
    no_plan(plan)
    a = as_complex(floats(x, real=False))
    # Without s, the last axis has an even number of points.
    extents, chosen = shape_and_axes(a, s, axes)
    if not chosen:
        raise ValueError("at least 1 axis must be transformed")
    if s is None:
        extents[-1] = 2 * (a.shape[chosen[-1]] - 1)
    if extents[-1] < 1:
        raise ValueError(f"Invalid number of data points ({extents[-1]}) specified")
    scale, threads = factor_of(norm, False, math.prod(extents)), threads_of(workers)
    half = [*extents[:-1], extents[-1] // 2 + 1]
    a = readable(fitted(a, half, chosen))
    shape = list(a.shape)
    shape[chosen[-1]] = extents[-1]
    ready = _planned(key, C2R, a, x, shape, chosen, scale, threads)
    if ready is not None:
        return ready(x)
    single = a.dtype == np.complex64
    for last in range(0, len(chosen) - MOST_AXES, MOST_AXES):
        done = _core.empty(a.shape, single, True)
        _core.transform(a, done, BACKWARD, chosen[last:min(last + MOST_AXES, len(chosen) - MOST_AXES)], threads)
        a = done
    y = _core.empty(shape, single, False)
    _core.transform(a, y, C2R, chosen[-MOST_AXES:], threads)
    if scale != 1:
        _core.scale(y, scale, threads)
    return y
