#!/usr/bin/env python3
"""Compares `convolume convert` with nibabel, zarr-python, tifffile and h5py: what they write is read, and what it writes
they read.

Usage: volumes_test.py CONVOLUME. The exit status is 77 if build/peers is missing.
"""
import itertools
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/peers"))
import environment  # noqa: E402

environment.enter()
environment.check("nibabel", "zarr", "numpy", "tifffile", "h5py")
import h5py  # noqa: E402
import nibabel  # noqa: E402
import numcodecs  # noqa: E402
import numpy as np  # noqa: E402
import tifffile  # noqa: E402
import zarr  # noqa: E402

CONVOLUME = sys.argv.pop(1)
TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


def volume(dtype, channels=1, shape=(5, 7, 9)):
    """An array [c][z][y][x], or [z][y][x] with one channel, of all kinds of bytes."""
    shape = ((channels,) if channels > 1 else ()) + shape
    random = np.random.default_rng(5)
    if dtype[-2] == "f":
        return random.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, dtype=np.dtype(dtype).newbyteorder("="), endpoint=True).astype(dtype)


def to_nifti(array):
    """[c][z][y][x] to NIfTI's [i][j][k][t]."""
    return array.transpose(2, 1, 0) if array.ndim == 3 else array.transpose(3, 2, 1, 0)


class Volumes(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def convert(self, source, target, *options):
        subprocess.run([CONVOLUME, "convert", str(source), str(target), "--quiet", *options], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL, timeout=60)

    def read(self, source):
        """What convolume reads, through a raw Zarr."""
        self.convert(source, "read.zarr", "--codec", "raw")
        return zarr.open(str(self.folder / "read.zarr"), "r")[:]

    def test_nifti_of_nibabel_is_read(self):
        kinds = itertools.product(["<", ">"], TYPES, [1, 3], ["a.nii", "a.nii.gz"])
        for order, dtype, channels, name in kinds:
            for image_class in (nibabel.Nifti1Image, nibabel.Nifti2Image):
                with self.subTest(order=order, dtype=dtype, channels=channels, name=name, image_class=image_class):
                    array = volume(order + dtype, channels)
                    header = image_class.header_class(endianness=order)
                    header.set_data_dtype(order + dtype)
                    nibabel.save(image_class(to_nifti(array), np.diag([1, 2, 3, 1]), header), self.folder / name)
                    self.assertTrue((self.read(name) == array).all())

    def test_nifti_is_read_by_nibabel_with_its_geometry(self):
        for name, channels in itertools.product(["b.nii", "b.nii.gz"], [1, 3]):
            with self.subTest(name=name, channels=channels):
                array = volume("<i2", channels)
                affine = np.array([[0, -2, 0, 5], [1.5, 0, 0, -7], [0, 0, 3, 9], [0, 0, 0, 1.0]])
                image = nibabel.Nifti1Image(to_nifti(array), affine)
                image.set_qform(affine, 1)
                nibabel.save(image, self.folder / "a.nii")
                self.convert("a.nii", name)
                back = nibabel.load(self.folder / name)
                self.assertTrue((np.asarray(back.dataobj) == to_nifti(array)).all())
                self.assertTrue(np.allclose(back.affine, affine, atol=1e-5))
                self.assertTrue(np.allclose(back.get_qform(), affine, atol=1e-5))
                self.convert("a.nii", "part.nii", "--box", "1:4,2:7,3:9")
                part = nibabel.load(self.folder / "part.nii")
                origin = affine @ [3, 2, 1, 1]
                for form in (part.get_sform(), part.get_qform()):
                    self.assertTrue(np.allclose(form[:, 3], origin, atol=1e-4))

    def test_slope_and_intercept_are_those_of_nibabel(self):
        image = nibabel.Nifti1Image(to_nifti(volume("<i2")), np.eye(4))
        image.header.set_slope_inter(0.25, -3)
        nibabel.save(image, self.folder / "a.nii.gz")
        expected = nibabel.load(self.folder / "a.nii.gz").get_fdata().transpose(2, 1, 0)
        self.assertTrue(np.allclose(self.read("a.nii.gz"), expected, rtol=1e-6))

    def test_zarr_of_zarr_python_is_read(self):
        codecs = [None, numcodecs.Zlib(3), numcodecs.GZip(3), numcodecs.Zstd(3)]
        codecs += [numcodecs.Blosc(cname, 5, shuffle) for cname in numcodecs.blosc.list_compressors() for shuffle in (0, 1, 2)]
        for codec in codecs:
            for order, separator, dtype in itertools.product("CF", "./", ["<u2", ">i4", "<f8", "|u1"]):
                with self.subTest(codec=codec, order=order, separator=separator, dtype=dtype):
                    array = volume(dtype)
                    store = zarr.DirectoryStore(str(self.folder / "z.zarr"))
                    made = zarr.open(store, "w", shape=array.shape, chunks=(2, 4, 5), dtype=dtype, compressor=codec,
                                     order=order, dimension_separator=separator)
                    made[:] = array
                    self.assertTrue((self.read("z.zarr") == array).all())

    def test_channels_and_absent_chunks_of_zarr_python_are_read(self):
        made = zarr.open(str(self.folder / "z.zarr"), "w", shape=(3, 5, 7, 9), chunks=(2, 2, 4, 5), dtype="<i2", fill_value=-7)
        made[1, 1:3, :, 2:6] = volume("<i2", 1, (2, 7, 4))
        self.assertTrue((self.read("z.zarr") == made[:]).all())

    def test_zarr_is_read_by_zarr_python(self):
        for dtype, channels, codec in itertools.product(TYPES, [1, 3], ["raw", "zstd", "blosc"]):
            with self.subTest(dtype=dtype, channels=channels, codec=codec):
                array = volume("<" + dtype if dtype[1] != "1" else "|" + dtype, channels)
                nibabel.save(nibabel.Nifti1Image(to_nifti(array), np.eye(4), dtype=array.dtype), self.folder / "a.nii")
                self.convert("a.nii", "b.zarr:/s0", "--codec", codec, "--chunk", "3,4,5")
                back = zarr.open(str(self.folder / "b.zarr"), "r")["s0"]
                self.assertEqual(back.dtype, array.dtype)
                self.assertTrue((back[:] == array).all())

    def test_volumes_are_turned_as_nibabel_turns_them(self):
        array = volume("<i2")
        tilt = np.array([[1, 0.1, -0.05], [-0.1, 1, 0.08], [0.06, -0.07, 1]])
        for axes, signs in itertools.product(itertools.permutations(range(3)), itertools.product([1, -1], repeat=3)):
            affine = np.eye(4)
            affine[:3, :3] = tilt @ (np.eye(3)[:, axes] * signs) @ np.diag([1, 2, 3])
            affine[:3, 3] = [5, -7, 9]
            image = nibabel.Nifti1Image(to_nifti(array), affine)
            nibabel.save(image, self.folder / "a.nii")
            for target in ("RAS", "PIL"):
                with self.subTest(axes=axes, signs=signs, target=target):
                    self.convert("a.nii", "b.nii", "--orientation", target)
                    transform = nibabel.orientations.ornt_transform(nibabel.io_orientation(affine),
                                                                    nibabel.orientations.axcodes2ornt(target))
                    expected, back = image.as_reoriented(transform), nibabel.load(self.folder / "b.nii")
                    self.assertEqual("".join(nibabel.aff2axcodes(back.affine)), target)
                    self.assertTrue((np.asarray(back.dataobj) == np.asarray(expected.dataobj)).all())
                    self.assertTrue(np.allclose(back.affine, expected.affine, atol=1e-4))
                    self.assertTrue(np.allclose(back.header.get_zooms(), expected.header.get_zooms(), atol=1e-5))

    def test_tiff_of_tifffile_is_read(self):
        for dtype in TYPES + ["?", "f2"]:
            for order, more in itertools.product("<>", [{}, {"tile": (16, 16)}, {"compression": "zlib"}, {"bigtiff": True}]):
                with self.subTest(dtype=dtype, order=order, more=more):
                    array = volume("u1") > 100 if dtype == "?" else volume("<" + dtype)
                    tifffile.imwrite(self.folder / "a.tif", array, byteorder=order, metadata=None, photometric="minisblack", **more)
                    self.assertTrue((self.read("a.tif") == array).all())

    def test_ome_tiff_of_tifffile_is_read(self):
        sizes = {f"PhysicalSize{axis}": size for axis, size in zip("ZYX", (0.05, 0.004, 0.005))}
        sizes |= {f"PhysicalSize{axis}Unit": "\u00b5m" for axis in "ZYX"}
        for axes in ("ZYX", "ZCYX", "CZYX"):
            with self.subTest(axes=axes):
                array = volume("<u2", 3) if "C" in axes else volume("<u2")
                stored = array.transpose(1, 0, 2, 3) if axes == "ZCYX" else array
                tifffile.imwrite(self.folder / "a.ome.tif", stored, ome=True, photometric="minisblack",
                                 metadata={"axes": axes, **sizes})
                self.assertTrue((self.read("a.ome.tif") == array).all())
                self.convert("a.ome.tif", "b.zarr")
                spacing = zarr.open(str(self.folder / "b.zarr"), "r").attrs["element_size_um"]
                self.assertTrue(np.allclose(spacing, [0.05, 0.004, 0.005]))

    def test_imagej_stacks_of_tifffile_are_read_and_ours_are_read_by_it(self):
        array = volume("<u2")
        tifffile.imwrite(self.folder / "a.tif", array, imagej=True, metadata={"axes": "ZYX", "spacing": 2.5, "unit": "um"},
                         resolution=(4.0, 4.0))
        self.assertTrue((self.read("a.tif") == array).all())
        self.convert("a.tif", "b.tif")
        with tifffile.TiffFile(self.folder / "b.tif") as back:
            self.assertTrue((back.asarray() == array).all())
            self.assertEqual(back.imagej_metadata["spacing"], 2.5)

    def test_hdf5_of_h5py_is_read_and_ours_is_read_by_it(self):
        enumeration = h5py.enum_dtype({"background": 0, "cell": 1, "membrane": 2}, basetype="u1")
        kinds = [(volume("u1") > 100, {}), (volume("u1") % 3, {"dtype": enumeration}), (volume("<f2"), {})]
        kinds += [(volume("<" + dtype), {"chunks": (2, 3, 4), "compression": "lzf", "shuffle": shuffle})
                  for dtype in TYPES for shuffle in (False, True)]
        kinds += [(volume("<i4") % 1000, {"chunks": (2, 3, 4), "scaleoffset": 0})]
        for array, more in kinds:
            with self.subTest(dtype=array.dtype, more=more):
                with h5py.File(self.folder / "a.h5", "w") as file:
                    file.create_dataset("raw", data=array, **more)
                self.assertTrue((self.read("a.h5") == array).all())
                self.convert("a.h5", "b.h5")
                with h5py.File(self.folder / "b.h5", "r") as file:
                    self.assertTrue((file["volume"][:] == array).all())

    def test_axes_booleans_and_short_floats_of_zarr_python_are_read(self):
        for axes, order in itertools.product(["".join(p) for p in itertools.permutations("zyxc")] + ["xyz", "yzx", "tzyx"], "CF"):
            with self.subTest(axes=axes, order=order):
                array = volume("<u2", 3) if "c" in axes else volume("<u2")
                own = "czyx" if "c" in axes else "zyx"
                stored = array.transpose([own.index(a) for a in axes if a != "t"])
                stored = stored[None] if "t" in axes else stored
                group = zarr.open_group(str(self.folder / "a.zarr"), "w")
                made = group.create_dataset("0", shape=stored.shape, chunks=tuple(min(n, 2 + i) for i, n in enumerate(stored.shape))
                                            if "t" not in axes else (1, 2, 3, 4), dtype="<u2", order=order)
                made[:] = stored
                group.attrs["multiscales"] = [{"version": "0.4", "axes": [{"name": a} for a in axes], "datasets": [{"path": "0"}]}]
                self.assertTrue((self.read("a.zarr") == array).all())
        for array in (volume("u1") > 100, volume("<f2"), volume(">f2")):
            with self.subTest(dtype=array.dtype):
                zarr.save_array(str(self.folder / "b.zarr"), array, chunks=(2, 3, 4))
                self.assertTrue((self.read("b.zarr") == array).all())


if __name__ == "__main__":
    unittest.main()
