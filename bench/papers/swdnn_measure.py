"""Measures what the figures of paper 003 need: the problems of its test sets, the layers of VGG-16, and the ladder."""
import math
import os
import pathlib
import re
import sys
from typing import Any, NamedTuple, Optional, Sequence

from paper_bench import Bench
from paper_record import Record
from yang_common import Command, CommandFailed

TYPES = ("float", "double")
PEERS = {"float": "onednn,im2col:openblas", "double": "im2col:openblas"}
LONG_PASS, CUT_BATCH = 10.0, 8  # seconds; samples
OPENBLAS_CORES = ("", "Haswell", "Zen", "SkylakeX")  # first its own choice
OPENBLAS_PROBLEM = "mb8ic128ih34oc128oh32kh3"


class Case(NamedTuple):
    """A problem of a test set, with what the model of the SW26010 says."""
    set: int
    problem: str
    gflops: float

    def extent(self, letters: str) -> int:
        match = re.search(rf"(?<![a-z]){letters}(\d+)", self.problem)
        assert match is not None, self.problem
        return int(match[1])


class Options(NamedTuple):
    threads: int
    rounds: int
    max_seconds: float


def test_sets(command: Command) -> list[Case]:
    model = command.run("plan", "bandwidth", "--test-sets", "--machine", "sw26010")
    return [Case(case["set"], case["name"], case["gflops"]) for case in model["cases"]]


def sizes(problem: str) -> dict[str, int]:
    found = {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", problem)}
    return {"mb": 1, **found}


def flops(problem: str) -> float:
    n = sizes(problem)
    return 2.0 * n["mb"] * n["ic"] * n["oc"] * n["oh"] ** 2 * n["kh"] ** 2


def with_batch(problem: str, batch: int) -> str:
    return re.sub(r"mb\d+", f"mb{batch}", problem)


def select_openblas(core: str) -> None:
    """Selects kernels of OpenBLAS; an empty text: those that it takes by itself."""
    if core:
        os.environ["OPENBLAS_CORETYPE"] = core
    else:
        os.environ.pop("OPENBLAS_CORETYPE", None)


def openblas_seconds(row: dict[str, Any], name: str) -> float:
    """Raises CommandFailed if bench_conv found no OpenBLAS."""
    if row.get(name) is None:
        raise CommandFailed("bench_conv finds no OpenBLAS; on Debian: apt-get install libopenblas0-pthread")
    return float(row[name])


class Measurement:
    """Measures what the record does not have yet."""

    def __init__(self, command: Command, record: Record, options: Options, machine: dict[str, Any]):
        self.record, self.options = record, options
        self.bench = Bench(command, "bench_conv")
        self.peak = machine["gflops_per_core"] * options.threads  # of the machine row, in float
        self.memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def cases(self, problems: Sequence[str]) -> None:
        """Measures problems forward, in both types, one after the other."""
        keys = [(problem, precision) for problem in dict.fromkeys(problems) for precision in TYPES]
        missing = [key for key in keys if " ".join(key) not in self.record]
        if missing:
            self.take_fastest_openblas()
        for i, (problem, precision) in enumerate(missing):
            print(f"{i + 1} of {len(missing)}: {problem} {precision}", file=sys.stderr, flush=True)
            self.record.add(f"{problem} {precision}", self.case(problem, precision))

    def take_fastest_openblas(self) -> None:
        """Selects the kernels with which OpenBLAS is fastest. It may not know this processor."""
        if "openblas" not in self.record:
            seconds = {}
            for core in OPENBLAS_CORES:
                select_openblas(core)
                try:
                    row = self.run(OPENBLAS_PROBLEM, "float", "fwd", 3, "im2col:openblas")["results"][0]
                    seconds[core] = openblas_seconds(row, "im2col_openblas_low_s")
                except CommandFailed as failure:  # kernels for another processor
                    if not core:
                        raise
                    print(f"OPENBLAS_CORETYPE={core} left out: {failure}", file=sys.stderr)
            self.record.add("openblas", min(seconds, key=lambda core: seconds[core]))
        select_openblas(self.record["openblas"])

    def has(self, problems: Sequence[str]) -> bool:
        return all(f"{problem} {precision}" in self.record for problem in problems for precision in TYPES)

    def case(self, problem: str, precision: str) -> dict[str, Any]:
        reason = self.cut(problem, precision)
        measured = with_batch(problem, CUT_BATCH) if reason else problem
        report = self.run(measured, precision, "fwd", self.options.rounds)
        return {"cut": reason, **self.row(report, measured, 1)}

    def run(self, problem: str, precision: str, direction: str, rounds: int, peers: Optional[str] = None) -> Any:
        return self.bench.report(
            "--side-by-side", "--problem", problem, "--dir", direction, "--layout", "blocked", "--threads",
            str(self.options.threads), "--precision", precision, "--peers", peers or PEERS[precision], "--rounds",
            str(rounds), "--min-seconds", "0", "--max-seconds", str(self.options.max_seconds))

    def row(self, report: dict[str, Any], problem: str, passes: int) -> dict[str, Any]:
        """Lower quartiles of all sides. A training pass counts as three passes."""
        row = report["results"][0]
        names = {"ours": "ours_low_s", "onednn": "onednn_low_s", "im2col": "im2col_openblas_low_s"}
        seconds = {f"{who}_low_s": row[key] for who, key in names.items() if row.get(key) is not None}
        return {"measured": problem, "flops": passes * flops(problem), "engine": row["engine"], "rounds": row["rounds"],
                **seconds, "peak_flops": 1e9 * report["machine"]["peak_gflops"] * self.options.threads,
                "load": report["load_average"]}

    def cut(self, problem: str, precision: str) -> str:
        """Why the batch is cut; an empty text if it is not."""
        n = sizes(problem)
        if n["mb"] <= CUT_BATCH:
            return ""
        element = 4 if precision == "float" else 8
        tensors = n["mb"] * (n["ic"] * n["ih"] ** 2 + n["oc"] * n["oh"] ** 2) * element
        # Every side has tensors of its own.
        if 4 * tensors > self.memory / 2:
            return "memory"
        slow = 0.1 * self.peak * 4 / element * 1e9
        if flops(problem) / slow < LONG_PASS:
            return ""
        short = self.run(with_batch(problem, CUT_BATCH), precision, "fwd", 1)["results"][0]
        seconds = max(value for key, value in short.items()
                      if key in ("ours_s", "onednn_s", "im2col_openblas_s") and value is not None)
        return "time" if seconds * n["mb"] / CUT_BATCH > LONG_PASS else ""

    def vgg_16(self, list_of_layers: pathlib.Path, batch: int) -> dict[str, dict[str, dict[str, Any]]]:
        """Training of each layer in both types."""
        lines = [line for line in list_of_layers.read_text().splitlines() if line and not line.startswith("#")]
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for line in lines:
            text, name = line.rstrip('"').split('n"')
            problem = with_batch(text, batch)
            for precision in TYPES:
                key = f"training {problem} {precision}"
                if key not in self.record:
                    print(f"VGG-16 {name}, {precision}", file=sys.stderr, flush=True)
                    report = self.run(problem, precision, "training", self.options.rounds, "onednn")
                    self.record.add(key, self.row(report, problem, 3))
                found.setdefault(name, {})[precision] = self.record[key]
        return found

    def ladder(self) -> dict[str, Any]:
        if "ladder" not in self.record:
            print("the ladder", file=sys.stderr, flush=True)
            report = self.bench.report("--ladder", "--threads", str(self.options.threads), "--rounds",
                                       str(self.options.rounds), "--min-seconds", "0", "--max-seconds", "600")
            self.record.add("ladder", {"steps": report["ladder"], "load": report["load_average"]})
        return dict(self.record["ladder"])


def speed(row: dict[str, Any], who: str = "ours") -> float:
    """GFLOP/s by the lower quartile."""
    return row["flops"] / row[f"{who}_low_s"] / 1e9


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
