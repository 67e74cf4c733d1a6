"""Nets on files and on arrays, against the bits of files, and errors of both."""
import pathlib

import numpy as np
import pytest

import convolume
from convolume import InvalidArgument

RNG = np.random.default_rng(1)
IMAGE = (255 * RNG.random((6, 20, 24))).astype("uint8")
LABEL = (IMAGE > 127).astype("uint8")
PAIR = [(IMAGE, LABEL)]


@pytest.fixture(scope="module")
def net(tiny_net) -> pathlib.Path:
    return tiny_net


@pytest.fixture(scope="module")
def trained(net, tmp_path_factory) -> convolume.TrainResult:
    out = tmp_path_factory.mktemp("run") / "run"
    return convolume.train(net, {"train": PAIR, "validation": PAIR, "augment": {"flip": ["y", "x"]}}, out, threads=1)


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
    case = {"image": IMAGE, "label": LABEL, "weight": 2}
    result = convolume.train(net, {"train": [case], "sampling": {"volumes": "weights"}}, tmp_path / "run",
                             spacing=(2, 1, 1), seed=7, iterations=2, on_progress=states.append)
    assert [state.iteration for state in states][-1] == 2 and states[-1].loss == result.loss
    assert "iteration" in convolume.describe(result.checkpoint)
    assert "patch" in convolume.describe(net) and "uint8" in describe_of(tmp_path)


def describe_of(folder) -> str:
    convolume.convert(IMAGE, folder / "image.nii", spacing=(3, 2, 1))
    text = convolume.describe(folder / "image.nii")
    assert "3 x 2 x 1" in text
    return text


CLASSIFIER = """
name = "classifier"
[input]
patch = [2, 8, 8]
[[node]]
name = "pool"
type = "max_pool"
[[node]]
name = "logits"
type = "conv"
out_channels = 2
kernel = "all"
[loss]
kind = "softmax_cross_entropy"
"""


def test_a_classifier_is_trained_on_folders_and_writes_a_table(tmp_path):
    (tmp_path / "net.toml").write_text(CLASSIFIER)
    for name, low in ("dark", 0), ("light", 120):
        (tmp_path / name).mkdir()
        for i in range(3):
            convolume.convert(IMAGE // 2 + low + i, tmp_path / name / f"{i}.nii")
    cases = [{"image": tmp_path / "*/*.nii"}]
    data = {"train": cases, "validation": cases, "label": {"class_of": "folder", "classes": ["light", "dark"]}}
    run = convolume.train(tmp_path / "net.toml", data, tmp_path / "run", iterations=3)
    assert run.validation.classes == ["light", "dark"] and run.validation.voxels == 6
    assert [sum(row) for row in run.validation.confusion] == [3, 3]
    convolume.infer(run.checkpoint, tmp_path / "dark/0.nii", tmp_path / "out.csv", cases=[IMAGE, tmp_path / "light/1.nii"])
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "case,class,probability light,probability dark" and len(lines) == 4
    with pytest.raises(InvalidArgument, match="is a classifier"):
        convolume.Predictor(run.checkpoint)
    with pytest.raises(InvalidArgument, match="--patch"):
        convolume.infer(run.checkpoint, IMAGE, tmp_path / "out.csv", patch=(2, 8, 8))
    with pytest.raises(convolume.ConfigError, match="no folder"):
        convolume.train(tmp_path / "net.toml", {**data, "train": [{"image": IMAGE}]}, tmp_path / "other")


def test_an_exception_of_a_callback_ends_the_run_with_a_checkpoint(net, tmp_path):
    def stop(state) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        convolume.train(net, {"train": [(IMAGE, LABEL)]}, tmp_path / "run", iterations=100000, on_progress=stop)
    resumed = convolume.train(net, {"train": [(IMAGE.copy(), LABEL)]}, tmp_path / "run", resume=True, iterations=10)
    assert resumed.iteration == 10


def chunks_of(folder) -> dict:
    return {file.name: file.read_bytes() for file in folder.rglob("*") if "/." not in str(file) and file.is_file()}


def test_a_predictor_equals_infer_and_is_used_again(trained, tmp_path):
    convolume.convert(IMAGE, tmp_path / "image.h5:/x")
    predictor = convolume.Predictor(trained.checkpoint, patch=(4, 8, 8), flip="y", threads=2)
    first = predictor(IMAGE)
    assert first.shape == (1, *IMAGE.shape) and first.dtype == np.float32
    assert np.array_equal(first, predictor(IMAGE[None], out=np.empty_like(first)))
    assert np.array_equal(predictor(np.asfortranarray(IMAGE)), first)
    convolume.convert(first, tmp_path / "ours.zarr")
    convolume.infer(trained.checkpoint, f"{tmp_path}/image.h5:/x", tmp_path / "theirs.zarr", patch=(4, 8, 8), flip="y")
    ours, theirs = chunks_of(tmp_path / "ours.zarr"), chunks_of(tmp_path / "theirs.zarr")
    assert ours and ours == theirs
    scores = convolume.evaluate(first, LABEL)
    assert scores.values["pixel_error"] == scores["pixel_error"] and np.isfinite(scores["roc_auc"])
    assert predictor(IMAGE[:5]).shape == (1, 5, 20, 24)


def test_nets_take_the_threads_of_the_package(net, tmp_path):
    for threads, name in ((1, "one"), (2, "two")):
        with convolume.threads(threads):
            result = convolume.train(net, {"train": PAIR}, tmp_path / name, iterations=20)
        assert result.workers <= threads
    with pytest.raises(InvalidArgument, match="negative"):
        convolume.train(net, {"train": PAIR}, tmp_path / "none", threads=-1)


def test_a_predictor_of_labels_gives_small_integers(trained):
    labels = convolume.Predictor(trained.checkpoint, labels=True)(IMAGE)
    assert labels.dtype == np.uint8 and set(np.unique(labels)) <= {0, 1}


def test_a_predictor_may_be_used_in_a_callback_of_a_training(net, trained, tmp_path):
    predictor = convolume.Predictor(trained.checkpoint)

    def nested(state) -> None:
        assert predictor(IMAGE).shape == (1, 6, 20, 24)

    convolume.train(net, {"train": [(IMAGE, LABEL)]}, tmp_path / "run", iterations=1, on_progress=nested)


def train(net, out, cases, **options) -> convolume.TrainResult:
    return convolume.train(net, {"train": cases}, out, **options)


predictor = convolume.Predictor


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda n, c, o: train(n, o, [(IMAGE, LABEL[:5])]), convolume.ConfigError, "label"),
    (lambda n, c, o: train(n, o, []), convolume.ConfigError, "train"),
    (lambda n, c, o: train(n, o, [IMAGE]), TypeError, "image, label"),
    (lambda n, c, o: train(n, o, [(IMAGE[0], LABEL)]), InvalidArgument, "2 axes"),
    (lambda n, c, o: train(n, o, [(IMAGE * 1j, LABEL)]), TypeError, "complex"),
    (lambda n, c, o: train(n, o, [(None, LABEL)]), InvalidArgument, "0 axes"),
    (lambda n, c, o: convolume.train(n, {"train": PAIR, "cat": {1: 2}}, o), convolume.ConfigError, "cat"),
    (lambda n, c, o: train(n, o, PAIR, seed="x"), TypeError, "seed"),
    (lambda n, c, o: train(n, o, PAIR, spacing=(1, 0, 1)), InvalidArgument, "spacing"),
    (lambda n, c, o: train("missing.toml", o, PAIR), convolume.IoError, "missing.toml"),
    (lambda n, c, o: train(n, o, PAIR, engine="fast"), InvalidArgument, "fast"),
    (lambda n, c, o: predictor("missing.safetensors"), convolume.IoError, "missing"),
    (lambda n, c, o: predictor(None), TypeError, "checkpoint"),
    (lambda n, c, o: predictor(c)(np.zeros((2, 6, 20, 24), "uint8")), convolume.ShapeMismatch, "channels"),
    (lambda n, c, o: predictor(c)(np.zeros((0, 20, 24))), InvalidArgument, "shape"),
    (lambda n, c, o: predictor(c)(IMAGE, out=np.zeros((6, 20, 24), "float32")), InvalidArgument, "out"),
    (lambda n, c, o: predictor(c)(np.zeros((1,) * 7)), InvalidArgument, "7 axes"),
    (lambda n, c, o: predictor(c, blend="soft"), InvalidArgument, "soft"),
    (lambda n, c, o: predictor(c, flip="w"), InvalidArgument, "flip"),
    (lambda n, c, o: predictor(c, patch=(1, 2)), InvalidArgument, "patch"),
    (lambda n, c, o: convolume.infer(c, IMAGE, o / "a.unknown"), InvalidArgument, "a.unknown"),
    (lambda n, c, o: convolume.evaluate(IMAGE, LABEL[:4]), ValueError, "voxels"),
    (lambda n, c, o: convolume.convert("missing.tif", o / "a.tif"), convolume.IoError, "missing.tif"),
    (lambda n, c, o: convolume.describe(n, patch=3, overrides=["x"]), convolume.ConfigError, "x"),
])
def test_bad_input_is_named(call, error, text, net, trained, tmp_path):
    with pytest.raises(error, match=text):
        call(net, trained.checkpoint, tmp_path / "out")
