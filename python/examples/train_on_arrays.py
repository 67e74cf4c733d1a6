"""Trains a small net on arrays, segments another volume with it, and scores the result."""
import pathlib
import tempfile

import numpy as np

import convolume


def example(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns a noisy image of a wavy body, and which voxels it has."""
    z, y, x = np.meshgrid(*(np.linspace(0, 9, n) for n in (16, 48, 48)), indexing="ij")
    inside = np.sin(x + seed) + np.cos(y - z) > 0.3
    noise = np.random.default_rng(seed).standard_normal(inside.shape)
    return (inside + noise).astype("float32"), inside.astype("uint8")


out = pathlib.Path(tempfile.mkdtemp())
net = pathlib.Path(__file__).parent / "small_net.toml"
data = {"train": [example(1), example(2)], "intensity": {"normalise": "volume"}, "augment": {"flip": ["y", "x"]}}
result = convolume.train(net, data, out / "run", spacing=(1, 1, 1))

image, label = example(3)
predictor = convolume.Predictor(result.checkpoint)
scores = convolume.evaluate(predictor(image), label)
print(scores, scores["dice"] > 0.9)
