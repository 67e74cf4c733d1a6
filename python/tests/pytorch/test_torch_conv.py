"""convolume.torch.conv3d and conv_transpose3d against PyTorch's own functions: values, gradients, and what autograd asks
for besides."""
import os
import signal

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
import torch.utils.checkpoint  # noqa: E402

import convolume  # noqa: E402
import convolume.torch as ours  # noqa: E402
from convolume.torch import _convolution  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even")

FORWARD = [
    ((2, 4, 9, 8, 7), (6, 4, 3, 3, 3), {}),
    ((2, 4, 9, 8, 7), (6, 4, 3, 2, 1), {"stride": (1, 2, 3), "padding": (1, 0, 1)}),
    ((4, 9, 8, 7), (6, 4, 3, 3, 3), {"padding": "same"}),
    ((1, 4, 9, 8, 7), (6, 4, 2, 4, 3), {"padding": "same", "dilation": (3, 1, 2)}),
    ((1, 4, 9, 8, 7), (6, 4, 3, 3, 3), {"padding": "valid", "stride": 2}),
    ((2, 8, 6, 6, 6), (16, 1, 3, 3, 3), {"groups": 8, "padding": 1}),
    ((2, 6, 6, 6, 6), (9, 2, 3, 1, 3), {"groups": 3, "dilation": 2, "padding": 2}),
    ((1, 3, 1, 1, 1), (5, 3, 3, 3, 3), {"padding": 1}),
    ((1, 16, 9, 9, 9), (16, 16, 3, 3, 3), {"padding": 1}),
    ((1, 2, 5, 5, 5), (3, 2, 1, 1, 1), {}),
]
TRANSPOSED = [
    ((2, 4, 5, 4, 3), (4, 6, 2, 2, 2), {"stride": 2}),
    ((4, 5, 4, 3), (4, 6, 3, 3, 3), {"stride": (2, 1, 2), "padding": 1, "output_padding": (1, 0, 1)}),
    ((1, 4, 5, 4, 3), (4, 3, 3, 2, 1), {"groups": 2, "dilation": (1, 2, 1)}),
]


def tensors(x, w, dtype=torch.float64, bias=True, transposed=False, groups=1):
    generator = torch.Generator().manual_seed(1)
    channels = w[1] * groups if transposed else w[0]
    made = [torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True) for shape in (x, w, (channels,))]
    return made if bias else [*made[:2], None]


def compare(own, theirs, x, w, arguments, dtype, tolerance, transposed=False):
    for bias in (True, False):
        inputs = tensors(x, w, dtype, bias, transposed, arguments.get("groups", 1))
        mine, wanted = own(*inputs, **arguments), theirs(*inputs, **arguments)
        assert mine.shape == wanted.shape and mine.dtype == wanted.dtype and mine.stride() == wanted.stride()
        dy = torch.randn_like(wanted)
        needed = [one for one in inputs if one is not None]
        pairs = zip((mine, *torch.autograd.grad(mine, needed, dy)), (wanted, *torch.autograd.grad(wanted, needed, dy)))
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * max(1, other.abs().max().item()))


@pytest.mark.parametrize(("x", "w", "arguments"), FORWARD)
def test_values_and_gradients_of_conv3d_are_those_of_pytorch(x, w, arguments):
    compare(ours.conv3d, F.conv3d, x, w, arguments, torch.float64, 1e-10)
    compare(ours.conv3d, F.conv3d, x, w, arguments, torch.float32, 1e-4)


@pytest.mark.parametrize(("x", "w", "arguments"), TRANSPOSED)
def test_values_and_gradients_of_conv_transpose3d_are_those_of_pytorch(x, w, arguments):
    compare(ours.conv_transpose3d, F.conv_transpose3d, x, w, arguments, torch.float64, 1e-10, True)
    compare(ours.conv_transpose3d, F.conv_transpose3d, x, w, arguments, torch.float32, 1e-4, True)


@pytest.mark.parametrize(("x", "w", "arguments"), [((1, 2, 3, 4, 3), (2, 2, 3, 2, 1), {"padding": "same"}),
                                                   ((2, 3, 3, 3), (4, 1, 2, 2, 2), {"groups": 2, "stride": (1, 2, 1)})])
def test_first_and_second_derivatives_pass_gradcheck(x, w, arguments):
    inputs = tensors(x, w)
    assert torch.autograd.gradcheck(lambda *a: ours.conv3d(*a, **arguments), inputs)
    assert torch.autograd.gradgradcheck(lambda *a: ours.conv3d(*a, **arguments), inputs)


@pytest.mark.parametrize(("x", "w", "arguments"), FORWARD)
def test_gradients_that_have_derivatives_are_those_of_pytorch(x, w, arguments):
    inputs = tensors(x, w, groups=arguments.get("groups", 1))
    mine, wanted = ours.conv3d(*inputs, **arguments), F.conv3d(*inputs, **arguments)
    dy = torch.randn_like(wanted)
    for one, other in zip(torch.autograd.grad(mine, inputs, dy, create_graph=True),
                          torch.autograd.grad(wanted, inputs, dy)):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_derivatives_of_a_transposed_convolution_pass_gradcheck():
    inputs = tensors((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), transposed=True)
    assert torch.autograd.gradcheck(lambda *a: ours.conv_transpose3d(*a, stride=2), inputs)
    assert torch.autograd.gradgradcheck(lambda *a: ours.conv_transpose3d(*a, stride=2), inputs)


def test_only_wanted_gradients_are_computed():
    x, w, bias = tensors((1, 4, 6, 6, 6), (4, 4, 3, 3, 3))
    y = ours.conv3d(x.detach(), w, bias.detach())
    y.sum().backward()
    assert x.grad is None and bias.grad is None and w.grad is not None
    assert not ours.conv3d(x.detach(), w.detach(), bias.detach()).requires_grad


def test_strides_of_x_and_dy_may_be_any():
    x = torch.randn(2, 4, 9, 8, 16, dtype=torch.float64)
    w = torch.randn(3, 4, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    for view in (x[..., ::2], x[:, :, ::2].flip(3), x.transpose(2, 4), x[:, :1].expand(2, 4, 9, 8, 16)):
        view = view.requires_grad_() if view.is_leaf else view
        mine, wanted = ours.conv3d(view, w), F.conv3d(view, w)
        torch.testing.assert_close(mine, wanted)
        dy = torch.ones((), dtype=torch.float64).expand_as(wanted)
        torch.testing.assert_close(torch.autograd.grad(mine, w, dy), torch.autograd.grad(wanted, w, dy))


@pytest.mark.parametrize(("batch", "dtype"), [(2, torch.float32), (1, torch.float32), (2, torch.float64)])
def test_the_memory_format_of_the_result_is_that_of_pytorch(batch, dtype):
    x = torch.randn(batch, 16, 5, 6, 7, dtype=dtype).contiguous(memory_format=torch.channels_last_3d)
    w = torch.randn(8, 16, 3, 3, 3, dtype=dtype)
    for a, b in ((x, w), (x.contiguous(), w), (x.contiguous(), w.contiguous(memory_format=torch.channels_last_3d))):
        mine, wanted = ours.conv3d(a, b), F.conv3d(a, b)
        assert mine.stride() == wanted.stride()
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-4)
        for narrow in (torch.bfloat16, torch.float16) if dtype is torch.float32 else ():
            with torch.autocast("cpu", dtype=narrow):
                assert ours.conv3d(a, b).stride() == F.conv3d(a, b).stride()


def last(x):
    return x.contiguous(memory_format=torch.channels_last_3d)


def step_of(conv, x, w, dy):
    """Returns y and the gradients of the input and of the weights, through an in-place activation."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = F.relu(conv(x, w, padding=1), inplace=True)
    return y, *torch.autograd.grad(y, (x, w), dy)


@pytest.mark.parametrize("extent", [5, 20])  # small results, and those that the package keeps memory for
@pytest.mark.parametrize(("inputs", "outputs", "transposed"), [(16, 16, False), (16, 8, False), (4, 16, False),
                                                              (16, 16, True)])
def test_one_channel_block_is_read_and_written_in_channels_last(inputs, outputs, transposed, extent, monkeypatch):
    x, dy = last(torch.randn(2, inputs, extent, 6, 25)), torch.randn(2, outputs, extent, 6, 25)
    w = torch.randn(*((inputs, outputs) if transposed else (outputs, inputs)), 3, 3, 3)
    mine, theirs = ((one.conv_transpose3d if transposed else one.conv3d) for one in (ours, F))
    plans = []
    run = _convolution.run_forward
    monkeypatch.setattr(_convolution, "run_forward", lambda plan, *args: plans.append(plan) or run(plan, *args))
    found, wanted = step_of(mine, x, w, last(dy)), step_of(theirs, x, w, last(dy))
    assert (plans[0].x_blocked, plans[0].y_blocked) == (inputs == 16, outputs == 16)
    assert found[0].stride() == wanted[0].stride()
    assert found[1].is_contiguous(memory_format=torch.channels_last_3d) == (inputs == 16)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)
    again = step_of(mine, x, w, dy)  # dy in the other format
    for one, other in zip(found, again):
        assert torch.equal(one, other)


def test_hooks_of_saved_tensors_may_return_other_formats():
    x, w = last(torch.randn(2, 16, 5, 6, 25)), torch.randn(16, 16, 3, 3, 3)
    dy = torch.randn(2, 16, 5, 6, 25)
    wanted = step_of(F.conv3d, x, w, dy)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), torch.from_numpy):
        found = step_of(ours.conv3d, x, w, dy)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_blocks_may_begin_anywhere():
    memory = torch.randn(2 * 16 * 4 * 5 * 6 + 1)
    x = memory[1:].view(2, 4, 5, 6, 16).permute(0, 4, 1, 2, 3)
    w = torch.randn(16, 16, 3, 3, 3)
    assert x.data_ptr() % 64 != 0
    torch.testing.assert_close(ours.conv3d(x, w), F.conv3d(x, w), rtol=1e-4, atol=1e-3)
    dy = torch.randn(x.numel() + 1)[1:].view(2, 4, 5, 6, 16).permute(0, 4, 1, 2, 3)
    for one, other in zip(step_of(ours.conv3d, last(x.clone()), w, dy), step_of(F.conv3d, x, w, dy)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_negative_views_are_read_as_pytorch_reads_them():
    x, w, bias = tensors((1, 2, 3, 3, 1), (2, 2, 3, 3, 1))
    dy = torch._neg_view(torch.ones(1, 2, 1, 1, 1, dtype=torch.float64))  # noqa: SLF001
    negative = torch._neg_view(bias.detach())  # noqa: SLF001
    found = ours.conv3d(x, w, negative)
    wanted = F.conv3d(x, w, negative)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(torch.autograd.grad(ours.conv3d(x, w, bias), (x, w, bias), dy),
                          torch.autograd.grad(F.conv3d(x, w, bias), (x, w, bias), dy)):
        torch.testing.assert_close(one, other)


def test_a_weight_that_changes_between_calls_is_seen():
    x, w, _ = tensors((1, 16, 8, 8, 8), (16, 16, 3, 3, 3), torch.float32)
    for change in (lambda: w.data.mul_(2), lambda: w.detach().numpy().__imul__(0.5), lambda: w.data.copy_(torch.randn(w.shape))):
        ours.conv3d(x, w).sum().backward()
        change()
        torch.testing.assert_close(ours.conv3d(x, w), F.conv3d(x, w), rtol=1e-4, atol=1e-4)


def test_a_saved_tensor_that_changed_in_place_is_pytorchs_error():
    x, w, bias = tensors((1, 2, 4, 4, 4), (2, 2, 3, 3, 3))
    inner = x * 1
    y = ours.conv3d(inner, w, bias)
    inner.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("kernel", [3, 5])
def test_a_graph_is_used_twice_and_recomputed_by_checkpoints(kernel):
    x, w, bias = tensors((1, 16, 8, 8, 8), (16, 16, kernel, kernel, kernel))
    y = ours.conv3d(x, w, bias).square().sum()
    once = torch.autograd.grad(y, (x, w, bias), retain_graph=True)
    for one, other in zip(once, torch.autograd.grad(y, (x, w, bias))):
        assert torch.equal(one, other)
    for reentrant in (False, True):
        y = torch.utils.checkpoint.checkpoint(lambda a: ours.conv3d(a * 1, w, bias).square(), x, use_reentrant=reentrant)
        for one, other in zip(torch.autograd.grad(y.sum(), (x, w, bias)) if not reentrant else backward(y, x, w, bias), once):
            torch.testing.assert_close(one, other)


def backward(y, *leaves):
    y.sum().backward()
    return [leaf.grad for leaf in leaves]


def test_anomaly_mode_and_hooks_work():
    x, w, bias = tensors((1, 2, 4, 4, 4), (2, 2, 3, 3, 3))
    seen = []
    with torch.autograd.detect_anomaly(check_nan=True):
        y = ours.conv3d(x, w, bias)
        y.register_hook(lambda grad: seen.append(grad.shape))
        y.sum().backward()
    assert seen == [y.shape]


def test_a_pass_without_gradients_has_the_bits_of_the_numpy_function():
    x, w, bias = tensors((1, 16, 9, 9, 9), (16, 16, 5, 5, 5), torch.float32)
    wanted = convolume.conv3d(x.detach().numpy(), w.detach().numpy(), bias.detach().numpy(), padding=2)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert np.array_equal(ours.conv3d(x, w, bias, padding=2).numpy(), wanted)


def test_bits_do_not_depend_on_threads_and_a_forked_child_has_them():
    x, w, _ = tensors((1, 16, 12, 12, 12), (16, 16, 3, 3, 3), torch.float32)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y = ours.conv3d(x, w)
            results.append((y, *torch.autograd.grad(y.square().sum(), (x, w))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for result in results for one, other in zip(result, results[0]))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with torch.no_grad():
            os._exit(0 if torch.equal(ours.conv3d(x, w), results[0][0]) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_autocast_returns_its_type():
    x, w, bias = tensors((1, 4, 6, 6, 6), (4, 4, 3, 3, 3), torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            y = ours.conv3d(x, w, bias)
            assert y.dtype == F.conv3d(x, w, bias).dtype == dtype
            again = ours.conv3d(y, w)
        torch.testing.assert_close(y.float(), F.conv3d(x, w, bias), rtol=0.02, atol=0.02)
        again.float().sum().backward()
    assert x.grad is not None and w.grad.dtype == torch.float32


def test_other_types_devices_and_empty_batches_go_to_pytorch():
    x, w = torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3)
    assert ours.conv3d(x.bfloat16(), w.bfloat16()).dtype == torch.bfloat16
    assert ours.conv3d(x.to("meta"), w.to("meta")).shape == (1, 2, 2, 2, 2)
    assert ours.conv3d(x[:0], w).shape == (0, 2, 2, 2, 2)
    assert ours.conv3d(x.to(torch.complex64), w.to(torch.complex64)).is_complex()


@pytest.mark.parametrize("call", [
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3).double()),
    lambda f: f(torch.randn(1, 3, 4, 4, 4), torch.randn(2, 2, 3, 3, 3)),
    lambda f: f(torch.randn(4, 4, 4), torch.randn(2, 2, 3, 3, 3)),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3)),
    lambda f: f(torch.randn(1, 2, 2, 4, 4), torch.randn(2, 2, 3, 3, 3)),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3), stride=0),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3), padding=-1),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3), padding="half"),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3), padding="same", stride=2),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3), torch.randn(5)),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3), torch.randn(0)),
    lambda f: f(torch.randn(1, 2, 4, 4, 4), torch.randn(2, 2, 3, 3, 3), groups=3),
    lambda f: f(torch.randn(1, 2, 4, 4, 4).to_sparse(), torch.randn(2, 2, 3, 3, 3)),
    lambda f: f(None, torch.randn(2, 2, 3, 3, 3)),
])
def test_what_pytorch_refuses_is_refused_with_its_own_error(call):
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        call(F.conv3d)
    with pytest.raises(type(theirs.value)):
        call(ours.conv3d)
