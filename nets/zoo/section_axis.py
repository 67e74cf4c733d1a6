"""Cuts the patches of nets/zoo/data/section_axis.toml from the volume of ISBI 2012.

    python3 nets/zoo/section_axis.py CONVOLUME TRAIN-VOLUME.tif OUT

CONVOLUME is the command, which reads the TIFF. Each patch has 24 x 24 x 24 voxels. It is stored three times as NIfTI,
with the axis across the sections along Z, Y and X, in OUT/training/CLASS or OUT/validation/CLASS. So all classes have
the same voxels, and no histogram tells them apart. Training patches overlap, and lie in the left half of the plane.
Validation patches do not overlap, and lie in the right half.
"""

import pathlib
import struct
import subprocess
import sys
import tempfile

SIZE = 24


def read_volume(convolume, tiff):
    """Returns the voxels, [section][y][x], and the three extents."""
    with tempfile.TemporaryDirectory() as folder:
        nifti = pathlib.Path(folder) / "volume.nii"
        subprocess.run([convolume, "convert", str(tiff), str(nifti), "--type", "uint8", "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        data = nifti.read_bytes()
    x, y, z = struct.unpack_from("<3h", data, 42)
    return data[int(struct.unpack_from("<f", data, 108)[0]):], (z, y, x)


def header():
    """Returns the header of NIfTI-1 for a patch of bytes without a geometry."""
    text = bytearray(352)
    struct.pack_into("<i", text, 0, 348)
    struct.pack_into("<8h", text, 40, 3, SIZE, SIZE, SIZE, 1, 1, 1, 1)
    struct.pack_into("<2h", text, 70, 2, 8)  # uint8
    struct.pack_into("<8f", text, 76, *[1.0] * 8)
    struct.pack_into("<f", text, 108, len(text))
    text[344:348] = b"n+1\0"
    return bytes(text)


def turned(rows):
    """Returns the voxels of a patch by the axis across the sections. rows[section][y] holds voxels along X."""
    along_y = [b"".join(section[y] for section in rows) for y in range(SIZE)]  # [y][section][x]
    return {"z": b"".join(b"".join(section) for section in rows),
            "y": b"".join(along_y),
            "x": b"".join(plane[x::SIZE] for plane in along_y for x in range(SIZE))}


def cut(volume, sections, columns, step, folder):
    """Cuts patches with the first voxels 0, step, 2 step, ... along Y, and so on along X within the columns."""
    voxels, (_, height, width) = volume
    count = 0
    for name in "zyx":
        (folder / name).mkdir(parents=True, exist_ok=True)
    for z in sections:
        for y in range(0, height - SIZE + 1, step):
            for x in range(columns[0], columns[1] - SIZE + 1, step):
                begin = [[((z + s) * height + y + r) * width + x for r in range(SIZE)] for s in range(SIZE)]
                rows = [[voxels[at:at + SIZE] for at in section] for section in begin]
                for name, patch in turned(rows).items():
                    (folder / name / f"{z}-{y}-{x}.nii").write_bytes(header() + patch)
                    count += 1
    return count


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    volume, out = read_volume(sys.argv[1], sys.argv[2]), pathlib.Path(sys.argv[3])
    depth, _, width = volume[1]
    training = cut(volume, (0, depth - SIZE), (0, width // 2), 16, out / "training")
    validation = cut(volume, (0,), (width // 2, width), SIZE, out / "validation")
    print(f"{training} patches for training, {validation} for validation in {out}")


if __name__ == "__main__":
    main()
