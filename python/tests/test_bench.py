"""The benchmarks of bench/python start, run and print what they promise."""
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench/python"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not here")


@pytest.mark.parametrize("arguments, says", [
    ("fft.py --first 7 --last 8 --workers 1 --rounds 2", "geometric mean of 2 sides"),
    ("calls.py --rounds 2 --calls 3", "conv3d(x, w)"),
    ("memory.py --calls 60 --settle 30 --shapes 5 --limit 16", "growth after the first 30 calls"),
    ("convolution.py --sides 12 --kernels 3 --threads 2 --rounds 2", "geometric means: fftconvolve"),
])
def test_a_benchmark_runs(arguments, says):
    script, *options = arguments.split()
    path = os.pathsep.join(one for one in sys.path if one)
    found = subprocess.run([sys.executable, str(FOLDER / script), *options], capture_output=True, text=True,
                           check=False, timeout=300, env={**os.environ, "PYTHONPATH": path})
    assert found.returncode == 0, found.stderr
    assert says in found.stdout and found.stdout.startswith("machine ")
