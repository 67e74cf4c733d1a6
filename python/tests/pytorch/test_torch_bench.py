"""The benchmark of PyTorch models starts, runs and prints what it promises."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "bench/python/torch_models.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not here")


def test_nets_calls_and_layers_are_measured(tmp_path):
    options = ["--nets", "tiny", "--rounds", "1", "--calls", "--layers", "2", "--json", str(tmp_path / "figures.json")]
    path = os.pathsep.join(one for one in sys.path if one)
    found = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False,
                           timeout=300, env={**os.environ, "PYTHONPATH": path})
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("machine ")
    for text in ("plan alone", "below 0.9", "training step: ours", "over ours", "bound: over outside and plans",
                 "memory: ours over PyTorch", "inference: ours"):
        assert text in found.stdout
    report = json.loads((tmp_path / "figures.json").read_text())
    net = report["nets"]["tiny"]
    assert set(net["training"]) == {"contiguous", "channels_last_3d", "ours", "plans", "outside"}
    assert set(net["inference"]) >= set(net["training"]) and min(net["peak_bytes"].values()) > 0
    assert len(report["calls"]) == 2 and len(report["layers"]["layers"]) == 2
