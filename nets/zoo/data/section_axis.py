#!/usr/bin/env python3
"""Cuts the patches of nets/zoo/data/section_axis.toml from the volume of ISBI 2012.

    python3 nets/zoo/data/section_axis.py CONVOLUME TRAIN-VOLUME.tif OUT

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

import numpy as np

SIZE = 24
ORDERS = {"z": (0, 1, 2), "y": (1, 0, 2), "x": (1, 2, 0)}  # of the axes section, y, x of the volume


def read_volume(convolume, tiff):
    """Returns the voxels as [section][y][x]."""
    with tempfile.TemporaryDirectory() as folder:
        nifti = pathlib.Path(folder) / "volume.nii"
        subprocess.run([convolume, "convert", str(tiff), str(nifti), "--type", "uint8", "--quiet"], check=True)
        data = nifti.read_bytes()
    x, y, z = struct.unpack_from("<3h", data, 42)
    return np.frombuffer(data, np.uint8, offset=int(struct.unpack_from("<f", data, 108)[0])).reshape(z, y, x)


def write_patch(path, voxels):
    """Writes bytes [z][y][x] as NIfTI-1 without a geometry."""
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *reversed(voxels.shape), 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 2, 8)  # uint8
    struct.pack_into("<8f", header, 76, *[1.0] * 8)
    struct.pack_into("<f", header, 108, len(header))
    header[344:348] = b"n+1\0"
    path.write_bytes(bytes(header) + np.ascontiguousarray(voxels).tobytes())


def cut(volume, columns, step, folder):
    """Cuts patches with the first voxels 0, step, 2 step, ... along Y, and so on along X within the columns."""
    count = 0
    for name in ORDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for z in sorted({0, volume.shape[0] - SIZE}):
        for y in range(0, volume.shape[1] - SIZE + 1, step):
            for x in range(columns[0], columns[1] - SIZE + 1, step):
                patch = volume[z:z + SIZE, y:y + SIZE, x:x + SIZE]
                for name, order in ORDERS.items():
                    write_patch(folder / name / f"{z}-{y}-{x}.nii", patch.transpose(order))
                    count += 1
    return count


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    volume, out = read_volume(sys.argv[1], sys.argv[2]), pathlib.Path(sys.argv[3])
    middle = volume.shape[2] // 2
    training = cut(volume, (0, middle), 16, out / "training")
    # Sections 0 to 23 alone: patches at both depths would overlap.
    validation = cut(volume[:SIZE], (middle, volume.shape[2]), SIZE, out / "validation")
    print(f"{training} patches for training, {validation} for validation in {out}")


if __name__ == "__main__":
    main()
