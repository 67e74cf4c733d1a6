"""Fourier transforms against SciPy, which is also in the environment of the tests."""
import ctypes

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st

import convolume
from convolume import _core, _transforms

NAMES_N = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]
NAMES_1 = ["fft", "ifft", "rfft", "irfft"]


def numbers(rng, name, shape, dtype):
    x = rng.standard_normal(shape).astype(dtype)
    return x if name.startswith("rfft") else x + 1j * rng.standard_normal(shape).astype(dtype)


def check(name, x, *arguments, **options):
    found, wanted = (getattr(module, name)(x, *arguments, **options) for module in (convolume.fft, scipy.fft))
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    single = wanted.dtype in (np.float32, np.complex64)
    assert np.linalg.norm(found - wanted) <= (2e-6 if single else 1e-14) * np.linalg.norm(wanted) + 1e-300


@settings(max_examples=250, deadline=None, derandomize=True)
@given(data=st.data())
def test_transforms_of_several_axes_agree_with_scipy(data):
    name = data.draw(st.sampled_from(NAMES_N))
    shape = data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=5))
    two = name.endswith("2")
    axes = data.draw(st.permutations(range(len(shape))))[:2 if two else data.draw(st.integers(1, len(shape)))]
    axes = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    s = data.draw(st.none() | st.lists(st.integers(1, 12), min_size=len(axes), max_size=len(axes)))
    if name.startswith("irfft") and s is None and shape[axes[-1]] == 1:
        s = [2] * len(axes)
    x = numbers(np.random.default_rng(data.draw(st.integers(0, 99))), name, shape, data.draw(st.sampled_from("fd")))
    if data.draw(st.booleans()):
        x = x.swapaxes(0, -1).copy().swapaxes(0, -1)
    if data.draw(st.booleans()):
        x = x[::-1]
    check(name, x, s=s, axes=axes, norm=data.draw(st.sampled_from([None, "backward", "ortho", "forward"])),
          workers=data.draw(st.sampled_from([None, 1, 2, -1])))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_transforms_of_one_axis_agree_with_scipy(data):
    name = data.draw(st.sampled_from(NAMES_1))
    shape = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = data.draw(st.none() | st.integers(1, 101))
    if name == "irfft" and n is None and shape[axis] == 1:
        n = 2
    x = numbers(np.random.default_rng(data.draw(st.integers(0, 99))), name, shape, data.draw(st.sampled_from("fd")))
    check(name, x, n, axis, data.draw(st.sampled_from([None, "ortho", "forward"])))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool", "float16", ">f4", ">f8", "float32", "float64"])
def test_real_types_are_converted_as_scipy_does(rng, dtype):
    x = (rng.standard_normal((4, 5, 6)) * 50).astype(dtype)
    for name in ("rfftn", "fftn"):
        check(name, x)


def test_a_volume_has_the_same_bits_on_any_workers(rng):
    x = rng.standard_normal((30, 31, 32)).astype("float32")
    wanted = convolume.fft.rfftn(x, workers=1)
    for workers in (2, 3, 8):
        assert np.array_equal(convolume.fft.rfftn(x, workers=workers), wanted)
    assert np.array_equal(x, np.array(x))


def test_a_round_trip_gives_the_volume_back(rng):
    for shape in ((17, 16, 15), (1, 7, 1), (64, 3)):
        x = rng.standard_normal(shape)
        assert np.allclose(convolume.fft.irfftn(convolume.fft.rfftn(x), s=shape), x)
        assert np.allclose(convolume.fft.ifftn(convolume.fft.fftn(x)), x)


def test_empty_batches_and_lists(rng):
    check("fft", np.zeros((0, 4)))
    check("rfft", [1.0, 2, 3])
    check("fftn", np.broadcast_to(rng.standard_normal(6), (4, 6)))


def test_plans_of_functions_are_kept_up_to_256_and_errors_stay(rng):
    for n in range(1, 301):
        check("fft", rng.standard_normal(n) + 0j)
    assert len(_transforms._plans) == 256
    x = rng.standard_normal((4, 6)).astype("float32")
    for _ in range(2):  # the second call has a plan
        check("rfftn", x, 6, [1])
        check("rfftn", x, (6,), (-1,), "ortho")
        check("rfftn", x, (3,), (-1,))
        for arguments, options in (((x, 6.0, [1]), {}), ((x, (6.0,), (-1,)), {}), ((x, 6, [1.0]), {}),
                                   ((x, 6, [1]), {"norm": ["ortho"]}), ((x, 6, [1]), {"workers": 0}),
                                   ((x, 6, [1]), {"workers": 1.0})):
            with pytest.raises((TypeError, ValueError)):
                convolume.fft.rfftn(*arguments, **options)
        with pytest.raises(NotImplementedError):
            convolume.fft.rfftn(x, 6, [1], plan=1)
    with convolume.threads(2):
        check("rfftn", x, 6, [1])


def test_next_fast_len():
    assert [convolume.fft.next_fast_len(n) for n in (1, 11, 13, 97, 100)] == [1, 12, 14, 98, 100]


@pytest.mark.parametrize("name, arguments, options, kind", [
    ("rfftn", (np.ones((3, 4), "complex64"),), {}, TypeError),
    ("fftn", (np.ones((3, 4)),), {"axes": (0, 0)}, ValueError),
    ("fftn", (np.ones((3, 4)),), {"axes": (2,)}, ValueError),
    ("fftn", (np.ones((3, 4)),), {"s": (4,), "axes": (0, 1)}, ValueError),
    ("fftn", (np.ones((3, 4)),), {"s": (1, 2, 3)}, ValueError),
    ("fftn", (np.ones((3, 4)),), {"s": (0, 2)}, ValueError),
    ("fft", (np.ones((3, 0)),), {}, ValueError),
    ("fft", (np.ones(3),), {"n": 0}, ValueError),
    ("fft", (np.ones(3),), {"norm": "other"}, ValueError),
    ("fft", (np.ones(3),), {"workers": 0}, ValueError),
    ("fft", (np.ones(3),), {"workers": -1000}, ValueError),
    ("fft", (np.ones(3),), {"axis": 1.5}, (TypeError, ValueError)),
    ("irfft", (np.ones(1),), {}, ValueError),
])
def test_errors_are_those_of_scipy_in_kind(name, arguments, options, kind):
    for module in (convolume.fft, scipy.fft):
        with pytest.raises(kind):
            getattr(module, name)(*arguments, **options)


def test_other_types_are_refused():
    for x in (np.ones(3, np.longdouble), np.array(["a"]), np.array([object()])):
        with pytest.raises(TypeError, match="dtype"):
            convolume.fft.fft(x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_arrays_that_name_this_machines_byte_order_are_transformed(rng, dtype):
    plain = numbers(rng, "rfft" if dtype.startswith("float") else "fft", (6, 8, 10), dtype).astype(dtype)
    named = plain.byteswap().view(plain.dtype.newbyteorder())
    named = named.byteswap().view(named.dtype.newbyteorder())
    assert np.array_equal(named, plain)
    name = "rfftn" if dtype.startswith("float") else "fftn"
    for call in (lambda x: getattr(convolume.fft, name)(x), lambda x: getattr(convolume.fft, name)(x, s=(7, 9, 12)),
                 lambda x: getattr(convolume.fft, name)(x[::2, :, ::-1]),
                 lambda x: getattr(convolume.fft, name)(x, workers=-1)):
        assert np.array_equal(call(named), call(plain))
    if dtype == "float32":
        both = (ctypes.c_float * 10)(*plain[0, 0]), plain[0, 0]
        assert np.array_equal(*map(convolume.fft.rfft, both))


def test_the_transforms_refuse_other_numbers_and_buffers_without_strides():
    y = np.zeros((2, 3), "complex128")
    for x in (np.zeros((2, 4), "int32"), np.zeros((2, 4), ">f8")):
        with pytest.raises(TypeError, match="byte order"):
            _core.transform(x, y, _transforms.R2C, [1], 1)
    for wrong in ("int32", "complex64", "float64"):
        with pytest.raises(TypeError, match="format 'd' to|has the format 'i'|one precision"):
            _core.transform(np.zeros((2, 4)), np.zeros((2, 3), wrong), _transforms.R2C, [1], 1)
    with pytest.raises(BufferError, match="strides.*numpy.asarray"):
        _core.transform((ctypes.c_double * 4)(), y[0], _transforms.R2C, [0], 1)
