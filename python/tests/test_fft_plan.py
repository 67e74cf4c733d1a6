"""Plans of transforms: the bits of the functions, outputs, bad input, threads."""
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import convolume
from convolume.fft import Plan

KINDS = ["rfftn", "irfftn", "fftn", "ifftn"]


def input_of(plan, rng):
    x = rng.standard_normal(plan.x_shape)
    if plan.kind != "rfftn":
        x = x + 1j * rng.standard_normal(plan.x_shape)
    single = plan.dtype == np.float32
    return x.astype("float32" if single else "float64") if plan.kind == "rfftn" else x.astype("c8" if single else "c16")


class Other(np.ndarray):
    """Functions keep no plan for arrays of other classes."""


def expected(plan, x):
    s = [plan.shape[axis] for axis in plan.axes]
    return getattr(convolume.fft, plan.kind)(x.view(Other), s=s, axes=plan.axes, norm=plan.norm)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_plan_has_the_bits_of_the_function(data):
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    axes = data.draw(st.permutations(range(len(shape))))[:data.draw(st.integers(1, min(3, len(shape))))]
    plan = Plan(data.draw(st.sampled_from(KINDS)), shape, axes,
                dtype=data.draw(st.sampled_from(["float32", "float64"])),
                norm=data.draw(st.sampled_from([None, "ortho", "forward"])),
                workers=data.draw(st.sampled_from([None, 1, 2])))
    x = input_of(plan, np.random.default_rng(data.draw(st.integers(0, 99))))
    wanted = expected(plan, x)
    y = plan(x)
    assert y.dtype == wanted.dtype and y.shape == wanted.shape == plan.y_shape
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_volume_has_the_same_bits_on_any_workers(rng, kind):
    plan = Plan(kind, (40, 41, 42), norm="ortho", workers=1)
    x = input_of(plan, rng)
    before = x.copy()
    wanted = plan(x)
    assert np.array_equal(x, before)
    assert np.array_equal(wanted, expected(plan, x))
    for workers in (2, 3, -1):
        assert np.array_equal(Plan(kind, (40, 41, 42), norm="ortho", workers=workers)(x), wanted)


def test_out_receives_the_result_and_is_returned(rng):
    plan = Plan("rfftn", (5, 6, 7), (1, 2))
    x = rng.standard_normal((5, 6, 7), dtype="float32")
    out = np.full((5, 6, 4), np.nan, "c8")
    assert plan(x, out) is out and plan(x, out=out) is out
    assert np.array_equal(out, plan(x))
    # Memory that is aligned to numbers only.
    odd = np.zeros(5 * 6 * 4 + 1, "c8")[1:].reshape(5, 6, 4)
    assert np.array_equal(plan(x, odd), out)


def test_an_x_that_is_not_contiguous_is_copied_once(rng):
    plan = Plan("fftn", (5, 6), dtype="complex128")
    x = rng.standard_normal((6, 5)) + 0j
    before = convolume.statistics()
    assert np.array_equal(plan(x.T), plan(np.ascontiguousarray(x.T)))
    after = convolume.statistics()
    assert after["copies"] == before["copies"] + 1 and after["copied_bytes"] == before["copied_bytes"] + x.nbytes
    assert np.array_equal(plan(memoryview(np.ascontiguousarray(x.T))), plan(x.T))


def test_attributes_and_pickles(rng):
    plan = Plan("irfftn", (4, 6, 9), (0, -1), dtype="float64", norm="forward", workers=2)
    assert (plan.kind, plan.shape, plan.axes, plan.dtype, plan.norm, plan.workers) == (
        "irfftn", (4, 6, 9), (0, 2), np.float64, "forward", 2)
    assert plan.x_shape == (4, 6, 5) and plan.y_shape == (4, 6, 9)
    assert plan.flops == pytest.approx(2.5 * 6 * 36 * np.log2(36)) and "native" in plan.numerics
    other = pickle.loads(pickle.dumps(plan))
    assert repr(other) == repr(plan) == "Plan('irfftn', (4, 6, 9), (0, 2), dtype='float64', norm='forward', workers=2)"
    x = input_of(plan, rng)
    assert np.array_equal(other(x), plan(x)) and other.numerics == plan.numerics
    with pytest.raises(AttributeError):
        plan.kind = "fftn"


def test_an_empty_batch_gives_an_empty_result():
    for shape, axes in (((0, 4, 5), (1, 2)), ((4, 0, 5), (0, 2)), ((4, 5, 0), (0, 1))):
        assert Plan("rfftn", shape, axes)(np.zeros(shape, "float32")).size == 0


def test_many_threads_share_a_plan(rng):
    plan = Plan("rfftn", (48, 48, 48), workers=2)
    x = rng.standard_normal((48, 48, 48), dtype="float32")
    wanted, results = plan(x), [None] * 4

    def work(i):
        for _ in range(5):
            results[i] = plan(x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(np.array_equal(one, wanted) for one in results)


@pytest.mark.parametrize("arguments, options, kind, says", [
    (("rfft", (3, 4)), {}, ValueError, "kind is 'rfft'; use rfftn"),
    ((None, (3, 4)), {}, ValueError, "kind is None"),
    (("rfftn", None), {}, TypeError, "s is None"),
    (("rfftn", "ab"), {}, ValueError, "s must be"),
    (("rfftn", (3, 4.5)), {}, ValueError, "s must be"),
    (("rfftn", ()), {}, ValueError, "axes is empty"),
    (("rfftn", (3, -4)), {}, ValueError, r"s is \(3, -4\)"),
    (("rfftn", (3, 0)), {}, ValueError, "s has 0 points along axis 1"),
    (("rfftn", (3, 4), (2,)), {}, ValueError, "axes has 2; s has 2 axes, so use -2 to 1"),
    (("rfftn", (3, 4), (1, -1)), {}, ValueError, "axes has 1 twice"),
    (("fftn", (2, 2, 2, 2)), {}, NotImplementedError, "at most 3"),
    (("rfftn", (3, 4)), {"dtype": "longdouble"}, TypeError, "dtype is"),
    (("fftn", (3, 4)), {"dtype": "float16"}, TypeError, "dtype is float16"),
    (("rfftn", (3, 4)), {"dtype": "complex64"}, TypeError, "rfftn transforms float32 or float64"),
    (("rfftn", (3, 4)), {"norm": "other"}, ValueError, "'other'"),
    (("rfftn", (3, 4)), {"workers": 0}, ValueError, "workers"),
    (("rfftn", (3, 4)), {"workers": 1.5}, TypeError, "float"),
    (("rfftn", (8, 1 << 62)), {}, OverflowError, r"s is \(8, 4611686018427387904\).* at most 2\^47"),
])
def test_bad_arguments_are_named(arguments, options, kind, says):
    with pytest.raises(kind, match=says):
        Plan(*arguments, **options)


X = np.zeros((3, 4), "float32")


def read_only():
    out = np.zeros((3, 3), "c8")
    out.flags.writeable = False
    return out


@pytest.mark.parametrize("x, out, kind, says", [
    (None, None, TypeError, "x is None; pass an array"),
    ([1.0], None, TypeError, "x is a list"),
    (object(), None, TypeError, "x has dtype object"),
    (X.astype("f8"), None, TypeError, "x has dtype float64; the plan needs float32"),
    (X.astype(">f4"), None, TypeError, "x has dtype >f4; the plan needs float32 in this machine's byte order"),
    (X.astype("i4"), None, TypeError, "x has dtype int32"),
    (X.astype("c8"), None, TypeError, "x has dtype complex64"),
    (X[:2], None, convolume.ShapeMismatch, r"x has shape \(2, 4\); the plan needs \(3, 4\)"),
    (X[0], None, convolume.ShapeMismatch, r"x has shape \(4,\)"),
    (X, np.zeros((3, 3), "c16"), TypeError, "out has dtype complex128; the plan needs complex64"),
    (X, np.zeros((3, 4), "c8"), convolume.ShapeMismatch, r"out has shape \(3, 4\); the plan needs \(3, 3\)"),
    (X, np.zeros((3, 6), "c8")[:, ::2], convolume.InvalidArgument, "out is not C-contiguous"),
    (X, read_only(), convolume.InvalidArgument, "out cannot be written"),
    (X, [1.0], TypeError, "out is a list"),
])
def test_bad_arrays_are_named(x, out, kind, says):
    with pytest.raises(kind, match=says):
        Plan("rfftn", (3, 4))(x, out)


def test_an_output_that_overlaps_x_is_refused(rng):
    plan = Plan("fftn", (4, 5))
    x = (rng.standard_normal((4, 5)) + 0j).astype("c8")
    for out in (x, x[::-1][::-1]):
        with pytest.raises(convolume.InvalidArgument, match="out overlaps x; pass another array"):
            plan(x, out)
    memory = np.zeros(30, "c8")
    with pytest.raises(convolume.InvalidArgument, match="out overlaps x"):
        plan(memory[:20].reshape(4, 5), memory[10:].reshape(4, 5))
    # The memory of both interleaves, their elements are apart.
    rows = np.zeros((8, 5), "c8")
    rows[::2] = x
    column = Plan("fftn", (1, 5))
    assert np.array_equal(column(rows[2:3], rows[3:4]), column(x[1:2]))
