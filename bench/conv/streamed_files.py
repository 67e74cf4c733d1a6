#!/usr/bin/env python3
"""Measures `convolume convolve` from file to file: cached raw files, HDF5 and Zarr.

    bench/conv/streamed_files.py [--problem ic16id128oc16kd3pd1] [--memory 64M] [--rounds 3] [--folder FOLDER]
                                 [--convolume build/native/tools/convolume]

Prints a table with one row per format, with medians of all rounds in seconds. Transfers alone and computation alone are
the busy times of a run with --unbuffered, which does one after the other. All files lie in the page cache when they are
read, and y is synced at the end. Files of about twice the size of x and y for each format are written to a temporary
folder in --folder. Needs Python 3 only. Problems need one sample, no groups, and explicit ic, id and oc.
"""
import argparse
import array
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
from typing import Any

FORMATS = {"raw": "raw", "HDF5": "h5", "Zarr": "zarr"}


def run(arguments: argparse.Namespace, *words: str) -> str:
    result = subprocess.run([arguments.convolume, *words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"convolume {' '.join(words)} ended with {result.returncode}:\n{result.stderr.strip()}")
    return result.stdout


def write_noise(file: pathlib.Path, count: int) -> None:
    """Writes integers between 0 and 255 as floats, as volumes of microscopes have them. They repeat after 65536."""
    draw = random.Random(1)
    block = array.array("f", (float(draw.randrange(256)) for _ in range(65536))).tobytes()
    file.write_bytes((block * (4 * count // len(block) + 1))[:4 * count])


def measure(arguments: argparse.Namespace, folder: pathlib.Path, ending: str) -> dict[str, Any]:
    """Returns the medians of a format, and the tiles."""
    runs: dict[str, list[dict[str, Any]]] = {"at once": [], "in turn": []}
    for _ in range(arguments.rounds):
        for way, words in (("at once", []), ("in turn", ["--unbuffered"])):
            text = run(arguments, "convolve", "--problem", arguments.problem, "--x", str(folder / f"x.{ending}"), "--w",
                       str(folder / "w.raw"), "--y", str(folder / f"y.{ending}"), "--memory",
                        arguments.memory, "--json",
                       *words)
            runs[way].append(json.loads(text))
    middle = {(way, key): statistics.median(one[key] for one in runs[way])
              for way in runs for key in ("seconds", "transfer_s", "compute_s")}
    tile = runs["at once"][0]["tile"]
    return {"at_once": middle["at once", "seconds"], "transfer": middle["in turn", "transfer_s"],
            "compute": middle["in turn", "compute_s"], "in_turn": middle["in turn", "seconds"],
            "tiles": runs["at once"][0]["tiles"], "tile": " ".join(f"{key}{tile[key]}" for key in "nkzyxc")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="ic16id128oc16kd3pd1")
    parser.add_argument("--memory", default="64M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--convolume", default="build/native/tools/convolume")
    arguments = parser.parse_args()
    size = {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", arguments.problem)}
    extents = [size.get("id", 0)] + [size.get(key, size.get("id", 0)) for key in ("ih", "iw")]
    kernel = [size.get("kd", 0)] + [size.get(key, size.get("kd", 0)) for key in ("kh", "kw")]
    channels, voxels = size.get("ic", 0), extents[0] * extents[1] * extents[2]
    positive = min(channels, size.get("oc", 0), voxels, *kernel, arguments.rounds) > 0
    if not positive or "g" in size or size.get("mb", 1) > 1:
        sys.exit(f"--problem {arguments.problem} --rounds {arguments.rounds}: name ic, id, oc and kd, one sample, no "
                 "groups, and at least one round")
    with tempfile.TemporaryDirectory(prefix="convolume-streamed-", dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        write_noise(folder / "x.raw", channels * voxels)
        write_noise(folder / "w.raw", size["oc"] * channels * kernel[0] * kernel[1] * kernel[2])
        (folder / "one.raw").write_bytes(array.array("f", [1.0] * channels).tobytes())
        identity = f"g{channels}ic{channels}id{extents[0]}ih{extents[1]}iw{extents[2]}oc{channels}kd1"
        for ending in FORMATS.values():
            if ending != "raw":  # a convolution with ones converts x
                run(arguments, "convolve", "--problem", identity, "--x", str(folder / "x.raw"),
                    "--w", str(folder / "one.raw"), "--y", str(folder / f"x.{ending}"), "--quiet")
        print("| files | tiles | transfers alone | computation alone | in turn | at once | ratio |")
        print("|---" * 7 + "|")
        for format_name, ending in FORMATS.items():
            row = measure(arguments, folder, ending)
            longest = max(row["transfer"], row["compute"])
            print(f"| {format_name} | {row['tiles']} of {row['tile']} | {row['transfer']:.2f} s | "
                  f"{row['compute']:.2f} s | {row['in_turn']:.2f} s | {row['at_once']:.2f} s | "
                  f"{row['at_once'] / longest:.2f} |", flush=True)
        print(f"\nload average at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
