#!/usr/bin/env python3
"""A short training on the ISBI 2012 stack: the loss falls and the ROC AUC is clearly better than chance."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

convolume, source = sys.argv[1], pathlib.Path(sys.argv[2])
if not os.path.isdir(os.path.join(os.environ.get("CONVOLUME_DATA_DIR", ""), "isbi2012")):
    print("SKIPPED: training on ISBI 2012: CONVOLUME_DATA_DIR does not name a folder that holds isbi2012")
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    run = pathlib.Path(folder) / "run"
    subprocess.run([convolume, "train", source / "nets/zoo/unet_anisotropic.toml", "--data",
                    source / "nets/zoo/data/isbi2012.toml", "--out", run, "--iterations", "25", "--quiet",
                    "--set", "generator.depth=2", "--set", "optimizer.warmup=5"], check=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
    scores = lines[-1]
    print(f"loss {first:.3f} -> {last:.3f}, ROC AUC {scores['roc_auc']:.3f}, pixel error {scores['pixel_error']:.3f}")
    assert [line["iteration"] for line in lines] == list(range(1, 26))
    assert last < 0.9 * first, "the loss did not fall"
    assert scores["roc_auc"] > 0.75, "the ROC AUC is not clearly better than chance"
    assert (run / "report/slice.png").read_bytes().startswith(b"\x89PNG")
