"""Makes the pages of bench/results.py from its data: tables, the list of losses, plots. Reads files, writes none."""
import functools
import pathlib
from typing import Any, Callable, Iterable, Optional

import results_svg
from results_conv import NOTICEABLE, compared, conv_losses, conv_means, conv_plot, conv_tables, readme_conv_rows
from results_nets import net_losses, net_table, readme_net_rows
from results_text import (DataError, Json, Loss, digits, guarded, load, mean, not_measured, provenance, ratio_text,
                          reason, seconds_text, section, spread, table, threads_text)

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
Lists of convolutions without a column of PyTorch have Debian's oneDNN 2.6 as their only peer. For
depthwise kernels the oneDNN 3.12 in PyTorch is up to 50 times as fast as that one, so their ratios
there overstate us.
[method.md](method.md) says how we measure, [losses.md](losses.md) lists every row with a ratio
below 1, and [log/zen4.md](log/zen4.md) has the tables of earlier runs.
"""

README_NETS = (("8 layers of 30 channels, kernel 5", "width_depth"), ("isotropic U-Net, 64³", "unet_isotropic"),
               ("anisotropic U-Net, 8 x 128 x 128", "unet_anisotropic"))
README_BEGIN, README_END = "<!-- results: bench/results.py --render writes this part -->\n", "<!-- end of results -->\n"


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


FFT_PEERS = (("fftw", "", "FFTW"), ("mkl", "mkl_", "MKL"), ("ducc0", "ducc0_", "ducc0"))  # key, prefix, name


def fft_losses(data: Json) -> list[Loss]:
    """Sizes at which another library is faster."""
    return [Loss(row[prefix + "ratio"], data["name"], f"N = {row['n']}, {row['kind']}", name,
                 f"{seconds_text(row['native_s'])}, {seconds_text(row[key + '_s'])}", spread(row, prefix), "native",
                 reason("native", size_class(row["n"])))
            for row in data["report"]["results"] for key, prefix, name in FFT_PEERS
            if row.get(prefix + "ratio", 1) < 1]


def fft_peers_table(data: Json) -> str:
    """A row for each kind and size, beside all libraries."""
    report = data["report"]
    versions = [f"{name} {report['machine'][key]}" for key, _, name in FFT_PEERS[1:] if key in report["machine"]]
    calls = [row["ducc0_call_s"] for row in report["results"] if "ducc0_call_s" in row]
    text = ", ".join(versions) + ", one thread. "
    if calls:
        text += (f"ducc0 is called from Python; {seconds_text(min(calls))} to {seconds_text(max(calls))} of its times "
                 "are the call.")
    left_out = [f"{row['peer']} was left out: {row['reason']}.\n" for row in report.get("left_out", [])]
    cells = [[row["kind"], str(row["n"]), size_class(row["n"]), seconds_text(row["native_s"]),
              *(ratio_text(row, prefix) if prefix + "ratio" in row else "-" for _, prefix, _ in FFT_PEERS)]
             for row in report["results"]]
    head = ["kind", "N", "class", "our time", *(f"{name}'s time over ours" for _, _, name in FFT_PEERS)]
    return text + "\n" + "".join(left_out) + "\n" + table(head, cells)


# --- convolutions ---

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
             part("### FFTW, MKL and ducc0", "fft_peers", fft_peers_table),
             "## Convolutions\n\nThe peer is oneDNN, of Debian or of PyTorch. The floor is the least time that the\n"
             "machine could take; [method.md](method.md#the-floor) defines it.\n\n" + conv_summary(all_data, folder),
             part("### headline", headline, conv_tables)]
    if conv_plot_of(all_data, folder):
        parts.append(f"![Ratios of the headline list]({HEADLINE_PLOT})\n")
    parts += [part(f"### {name}", f"conv_{name}", conv_tables) for name in LISTS]
    parts.append("## Nets\n\nOne iteration of training, or one inference, on two threads.\n")
    parts += [part(f"### {net} beside {peer}", f"net_{key}_{net}", net_table)
              for net in NETS for key, peer in (("peers", "other libraries"), ("onednn", "oneDNN's engine"))]
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
    names = ["fft_r2c", "fft_peers", "conv_headline_blocked", *(f"conv_{name}" for name in LISTS),
             *(f"net_{peer}_{net}" for net in NETS for peer in ("peers", "onednn")), "scheduler", "alloc"]
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


def readme_table(all_data: dict[str, Json], folder: pathlib.Path) -> str:
    """What the README says between its marks: machines, commits and one table, without quick runs."""
    def measured(name: str) -> list[Json]:
        return [all_data[name]] if name in all_data and not all_data[name].get("quick") else []

    headline = measured("conv_headline_blocked")
    makers = [("conv_headline_blocked", headline, lambda: readme_conv_rows(headline[0]))]
    for title, net in README_NETS:
        found = measured(f"net_peers_{net}") + measured(f"net_onednn_{net}")
        makers.append((f"net_peers_{net}", found,
                       functools.partial(readme_net_rows, title, found, net != "width_depth")))
    sources: list[str] = []
    cells: list[list[str]] = []
    for name, found, make in makers:
        for data in found:
            machine = data["machine"]
            sources.append(f"{machine['processor']} (machine row `{machine['row']}`), {machine['threads']} cores, "
                           f"{data['date'].split()[0]}, commit `{data['commit']}`.")
        if found:
            cells += guarded(folder, name, make)
    if not cells:
        return "\nNot measured yet; run `bench/results.py --run`.\n\n"
    return ("\n" + "\n".join(dict.fromkeys(sources)) + "\n\n"
            + table(["float, blocked tensors, two threads", "our time", "peer", "its time", "ratio"], cells) + "\n")


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
