"""Families of segmentation nets compute and learn with replaced convolutions as they do without."""
import contextlib
import functools
import importlib.util
import pathlib

import pytest

torch = pytest.importorskip("torch")

import convolume.torch as ours  # noqa: E402

FILE = pathlib.Path(__file__).resolve().parents[2] / "examples/torch_models.py"
SPEC = importlib.util.spec_from_file_location("example_of_torch_models", FILE)
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)

EXTENT = (4, 8, 6)
FAMILIES = {
    "unet": lambda: models.UNet(1, 2, width=4, levels=2, groups=2),
    "residual_unet": lambda: models.ResidualUNet(2, 2, width=4, blocks=(1, 2), widest=6),
    "vnet": lambda: models.VNet(1, 2, width=2, convolutions=(1, 2)),
    "highres3dnet": lambda: models.HighRes3DNet(1, 2, width=2, blocks=1, last=4),
    "mednext": lambda: models.MedNeXt(1, 2, width=3, kernel=5, blocks=1, levels=2),
}
ZOO = {
    "unet_isotropic": lambda: models.unet_isotropic(["generator.width=4", "generator.depth=2"]),
    "unet_anisotropic": lambda: models.unet_anisotropic(["generator.width=2", "generator.depth=2"]),
}


def make(name, dtype):
    """Returns a model, an input and a target, the same in each call."""
    torch.manual_seed(1)
    model = {**FAMILIES, **ZOO}[name]().to(dtype)
    # PyTorch computes small samples with oneDNN if there are two.
    x = torch.randn(2, 2 if name == "residual_unet" else 1, *EXTENT, dtype=dtype)
    return model, x, torch.rand_like(model(x))


def loss_of(model, x, target):
    return torch.nn.functional.binary_cross_entropy_with_logits(model(x), target)


@pytest.mark.parametrize("name", [*FAMILIES, *ZOO])
def test_outputs_and_gradients_are_those_of_pytorch(name):
    results = []
    for replace in (False, True):
        model, x, target = make(name, torch.float64)
        if replace:
            report = ours.replace_conv3d(model)
            assert len(report.rows) == models.convolutions(model) and all(row.replaced for row in report.rows)
        x.requires_grad_()
        loss = loss_of(model, x, target)
        results.append([model(x), *torch.autograd.grad(loss, [x, *model.parameters()])])
    assert results[0][0].shape == (2, results[0][0].shape[1], *EXTENT)
    for theirs, found in zip(*results):
        assert (theirs - found).abs().max() <= 1e-10 * max(1e-3, theirs.abs().max())


def learned(name, dtype, replace=False, onednn=True, memory_format=torch.contiguous_format):
    """Returns the parameters after 20 steps of Adam, as one vector."""
    model, x, target = make(name, dtype)
    model, x = model.to(memory_format=memory_format), x.contiguous(memory_format=memory_format)
    if replace:
        ours.replace_conv3d(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with contextlib.nullcontext() if onednn else torch.backends.mkldnn.flags(enabled=False):
        for _ in range(20):
            optimizer.zero_grad()
            loss_of(model, x, target).backward()
            optimizer.step()
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def distance(one, other):
    return ((one - other).norm() / other.norm()).item()


@pytest.mark.parametrize("name", FAMILIES)
def test_twenty_steps_of_adam_are_those_of_pytorch_in_double(name):
    learn = functools.partial(learned, name, torch.float64)
    assert distance(learn(replace=True), learn()) < 1e-9


@pytest.mark.parametrize("name", FAMILIES)
def test_twenty_steps_of_adam_differ_as_pytorchs_own_runs_do_in_float(name):
    learn = functools.partial(learned, name, torch.float32)
    runs = [learn(), learn(memory_format=torch.channels_last_3d), learn(onednn=False)]
    own = max(distance(one, other) for one in runs for other in runs)
    assert distance(learn(replace=True), runs[0]) <= max(1e-5, 3 * own)


def test_default_sizes_are_those_of_the_papers():
    with torch.device("meta"):
        sizes = {name: sum(one.numel() for one in make().parameters()) for name, make in models.MODELS.items()}
    assert round(sizes["mednext"] / 1e6, 1) == 6.0 and round(sizes["highres3dnet"] / 1e6, 2) == 0.81
    assert round(sizes["vnet"] / 1e6) == 65
