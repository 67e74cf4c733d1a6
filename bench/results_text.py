"""What all pages of bench/results.py share: words, numbers, tables, data files, and why a peer is faster."""
import json
import math
import pathlib
import shlex
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence

import results_data

Json = dict[str, Any]


class DataError(Exception):
    """A data file that cannot be used; the text names the file."""


class Loss(NamedTuple):
    """A row in which a peer is faster than this library."""
    ratio: float
    measurement: str
    what: str
    peer: str
    times: str
    quartiles: str
    engine: str
    reason: str


# Why a peer is faster, by engine (or runner or allocator) and kind of row; "*" stands for every kind. A row that finds
# nothing here says that nobody knows yet. Sources: docs/performance/log.
REASONS: dict[tuple[str, str], str] = {
    ("direct", "microseconds"): "passes below half a millisecond: each task and each step of a kernel has a fixed "
                                "cost, and a busy neighbour on the core slows direct more than oneDNN",
    ("direct", "small and deep"): "small deep layers: weights are packed inside our timing and rows of a few voxels "
                                  "read them often; oneDNN's weights are packed before",
    ("direct", "strided"): "strided kernels: short rows of voxels that lie apart",
    ("direct", "kernel 1"): "kernels of one voxel: both sides are near the floor",
    ("direct", "few channels"): "first layers: rows of a single channel need more addresses than registers hold",
    ("direct", "dense"): "both sides are near the peak; direct takes more instructions per multiply-add, which counts "
                         "if a neighbour uses the core too",
    ("direct", "planar"): "as for dense kernels: more instructions per multiply-add",
    ("direct", "dilated"): "as for dense kernels: more instructions per multiply-add",
    ("direct", "grouped"): "groups of 16 channels compute one vector of results, with 1.6 instructions per multiply-add",
    ("fft_tiled", "microseconds"): "layers of microseconds: the fixed cost per task",
    ("fft_tiled", "grouped"): "groups of few channels leave lanes idle on the side of the results",
    ("fft_tiled", "strided"): "strided kernels: each polyphase component is a kernel of 2 or 3 voxels, for which a "
                              "transform hardly pays",
    ("fft_tiled", "dilated"): "dilated kernels: dense problems of small volumes, for which a transform hardly pays",
    ("fft_tiled", "planar"): "small planes: the spectra of the weights take longer than the model says",
    ("net", "bfloat16"): "OpenVINO computes in bfloat16, with 8 bits of mantissa; we compute in float",
    ("onednn", "*"): "oneDNN computes this row on both sides; our timing includes the packing of weights",
    ("task_group", "*"): "the task group keeps no priorities and no order at all",
    ("larson", "*"): "small blocks, for which no allocator takes page faults that ours would save",
    ("handover", "*"): "small blocks that another thread frees; on two threads this measures the waiting of two busy "
                       "processors",
}
UNKNOWN = "not explained yet"


# --- words and numbers ---

def seconds_text(seconds: float) -> str:
    """A time with three digits in the unit that suits it."""
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{digits(seconds / factor)} {unit}"
    return f"{digits(seconds / 1e-9)} ns"


def digits(value: float) -> str:
    """Three significant digits, no exponent."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value >= 0.9995 else f"{value:.3f}"


def spread(row: Json, prefix: str = "") -> str:
    return f"{digits(row[prefix + 'ratio_low'])}-{digits(row[prefix + 'ratio_high'])}"


def ratio_text(row: Json, prefix: str = "") -> str:
    """The ratio with its quartiles; bold where the peer is faster, so that losses are seen."""
    ratio = row[prefix + "ratio"]
    return f"{f'**{digits(ratio)}**' if ratio < 1 else digits(ratio)} ({spread(row, prefix)})"


def mebibytes(value: Optional[float]) -> str:
    return "-" if value is None else f"{value / 2**20:.1f}"


def mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells) + "\n"


def threads_text(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def provenance(data: Json) -> str:
    """Machine, commit, date and command, as they stand above each table."""
    machine = data["machine"]
    family = f" (family {machine['family']}, model {machine['model']})" if machine.get("family") else ""
    quick = " Quick run: fewer problems and rounds." if data.get("quick") else ""
    return (f"{machine['processor']}{family}, {machine['threads']} hardware threads, {machine['simd']}, "
            f"machine row `{machine['row']}`, load average {machine.get('load_average', 'unknown')}.\n"
            f"Commit `{data['commit']}`, {data['date']}.{quick}\n\n```\n{data['command']}\n```\n")


def not_measured(name: str) -> str:
    return f"Not measured yet; run `bench/results.py --run --only {name}`.\n"


def reason(engine: str, kind: str) -> str:
    return REASONS.get((engine, kind)) or REASONS.get((engine, "*")) or UNKNOWN


# --- data ---

def load(folder: pathlib.Path) -> dict[str, Json]:
    """{name of a measurement: content of its file, with lists of rows}; raises DataError for a file that is none of
    ours."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{file}: cannot be read as JSON ({error}); run the measurement again") from error
        if not isinstance(data, dict) or data.get("name") != file.stem or not isinstance(data.get("report"), dict):
            raise DataError(f"{file}: not a file of bench/results.py --run with the name {file.stem}")
        try:
            if not isinstance(data["command"], list):
                raise results_data.FormError("\"command\" is not a list of words")
            found[file.stem] = {**data, "command": shlex.join(data["command"]),
                                "report": results_data.expanded(data["report"])}
        except (KeyError, TypeError, results_data.FormError) as error:
            raise DataError(f"{file}: not in the form of bench/results_data.py ({error}); run the measurement again "
                            "with bench/results.py --run") from error
        require_facts_of_torch(file, found[file.stem]["report"])
    return found


def require_facts_of_torch(file: pathlib.Path, report: Json) -> None:
    """Raises DataError if PyTorch took part and its version or its BLAS is missing: a slow BLAS would flatter us."""
    said = [row for row in report.get("peers", []) if row["peer"] == "torch"]
    if any("torch_s" in row for row in report.get("results", [])):
        said.append(report.get("machine", {}).get("torch") or {})
    if any(not facts.get("version") or not facts.get("blas") for facts in said):
        raise DataError(f"{file}: a row of PyTorch has no version or no BLAS; run the measurement again with "
                        "bench/results.py --run")


def section(all_data: dict[str, Json], folder: pathlib.Path, name: str, make: Callable[[Json], str]) -> str:
    """What `make` says about one measurement below its provenance, or that it has not been measured."""
    if name not in all_data:
        return not_measured(name)
    return guarded(folder, name, lambda: provenance(all_data[name]) + "\n" + make(all_data[name]))


def guarded(folder: pathlib.Path, name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns; an unexpected shape of the data becomes a DataError that names the file."""
    try:
        return make()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"{folder / (name + '.json')}: unexpected content ({type(error).__name__}: {error})") from error
