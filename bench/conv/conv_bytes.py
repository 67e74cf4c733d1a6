#!/usr/bin/env python3
"""Counts the bytes that convolutions move beyond a core's L2, and prints them beside the cost model of fft_tiled.

    bench/conv/conv_bytes.py --bench build/release/bench/bench_conv --problems bench/problems/headline.txt [--dir fwd]

Every problem runs on one thread under cachegrind, once with three passes and once with five (bench_conv --stages).
Half of the difference is what one pass moves: the lines that miss the last level of the simulated caches. This level
has the size of the L2. The simulator does not model prefetching, non-temporal (streaming) stores (it counts them as
misses) and lines that are written back. It runs the AVX2 code, with the tiles that the model selects for AVX2.

Needs Valgrind. On Debian: apt-get install valgrind
"""
import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
from cachegrind import CachegrindError, count_events  # noqa: E402

LINE = 64
ROUNDS = (3, 5)


def run(arguments, problem, rounds):
    """Returns the bytes of a whole process, and its report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "stages.json"
        command = [
            arguments.bench, "--stages", "--problem", problem, "--dir", arguments.dir, "--layout", "blocked",
            "--threads", "1", "--rounds", str(rounds), "--min-seconds", "0", "--max-seconds", "0",
            "--json", str(report),
        ]  # fmt: skip
        if rounds > 3:
            command[command.index("--max-seconds") + 1] = "86400"
        events = count_events(command, arguments.l1, arguments.ll, arguments.simd)
        rows = json.loads(report.read_text())["stages"]
    return LINE * (events["DLmr"] + events["DLmw"]), rows


def problems_of(path):
    lines = (line.split("#")[0].strip() for line in Path(path).read_text().splitlines())
    return [line for line in lines if line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the program bench_conv")
    parser.add_argument("--problems", required=True, help="file of problems")
    parser.add_argument("--dir", default="fwd", choices=["fwd", "bwd_d", "bwd_w", "training"])
    parser.add_argument("--l1", default="32768,8,64")
    parser.add_argument("--ll", default="1048576,8,64")
    parser.add_argument("--simd", default="AVX2")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("conv_bytes.py: valgrind is missing. On Debian: apt-get install valgrind")
    print("| problem | tiles | MB by the model | MB counted |\n|---|---|---|---|")
    for problem in problems_of(arguments.problems):
        try:
            few, _ = run(arguments, problem, ROUNDS[0])
            many, rows = run(arguments, problem, ROUNDS[1])
        except CachegrindError as error:
            sys.exit(f"conv_bytes.py: {error}")
        for row in rows:
            counted = (many - few) / (ROUNDS[1] - ROUNDS[0])
            model = sum(stage["model_bytes"] for stage in row["stages"].values())
            print(f"| {row['name']} | {row['choice']} | {model / 1e6:.0f} | {counted / 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
