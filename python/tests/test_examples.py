"""The examples run, and the README shows the first of them."""
import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("example", sorted((ROOT / "python/examples").glob("*.py")), ids=lambda path: path.stem)
def test_example_runs(example, capsys):
    if "torch" in example.stem:
        pytest.importorskip("torch")
    runpy.run_path(str(example), run_name="__main__")
    assert "True" in capsys.readouterr().out
