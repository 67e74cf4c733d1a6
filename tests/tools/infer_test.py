#!/usr/bin/env python3
"""The infer command: memory, interruptions, disks that are full, and what it refuses."""

import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
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
out_channels = %d
kernel = [1, 3, 3]
padding = "same"
[training]
iterations = 2
validate_every = 2
checkpoint_every = 2
%s
"""

DATA = """
name = "synthetic"
[synthetic]
extent = [6, 32, 32]
cell_diameter = 10
[[train]]
slices = [0, 4]
"""


def volume(path, planes, rows, columns):
    """Writes random bytes as a raw Zarr with one chunk per plane."""
    path.mkdir()
    (path / ".zarray").write_text(json.dumps({
        "zarr_format": 2, "shape": [planes, rows, columns], "chunks": [1, rows, columns], "dtype": "|u1",
        "compressor": None, "fill_value": 0, "order": "C", "filters": None}))
    numbers = random.Random(1)
    for z in range(planes):
        (path / f"{z}.0.0").write_bytes(numbers.randbytes(rows * columns))


def contents(path):
    """Digests of a file, or of all files of a folder by name."""
    files = [path] if path.is_file() else sorted(path.iterdir())
    return {file.name if path.is_dir() else "": hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


class Infer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="convolume-infer-"))
        (cls.shared / "data.toml").write_text(DATA)
        (cls.shared / "binary.toml").write_text(NET % (1, ""))
        (cls.shared / "classes.toml").write_text(NET % (2, '[loss]\nkind = "softmax_cross_entropy"'))
        for out, net, seed in (("binary", "binary", 1), ("other", "binary", 2), ("classes", "classes", 1)):
            subprocess.run([CONVOLUME, "train", f"{net}.toml", "--data", "data.toml", "--out", out, "--quiet", "--seed",
                            str(seed)], cwd=cls.shared, check=True, capture_output=True, timeout=120)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="convolume-infer-"))
        self.net = self.shared / "binary/checkpoints/last.safetensors"

    def tearDown(self):
        shutil.rmtree(self.folder)

    def run_cli(self, *arguments, expect=0, preexec=None):
        result = subprocess.run([CONVOLUME, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                                timeout=120, preexec_fn=preexec)
        self.assertEqual(result.returncode, expect, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result.stdout + result.stderr

    def infer(self, out, *more, expect=0, net=None, **kwargs):
        return self.run_cli("infer", net or self.net, "v.zarr", "--out", out, *more, expect=expect, **kwargs)

    def fails(self, out, *more, says, **kwargs):
        text = self.infer(out, *more, expect=1, **kwargs)
        for part in says:
            self.assertIn(part, text)
        return text

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    # What works ------------------------------------------------------------------------------------------------------

    def test_memory_and_threads_do_not_change_a_byte(self):
        volume(self.folder / "v.zarr", 70, 260, 300)
        plan = self.infer("a.zarr", "--dry-run")
        self.assertIn("windows       1;", plan)
        self.assertEqual(self.names(), ["v.zarr"])
        refused = self.fails("a.zarr", "--memory", "1M", says=["--memory 1M", "needs at least"])
        least = int(refused.split("needs at least ")[1].split("M")[0])
        self.assertNotIn("windows       1;", self.infer("a.zarr", "--dry-run", "--memory", f"{least}M"))
        self.infer("a.zarr")
        self.infer("b.zarr", "--memory", f"{least}M", "--threads", 1)
        self.infer("c.zarr", "--memory", f"{least + 8}M", "--threads", 3)
        self.assertEqual(contents(self.folder / "a.zarr"), contents(self.folder / "b.zarr"))
        self.assertEqual(contents(self.folder / "a.zarr"), contents(self.folder / "c.zarr"))
        self.infer("a.tif", "--uint8")
        self.infer("b.tif", "--uint8", "--memory", f"{least}M")
        self.assertEqual(contents(self.folder / "a.tif"), contents(self.folder / "b.tif"))
        self.assertEqual(self.names(), ["a.tif", "a.zarr", "b.tif", "b.zarr", "c.zarr", "v.zarr"])

    def estimates(self, *more, **kwargs):
        """Patch, overlap, passes of each row of costs that a dry run prints."""
        rows = {}
        for line in self.infer("dry.zarr", "--dry-run", *more, **kwargs).splitlines():
            found = re.match(r"(this plan|--patch auto) +(\S+ x \S+ x \S+) +(\S+ x \S+ x \S+) +(\d+) +(\d+) ", line)
            if found:
                rows[found[1]] = (found[2], found[3], int(found[5]))
        return rows

    def test_the_cheapest_patch_is_taken_only_if_asked_for_and_is_noted(self):
        volume(self.folder / "v.zarr", 20, 100, 100)
        rows = self.estimates()
        self.assertEqual(rows["this plan"][0], "2 x 16 x 16")
        self.assertLess(rows["--patch auto"][2], rows["this plan"][2])  # fewer passes of a larger patch
        patch, overlap, _ = rows["--patch auto"]
        self.assertEqual(self.estimates("--patch", "auto"), {"this plan": rows["--patch auto"]})
        self.assertRegex(self.infer("dry.zarr", "--dry-run"), r"layer by layer .* 0% +\d+\.\d+ s +\d+\.\d+ s\n")
        self.infer("auto.zarr", "--patch", "auto")
        notes = json.loads((self.folder / "auto.zarr/.zattrs").read_text())
        self.assertEqual((notes["convolume_patch"], notes["convolume_overlap"]), (patch, overlap))
        number = lambda text: text.replace(" x ", ",")
        self.infer("same.zarr", "--patch", number(patch), "--overlap", number(overlap))
        self.assertNotIn("convolume_patch", (self.folder / "same.zarr/.zattrs").read_text())
        for name in ("auto.zarr", "same.zarr"):
            (self.folder / name / ".zattrs").unlink()
        self.assertEqual(contents(self.folder / "auto.zarr"), contents(self.folder / "same.zarr"))
        self.infer("auto.h5", "--patch", "auto")
        for text in ("convolume_patch", patch):
            self.assertIn(text.encode(), (self.folder / "auto.h5").read_bytes())
        self.fails("p.tif", "--patch", "auto", "--overlap", 3, says=["--patch auto", "--overlap"])
        self.fails("p.tif", "--patch", "many", says=["--patch", "'many'"])
        self.fails("p.tif", "--patch", "auto", "--memory", "1M", says=["--memory 1M", "needs at least"])

    def test_a_resumed_inference_keeps_the_patch_that_was_chosen(self):
        volume(self.folder / "v.zarr", 400, 100, 100)
        self.infer("whole.zarr", "--patch", "auto")
        process = self.start("--out", "out.zarr", "--threads", "1", "--patch", "auto")
        self.wait_for_chunks(process, self.folder / "out.zarr.part")
        process.kill()
        process.communicate()
        self.fails("out.zarr", "--resume", says=["out.zarr.part", "--patch"])
        self.infer("out.zarr", "--resume", "--patch", "auto", "--memory", "300M")
        self.assertEqual(contents(self.folder / "out.zarr"), contents(self.folder / "whole.zarr"))

    def test_a_net_that_normalises_over_a_patch_keeps_it(self):
        normed = NET.replace('padding = "same"\nactivation = "relu"',
                             'padding = "same"\n[[node]]\nname = "norm"\ntype = "group_norm"\ngroups = 2', 1)
        (self.folder / "normed.toml").write_text(normed % (1, ""))
        self.run_cli("train", "normed.toml", "--data", self.shared / "data.toml", "--out", "run", "--quiet")
        volume(self.folder / "v.zarr", 20, 100, 100)
        net = self.folder / "run/checkpoints/last.safetensors"
        rows = self.estimates(net=net)
        self.assertEqual(rows["this plan"], rows["--patch auto"])
        self.assertIn("normalises over the voxels of a patch", self.infer("d.zarr", "--dry-run", net=net))

    def test_labels_are_the_most_probable_classes(self):
        volume(self.folder / "v.zarr", 4, 40, 40)
        for net, channels in (("binary", 1), ("classes", 2)):
            checkpoint = self.shared / net / "checkpoints/last.safetensors"
            self.infer("p.nii", net=checkpoint)
            self.infer("l.nii", "--labels", net=checkpoint)
            p = struct.unpack(f"<{channels * 6400}f", (self.folder / "p.nii").read_bytes()[-channels * 25600:])
            labels = (self.folder / "l.nii").read_bytes()[-6400:]
            expected = [p[v] >= 0.5 if channels == 1 else p[6400 + v] > p[v] for v in range(6400)]
            self.assertEqual(list(labels), [int(one) for one in expected])
            score = json.loads(self.run_cli("eval", "l.nii", "l.nii", "--classes", 2, "--json"))
            self.assertEqual(score["pixel_error"], 0)
            wider = bytearray((self.folder / "l.nii").read_bytes())
            struct.pack_into("<f", wider, 80, 2.0)  # the distance of voxels along x
            (self.folder / "wider.nii").write_bytes(wider)
            text = self.run_cli("eval", "l.nii", "wider.nii", "--classes", 2, expect=1)
            self.assertIn("voxels away from wider.nii", text)

    def test_a_box_is_what_the_whole_has_there_if_it_begins_on_the_grid_of_patches(self):
        volume(self.folder / "v.zarr", 4, 60, 60)
        options = ("--overlap", "0,6,6", "--patch", "2,16,16")
        self.infer("whole.nii", *options)
        self.infer("box.nii", *options, "--box", "2:4,10:42,20:50")
        whole = struct.unpack("<14400f", (self.folder / "whole.nii").read_bytes()[-57600:])
        box = struct.unpack("<1920f", (self.folder / "box.nii").read_bytes()[-7680:])
        inner = [(z, y, x) for z in range(2) for y in range(3, 29) for x in range(3, 27)]
        difference = max(abs(box[(z * 32 + y) * 30 + x] - whole[((z + 2) * 60 + y + 10) * 60 + x + 20])
                         for z, y, x in inner)
        self.assertLess(difference, 1e-5)
        self.fails("q.nii", "--box", "0:4,0:61,0:60", says=["--box 0:61", "60 voxels"])

    def test_blends_flips_and_batches_are_accepted_and_a_trace_is_written(self):
        volume(self.folder / "v.zarr", 4, 60, 60)
        overlap = ("--overlap", "0,3,3")  # less than the field of view, so that neighbouring patches differ
        self.infer("plain.tif", *overlap)
        plain = contents(self.folder / "plain.tif")
        for options in (("--blend", "gaussian"), ("--blend", "uniform"), ("--flip", "y,x")):
            self.infer("other.tif", *overlap, *options)
            self.assertNotEqual(contents(self.folder / "other.tif"), plain, options)
        self.infer("batch.tif", "--batch", 4, "--trace", "t.json")
        names = {event["name"] for event in json.loads((self.folder / "t.json").read_text())["traceEvents"]}
        self.assertTrue({"load_patch", "add_patch"} <= names, names)
        self.infer("t.zarr:/s0")
        self.infer("t.zarr:/s1")
        self.assertIn("channels        1", self.run_cli("info", "t.zarr:/s0"))

    # What breaks -----------------------------------------------------------------------------------------------------

    def start(self, *arguments):
        return subprocess.Popen([CONVOLUME, "infer", str(self.net), "v.zarr", *arguments], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_for_chunks(self, process, part):
        for _ in range(20000):
            if part.exists() and any(path.name[0].isdigit() for path in part.iterdir()):
                return
            self.assertIsNone(process.poll(), "the inference ended too early")
            time.sleep(0.002)
        self.fail("no chunk appeared")

    def test_a_killed_inference_continues_with_the_same_bits(self):
        volume(self.folder / "v.zarr", 140, 100, 100)
        (self.folder / "out.tif").write_bytes(b"old")
        process = self.start("--out", "out.tif", "--threads", "1", "--uint8")
        part = self.folder / "out.tif.part"
        self.wait_for_chunks(process, part)
        process.kill()
        process.communicate()
        self.assertEqual((self.folder / "out.tif").read_bytes(), b"old")
        finished = len([path for path in part.iterdir() if path.name[0].isdigit()])
        self.assertLess(finished, 12)
        self.fails("out.tif", "--uint8", says=["out.tif.part", "--resume"])
        for option in (("--overlap", 3), ("--blend", "gaussian"), ("--batch", 2), ("--box", "0:130,0:100,0:100"),
                       ("--flip", "y"), ("--patch", "2,18,18")):
            self.fails("out.tif", "--uint8", "--resume", *option, says=["out.tif.part", option[0]])
        self.fails("out.tif", "--resume", says=["voxels 'uint8'", "voxels 'float32'"])
        targets = self.run_cli("info").split("available: ")[1].split(";")[0].split(", ")
        if len(targets) > 1:  # Builds for one target have one.
            self.fails("out.tif", "--uint8", "--resume", says=["out.tif.part", f"set CONVOLUME_SIMD={targets[0]}"],
                       preexec=lambda: os.environ.update(CONVOLUME_SIMD=targets[1]))
        self.fails("out.tif", "--uint8", "--resume", net=self.shared / "other/checkpoints/last.safetensors",
                   says=["out.tif.part", "net '"])
        os.rename(self.folder / "v.zarr", self.folder / "w.zarr")
        volume(self.folder / "v.zarr", 140, 100, 101)
        self.fails("out.tif", "--uint8", "--resume", says=["out.tif.part"])
        shutil.rmtree(self.folder / "v.zarr")
        os.rename(self.folder / "w.zarr", self.folder / "v.zarr")
        self.infer("out.tif", "--uint8", "--resume", "--threads", 2, "--memory", "200M")
        self.infer("whole.tif", "--uint8")
        self.assertEqual(contents(self.folder / "out.tif"), contents(self.folder / "whole.tif"))
        self.assertFalse(part.exists())
        self.fails("out.tif", "--uint8", "--resume", says=["nothing to resume"])

    def test_ctrl_c_keeps_finished_parts(self):
        volume(self.folder / "v.zarr", 140, 100, 100)
        process = self.start("--out", "out.zarr", "--threads", "1")
        self.wait_for_chunks(process, self.folder / "out.zarr.part")
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130, text)
        self.assertIn("--resume", text)
        self.infer("out.zarr", "--resume")
        self.infer("whole.zarr")
        self.assertEqual(contents(self.folder / "out.zarr"), contents(self.folder / "whole.zarr"))

    def test_a_file_that_cannot_be_written_leaves_parts_that_resume_takes(self):
        volume(self.folder / "v.zarr", 70, 100, 100)
        (self.folder / "out.tif").write_bytes(b"old")

        def small_files():  # chunks fit, the final file does not
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
        text = self.infer("out.tif", expect=1, preexec=small_files)
        self.assertIn("--resume", text)
        self.assertEqual((self.folder / "out.tif").read_bytes(), b"old")
        # A plane that the digest does not read has changed since then.
        chunk = self.folder / "v.zarr/5.0.0"
        voxels, state = chunk.read_bytes(), chunk.stat()
        chunk.write_bytes(bytes(len(voxels)))
        self.fails("out.tif", "--resume", says=["out.tif.part", "state of its files"])
        chunk.write_bytes(voxels)
        os.utime(chunk, ns=(state.st_atime_ns, state.st_mtime_ns))
        # What a killed process left of the final file is removed.
        (self.folder / "out.tif.tmp-123-1").write_bytes(b"half")
        self.infer("out.tif", "--resume")
        self.assertEqual(self.names(), ["out.tif", "v.zarr"])
        self.infer("whole.tif")
        self.assertEqual(contents(self.folder / "out.tif"), contents(self.folder / "whole.tif"))

        def tiny_files():  # not even a chunk fits
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, 16 << 10))
        self.infer("other.zarr", expect=1, preexec=tiny_files)
        self.assertEqual(self.names(), ["out.tif", "v.zarr", "whole.tif"])

    def test_a_disk_that_is_too_small_is_refused_before_work_starts(self):
        volume(self.folder / "v.zarr", 70, 100, 100)
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", disk], capture_output=True).returncode != 0:
            self.skipTest("no file system may be mounted here")
        try:
            self.fails("disk/p.nii", says=["disk", "KiB are written", "p.nii.part", "free some space"])
            self.assertEqual(list(disk.iterdir()), [])
            # It fits, but a file that appears later fills the disk. Afterwards the parts that are there are taken.
            process = self.start("--out", "disk/l.nii", "--labels", "--threads", "1")
            self.wait_for_chunks(process, disk / "l.nii.part")
            with open(disk / "big", "wb", buffering=0) as big:
                try:
                    while big.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            text = process.communicate(timeout=60)[0]
            self.assertEqual(process.returncode, 1, text)
            self.assertIn("--resume", text)
            (disk / "big").unlink()
            self.infer("disk/l.nii", "--labels", "--resume")
            self.infer("whole.nii", "--labels")
            self.assertEqual(contents(disk / "l.nii"), contents(self.folder / "whole.nii"))
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_what_makes_no_sense_is_refused_before_work_starts(self):
        volume(self.folder / "v.zarr", 4, 40, 40)
        self.fails("p.tif", "--memory", "2T", says=["--memory '2T'", "512M"])
        self.fails("p.xyz", says=["p.xyz", ".tif"])
        self.fails("v.zarr", says=["v.zarr", "same file"])
        self.fails("p.zarr", "--resume", says=["p.zarr.part", "nothing to resume"])
        text = self.infer("p.tif", "--labels", "--uint8", expect=108)
        self.assertIn("--labels", text)
        (self.folder / "v.zarr/2.0.0").write_bytes(b"short")
        self.fails("p.tif", says=["2.0.0"])
        self.assertEqual(self.names(), ["v.zarr"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
