#!/usr/bin/env python3
"""Overlapping regions on the command line: training, inference, evaluation, and what is refused."""

import json
import random
import struct
import unittest

from command import NET, CliTest

SHAPE = (4, 24, 24)
VOXELS = SHAPE[0] * SHAPE[1] * SHAPE[2]
REGIONS = [(10, 20, 30), (20, 30), (30,)]
OPTION = ";".join(",".join(map(str, values)) for values in REGIONS)
IGNORED = 255
DATA = """
name = "regions"
[label]
regions = [[10, 20, 30], [20, 30], [30]]
ignore = [255]
[sampling]
foreground = 0.5
[augment]
flip = ["y", "x"]
[[train]]
image = "image.zarr"
label = "label.zarr"
[[validation]]
image = "image.zarr"
label = "label.zarr"
"""


def write_array(folder, voxels):
    folder.mkdir()
    (folder / ".zarray").write_text(json.dumps({
        "zarr_format": 2, "shape": SHAPE, "chunks": SHAPE, "dtype": "|u1", "compressor": None, "fill_value": 0,
        "order": "C", "filters": None}))
    (folder / "0.0.0").write_bytes(bytes(voxels))


class Regions(CliTest):
    def setUp(self):
        super().setUp()
        net = NET.replace("out_channels = 1\n", "out_channels = 3\n").replace("validate_every", 'best = "dice_2"\nvalidate_every')
        (self.folder / "net.toml").write_text(net + '[loss]\nkind = "binary_cross_entropy"\nrebalance = true\n')
        (self.folder / "data.toml").write_text(DATA)
        numbers = random.Random(5)
        # Nested squares: the region of larger values lies within that of smaller ones. Some voxels do not count.
        self.label = []
        for i in range(VOXELS):
            z, y, x = i // 576, i // 24 % 24, i % 24
            depth = min(y, x, 23 - y, 23 - x) - z
            value = 0 if depth < 2 else 10 if depth < 5 else 20 if depth < 8 else 30
            self.label.append(IGNORED if numbers.random() < 0.05 else value)
        write_array(self.folder / "label.zarr", self.label)
        write_array(self.folder / "image.zarr", [v % 255 * 5 + numbers.randrange(40) for v in self.label])

    def voxels(self, name):
        """The voxels of a volume with three channels, as numbers."""
        self.run_cli("convert", name, "raw.zarr", "--codec", "raw", "--chunk", ",".join(map(str, SHAPE)), "--quiet")
        array = json.loads((self.folder / "raw.zarr/.zarray").read_text())
        self.assertEqual(array["shape"], [3, *SHAPE])
        channels = []
        for chunk in sorted((self.folder / "raw.zarr").glob("[0-9]*")):
            data = chunk.read_bytes()
            channels.append(list(data) if array["dtype"] == "|u1" else list(struct.unpack(f"<{VOXELS}f", data)))
        for path in (self.folder / "raw.zarr").iterdir():
            path.unlink()
        (self.folder / "raw.zarr").rmdir()
        return channels

    def expected_scores(self, channels, threshold=0.5):
        """The scores by their definition."""
        scores, wrong, counted = {}, 0, 0
        for r, values in enumerate(REGIONS):
            hits = predicted = actual = 0
            for p, stored in zip(channels[r], self.label):
                if stored == IGNORED:
                    continue
                p, t = p >= threshold, stored in values
                hits, predicted, actual = hits + (p and t), predicted + p, actual + t
                wrong, counted = wrong + (p != t), counted + 1
            scores[f"dice_{r + 1}"] = 2 * hits / (predicted + actual)
            scores[f"iou_{r + 1}"] = hits / (predicted + actual - hits)
        for name in ("dice", "iou"):
            scores[name] = sum(scores[f"{name}_{r}"] for r in (1, 2, 3)) / 3
        scores["pixel_error"] = wrong / counted
        return scores

    def assert_scores(self, scores, expected):
        for name, value in expected.items():
            self.assertAlmostEqual(scores[name], value, delta=1e-6, msg=name)

    def eval(self, *arguments):
        return json.loads(self.run_cli("eval", *arguments, "--regions", OPTION, "--ignore", IGNORED, "--json"))

    def test_regions_are_trained_inferred_and_scored_in_every_format_with_channels(self):
        text = self.train("run", "--iterations", 9)
        for part in ("Dice 3", "IoU 1", "dice_2", "pixel error"):
            self.assertIn(part, text)
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["iteration"] for line in lines if "dice" in line], [3, 6, 9])
        self.assertLess(lines[-1]["loss"], lines[0]["loss"])
        self.assertNotIn("roc_auc", lines[-1])
        self.assertTrue((self.folder / "run/report/slice.png").exists())
        page = (self.folder / "run/report/report.html").read_text()
        for part in ('"dice_3":', '"regions":3', "voxels outside, and per region"):
            self.assertIn(part, page)
        for name in ("p.zarr", "p.h5", "p.nii.gz"):
            self.run_cli("infer", self.last(), "image.zarr", "--out", name, "--quiet")
            channels = self.voxels(name)
            # Probabilities of a sigmoid do not sum up to 1.
            self.assertTrue(any(abs(sum(p) - 1) > 0.05 for p in zip(*channels)))
            scores = self.eval(name, "label.zarr")
            self.assert_scores(scores, self.expected_scores(channels))
            # The validation scored the same checkpoint and the same volume.
            self.assert_scores(lines[-1], self.expected_scores(channels))
            self.assertEqual(scores["voxels"], sum(v != IGNORED for v in self.label))
            self.assertEqual(scores["positives"], sum(v not in (0, IGNORED) for v in self.label))
            self.assert_scores(self.eval(name, "label.zarr", "--threshold", 0.3), self.expected_scores(channels, 0.3))
        expected = self.expected_scores(channels)
        for name in ("l.zarr", "l.h5", "l.nii.gz"):
            self.run_cli("infer", self.last(), "image.zarr", "--out", name, "--labels", "--quiet")
            self.assertIn("uint8", self.run_cli("info", name))
            self.assertEqual(self.voxels(name), [[int(p >= 0.5) for p in channel] for channel in channels])
            self.assert_scores(self.eval(name, "label.zarr", "--classes", 2), expected)
            self.assertIn("--classes 2", self.eval(name, "label.zarr")["note"])
        box = self.eval("p.zarr", "label.zarr", "--box", "0:4,0:24,0:24", "--metrics", "dice")
        self.assertEqual(sorted(box), ["dice", "dice_1", "dice_2", "dice_3", "positives", "voxels"])
        self.run_cli("infer", self.last(), "image.zarr", "--out", "b.h5", "--uint8", "--quiet")
        self.assertAlmostEqual(self.eval("b.h5", "label.zarr")["dice"], expected["dice"], delta=0.05)
        for name in ("p.tif", "l.tif"):
            self.fails("infer", self.last(), "image.zarr", "--out", name, *(["--labels"] if name == "l.tif" else []),
                       says=[name, "has 3; write HDF5, NIfTI or Zarr"])

    def test_cases_of_a_folder_are_scored_per_region(self):
        self.train("run", "--iterations", 2)
        for folder in ("pred", "truth"):
            (self.folder / folder).mkdir()
        for case in ("a", "b"):
            self.run_cli("infer", self.last(), "image.zarr", "--out", f"pred/{case}.nii.gz", "--quiet")
            self.run_cli("convert", "label.zarr", f"truth/{case}.nii.gz", "--quiet")
        report = self.eval("pred", "truth", "--metrics", "dice")
        self.assertEqual([case["case"] for case in report["cases"]], ["a.nii.gz", "b.nii.gz"])
        self.assertEqual(report["mean"]["dice_3"], report["cases"][0]["dice_3"])

    def test_a_region_that_is_absent_is_undefined_and_not_averaged(self):
        self.train("run", "--iterations", 1)
        self.run_cli("infer", self.last(), "image.zarr", "--out", "l.zarr", "--labels", "--quiet")
        truth = json.loads(self.run_cli("eval", "l.zarr", "label.zarr", "--regions", "10,20;77;30", "--classes", 2,
                                        "--threshold", 2, "--json"))
        self.assertIsNone(truth["dice_2"])
        self.assertIsNone(truth["iou_2"])
        self.assertEqual((truth["dice"], truth["dice_1"], truth["dice_3"]), (0, 0, 0))

    def test_threads_and_interruptions_do_not_change_a_bit(self):
        self.train("one", "--iterations", 8, "--threads", 1)
        self.train("run", "--iterations", 8, "--threads", 2)
        self.assertEqual(self.digest("one"), self.digest("run"))
        self.train("parts", "--iterations", 3)
        self.train("parts", "--resume", "--iterations", 6, "--threads", 1)
        self.train("parts", "--resume", "--iterations", 8)
        self.assertEqual(self.digest("parts"), self.digest("run"))
        best = [(self.folder / out / "checkpoints/best.safetensors").read_bytes() for out in ("one", "parts")]
        self.assertEqual(best[0], best[1])
        for name, threads in (("a.h5", 1), ("b.h5", 2)):
            self.run_cli("infer", self.last(), "image.zarr", "--out", name, "--threads", threads, "--quiet")
        self.assertEqual((self.folder / "a.h5").read_bytes(), (self.folder / "b.h5").read_bytes())

    def test_scores_are_those_of_an_inference_with_another_spacing(self):
        spacing = DATA.replace("[label]", "[spacing]\ntarget = [1, 1.5, 1.5]\n[label]")
        for split in ("[[train]]", "[[validation]]"):
            spacing = spacing.replace(split, f"{split}\nspacing = [1, 1, 1]")
        (self.folder / "data.toml").write_text(spacing)
        self.train("run", "--iterations", 9)
        logged = json.loads((self.folder / "run/metrics.jsonl").read_text().splitlines()[-1])
        for name, labels, delta in (("p.nii.gz", [], 1e-3), ("l.h5", ["--labels"], 0.1)):
            self.run_cli("infer", self.last(), "image.zarr", "--out", name, "--spacing", "1,1,1", *labels, "--quiet")
            scores = self.eval(name, "label.zarr", *(["--classes", 2] if labels else []))
            for key in ("dice_1", "dice_2", "dice_3", "pixel_error"):
                self.assertAlmostEqual(scores[key], logged[key], delta=delta, msg=f"{name} {key}")

    def test_a_resume_with_other_regions_is_refused(self):
        self.train("run", "--iterations", 2)
        resume = ["train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", "--iterations", 4]
        for other in ("[[10, 20, 30], [20, 30], [10]]", "[[10, 20], [20, 30], [30]]"):
            (self.folder / "data.toml").write_text(DATA.replace("[[10, 20, 30], [20, 30], [30]]", other))
            self.fails(*resume, says=["other data", "data.toml"])
        (self.folder / "data.toml").write_text(DATA)
        self.run_cli(*resume)

    def test_nets_and_data_sets_that_do_not_fit_are_refused(self):
        train = ["train", "net.toml", "--data", "data.toml", "--out", "run"]
        self.fails(*train, "--set", 'training.best="roc_auc"', says=["training.best", "dice_1, iou_1, dice_2"])
        best = ["--set", 'training.best=""']
        self.fails(*train, *best, "--set", 'loss.kind="softmax_cross_entropy"',
                   says=["net.toml", "loss.kind", "3 overlapping regions", "binary_cross_entropy or dice"])
        self.fails(*train, *best, "--set", "loss.kind=dice", says=["--set 'loss.kind=\"dice\"'"])
        self.fails(*train, *best, "--set", 'loss.kind="square"', says=["net.toml", "3 overlapping regions"])
        text = DATA.replace("regions = [[10, 20, 30], [20, 30], [30]]", "{}")
        for key, says in (("regions = [[10, 20], [30]]", ["net.toml", "3 channels", "2 regions"]),
                          ("regions = [[10], [20], [77]]", ["region 3", "occurs in no training volume"]),
                          ("positive = [10]", ["net.toml", "3 channels", "no [label] regions", "softmax_cross_entropy"]),
                          ("regions = [[10], [], [30]]", ["data.toml:4", "region 2 is empty"]),
                          ("regions = [[10]]\npositive = [10]", ["data.toml:4", "exclude each other"]),
                          ("regions = [[10]]\nclasses = [0, 10]", ["data.toml:4", "exclude each other"])):
            (self.folder / "data.toml").write_text(text.replace("{}", key))
            self.fails(*train, *best, says=says)
            self.assertFalse((self.folder / "run/checkpoints/last.safetensors").exists())

    def test_regions_that_do_not_fit_a_prediction_are_refused(self):
        self.train("run", "--iterations", 1)
        self.run_cli("infer", self.last(), "image.zarr", "--out", "p.zarr", "--quiet")
        evaluate = ["eval", "p.zarr", "label.zarr", "--regions"]
        self.fails(*evaluate, "10;20", says=["--regions", "2 regions", "p.zarr has 3 channels"])
        self.fails(*evaluate, "10;;20", says=["--regions '10;;20'", "is no label value"])
        self.fails(*evaluate, "", says=["is no label value"])
        self.fails(*evaluate, "10;20;a", says=["'a' is no label value", "1,2,3;2,3;3"])
        self.fails(*evaluate, OPTION, "--classes", 3, says=["--classes 3", "--classes 2"])
        self.fails(*evaluate, OPTION, "--classes", 2, says=["p.zarr", "not 0 or 1"])
        self.assertIn("--positive", self.run_cli(*evaluate, OPTION, "--positive", 1, expect=108))
        self.assertIn("--regions", self.run_cli("eval", "--help"))

    def test_an_export_and_a_preview_show_regions(self):
        self.run_cli("export", "data.toml", "--split", "train", "--image", "i.h5", "--label", "l.h5")
        self.assertEqual(self.voxels("l.h5"), [[255 * (v in values) for v in self.label] for values in REGIONS])
        self.fails("export", "data.toml", "--split", "train", "--image", "i.tif", "--label", "l.tif",
                   says=["l.tif", "has 3; write HDF5"])
        self.run_cli("preview", "data.toml", "--net", "net.toml", "--out", "p.png", "--count", 4)
        self.assertTrue((self.folder / "p.png").read_bytes().startswith(b"\x89PNG"))
        self.fails("preview", "data.toml", "--net", "net.toml", "--out", "q.png", "--set",
                   'loss.kind="softmax_cross_entropy"', says=["net.toml", "softmax_cross_entropy", "overlapping regions"])
        self.assertFalse((self.folder / "q.png").exists())
        # The memory of a training with several targets is known beforehand.
        self.assertIn("memory", self.run_cli("info", "net.toml"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
