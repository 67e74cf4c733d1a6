#!/usr/bin/env python3
"""Every number of a problem, of the TOML files and of the options at values that are too large, or no value at all.

Usage: numbers_test.py CONVOLUME [--all] [--any-memory]. Each try is refused by the name of the key, or the work that it starts takes at
most 64 MiB more than with an ordinary value, unless --any-memory is given. Without --all, every tenth try is made.
"""

import os
import re
import subprocess
import sys
import threading
import unittest

ALL, ANY_MEMORY = ("--all" in sys.argv), ("--any-memory" in sys.argv)
sys.argv = [argument for argument in sys.argv if argument not in ("--all", "--any-memory")]

from command import CONVOLUME, CliTest  # noqa: E402

VALUES = [0, -1, 2**31 - 1, 2**31, 2**53 + 1, 2**62]
MOST_EXTRA = 64 << 10  # KiB
MOST_SECONDS = 20

# A number between two @ is ordinary, and is replaced. The word before it is its key.
NODES = """
name = "numbers"
[input]
channels = @1@
patch = [@4@, @16@, @16@]
[[node]]
name = "a"
type = "conv"
out_channels = @4@
kernel = [@1@, @3@, @3@]
stride = [@1@, @1@, @1@]
dilation = [@1@, @1@, @1@]
groups = @1@
padding = [@0@, @1@, @1@]
activation = "leaky_relu"
slope = @0.01@
[[node]]
name = "pool"
type = "max_pool"
window = [@1@, @2@, @2@]
stride = [@1@, @2@, @2@]
dilation = @1@
[[node]]
name = "norm"
type = "group_norm"
groups = @2@
epsilon = @0.001@
[[node]]
name = "drop"
type = "dropout"
rate = @0.1@
[[node]]
name = "up"
type = "upsample"
factor = [@1@, @2@, @2@]
[[node]]
name = "cut"
type = "crop"
before = @0@
after = @0@
[[node]]
name = "down"
type = "conv"
out_channels = 4
kernel = [1, 2, 2]
stride = [1, 2, 2]
[[node]]
name = "back"
type = "transposed_conv"
out_channels = @4@
kernel = [@1@, @2@, @2@]
stride = [@1@, @2@, @2@]
dilation = @1@
groups = @1@
padding = @0@
output_padding = @0@
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = 1
[loss]
kind = "binary_cross_entropy"
positive_weight = @1.0@
[optimizer]
learning_rate = @0.001@
weight_decay = @0.0@
clip_norm = @0.0@
warmup = @0@
decay_every = @0@
decay_factor = @0.5@
beta1 = @0.9@
beta2 = @0.999@
epsilon = @1e-8@
[training]
batch = @1@
iterations = @1@
validate_every = @1@
checkpoint_every = @1@
early_stop = @0@
"""
GENERATED = """
name = "numbers"
[input]
patch = [8, 16, 16]
[generator]
type = "unet"
width = @2@
depth = @2@
convs = @1@
out_channels = @1@
kernel = [{ size = [@1@, @3@, @3@] }]
pool = [{ size = [@1@, @2@, @2@] }]
norm = "group"
groups = @2@
dropout = @0.1@
[loss]
kind = "dice"
smooth = @1.0@
[optimizer]
kind = "sgd"
momentum = @0.9@
[training]
iterations = 1
"""
WIDTH_DEPTH = """
name = "numbers"
[input]
patch = [8, 16, 16]
[generator]
type = "width_depth"
width = @2@
depth = @2@
kernel = @3@
out_channels = @1@
[training]
iterations = 1
"""
SYNTHETIC = """
name = "numbers"
[synthetic]
extent = [@20@, @32@, @32@]
seed = @1@
cell_diameter = @10@
anisotropy = @4@
membrane_width = @2@
noise = @0.1@
blur = @0.7@
[intensity]
normalise = "percentiles"
percentiles = [@1@, @99@]
nan = @0@
[sampling]
foreground = @0.5@
volumes = "weights"
[spacing]
target = [@4@, @1@, @1@]
[augment]
rotate = { probability = @0.5@, degrees = [@10@, @10@, @10@] }
scale = { probability = 0.5, range = [@0.9@, @1.1@] }
elastic = { probability = 0.5, grid = @8@, sigma = @2@ }
misalign = { probability = 0.5, pixels = @2@ }
noise = { probability = 0.5, sigma = [@0.1@, @0.2@] }
blur = { probability = 0.5, sigma = [@0.1@, @0.2@] }
brightness = { probability = 0.5, range = [@-0.1@, @0.2@] }
low_resolution = { probability = 0.5, factor = [@1@, @2@] }
gamma = { probability = 0.5, range = [@0.9@, @1.1@] }
missing_section = { probability = 0.5, sections = @1@ }
cut_out = { probability = 0.5, extent = @2@ }
[[train]]
slices = [@0@, @10@]
weight = @1@
spacing = [@4@, @1@, @1@]
[[validation]]
slices = [@10@, @20@]
"""
FILES = """
name = "numbers"
[label]
positive = [@255@]
ignore = [@3@]
[[train]]
image = "image.tif"
label = "label.tif"
box = [[@0@, @8@], [@0@, @32@], [@0@, @32@]]
"""
PROBLEM = "mb@1@g@1@ic@4@oc@4@id@20@ih@20@iw@20@od@18@oh@18@ow@18@kd@3@kh@3@kw@3@sd@1@sh@1@sw@1@pd@0@ph@0@pw@0@dd@0@dh@0@dw@0@"
CONVOLVE = ("convolve --problem ic4id20oc4kd3 --x x.raw --w w.raw --y y.raw --dry-run --memory @64000000@ --threads @1@ "
            "--tile @1@ @4@ @4@ @18@ @18@ @18@ --cost @1e-5@ @1e-6@ @1e-9@")
# Iterations, minutes and seeds only bound a duration or are names.
DURATION = "train ordinary.toml --data data.toml --out run --iterations @1@ --max-minutes 0.002"
TRAIN = ("train ordinary.toml --data data.toml --out run --iterations 1 --seed @1@ --threads @1@ --max-minutes @1@ "
         "--memory @2000000000@ --memory-budget @64@ --scratch-budget @64@")
INFER = ("infer first/checkpoints/last.safetensors image.tif --out p.nii --dry-run --patch @8@,@16@,@16@ --overlap @1@,@4@,@4@ "
         "--batch @1@ --threads @1@ --memory @1000000000@ --box @0@:@8@,@0@:@32@,@0@:@32@")
EVAL = "eval label.tif label.tif --positive @255@ --ignore @3@ --slices @0@ @8@ --threshold @0.5@"
CONVERT = "convert image.tif c.h5 --box @0@:@8@,@0@:@32@,@0@:@32@ --channel @0@ --chunk @8@,@8@,@8@ --nan @0@"
PREVIEW = "preview data.toml --net ordinary.toml --out p.png --count @2@ --seed @1@"
PLACE = re.compile("@([^@]*)@")


def key_before(text, at):
    """The key of a TOML file, the letters of a problem or the option that a number belongs to."""
    before = text[:at]
    words = re.findall(r"--([a-z-]+)|([a-z_0-9]+) *=|(?<=[^a-z])([a-z]{1,2})@|^([a-z]{1,2})@", before + "@")
    return next(word for word in words[-1] if word)


class Numbers(CliTest):
    def setUp(self):
        super().setUp()
        for name, text in (("ordinary.toml", WIDTH_DEPTH), ("data.toml", "name = 'd'\n[synthetic]\nextent = [8, 32, 32]\n[[train]]\n")):
            (self.folder / name).write_text(PLACE.sub(r"\1", text))
        for name, voxels in (("x.raw", 4 * 20**3), ("w.raw", 16 * 27)):
            (self.folder / name).write_bytes(bytes(4 * voxels))
        self.run_cli("train", "ordinary.toml", "--data", "data.toml", "--out", "first", "--quiet")
        self.run_cli("export", "data.toml", "--split", "train", "--image", "image.tif", "--label", "label.tif")
        self.run_cli("convert", "label.tif", "l.tif", "--type", "uint8", "--quiet")
        self.tries = 0

    def run_with_limits(self, command):
        """The exit status, the output and the largest resident memory in KiB."""
        with open(self.folder / "output", "wb") as out:
            process = subprocess.Popen([CONVOLUME, *command], cwd=self.folder, stdout=out, stderr=subprocess.STDOUT)
            timer = threading.Timer(MOST_SECONDS, process.kill)
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            timer.cancel()
        return process.returncode, (self.folder / "output").read_text(), usage.ru_maxrss

    def run_of(self, text, write):
        for path in ("run", "p.nii.part"):
            subprocess.run(["rm", "-rf", path], cwd=self.folder, check=True)
        return self.run_with_limits(write(text))

    def try_all(self, text, write):
        """Replaces each number of a text by each value. `write` makes files of the text, and returns the command."""
        usual, output, base = self.run_of(PLACE.sub(r"\1", text), write)
        self.assertEqual(usual, 0, output)
        places = list(PLACE.finditer(text))
        for i, place in enumerate(places):
            for value in VALUES:
                self.tries += 1
                if not ALL and self.tries % 10 != 0:
                    continue
                changed = "".join(PLACE.sub(r"\1", part) for part in
                                  (text[:place.start()], str(value), text[place.end():]))
                key = key_before(text, place.start())
                with self.subTest(key=key, place=i, value=value):
                    status, output, peak = self.run_of(changed, write)
                    self.assertIn(status, (0, 1, *range(100, 120)), f"{status} {output[-500:]}")
                    if status == 0 and ANY_MEMORY:
                        continue
                    if status == 0:
                        self.assertLessEqual(peak, base + MOST_EXTRA, output[-300:])
                    else:
                        # The message names the key, the value, the line or the tensor that follows from it.
                        names = (key + " ", key + ":", key + "=", key + " =", str(value), "convolution: ", "the price of ", "y.raw: ", "changed.toml:", "the system", f"{value:.15e}".rstrip("0"))
                        self.assertTrue(any(name in output for name in names), output)

    def test_nets(self):
        def write(text):
            (self.folder / "changed.toml").write_text(text)
            return "train changed.toml --data data.toml --out run --iterations 1 --threads 1 --quiet".split()
        for text in (NODES, GENERATED, WIDTH_DEPTH):
            self.try_all(text, write)

    def test_data_sets(self):
        def write(text):
            (self.folder / "changed.toml").write_text(text)
            return "train ordinary.toml --data changed.toml --out run --iterations 1 --threads 1 --quiet".split()
        for text in (SYNTHETIC, FILES):
            self.try_all(text, write)

    def test_problems(self):
        self.try_all(PROBLEM, lambda text: ["convolve", "--problem", text, "--x", "x.raw", "--w", "w.raw", "--y", "y.raw",
                                            "--dry-run"])
        self.try_all(PROBLEM.replace("od@18@oh@18@ow@18@", ""),
                     lambda text: ["convolve", "--problem", text, "--x", "x.raw", "--w", "w.raw", "--y", "y.raw", "--dry-run"])
        self.try_all(PROBLEM, lambda text: ["plan", "explain", "--problem", text])

    def test_options(self):
        for text in (CONVOLVE, DURATION, TRAIN, INFER, EVAL, CONVERT, PREVIEW):
            self.try_all(text, str.split)


if __name__ == "__main__":
    unittest.main()
