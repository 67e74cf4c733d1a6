#!/usr/bin/env python3
"""`convolume convolve`: formats, memory, interruptions, and what it refuses."""

import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest

from command import CONVOLUME, CliTest

# Sanitizers take memory of their own.
SANITIZED = any(name in pathlib.Path(CONVOLUME).read_bytes() for name in (b"__asan_init", b"__tsan_init"))
PROBLEM = "ic3id12ih14iw40oc5kd3pd1"
X, W, Y = 3 * 12 * 14 * 40, 5 * 3 * 27, 5 * 12 * 14 * 40


def values(count, seed):
    """Small integers, whose sums are exact in any order."""
    state, out = seed, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(float((state >> 16) % 7 - 3))
    return out


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


class Convolve(CliTest):
    def setUp(self):
        super().setUp()
        self.x, self.w = values(X, 1), values(W, 2)
        self.write("x.raw", self.x)
        self.write("w.raw", self.w)

    def write(self, name, numbers, code="f"):
        (self.folder / name).write_bytes(struct.pack(f"<{len(numbers)}{code}", *numbers))

    def convolve(self, *more, problem=PROBLEM, x="x.raw", w="w.raw", y="y.raw", **kwargs):
        return self.run_cli("convolve", "--problem", problem, "--x", x, "--w", w, "--y", y, *more, **kwargs)

    def refuses(self, *more, says, problem=PROBLEM, x="x.raw", w="w.raw", y="y.raw"):
        self.fails("convolve", "--problem", problem, "--x", x, "--w", w, "--y", y, *more, says=says)
        self.assertFalse((self.folder / y).exists())

    def expected(self, o, z, y, x):
        total = 0.0
        for c in range(3):
            for dz in range(3):
                for dy in range(3):
                    for dx in range(3):
                        at = (z + dz - 1, y + dy - 1, x + dx - 1)
                        if all(0 <= i < n for i, n in zip(at, (12, 14, 40))):
                            voxel = self.x[((c * 12 + at[0]) * 14 + at[1]) * 40 + at[2]]
                            total += voxel * self.w[((o * 3 + c) * 9 + dz * 3 + dy) * 3 + dx]
        return total

    def test_the_result_is_the_convolution_and_does_not_depend_on_tiles(self):
        report = json.loads(self.convolve("--json"))
        self.assertLessEqual({"tile", "loads", "transfer_s", "compute_s", "seconds", "overlap", "peak_bytes"}, set(report))
        self.assertEqual(set(report["tile"]), {"n", "k", "c", "z", "y", "x"})
        y = (self.folder / "y.raw").read_bytes()
        self.assertEqual(len(y), 4 * Y)
        for o, at in ((0, (0, 0, 0)), (4, (11, 13, 39)), (2, (5, 6, 7)), (3, (11, 0, 20))):
            got = floats(y)[((o * 12 + at[0]) * 14 + at[1]) * 40 + at[2]]
            self.assertEqual(round(got), self.expected(o, *at))
        for engine in ("direct", "fft_tiled"):
            self.convolve("--engine", engine, y="whole.raw")
            self.convolve("--engine", engine, "--tile", "1,5,3,3,5,40", "--unbuffered", y="tiles.raw")
            self.convolve("--engine", engine, "--tile", "1,5,3,4,4,9", "--direct", "--threads", 1, y="more.raw")
            whole = (self.folder / "whole.raw").read_bytes()
            self.assertEqual((self.folder / "tiles.raw").read_bytes(), whole)
            self.assertEqual((self.folder / "more.raw").read_bytes(), whole)

    def test_a_dry_run_prints_the_plan_and_writes_nothing(self):
        text = self.convolve("--dry-run")
        for part in ("streamed in", "transfers", "estimated", "chosen"):
            self.assertIn(part, text)
        self.assertNotIn("seconds\": ", text)
        self.assertFalse((self.folder / "y.raw").exists())
        report = json.loads(self.convolve("--dry-run", "--json"))
        self.assertNotIn("compute_s", report)
        self.assertGreater(report["predicted"]["seconds"], 0)

    def test_volumes_are_read_and_written_and_converted(self):
        self.convolve()
        y = (self.folder / "y.raw").read_bytes()
        self.convolve(y="y.h5")
        self.convolve(y="y.zarr")
        self.write("one.raw", [1.0] * 5)
        for name in ("y.h5", "y.zarr"):
            self.assertRegex(self.run_cli("info", name), r"channels +5\n")
            self.convolve(problem="g5ic5id12ih14iw40oc5kd1", x=name, w="one.raw", y="back.raw")
            self.assertEqual([round(v) for v in floats((self.folder / "back.raw").read_bytes())],
                             [round(v) for v in floats(y)])
        # Integers of 8 bits grow in place.
        self.write("bytes.raw", [float(v % 5) for v in range(12 * 14 * 40)])
        self.write("unit.raw", [1.0])
        self.convolve(problem="ic1id12ih14iw40oc1kd1", x="bytes.raw", w="unit.raw", y="bytes.h5")
        self.run_cli("convert", "bytes.h5", "bytes8.tif", "--type", "uint8")
        self.convolve(problem="ic1id12ih14iw40oc1kd1", x="bytes8.tif", w="unit.raw", y="again.raw")
        self.assertEqual(floats((self.folder / "again.raw").read_bytes()),
                         tuple(float(v % 5) for v in range(12 * 14 * 40)))

    def test_batches_and_weights_in_5d_hdf5(self):
        problem = "mb2ic3id12ih14iw40oc5kd3pd1"
        self.write("x2.raw", self.x + self.x[::-1])
        self.convolve(problem=problem, x="x2.raw")
        y = (self.folder / "y.raw").read_bytes()
        # The identity writes x and w as 5-D datasets.
        self.write("one3.raw", [1.0] * 3)
        self.convolve(problem="g3mb2ic3id12ih14iw40oc3kd1", x="x2.raw", w="one3.raw", y="x2.h5")
        self.convolve(problem="g3mb5ic3id3oc3kd1", x="w.raw", w="one3.raw", y="w.h5")
        self.convolve(problem=problem, x="x2.h5", w="w.h5", y="y2.raw")
        self.assertEqual([round(v) for v in floats((self.folder / "y2.raw").read_bytes())],
                         [round(v) for v in floats(y)])
        self.refuses(problem=problem, x="x2.raw", y="y.tif", says=["y.tif", "only HDF5", "2 samples"])
        self.refuses(x="x2.h5", y="y3.raw", says=["x2.h5", "2 x 3 x", "needs 1 x 3 x"])

    def test_whole_chunks_of_compressed_files_are_counted(self):
        shape, tile = "g3ic3id12ih14iw40oc3kd1", ("--tile", "1,3,3,5,14,40", "--engine", "direct")
        self.write("one3.raw", [1.0] * 3)
        self.convolve(problem=shape, w="one3.raw", y="x.h5")
        dense = json.loads(self.convolve(*tile, "--dry-run", "--json", problem=shape, w="one3.raw"))
        self.assertEqual(dense["bytes"]["x"], 4 * X)
        for name in ("x8.zarr", "x8.h5"):
            self.run_cli("convert", "x.h5", name, "--chunk", "8")
            chunked = json.loads(self.convolve(*tile, "--dry-run", "--json", problem=shape, x=name, w="one3.raw"))
            # Planes 0 to 4, 5 to 9, and 10 to 11 meet 8, 12 and 4 of 12 planes.
            self.assertEqual(chunked["bytes"]["x"], 4 * X * 24 // 12, name)
            self.assertEqual(chunked["runs"]["x"], 3 * 4 * 2 * 5, name)

    def test_a_volume_that_is_decoded_once_has_no_chunks(self):
        self.write("one3.raw", [1.0] * 3)
        self.convolve(problem="g3ic3id12ih14iw40oc3kd1", w="one3.raw", y="packed.nii.gz")
        report = json.loads(self.convolve("--tile", "1,3,3,5,14,40", "--engine", "direct", "--dry-run", "--json",
                                          problem="g3ic3id12ih14iw40oc3kd1", x="packed.nii.gz", w="one3.raw"))
        self.assertEqual(report["bytes"]["x"], 4 * X)

    def test_a_bias_is_added_from_any_format(self):
        self.convolve()
        bias = [3.0, -1.0, 0.0, 7.0, 2.0]
        want = [round(v) + bias[i // (Y // 5)] for i, v in enumerate(floats((self.folder / "y.raw").read_bytes()))]
        self.write("bias.raw", bias)
        self.write("one5.raw", [1.0] * 5)
        self.convolve(problem="g5ic5id1oc5kd1", x="bias.raw", w="one5.raw", y="bias.h5")
        for file in ("bias.raw", "bias.h5"):
            self.convolve("--bias", file, "--tile", "1,5,3,3,5,40", y="biased.raw")
            self.assertEqual([round(v) for v in floats((self.folder / "biased.raw").read_bytes())], want, file)
        for name, numbers in (("x", self.x), ("w", self.w), ("bias", bias)):
            self.write(f"{name}64.raw", numbers, "d")
        self.convolve("--type", "f64", "--bias", "bias64.raw", x="x64.raw", w="w64.raw", y="y64.raw")
        y64 = struct.unpack(f"<{Y}d", (self.folder / "y64.raw").read_bytes())
        self.assertEqual([round(v) for v in y64], want)
        # A bias is added once, behind the sum of all parts of the input channels.
        self.write("x40.raw", values(40 * 27, 5))
        self.write("w40.raw", values(5 * 40, 6))
        for name, tile in (("whole", "1,5,40,3,3,3"), ("split", "1,5,16,3,3,3")):
            self.convolve("--bias", "bias.raw", "--tile", tile, problem="ic40id3oc5kd1", x="x40.raw", w="w40.raw",
                          y=f"{name}.raw")
        self.assertEqual((self.folder / "whole.raw").read_bytes(), (self.folder / "split.raw").read_bytes())
        self.write("short.raw", bias[:4])
        self.refuses("--bias", "short.raw", y="z.raw", says=["short.raw", "16 bytes", "20", "check shape"])
        self.refuses("--bias", "none.raw", y="z.raw", says=["none.raw", "No such file"])
        self.refuses("--bias", "bias.h5", problem="ic3id12ih14iw40oc4kd3pd1", y="z.raw",
                     says=["bias.h5", "1 x 5 x", "needs 1 x 4 x"])
        self.convolve(y="y.zarr")
        self.refuses("--bias", "y.zarr", y="z.raw", says=["y.zarr", "cannot hold a bias", "use .raw"])
        self.fails("convolve", "--problem", PROBLEM, "--x", "x.raw", "--w", "w.raw", "--bias", "bias.raw", "--y", "bias.raw",
                   says=["y is the same file as bias"])

    def test_weights_of_a_checkpoint(self):
        self.train(expect=0)
        checkpoint = self.last()
        self.write("image.raw", [0.5] * (2 * 16 * 16))
        arguments = dict(problem="ic1id2ih16iw16oc4kd1kh3ph1", x="image.raw")
        text = self.fails("convolve", "--problem", arguments["problem"], "--x", "image.raw", "--w", checkpoint, "--y", "y.raw",
                          says=["which tensor?", "conv1.weight"])
        self.assertIn("logits.weight", text)
        self.convolve("--quiet", w=f"{checkpoint}:conv1.weight", **arguments)
        self.assertEqual((self.folder / "y.raw").stat().st_size, 4 * 4 * 2 * 16 * 16)
        without = floats((self.folder / "y.raw").read_bytes())
        self.convolve("--quiet", "--bias", f"{checkpoint}:conv1.bias", w=f"{checkpoint}:conv1.weight", **arguments)
        added = [a - b for a, b in zip(floats((self.folder / "y.raw").read_bytes()), without)]
        for channel in range(4):
            of_channel = added[channel * 512:(channel + 1) * 512]
            self.assertLess(max(of_channel) - min(of_channel), 1e-5)
        self.assertGreater(max(map(abs, added)), 1e-4)
        self.fails("convolve", "--problem", arguments["problem"], "--x", "image.raw", "--w", f"{checkpoint}:conv1.weight",
                   "--y", "z.raw", "--bias", f"{checkpoint}:conv1.weight", says=["conv1.weight", "has shape 4 x 1 x", "needs 4 of"])

    def test_a_limit_of_memory_is_kept_and_the_least_value_is_named(self):
        problem = "ic4id80oc4kd3pd1"
        with open(self.folder / "large.raw", "wb") as file:
            file.truncate(4 * 4 * 80**3)
        self.write("w4.raw", values(4 * 4 * 27, 3))
        arguments = dict(problem=problem, x="large.raw", w="w4.raw")
        report = json.loads(self.convolve("--json", "--memory", "4M", **arguments))
        self.assertLessEqual(report["peak_bytes"], 4 << 20)
        self.assertLessEqual(report["measured_peak_bytes"], 4 << 20)
        if not SANITIZED:
            self.assertLess(report["resident_peak_bytes"], (4 + 64) << 20)
        self.assertGreater(report["tiles"], 4)
        self.refuses("--memory", "10K", y="z.raw", says=["memory = 10240", "need least take", "allow at least"], **arguments)

    def test_bad_input_is_refused_before_anything_is_written(self):
        self.refuses(x="none.raw", says=["none.raw", "No such file"])
        self.refuses(problem="ic4id12ih14iw40oc5kd3pd1", w="w.raw", says=["x.raw", "bytes"])
        self.refuses("--cost", "0,1,1", says=["start = 0", "positive"])
        self.refuses("--tile", "1,5,3,0,1,1", says=["z = 0"])
        self.refuses("--engine", "fft_volume", says=["whole volumes"])
        self.refuses("--engine", "cudnn", says=["cudnn"])
        self.refuses(w="x.tif", says=["x.tif"])
        self.refuses(y="folder/y.raw", says=["folder"])
        self.fails("convolve", "--problem", PROBLEM, "--x", "x.raw", "--w", "w.raw", "--y", "x.raw",
                   says=["y is the same file as x"])
        self.assertEqual((self.folder / "x.raw").stat().st_size, 4 * X)
        self.write("w3.raw", [1.0] * 3)
        identity = "g3ic3id12ih14iw40oc3kd1"
        self.convolve(problem=identity, w="w3.raw", y="x.h5")
        before = (self.folder / "x.h5").read_bytes()
        self.fails("convolve", "--problem", identity, "--x", "x.h5", "--w", "w3.raw", "--y", "x.h5:/volume",
                   says=["y is the same file as x"])
        self.assertEqual((self.folder / "x.h5").read_bytes(), before)
        self.convolve(problem=identity, w="w3.raw", y="a.zarr:raw")
        whole = {path.name: path.read_bytes() for path in (self.folder / "a.zarr/raw").iterdir()}
        for x, y in (("a.zarr:raw", "a.zarr:/raw"), ("a.zarr:raw", "a.zarr:raw/"), ("a.zarr:raw", "a.zarr:./raw"),
                     ("a.zarr/raw", "a.zarr:raw"), ("a.zarr:raw", "a.zarr:raw/sub")):
            self.fails("convolve", "--problem", identity, "--x", x, "--w", "w3.raw", "--y", y, says=["y is the same file as x"])
        self.convolve(problem=identity, x="a.zarr:raw", w="w3.raw", y="a.zarr:other")
        self.assertEqual({path.name: path.read_bytes() for path in (self.folder / "a.zarr/raw").iterdir()}, whole)
        os.mkdir(self.folder / "a.safetensors.d")
        shutil.copy(self.folder / "w3.raw", self.folder / "a.safetensors.d/w.raw")
        self.convolve(problem=identity, w="a.safetensors.d/w.raw")

    def test_a_full_disk_or_a_kill_leaves_the_old_result(self):
        (self.folder / "y.raw").write_bytes(b"old")

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        text = self.run_cli("convolve", "--problem", PROBLEM, "--x", "x.raw", "--w", "w.raw", "--y", "y.raw", expect=1,
                            preexec=small_files)
        self.assertIn("y.raw", text)
        self.assertEqual((self.folder / "y.raw").read_bytes(), b"old")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir() if "y.raw" in p.name), ["y.raw"])

        with open(self.folder / "large.raw", "wb") as file:
            file.truncate(4 * 160**3)
        self.write("w5.raw", values(125, 3))
        process = subprocess.Popen([CONVOLUME, "convolve", "--problem", "ic1id160oc1kd5pd2", "--x", "large.raw", "--w",
                                    "w5.raw", "--y", "y.raw", "--tile", "1,1,1,1,1,160", "--engine", "reference"],
                                   cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2000):
            if any(p.name.startswith("y.raw.tmp-") for p in self.folder.iterdir()):
                break
            self.assertIsNone(process.poll(), "the convolution ended too early")
            time.sleep(0.005)
        process.kill()
        process.wait()
        self.assertEqual((self.folder / "y.raw").read_bytes(), b"old")

    def test_a_real_full_disk_leaves_no_half_written_result(self):
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True,
                                 text=True)
        if mounted.returncode != 0:
            reason = f"mounting a tmpfs is not permitted: {mounted.stderr.strip()}"
            print(reason)
            self.skipTest(reason)
        try:
            self.fill_disk(disk)
        finally:
            subprocess.run(["umount", str(disk)], check=True)

    def fill_disk(self, disk):
        # y has 1 MiB, which does not fit into 256 KiB. Noise cannot be compressed to so little.
        noise = random.Random(4)
        self.write("noise.raw", [noise.random() for _ in range(64**3)])
        self.write("unit.raw", [1.0])
        for name in ("y.raw", "y.h5", "y.tif", "y.nii", "y.zarr"):
            replaces = name in ("y.raw", "y.nii")  # the other formats refuse to replace a file that they cannot read
            if replaces:
                (disk / name).write_bytes(b"old")
            text = self.run_cli("convolve", "--problem", "ic1id64oc1kd1", "--x", "noise.raw", "--w", "unit.raw", "--y",
                                disk / name, "--tile", "1,1,1,4,64,64", "--engine", "direct", expect=1)
            self.assertIn(name, text)
            self.assertIn("No space left", text)
            if replaces:
                self.assertEqual((disk / name).read_bytes(), b"old", name)
                (disk / name).unlink()
            self.assertEqual(list(disk.rglob("*")), [], name)
            self.assertEqual(os.statvfs(disk).f_bfree, os.statvfs(disk).f_blocks, name)

    def test_ctrl_c_ends_it_without_a_file(self):
        with open(self.folder / "large.raw", "wb") as file:
            file.truncate(4 * 160**3)
        self.write("w5.raw", values(125, 3))
        process = subprocess.Popen([CONVOLUME, "convolve", "--problem", "ic1id160oc1kd5pd2", "--x", "large.raw", "--w",
                                    "w5.raw", "--y", "y.raw", "--tile", "1,1,1,1,160,160", "--engine", "reference"],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2000):
            if any(p.name.startswith("y.raw.tmp-") for p in self.folder.iterdir()):
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130, text)
        self.assertIn("interrupted", text)
        self.assertEqual([p.name for p in self.folder.iterdir() if "y.raw" in p.name], [])


if __name__ == "__main__":
    unittest.main()
