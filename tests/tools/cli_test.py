#!/usr/bin/env python3
"""The convolume command as a user meets it: what it writes, what it says, and what it leaves alone when things break."""

import hashlib
import json
import math
import os
import pathlib
import pty
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
from xml.etree import ElementTree

from command import CONVOLUME, DATA, NET, CliTest, tiff


class Cli(CliTest):
    # What works ------------------------------------------------------------------------------------------------------

    def test_machine_prints_json_and_refuses_wrong_files_before_it_measures(self):
        known = json.loads(self.run_cli("machine", "--json", "--machine", "zen4"))
        self.assertTrue(known["row"].startswith("zen4/"))
        self.assertTrue(all(value["origin"] and value["unit"] for value in known["values"]))
        self.fails("machine", "--machine", "zen99", says=["zen99", "zen4"])
        self.fails("machine", says=["CONVOLUME_MACHINE", "nowhere"], env={"CONVOLUME_MACHINE": "nowhere"})
        self.fails("machine", "--save", "zen4.toml", says=["built-in row"])
        self.fails("machine", "--save", "no/such/folder/here.toml", says=["folder"])
        (self.folder / "damaged.toml").write_text("format = 1\nname = 3\n")
        self.fails("machine", "--machine", "damaged.toml", says=["damaged.toml", "name"])

    def test_a_measurement_that_is_killed_leaves_the_old_row(self):
        (self.folder / "here.toml").write_text("the old row")
        process = subprocess.Popen([CONVOLUME, "machine", "--save", "here.toml"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        self.assertIsNone(process.poll(), "ended before it was killed")
        process.kill()
        process.wait()
        self.assertEqual((self.folder / "here.toml").read_text(), "the old row")

    def test_infer_eval_and_export_work_on_tiff_and_hdf5(self):
        self.train()
        self.run_cli("export", "data.toml", "--split", "validation", "--image", "image.tif", "--label", "label.tif")
        for volume in ("p.tif", "p.h5"):
            self.run_cli("infer", self.last(), "image.tif", "--out", volume)
            table = self.run_cli("eval", volume, "label.tif")
            for part in ("pixel error", "ROC AUC", "Dice", "IoU"):
                self.assertIn(part, table)
        scores = json.loads(self.run_cli("eval", "p.h5:/volume", "label.tif", "--json"))
        logged = json.loads((self.folder / "run/metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(scores["voxels"], 2 * 32 * 32)
        self.assertTrue(0 <= scores["pixel_error"] <= 1 and math.isfinite(scores["roc_auc"]))
        self.assertAlmostEqual(scores["pixel_error"], logged["pixel_error"], delta=0.05)
        self.run_cli("infer", self.last(), "image.tif", "--out", "bytes.tif", "--uint8", "--patch", "2,8,8", "--overlap", 4)
        self.assertAlmostEqual(json.loads(self.run_cli("eval", "bytes.tif", "label.tif", "--json"))["roc_auc"],
                               scores["roc_auc"], delta=0.02)

    def test_the_progress_of_infer_ends_at_100_percent(self):
        self.train("run", "--iterations", 1)
        (self.folder / "v.tif").write_bytes(tiff(2, 40, 40))
        command = [CONVOLUME, "infer", str(self.last()), "v.tif", "--out", "p.tif", "--patch", "2,8,8"]
        lines = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120).stdout
        self.assertRegex(lines, r"inference 100 %\n.*probabilities")
        # On a terminal the bar is drawn again and again on one line.
        end, terminal = pty.openpty()
        process = subprocess.Popen(command, cwd=self.folder, stdout=terminal, stderr=subprocess.DEVNULL)
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(end, 4096):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(end)
        self.assertEqual(process.wait(timeout=120), 0)
        self.assertRegex(shown.decode().split("\x1b[K")[-1], r"inference 100 %\r?\n.*probabilities")

    def test_info_describes_machine_and_net(self):
        text = self.run_cli("info", "net.toml")
        for part in ("SIMD target", "fftw", "oneTBB", "HDF5", "conv1", "field of view   1 x 5 x 5", "parameters", "GFLOP",
                     "MiB"):
            self.assertIn(part, text)

    def test_info_counts_the_traffic_of_each_convolution(self):
        table = self.run_cli("info", "net.toml", "--blocking")
        self.assertRegex(table, r"(L2|L3|memory): needs [0-9.e+]+ of [0-9.e+]+ GB/s")
        layers = json.loads(self.run_cli("info", "net.toml", "--blocking", "--json"))["layers"]
        self.assertEqual({"fwd", "bwd_d", "bwd_w"}, {layer["dir"] for layer in layers})
        for layer in layers:
            self.assertIn(f"{layer['layer']} ", table)
            self.assertEqual(["L2", "L3", "memory"], [level["from"] for level in layer["levels"]])
            self.assertGreater(layer["direct_s"], 0)
            for level in layer["levels"]:
                self.assertAlmostEqual(level["needs_gb_per_s"], 1e-9 * level["bytes"] / layer["compute_s"], 6)
                if layer["bound"] == level["from"]:
                    self.assertGreater(level["needs_gb_per_s"], level["has_gb_per_s"])
        larger = json.loads(self.run_cli("info", "net.toml", "--blocking", "--json", "--patch", "4,40,40"))["layers"]
        self.assertGreater(larger[0]["levels"][2]["bytes"], layers[0]["levels"][2]["bytes"])
        self.fails("info", "--blocking", says="name a net")
        (self.folder / "v.tif").write_bytes(tiff(2, 40, 40))
        self.fails("info", "v.tif", "--blocking", says=["v.tif", "layers of a net"])
        self.fails("info", "net.toml", "--json", says=["--blocking", "--memory-curve"])

    def test_info_draws_time_against_memory(self):
        points = json.loads(self.run_cli("info", "net.toml", "--memory-curve", "--json", "--threads", 1))["points"]
        self.assertEqual(1, sum(point["default"] for point in points))
        for faster, smaller in zip(points, points[1:]):
            self.assertGreater(faster["peak_bytes"], smaller["peak_bytes"])
            self.assertLessEqual(faster["predicted_s"], smaller["predicted_s"])
        table = self.run_cli("info", "net.toml", "--memory-curve", "--threads", 1, "--svg", "curve.svg")
        self.assertEqual(len(points), len(re.findall(r"^ +[0-9.]+ +\d+M .* MiB ", table, re.MULTILINE)))
        self.assertIn(", the default", table)
        picture = (self.folder / "curve.svg").read_text()
        self.assertEqual(len(points), picture.count("<circle"))
        ElementTree.fromstring(picture)
        (self.folder / "a&b<c.toml").write_text(NET)
        self.run_cli("info", "a&b<c.toml", "--memory-curve", "--svg", "curve.svg")
        self.assertIn("a&b<c.toml", ElementTree.parse(self.folder / "curve.svg").getroot()[0].text)
        self.fails("info", "net.toml", "--memory-curve", "--svg", "no/such/folder/c.svg", says="no/such/folder")
        self.fails("info", "--memory-curve", says="name a net")
        self.run_cli("info", "net.toml", "--memory-curve", "--blocking", expect=108)
        self.run_cli("info", "net.toml", "--svg", "c.svg", expect=107)

    def test_info_adds_up_the_memory_of_training(self):
        def mebibytes(line, text):
            return float(re.search(rf"^ *{line} .*?([0-9.]+) MiB", text, re.MULTILINE)[1])

        peaks = []
        for threads in (1, 64):  # the net is small, and the text has tenths of a MiB
            text = self.run_cli("info", "net.toml", "--threads", threads)
            peaks.append(mebibytes("memory", text))
            parts = [mebibytes(line, text) for line in ("parameters", "lasting", "arena", "scratch")]
            self.assertAlmostEqual(sum(parts), peaks[-1], delta=0.21)
            self.assertRegex(text, r"on (1 thread|64 threads):")
        self.assertGreater(peaks[1], peaks[0])
        self.assertIn("--threads", self.run_cli("info", "net.toml", "--threads", -1, expect=105))

    def test_a_trace_is_written_and_simulated(self):
        self.assertIn("critical path", self.train("run", "--trace", "trace.json"))
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        tasks = [event for event in events if event["ph"] == "X"]
        self.assertEqual({event["args"]["run"] for event in tasks}, {0, 1, 2})
        self.assertTrue(any(event["args"]["class"] == "update" for event in tasks))
        text = self.run_cli("simulate", "--trace", "trace.json", "--cores", "1,4")
        self.assertRegex(text, r"busy .* idle .*\n(.*\n)*critical path .*\n *cores .*\n +1 +[0-9.]+ +1.00 +100 %\n +4 ")

    def test_traces_that_make_no_sense_name_event_and_field(self):
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", "--trace", "no/such/folder/t.json",
                   says="no/such/folder/t.json")
        self.fails("simulate", "--trace", "nothing.json", says="nothing.json: cannot be read")
        task = {"name": "a", "ph": "X", "pid": 0, "tid": 0, "ts": 0, "dur": 1,
                "args": {"run": 0, "task": 1, "after": [0]}}
        for change, says in (({"dur": -1}, "'dur' is -1"), ({"dur": "1"}, "'dur' is missing or no number"),
                             ({"pid": 1e9}, "'pid' is 1000000000"), ({"args": 3}, "'args' is missing"),
                             ({"args": {"run": 0, "task": 1, "after": [1]}}, "task 1 cannot come after task 1"),
                             ({"args": {"run": 0, "task": 1, "after": 7}}, "task 1 cannot come after task 7"),
                             ({"args": {"run": 0, "task": 1, "layer": 7}}, "event 0: ")):
            (self.folder / "bad.json").write_text(json.dumps({"traceEvents": [{**task, **change}]}))
            self.fails("simulate", "--trace", "bad.json", says=["bad.json: event 0", says])
        (self.folder / "bad.json").write_text("[]")
        self.fails("simulate", "--trace", "bad.json", says="is no Chrome trace")

    def test_help_is_everywhere(self):
        self.assertIn("train", self.run_cli("--help"))
        for command in ("train", "infer", "eval", "info", "export", "simulate"):
            self.assertIn("--", self.run_cli(command, "--help"))
        self.assertIn("convolume", self.run_cli("--version"))

    def test_wrong_command_lines_are_usage_errors(self):
        for arguments in ([], ["fly"], ["train"], ["train", "net.toml", "--data", "data.toml", "--out", "x", "--speed", "9"]):
            result = subprocess.run([CONVOLUME, *arguments], capture_output=True, cwd=self.folder)
            self.assertGreaterEqual(result.returncode, 100)

    # What is rejected ------------------------------------------------------------------------------------------------

    def test_nets_that_make_no_sense_name_file_line_and_node(self):
        def net(old, new, says):
            (self.folder / "net.toml").write_text(NET.replace(old, new, 1))
            self.fails("train", "net.toml", "--data", "data.toml", "--out", "bad", says=["net.toml", *says])
            self.assertFalse((self.folder / "bad").exists())
        net('kernel = [1, 3, 3]\npadding = "same"\nactivation', "kernel = [9, 3, 3]\nactivation", ["conv1", "spans 9"])
        net('type = "conv"', 'type = "convolution"', ["net.toml:7", "convolution", "use one of"])
        net("out_channels = 4", "out_chanels = 4", ["out_channels", "missing"])
        net("kernel = [1, 3, 3]", "kernel = [1, 3, 3]\nspeed = 9", ["speed", "unknown key"])
        net("[input]", "[input", ["net.toml:3"])
        self.fails("train", "missing.toml", "--data", "data.toml", "--out", "bad", says=["missing.toml", "opening"])

    def test_volumes_that_make_no_sense_name_file_and_reason(self):
        def data(image, label, *says):
            (self.folder / "image.tif").write_bytes(image)
            (self.folder / "label.tif").write_bytes(label)
            (self.folder / "data.toml").write_text('name = "files"\n[[train]]\nimage = "image.tif"\nlabel = "label.tif"\n[intensity]\nnormalise = "none"\n')
            self.fails("train", "net.toml", "--data", "data.toml", "--out", "bad", says=says)
        good = tiff(3, 20, 20)
        data(b"", good, "image.tif")
        data(good[:-100], good, "image.tif")
        data(b"not a tiff at all", good, "image.tif")
        data(tiff(3, 20, 20, samples=3, photometric=2), good, "image.tif", "gray")
        data(good, tiff(2, 20, 20), "label.tif has 2 x 20 x 20", "3 x 20 x 20")
        data(tiff(1, 20, 20), tiff(1, 20, 20), "image.tif", "patch")
        nan = struct.unpack("<I", struct.pack("<f", float("nan")))[0]
        floats = bytearray(tiff(3, 20, 20, bits=32, value=0))
        entry = struct.pack("<HHII", 258, 3, 1, 32)
        self.assertIn(entry, bytes(floats))
        # A float sample format needs a tag of its own. It replaces the tag of the strip byte counts, which libtiff can
        # compute.
        floats = floats.replace(struct.pack("<HHII", 279, 4, 1, 1600), struct.pack("<HHII", 339, 3, 1, 3))
        floats[-4:] = struct.pack("<I", nan)
        data(bytes(floats), good, "image.tif", "finite")
        (self.folder / "data.toml").write_text('name = "x"\n[[train]]\nimage = "gone.tif"\nlabel = "gone.tif"\n')
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "bad", says=["gone.tif", "check the path"])
        (self.folder / "data.toml").write_text('name = "x"\n[[train]]\nimage = "${NO_SUCH}/a.tif"\nlabel = "b"\n')
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "bad", says=["NO_SUCH", "data.toml:3"])
        self.fails("eval", "image.tif", "label.tif", says=["image.tif"])

    def test_checkpoints_that_were_damaged_are_refused_by_infer_and_resume(self):
        self.train("run", "--iterations", 2)
        good = self.last().read_bytes()
        (self.folder / "v.tif").write_bytes(tiff(2, 16, 16))
        at = 3 * len(good) // 4
        for damage in (good[: len(good) // 2], good[:-1], good + b"x", b"", good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]):
            bad = self.folder / "bad.safetensors"
            bad.write_bytes(damage)
            self.fails("infer", bad, "v.tif", "--out", "p.tif", says="bad.safetensors")
            self.assertFalse((self.folder / "p.tif").exists())
        self.last().unlink()
        self.last().write_bytes(good[:-1])
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", says="last.safetensors")

    def test_an_output_that_cannot_be_written_is_refused_before_the_inference(self):
        self.train("run", "--iterations", 1)
        (self.folder / "v.tif").write_bytes(tiff(2, 16, 16))
        self.fails("infer", self.last(), "v.tif", "--out", "p.png", says=["p.png", ".tif"])
        self.fails("infer", self.last(), "v.tif", "--out", "no/p.tif", says=["folder no does not exist"])
        self.fails("infer", self.last(), "v.tif", "--out", "p.tif", "--overlap", 1000, says=["--overlap 1000"])
        self.fails("infer", self.last(), "v.tif", "--out", "p.tif", "--overlap", "0,-1,0", says=["--overlap -1"])

    def test_an_unknown_instruction_set_is_refused_with_those_available(self):
        self.fails("info", says=["CONVOLUME_SIMD", "AVX9", "available"], env={"CONVOLUME_SIMD": "AVX9"})

    def test_volumes_are_converted_and_described(self):
        (self.folder / "v.tif").write_bytes(tiff(3, 30, 20, value=9))
        for name in ("v.h5:/raw", "v.nii", "v.nii.gz", "v.zarr", "w.zarr:/s0"):
            self.run_cli("convert", "v.tif", name, "--quiet")
            text = self.run_cli("info", name)
            for part in ("3 x 20 x 30", "uint8", "channels        1"):
                self.assertIn(part, text)
        self.run_cli("convert", "w.zarr:/s0", "part.nii.gz", "--box", "1:3,0:10,5:25", "--type", "uint16")
        text = self.run_cli("info", "part.nii.gz")
        self.assertIn("2 x 10 x 20", text)
        self.assertIn("uint16", text)
        (self.folder / "slices").mkdir()
        self.run_cli("convert", "part.nii.gz", "slices/*.png", "--quiet")
        self.assertEqual(sorted(p.name for p in (self.folder / "slices").iterdir()), ["0.png", "1.png"])
        self.assertIn("slices (PNG)", self.run_cli("info", "slices/*.png"))
        before = sorted(p.name for p in self.folder.iterdir())
        self.fails("convert", "v.tif", "x.png", says=["x.png", ".nii.gz"])
        self.fails("convert", "v.tif", "v.tif", says="same file")
        self.fails("convert", "v.tif", "x.nii", "--box", "0:4,0:20,0:30", says=["--box 0:4 along z", "3 voxels"])
        self.fails("convert", "v.tif", "x.nii", "--box", "0:1,a:20,0:30", says="'a:20' is no range")
        self.fails("convert", "v.tif", "x.nii", "--channel", 1, says="counted from 0")
        self.fails("convert", "v.tif", "x.nii", "--type", "float16", says="uint8, int8")
        self.fails("convert", "v.tif", "x.zarr", "--codec", "lzma", says="raw, deflate, zstd or blosc")
        self.fails("convert", "v.tif", "x.nii", "--codec", "zstd", says=".nii.gz")
        self.fails("convert", "gone.tif", "x.nii", says="gone.tif")
        self.fails("convert", "net.toml", "x.nii", says=["no format takes it", "NIfTI: "])
        self.fails("info", "v.tif", "--set", "a.b=1", says="is no net")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), before)

    def test_classes_are_trained_inferred_and_scored_in_every_format(self):
        net = (self.folder / "net.toml").read_text().replace("out_channels = 1\n", "out_channels = 3\n")
        (self.folder / "net.toml").write_text(net + '[loss]\nkind = "softmax_cross_entropy"\n')
        # Stored values 10, 20, 30 and 255, which does not count.
        (self.folder / "a.tif").write_bytes(tiff(4, 20, 20, value=10))
        self.run_cli("convert", "a.tif", "a.nii", "--quiet")
        raw = bytearray((self.folder / "a.nii").read_bytes())
        stored = [10, 20, 30, 10, 20, 255]
        raw[352:] = bytes(stored[i // 7 % 6] for i in range(1600))
        (self.folder / "label.nii").write_bytes(bytes(raw))
        raw[352:] = bytes(i * 37 % 251 for i in range(1600))
        (self.folder / "image.nii").write_bytes(bytes(raw))
        (self.folder / "data.toml").write_text(
            'name = "c"\n[[train]]\nimage = "image.nii"\nlabel = "label.nii"\n[[validation]]\nimage = "image.nii"\n'
            'label = "label.nii"\n[label]\nclasses = [10, 20, 30]\nignore = [255]\n')
        text = self.train("run", "--iterations", 3)
        self.assertIn("Dice 2", text)
        line = json.loads((self.folder / "run/metrics.jsonl").read_text().splitlines()[-1])
        for key in ("pixel_error", "dice", "dice_1", "dice_2", "iou", "iou_1", "iou_2"):
            self.assertIn(key, line)
        # eval takes the numbers of classes: 0, 1, 2.
        raw[352:] = bytes({10: 0, 20: 1, 30: 2, 255: 255}[stored[i // 7 % 6]] for i in range(1600))
        (self.folder / "classes.nii").write_bytes(bytes(raw))
        expected = None
        for name in ("p.h5", "p.nii", "p.nii.gz", "p.zarr"):
            self.run_cli("infer", self.last(), "image.nii", "--out", name, "--quiet")
            scores = json.loads(self.run_cli("eval", name, "classes.nii", "--ignore", 255, "--json"))
            self.assertEqual(scores["voxels"], sum(stored[i // 7 % 6] != 255 for i in range(1600)))
            self.assertEqual(scores, expected or scores)
            expected = scores
        # The validation scored the same checkpoint and the same volume.
        for key in ("pixel_error", "dice", "iou_2"):
            self.assertAlmostEqual(expected[key] or 0, line[key] or 0, delta=1e-6)
        self.fails("eval", "p.nii", "classes.nii", says=["classes.nii", "255", "classes 0 to 2", "--ignore"])
        self.fails("eval", "p.nii", "classes.nii", "--classes", 4, says="--classes 4")
        self.fails("eval", "p.nii", "classes.nii", "--positive", 1, says="--positive")
        # Numbers of classes instead of probabilities, compared with themselves.
        same = json.loads(self.run_cli("eval", "classes.nii", "classes.nii", "--classes", 256, "--metrics", "dice", "--json"))
        self.assertEqual(same["dice"], 1)
        self.assertIsNone(same["dice_7"])
        self.assertNotIn("iou", same)

    def test_folders_are_scored_case_by_case(self):
        for folder in ("pred", "truth"):
            (self.folder / folder).mkdir()
        for name, value in (("b", 255), ("a", 0)):
            (self.folder / "v.tif").write_bytes(tiff(2, 8, 8, value=255))
            self.run_cli("convert", "v.tif", f"truth/{name}.nii.gz", "--quiet")
            (self.folder / "v.tif").write_bytes(tiff(2, 8, 8, value=value))
            self.run_cli("convert", "v.tif", f"pred/{name}.nii.gz", "--quiet")
        text = self.run_cli("eval", "pred", "truth", "--metrics", "dice,pixel_error")
        lines = text.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["case", "a.nii.gz", "b.nii.gz", "mean"])
        self.assertEqual(lines[-1].split()[1:], ["0.5000", "0.5000"])
        report = json.loads(self.run_cli("eval", "pred/*.nii.gz", "truth/*.nii.gz", "--json"))
        self.assertEqual([case["case"] for case in report["cases"]], ["a", "b"])
        self.assertEqual(report["mean"]["dice"], 0.5)
        box = json.loads(self.run_cli("eval", "pred/b.nii.gz", "truth/b.nii.gz", "--box", "0:2,0:8,0:8", "--json"))
        self.assertEqual(box["voxels"], 128)
        (self.folder / "truth/a.nii.gz").unlink()
        self.fails("eval", "pred", "truth", says="truth/a.nii.gz")
        self.fails("eval", "pred", "pred/b.nii.gz", says="folder")
        self.fails("eval", "pred/b.nii.gz", "truth/b.nii.gz", "--metrics", "hausdorff", says="pixel_error, roc_auc")

    def test_info_tells_nets_and_checkpoints_apart(self):
        self.train("run", "--iterations", 1)
        text = self.run_cli("info", self.last())
        for part in ("iteration       1", "numerics record", "data digest"):
            self.assertIn(part, text)
        self.assertIn("field of view", self.run_cli("info", "net.toml"))

    def test_nets_with_two_channels_are_trained_and_used_on_nifti(self):
        net = (self.folder / "net.toml").read_text()
        self.assertIn("[input]", net)
        (self.folder / "two.toml").write_text(net.replace("[input]", "[input]\nchannels = 2", 1))
        (self.folder / "v.tif").write_bytes(tiff(3, 20, 20, value=9))
        self.run_cli("convert", "v.tif", "v.nii", "--quiet")
        # Two channels: the voxels twice, and a fourth axis in the header.
        image = bytearray((self.folder / "v.nii").read_bytes())
        struct.pack_into("<5h", image, 40, 4, 20, 20, 3, 2)
        voxels = bytes(i * 37 % 251 for i in range(2 * 1200))
        (self.folder / "two.nii").write_bytes(bytes(image[:352]) + voxels)
        self.assertIn("channels        2", self.run_cli("info", "two.nii"))
        (self.folder / "data.toml").write_text('name = "two"\n[[train]]\nimage = "two.nii"\nlabel = "v.nii"\n'
                                               "[label]\npositive = [9]\n")
        self.run_cli("train", "two.toml", "--data", "data.toml", "--out", "run2", "--iterations", 2)
        self.run_cli("infer", self.last("run2"), "two.nii", "--out", "p.nii.gz")
        self.assertIn("3 x 20 x 20", self.run_cli("info", "p.nii.gz"))
        self.fails("infer", self.last("run2"), "v.nii", "--out", "q.nii", says=["reads 2 channels", "v.nii has 1"])
        # The same from one file per channel.
        single = bytearray((self.folder / "v.nii").read_bytes()[:352])
        for name, part in (("one.nii", voxels[:1200]), ("other.nii", voxels[1200:])):
            (self.folder / name).write_bytes(bytes(single) + part)
        (self.folder / "data.toml").write_text('name = "two"\n[[train]]\nimage = ["one.nii", "other.nii"]\n'
                                               'label = "v.nii"\n[label]\npositive = [9]\n')
        self.run_cli("train", "two.toml", "--data", "data.toml", "--out", "run3", "--iterations", 2)
        self.assertEqual(self.parts("run2")[1], self.parts("run3")[1])
        self.run_cli("infer", self.last("run3"), "one.nii", "--channel", "other.nii", "--out", "r.nii.gz")
        self.assertEqual((self.folder / "p.nii.gz").read_bytes(), (self.folder / "r.nii.gz").read_bytes())
        self.fails("infer", self.last("run3"), "one.nii", "--out", "q.nii", says=["reads 2 channels", "--channel"])
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run4", says=["2 channels", "input.channels"])

    # Failures during a run -------------------------------------------------------------------------------------------



if __name__ == "__main__":
    unittest.main(verbosity=1)
