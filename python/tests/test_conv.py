"""Convolutions of arrays: results, layouts, no copies, errors, threads."""
import array
import ctypes
import gc
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import convolume
import reference


def normal(rng, *shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def tolerance(dtype):
    return 2e-6 if np.dtype(dtype) == np.float32 else 1e-13


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("padding, sides", [(0, ((0, 0),) * 3), (1, ((1, 1),) * 3), ((1, 0, 2), ((1, 1), (0, 0), (2, 2))),
                                            (((0, 1), (2, 0), (1, 1)), ((0, 1), (2, 0), (1, 1))),
                                            ("valid", ((0, 0),) * 3), ("same", ((0, 1), (1, 1), (2, 2)))])
def test_conv3d_agrees_with_loops_for_every_form_of_padding(rng, dtype, padding, sides):
    x, w, bias = normal(rng, 2, 3, 6, 7, 8, dtype=dtype), normal(rng, 4, 3, 2, 3, 5, dtype=dtype), normal(rng, 4, dtype=dtype)
    y = convolume.conv3d(x, w, bias, padding=padding)
    wanted = reference.conv3d(x, w, bias, padding=sides)
    assert y.dtype == x.dtype and y.shape == wanted.shape
    assert reference.relative_error(y, wanted) < tolerance(dtype)


def test_arrays_of_the_standard_library_are_arrays(rng):
    x, w, bias = normal(rng, 1, 3, 4, 5, 6), normal(rng, 4, 3, 2, 2, 2), normal(rng, 4)
    wanted = convolume.conv3d(x, w, bias)
    for other in (array.array("f", bias), (ctypes.c_float * 4)(*bias), memoryview(bias)):
        assert np.array_equal(convolume.conv3d(x, w, other), wanted)


numbers = st.integers(1, 3)
triples = st.tuples(numbers, numbers, numbers)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_small_problems_agree_with_loops(data):
    groups = data.draw(st.integers(1, 3))
    inputs, outputs = groups * data.draw(numbers), groups * data.draw(numbers)
    kernel, stride, dilation = data.draw(triples), data.draw(triples), data.draw(triples)
    span = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    extent = [s + data.draw(st.integers(0, 5)) for s in span]
    sides = tuple((data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(3))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x = normal(rng, data.draw(st.integers(1, 2)), inputs, *extent, dtype=dtype)
    w = normal(rng, outputs, inputs // groups, *kernel, dtype=dtype)
    y = convolume.conv3d(x, w, stride=stride, padding=sides, dilation=dilation, groups=groups)
    wanted = reference.conv3d(x, w, None, stride, sides, dilation, groups)
    assert y.shape == wanted.shape
    assert reference.relative_error(y, wanted) < tolerance(dtype)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_problems_and_gradients_agree_with_the_reference_engine(data):
    inputs, outputs = data.draw(st.integers(1, 36)), data.draw(st.integers(1, 36))
    kernel = data.draw(st.tuples(*(st.integers(1, 4),) * 3))
    extent = [k + data.draw(st.integers(0, 6)) for k in kernel]
    padding = data.draw(st.tuples(*(st.integers(0, 2),) * 3))
    activation = data.draw(st.sampled_from([None, "relu", "tanh", ("leaky_relu", 0.2)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x, w = normal(rng, 1, inputs, *extent), normal(rng, outputs, inputs, *kernel)
    found, wanted = (convolume.ConvPlan(x.shape, w.shape, padding=padding, activation=activation, engine=engine)
                     for engine in ("automatic", "reference"))
    y = wanted.forward(x, w)
    assert reference.relative_error(found.forward(x, w), y) < 3e-6
    dy = normal(rng, *y.shape)
    ours, theirs = (plan.backward(x, dy, w, y=y, want=("dx", "dw", "dbias")) for plan in (found, wanted))
    for name in ("dx", "dw", "dbias"):
        assert reference.relative_error(getattr(ours, name), getattr(theirs, name)) < 3e-6, name


def test_softsign_and_its_gradient(rng):
    x, w = normal(rng, 1, 3, 4, 5, 6, dtype="float64"), normal(rng, 4, 3, 3, 3, 3, dtype="float64")
    plan = convolume.ConvPlan(x.shape, w.shape, dtype="float64", padding=1, activation="softsign")
    z, y = convolume.conv3d(x, w, padding=1), plan.forward(x, w)
    assert np.allclose(y, z / (1 + abs(z)), rtol=1e-13, atol=1e-14)
    dy = normal(rng, *y.shape, dtype="float64")
    bare = convolume.ConvPlan(x.shape, w.shape, dtype="float64", padding=1)
    wanted = bare.backward(x, dy / (1 + abs(z)) ** 2, w, want=("dw",)).dw
    assert reference.relative_error(plan.backward(x, dy, w, y=y, want=("dw",)).dw, wanted) < 1e-12


@pytest.mark.parametrize("stride, padding, output_padding", [(1, 0, 0), (2, 1, 1), ((1, 2, 3), (0, 1, 2), (0, 1, 2))])
def test_a_transposed_convolution_is_the_gradient_of_a_convolution(rng, stride, padding, output_padding):
    x, w = normal(rng, 2, 4, 3, 4, 5, dtype="float64"), normal(rng, 4, 3, 3, 3, 3, dtype="float64")
    y = convolume.conv_transpose3d(x, w, stride=stride, padding=padding, output_padding=output_padding)
    plan = convolume.ConvPlan(y.shape, w.shape, dtype="float64", stride=stride, padding=padding)
    assert plan.y_shape == x.shape
    assert reference.relative_error(y, plan.backward(None, x, w, want=("dx",)).dx) < 1e-13


def test_x_without_a_batch_gives_y_without_one(rng):
    x, w = normal(rng, 3, 5, 6, 7), normal(rng, 4, 3, 3, 3, 3)
    y = convolume.conv3d(x, w)
    assert y.shape == (4, 3, 4, 5)
    assert np.array_equal(y, convolume.conv3d(x[None], w)[0])


def test_a_batch_of_0_gives_an_empty_result(rng):
    y = convolume.conv3d(np.empty((0, 3, 5, 6, 7), "float32"), normal(rng, 4, 3, 3, 3, 3), padding=1)
    assert y.shape == (0, 4, 5, 6, 7) and y.dtype == np.float32


ENGINES = ["fft_tiled", "fft_volume", "toom_cook", "direct", "reference"]


@pytest.mark.parametrize("engine", ENGINES)
def test_inputs_may_have_any_strides_and_are_not_copied(rng, engine):
    large = normal(rng, 2, 40, 9, 10, 11)
    x, w = large[:, ::2][:, :17], normal(rng, 18, 17, 3, 3, 3)
    wanted = convolume.conv3d(np.ascontiguousarray(x), w, engine=engine)
    before = convolume.statistics()["copies"]
    assert np.array_equal(convolume.conv3d(x, w, engine=engine), wanted)
    assert np.array_equal(convolume.conv3d(np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1], w, engine=engine), wanted)
    assert np.array_equal(convolume.conv3d(np.ascontiguousarray(x[:, ::-1])[:, ::-1], w, engine=engine), wanted)
    repeated = np.broadcast_to(x[:1, :, :1], (2, 17, 9, 10, 11))
    assert np.array_equal(convolume.conv3d(repeated, w, engine=engine),
                          convolume.conv3d(np.ascontiguousarray(repeated), w, engine=engine))
    assert np.array_equal(convolume.conv3d(x, np.ascontiguousarray(w[::-1])[::-1], engine=engine), wanted)
    assert convolume.statistics()["copies"] == before


def test_rows_that_are_not_contiguous_are_copied_once(rng):
    x, w = normal(rng, 1, 3, 6, 7, 16), normal(rng, 4, 3, 3, 3, 3)
    before = convolume.statistics()
    y = convolume.conv3d(x[..., ::2], w)
    after = convolume.statistics()
    assert after["copies"] == before["copies"] + 1
    assert after["copied_bytes"] == before["copied_bytes"] + x.nbytes // 2
    assert np.array_equal(y, convolume.conv3d(np.ascontiguousarray(x[..., ::2]), w))


def test_objects_with_a_buffer_or_dlpack_are_read_in_place(rng):
    x, w = normal(rng, 1, 3, 5, 6, 7), normal(rng, 4, 3, 3, 3, 3)
    wanted = convolume.conv3d(x, w)

    class OnlyDlpack:
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    class OnlyInterface:
        __array_interface__ = x.__array_interface__

    for other in (memoryview(x), OnlyDlpack(), OnlyInterface()):
        before = convolume.statistics()["copies"]
        assert np.array_equal(convolume.conv3d(other, w), wanted)
        assert convolume.statistics()["copies"] == before


def test_out_receives_y_and_is_returned(rng):
    x, w = normal(rng, 1, 3, 5, 6, 7), normal(rng, 4, 3, 3, 3, 3)
    out = np.full((1, 8, 3, 4, 5), np.nan, "float32")[:, ::2]
    assert convolume.conv3d(x, w, out=out) is out
    assert np.array_equal(out, convolume.conv3d(x, w))


def test_results_outlive_plans_and_are_freed(rng):
    x, w = normal(rng, 1, 16, 20, 20, 20), normal(rng, 16, 16, 3, 3, 3)
    convolume.conv3d(x, w)
    gc.collect()
    before = convolume.statistics()["live_bytes"]
    results = [convolume.conv3d(x, w) for _ in range(4)]
    assert convolume.statistics()["live_bytes"] >= before + 4 * results[0].nbytes
    assert all(np.array_equal(results[0], one) for one in results)
    del results
    gc.collect()
    assert convolume.statistics()["live_bytes"] <= before
    assert convolume.trim() >= 0


def test_prepared_weights_and_spectra_give_the_same_bits(rng):
    x, w = normal(rng, 1, 20, 12, 13, 14), normal(rng, 18, 20, 5, 5, 5)
    plan = convolume.ConvPlan(x.shape, w.shape)
    x_hat = plan.spectra()
    y = plan.forward(x, plan.prepare(w), x_hat=x_hat)
    assert np.array_equal(y, plan.forward(x, w))
    dy = normal(rng, *y.shape)
    kept, fresh = plan.backward(x, dy, w, x_hat=x_hat), plan.backward(x, dy, w)
    assert np.array_equal(kept.dx, fresh.dx) and np.array_equal(kept.dw, fresh.dw) and kept.dbias is None
    with pytest.raises(convolume.StaleCache, match="x_hat was filled by another x"):
        plan.backward(x.copy(), dy, w, x_hat=x_hat)
    with pytest.raises(convolume.StaleCache):
        plan.backward(x, dy, w, x_hat=plan.spectra())


def test_conv3d_has_the_bits_of_a_plan_without_gradients_on_any_threads(rng):
    x, w = normal(rng, 1, 20, 12, 13, 14), normal(rng, 18, 20, 3, 3, 3)
    wanted = convolume.ConvPlan(x.shape, w.shape, want=()).forward(x, w)
    for number in (1, 2, 8):
        assert np.array_equal(convolume.conv3d(x, w, threads=number), wanted)
        with convolume.threads(number):
            assert np.array_equal(convolume.conv3d(x, w), wanted)


def test_a_plan_is_pickled_with_its_choice(rng):
    x, w = normal(rng, 1, 20, 12, 13, 14), normal(rng, 18, 20, 3, 3, 3)
    plan = convolume.ConvPlan(x.shape, w.shape, engine="fft_tiled", padding=1)
    other = pickle.loads(pickle.dumps(plan))
    assert other.choice == plan.choice and other.numerics == plan.numerics
    assert np.array_equal(other.forward(x, w), plan.forward(x, w))
    assert plan.engine == "fft_tiled" and plan.seconds > 0 and "fft_tiled" in plan.explain()
    assert convolume.ConvPlan(x.shape, w.shape, padding=1, choice=plan.choice).numerics == plan.numerics


def test_plans_are_kept_up_to_256(rng):
    w = normal(rng, 1, 1, 1, 1, 1)
    for extent in range(1, 301):
        convolume.conv3d(np.zeros((1, 1, 1, 1, extent), "float32"), w)
    assert convolume.statistics()["plans_kept"] == 256
    before = convolume.statistics()["plans"]
    convolume.conv3d(np.zeros((1, 1, 1, 1, 300), "float32"), w)
    assert convolume.statistics()["plans"] == before


def test_many_threads_share_a_plan_and_python_runs_meanwhile(rng):
    x, w = normal(rng, 1, 32, 24, 24, 24), normal(rng, 32, 32, 3, 3, 3)
    plan = convolume.ConvPlan(x.shape, w.shape, want=())
    wanted = plan.forward(x, w)
    results, turns, done = [None] * 4, [0], threading.Event()

    def work(i):
        for _ in range(5):
            results[i] = plan.forward(x, w)

    def count():
        while not done.is_set():
            turns[0] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    counter = threading.Thread(target=count)
    counter.start()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    done.set()
    counter.join()
    assert all(np.array_equal(one, wanted) for one in results)
    assert turns[0] > 0


def test_low_error_leaves_toom_cook_out():
    plan = convolume.ConvPlan((1, 32, 64, 64, 64), (32, 32, 3, 3, 3), low_error=True)
    assert plan.engine != "toom_cook"
    with pytest.raises(convolume.InvalidArgument, match="larger error"):
        convolume.ConvPlan((1, 32, 64, 64, 64), (32, 32, 3, 3, 3), engine="toom_cook", low_error=True)


F32 = np.zeros((1, 3, 5, 6, 7), "float32")
W32 = np.zeros((4, 3, 3, 3, 3), "float32")


def read_only():
    out = np.zeros((1, 4, 3, 4, 5), "float32")
    out.flags.writeable = False
    return out


@pytest.mark.parametrize("arguments, options, kind, says", [
    ((None, W32), {}, TypeError, "x is None"),
    (([1.0], W32), {}, TypeError, "x is a list"),
    ((F32.astype("float16"), W32.astype("float16")), {}, TypeError, "float16"),
    ((F32.astype("int32"), W32.astype("int32")), {}, TypeError, "int32"),
    ((F32.astype(">f4"), W32), {}, TypeError, "float32"),
    ((F32.astype("float64"), W32), {}, TypeError, "w has float32|w has dtype float32|x has dtype float64"),
    ((F32, W32, np.zeros(4)), {}, TypeError, "bias has f64"),
    ((F32[0, 0], W32), {}, ValueError, "x has 3 axes"),
    ((np.zeros((1,) * 7, "float32"), W32), {}, ValueError, "x has 7 axes"),
    ((np.float32(1), W32), {}, ValueError, "x has 0 axes"),
    ((F32, W32[0]), {}, ValueError, "w has 4 axes"),
    ((F32, W32[:, :2]), {}, ValueError, "4 x 2"),
    ((F32, W32, np.zeros(3, "float32")), {}, ValueError, "bias"),
    ((F32, W32), {"padding": "full"}, ValueError, "'full'"),
    ((F32, W32), {"padding": "same", "stride": 2}, ValueError, "needs stride 1"),
    ((F32, W32), {"padding": (1, 2)}, ValueError, "padding has 2 axes"),
    ((F32, W32), {"padding": ((1, 2, 3),) * 3}, ValueError, "padding has 3 numbers"),
    ((F32, W32), {"stride": (1, 2)}, ValueError, "stride has 2 numbers"),
    ((F32, W32), {"stride": 0}, ValueError, "stride"),
    ((F32, W32), {"groups": 2}, ValueError, "groups"),
    ((F32, W32), {"activation": "gelu"}, ValueError, "'gelu'"),
    ((F32, W32), {"engine": "fast"}, ValueError, "'fast'"),
    ((F32, W32), {"engine": "toom_cook"}, NotImplementedError, "at least 16"),
    ((F32, W32), {"threads": -1}, ValueError, "-1"),
    ((F32, W32), {"out": np.zeros((1, 4, 3, 4, 6), "float32")}, ValueError, "y"),
    ((F32, W32), {"out": np.zeros((1, 4, 3, 4, 5))}, TypeError, "out has f64"),
    ((F32, W32), {"out": read_only()}, ValueError, "out cannot be written"),
    ((F32, W32), {"out": np.zeros((1, 4, 3, 4, 10), "float32")[..., ::2]}, ValueError, "side by side"),
    ((F32[:, :, :2], W32), {}, ValueError, "kernel"),
    ((F32[:, :0], W32), {}, ValueError, "channels"),
])
def test_bad_input_is_named(arguments, options, kind, says):
    with pytest.raises(kind, match=says):
        convolume.conv3d(*arguments, **options)


def test_an_output_that_overlaps_an_input_or_itself_is_refused(rng):
    memory = normal(rng, 2, 4, 5, 6, 7)
    w = normal(rng, 4, 4, 1, 1, 1)
    with pytest.raises(convolume.InvalidArgument, match="out overlaps x"):
        convolume.conv3d(memory[:1], w, out=memory[:1])
    # The boxes of both overlap, the elements do not.
    pairs = np.zeros((1, 8, 5, 6, 7), "float32")
    pairs[:, ::2] = memory[:1]
    assert np.array_equal(convolume.conv3d(pairs[:, ::2], w, out=pairs[:, 1::2]), convolume.conv3d(memory[:1], w))
    shared = np.lib.stride_tricks.as_strided(np.zeros(1000, "float32"), (1, 4, 5, 6, 7), (0, 4, 168, 28, 4))
    with pytest.raises(convolume.InvalidArgument, match="out: elements share memory"):
        convolume.conv3d(memory[:1], w, out=shared)


def test_every_exception_is_a_class_of_ours_and_the_usual_one():
    for name, built_in in [("InvalidArgument", ValueError), ("ShapeMismatch", ValueError), ("Unsupported", NotImplementedError),
                           ("IoError", OSError), ("OverflowError", OverflowError), ("MemoryBudgetExceeded", MemoryError),
                           ("StaleCache", RuntimeError)]:
        assert issubclass(getattr(convolume, name), (convolume.Error,))
        assert issubclass(getattr(convolume, name), built_in)


def test_show_names_version_and_threads(capsys):
    convolume.set_threads(2)
    convolume.show()
    text = capsys.readouterr().out
    convolume.set_threads(0)
    assert convolume.__version__ in text and "SIMD target" in text and "threads      2" in text
