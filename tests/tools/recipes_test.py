#!/usr/bin/env python3
"""The recipes of the zoo that are for real volumes: the loss falls, and the scores beat chance."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CONVOLUME, SOURCE = os.path.abspath(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1))
DATA = os.environ.get("CONVOLUME_DATA_DIR", "")


class Recipes(unittest.TestCase):
    def require(self, folder):
        if not os.path.isdir(os.path.join(DATA, folder)):
            # tools/test.sh counts lines that begin with this word.
            print(f"\nSKIPPED: training on {folder}: CONVOLUME_DATA_DIR does not name a folder that holds {folder}")
            self.skipTest("no data")

    def check(self, net, data, folder, score, least, *settings):
        self.require(folder)
        with tempfile.TemporaryDirectory() as name:
            run = pathlib.Path(name) / "run"
            subprocess.run([CONVOLUME, "train", SOURCE / f"nets/zoo/{net}.toml", "--data",
                            SOURCE / f"nets/zoo/data/{data}.toml", "--out", run, "--iterations", "25", "--quiet",
                            *[f"--set={setting}" for setting in settings]], check=True, stdout=subprocess.DEVNULL)
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual([line["iteration"] for line in lines], list(range(1, 26)))
            losses = [line["loss"] for line in lines]
            first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
            scores = lines[-1]
            print(f"{net}: loss {first:.3f} -> {last:.3f}, {score} {scores[score]:.3f}")
            self.assertLess(last, 0.9 * first, "the loss did not fall")
            self.assertGreater(scores[score], least, "the scores are not clearly better than chance")
            self.assertTrue((run / "report/report.html").is_file())

    def test_isbi2012(self):
        self.check("unet_anisotropic", "isbi2012", "isbi2012", "roc_auc", 0.75, "generator.depth=2",
                   "optimizer.warmup=5")

    def test_hippocampus(self):
        self.check("hippocampus", "hippocampus", "hippocampus", "dice", 0.1, "generator.width=16",
                   "optimizer.warmup=5")

    def test_section_axis(self):
        self.require("isbi2012")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            subprocess.run([sys.executable, SOURCE / "nets/zoo/section_axis.py", CONVOLUME,
                            os.path.join(DATA, "isbi2012/train-volume.tif"), folder / "section_axis"], check=True)
            subprocess.run([CONVOLUME, "train", SOURCE / "nets/zoo/section_axis.toml", "--data",
                            SOURCE / "nets/zoo/data/section_axis.toml", "--out", folder / "run", "--quiet"], check=True,
                           env={**os.environ, "CONVOLUME_DATA_DIR": str(folder)}, stdout=subprocess.DEVNULL)
            last = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[-1])
            print(f"section_axis: balanced error {last['balanced_error']:.3f}")
            self.assertLessEqual(last["balanced_error"], 0.2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
