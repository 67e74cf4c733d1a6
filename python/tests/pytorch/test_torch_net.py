"""net() and net_from_toml(): modules of PyTorch that compute what the library computes."""
import copy
import functools
import io
import json
import pathlib
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import convolume  # noqa: E402
import convolume.torch as ours  # noqa: E402

ZOO = pathlib.Path(__file__).resolve().parents[3] / "nets/zoo"
EXTENT = (8, 16, 12)
RNG = np.random.default_rng(1)
IMAGE = RNG.standard_normal(EXTENT).astype("float32")
LABEL = (IMAGE > 0).astype("uint8")


def nodes(*tables, channels=1, loss="square"):
    """Returns the text of a net."""
    text = f'name = "test"\n[input]\nchannels = {channels}\npatch = {list(EXTENT)}\n[loss]\nkind = "{loss}"\n'
    for table in tables:
        text += "[[node]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
    return text


def node(name, kind, **keys):
    return {"name": name, "type": kind, **keys}


def conv(name, channels=1, kernel=1, **keys):
    return node(name, "conv", out_channels=channels, kernel=kernel, **keys)


def generated(kind, loss="square", **keys):
    text = f'name = "test"\n[input]\npatch = {list(EXTENT)}\n[loss]\nkind = "{loss}"\n[generator]\ntype = "{kind}"\n'
    return text + "".join(f"{key} = {value if key in ('kernel', 'pool') else json.dumps(value)}\n"
                          for key, value in keys.items())


# Nets that keep the extent. Together they have each kind of node and each key.
SAME = {
    "one convolution": nodes(conv("logits", 1, 1)),
    "same": nodes(conv("a", 5, [2, 3, 4], padding="same", activation="leaky_relu", slope=0.2),
                  conv("b", 4, 3, padding="same", dilation=[1, 2, 2], bias=False, activation="tanh"),
                  conv("logits", 1, [1, 5, 3], padding=[0, 2, 1], activation="sigmoid")),
    "groups": nodes(conv("a", 6, 3, padding=1, activation="relu"), conv("b", 6, 3, padding="same", groups=6),
                    node("c", "activation", activation="leaky_relu"), conv("d", 4, 1, groups=2, activation="softsign"),
                    node("e", "activation", activation="softsign"), conv("logits")),
    "strides": nodes(conv("a", 4, 3, stride=2, padding=1), node("b", "activation"),
                     node("c", "transposed_conv", out_channels=4, kernel=[2, 4, 3], stride=2, padding=[0, 1, 1],
                          output_padding=[0, 0, 1], groups=2, bias=False, activation="relu"), conv("logits")),
    "dilated transposed": nodes(conv("a", 3, 3), node("b", "transposed_conv", out_channels=2, kernel=2, dilation=2),
                                conv("logits")),
    "pools": nodes(conv("a", 4, 3, padding="same"), node("b", "max_pool"), conv("c", 4, 3, padding="same"),
                   node("d", "max_pool", window=[1, 2, 2]), node("e", "upsample", factor=[1, 2, 2]),
                   node("f", "upsample"), {**node("g", "concat"), "from": ["a", "f", "input"]}, conv("logits")),
    "norms": nodes(conv("a", 6, 3, padding="same"), node("b", "group_norm", groups=3), node("c", "activation"),
                   conv("d", 4, 1), node("e", "instance_norm", epsilon=0.001), node("f", "layer_norm"),
                   node("g", "activation", activation="tanh"), node("h", "dropout", rate=0.9),
                   node("i", "activation", activation="none"), node("j", "activation", activation="sigmoid"),
                   {**node("k", "add"), "from": ["d", "j", "d"]}, conv("logits")),
    # Names that are attributes of a module, too.
    "names": nodes(conv("type", 2), conv("training", 2), conv("_steps", 2), conv("forward", 1)),
    "unet group": generated("unet", width=6, depth=2, norm="group", groups=4, residual=True, dropout=0.5,
                            activation="leaky_relu", slope=0.1),
    "unet instance": generated("unet", width=4, depth=2, norm="instance", upsampling="nearest", convs=1),
    "unet layer": generated("unet", width=4, depth=2, norm="layer", convs=1, kernel="[{ size = [1, 3, 3] }]"),
    "unet": generated("unet", width=2, depth=3, convs=1, kernel="[{ size = [1, 5, 5] }, { size = 3 }]",
                      pool="[{ size = [1, 2, 2] }, { size = 2 }]"),
}

# Nets whose output is smaller. No node of them looks at all voxels, so patches do not matter.
VALID = {
    "valid": nodes(conv("a", 4, 3, activation="relu"), conv("b", 4, [1, 3, 2], dilation=2),
                   conv("logits", padding="valid")),
    "filter": nodes(conv("a", 4, [1, 2, 2]), node("b", "max_pool", window=[1, 2, 2], stride=1),
                    node("c", "max_pool", window=2, stride=1, dilation=[1, 3, 2]), conv("logits", 1, 3, dilation=2)),
    "crops": nodes(conv("a", 3, 3), node("b", "crop", before=[0, 1, 2], after=[1, 0, 3]), conv("c", 3, [1, 2, 4]),
                   {**node("d", "add"), "from": ["a", "b", "c"]},
                   {**node("e", "concat"), "from": ["input", "d"]}, conv("logits")),
    "width_depth": generated("width_depth", width=4, depth=3, kernel="[1, 3, 3]", out_channels=1),
}


def train(text, folder, iterations=2, channels=1, **options):
    """Returns the checkpoint of a net that was trained for some iterations."""
    (folder / "net.toml").write_text(text)
    image = IMAGE if channels == 1 else np.stack([IMAGE] * channels)
    data = {"train": [(image, LABEL)], "intensity": {"normalise": "none"}}
    run = convolume.train(folder / "net.toml", data, folder / "run", iterations=iterations, threads=2, **options)
    return run.checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a function that trains a net of SAME or VALID once, and returns its checkpoint."""
    return functools.cache(lambda name: train({**SAME, **VALID}[name], tmp_path_factory.mktemp("run")))


def distance(one, other):
    """Returns the largest difference, relative to the largest value."""
    return np.abs(one - other).max() / np.abs(other).max()


def by(module, image=IMAGE):
    with torch.no_grad():
        return module.eval()(torch.from_numpy(image)[None, None])[0].numpy()


@pytest.mark.parametrize("name", SAME)
def test_a_net_computes_what_the_predictor_computes(name, trained):
    checkpoint = trained(name)
    net = ours.net(checkpoint)
    assert not net.training and net.title == "test" and net.patch == EXTENT
    wanted = convolume.Predictor(checkpoint, threads=2)(IMAGE)
    assert distance(by(net), wanted) < 1e-5
    ours.replace_conv3d(net)
    assert distance(by(net), wanted) < 1e-5
    ours.freeze(net)
    assert distance(by(net), wanted) < 1e-5


@pytest.mark.parametrize("name", VALID)
def test_a_net_of_valid_convolutions_computes_the_inner_voxels(name, trained):
    checkpoint = trained(name)
    found = by(ours.net(checkpoint))
    wanted = convolume.Predictor(checkpoint, threads=2)(IMAGE)
    assert wanted.shape[1:] == EXTENT and found.shape != wanted.shape
    places = [range(all_ - some + 1) for all_, some in zip(EXTENT, found.shape[1:])]
    least = min(distance(found, wanted[:, z:z + found.shape[1], y:y + found.shape[2], x:x + found.shape[3]])
                for z in places[0] for y in places[1] for x in places[2])
    assert least < 1e-5


# Nets with a kernel that is the extent of its input, behind each kind of node that changes an extent.
WHOLE = {
    "pools": nodes(conv("a", 4, 3, stride=[1, 2, 2]), node("b", "max_pool", window=2, stride=1),
                   conv("full", 8, "all", activation="relu"), conv("logits", 2), loss="softmax_cross_entropy"),
    "joins": nodes(conv("a", 3, [3, 4, 4], padding="same"), conv("b", 3, 3, dilation=2),
                   {**node("c", "add"), "from": ["a", "b"]}, node("d", "crop", before=[0, 1, 0], after=1),
                   node("e", "transposed_conv", out_channels=2, kernel=3, stride=2, output_padding=1),
                   node("f", "upsample", factor=[1, 1, 2]), conv("logits", 2, "all"), loss="softmax_cross_entropy"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_classifier_computes_what_infer_writes(name, tmp_path):
    (tmp_path / "net.toml").write_text(WHOLE[name])
    for folder in "ab":
        (tmp_path / folder).mkdir()
        convolume.convert(IMAGE if folder == "a" else IMAGE[::-1], tmp_path / folder / "0.h5")
    data = {"train": [{"image": f"{tmp_path}/*/0.h5"}], "label": {"class_of": "folder"}, "intensity": {"normalise": "none"}}
    run = convolume.train(tmp_path / "net.toml", data, tmp_path / "run", iterations=2, threads=2)
    convolume.infer(run.checkpoint, IMAGE, tmp_path / "out.csv")
    wanted = [float(p) for p in (tmp_path / "out.csv").read_text().splitlines()[1].split(",")[2:]]
    with torch.no_grad():
        found = ours.net(run.checkpoint).probabilities(torch.from_numpy(IMAGE)[None, None])
    assert found.shape == (1, 2, 1, 1, 1)
    assert np.allclose(found.flatten().numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize(("loss", "channels"), [("binary_cross_entropy", 1), ("softmax_cross_entropy", 2), ("dice", 1),
                                                ("square", 1)])
def test_probabilities_are_those_of_infer(loss, channels, tmp_path):
    checkpoint = train(nodes(conv("a", 4, 3, padding="same"), conv("logits", channels), loss=loss), tmp_path)
    net = ours.net(checkpoint)
    with torch.no_grad():
        found = net.probabilities(torch.from_numpy(IMAGE)[None, None])[0].numpy()
    assert distance(found, convolume.Predictor(checkpoint)(IMAGE)) < 1e-5


def test_an_input_of_several_channels_and_options_of_the_command(tmp_path):
    text = generated("unet", width=4, depth=2).replace("patch", "channels = 3\npatch")
    checkpoint = train(text, tmp_path, channels=3, overrides=["generator.width=6", 'loss.kind="dice"'])
    net = ours.net(checkpoint)
    assert net.in_channels == 3 and net.down0_conv0.out_channels == 6 and net.loss == "dice"
    for x in (torch.zeros(1, 1, *EXTENT), torch.zeros(3, *EXTENT)):
        with pytest.raises(convolume.ShapeMismatch, match=r"\(N, 3, Z, Y, X\)"):
            net(x)


def test_names_of_parameters_are_those_of_the_checkpoint(trained):
    checkpoint = trained("unet group")
    contents = checkpoint.read_bytes()
    header = json.loads(contents[8:8 + int.from_bytes(contents[:8], "little")])
    names = {name for name in header if "/" not in name and name != "__metadata__"}
    assert set(ours.net(checkpoint).state_dict()) == names


def test_gradients_flow_and_a_net_can_be_trained_copied_and_saved(trained):
    net = ours.net(trained("unet group")).train()
    ours.replace_conv3d(net)
    x, target = (torch.from_numpy(one)[None, None] for one in (IMAGE, LABEL.astype("float32")))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in net.parameters())
    assert losses[-1] < losses[0]
    assert not torch.equal(net(x), net(x))  # dropout
    copied = copy.deepcopy(net).eval()
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for one in (copied, torch.load(file, weights_only=False).eval()):
        assert torch.equal(one(x), net.eval()(x))


def test_a_net_can_be_exported_and_given_double(trained):
    net = ours.net(trained("pools"))
    x = torch.from_numpy(IMAGE)[None, None]
    wanted = net(x)
    torch.testing.assert_close(torch.export.export(net, (x,)).module()(x), wanted)
    torch.testing.assert_close(net.double()(x.double()).float(), wanted, rtol=1e-4, atol=1e-5)


def test_loading_draws_no_random_numbers(trained):
    checkpoint = trained("unet group")
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    ours.net(checkpoint)
    assert torch.equal(torch.rand(1), wanted)


@pytest.mark.parametrize(("name", "patch"), [("demo", [4, 12, 12]), ("hippocampus", [8, 8, 8]),
                                             ("unet_isotropic", [8, 8, 8]), ("unet_anisotropic", [2, 8, 8])])
def test_nets_of_the_zoo_are_those_that_are_trained(name, patch, tmp_path):
    overrides = [f"input.patch={patch}", "generator.width=2", "generator.convs=1", 'training.best=""']
    net = ours.net_from_toml(ZOO / f"{name}.toml", overrides)
    assert net.training and net.title == name and list(net.patch) == patch
    image = RNG.standard_normal(patch).astype("float32")
    label = np.arange(image.size).reshape(patch) % (3 if name == "hippocampus" else 2)
    run = convolume.train(ZOO / f"{name}.toml", {"train": [(image, label)]}, tmp_path / "run", overrides=overrides,
                          iterations=1, threads=2)
    trained = ours.net(run.checkpoint)
    assert {key: one.shape for key, one in trained.state_dict().items()} == {
        key: one.shape for key, one in net.state_dict().items()}
    image = (image - image.mean()) / image.std()
    with torch.no_grad():
        found = trained.probabilities(torch.from_numpy(image)[None, None])[0].numpy()
    assert distance(found, convolume.Predictor(run.checkpoint, threads=2)(image)) < 1e-5


@pytest.mark.parametrize(("name", "extent", "channels"), [("n4", [1, 97, 96], 2), ("width_depth", [33, 34, 35], 1)])
def test_nets_of_the_zoo_with_valid_convolutions_have_their_field_of_view(name, extent, channels):
    net = ours.net_from_toml(ZOO / f"{name}.toml", ["generator.width=2"] if name == "width_depth" else [])
    view = {"n4": [1, 95, 95], "width_depth": [33, 33, 33]}[name]
    with torch.no_grad():
        assert list(net(torch.zeros(1, 1, *extent)).shape[1:]) == [channels, *(e - v + 1 for e, v in zip(extent, view))]


def test_other_sizes_are_options_as_those_of_the_command():
    net = ours.net_from_toml(ZOO / "unet_isotropic.toml", ["generator.width=4", "generator.depth=2", "input.patch=32"])
    assert net.patch == (32, 32, 32) and net.upsample0.out_channels == 4 and not hasattr(net, "down2_conv0")


@pytest.mark.parametrize(("contents", "error"), [
    (b"", "safetensors"), (b"12345678", "safetensors"), (b"\xff" * 100, "safetensors"),
    (b"\x05\0\0\0\0\0\0\0{...}", "safetensors"), (b"\x02\0\0\0\0\0\0\0[]", "safetensors"),
    (b"\x02\0\0\0\0\0\0\0{}", "convolume checkpoint 1"),
    (b'\x27\0\0\0\0\0\0\0{"__metadata__": {"format": "pytorch"}}', "convolume checkpoint 1"),
])
def test_a_file_that_is_no_checkpoint_is_refused(contents, error, tmp_path):
    (tmp_path / "file").write_bytes(contents)
    with pytest.raises(convolume.FormatError, match=f"file: .*{error}.*last.safetensors"):
        ours.net(tmp_path / "file")


def test_files_that_are_missing_damaged_or_not_text_are_refused(trained, tmp_path):
    for call in (ours.net, ours.net_from_toml):
        for path in (tmp_path / "missing", tmp_path):
            with pytest.raises(convolume.IoError, match=path.name):
                call(path)
    contents = bytearray(trained("one convolution").read_bytes())
    contents[-1] ^= 1
    checkpoint = tmp_path / "damaged.safetensors"
    checkpoint.write_bytes(contents)
    with pytest.raises(convolume.FormatError, match="digest"):
        ours.net(checkpoint)
    checkpoint.write_bytes(contents[:-4])
    with pytest.raises(convolume.FormatError, match="restore a copy"):
        ours.net(checkpoint)
    (tmp_path / "net.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(convolume.ConfigError, match="UTF-8"):
        ours.net_from_toml(tmp_path / "net.toml")


LOGITS = conv("logits")


@pytest.mark.parametrize(("text", "error"), [
    ("name = ", "net.toml: this is not TOML"),
    ("name = 1", "name is 1; it must be a text"),
    ("[input]\npatch = 3", "'name' is missing"),
    (nodes(), r"\[\[node\]\] tables or one \[generator\]"),
    (nodes(LOGITS) + "[generator]\ntype = 'unet'\n", "either"),
    (nodes(LOGITS) + "[other]\n", "'other' is not known"),
    (nodes(LOGITS, loss="cube"), "kind 'cube' is unknown here; use one of: binary_cross_entropy"),
    (nodes(LOGITS, channels=0), r"\[input\]: channels is 0; it must be an integer of at least 1"),
    (nodes(node("a", "attention")), "node 'a': type 'attention' is unknown here; use one of: conv, transposed_conv"),
    (nodes(conv("a.b")), "letters, digits"),
    (nodes(conv("a"), conv("a")), "used twice"),
    (nodes(conv("a"), {**LOGITS, "from": "b"}), "node 'logits': from: 'b' is not a node above it"),
    (nodes(conv("a"), {**LOGITS, "from": 3}), "from is 3; it must be a text or a list"),
    (nodes(conv("a"), {**LOGITS, "from": "input"}), "node 'a': no other node reads it"),
    (nodes(node("a", "add")), "node 'a': it has 1 inputs"),
    (nodes(conv("a", scale=2)), "node 'a': the key 'scale' is not known here; known are activation, bias"),
    (nodes(node("a", "conv", kernel=3)), "node 'a': 'out_channels' is missing"),
    (nodes(conv("a", 1, [1, 2])), r"node 'a': kernel is \[1, 2\]; it must be an integer or \[z, y, x\]"),
    (nodes(conv("a", 1, 0)), "its numbers must be at least 1"),
    (nodes(conv("a", 1, 1, padding="full")), "node 'a': padding 'full' cannot be used here"),
    (nodes(conv("a", 1, 1, padding="same", stride=2)), "padding 'same' cannot be used here"),
    (nodes(conv("a", 1, "all", stride=2)), "meets its input at one place; leave 'stride' out"),
    (nodes(conv("a", 1, "all", dilation=2)), "leave 'dilation' out"),
    (nodes(conv("a", 1, "all", padding="same")), "leave 'padding' out"),
    (nodes(conv("a", 1, 1, bias=1)), "bias is 1; it must be true or false"),
    (nodes(conv("a", 1, 1, activation="gelu")), "activation 'gelu' is unknown here"),
    (nodes(conv("a", 3, 1, groups=2)), "node 'a': .*divisible by groups; there are 1 input channels"),
    (nodes(conv("a", 3), node("b", "group_norm", groups=2)), "node 'b': 2 groups do not divide 3 channels"),
    (nodes(conv("a", 3), {**node("b", "add"), "from": ["a", "input"]}), "node 'b': it adds 3 and 1 channels"),
    (nodes(node("a", "max_pool"), {**node("b", "concat"), "from": ["a", "input"]}), "node 'b': .*different size"),
    (nodes(LOGITS, node("a", "dropout", rate=1.5)), "rate is 1.5; it must be a number from 0 to 0.999"),
    (generated("resnet"), "type 'resnet' is unknown here; use one of: width_depth, unet"),
    (generated("unet", width=1, depth=9), r"depth is 9; it must be an integer of at least 1 and at most 8"),
    (generated("unet", width=1, pool="[3]"), "pool is .*; it must be a list of tables"),
])
def test_texts_that_are_no_nets_are_refused_by_node_key_and_value(text, error, tmp_path):
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(convolume.ConfigError, match=error):
        ours.net_from_toml(tmp_path / "net.toml")


@pytest.mark.parametrize("override", ["width=3", "node.a=3", "generator.width", "generator.width=x"])
def test_overrides_that_cannot_be_are_refused(override):
    with pytest.raises(convolume.ConfigError, match=re.escape(override)):
        ours.net_from_toml(ZOO / "demo.toml", [override])


def test_an_input_that_is_too_small_for_a_join_is_refused(tmp_path):
    (tmp_path / "net.toml").write_text(nodes(conv("a", 1, 3), {**node("b", "add"), "from": ["input", "a"]},
                                             node("c", "crop", before=4), {**node("d", "add"), "from": ["b", "c"]}))
    net = ours.net_from_toml(tmp_path / "net.toml")
    with pytest.raises(convolume.ShapeMismatch, match="no voxel in common"):
        net(torch.zeros(1, 1, 6, 6, 6))
