"""Makes the pages of bench/results.py from its data: tables, the list of losses, plots. Reads files, writes none."""
import functools
import json
import math
import pathlib
import re
import shlex
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence

import results_data
import results_svg

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
    ("onednn", "*"): "oneDNN computes this row on both sides; our timing includes the packing of weights",
    ("task_group", "*"): "the task group keeps no priorities and no order at all",
    ("larson", "*"): "small blocks, for which no allocator takes page faults that ours would save",
    ("handover", "*"): "small blocks that another thread frees; on two threads this measures the waiting of two busy "
                       "processors",
}
UNKNOWN = "not explained yet"

PASSES = {"fwd": "forward", "bwd_d": "backward data", "bwd_w": "weight gradient", "training": "training"}
NOTICEABLE = 0.95  # ratios from here to 1 are within the noise of the machine
# Lists in bench/problems/published.
PUBLISHED = ("i3d", "mobilenet", "nnunet_brain_tumour", "nnunet_heart", "nnunet_hippocampus", "nnunet_prostate",
             "nnunet_spleen", "resnet50", "resnet50_3d", "resnext101_3d", "vgg16")
LISTS = ("anisotropic", "depthwise", "dilated_strided", "grouped", "kernels", "paper_nets", "planar", "unet3d")
NETS = ("width_depth", "unet_isotropic", "unet_anisotropic")
RUNNERS = {"flow_graph": "`tbb::flow::graph`", "task_group": "`tbb::task_group`"}
FFT_PLOT, HEADLINE_PLOT = "plots/fft_r2c.svg", "plots/conv_headline.svg"

INTRODUCTION = """# Results

`bench/results.py --render` makes this page from the files in `data/`; do not edit it.
A ratio is the peer's time over our time, so more than 1 means that we are faster.
Times are medians over interleaved rounds.
Brackets hold the quartiles of the ratios of single rounds. A ratio below 1 is bold.
"In time" divides the lower quartiles of both sides on two threads, "one thread" the medians on one.
The worse of these two is the ratio that counts ([method.md](method.md), rule 4).
[method.md](method.md) says how we measure, [losses.md](losses.md) lists every row with a ratio
below 1, and [log/zen4.md](log/zen4.md) has the tables of earlier runs.
"""


# The README's table: what a row is called there, and its name in the headline list.
README_PROBLEMS = (
    ("kernel 3: 32 to 32 channels, 64³", "32-to-32-64-k3"), ("kernel 5: 32 to 32 channels, 64³", "32-to-32-64-k5"),
    ("kernel 7: 32 to 32 channels, 48³", "32-to-32-48-k7"), ("first layer: 1 to 32 channels, 96³, kernel 5",
                                                             "1-to-32-96-k5"),
    ("kernel 1: 32 to 32 channels, 48³", "32-to-32-48-k1"),
    ("depthwise: 48 channels, 48³, kernel 7", "depthwise-48-48-k7-padded"),
    ("small deep layer: 256 to 256 channels, 8³, kernel 3", "256-to-256-8-k3-padded"))
README_NETS = (("8 layers of 30 channels, kernel 5", "width_depth"), ("isotropic U-Net, 64³", "unet_isotropic"),
               ("anisotropic U-Net, 8 x 128 x 128", "unet_anisotropic"))
README_BEGIN, README_END = "<!-- results: bench/results.py --render writes this part -->\n", "<!-- end of results -->\n"


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
    return found


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


# --- FFT ---

def size_class(n: int) -> str:
    """The classes of bench_fft: smooth (prime factors up to 13), prime, or other."""
    rest, largest, p = n, 1, 2
    while p * p <= rest:
        while rest % p == 0:
            largest, rest = p, rest // p
        p += 1
    largest = max(largest, rest)
    return "smooth" if largest <= 13 else "prime" if largest == n else "other"


def fft_tables(data: Json) -> str:
    """Geometric means by class of N, and the sizes with the least ratio."""
    rows = data["report"]["results"]
    names = {"all": "all", "smooth": "prime factors up to 13", "prime": "primes from 17", "other": "other"}
    means = []
    for kind, name in names.items():
        chosen = [row["ratio"] for row in rows if kind in ("all", size_class(row["n"]))]
        if chosen:
            means.append([name, str(len(chosen)), digits(mean(chosen)), digits(min(chosen))])
    worst = sorted(rows, key=lambda row: (row["ratio"], row["n"]))[:5]
    cells = [[str(row["n"]), seconds_text(row["native_s"]), seconds_text(row["fftw_s"]), ratio_text(row)]
             for row in worst]
    return (table(["N", "sizes", "geometric mean of the ratios", "worst"], means)
            + "\nThe five sizes with the least ratio:\n\n"
            + table(["N", "our time", "FFTW's time", "ratio"], cells) + f"\n![Ratio over N]({FFT_PLOT})\n")


def fft_plot(data: Json) -> str:
    """The plot of all ratios over N."""
    rows = sorted(data["report"]["results"], key=lambda row: row["n"])
    points = [results_svg.Point(row["n"], row["ratio"], row["ratio_low"], row["ratio_high"], size_class(row["n"]))
              for row in rows]
    return results_svg.ratio_over_n("FFT of real cubes, one thread: FFTW's time over ours", "ratio", points,
                                    mean([point.ratio for point in points]))


def fft_losses(data: Json) -> list[Loss]:
    """Sizes at which FFTW is faster."""
    return [Loss(row["ratio"], data["name"], f"N = {row['n']}, {row['kind']}", "FFTW",
                 f"{seconds_text(row['native_s'])}, {seconds_text(row['fftw_s'])}", spread(row), "native",
                 reason("native", size_class(row["n"])))
            for row in data["report"]["results"] if row["ratio"] < 1]


# --- convolutions ---

def descriptor(problem: str) -> dict[str, int]:
    """The numbers of a problem in benchdnn's grammar, by their letters."""
    return {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", problem)}


def kind_of(row: Json) -> str:
    """The property of a problem that explains a loss best; REASONS is keyed by it."""
    p = descriptor(row["problem"])
    voxels = math.prod(p.get("o" + axis, 1) for axis in "dhw")
    # The first one that holds counts.
    kinds = (("microseconds", row["ours_s"] < 5e-4),
             ("small and deep", voxels <= 1000 and p["ic"] >= 128 and p.get("g", 1) == 1),
             ("strided", any(p.get("s" + axis, 1) > 1 for axis in "dhw")),
             ("dilated", any(p.get("d" + axis, 0) > 0 for axis in "dhw")),
             ("depthwise", p.get("g", 1) == p["ic"] > 1),
             ("grouped", p.get("g", 1) > 1),
             ("kernel 1", all(p.get("k" + axis, 1) == 1 for axis in "dhw")),
             ("few channels", p["ic"] < 8),
             ("planar", p.get("kd", 1) == 1))
    return next((name for name, holds in kinds if holds), "dense")


def short_name(row: Json) -> str:
    """The name in the list of problems, without the name of the list."""
    return row["name"].split(":", 1)[-1]


class Compared(NamedTuple):
    """A problem in one pass: the row on all threads, the row on one thread if there is one, and what counts."""
    row: Json
    one_thread: Optional[Json]
    ratio: Optional[float]  # the worse of both, see method.md; None without oneDNN

    def worse(self) -> Json:
        """The row that `ratio` comes from."""
        return self.one_thread if self.one_thread and self.one_thread.get("ratio") == self.ratio else self.row


def compared(data: Json) -> list[Compared]:
    """Rows of a report, joined to those on one thread."""
    rows = data["report"]["results"]
    one_thread = {(row["name"], row["dir"]): row for row in rows if row["threads"] == 1}
    joined = []
    for row in rows:
        if row["threads"] == 1:
            continue
        single = one_thread.get((row["name"], row["dir"]))
        ratios = [row["ratio_in_time"]] + ([single["ratio"]] if single else []) if row.get("onednn_s") else []
        joined.append(Compared(row, single, min(ratios, default=None)))
    return joined


def plain_ratio(value: float) -> str:
    return f"**{digits(value)}**" if value < 1 else digits(value)


def conv_row(problem: Compared) -> list[str]:
    """The cells of one problem in one pass."""
    row, single = problem.row, problem.one_thread
    cells = [short_name(row), f"`{row['engine']}`", seconds_text(row["ours_s"])]
    if row.get("onednn_s"):
        cells += [seconds_text(row["onednn_s"]), ratio_text(row), plain_ratio(row["ratio_in_time"]),
                  f"{plain_ratio(single['ratio'])} ({seconds_text(single['ours_s'])})" if single else "-"]
    else:
        cells += ["-"] * 4
    return cells + [f"{100 * row['floor_fraction']:.0f} %"]


def conv_tables(data: Json) -> str:
    """A table for each pass."""
    problems = compared(data)
    head = ["problem", "engine", "our time", "oneDNN's time", "ratio", "in time", "one thread (our time)",
            "share of the floor"]
    text = "" if any(problem.ratio for problem in problems) else "oneDNN did not take part.\n\n"
    for direction in dict.fromkeys(problem.row["dir"] for problem in problems):
        cells = [conv_row(problem) for problem in problems if problem.row["dir"] == direction]
        text += f"{PASSES[direction].capitalize()}:\n\n" + table(head, cells) + "\n"
    return text


def conv_summary(all_data: dict[str, Json], folder: pathlib.Path) -> str:
    """Geometric means of all lists that were measured."""
    cells = []
    for name in ("headline_blocked", *LISTS):
        data = all_data.get(f"conv_{name}")
        if data:
            cells += guarded(folder, f"conv_{name}", lambda: conv_means(name, compared(data)))
    if not cells:
        return ""
    head = ["list", "pass", "problems", "geometric mean of the ratios", "of the ratios that count", "least",
            f"rows below {NOTICEABLE}"]
    return table(head, cells) + "\n"


def conv_means(name: str, problems: Sequence[Compared]) -> list[list[str]]:
    """A row of the summary for each pass of one list."""
    cells = []
    for direction in dict.fromkeys(problem.row["dir"] for problem in problems):
        chosen = [problem for problem in problems if problem.row["dir"] == direction and problem.ratio]
        if chosen:
            ratios = [problem.ratio for problem in chosen]
            cells.append([name, PASSES[direction], str(len(ratios)),
                          digits(mean([problem.row["ratio"] for problem in chosen])), digits(mean(ratios)),
                          digits(min(ratios)), str(sum(ratio < NOTICEABLE for ratio in ratios))])
    return cells


def conv_plot(data: Json) -> Optional[str]:
    """The plot of forward and training ratios, None without oneDNN."""
    bars = [results_svg.Bar(short_name(row), PASSES[row["dir"]], row["ratio"], row["ratio_low"], row["ratio_high"])
            for row, _, ratio in compared(data) if ratio and row["dir"] in ("fwd", "training")]
    if not bars:
        return None
    return results_svg.ratio_bars("Headline convolutions: oneDNN's time over ours", "ratio, logarithmic axis", bars)


def conv_losses(data: Json) -> list[Loss]:
    """Problems and passes in which oneDNN is faster by the ratio that counts."""
    losses = []
    for problem in compared(data):
        row, worse, ratio = problem.row, problem.worse(), problem.ratio
        if ratio is None or ratio >= 1:
            continue
        what, times = f"{short_name(row)}, {PASSES[row['dir']]}", ("ours_low_s", "onednn_low_s")
        if worse is problem.one_thread:
            what, times = f"{what}, one thread", ("ours_s", "onednn_s")
        losses.append(Loss(ratio, data["name"], what, "oneDNN", ", ".join(seconds_text(worse[key]) for key in times),
                           spread(worse), row["engine"], reason(row["engine"], kind_of(row))))
    return losses


# --- nets ---

def same_net(row: Json, ratio: Json) -> bool:
    return row["net"] == ratio["net"] and row["work"] == ratio["work"]


def our_net(report: Json, ratio: Json) -> Json:
    """Our row of a ratio: the one with automatic choice, where several engines of ours took turns."""
    rows = [row for row in report["results"] if same_net(row, ratio)]
    return next((row for row in rows if row.get("engine", "automatic") == "automatic"), rows[0])


def peer_net(report: Json, ratio: Json) -> tuple[str, Json]:
    """Name and row of the peer: the faster format of PyTorch, or the contestant of ours with another engine."""
    for row in report.get("peers", []):
        if same_net(row, ratio) and row.get("faster"):
            return f"PyTorch {row['version']}", row
    ours = our_net(report, ratio)
    others = [row for row in report["results"] if same_net(row, ratio) and row is not ours]
    return (f"engine {others[0].get('engine', 'unknown')}", others[0]) if others else ("unknown", {})


def net_ratios(report: Json) -> list[Json]:
    """The ratios of a report, training first."""
    return sorted(report.get("ratios", []), key=lambda ratio: ratio["work"] != "training")


def net_table(data: Json) -> str:
    """A row for each ratio of the report."""
    report = data["report"]
    cells = []
    for ratio in net_ratios(report):
        ours, (name, peer) = our_net(report, ratio), peer_net(report, ratio)
        cells.append([ratio["work"], seconds_text(ours["seconds"]), name,
                      seconds_text(peer["seconds"]) if peer else "-", ratio_text(ratio),
                      mebibytes(ours.get("peak_bytes")), mebibytes(ours.get("resident_bytes")),
                      mebibytes(peer.get("resident_bytes"))])
    if not cells:
        return "The peer did not take part.\n"
    head = ["work", "our time", "peer", "its time", "ratio", "our peak, MiB", "our resident memory, MiB"]
    return table([*head, "the peer's, MiB"], cells)


def net_losses(data: Json) -> list[Loss]:
    """Work in which the peer is faster."""
    report, losses = data["report"], []
    for ratio in net_ratios(report):
        if ratio["ratio"] < 1:
            ours, (name, peer) = our_net(report, ratio), peer_net(report, ratio)
            times = f"{seconds_text(ours['seconds'])}, {seconds_text(peer['seconds']) if peer else '-'}"
            losses.append(Loss(ratio["ratio"], data["name"], f"{ratio['net']}, {ratio['work']}", name, times,
                               spread(ratio), "automatic", reason("net", ratio["work"])))
    return losses


# --- scheduler and allocator ---

def nanoseconds(row: Json) -> str:
    return f"{digits(row['ns_per_task'])} ({digits(row['ns_per_task_low'])}-{digits(row['ns_per_task_high'])})"


def by_key(rows: Iterable[Json], *keys: str) -> dict[tuple[Any, ...], list[Json]]:
    """Rows with the same values of these keys, in the order of the report."""
    groups: dict[tuple[Any, ...], list[Json]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def scheduler_table(data: Json) -> str:
    """A row for each graph and number of threads."""
    cells = []
    for (graph, threads), rows in by_key(data["report"]["results"], "graph", "threads").items():
        runners = {row["runner"]: row for row in rows}
        ours = runners["convolume"]
        cells.append([graph, f"{ours['tasks']:,}", f"{ours['edges']:,}", str(threads), nanoseconds(ours),
                      *(ratio_text(runners[name]) if name in runners else "-" for name in RUNNERS)])
    head = ["graph", "tasks", "edges", "threads", "ns of wall time x threads per empty task"]
    return table([*head, *(f"{name}, times ours" for name in RUNNERS.values())], cells)


def scheduler_losses(data: Json) -> list[Loss]:
    """Graphs on which a peer is faster."""
    losses = []
    for (graph, threads), rows in by_key(data["report"]["results"], "graph", "threads").items():
        ours = next(row for row in rows if row["runner"] == "convolume")
        losses += [Loss(row["ratio"], data["name"], f"{graph}, {threads_text(threads)}",
                        RUNNERS.get(row["runner"], row["runner"]),
                        f"{digits(ours['ns_per_task'])} ns, {digits(row['ns_per_task'])} ns", spread(row), "scheduler",
                        reason(row["runner"], "*")) for row in rows if row["ratio"] < 1]
    return losses


def peak_over_live(row: Json) -> str:
    live = row.get("live_peak_bytes")
    return digits(row["peak_bytes"] / live) if live else "-"


def alloc_table(data: Json) -> str:
    """A row for each work and number of threads."""
    rows = data["report"]["results"]
    peers = [name for name in dict.fromkeys(row["allocator"] for row in rows) if name != "slab"]
    cells = []
    for (work, threads), group in by_key(rows, "work", "threads").items():
        one = {row["allocator"]: row for row in group}
        ours, others = one["slab"], [one[name] for name in peers if name in one]
        cells.append([work, str(threads), seconds_text(ours["seconds"]),
                      *(ratio_text(one[name]) if name in one else "-" for name in peers), peak_over_live(ours),
                      ", ".join(map(peak_over_live, others)) if ours.get("live_peak_bytes") else "-"])
    return table(["work", "threads", "our time", *(f"{name}, times ours" for name in peers), "our peak over live bytes",
                  "theirs"], cells)


def alloc_losses(data: Json) -> list[Loss]:
    """Work in which another allocator is faster."""
    losses = []
    for (work, threads), rows in by_key(data["report"]["results"], "work", "threads").items():
        ours = next(row for row in rows if row["allocator"] == "slab")
        losses += [Loss(row["ratio"], data["name"], f"{work}, {threads_text(threads)}", row["allocator"],
                        f"{seconds_text(ours['seconds'])}, {seconds_text(row['seconds'])}", spread(row), "SlabResource",
                        reason(work, "*")) for row in rows if row["ratio"] < 1]
    return losses


# --- pages ---

LOSSES: tuple[tuple[str, Callable[[Json], list[Loss]]], ...] = (
    ("fft_", fft_losses), ("conv_", conv_losses), ("net_", net_losses), ("scheduler", scheduler_losses),
    ("alloc", alloc_losses))


def results_page(all_data: dict[str, Json], folder: pathlib.Path) -> str:
    """The text of results.md."""
    def part(title: str, name: str, make: Callable[[Json], str]) -> str:
        return f"{title}\n\n{section(all_data, folder, name, make).strip()}\n"

    headline = "conv_headline_blocked"
    parts = [INTRODUCTION, part("## FFT", "fft_r2c", fft_tables),
             "## Convolutions\n\nThe peer is oneDNN. The floor is the least time that the machine could take;\n"
             "[method.md](method.md#the-floor) defines it.\n\n" + conv_summary(all_data, folder),
             part("### headline", headline, conv_tables)]
    if conv_plot_of(all_data, folder):
        parts.append(f"![Ratios of the headline list]({HEADLINE_PLOT})\n")
    parts += [part(f"### {name}", f"conv_{name}", conv_tables) for name in LISTS]
    parts.append("## Nets\n\nOne iteration of training, or one inference, on two threads.\n")
    parts += [part(f"### {net} beside {peer}", f"net_{key}_{net}", net_table)
              for net in NETS for key, peer in (("torch", "PyTorch"), ("onednn", "oneDNN's engine"))]
    parts += [part("## Scheduler", "scheduler", scheduler_table), part("## Allocator", "alloc", alloc_table)]
    return "\n".join(parts)


def published_shares(all_data: dict[str, Json], folder: pathlib.Path) -> str:
    """The share of noticeable losses in each list of a published net, or nothing if none was measured."""
    data = all_data.get("conv_published")
    if not data:
        return ""
    problems = guarded(folder, "conv_published", lambda: compared(data))
    lists: dict[str, list[float]] = {}
    for problem in problems:
        if problem.ratio:
            lists.setdefault(problem.row["name"].split(":", 1)[0], []).append(problem.ratio)
    cells = [[name, str(len(ratios)), digits(mean(ratios)), digits(min(ratios)),
              f"{100 * sum(ratio < NOTICEABLE for ratio in ratios) / len(ratios):.0f} %"]
             for name, ratios in lists.items()]
    head = ["net", "rows", "geometric mean", "least", f"share of rows below {NOTICEABLE}"]
    return ("\n## Published nets\n\nThe layers of these nets stand in `bench/problems/published/`: forward and "
            "training on two threads,\nby lower quartiles. " + provenance(data) + "\n" + table(head, cells))


def losses_page(all_data: dict[str, Json], folder: pathlib.Path) -> str:
    """The text of losses.md."""
    losses: list[Loss] = []
    for name, data in all_data.items():
        make = next((make for prefix, make in LOSSES if name.startswith(prefix)), None)
        if make:
            losses += guarded(folder, name, lambda: make(data))
    names = ["fft_r2c", "conv_headline_blocked", *(f"conv_{name}" for name in LISTS),
             *(f"net_{peer}_{net}" for net in NETS for peer in ("torch", "onednn")), "scheduler", "alloc"]
    missing = [name for name in names if name not in all_data]
    quick = [name for name in names if all_data.get(name, {}).get("quick")]
    text = """# Where a peer is faster

`bench/results.py --render` makes this page from the files in `data/`; do not edit it.
It lists every measured row in which a peer takes less time than this library, the worst first.
Of convolutions it shows the ratio that counts: lower quartiles on two threads, or medians on one
thread if that is worse ([method.md](method.md), rule 4).
[results.md](results.md) has all rows with machine, date and command.
The reasons come from the [log](README.md#the-log). "Not explained yet" means that nobody has looked
into the row.
"""
    if not all_data:
        return text + "\n" + not_measured("fft,conv,net,scheduler,alloc")
    for what, some in (("Not measured", missing), ("From a quick run", quick)):
        if some:
            text += f"\n{what}: {', '.join(some)}.\n"
    if not losses:
        return text + "\nNo peer is faster in any measured row.\n" + published_shares(all_data, folder)
    cells = [[loss.measurement, loss.what, loss.peer, loss.times, f"{digits(loss.ratio)} ({loss.quartiles})",
              loss.engine, loss.reason] for loss in sorted(losses)]
    head = ["measurement", "row", "peer", "our time, its time", "ratio", "engine", "reason"]
    return text + f"\n{len(losses)} rows:\n\n" + table(head, cells) + published_shares(all_data, folder)


def readme_conv_rows(data: Json) -> list[list[str]]:
    """Forward passes of the headline list: the ratio that counts, and the quartiles of its row."""
    forward = {short_name(problem.row): problem for problem in compared(data) if problem.row["dir"] == "fwd"}
    cells = []
    for title, name in README_PROBLEMS:
        problem = forward.get(name)
        if problem and problem.ratio:
            row = problem.row
            cells.append([f"{title}, forward", seconds_text(row["ours_s"]), "oneDNN", seconds_text(row["onednn_s"]),
                          f"{plain_ratio(problem.ratio)} ({spread(problem.worse())})"])
    return cells


def readme_net_rows(title: str, data: Json) -> list[list[str]]:
    """The training iteration of one net beside one peer."""
    report, cells = data["report"], []
    for ratio in net_ratios(report):
        if ratio["work"] == "training":
            ours, (name, peer) = our_net(report, ratio), peer_net(report, ratio)
            name = "our framework with oneDNN's convolutions" if name == "engine onednn" else name
            cells.append([f"{title}, training iteration", seconds_text(ours["seconds"]), name,
                          seconds_text(peer["seconds"]) if peer else "-", ratio_text(ratio)])
    return cells


def readme_table(all_data: dict[str, Json], folder: pathlib.Path) -> str:
    """What the README says between its marks: machines, commits and one table, without quick runs."""
    makers = {"conv_headline_blocked": readme_conv_rows}
    for title, net in README_NETS:
        for key in ("torch", "onednn"):
            makers[f"net_{key}_{net}"] = functools.partial(readme_net_rows, title)
    sources: list[str] = []
    cells: list[list[str]] = []
    for name, make in makers.items():
        data = all_data.get(name)
        if data and not data.get("quick"):
            cells += guarded(folder, name, lambda: make(data))
            machine = data["machine"]
            sources.append(f"{machine['processor']} (machine row `{machine['row']}`), {machine['threads']} cores, "
                           f"{data['date'].split()[0]}, commit `{data['commit']}`.")
    if not cells:
        return "\nNot measured yet; run `bench/results.py --run`.\n\n"
    return ("\n" + "\n".join(dict.fromkeys(sources)) + "\n\n"
            + table(["float, two threads", "our time", "peer", "its time", "ratio"], cells) + "\n")


def readme(data: pathlib.Path, text: str) -> str:
    """The README's text with the table of `data`. Raises DataError if the marks are missing."""
    before, begin, rest = text.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise DataError(f"README.md: the lines {README_BEGIN.strip()} and {README_END.strip()} are missing; put them "
                        "around the place of the table")
    return before + begin + readme_table(load(data), data) + end + after


def conv_plot_of(all_data: dict[str, Json], folder: pathlib.Path) -> Optional[str]:
    """The plot of the headline list, None if it has not been measured."""
    name = "conv_headline_blocked"
    return guarded(folder, name, lambda: conv_plot(all_data[name])) if name in all_data else None


def pages(folder: pathlib.Path) -> dict[str, Optional[str]]:
    """{path of a page or plot: its text}, None for a plot without data. Raises DataError for a broken file."""
    all_data = load(folder)
    fft = guarded(folder, "fft_r2c", lambda: fft_plot(all_data["fft_r2c"])) if "fft_r2c" in all_data else None
    return {"results.md": results_page(all_data, folder), "losses.md": losses_page(all_data, folder),
            FFT_PLOT: fft, HEADLINE_PLOT: conv_plot_of(all_data, folder)}
