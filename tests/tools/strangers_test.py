#!/usr/bin/env python3
"""Files as other programs write them: labels that were scaled, orientations, NaN, and files that are not what they are named.
Each message has a remedy, and a test applies it."""

import itertools
import json
import random
import struct
import unittest

from command import NET, CliTest

SHAPE = (8, 12, 16)  # z, y, x
CLASSES = NET.replace("out_channels = 1\n", "out_channels = 3\n") + '[loss]\nkind = "softmax_cross_entropy"\n'
DATA = """
name = "strangers"
{top}
[label]
{label}
[intensity]
{intensity}
[[train]]
image = "image.nii"
label = "label.nii"
{more}
"""


def nifti(voxels, shape=SHAPE, code="f", slope=0.0, rows=((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)), sform=1):
    """A NIfTI-1 file. `voxels` are in the order z, y, x."""
    kind, bits = {"f": (16, 32), "B": (2, 8), "h": (4, 16)}[code]
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *reversed(shape), 1, 1, 1, 1)
    struct.pack_into("<hh", header, 70, kind, bits)
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 1, 1, 1, 1)
    struct.pack_into("<fff", header, 108, 352, slope, 0)
    struct.pack_into("<hh", header, 252, 0, sform)
    for i, row in enumerate(rows):
        struct.pack_into("<4f", header, 280 + 16 * i, *row)
    header[344:348] = b"n+1\0"
    return bytes(header) + struct.pack(f"<{len(voxels)}{code}", *voxels)


def turned(voxels, shape, axes, mirrored):
    """The voxels of a volume whose axis a is axis axes[a] of another one, read backwards if mirrored[a]."""
    own = [shape[a] for a in axes]
    result = []
    for place in itertools.product(*map(range, own)):
        source = [0, 0, 0]
        for a, p in enumerate(place):
            source[axes[a]] = own[a] - 1 - p if mirrored[a] else p
        result.append(voxels[(source[0] * shape[1] + source[1]) * shape[2] + source[2]])
    return result, own


class Strangers(CliTest):
    def setUp(self):
        super().setUp()
        numbers = random.Random(3)
        self.label = []
        for z, y, x in itertools.product(*map(range, SHAPE)):
            self.label.append(2 if y < 4 else 1 if x < 8 else 0)
        self.image = [10 * v + numbers.random() for v in self.label]
        (self.folder / "image.nii").write_bytes(nifti(self.image))
        self.write_label(self.label)
        self.describe()
        self.use_net(NET)

    def use_net(self, text):
        (self.folder / "net.toml").write_text(text.replace("[2, 16, 16]", "[2, 8, 8]"))

    def write_label(self, values, code="B", **how):
        (self.folder / "label.nii").write_bytes(nifti(values, code=code, **how))

    def describe(self, label="positive = [1]", top="", intensity="", more=""):
        (self.folder / "data.toml").write_text(DATA.format(label=label, top=top, intensity=intensity, more=more))

    def training_fails(self, *says):
        return self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", says=says)

    def voxels(self, name):
        """The voxels of a volume as floats, and its shape."""
        self.run_cli("convert", name, "out.zarr", "--codec", "raw", "--chunk", 64, "--type", "float32", "--quiet")
        shape = json.loads((self.folder / "out.zarr/.zarray").read_text())["shape"]
        data = (self.folder / "out.zarr/0.0.0").read_bytes()
        for path in (self.folder / "out.zarr").iterdir():
            path.unlink()
        (self.folder / "out.zarr").rmdir()
        return list(struct.unpack(f"<{len(data) // 4}f", data)), shape

    # Labels ------------------------------------------------------------------------------------------------------------

    def test_a_scaled_label_counts_as_the_whole_number_that_it_nearly_is(self):
        # As nibabel stores 0, 1 and 2 of float64 in uint8, rounded: 127 is 0.996, 255 is 2.
        self.write_label([round(v * 255 / 2) for v in self.label], slope=2 / 255)
        self.train("scaled")
        self.write_label(self.label)
        self.train("whole")
        self.assertEqual(self.parts("scaled")[1], self.parts("whole")[1])

    def test_a_label_that_is_scaled_too_coarsely_names_the_slope_and_the_remedy(self):
        self.write_label([round(v / 0.3) for v in self.label], slope=0.3)  # 1 reads as 0.9, 2 as 2.1
        text = self.training_fails("positive", "value 1", "occurs in no training volume", "stored as uint8", "scaled by 0.3",
                                   "3 is 0.9", "label.nii OUT --type uint8")
        self.assertNotIn("image.nii", text)
        self.run_cli("convert", "label.nii", "whole.nii", "--type", "uint8", "--quiet")
        (self.folder / "whole.nii").rename(self.folder / "label.nii")
        self.train()

    def test_a_value_that_is_not_listed_names_the_label_and_can_be_listed_as_it_is_printed(self):
        self.use_net(CLASSES)
        self.describe("classes = [0, 1, 2]")
        self.write_label([round(v / 0.3) for v in self.label], slope=0.3)
        text = self.training_fails("label.nii at voxel", "stored as uint8, scaled by 0.3")
        first = text.split(") is ")[1].split(";")[0]
        self.describe(f"classes = [0, {first}]")
        second = self.training_fails("label.nii at voxel").split(") is ")[1].split(";")[0]
        self.assertAlmostEqual(float(second), 2.1 if float(first) < 1 else 0.9, 5)
        self.describe(f"classes = [0, {first}, {second}]")
        self.train()

    def test_eval_rounds_labels_and_names_the_slope_of_others(self):
        (self.folder / "p.nii").write_bytes(nifti(self.label, code="B"))
        self.write_label([round(v * 255 / 2) for v in self.label], slope=2 / 255)
        self.assertRegex(self.run_cli("eval", "p.nii", "label.nii", "--classes", 3), r"pixel error +0\.0000")
        self.write_label([round(v / 0.3) for v in self.label], slope=0.3)
        self.fails("eval", "p.nii", "label.nii", "--classes", 3,
                   says=["label.nii: voxel", "classes 0 to 2", "scaled by 0.3", "convolume convert label.nii OUT --type uint8"])
        self.run_cli("convert", "label.nii", "whole.nii", "--type", "uint8", "--quiet")
        self.run_cli("eval", "p.nii", "whole.nii", "--classes", 3)
        self.run_cli("eval", "p.nii", "whole.nii", "--classes", 3, "--ignore", 77)  # a label without it is valid

    def test_values_that_are_hardly_off_a_whole_number_count_as_it(self):
        self.write_label([v - 5e-7 for v in self.label], code="f")
        self.describe("positive = [2]")
        self.train("near")
        self.write_label(self.label)
        self.train("whole")
        self.assertEqual(self.parts("near")[1], self.parts("whole")[1])

    def test_a_listed_value_that_no_training_volume_has_is_an_error_but_one_volume_may_lack_it(self):
        for label, says in (("positive = [7]", "the value 7 occurs"), ("classes = [0, 1, [2, 9]]", "the value 9 of class 2"),
                            ("regions = [[1, 2], [5]]", "the value 5 of region 2")):
            self.describe(label)
            self.training_fails(says, "no training volume")
        (self.folder / "empty.nii").write_bytes(nifti([0] * len(self.label), code="B"))
        self.describe(more='[[train]]\nimage = "image.nii"\nlabel = "empty.nii"')
        self.train()

    def test_an_ignored_value_that_no_training_volume_has_is_said(self):
        self.describe("positive = [1]\nignore = [255]")
        self.assertIn("ignore lists 255, which no training volume has", self.train())

    def test_a_value_has_one_meaning(self):
        for label, says in (("classes = [0, 1, 2, [3, 1]]", ["the value 1 is listed for class 1 and for class 3", "data.toml:5"]),
                            ("positive = [1]\nignore = [2, 1.0]", ["the value 1", "'positive'"])):
            self.describe(label)
            self.training_fails(*says)

    def test_as_many_classes_are_listed_as_the_net_has_outputs(self):
        self.use_net(CLASSES)
        self.describe("classes = [0, [1, 2]]")
        self.training_fails("lists 2 classes", "3 outputs")

    # Orientation -------------------------------------------------------------------------------------------------------

    def test_a_turned_volume_is_the_nearest_permutation_and_mirroring(self):
        # Axis i points down, j to the left, k to the front, each a little off.
        rows = ((0.1, -2, 0, 5), (0, 0.1, 3, 6), (-1, 0, 0.1, 7))
        (self.folder / "turned.nii").write_bytes(nifti(self.image, rows=rows))
        self.assertIn("ILA (x, y, z)", self.run_cli("info", "turned.nii"))
        self.run_cli("convert", "turned.nii", "ras.nii", "--orientation", "RAS", "--quiet")
        self.assertIn("RAS (x, y, z)", self.run_cli("info", "ras.nii"))
        # RAS: x is j backwards, y is k, z is i backwards.
        expected, shape = turned(self.image, SHAPE, (2, 0, 1), (True, False, True))
        found, found_shape = self.voxels("ras.nii")
        self.assertEqual(found_shape, shape)
        self.assertEqual(found, [struct.unpack("f", struct.pack("f", v))[0] for v in expected])
        # Back again, and a box counts in the axes of the file.
        self.run_cli("convert", "ras.nii", "back.nii", "--orientation", "ILA", "--quiet")
        self.assertEqual(self.voxels("back.nii"), self.voxels("turned.nii"))
        self.run_cli("convert", "turned.nii", "part.nii", "--orientation", "RAS", "--box", "2:5,0:12,4:16", "--quiet")
        self.run_cli("convert", "turned.nii", "box.nii", "--box", "2:5,0:12,4:16", "--quiet")
        self.run_cli("convert", "box.nii", "other.nii", "--orientation", "RAS", "--quiet")
        self.assertEqual((self.folder / "part.nii").read_bytes(), (self.folder / "other.nii").read_bytes())

    def test_training_and_inference_turn_volumes_and_outputs_are_turned_back(self):
        self.describe(top='orientation = "RAS"')
        self.train("straight")
        # The same volume, stored with y from back to front, and its label with x and y exchanged.
        image, _ = turned(self.image, SHAPE, (0, 1, 2), (False, True, False))
        label, shape = turned(self.label, SHAPE, (0, 2, 1), (False, False, False))
        last = SHAPE[1] - 1
        (self.folder / "image.nii").write_bytes(nifti(image, rows=((1, 0, 0, 0), (0, -1, 0, last), (0, 0, 1, 0))))
        (self.folder / "label.nii").write_bytes(nifti(label, shape, "B", rows=((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 1, 0))))
        self.train("turned")
        self.assertEqual(self.parts("straight")[1], self.parts("turned")[1])
        outputs = {}
        for name, voxels, rows in (("a", self.image, ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0))),
                                   ("b", image, ((1, 0, 0, 0), (0, -1, 0, last), (0, 0, 1, 0)))):
            (self.folder / f"{name}.nii").write_bytes(nifti(voxels, rows=rows))
            for kind in ("nii", "zarr"):
                self.run_cli("infer", self.last("turned"), f"{name}.nii", "--out", f"{name}_out.{kind}", "--quiet")
                outputs[name, kind] = self.voxels(f"{name}_out.{kind}")[0]
        back, _ = turned(outputs["b", "nii"], SHAPE, (0, 1, 2), (False, True, False))
        self.assertEqual(back, outputs["a", "nii"])
        self.assertEqual(outputs["b", "zarr"], outputs["b", "nii"])
        self.assertIn("RPS (x, y, z)", self.run_cli("info", "b_out.nii"))
        # A box counts in the axes of the file: these two are the same voxels.
        self.run_cli("infer", self.last("turned"), "b.nii", "--out", "box.nii", "--box", "0:8,6:12,0:16", "--quiet")
        self.run_cli("infer", self.last("turned"), "a.nii", "--out", "same.nii", "--box", "0:8,0:6,0:16", "--quiet")
        part, shape = self.voxels("box.nii")
        self.assertEqual(shape, [8, 6, 16])
        self.assertEqual(turned(part, shape, (0, 1, 2), (False, True, False))[0], self.voxels("same.nii")[0])
        # Axes in a cycle, whose map is not its own inverse: z is the file's x, y its z, x its y.
        cycle, shape = turned(self.image, SHAPE, (1, 2, 0), (False, False, False))
        (self.folder / "c.nii").write_bytes(nifti(cycle, shape, rows=((0, 1, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0))))
        self.run_cli("infer", self.last("turned"), "c.nii", "--out", "c_out.nii", "--quiet")
        back, shape = self.voxels("c_out.nii")
        self.assertEqual(shape, [SHAPE[1], SHAPE[2], SHAPE[0]])
        self.assertEqual(turned(back, shape, (2, 0, 1), (False, False, False))[0], outputs["a", "nii"])
        # A box of a data set counts in the axes of the first image too.
        straight_files = {name: (self.folder / name).read_bytes() for name in ("image.nii", "label.nii")}
        digests = []
        for box, files in (("[[0, 8], [2, 12], [0, 16]]", {"image.nii": nifti(self.image), "label.nii": nifti(self.label, code="B")}),
                           ("[[0, 8], [0, 10], [0, 16]]", straight_files)):
            for name, content in files.items():
                (self.folder / name).write_bytes(content)
            self.describe(top='orientation = "RAS"')
            text = (self.folder / "data.toml").read_text()
            (self.folder / "data.toml").write_text(text.rstrip() + f"\nbox = {box}\n")
            self.train(f"box{len(digests)}")
            digests.append(self.parts(f"box{len(digests)}")[1])
        self.assertEqual(*digests)
        self.run_cli("infer", self.last("turned"), "b.nii", "--out", "none.nii", "--orientation", "none", "--quiet")
        self.assertNotEqual(self.voxels("none.nii"), self.voxels("b_out.nii"))

    def test_mixed_orientations_are_named_and_files_without_one_are_refused(self):
        (self.folder / "other.nii").write_bytes(nifti(self.image, rows=((-1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0))))
        (self.folder / "other_label.nii").write_bytes(
            nifti(self.label, code="B", rows=((-1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0))))
        more = '[[train]]\nimage = "other.nii"\nlabel = "other_label.nii"'
        self.describe(more=more)
        text = self.train()
        for part in ("different orientations", "LAS (", "RAS (", 'orientation = "RAS"'):
            self.assertIn(part, text)
        self.describe(top='orientation = "RAS"', more=more)
        self.assertNotIn("orientations", self.train("turned"))
        (self.folder / "image.nii").write_bytes(nifti(self.image, sform=0))
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "no", says=["image.nii", "orientation RAS", "sform"])
        self.fails("infer", self.last("turned"), "image.nii", "--out", "o.nii", says=["image.nii", "--orientation none"])
        self.run_cli("infer", self.last("turned"), "image.nii", "--out", "o.nii", "--orientation", "none")
        for wrong in ("RAR", "RA", "ras"):
            self.fails("convert", "other.nii", "o2.nii", "--orientation", wrong, says=[f"'{wrong}'", "RAS"])

    def test_a_note_of_many_files_is_one_line(self):
        header = bytearray(nifti(self.image))
        struct.pack_into("<f", header, 80, 1.5)  # pixdim along x, which the sform contradicts
        more = ""
        for i in range(4):
            (self.folder / f"odd{i}.nii").write_bytes(header)
            more += f'[[train]]\nimage = "odd{i}.nii"\nlabel = "label.nii"\n'
        self.describe(more=more)
        lines = [line for line in self.train().splitlines() if "pixdim" in line]
        self.assertEqual(len(lines), 1)
        self.assertIn("odd0.nii (and 3 other files): ", lines[0])

    def test_eval_refuses_files_that_lie_elsewhere(self):
        (self.folder / "p.nii").write_bytes(nifti([v / 2 for v in self.label], rows=((-1, 0, 0, 15), (0, 1, 0, 0), (0, 0, 1, 0))))
        self.fails("eval", "p.nii", "label.nii", says=["p.nii", "label.nii", "voxels away"])

    # NaN ---------------------------------------------------------------------------------------------------------------

    def test_nan_is_replaced_where_it_is_asked_for(self):
        self.image[5] = float("nan")
        (self.folder / "image.nii").write_bytes(nifti(self.image))
        self.training_fails("image.nii", "nan", "[intensity] nan")
        self.describe(intensity="nan = 0")
        self.train("replaced")
        self.fails("convert", "image.nii", "a.nii", "--type", "uint8", says=["nan", "uint8", "--nan 0"])
        self.run_cli("convert", "image.nii", "b.nii", "--nan", 0, "--quiet")
        self.assertEqual(self.voxels("b.nii")[0][5], 0)
        for name in ("image.nii", "b.nii"):
            self.run_cli("infer", self.last("replaced"), name, "--out", f"{name[0]}.zarr", "--quiet")
        self.assertEqual(self.voxels("i.zarr"), self.voxels("b.zarr"))

    # Messages ----------------------------------------------------------------------------------------------------------

    def test_files_that_stand_for_others_are_named(self):
        for content, says in ((b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "git lfs pull"),
                              (b"<!DOCTYPE html>\n<html><body>Log in</body></html>", "HTML page")):
            for name in ("a.nii.gz", "a.toml", "a.safetensors", "a.h5"):
                (self.folder / name).write_bytes(content)
                self.fails("info", name, says=[name, says])
            self.fails("train", "a.toml", "--data", "data.toml", "--out", "run", says=["a.toml", says])
            self.fails("infer", "a.safetensors", "image.nii", "--out", "o.nii", says=["a.safetensors", says])

    def test_a_pattern_that_is_too_wide_is_corrected(self):
        (self.folder / "s").mkdir()
        self.run_cli("convert", "label.nii", "s/img_*.png", "--quiet")
        (self.folder / "s/._img_0.png").write_bytes(b"\0\5\x16\7")
        text = self.fails("info", "s/*.png", says=["img_*.png"])
        better = text.split("for example '")[1].split("'")[0]
        self.assertIn("8 x 12 x 16", self.run_cli("info", better))


if __name__ == "__main__":
    unittest.main()
