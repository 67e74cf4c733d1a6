"""What tests of the convolume command share: a small net and its data, and how the command is run."""

import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

CONVOLUME = os.path.abspath(sys.argv.pop(1))

NET = """
name = "small"
[input]
patch = [2, 16, 16]
[[node]]
name = "conv1"
type = "conv"
out_channels = 4
kernel = [1, 3, 3]
padding = "same"
activation = "relu"
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = [1, 3, 3]
padding = "same"
[optimizer]
learning_rate = 0.01
[training]
iterations = 6
validate_every = 3
checkpoint_every = 2
"""

DATA = """
name = "synthetic"
[synthetic]
extent = [6, 32, 32]
cell_diameter = 10
[[train]]
slices = [0, 4]
[[validation]]
slices = [4, 6]
"""


def tiff(pages, width=8, height=8, samples=1, bits=8, photometric=1, value=7):
    """A minimal little-endian TIFF of uncompressed pages."""
    out = bytearray(b"II*\0" + struct.pack("<I", 8))
    for page in range(pages):
        begin = len(out)
        data = bytes([value]) * (width * height * samples * bits // 8)
        tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, bits), (259, 3, 1, 1), (262, 3, 1, photometric),
                (273, 4, 1, begin + 2 + 12 * 9 + 4), (277, 3, 1, samples), (278, 4, 1, height), (279, 4, 1, len(data))]
        after = begin + 2 + 12 * len(tags) + 4 + len(data)
        out += struct.pack("<H", len(tags))
        for tag, kind, count, content in tags:
            out += struct.pack("<HHII", tag, kind, count, content)
        out += struct.pack("<I", after if page + 1 < pages else 0) + data
    return bytes(out)


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="convolume-cli-"))
        (self.folder / "net.toml").write_text(NET)
        (self.folder / "data.toml").write_text(DATA)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def run_cli(self, *arguments, expect=0, env=None, preexec=None):
        result = subprocess.run([CONVOLUME, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                                timeout=120, env={**os.environ, **(env or {})}, preexec_fn=preexec)
        self.assertEqual(result.returncode, expect, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result.stdout + result.stderr

    def train(self, out="run", *more, expect=0, **kwargs):
        return self.run_cli("train", "net.toml", "--data", "data.toml", "--out", out, *more, expect=expect, **kwargs)

    def fails(self, *arguments, says, env=None):
        text = self.run_cli(*arguments, expect=1, env=env)
        for part in says if isinstance(says, (list, tuple)) else [says]:
            self.assertIn(part, text)
        return text

    def last(self, out="run"):
        return self.folder / out / "checkpoints" / "last.safetensors"

    def digest(self, out="run"):
        return hashlib.sha256(self.last(out).read_bytes()).hexdigest()

    def parts(self, out):
        """The header of the last checkpoint, and the bytes of its tensors."""
        data = self.last(out).read_bytes()
        size = int.from_bytes(data[:8], "little")
        return json.loads(data[8:8 + size]), data[8 + size:]

    def choices(self, out):
        lines = self.parts(out)[0]["__metadata__"]["numerics"].splitlines()
        return [line for line in lines if ".choice = " in line]

    def wait_for_lines(self, process, count):
        log = self.folder / "run/metrics.jsonl"
        for _ in range(2000):
            if log.exists() and log.read_text().count("\n") >= count:
                return
            self.assertIsNone(process.poll(), "training ended too early")
            time.sleep(0.005)
        self.fail("training did not start")

    def start(self, *more):
        return subprocess.Popen([CONVOLUME, "train", "net.toml", "--data", "data.toml", "--out", "run", "--iterations",
                                 "100000", *more], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
