#!/usr/bin/env python3
"""Compares the speed of double with that of float, on the rows that the engine `direct` serves in float.

    bench/compare_types.py [--build build/release/bench] [--pairs 3] [--limit 2.3] [--json FILE] [FILE ...]

FILE is a list of problems; the default is all lists in bench/problems but swdnn.txt. Each problem is measured forward
and in training, with blocked tensors, on one thread and on two. A pair is one process in float and one in double. The
type that runs first changes from pair to pair. The ratio of a row is double's seconds over float's, the median of the
pairs. All runs are written to the file of --json; none is repeated. The exit status is 1 if a ratio is above --limit.
"""
import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import compare_builds

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["--speed-up", "--layout", "blocked", "--threads", "2", "--dir", "fwd,training", "--rounds", "9",
         "--min-seconds", "0", "--max-seconds", "0.2"]
TYPES = ("float", "double")


def measured(build: str, problem: str, precision: str) -> dict[str, dict[str, Any]]:
    """Runs a problem in a process. Returns the choice and the seconds of each row, by direction and threads."""
    words = ["bench_conv", *WORDS, "--problem", problem, "--precision", precision]
    rows = compare_builds.report_of(build, words)["speed_ups"]  # none if no engine serves the problem
    return {f"{row['dir']}, {threads}": {"choice": row["choice"], "seconds": row[key]}
            for row in rows for threads, key in [("1 thread", "one_s"), ("2 threads", "all_s")]}


def problems_of(files: list[Path]) -> dict[str, str]:
    """The problems of lists, by list and line."""
    lines = [(file.stem, line.split("#")[0].strip()) for file in files for line in file.read_text().splitlines()]
    return {f"{stem}: {line}": line for stem, line in lines if line}


def direct_rows(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The rows that `direct` serves."""
    return [row for row, content in rows.items() if content["choice"].startswith("direct")]


def compare(build: str, problems: dict[str, str], pairs: int) -> dict[str, list[dict[str, dict[str, Any]]]]:
    """Runs all pairs. Problems that `direct` does not serve in float have no runs in the result."""
    runs: dict[str, list[dict[str, dict[str, Any]]]] = {name: [] for name in problems}
    for pair in range(pairs):
        for name, problem in problems.items():
            if pair > 0 and not runs[name]:
                continue
            order = TYPES if pair % 2 == 0 else TYPES[::-1]
            both = {order[0]: measured(build, problem, order[0])}
            if pair == 0 and not direct_rows(both["float"]):
                continue
            both[order[1]] = measured(build, problem, order[1])
            kept = [row for row in direct_rows(both["float"]) if row in both["double"]]
            runs[name].append({precision: {row: both[precision][row] for row in kept} for precision in TYPES})
    return {name: of for name, of in runs.items() if of}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build/release/bench"), help="folder with the benchmarks")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=2.3, help="largest allowed ratio")
    parser.add_argument("--json", help="file for all runs")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="lists of problems")
    options = parser.parse_args()
    files = options.files or [file for file in sorted(ROOT.glob("bench/problems/*.txt"))
                              if file != compare_builds.LARGE]
    for file in files:
        if not file.exists():
            parser.error(f"{file} does not exist; give lists of problems such as bench/problems/kernels.txt")
    if options.pairs < 1:
        parser.error(f"--pairs is {options.pairs}; give at least 1")
    if not (Path(options.build) / "bench_conv").exists():
        parser.error(f"{options.build} has no bench_conv; build it with: ninja -C build/release bench/bench_conv")
    runs = compare(options.build, problems_of(files), options.pairs)
    if not runs:
        print("`direct` serves none of these problems in float")
        return 0
    if options.json:
        Path(options.json).write_text(json.dumps(runs) + "\n")
    ratios = {f"{name}, {row}": [pair["double"][row]["seconds"] / pair["float"][row]["seconds"] for pair in pairs]
              for name, pairs in runs.items() for row in pairs[0]["float"]}
    medians = {row: statistics.median(of_pairs) for row, of_pairs in ratios.items()}
    above = sum(median > options.limit for median in medians.values())
    for row, median in sorted(medians.items(), key=lambda item: -item[1]):
        of_pairs = " ".join(f"{ratio:.2f}" for ratio in ratios[row])
        print(f"{row:100} {median:5.2f}  ({of_pairs}){'  ABOVE' if median > options.limit else ''}")
    mean = statistics.geometric_mean(medians.values())
    print(f"{len(ratios)} rows, {above} above {options.limit}; geometric mean of double over float {mean:.3f}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
