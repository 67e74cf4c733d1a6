import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def tiny_net(tmp_path_factory):
    """Returns the file of a net of two convolutions, which trains three iterations in no time."""
    file = tmp_path_factory.mktemp("net") / "net.toml"
    file.write_text(TINY_NET)
    return file


TINY_NET = """
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
