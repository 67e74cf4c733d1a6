"""replace_conv3d(), restore_conv3d() and freeze() on models: nothing but the class of a layer changes."""
import copy
import io
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convolume.torch as ours  # noqa: E402


class OwnForward(nn.Conv3d):
    def forward(self, input):
        return super().forward(input) * 2


class OwnName(nn.Conv3d):
    pass


class Twice(nn.Module):
    """Reaches a convolution by two names, as nnU-Net does."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 4, 3, padding=1)
        self.all_modules = nn.Sequential(self.conv, nn.ReLU())

    def forward(self, x):
        return self.all_modules(x)


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv3d(4, 8, 2, stride=2),
                         nn.Conv3d(8, 8, 3, padding=1, groups=8), nn.ConvTranspose3d(8, 4, 2, stride=2),
                         nn.Conv3d(4, 1, 1))


X = torch.randn(2, 2, 8, 8, 8, generator=torch.Generator().manual_seed(3))


def test_a_replaced_model_computes_the_same_and_is_restored_exactly():
    plain, replaced = model(), model()
    names, parameters = list(replaced.state_dict()), list(replaced.parameters())
    report = ours.replace_conv3d(replaced, policy="always")
    assert [row.replaced for row in report.rows] == [True] * 5 and "Conv3d 2 to 4, 3x3x3" in str(report)
    assert list(replaced.state_dict()) == names
    assert all(one is other for one, other in zip(replaced.parameters(), parameters))
    assert all(isinstance(layer, (nn.Conv3d, nn.ConvTranspose3d)) for layer in (replaced[0], replaced[5]))
    torch.testing.assert_close(replaced(X), plain(X), rtol=1e-4, atol=1e-5)
    again = ours.replace_conv3d(replaced, policy="always")
    assert len(again.rows) == 5 and type(replaced[0]).__mro__[2] is not type(replaced[0])
    replaced.load_state_dict(model(1).state_dict())
    torch.testing.assert_close(replaced(X), model(1)(X), rtol=1e-4, atol=1e-5)
    ours.restore_conv3d(replaced)
    assert [type(layer) for layer in replaced] == [type(layer) for layer in plain]


def test_the_package_computes_and_pytorch_does_not(monkeypatch):
    replaced = model()
    ours.replace_conv3d(replaced, policy="always")
    monkeypatch.setattr(torch, "conv3d", None)
    for name in ("conv3d", "conv_transpose3d"):
        monkeypatch.setattr(nn.functional, name, None)
    assert replaced(X).shape == (2, 1, 8, 8, 8)
    ours.restore_conv3d(replaced)
    with pytest.raises(TypeError):
        replaced(X)


def test_copies_pickles_and_hooks_survive():
    replaced, seen = model(), []
    replaced[0].register_forward_hook(lambda *_: seen.append(1))
    ours.replace_conv3d(replaced, policy="always")
    wanted = replaced(X)
    copied = copy.deepcopy(replaced)
    file = io.BytesIO()
    replaced[0]._forward_hooks.clear()  # noqa: SLF001  (a lambda cannot be pickled)
    torch.save(replaced, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for one in (copied, loaded):
        assert torch.equal(one(X), wanted)
        ours.restore_conv3d(one)
        assert type(one[0]) is nn.Conv3d
    assert len(seen) == 2


def test_layers_that_are_reached_twice_and_subclasses():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.twice, self.own, self.named = Twice(), OwnForward(4, 4, 1), OwnName(4, 2, 3)

        def forward(self, x):
            return self.named(self.own(self.twice(x)))

    torch.manual_seed(1)
    mixed = Mixed()
    x = torch.randn(1, 4, 6, 6, 6)
    wanted = mixed(x)
    report = ours.replace_conv3d(mixed, policy="always")
    assert [(row.name, row.replaced) for row in report.rows] == [("twice.conv", True), ("own", False), ("named", True)]
    assert "OwnForward has its own forward()" in report.rows[1].reason
    assert mixed.twice.conv is mixed.twice.all_modules[0] and isinstance(mixed.named, OwnName)
    torch.testing.assert_close(mixed(x), wanted, rtol=1e-4, atol=1e-5)
    ours.restore_conv3d(mixed)
    assert type(mixed.named) is OwnName


def test_where_chooses_layers():
    replaced = model()
    report = ours.replace_conv3d(replaced, where=lambda name, layer: layer.groups == 1)
    assert [row.reason for row in report.rows if not row.replaced] == ["where() left it out"]
    assert type(replaced[4]) is nn.Conv3d


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_all_padding_modes_work(mode):
    torch.manual_seed(1)
    layer = nn.Conv3d(4, 4, 3, padding=(1, 2, 1), padding_mode=mode)
    x = torch.randn(1, 4, 6, 6, 6, requires_grad=True)
    wanted = layer(x)
    gradient = torch.autograd.grad(wanted.sum(), x)[0]
    ours.replace_conv3d(layer, policy="always")
    torch.testing.assert_close(layer(x), wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.autograd.grad(layer(x).sum(), x)[0], gradient, rtol=1e-4, atol=1e-4)


def test_output_size_of_transposed_convolutions():
    layer = nn.ConvTranspose3d(4, 4, 3, stride=2, padding=1)
    x = torch.randn(1, 4, 5, 5, 5)
    wanted = layer(x, output_size=(10, 10, 9))
    ours.replace_conv3d(layer, policy="always")
    torch.testing.assert_close(layer(x, output_size=(10, 10, 9)), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="output size"):
        layer(x, output_size=(20, 20, 20))


def test_weight_norm_and_parametrizations():
    torch.manual_seed(1)
    norm = nn.utils.parametrizations.weight_norm(nn.Conv3d(4, 4, 3))
    x = torch.randn(1, 4, 6, 6, 6)
    wanted = norm(x)
    ours.replace_conv3d(norm, policy="always")
    torch.testing.assert_close(norm(x), wanted, rtol=1e-4, atol=1e-5)
    norm(x).sum().backward()
    assert norm.parametrizations.weight.original0.grad is not None
    later = nn.Conv3d(4, 4, 3)
    wanted = later(x)
    ours.replace_conv3d(later, policy="always")
    nn.utils.parametrizations.weight_norm(later)
    torch.testing.assert_close(later(x), wanted, rtol=1e-4, atol=1e-5)


class Counted(nn.Module):
    """A parametrization that counts how often it is computed."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def forward(self, w):
        self.number += 1
        return w * 2


@pytest.mark.parametrize("make", [lambda: nn.Conv3d(4, 4, 3), lambda: nn.ConvTranspose3d(4, 4, 3)])
@pytest.mark.parametrize("first", ["replaced", "parametrized"])
@pytest.mark.parametrize("last", ["restored", "unparametrized"])
def test_parametrizations_before_and_after(make, first, last):
    parametrize = nn.utils.parametrize
    torch.manual_seed(1)
    layer, x = make(), torch.randn(1, 4, 6, 6, 6)
    wanted = layer(x) - layer.bias.view(-1, 1, 1, 1)
    steps = [lambda: ours.replace_conv3d(layer, policy="always"),
             lambda: parametrize.register_parametrization(layer, "weight", Counted())]
    for step in steps if first == "replaced" else steps[::-1]:
        step()

    def close(one, factor):
        torch.testing.assert_close(one(x) - one.bias.view(-1, 1, 1, 1), factor * wanted, rtol=1e-4, atol=1e-5)

    close(layer, 2)
    close(copy.deepcopy(layer), 2)
    undo = [lambda: ours.restore_conv3d(layer), lambda: parametrize.remove_parametrizations(layer, "weight")]
    for step in undo if last == "restored" else undo[::-1]:
        step()
        close(layer, 2)
    assert isinstance(layer, type(make())) and "_convolume" not in layer.__dict__


def test_a_parametrization_is_computed_once_per_call_that_is_left_to_pytorch():
    for layer in (nn.Conv3d(1, 1, 1), nn.ConvTranspose3d(1, 1, 1)):
        counted = Counted()
        nn.utils.parametrize.register_parametrization(layer, "weight", counted, unsafe=True)
        report = ours.replace_conv3d(layer)
        before = counted.number
        for _ in range(3):
            layer(torch.ones(1, 1, 1, 1, 1))
        assert not report.rows[0].replaced and counted.number == before + 3


def test_lazy_layers_are_kept_until_their_shape_is_known():
    layer = nn.LazyConv3d(4, 3)
    assert "run a pass first" in ours.replace_conv3d(layer).rows[0].reason
    layer(torch.zeros(1, 2, 4, 4, 4))
    assert ours.replace_conv3d(layer, policy="always").rows[0].replaced


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_twenty_steps_of_adam_are_those_of_pytorch(dtype, tolerance):
    results = []
    for replace in (False, True):
        net = model().to(dtype)
        if replace:
            ours.replace_conv3d(net, policy="always")
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        x, target = X.to(dtype), X[:, :1].to(dtype) > 0
        for _ in range(20):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(x), target.to(dtype)).backward()
            optimizer.step()
        results.append(torch.cat([one.detach().flatten() for one in net.parameters()]))
    distance = (results[0] - results[1]).norm() / results[0].norm()
    assert distance < tolerance, distance


def gradient_of_weights(layer, x, kept):
    """Returns the gradient, and appends the bytes of spectra that wait for backward."""
    layer.weight.grad = None
    y = layer(x)
    x_hat = y.grad_fn.x_hat
    kept.append(0 if x_hat is None else x_hat.nbytes)
    y.square().sum().backward()
    return layer.weight.grad.clone()


def test_a_memory_budget_leaves_out_spectra_and_changes_nothing_else():
    torch.manual_seed(1)
    layer = nn.Conv3d(8, 8, 7, padding=3)
    # With a gradient of x, too, every machine row chooses an engine that keeps spectra.
    x = torch.randn(1, 8, 20, 20, 20, requires_grad=True)
    gradients, kept = [], []
    for budget in (None, 1, 1 << 30):
        ours.replace_conv3d(layer, policy="always", memory_budget=budget)
        gradients.append(gradient_of_weights(layer, x, kept))
    assert kept[1] == 0
    assert kept[0] == kept[2] > 0
    assert torch.equal(gradients[0], gradients[2])
    ours.replace_conv3d(layer, policy="always")  # none are kept by default
    gradients.append(gradient_of_weights(layer, x, kept))
    assert kept[3] == 0 and torch.equal(gradients[1], gradients[3])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-3)


def test_spectra_live_until_the_backward_pass_and_a_second_one_has_the_same_bits():
    torch.manual_seed(1)
    layer = nn.Conv3d(8, 8, 7, padding=3)
    ours.replace_conv3d(layer, policy="always", memory_budget=None)
    y = layer(torch.randn(1, 8, 20, 20, 20, requires_grad=True))
    assert y.grad_fn.x_hat.nbytes > 0
    first, second = (torch.autograd.grad(y.square().sum(), layer.weight, retain_graph=True) for _ in range(2))
    assert y.grad_fn.x_hat is None
    assert torch.equal(first[0], second[0])


def test_a_frozen_model_computes_the_same_until_it_is_trained():
    net = model()
    wanted = net(X)
    ours.replace_conv3d(net, policy="always")
    ours.freeze(net)
    with torch.no_grad():
        first = net(X)
        assert torch.equal(net(X), first)
    torch.testing.assert_close(first, wanted, rtol=1e-4, atol=1e-5)
    net(X).sum().backward()
    assert net[0].weight.grad is not None
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.5)
    ours.freeze(net)
    fresh = model()
    fresh.load_state_dict(net.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(net(X), fresh(X), rtol=1e-4, atol=1e-5)


def test_a_frozen_layer_computes_the_gradient_of_its_bias():
    layer = nn.Conv3d(4, 4, 3)
    layer.weight.requires_grad_(False)
    ours.replace_conv3d(layer, policy="always")
    ours.freeze(layer)
    layer(torch.randn(1, 4, 5, 5, 5)).sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((4,), 27.0))


def test_a_changed_weight_of_a_frozen_layer_is_found_if_the_environment_asks_for_it():
    code = """
import torch, convolume, convolume.torch as ours
layer = torch.nn.Conv3d(4, 4, 3)
ours.replace_conv3d(layer, policy="always"); ours.freeze(layer)
x = torch.zeros(1, 4, 5, 5, 5)
with torch.no_grad():
    layer(x)
    layer.weight.add_(1)
    try:
        layer(x); print("unseen")
    except convolume.StaleCache:
        print("found")
"""
    for value, text in (("0", "unseen\n"), ("1", "found\n")):
        run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "CONVOLUME_CHECK_WEIGHTS": value},
                             capture_output=True, text=True, check=True)
        assert run.stdout == text


def test_graphs_that_are_traced_or_exported_are_ordinary_convolutions(tmp_path):
    net = model().eval()
    wanted = net(X)
    ours.replace_conv3d(net, policy="always")
    traced = torch.jit.trace(net, X)
    symbolic = torch.fx.symbolic_trace(net)
    exported = torch.export.export(net, (X,))
    assert "convolume" not in symbolic.code + str(exported.graph)
    assert "conv3d" in symbolic.code and "conv3d" in str(exported.graph)
    # A traced model runs in a process that does not have the package.
    torch.jit.save(traced, tmp_path / "traced.pt")
    code = f"import sys, torch; torch.jit.load({str(tmp_path / 'traced.pt')!r})(torch.zeros(1, 2, 8, 8, 8)); " \
           "print('convolume' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True,
                         check=True)
    assert run.stdout == "False\n"
    ours.restore_conv3d(net)
    for graph in (traced, symbolic, exported.module()):
        torch.testing.assert_close(graph(X), wanted, rtol=1e-4, atol=1e-5)


def test_a_compiled_model_is_right():
    net = model().eval()
    wanted = net(X)
    ours.replace_conv3d(net, policy="always")
    torch.testing.assert_close(torch.compile(net, backend="eager")(X), wanted, rtol=1e-4, atol=1e-5)
