#!/usr/bin/env python3
"""Classifiers on the command line: data sets with classes, tables of predictions, and what is refused."""

import csv
import resource
import struct
import unittest
import zlib

from command import CliTest

NET = """
name = "stripes"
[input]
patch = [1, 8, 8]
[[node]]
name = "conv"
type = "conv"
out_channels = 4
kernel = [1, 3, 3]
activation = "relu"
[[node]]
name = "pool"
type = "max_pool"
window = [1, 2, 2]
[[node]]
name = "full"
type = "conv"
out_channels = 2
kernel = "all"
[loss]
kind = "softmax_cross_entropy"
[optimizer]
learning_rate = 0.02
[training]
batch = 4
iterations = 40
validate_every = 20
checkpoint_every = 20
best = "error"
"""

DATA = """
name = "stripes"
[[train]]
image = "train/*/*.tif"
[[validation]]
image = "test/*/*.tif"
[label]
class_of = "folder"
"""


def stripes(across, phase, width=9, height=10):
    """A little-endian TIFF of one page with stripes along X, or across it."""
    pixels = bytes(200 + (x + 3 * y) % 7 if ((x if across else y) + phase) % 4 < 2 else 20 + (2 * x + y) % 5
                   for y in range(height) for x in range(width))
    tags = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
            (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, len(pixels))]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    pixels += bytes(len(pixels) % 2)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory


def png(width, height):
    """A PNG of grey pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((17 * x + 31 * y) % 256 for x in range(width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Classifier(CliTest):
    def setUp(self):
        super().setUp()
        (self.folder / "net.toml").write_text(NET)
        (self.folder / "data.toml").write_text(DATA)
        for split, count in ("train", 8), ("test", 2):
            for name in "rows", "columns":
                (self.folder / split / name).mkdir(parents=True)
                for i in range(count):
                    (self.folder / split / name / f"{i}.tif").write_bytes(stripes(name == "columns", i))

    def rows(self, name):
        with open(self.folder / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_a_classifier_is_trained_and_writes_a_table(self):
        text = self.train()
        self.assertRegex(text, r"balanced error +0\.0000")
        self.assertRegex(text, r"cases +predicted\ntrue +columns +rows\ncolumns +2 +0\nrows +0 +2\n")
        files = ["test/rows/0.tif", "test/columns/1.tif", "test/rows/1.tif"]
        self.assertIn("classes       out.csv", self.run_cli("infer", self.last(), *files, "--out", "out.csv"))
        rows = self.rows("out.csv")
        self.assertEqual([row["case"] for row in rows], files)
        self.assertEqual([row["class"] for row in rows], ["rows", "columns", "rows"])
        for row in rows:
            self.assertAlmostEqual(float(row["probability rows"]) + float(row["probability columns"]), 1, 5)
        self.assertIn("columns, rows", self.run_cli("info", self.last()))
        self.run_cli("preview", "data.toml", "--net", "net.toml", "--out", "preview.png")

    def test_there_can_be_more_cases_than_files_can_be_open(self):
        for i in range(8, 200):
            (self.folder / "train/rows" / f"{i}.tif").write_bytes(stripes(False, i))
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        self.train("run", "--iterations", 1, preexec=limit)

    def test_what_a_classifier_cannot_do_is_refused_by_name(self):
        self.train("run", "--iterations", 1)
        infer = "infer", self.last(), "test/rows/0.tif", "--out"
        self.fails(*infer, "out.tif", says=["out.tif", "is a classifier", ".csv"])
        self.fails(*infer, "out.csv", "--patch", "1,8,8", says=["--patch", "is a classifier"])
        self.fails(*infer, "out.csv", "--patch", "auto", says=["--patch", "is a classifier"])
        self.fails(*infer, "out.csv", "--dry-run", says=["--dry-run", "is a classifier"])
        self.fails(*infer, "out.csv", "--labels", says=["--labels", "is a classifier"])
        self.fails("info", "net.toml", "--patch", "1,9,9", says=["--patch", "is a classifier"])
        self.fails("info", "net.toml", "--memory-curve", "--patch", "1,9,9", says=["--patch", "is a classifier"])
        self.fails("export", "data.toml", "--image", "i.tif", "--label", "l.tif", says=["cases have classes"])

    def test_a_truncated_image_is_named_and_leaves_no_table(self):
        self.train("run", "--iterations", 1)
        for name, whole in ("cut.tif", stripes(True, 0)), ("cut.png", png(9, 10)):
            good, cut = self.folder / f"good{name[3:]}", self.folder / name
            good.write_bytes(whole)
            self.run_cli("infer", self.last(), good, "--out", "good.csv")
            for size in (len(whole) - 20, len(whole) // 2, 10):
                cut.write_bytes(whole[:size])
                self.fails("infer", self.last(), "test/rows/0.tif", cut, "--out", "out.csv", says=[name])
                self.assertFalse((self.folder / "out.csv").exists())
        case = self.folder / "train/rows/3.tif"
        case.write_bytes(case.read_bytes()[:-30])
        self.assertIn("train/rows/3.tif", self.train("cut", "--iterations", 1, expect=1))
        self.assertFalse((self.folder / "cut/checkpoints/last.safetensors").exists())

    def test_other_nets_write_no_table_and_read_one_volume(self):
        (self.folder / "net.toml").write_text(NET.replace('kernel = "all"', "kernel = 1").replace(
            "window = [1, 2, 2]", "window = 1").replace('best = "error"', ""))
        (self.folder / "data.toml").write_text(
            'name = "s"\n[synthetic]\nextent = [4, 32, 32]\ncell_diameter = 10\n[[train]]\n')
        self.train("run", "--iterations", 1)
        self.fails("infer", self.last(), "test/rows/0.tif", "--out", "out.csv", says=["out.csv", "only a classifier"])
        self.fails("infer", self.last(), "test/rows/0.tif", "test/rows/1.tif", "--out", "out.zarr",
                   says=["test/rows/1.tif", "one volume at a time"])


if __name__ == "__main__":
    unittest.main()
