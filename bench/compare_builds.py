#!/usr/bin/env python3
"""Compares the speed of two builds of this project.

    bench/compare_builds.py --old OLD/bench --new NEW/bench [--pairs NUMBER] [--repetitions 3] [--json FILE]
                            [--only conv,net,direct,lists] [--limit RATIO] [--zoo OLD/nets/zoo]
                            [--dumps OLD/tests/contract/choices_dump NEW/tests/contract/choices_dump]

The benchmarks of both folders run in turn, each in a process of its own. `conv` is the list of headline problems
(forward and training), `net` are training iterations of three nets, and `direct` is the engine `direct` on all lists of
problems, in both layouts. `lists` is `automatic` on all lists of problems, in training with blocked tensors. The
last two are not part of a run without --only.

A pair is one process of each build, and the build that runs first changes from pair to pair. There are 5 pairs, for
`lists` 2. With --dumps, `lists` leaves out problems for which both builds make the same choice. A row fails if its
median pair is slower by more than --limit in two of three repetitions; the limit is 1.03, for `lists` 1.05. All runs
are written to FILE; none is repeated selectively. The exit status is 1 if a row fails.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# A pass of this list takes seconds to minutes, and bench/papers/swdnn.py measures it.
LARGE = ROOT / "bench/problems/swdnn.txt"
QUICK = ["--threads", "2", "--rounds", "5", "--min-seconds", "0", "--max-seconds", "0.1"]
COMMANDS = {
    "conv": [["bench_conv", "--speed-up", "--problems", str(ROOT / "bench/problems/headline.txt"),
              "--layout", "blocked", "--dir", "fwd,training", *QUICK]],
    "net": [["bench_net", "--side-by-side", "--net", "ZOO/width_depth.toml", "ZOO/unet_isotropic.toml",
             "ZOO/unet_anisotropic.toml", "--engine", "automatic", "--backend", "native", "--cache", "on",
             "--threads", "2", "--rounds", "3", "--min-seconds", "0.3"]],
    "direct": [["bench_conv", "--speed-up", "--engine", "direct", "--problems", str(problems), "--layout", layout,
                "--dir", "fwd,training", *QUICK]
               for problems in sorted(ROOT.glob("bench/problems/*.txt")) if problems != LARGE
               for layout in ("plain", "blocked")],
    "lists": [["bench_conv", "--speed-up", "--problems", str(problems), "--layout", "blocked", "--dir", "training",
               *QUICK] for problems in sorted(ROOT.glob("bench/problems/**/*.txt")) if problems != LARGE],
}
PAIRS = {"lists": 2}
LIMITS = {"lists": 1.05}


def report_of(folder: str, words: list[str]) -> dict[str, Any]:
    """Runs a benchmark once and returns its report."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.json"
        command = [os.path.join(folder, words[0]), *words[1:], "--json", str(report)]
        done = subprocess.run(command, capture_output=True, text=True)
        # A row that an engine does not support is reported, and the other rows are measured.
        if done.returncode != 0 and not ("unsupported" in done.stderr and report.exists()):
            sys.exit(f"{Path(sys.argv[0]).name}: {' '.join(command)} ended with {done.returncode}:\n"
                     f"{done.stderr}{done.stdout}")
        return json.loads(report.read_text())


def seconds_of(folder: str, words: list[str]) -> dict[str, float]:
    """Runs a benchmark once and returns the seconds of each row of its report."""
    content = report_of(folder, words)
    if words[0] == "bench_conv":
        problems = Path(words[words.index("--problems") + 1]).stem
        # The problem stands beside the name because lists have several problems of one name.
        return {f"{problems}: {row['name']} {row['problem']}, {row['dir']}, {row['layout']}, {threads}": row[key]
                for row in content["speed_ups"] for threads, key in [("1 thread", "one_s"), ("2 threads", "all_s")]}
    return {f"{row['net']}, {row['work']}": row["seconds"] for row in content["results"]}


def repetition(old: str, new: str, commands: list[list[str]], pairs: int) -> list[dict[str, dict[str, float]]]:
    """Runs the pairs of one repetition."""
    runs = []
    for pair in range(pairs):
        folders = {"old": old, "new": new}
        order = ["old", "new"] if pair % 2 == 0 else ["new", "old"]
        both: dict[str, dict[str, float]] = {"old": {}, "new": {}}
        for words in commands:
            for which in order:
                both[which].update(seconds_of(folders[which], words))
        runs.append(both)
    return runs


def median_ratios(runs: list[dict[str, dict[str, float]]]) -> dict[str, float]:
    """The median over pairs of new seconds over old seconds, by row."""
    return {row: statistics.median(run["new"][row] / run["old"][row] for run in runs) for row in runs[0]["new"]}


def report(ratios: dict[str, list[float]], limit: float) -> int:
    """Prints the ratios of all repetitions by row, and their geometric means. Returns the number of rows that fail."""
    failures = 0
    for row, all_ratios in ratios.items():
        slow = sum(ratio > limit for ratio in all_ratios)
        failed = slow * 3 >= 2 * len(all_ratios)
        failures += failed
        print(f"{row:60} {' '.join(f'{ratio:.3f}' for ratio in all_ratios)}{'  SLOWER' if failed else ''}")
    for number, of_repetition in enumerate(zip(*ratios.values())):
        print(f"repetition {number + 1}: geometric mean of new over old {statistics.geometric_mean(of_repetition):.4f}")
    return failures


def choices_of(dump: str, problems: str) -> dict[int, str]:
    """Returns {line: choice} of the problems of a list, for training with blocked tensors."""
    found = {}
    for line in subprocess.run([dump, problems], capture_output=True, text=True, check=True).stdout.splitlines():
        place, *rest = line.split(" ", 3)
        if rest[:2] == ["blocked", "training"]:
            found[int(place.rpartition(":")[2])] = rest[2]
    return found


def changed_lists(dumps: list[str], folder: str) -> list[list[str]]:
    """Writes the problems whose choices differ into lists of the same names. Returns the commands that measure them."""
    commands = []
    for words in COMMANDS["lists"]:
        at = words.index("--problems") + 1
        old, new = (choices_of(dump, words[at]) for dump in dumps)
        lines = Path(words[at]).read_text().splitlines()
        changed = [lines[number - 1] for number in sorted(new) if new[number] != old.get(number)]
        print(f"{Path(words[at]).stem}: {len(changed)} of {len(new)} choices differ", file=sys.stderr)
        if changed:
            file = Path(folder) / Path(words[at]).relative_to(ROOT)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(changed) + "\n")
            commands.append([*words[:at], str(file), *words[at + 1:]])
    return commands


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="folder with the benchmarks of the old build")
    parser.add_argument("--new", required=True, help="folder with the benchmarks of the new build")
    parser.add_argument("--pairs", type=int, help="default: 5, lists 2")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", default="conv,net", help="conv, net, direct, lists or several, separated by commas")
    parser.add_argument("--limit", type=float,
                        help="most seconds of a row, over those of the old build; default: 1.03, lists 1.05")
    parser.add_argument("--zoo", default=str(ROOT / "nets/zoo"),
                        help="folder of the nets; an old build may not know keys of today's")
    parser.add_argument("--dumps", nargs=2, metavar=("OLD", "NEW"),
                        help="choices_dump of both builds: measure only the problems of `lists` whose choices differ")
    parser.add_argument("--json", help="file for all runs")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in COMMANDS]
    if unknown:
        parser.error(f"--only {unknown[0]}: choose from {', '.join(COMMANDS)}")
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, folder)


def compare(options: argparse.Namespace, folder: str) -> int:
    """Measures and prints what the options ask for. Returns the exit status."""
    commands_of = COMMANDS if options.dumps is None else {**COMMANDS, "lists": changed_lists(options.dumps, folder)}
    record: dict[str, list] = {}
    failures = rows = 0
    for name in options.only.split(","):
        ratios: dict[str, list[float]] = {}
        record[name] = []
        for number in range(options.repetitions):
            print(f"{name}, repetition {number + 1} of {options.repetitions}", file=sys.stderr)
            commands = [[word.replace("ZOO", options.zoo) for word in words] for words in commands_of[name]]
            runs = repetition(options.old, options.new, commands, options.pairs or PAIRS.get(name, 5))
            record[name].append(runs)
            for row, ratio in median_ratios(runs).items():
                ratios.setdefault(row, []).append(ratio)
            if options.json:
                Path(options.json).write_text(json.dumps(record) + "\n")
        limit = options.limit or LIMITS.get(name, 1.03)
        failures += report(ratios, limit)
        rows += len(ratios)
    print(f"{rows - failures} rows as fast as before, {failures} slower (new over old, median of pairs)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
