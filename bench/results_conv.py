"""The convolutions in the pages of bench/results.py: tables, losses, the plot, and rows of the README."""
import math
import re
from typing import NamedTuple, Optional, Sequence

import results_svg
from results_text import Json, Loss, digits, mean, ratio_text, reason, seconds_text, spread, table

PASSES = {"fwd": "forward", "bwd_d": "backward data", "bwd_w": "weight gradient", "training": "training"}
NOTICEABLE = 0.95  # ratios from here to 1 are within the noise of the machine
# The rows of the README's table: what a row is called there, and its name in the headline list.
README_PROBLEMS = (
    ("kernel 3: 32 to 32 channels, 64³", "32-to-32-64-k3"), ("kernel 5: 32 to 32 channels, 64³", "32-to-32-64-k5"),
    ("kernel 7: 32 to 32 channels, 48³", "32-to-32-48-k7"), ("first layer: 1 to 32 channels, 96³, kernel 5",
                                                             "1-to-32-96-k5"),
    ("kernel 1: 32 to 32 channels, 48³", "32-to-32-48-k1"),
    ("depthwise: 48 channels, 48³, kernel 7", "depthwise-48-48-k7-padded"),
    ("small deep layer: 256 to 256 channels, 8³, kernel 3", "256-to-256-8-k3-padded"))


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


class Peer(NamedTuple):
    """A library that computes convolutions: the prefixes of its times and ratios in a row, and its name."""
    times: str
    ratios: str
    name: str

    def seconds(self, row: Json, quartile: str = "") -> Optional[float]:
        """The median, or with "_low" the lower quartile; None if the peer did not take part."""
        return row.get(f"{self.times}{quartile}_s") if row.get(f"{self.times}_s") else None


ONEDNN, TORCH = Peer("onednn", "", "oneDNN"), Peer("torch", "torch_", "PyTorch")
NEWER = 1.05  # PyTorch's newer oneDNN is the peer where it is faster than Debian's by more than this factor


def peer_of(row: Json) -> Optional[Peer]:
    """The peer of a row, compared by the times that count: Debian's oneDNN, PyTorch where it is faster, or None."""
    quartile = "_low" if row["threads"] > 1 else ""
    ours, newer = ONEDNN.seconds(row, quartile), TORCH.seconds(row, quartile)
    if newer and (not ours or newer * NEWER < ours):
        return TORCH
    return ONEDNN if ours else None


def ratio_that_counts(row: Json) -> Optional[float]:
    """On several threads the ratio of the lower quartiles, on one thread that of the medians (method.md, rule 4)."""
    peer = peer_of(row)
    return row[peer.ratios + ("ratio_in_time" if row["threads"] > 1 else "ratio")] if peer else None


class Compared(NamedTuple):
    """A problem in one pass: the row on all threads, the row on one thread if there is one, and what counts."""
    row: Json
    one_thread: Optional[Json]
    ratio: Optional[float]  # the worse of both, see method.md; None without a peer

    def worse(self) -> Json:
        """The row that `ratio` comes from."""
        single = self.one_thread
        return single if single and ratio_that_counts(single) == self.ratio else self.row


def compared(data: Json) -> list[Compared]:
    """Rows of a report, joined to those on one thread."""
    rows = data["report"]["results"]
    one_thread = {(row["name"], row["dir"]): row for row in rows if row["threads"] == 1}
    joined = []
    for row in rows:
        if row["threads"] == 1:
            continue
        single = one_thread.get((row["name"], row["dir"]))
        ratios = [ratio_that_counts(one) for one in (row, single) if one and peer_of(one)]
        joined.append(Compared(row, single, min(ratios, default=None)))
    return joined


def plain_ratio(value: float) -> str:
    return f"**{digits(value)}**" if value < 1 else digits(value)


def conv_row(problem: Compared, with_torch: bool) -> list[str]:
    """The cells of one problem in one pass. The ratios are those to the peer of the row."""
    row, single, peer = problem.row, problem.one_thread, peer_of(problem.row)
    cells = [short_name(row), f"`{row['engine']}`", seconds_text(row["ours_s"])]
    times = [ONEDNN.seconds(row), *([TORCH.seconds(row)] if with_torch else [])]
    cells += [seconds_text(seconds) if seconds else "-" for seconds in times]
    if peer:
        one = peer_of(single) if single else None
        cells += [ratio_text(row, peer.ratios), plain_ratio(ratio_that_counts(row)),
                  f"{plain_ratio(ratio_that_counts(single))} ({seconds_text(single['ours_s'])})" if one else "-"]
    else:
        cells += ["-"] * 3
    return cells + [f"{100 * row['floor_fraction']:.0f} %"]


def torch_text(data: Json) -> str:
    """The version of PyTorch in a measurement of convolutions, and its libraries."""
    facts = data["report"]["machine"]["torch"]
    return (f"PyTorch {facts['version']} with {facts['onednn']}, as many threads as ours, the fastest of its memory "
            f"formats.\nIts BLAS: {facts['blas']}.")


def conv_tables(data: Json) -> str:
    """A table for each pass."""
    problems = compared(data)
    with_torch = any(TORCH.seconds(problem.row) for problem in problems)
    head = ["problem", "engine", "our time", "oneDNN's time", *(["PyTorch's time"] if with_torch else []), "ratio",
            "in time", "one thread (our time)", "share of the floor"]
    text = "" if any(problem.ratio for problem in problems) else "oneDNN did not take part.\n\n"
    if with_torch:
        text += (f"{torch_text(data)}\nThe ratios of a row are those to Debian's oneDNN, or to PyTorch where it is "
                 "faster by more than 5 %.\n\n")
    for direction in dict.fromkeys(problem.row["dir"] for problem in problems):
        cells = [conv_row(problem, with_torch) for problem in problems if problem.row["dir"] == direction]
        text += f"{PASSES[direction].capitalize()}:\n\n" + table(head, cells) + "\n"
    return text


def ratio_of(row: Json) -> float:
    """The ratio of the medians to the peer of the row."""
    return row[peer_of(row).ratios + "ratio"]


def conv_means(name: str, problems: Sequence[Compared]) -> list[list[str]]:
    """A row of the summary for each pass of one list."""
    cells = []
    for direction in dict.fromkeys(problem.row["dir"] for problem in problems):
        chosen = [problem for problem in problems if problem.row["dir"] == direction and problem.ratio]
        if chosen:
            ratios = [problem.ratio for problem in chosen]
            cells.append([name, PASSES[direction], str(len(ratios)),
                          digits(mean([ratio_of(problem.row) for problem in chosen])), digits(mean(ratios)),
                          digits(min(ratios)), str(sum(ratio < NOTICEABLE for ratio in ratios))])
    return cells


def conv_plot(data: Json) -> Optional[str]:
    """The plot of forward and training ratios, None without a peer."""
    bars = []
    for row, _, ratio in compared(data):
        if ratio and row["dir"] in ("fwd", "training"):
            low, high = (row[peer_of(row).ratios + key] for key in ("ratio_low", "ratio_high"))
            bars.append(results_svg.Bar(short_name(row), PASSES[row["dir"]], ratio_of(row), low, high))
    if not bars:
        return None
    return results_svg.ratio_bars("Headline convolutions: the peer's time over ours", "ratio, logarithmic axis", bars)


def conv_losses(data: Json) -> list[Loss]:
    """Problems and passes in which the peer is faster by the ratio that counts."""
    losses = []
    for problem in compared(data):
        row, worse, ratio = problem.row, problem.worse(), problem.ratio
        if ratio is None or ratio >= 1:
            continue
        peer, what, quartile = peer_of(worse), f"{short_name(row)}, {PASSES[row['dir']]}", "_low"
        if worse is problem.one_thread:
            what, quartile = f"{what}, one thread", ""
        times = f"{seconds_text(worse[f'ours{quartile}_s'])}, {seconds_text(peer.seconds(worse, quartile))}"
        losses.append(Loss(ratio, data["name"], what, peer.name, times, spread(worse, peer.ratios), row["engine"],
                           reason(row["engine"], kind_of(row))))
    return losses


def process_range(row: Json) -> str:
    """The least and the largest ratio of the processes that measured a row; empty for a single process."""
    ratios = [ratio for ratio in row.get("ratios", []) if ratio]
    return f" ({digits(min(ratios))}-{digits(max(ratios))})" if len(ratios) > 1 else ""


def readme_conv_rows(data: Json) -> list[list[str]]:
    """Forward passes of the headline list: the ratio that counts, and its range over the processes."""
    forward = {short_name(problem.row): problem for problem in compared(data) if problem.row["dir"] == "fwd"}
    cells = []
    for title, name in README_PROBLEMS:
        problem = forward.get(name)
        if problem and problem.ratio:
            worse = problem.worse()
            peer, where = peer_of(worse), ", one thread" if worse is problem.one_thread else ""
            cells.append([f"{title}, forward{where}", seconds_text(worse["ours_s"]), peer.name,
                          seconds_text(peer.seconds(worse)), plain_ratio(problem.ratio) + process_range(worse)])
    return cells
