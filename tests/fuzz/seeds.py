#!/usr/bin/env python3
"""Writes first inputs for the fuzz targets: seeds.py FOLDER DATA CONVOLUME. DATA may be empty, CONVOLUME may be absent."""
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

SEPARATOR = b"\n====\n"
MOST = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parents[2]


def png(width, height, bits=8, color=0):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    row = b"\0" + bytes(width * bits // 8 * (3 if color == 2 else 1))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b""))


def zarr(dtype="|u1", compressor=None, chunk=bytes(24), chunks=(2, 3, 4), attributes=None, **more):
    array = {"zarr_format": 2, "shape": [4, 5, 6], "chunks": list(chunks), "dtype": dtype, "compressor": compressor,
             "fill_value": 0, "order": "C", "filters": None, **more}
    return SEPARATOR.join([json.dumps(array).encode(), json.dumps(attributes or {}).encode(), chunk])


def main():
    folder, data, convolume = (pathlib.Path(argument) for argument in sys.argv[1:4])

    def add(target, name, content):
        if (folder / target).is_dir() and len(content) <= MOST:
            (folder / target / name).write_bytes(content)

    add("nest", "direct", b"n* k* z* y* c k32 x | kz ky kx c16 x14 k16")
    add("nest", "blocking", b"FwFhFdX0(4)Y0(2)C0(3)|K0(2)Z0C1K1X1Y1N")
    add("zarr", "raw", zarr())
    add("zarr", "big", zarr(">u2", None, bytes(48), order="F", dimension_separator="."))
    add("zarr", "zlib", zarr("<f4", {"id": "zlib", "level": 1}, zlib.compress(bytes(96))))
    add("zarr", "zstd", zarr("<i8", {"id": "zstd", "level": 1}, b"\x28\xb5\x2f\xfd\x20\xc0\x55\x00\x00\x10\x00\x00\x01\x00\xbb\x2b\x80\x05"))
    add("zarr", "axes", zarr(attributes={"multiscales": [{"axes": [{"name": n, "type": "space"} for n in "zyx"], "datasets": [
        {"path": "s0", "coordinateTransformations": [{"type": "scale", "scale": [1, 2, 3]}]}]}]}))
    add("slices", "gray", SEPARATOR.join([png(5, 4), png(5, 4)]))
    add("slices", "deep", SEPARATOR.join([png(5, 4, 16), png(5, 4, 16)]))
    add("slices", "rgb", png(5, 4, 8, 2))
    for file in (ROOT / "nets/zoo").glob("*.toml"):
        add("net", file.name, file.read_bytes())
    for file in (ROOT / "nets/zoo/data").glob("*.toml"):
        add("data", file.name, file.read_bytes().replace(b"synthetic", b"other"))
    if data.name and (data / "formats").is_dir():
        for file in (data / "formats").iterdir():
            target = "nifti" if ".nii" in file.name else "tiff" if ".tif" in file.name else None
            if target:
                add(target, file.name, file.read_bytes())
    if not convolume.is_file():
        return
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        header = bytearray(352)
        struct.pack_into("<i", header, 0, 348)
        struct.pack_into("<8h", header, 40, 3, 6, 5, 4, 1, 1, 1, 1)
        struct.pack_into("<2h", header, 70, 2, 8)
        struct.pack_into("<f", header, 108, 352)
        header[344:348] = b"n+1\0"
        (work / "a.nii").write_bytes(bytes(header) + bytes(range(120)))
        for target, out, codec in (("hdf5", "a.h5", "deflate"), ("hdf5", "raw.h5", "raw"), ("tiff", "a.tif", "deflate"),
                                   ("nifti", "a.nii.gz", ""), ("zarr", "a.zarr", "blosc")):
            codecs = ["--codec", codec] if codec else []
            subprocess.run([convolume.resolve(), "convert", "a.nii", out, "--quiet", *codecs], cwd=work, check=True,
                           stdout=subprocess.DEVNULL)
            if target == "zarr":
                parts = [(work / out / part).read_bytes() for part in (".zarray", ".zattrs", "0.0.0")]
                add(target, "blosc", SEPARATOR.join(parts))
            else:
                add(target, out, (work / out).read_bytes())
        shutil.copy(work / "a.nii", folder / "nifti") if (folder / "nifti").is_dir() else None
        (work / "net.toml").write_text('name = "n"\n[input]\npatch = [1, 5, 5]\n[[node]]\nname = "c"\ntype = "conv"\n'
                                       'out_channels = 1\nkernel = [1, 3, 3]\n')
        (work / "data.toml").write_text('name = "d"\n[synthetic]\nextent = [4, 16, 16]\n[[train]]\nslices = [0, 4]\n')
        subprocess.run([convolume.resolve(), "train", "net.toml", "--data", "data.toml", "--out", "run", "--iterations",
                        "1", "--quiet"], cwd=work, check=True, stdout=subprocess.DEVNULL)
        add("safetensors", "checkpoint", (work / "run/checkpoints/last.safetensors").read_bytes())


if __name__ == "__main__":
    main()
