#!/usr/bin/env python3
"""What `infer` writes, `eval` reads: every net of the zoo in every format, with equal scores."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

CONVOLUME, SOURCE = os.path.abspath(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1)).resolve()

# Net of the zoo, patch, extent of the volume, the classes of its output (0: a binary net), options of eval, and
# settings that make the net small. The loss "square" bounds no output, so its numbers are not probabilities.
NETS = [
    ("demo", [8, 32, 32], (9, 40, 44), 0, [], []),
    ("hippocampus", [8, 16, 16], (9, 20, 24), 3, [], []),
    ("n4", [1, 140, 140], (2, 140, 144), 2, [], []),
    ("unet_anisotropic", [8, 32, 32], (9, 40, 44), 0, [], []),
    ("unet_isotropic", [16, 16, 16], (18, 20, 24), 0, [], []),
    ("width_depth", [24, 24, 24], (25, 26, 28), 0, ["--threshold", 0.5], ["generator.width=4", "generator.depth=3"]),
]
FORMATS = ["p.tif", "p.h5:/p", "p.nii", "p.nii.gz", "p.zarr"]
LABEL_FORMATS = [*FORMATS, "p/*.png", "t/*.tif"]
DATA = """
name = "random"
[[train]]
image = "v.zarr"
label = "label.zarr"
[[validation]]
image = "v.zarr"
label = "label.zarr"
"""


def zarr(path, extent, values):
    """Writes a raw Zarr of uint8 with one chunk."""
    path.mkdir()
    (path / ".zarray").write_text(json.dumps({
        "zarr_format": 2, "shape": extent, "chunks": extent, "dtype": "|u1", "compressor": None, "fill_value": 0,
        "order": "C", "filters": None}))
    (path / "0.0.0").write_bytes(values)


class Zoo(unittest.TestCase):
    def run_cli(self, folder, *arguments, expect=0):
        done = subprocess.run([CONVOLUME, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, expect, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def check(self, net, patch, extent, classes, evaluate, settings):
        with tempfile.TemporaryDirectory(prefix="convolume-zoo-") as name:
            folder = pathlib.Path(name)
            voxels = extent[0] * extent[1] * extent[2]
            numbers = random.Random(1)
            zarr(folder / "v.zarr", extent, numbers.randbytes(voxels))
            zarr(folder / "label.zarr", extent, bytes(numbers.randrange(max(2, classes)) for _ in range(voxels)))
            (folder / "data.toml").write_text(DATA)
            self.run_cli(folder, "train", SOURCE / f"nets/zoo/{net}.toml", "--data", "data.toml", "--out", "run",
                         "--iterations", 1, "--quiet", f"--set=input.patch={patch}",
                         *[f"--set={setting}" for setting in settings])
            self.compare(folder, classes, FORMATS, [], evaluate)
            (folder / "lp").mkdir()
            (folder / "lt").mkdir()
            self.compare(folder, classes, LABEL_FORMATS, ["--labels"], ["--classes", max(2, classes)])

    def compare(self, folder, classes, formats, infer, evaluate):
        """Infers to each format and compares the scores. TIFF has no channels and refuses probabilities of classes."""
        scores = {}
        for file in formats:
            out = f"{'l' if infer else 'q'}{file}"
            arguments = ("infer", "run/checkpoints/last.safetensors", "v.zarr", "--out", out, "--quiet", *infer)
            if classes > 1 and not infer and file == "p.tif":
                text = self.run_cli(folder, *arguments, expect=1)
                self.assertRegex(text, r"one channel.*write HDF5, NIfTI or Zarr")
                continue
            self.run_cli(folder, *arguments)
            scores[file] = self.run_cli(folder, "eval", out, "label.zarr", "--json", *evaluate)
        self.assertEqual(len(set(scores.values())), 1, scores)


for case in NETS:
    setattr(Zoo, f"test_{case[0]}", lambda self, case=case: self.check(*case))


if __name__ == "__main__":
    unittest.main()
