"""accelerated() in one process: PyTorch's own functions and layers compute with the package, and PyTorch's tools do not
notice. test_torch_program.py has other processes."""
import contextlib
import copy
import io
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import convolume.torch as ours  # noqa: E402
from convolume.torch import _convolution  # noqa: E402

ATTRIBUTES = [(module, name) for module in (torch, F) for name in ("conv3d", "conv_transpose3d")]
PYTORCHS = [getattr(module, name) for module, name in ATTRIBUTES]


def attributes():
    return [getattr(module, name) for module, name in ATTRIBUTES]


@pytest.fixture(autouse=True)
def _attributes_are_pytorchs_before_and_after():
    yield
    assert all(one is other for one, other in zip(attributes(), PYTORCHS))


def random(*shape, dtype=torch.float32, seed=1, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_(grad)


X, W, BIAS = random(2, 4, 6, 6, 6), random(4, 4, 3, 3, 3, seed=2), random(4, seed=3)


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv3d(8, 8, 2, stride=2),
                         nn.ConvTranspose3d(8, 4, 2, stride=2), nn.Conv3d(4, 2, 1))


CONVOLUTIONS = 4


def step(net, x):
    """Returns the output and all gradients."""
    net.zero_grad()
    y = net(x)
    y.square().sum().backward()
    return [y.detach().clone(), *(one.grad.clone() for one in net.parameters())]


def same_bits(results, wanted):
    return all(torch.equal(one, other) for one, other in zip(results, wanted, strict=True))


def close(results, wanted, tolerance=1e-4):
    for one, other in zip(results, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * max(1, other.abs().max().item()))


CALLS = {
    "F.conv3d": lambda x: F.conv3d(x, W, BIAS, padding=1),
    "torch.conv3d": lambda x: torch.conv3d(x, W, None, 2, [1, 0, 1], 1, 1),
    "names": lambda x: F.conv3d(bias=BIAS, weight=W, input=x, padding="same", dilation=(2, 1, 1)),
    "F.conv_transpose3d": lambda x: F.conv_transpose3d(x, W, BIAS, 2, output_padding=1),
    "torch.conv_transpose3d": lambda x: torch.conv_transpose3d(x, W, None, 1, 0, 0, 1, 2),
    "no batch": lambda x: F.conv3d(x[0], W),
    "groups": lambda x: F.conv3d(x, W[:, :2], groups=2),
    "Conv3d": lambda x: nn.Conv3d(4, 3, 3, padding=1)(x),
    "Conv3d, reflected": lambda x: nn.Conv3d(4, 3, 3, padding=1, padding_mode="reflect")(x),
    "ConvTranspose3d": lambda x: nn.ConvTranspose3d(4, 3, 3, stride=2)(x, output_size=(14, 13, 13)),
    "LazyConv3d": lambda x: nn.LazyConv3d(3, 3)(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_and_layers_are_served(name):
    results, calls = [], None
    for block in (False, True):
        torch.manual_seed(1)
        x = X.clone().requires_grad_()
        if block:
            with ours.accelerated("always") as calls:
                y = CALLS[name](x)
        else:
            y = CALLS[name](x)
        results.append((y.detach(), *torch.autograd.grad(y.square().sum(), x)))
    close(results[1], results[0])
    assert (calls.ours, calls.others) == (1, 0)
    assert calls.seconds > 0


def test_a_model_that_exists_already_is_served_and_a_replaced_one_is_counted_once():
    net = model()
    wanted = step(net, X)
    with ours.accelerated("always") as calls:
        close(step(net, X), wanted)
        forward = calls.seconds
        assert calls.ours == CONVOLUTIONS
        ours.replace_conv3d(net)
        close(step(net, X), wanted)
    assert (calls.ours, calls.others) == (2 * CONVOLUTIONS, 0)
    assert calls.seconds > forward > 0
    assert str(calls) == f"convolume.torch: 8 convolutions in {calls.seconds:.3f} s; 0 left to PyTorch"
    net(X)
    assert calls.ours == 2 * CONVOLUTIONS


def test_calls_that_are_left_to_pytorch_are_counted_and_right():
    half = X.bfloat16(), W.bfloat16()
    with ours.accelerated("always") as calls:
        assert torch.equal(F.conv3d(*half), PYTORCHS[0](*half))
        assert F.conv3d(X.to("meta"), W.to("meta")).shape == (2, 4, 4, 4, 4)
    assert (calls.ours, calls.others) == (0, 2)


@pytest.fixture
def used(monkeypatch):
    """Returns a list of the budgets that convolutions have computed with."""
    budgets, compute = [], _convolution.compute
    monkeypatch.setattr(_convolution, "compute", lambda *args: budgets.append(args[-1].memory_budget) or compute(*args))
    return budgets


def test_blocks_may_be_nested_and_the_last_one_sets_the_options(used):
    with ours.accelerated("always") as outer:
        F.conv3d(X, W)
        with ours.accelerated("always", 1) as inner:
            F.conv3d(X, W)
        F.conv3d(X, W)
        with pytest.raises(ZeroDivisionError), ours.accelerated("always"):
            raise ZeroDivisionError
        assert attributes() != PYTORCHS
    assert (outer.ours, inner.ours) == (3, 1)
    assert used == [0, 1, 0]


def test_blocks_of_several_threads_may_end_in_any_order(used):
    begun, may_end, counts = threading.Event(), threading.Event(), []

    def other():
        with ours.accelerated("always", 2) as calls:
            begun.set()
            may_end.wait(20)
            F.conv3d(X, W)
            counts.append(calls.ours)

    thread = threading.Thread(target=other)
    with ours.accelerated("always", 1) as calls:
        thread.start()
        begun.wait(20)
        F.conv3d(X, W)
    assert attributes() != PYTORCHS
    may_end.set()
    thread.join(20)
    assert (calls.ours, counts) == (1, [2])
    assert used == [2, 2]


def test_attributes_that_somebody_has_replaced_are_restored_exactly(monkeypatch):
    own = lambda *args, **kwargs: PYTORCHS[0](*args, **kwargs)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(F, "conv3d", own)
        with ours.accelerated("always") as calls:
            F.conv3d(X, W)
        assert F.conv3d is own
    assert calls.ours == 1


def test_a_function_that_was_kept_from_a_block_is_pytorchs_after_it():
    with ours.accelerated("always") as calls:
        kept = F.conv3d
    assert torch.equal(kept(X, W), PYTORCHS[0](X, W))
    assert (calls.ours, calls.others) == (0, 0)


@pytest.mark.parametrize(("arguments", "text"), [
    (("fast",), "policy must be one of 'fastest', 'tuned', 'always'; it is 'fast'"),
    (("always", -1), "memory_budget must not be negative; it is -1"),
])
def test_wrong_arguments_of_a_block_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text), ours.accelerated(*arguments):
        pass


WRONG = {
    "types": lambda: F.conv3d(X, W.double()),
    "channels": lambda: F.conv3d(X[:, :3], W, padding=1),
    "small": lambda: F.conv3d(X[:, :, :1], W, padding=(0, 1, 1)),
    "dimensions": lambda: F.conv3d(X[0, 0], W),
    "stride": lambda: F.conv3d(X, W, stride=0),
    "padding": lambda: F.conv3d(X, W, padding="half"),
    "same": lambda: F.conv3d(X, W, padding="same", stride=2),
    "bias": lambda: F.conv3d(X, W, random(5), padding=1),
    "groups": lambda: F.conv3d(X, W, groups=3),
    "None": lambda: F.conv3d(X, None),
    "too few": lambda: F.conv3d(X),
    "unknown": lambda: F.conv3d(X, W, colour=1),
    "text": lambda: F.conv3d(X, W, groups="all"),
    "transposed": lambda: F.conv_transpose3d(X, W, output_padding=2),
    "layer": lambda: nn.Conv3d(3, 3, 3, padding=1)(X),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_pytorch_refuses_is_refused_in_its_own_words(name):
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        WRONG[name]()
    with ours.accelerated("always"), pytest.raises(type(theirs.value)) as mine:
        WRONG[name]()
    assert str(mine.value) == str(theirs.value)


def jvp_of_functions():
    return torch.func.jvp(lambda x: F.conv3d(x, W), (X,), (torch.ones_like(X),))[1]


def jvp_of_dual_numbers():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
        return torch.autograd.forward_ad.unpack_dual(F.conv3d(dual, W)).tangent


def gradients_of_a_batch():
    x = X.clone().requires_grad_()
    y = F.conv3d(x, W)
    dy = random(3, *y.shape)
    return torch.autograd.grad(y, x, dy, is_grads_batched=True)[0]


def second_derivatives():
    x = X.clone().requires_grad_()
    (dx,) = torch.autograd.grad(F.conv3d(x, W).square().sum(), x, create_graph=True)
    return torch.autograd.grad(dx.square().sum(), x)[0]


TRANSFORMS = {
    "vmap": lambda: torch.func.vmap(lambda x: F.conv3d(x, W))(random(3, 1, 4, 5, 5, 5)),
    "vmap of weights": lambda: torch.func.vmap(lambda w: F.conv3d(X, w))(random(3, *W.shape)),
    "grad": lambda: torch.func.grad(lambda w: F.conv3d(X, w).square().sum())(W),
    "vjp": lambda: torch.func.vjp(lambda w: F.conv3d(X, w), W)[1](random(2, 4, 4, 4, 4))[0],
    "functional_call": lambda: torch.func.functional_call(model(), dict(model().named_parameters()), (X,)).detach(),
    "jvp": jvp_of_functions,
    "dual numbers": jvp_of_dual_numbers,
    "hessian": lambda: torch.func.hessian(
        lambda x: F.conv3d(x, W[:1, :, 1:, 1:, 1:]).square().sum())(X[:1, :, :2, :2, :2]),
    "is_grads_batched": gradients_of_a_batch,
    "second derivatives": second_derivatives,
    "checkpoint": lambda: torch.utils.checkpoint.checkpoint(model(), X, use_reentrant=False).detach(),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_and_derivatives_of_all_kinds_are_those_of_pytorch(name):
    wanted = TRANSFORMS[name]()
    with ours.accelerated("always"):
        found = TRANSFORMS[name]()
    close([found], [wanted])


@pytest.mark.filterwarnings("ignore")
def test_tracers_see_ordinary_convolutions():
    net = model().eval()
    wanted = net(X).detach()
    with ours.accelerated("always") as calls:
        traced = torch.jit.trace(net, X, check_trace=False)
        symbolic = torch.fx.symbolic_trace(net)
        functions = torch.fx.symbolic_trace(lambda x: F.conv3d(x, W, BIAS))
        assert "torch.conv3d(" in functions.code
        exported = torch.export.export(net, (X,))
        scripted = torch.jit.script(net)
        assert calls.ours == 0
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        compiled(X)
        inside = [graph(X).detach() for graph in (traced, symbolic, exported.module(), scripted, compiled)]
    outside = [graph(X).detach() for graph in (traced, symbolic, exported.module(), scripted, compiled)]
    for results in (inside, outside):
        close(results, [wanted] * 5)
    assert "convolume" not in symbolic.code + str(exported.graph) + str(traced.graph) + str(scripted.graph)
    assert "aten.conv3d" in str(exported.graph)
    assert next(node for node in functions.graph.nodes if node.op == "call_function").target is PYTORCHS[0]


def test_modes_and_tensors_of_other_classes_see_pytorchs_functions():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    with ours.accelerated("always") as calls:
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert F.conv3d(torch.empty(1, 4, 5, 5, 5), W).shape == (1, 4, 3, 3, 3)
        with Functions():
            F.conv3d(X, W)
        assert PYTORCHS[0] in seen
        with Operators():
            F.conv3d(X, W)
        assert torch.ops.aten.convolution.default in seen
        seen.clear()
        assert isinstance(F.conv3d(X.as_subclass(Own), W), Own)
        assert seen[0] is PYTORCHS[0]
        assert calls.ours == 0
        with torch.device("cpu"):
            F.conv3d(X, W)
        assert calls.ours == 1


def test_backward_under_a_mode_shows_pytorchs_operators():
    from torch.utils.flop_counter import FlopCounterMode
    flops = []
    for block in (contextlib.nullcontext(), ours.accelerated("always")):
        x = X.clone().requires_grad_()
        with block:
            y = F.conv3d(x, W).sum()
            with FlopCounterMode(display=False) as counter:
                y.backward()
        flops.append(counter.get_total_flops())
    assert flops[0] == flops[1] > 0


def test_models_and_functions_that_are_pickled_or_copied_in_a_block_are_pytorchs():
    net, file = model(), io.BytesIO()
    with ours.accelerated("always"):
        wanted = step(net, X)
        torch.save(net, file)
        assert b"convolume" not in file.getvalue() + pickle.dumps(F.conv3d) + pickle.dumps(F.conv_transpose3d)
        file.seek(0)
        for one in (torch.load(file, weights_only=False), copy.deepcopy(net)):
            assert same_bits(step(one, X), wanted)
        assert pickle.loads(pickle.dumps(F.conv3d)) is F.conv3d  # noqa: S301
    close(step(net, X), wanted)


def test_double_precision_and_channels_last():
    net = model().double()
    wanted = step(net, X.double())
    with ours.accelerated("always") as calls:
        close(step(net, X.double()), wanted, 1e-10)
        assert calls.ours == CONVOLUTIONS
        net = net.float().to(memory_format=torch.channels_last_3d)
        x = X.to(memory_format=torch.channels_last_3d)
        y = net(x)
        assert calls.ours == 2 * CONVOLUTIONS
        assert y.is_contiguous(memory_format=torch.channels_last_3d)
        close(step(net, x), [one.float() for one in wanted])


def test_bits_depend_neither_on_threads_nor_on_the_process():
    net = model()
    before = torch.get_num_threads()
    with ours.accelerated("always"):
        try:
            results = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append(step(net, X))
        finally:
            torch.set_num_threads(before)
        assert all(same_bits(one, results[0]) for one in results)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            torch.set_num_threads(1)  # PyTorch's other layers wait for threads that a forked child does not have
            os._exit(0 if same_bits(step(net, X), results[0]) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_threads_that_use_one_model_at_the_same_time_get_the_right_values():
    net, rounds = model(), 20
    inputs = [random(1 + seed % 2, 4, 6, 6, 4 + 2 * seed, seed=seed) for seed in range(4)]
    wanted, wrong = [net(x).detach() for x in inputs], []

    def convolve(x, y):
        for number in range(rounds):
            with torch.set_grad_enabled(number % 2 == 0):
                if (net(x).detach() - y).abs().max() > 1e-4:
                    wrong.append(x.shape)

    with ours.accelerated("always") as calls:
        threads = [threading.Thread(target=convolve, args=pair) for pair in zip(inputs, wanted)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong
    assert calls.ours == rounds * len(inputs) * CONVOLUTIONS


class Convolved(torch.utils.data.Dataset):
    """Computes a sample in a worker, and says how many convolutions the worker has counted."""

    def __init__(self, calls):
        self.calls = calls

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return F.conv3d(X + index, W), torch.tensor([self.calls.ours])


def test_workers_that_are_forked_convolve_and_count_from_zero():
    with ours.accelerated("always") as calls:
        wanted = [F.conv3d(X + index, W) for index in range(2)]
        loader = torch.utils.data.DataLoader(Convolved(calls), num_workers=2, multiprocessing_context="fork",
                                             timeout=30)
        for index, (sample, count) in enumerate(loader):
            assert torch.equal(sample[0], wanted[index])
            assert count.item() == 1
    assert calls.ours == 2


TRAIN_DISTRIBUTED = """
import os, sys, torch, torch._dynamo, convolume.torch
store, file, model, x = sys.argv[1:]
rank = int(os.fork() == 0)  # before PyTorch has threads, and after its slow imports
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
net = torch.nn.parallel.DistributedDataParallel(torch.load(model, weights_only=False))
with convolume.torch.accelerated("always") as calls:
    net(torch.load(x)[rank:rank + 1]).square().mean().backward()
if rank == 0:
    torch.save([calls.ours, *(one.grad for one in net.parameters())], file)
    assert os.wait()[1] == 0
os._exit(0)  # the destructors of a group of gloo hang once in about 20 times, also without the package
"""


def test_gradients_of_two_distributed_processes_are_those_of_one(tmp_path):
    net = model()
    torch.save(net, tmp_path / "model")
    torch.save(X, tmp_path / "x")
    files = [str(tmp_path / name) for name in ("store", "gradients", "model", "x")]
    found = subprocess.run([sys.executable, "-c", TRAIN_DISTRIBUTED, *files], capture_output=True, text=True,
                           timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    count, *gradients = torch.load(files[1])
    assert count == CONVOLUTIONS
    net(X).square().mean().backward()
    close(gradients, [one.grad for one in net.parameters()])


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no /proc")
def test_memory_does_not_grow_over_steps():
    net = model()
    optimizer, threads = torch.optim.Adam(net.parameters()), torch.get_num_threads()
    torch.set_num_threads(1)  # small regions of several threads take long if the machine is busy
    try:
        with ours.accelerated("always"):
            for number in range(1200):
                if number == 200:
                    before = resident_bytes()
                step(net, X[:1, :, :4, :4, :4])
                optimizer.step()
    finally:
        torch.set_num_threads(threads)
    assert resident_bytes() - before < 4 << 20


def test_the_switch_costs_nothing_that_a_step_would_notice():
    """The bound is generous, because machines of tests are busy. `_is_watched` takes 0.3 us on a quiet one."""
    import timeit
    assert min(timeit.repeat(_convolution._is_watched, number=2000, repeat=5)) / 2000 < 5e-6  # noqa: SLF001
