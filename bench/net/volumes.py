#!/usr/bin/env python3
"""Measures how volumes are read and segmented.

  bench/net/volumes.py [--build build/native] [--only reading|inference] [--gib 1] [--large] [--json FILE]
  bench/net/volumes.py --only reading --old OTHER_BUILD

Reading: seconds over those of cp, and bytes read for a box over those of its chunks. Inference: seconds over those of
the net alone, PyTorch's sliding window, and, with --large, the memory for 2 Gvoxel (about ten minutes). Reading makes a volume of random bytes in each format in a temporary folder, so it needs about ten times as much disk space.
All times are with a warm cache. The commands alternate, and the least of five times counts for both. With --old, the
reading programs of both builds alternate nine times, and the ratio is that of the medians.
"""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import inference

CHUNK = 64


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def seconds_of_copy(source, target):
    start = time.perf_counter()
    if source.is_dir():
        run("cp", "-r", source, target)
    else:
        run("cp", source, target)
    seconds = time.perf_counter() - start
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    return seconds


def touched(extent, box, chunk):
    """Bytes of the chunks that a cube touches. It lies where bench_volumes reads it."""
    total = 1
    for n, shift, size in zip(extent, (3, 5, 7), chunk):
        first = (n - box) // 2 + shift
        begin, end = first // size, -(-(first + box) // size)
        total *= sum(min(size, n - i * size) for i in range(begin, end))
    return total


def in_turn(options, bench, path):
    """The median seconds of nine reads by the other build, and of nine by this one."""
    times = ([], [])
    for turn in range(9):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            program = options.old / "bench/bench_volumes" if which == 0 else bench
            times[which].append(json.loads(run(program, path, "--rounds", 1))[0]["seconds"])
    return statistics.median(times[0]), statistics.median(times[1])


def reading(options):
    """Prints the table, and returns its numbers."""
    convolume, bench = options.build / "tools/convolume", options.build / "bench/bench_volumes"
    # 2000 pages, as large as asked for.
    edge = int(math.sqrt(options.gib * 2**30 / 2000)) // CHUNK * CHUNK
    extent = (2000, edge, edge)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        header = folder / "a.nii"
        with open(header, "wb") as out:
            import struct
            head = bytearray(352)
            struct.pack_into("<i", head, 0, 348)
            struct.pack_into("<8h", head, 40, 3, edge, edge, 2000, 1, 1, 1, 1)
            struct.pack_into("<2h", head, 70, 2, 8)
            struct.pack_into("<8f", head, 76, 1, 1, 1, 1, 1, 1, 1, 1)
            struct.pack_into("<f", head, 108, 352)
            head[344:348] = b"n+1\0"
            out.write(head)
            for _ in range(extent[0]):
                out.write(os.urandom(edge * edge))
        formats = {"NIfTI": ("a.nii", "a.nii", (1, 1, edge), []), "TIFF": ("a.tif", "a.tif", None, []),
                   "HDF5": ("a.h5", "a.h5:/volume", (CHUNK,) * 3, ["--chunk", CHUNK]),
                   "Zarr": ("a.zarr", "a.zarr", (CHUNK,) * 3, ["--chunk", CHUNK])}
        for label, (file, path, chunk, more) in formats.items():
            if label != "NIfTI":
                run(convolume, "convert", header, folder / path, "--codec", "raw", "--quiet", *more)
            if chunk is None:  # strips of at most 256 KiB
                chunk = (1, min(edge, max(1, (256 << 10) // edge)), edge)
            ours, copies = [], []
            for _ in range(5):
                copies.append(seconds_of_copy(folder / file, folder / "copy"))
                ours.append(json.loads(run(bench, folder / path, "--rounds", 1))[0]["seconds"])
            old, new = in_turn(options, bench, folder / path) if options.old else (0, 0)
            box = json.loads(run(bench, folder / path, "--edge", 64, "--rounds", 1))[0]
            rows.append({"format": label, "seconds": min(ours), "cp_seconds": min(copies),
                         "over_cp": min(ours) / min(copies), "old_seconds": old, "new_seconds": new,
                         "box_bytes_read": box["bytes_read"],
                         "touched_bytes": touched(extent, 64, chunk),
                         "over_touched": box["bytes_read"] / touched(extent, 64, chunk)})
            if label != "NIfTI":
                shutil.rmtree(folder / file) if (folder / file).is_dir() else (folder / file).unlink()
    print(f"volume of {extent[0]} x {edge} x {edge} uint8, {extent[0] * edge * edge / 2**30:.2f} GiB\n")
    print("| format | read | cp | read over cp | bytes for a cube of 64 over those of its chunks |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['format']} | {row['seconds']:.3f} s | {row['cp_seconds']:.3f} s | {row['over_cp']:.2f} | "
              f"{row['over_touched']:.2f} |")
    if options.old:
        print("\n| format | old | new | new over old |\n|---|---|---|---|")
        for row in rows:
            old, new = row["old_seconds"], row["new_seconds"]
            print(f"| {row['format']} | {old:.3f} s | {new:.3f} s | {new / old:.3f} |")
    return {"extent": extent, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build/native"))
    parser.add_argument("--only", choices=["reading", "inference"])
    parser.add_argument("--old", type=Path, help="another build, whose reading is compared")
    parser.add_argument("--gib", type=float, default=1, help="size of the volume that is read")
    parser.add_argument("--rounds", type=int, default=5, help="of inferences")
    parser.add_argument("--threads", type=int, default=2, help="of inferences")
    parser.add_argument("--large", action="store_true", help="segment 2 Gvoxel too")
    parser.add_argument("--memory", default="1G", help="for the large volume")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = {}
    if options.only != "inference":
        report["reading"] = reading(options)
    if options.only != "reading":
        with tempfile.TemporaryDirectory() as name:
            report["inference"] = inference.table(options.build.resolve(), Path(name), options)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
