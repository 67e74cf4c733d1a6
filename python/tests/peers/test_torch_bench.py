"""The benchmarks of PyTorch models and layers start, run and print what they promise."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "bench/python"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not here")


def output_of(script, *options):
    path = os.pathsep.join(one for one in sys.path if one)
    found = subprocess.run([sys.executable, str(FOLDER / script), *options], capture_output=True, text=True, check=False,
                           timeout=300, env={**os.environ, "PYTHONPATH": path})
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("machine ")
    return found.stdout


def test_nets_calls_and_layers_are_measured(tmp_path):
    options = ["--nets", "tiny", "--rounds", "1", "--calls", "--pools", "--layers", "2", "--json", str(tmp_path / "figures.json")]
    found = output_of("torch_models.py", *options)
    for text in ("plan alone", "both over the sum of each alone", "below 0.9", "training step: ours", "over ours", "bound: over outside and plans",
                 "memory: ours over PyTorch", "inference: ours"):
        assert text in found
    report = json.loads((tmp_path / "figures.json").read_text())
    net = report["nets"]["tiny"]
    assert set(net["training"]) == {"contiguous", "channels_last_3d", "ours", "plans", "outside"}
    assert set(net["inference"]) >= set(net["training"]) and min(net["peak_bytes"].values()) > 0
    assert len(report["pools"]) == 8 and all(min(one["both"]) > 0 for one in report["pools"].values())
    assert len(report["calls"]) == 2 and len(report["layers"]["layers"]) == 2


def test_the_models_behind_policies_are_compared(tmp_path):
    found = output_of("cost_of_torch.py", "--layers", "3", "--rounds", "1", "--json", str(tmp_path / "rows.json"))
    assert "expected over measured seconds" in found and "saved " in found
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert len(rows) == 3 and all(row["ours expected"] > 0 and row["PyTorch expected"] > 0 for row in rows)
