"""convolume.fft as the backend of scipy.fft."""
import inspect
import threading

import numpy as np
import pytest
import scipy.fft
import scipy.signal

import convolume

NAMES = ["fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]


@pytest.fixture
def calls(monkeypatch):
    """Counts what the backend computes: the names of functions and their workers."""
    found = []

    def counted(function):
        def wrapper(*arguments, **options):
            bound = inspect.signature(function).bind(*arguments, **options)
            found.append((function.__name__, bound.arguments.get("workers")))
            return function(*arguments, **options)
        return wrapper

    for name, function in list(convolume.fft._TRANSFORMS.items()):
        monkeypatch.setitem(convolume.fft._TRANSFORMS, name, counted(function))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_transform_is_ours_and_agrees_with_scipy(rng, calls, name):
    x = rng.standard_normal((4, 5, 6))
    wanted = getattr(scipy.fft, name)(x, norm="ortho")
    with scipy.fft.set_backend(convolume.fft):
        found = getattr(scipy.fft, name)(x, norm="ortho")
    assert calls == [(name, 1)]
    assert found.dtype == wanted.dtype and np.allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert np.array_equal(found, getattr(convolume.fft, name)(x, norm="ortho"))


def test_what_is_not_ours_goes_to_scipy(rng, calls):
    x = rng.standard_normal(16)
    with scipy.fft.set_backend(convolume.fft):
        for name in ("dct", "idst", "dctn", "hfft", "ihfft"):
            getattr(scipy.fft, name)(x)
        assert scipy.fft.fft(x.astype(np.longdouble)).dtype == np.clongdouble
        assert scipy.fft.fft(x.astype(np.clongdouble)).dtype == np.clongdouble
        with pytest.raises((TypeError, ValueError)):
            scipy.fft.fft(np.array(["a", "b"]))
        with pytest.raises(ValueError):
            scipy.fft.fft([[1, 2], [3]])
        assert calls == []
    with scipy.fft.set_backend(convolume.fft, only=True), pytest.raises(Exception, match="No selected backends"):
        scipy.fft.dct(x)
    with pytest.raises(TypeError, match="longdouble|float128|float96"):
        convolume.fft.fft(x.astype(np.longdouble))


def test_errors_of_a_call_are_those_of_the_function(calls):
    with scipy.fft.set_backend(convolume.fft):
        with pytest.raises(ValueError, match="Invalid norm"):
            scipy.fft.fft(np.ones(3), norm="other")
        with pytest.raises(NotImplementedError, match="precomputed plan cannot be passed"):
            scipy.fft.fft(np.ones(3), plan=object())
    assert [name for name, _ in calls] == ["fft", "fft"]


def test_workers_of_a_call_and_of_set_workers(rng, calls):
    x = rng.standard_normal((4, 5))
    before = convolume.statistics()
    with scipy.fft.set_backend(convolume.fft):
        scipy.fft.fft(x, workers=3)
        scipy.fft.fft(x)
        with scipy.fft.set_workers(2):
            scipy.fft.fftn(x)
            scipy.fft.fftn(x, None, None, None, False, None)
            scipy.fft.fftn(x, None, None, None, False, 4)
            scipy.fft.fftn(x=x, workers=5)
        scipy.fft.fft(x)
        other = threading.Thread(target=scipy.fft.fft, args=(x,))  # a backend is set for one thread
        other.start()
        other.join()
    assert [workers for _, workers in calls] == [3, 1, 2, 2, 4, 5, 1]
    assert convolume.statistics()["calls"] == before["calls"] + 7
    with convolume.threads(2):
        convolume.fft.fft(x, workers=1)
        assert convolume._core.threads() == 2


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_fftconvolve_uses_us(rng, calls, dtype, mode):
    x, w = rng.standard_normal((9, 10, 11)).astype(dtype), rng.standard_normal((3, 4, 5)).astype(dtype)
    wanted = scipy.signal.fftconvolve(x, w, mode)
    with scipy.fft.set_backend(convolume.fft):
        found = scipy.signal.fftconvolve(x, w, mode)
    assert [name for name, _ in calls] == (["fftn", "fftn", "ifftn"] if dtype == "complex64" else
                                           ["rfftn", "rfftn", "irfftn"])
    assert found.dtype == wanted.dtype
    assert np.linalg.norm(found - wanted) < (1e-13 if dtype == "float64" else 2e-6) * np.linalg.norm(wanted)


def test_a_transform_of_no_axes_is_that_of_scipy():
    x = np.ones((3, 4), "complex64")
    assert np.array_equal(convolume.fft.fftn(x, axes=()), scipy.fft.fftn(x, axes=()))
    for name in ("rfftn", "irfftn"):
        with pytest.raises(ValueError, match="at least 1 axis"):
            getattr(convolume.fft, name)(np.ones((3, 4)), axes=())
