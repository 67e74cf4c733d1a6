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
    palette = chunk(b"PLTE", bytes(9)) if color == 3 else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)) + palette +
            chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b""))


def tiff(pages, bits, kind=1, description=b"", behind=0):
    """Pages of 5 x 6 pixels. `behind` bytes follow the last page."""
    out = bytearray(b"II*\0" + struct.pack("<I", 8))
    for page in range(pages):
        data = bytes((6 * bits + 7) // 8 * 5)
        tags = [(256, 4, 1, 6), (257, 4, 1, 5), (258, 3, 1, bits), (262, 3, 1, 1), (273, 4, 1, 0), (278, 4, 1, 5),
                (279, 4, 1, len(data)), (339, 3, 1, kind)]
        text = description + b"\0" if description and page == 0 else b""
        if text:
            tags.append((270, 2, len(text), 0))
        after = len(out) + 2 + 12 * len(tags) + 4
        places = {270: after, 273: after + len(text)}
        following = after + len(text) + len(data)
        out += struct.pack("<H", len(tags))
        for tag, type_, count, value in sorted(tags):
            out += struct.pack("<HHII", tag, type_, count, places.get(tag, value))
        out += struct.pack("<I", following if page + 1 < pages else 0) + text + data
    return bytes(out + bytes(behind))


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
    add("zarr", "half", zarr("<f2", None, bytes(48)))
    add("zarr", "bool", zarr("|b1", fill_value=True))
    add("zarr", "text", zarr("<u2", None, bytes(48), fill_value="7"))
    add("zarr", "turned", zarr(attributes={"multiscales": [{"axes": [{"name": n, "unit": u} for n, u in (
        ("x", "nanometer"), ("y", "micrometer"), ("z", "section"))], "datasets": [
        {"path": "s0", "coordinateTransformations": [{"scale": [1, 2, 3]}, {"translation": [1, 2, 3]}]}],
        "coordinateTransformations": [{"scale": [2, 2, 2]}]}]}))
    add("zarr", "named", zarr(attributes={"_ARRAY_DIMENSIONS": ["y", "x", "z"]}))
    ome = (b'<OME><Image><Pixels DimensionOrder="XYCZT" SizeZ="1" SizeC="2" SizeT="1" PhysicalSizeX="1" PhysicalSizeY="1" '
           b'PhysicalSizeZ="0.05" PhysicalSizeZUnit="mm"><TiffData IFD="1"/><TiffData FirstC="1" PlaneCount="1"/></Pixels>'
           b'</Image></OME>')
    add("tiff", "ome", tiff(2, 8, description=ome))
    add("tiff", "imagej", tiff(1, 8, description=b"ImageJ=1.53\nimages=2\nslices=2\nspacing=2\nunit=um\n", behind=30))
    add("tiff", "half", tiff(1, 16, kind=3))
    add("tiff", "bool", tiff(1, 1))
    add("data", "turned", b"name = 'a'\norientation = 'RAS'\n[intensity]\nnan = 0\n[label]\nclasses = [0, [1, 2.5]]\nignore = [-1]\n"
        b"[[train]]\nimage = 'a.nii'\nlabel = 'b.nii'\nbox = [[0, 1], [0, 2], [0, 3]]\n")
    add("slices", "palette", png(5, 4, 8, 3))
    add("slices", "bool", png(8, 4, 1))
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
