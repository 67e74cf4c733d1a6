"""Nets on files and on arrays, against the bits of files, and errors of both."""
import pathlib

import numpy as np
import pytest

import convolume

NET = """
name = "tiny"
[input]
patch = [4, 12, 12]
[[node]]
name = "a"
type = "conv"
out_channels = 3
kernel = [1, 3, 3]
padding = "same"
activation = "relu"
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = 3
padding = "same"
[optimizer]
kind = "sgd"
learning_rate = 0.01
[training]
batch = 1
iterations = 3
validate_every = 3
"""
RNG = np.random.default_rng(1)
IMAGE = (255 * RNG.random((6, 20, 24))).astype("uint8")
LABEL = (IMAGE > 127).astype("uint8")


@pytest.fixture(scope="module")
def net(tmp_path_factory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("net") / "net.toml"
    file.write_text(NET)
    return file


@pytest.fixture(scope="module")
def trained(net, tmp_path_factory) -> convolume.TrainResult:
    out = tmp_path_factory.mktemp("run") / "run"
    return convolume.train(net, {"train": [(IMAGE, LABEL)], "validation": [(IMAGE, LABEL)], "augment": {"flip": ["y", "x"]}},
                           out, threads=1)


def test_training_on_arrays_equals_training_on_files(net, trained, tmp_path):
    convolume.convert(IMAGE, tmp_path / "image.tif")
    convolume.convert(LABEL, tmp_path / "label.nii")
    (tmp_path / "data.toml").write_text("""
name = "files"
[augment]
flip = ["y", "x"]
[[train]]
image = "image.tif"
label = "label.nii"
spacing = [1.0, 1.0, 1.0]
[[validation]]
image = "image.tif"
label = "label.nii"
spacing = [1.0, 1.0, 1.0]
""")
    files = convolume.train(net, tmp_path / "data.toml", tmp_path / "files", threads=2)
    assert files.checkpoint.read_bytes() == trained.checkpoint.read_bytes()
    assert trained.iteration == 3 and trained.validation is not None
    assert 0 <= trained.validation["pixel_error"] <= 1 and trained.validation.voxels == IMAGE.size


def test_progress_notes_and_results_reach_python(net, tmp_path):
    states = []
    result = convolume.train(net, {"train": [{"image": IMAGE, "label": LABEL, "weight": 2}], "sampling": {"volumes": "weights"}},
                             tmp_path / "run", spacing=(2, 1, 1), seed=7, iterations=2, on_progress=states.append)
    assert [state.iteration for state in states][-1] == 2 and states[-1].loss == result.loss
    assert "iteration" in convolume.describe(result.checkpoint)
    assert "patch" in convolume.describe(net) and "uint8" in describe_of(tmp_path)


def describe_of(folder) -> str:
    convolume.convert(IMAGE, folder / "image.nii", spacing=(3, 2, 1))
    text = convolume.describe(folder / "image.nii")
    assert "3 x 2 x 1" in text
    return text


def test_an_exception_of_a_callback_ends_the_run_with_a_checkpoint(net, tmp_path):
    def stop(state) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        convolume.train(net, {"train": [(IMAGE, LABEL)]}, tmp_path / "run", iterations=100000, on_progress=stop)
    resumed = convolume.train(net, {"train": [(IMAGE.copy(), LABEL)]}, tmp_path / "run", resume=True, iterations=10)
    assert resumed.iteration == 10


def test_a_predictor_equals_infer_and_is_used_again(trained, tmp_path):
    convolume.convert(IMAGE, tmp_path / "image.h5:/x")
    predictor = convolume.Predictor(trained.checkpoint, patch=(4, 8, 8), flip="y", threads=2)
    first = predictor(IMAGE)
    assert first.shape == (1, *IMAGE.shape) and first.dtype == np.float32
    assert np.array_equal(first, predictor(IMAGE[None], out=np.empty_like(first)))
    assert np.array_equal(predictor(np.asfortranarray(IMAGE)), first)
    convolume.convert(first, tmp_path / "ours.zarr")
    convolume.infer(trained.checkpoint, f"{tmp_path}/image.h5:/x", tmp_path / "theirs.zarr", patch=(4, 8, 8), flip="y")
    ours = {file.name: file.read_bytes() for file in (tmp_path / "ours.zarr").rglob("*") if "/." not in str(file) and file.is_file()}
    theirs = {file.name: file.read_bytes() for file in (tmp_path / "theirs.zarr").rglob("*") if "/." not in str(file) and file.is_file()}
    assert ours and ours == theirs
    scores = convolume.evaluate(first, LABEL)
    assert scores.values["pixel_error"] == scores["pixel_error"] and np.isfinite(scores["roc_auc"])
    assert predictor(IMAGE[:5]).shape == (1, 5, 20, 24)


def test_a_predictor_of_labels_gives_small_integers(trained):
    labels = convolume.Predictor(trained.checkpoint, labels=True)(IMAGE)
    assert labels.dtype == np.uint8 and set(np.unique(labels)) <= {0, 1}


def test_a_predictor_refuses_to_be_used_from_its_own_callback(net, trained, tmp_path):
    predictor = convolume.Predictor(trained.checkpoint)

    def nested(state) -> None:
        assert predictor(IMAGE).shape == (1, 6, 20, 24)

    convolume.train(net, {"train": [(IMAGE, LABEL)]}, tmp_path / "run", iterations=1, on_progress=nested)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda net, ckpt, out: convolume.train(net, {"train": [(IMAGE, LABEL[:5])]}, out), convolume.ConfigError, "label"),
    (lambda net, ckpt, out: convolume.train(net, {"train": []}, out), convolume.ConfigError, "train"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [IMAGE]}, out), TypeError, "image, label"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [(IMAGE[0], LABEL)]}, out), convolume.InvalidArgument, "2 axes"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [(IMAGE * 1j, LABEL)]}, out), TypeError, "complex"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [(None, LABEL)]}, out), convolume.InvalidArgument, "0 axes"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [(IMAGE, LABEL)], "cat": {1: 2}}, out), convolume.ConfigError, "cat"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [(IMAGE, LABEL)]}, out, seed="x"), TypeError, "seed"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [(IMAGE, LABEL)]}, out, spacing=(1, 0, 1)), convolume.InvalidArgument, "spacing"),
    (lambda net, ckpt, out: convolume.train("missing.toml", {"train": [(IMAGE, LABEL)]}, out), convolume.IoError, "missing.toml"),
    (lambda net, ckpt, out: convolume.train(net, {"train": [(IMAGE, LABEL)]}, out, engine="fast"), convolume.InvalidArgument, "fast"),
    (lambda net, ckpt, out: convolume.Predictor("missing.safetensors"), convolume.IoError, "missing"),
    (lambda net, ckpt, out: convolume.Predictor(None), TypeError, "checkpoint"),
    (lambda net, ckpt, out: convolume.Predictor(ckpt)(np.zeros((2, 6, 20, 24), "uint8")), convolume.ShapeMismatch, "channels"),
    (lambda net, ckpt, out: convolume.Predictor(ckpt)(np.zeros((0, 20, 24))), convolume.InvalidArgument, "shape"),
    (lambda net, ckpt, out: convolume.Predictor(ckpt)(IMAGE, out=np.zeros((6, 20, 24), "float32")), convolume.InvalidArgument, "out"),
    (lambda net, ckpt, out: convolume.Predictor(ckpt)(np.zeros((1,) * 7)), convolume.InvalidArgument, "7 axes"),
    (lambda net, ckpt, out: convolume.Predictor(ckpt, blend="soft"), convolume.InvalidArgument, "soft"),
    (lambda net, ckpt, out: convolume.Predictor(ckpt, flip="w"), convolume.InvalidArgument, "flip"),
    (lambda net, ckpt, out: convolume.Predictor(ckpt, patch=(1, 2)), convolume.InvalidArgument, "patch"),
    (lambda net, ckpt, out: convolume.infer(ckpt, IMAGE, out / "a.unknown"), convolume.InvalidArgument, "a.unknown"),
    (lambda net, ckpt, out: convolume.evaluate(IMAGE, LABEL[:4]), ValueError, "voxels"),
    (lambda net, ckpt, out: convolume.convert("missing.tif", out / "a.tif"), convolume.IoError, "missing.tif"),
    (lambda net, ckpt, out: convolume.describe(net, patch=3, overrides=["x"]), convolume.ConfigError, "x"),
])
def test_bad_input_is_named(call, error, text, net, trained, tmp_path):
    with pytest.raises(error, match=text):
        call(net, trained.checkpoint, tmp_path / "out")
