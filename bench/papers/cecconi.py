#!/usr/bin/env python3
"""Reproduces a table and figures of paper 001 (Cecconi et al., Optimal Tiling Strategy for Memory Bandwidth Reduction
for CNNs) with `convolume plan transfer` and `convolume convolve`.

    bench/papers/cecconi.py --table 1 --out PREFIX [--convolume build/release/tools/convolume] [--into docs/papers.md]
                            [--json FILE]
    bench/papers/cecconi.py --figure 4 --out PREFIX [--folder FOLDER]
    bench/papers/cecconi.py --figure 3 --out PREFIX [--folder FOLDER]

Writes PREFIX.md and PREFIX.svg: the paper's value, ours, and the reason for a difference. --into puts the text also
into a document, between the comments that name the table or figure. Table 1 is computed. Figure 4 measures for about a
minute, and so does Figure 3; nothing else should run meanwhile. PREFIX.json holds what they measure; --json FILE writes
all numbers. --folder is where files are written: one for the prices of files, and tensors of up to 50 MB for Figure 3.
Needs Python 3 only.
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
import textwrap
from typing import Any, Sequence

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
from paper_bars import Series, grouped_bars  # noqa: E402
from paper_page import Result, add_output_options, named, table, write  # noqa: E402

NAIVE = [86, 92, 96, 83, 91, 89, 88, 88, 80, 91]
OPTIMAL = [88, 98, 98, 86, 85, 88, 76, 86, 90, 91]
FIGURE_3 = {"unbuffered": 1573, "naive": 838, "best": 805}  # seconds of all layers
# The small memory of Figure 3. The command cuts channels in blocks of 16, and its tiles of conv_1 need more than 1M.
MEMORY = "2M"
FILE_PRICES = "2e-5,1e-6,4e-9"  # seconds; those of `convolume convolve` for raw files
ROUNDS = 5
PAPER, OURS, OTHER = "#999999", "#1f77b4", "#ff7f0e"


def convolume(arguments: argparse.Namespace, *words: str) -> dict[str, Any]:
    """Returns the JSON object that a command prints, with the command."""
    command = [arguments.convolume, *words, "--json"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr.strip()}")
    return {"command": " ".join(["convolume", *words]), **json.loads(result.stdout)}


def transfers(arguments: argparse.Namespace, *words: str) -> dict[str, Any]:
    return convolume(arguments, "plan", "transfer", "--layer", "flownet_s", *words)


def bullets(*sentences: str) -> str:
    return "\n".join(textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
                                   break_on_hyphens=False) for sentence in sentences) + "\n"


def tile_text(tile: dict[str, int]) -> str:
    return " ".join(f"{dim}{tile[dim]}" for dim in ("y", "x", "c", "k"))


def names(plans: dict[str, Any]) -> list[str]:
    return [layer["name"] for layer in plans["layers"]]


def usages(plans: dict[str, Any], pick: str) -> list[float]:
    return [100 * layer[pick]["usage"] for layer in plans["layers"]]


def mean_deviation(values: Sequence[float], paper: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(values, paper)) / len(paper)


def least_deviation(arguments: argparse.Namespace) -> tuple[float, str]:
    """The least deviation from Table 1 without halos, over a grid of prices, and the prices."""
    costs = [f"{10.0 ** start:g},{10.0 ** jump:g},1" for start in range(6) for jump in range(-1, 5)]
    found = []
    for cost in costs:
        plans = transfers(arguments, "--footprint", "paper", "--cost", cost)
        found.append((mean_deviation(usages(plans, "best"), OPTIMAL), cost))
    return min(found)


def fullest_ratios(plans: dict[str, Any]) -> list[float]:
    return [layer["fullest"]["total"] / layer["best"]["total"] for layer in plans["layers"]]


def table_1(arguments: argparse.Namespace) -> Result:
    halo, paper = transfers(arguments), transfers(arguments, "--footprint", "paper")
    optimal, literal = usages(halo, "best"), usages(paper, "best")
    deviation, literal_deviation = mean_deviation(optimal, OPTIMAL), mean_deviation(literal, OPTIMAL)
    naive, fullest = usages(halo, "naive"), fullest_ratios(halo)
    least, least_cost = least_deviation(arguments)
    rows = []
    for i, layer in enumerate(halo["layers"]):
        rows.append([layer["name"], str(OPTIMAL[i]), f"{optimal[i]:.0f}", f"{literal[i]:.0f}",
                     tile_text(layer["best"]["tile"]), str(NAIVE[i]), f"{naive[i]:.0f}", f"{layer['ratio']:.2f}",
                     f"{fullest[i]:.2f}"])
    text = table(["layer", "optimal, paper %", "ours %", "without halo %", "our tile", "naive, paper %", "ours %",
                  "cost, naive / optimal", "cost, fullest / optimal"], rows)
    text += "\n" + bullets(
        f'Commands: `{halo["command"]}`, and the same with `--footprint paper` for "without halo".',
        f"Optimal tiles: ours differ from the paper's by {deviation:.2f} points on average. Required: at most 3.",
        "The paper does not print its prices. C : p : t = 5000 : 20 : 1 is **our fit** to the row \"Opt.\" of the "
        "table. The code marks it as a fit (`paper_001_price`).",
        "The constraint of section 4.2 counts tiles of x without their halo. With it, to the letter, the deviation is "
        f"{literal_deviation:.2f} points at the same prices, and at least {least:.2f} at others (36 prices, C 1 to "
        f"10^5 and p 0.1 to 10^4; the least at {least_cost}). So our default counts the halo (`--footprint halo`).",
        "The paper chose its naive tiles by hand and does not print them. Ours are the median by cost of all tiles "
        "that use at least 80 % of a half. In all layers together they cost "
        f"{halo['total']['ratio']:.2f} times as much as the optimal tiles. The paper measures about 5. "
        "Required: 4 to 7.",
        "The paper concludes that the fullest tile is not the best. Ours costs "
        f"{min(fullest):.2f} to {max(fullest):.1f} times as much as the optimal tile. Required: more than 1.5 in every "
        "layer.")
    picture = grouped_bars("Paper 001, Table 1: share of the memory that optimal tiles use", "%", names(halo),
                           [Series("paper", PAPER, OPTIMAL), Series("ours, with halo", OURS, optimal),
                            Series("ours, constraint to the letter", OTHER, literal)], logarithmic=False)
    data = {"paper": {"optimal": OPTIMAL, "naive": NAIVE}, "mean_deviation": deviation,
            "mean_deviation_without_halo": literal_deviation,
            "least_deviation_without_halo": {"deviation": least, "cost": least_cost}, "fullest_over_best": fullest,
            "halo": halo, "without_halo": paper}
    return Result(data, text, picture)


def measured(plans: dict[str, Any], pick: str, key: str) -> list[float]:
    """Seconds of the picked tile of each layer."""
    return [next(p["measured"][key] for p in layer["picks"] if p["pick"] == pick) for layer in plans["layers"]]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below)]


def microseconds(price: dict[str, Any]) -> str:
    return ", ".join(f"{name} {1e6 * price[name]:.3g}" for name in ("start", "jump", "element")) + " µs"


def moves(prices: str, plans: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each tile whose transfers were measured, with its cost by the model."""
    return [{"prices": prices, "layer": layer["name"], "pick": pick["pick"], "tile": tile_text(pick["tile"]),
             "cost": pick["cost"]["total"], **pick["measured"]} for layer in plans["layers"] for pick in layer["picks"]]


def figure_4(arguments: argparse.Namespace) -> Result:
    machine = convolume(arguments, "machine")
    fit = transfers(arguments, "--pick", "all", "--run")
    memory = transfers(arguments, "--pick", "all", "--run", "--cost", "memory")
    file = transfers(arguments, "--pick", "all", "--cost", f"file:{arguments.folder}")
    model = {"fit": [layer["ratio"] for layer in fit["layers"]], "row": [layer["ratio"] for layer in memory["layers"]],
             "file": [layer["ratio"] for layer in file["layers"]]}
    moved = {}
    for name, plans in (("fit", fit), ("row", memory)):
        for key in ("transfer_s", "seconds"):
            naive, best = measured(plans, "naive", key), measured(plans, "best", key)
            moved[name, key] = ratios(naive, best), sum(naive) / sum(best), sum(best), sum(naive)
    rows = [[layer, f"{model['fit'][i]:.2f}", f"{moved['fit', 'transfer_s'][0][i]:.2f}", f"{model['row'][i]:.2f}",
             f"{moved['row', 'transfer_s'][0][i]:.2f}", f"{moved['row', 'seconds'][0][i]:.2f}",
             f"{model['file'][i]:.2f}"] for i, layer in enumerate(names(fit))]
    rows.append(["all", f"{fit['total']['ratio']:.2f}", f"{moved['fit', 'transfer_s'][1]:.2f}",
                 f"{memory['total']['ratio']:.2f}", f"{moved['row', 'transfer_s'][1]:.2f}",
                 f"{moved['row', 'seconds'][1]:.2f}", f"{file['total']['ratio']:.2f}"])
    text = table(["layer", "fitted prices: model", "measured", "machine row: model", "measured", "with waits",
                  "file: model"], rows)
    tiles = [layer["naive_tiles"] for layer in memory["layers"]]
    copies, waits = moved["row", "transfer_s"], moved["row", "seconds"]
    text += "\n" + bullets(
        f'Cost, or seconds, of naive over optimal tiles. Commands: `{fit["command"]}`; the same with `--cost memory`; '
        "and with `--cost file:FOLDER` without `--run`.",
        f'Machine: {machine["processor"]}, {machine["usable_processors"]} cores, row `{machine["row"]}`.',
        "The paper measures about 5 on a Zynq-7020, whose on-chip memory is filled by a DMA controller. Here a helper "
        "thread copies tiles between tensors in memory and two halves of 128 KiB, and nothing computes. Columns "
        "\"measured\" are the seconds of the copies, and \"with waits\" includes the waits at each change of halves.",
        f"With the prices of the machine row, the copies of all layers take {copies[2]:.3f} s with optimal tiles "
        f"(model: {memory['total']['best']:.3f} s) and {copies[3]:.3f} s with naive tiles (model: "
        f"{memory['total']['naive']:.3f} s), {copies[1]:.2f} times as long. With the waits they take {waits[2]:.3f} s "
        f"and {waits[3]:.3f} s. The row's start "
        "price has no wait for a thread, so its optimal tiles have more calls than those of the fitted prices.",
        f"With the fitted prices, the copies take {moved['fit', 'transfer_s'][2]:.3f} s and "
        f"{moved['fit', 'transfer_s'][3]:.3f} s, with the waits {moved['fit', 'seconds'][2]:.3f} s and "
        f"{moved['fit', 'seconds'][3]:.3f} s.",
        "A single layer may be far from the model, because its tensors of a few MB stay in the L3 from one tile to the "
        f"next, and because the naive tile is one of many: {min(tiles):.0f} to {max(tiles):.0f} tiles of a layer use "
        "at least 80 % of a half.",
        f"Prices of the machine row: {microseconds(memory['price'])}. Prices of a file: {microseconds(file['price'])} "
        f"({file['price']['source'].split(', ')[-1]}).")
    series = [Series("model, fitted prices", PAPER, model["fit"]), Series("model, machine row", OTHER, model["row"]),
              Series("measured, tiles by the machine row", OURS, moved["row", "transfer_s"][0])]
    picture = grouped_bars("Paper 001, Figure 4: transfers of naive over optimal tiles", "ratio, logarithmic",
                           names(fit), series, logarithmic=True)
    prices = [{"prices": name, "command": plans["command"], **plans["price"]}
              for name, plans in (("fitted", fit), ("machine row", memory), ("file", file))]
    data = {"machine": named(machine), "fitted_prices": fit, "machine_row": memory,
            "file": file, "measured_ratio": {f"{name}_{key}": value[1] for (name, key), value in moved.items()}}
    return Result(data, text, picture, {"machine": named(machine), "prices": prices,
                                        "moves": moves("fitted", fit) + moves("machine row", memory)})


def write_noise(file: pathlib.Path, count: int) -> None:
    """Writes floats between -1 and 1, which repeat after 65536."""
    draw = random.Random(1)
    block = array.array("f", (draw.uniform(-1, 1) for _ in range(65536))).tobytes()
    file.write_bytes((block * (4 * count // len(block) + 1))[:4 * count])
    with open(file, "rb") as written:
        os.fsync(written.fileno())


def convolve_layer(arguments: argparse.Namespace, folder: pathlib.Path, layer: dict[str, Any]) -> dict[str, Any]:
    """Convolves a layer from file to file in each way, in turn. Returns what the command printed in the round of median
    seconds, and the medians of the ratios of rounds."""
    size = {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", layer["problem"])}
    x, w, y = (folder / name for name in ("x.raw", "w.raw", "y.raw"))
    write_noise(x, size["ic"] * size["id"] * size["ih"] * size["iw"])
    write_noise(w, size["oc"] * size["ic"] * size["kd"] * size["kh"] * size["kw"])
    tiles = {}
    for pick in ("naive", "best"):
        tile = next(p["tile"] for p in layer["picks"] if p["pick"] == pick)
        tiles[pick] = ["--tile", ",".join(str(n) for n in (1, *(tile[dim] for dim in "kczyx")))]
    ways = {"unbuffered": ["--unbuffered", *tiles["naive"]], "naive": tiles["naive"], "best": tiles["best"],
            "own": ["--memory", MEMORY], "whole": ["--unbuffered"]}
    rounds = [{way: convolume(arguments, "convolve", "--problem", layer["problem"], "--x", str(x), "--w", str(w), "--y",
                              str(y), "--direct", *words) for way, words in ways.items()} for _ in range(ROUNDS)]
    middle = {way: sorted((run[way] for run in rounds), key=lambda run: run["seconds"])[ROUNDS // 2] for way in ways}
    return {**middle, "gains": {way: statistics.median(run["unbuffered"]["seconds"] / run[way]["seconds"]
                                                       for run in rounds) for way in ("naive", "best")}}


def hidden(run: dict[str, Any]) -> float:
    """Seconds over those of the longest of reading, writing and computing."""
    return run["seconds"] / max(run["read_s"], run["write_s"], run["compute_s"])


def figure_3(arguments: argparse.Namespace) -> Result:
    machine, load = convolume(arguments, "machine"), os.getloadavg()[0]
    plans = transfers(arguments, "--pick", "all", "--capacity", MEMORY, "--cost", FILE_PRICES)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        runs = {layer["name"]: convolve_layer(arguments, pathlib.Path(folder), layer) for layer in plans["layers"]}
    ways = ("unbuffered", "naive", "best", "own", "whole")
    seconds = {way: [run[way]["seconds"] for run in runs.values()] for way in ways}
    total = {way: sum(values) for way, values in seconds.items()}
    gains = {way: [run["gains"][way] for run in runs.values()] for way in ("naive", "best")}
    rows = [[name, *(f"{seconds[way][i]:.2f}" for way in ways), f"{gains['naive'][i]:.2f}", f"{gains['best'][i]:.2f}",
             f"{hidden(runs[name]['best']):.2f}"] for i, name in enumerate(runs)]
    rows.append(["all", *(f"{total[way]:.2f}" for way in ways), f"{total['unbuffered'] / total['naive']:.2f}",
                 f"{total['unbuffered'] / total['best']:.2f}", ""])
    paper = [FIGURE_3[way] for way in ("unbuffered", "naive", "best")]
    rows.append(["paper", *(str(value) for value in paper), "", "", f"{paper[0] / paper[1]:.2f}",
                 f"{paper[0] / paper[2]:.2f}", ""])
    peak = max(runs, key=lambda name: gains["best"][list(runs).index(name)])
    compute = sum(run["best"]["compute_s"] for run in runs.values())
    peaks = [max(run[way]["peak_bytes"] for run in runs.values()) / 2**20 for way in ("naive", "best")]
    text = table(["layer", "unbuffered, s", "naive, s", "best, s", "command's tile, s", "whole, s",
                  "unbuffered / naive", "unbuffered / best", "best / longest part"], rows)
    text += "\n" + bullets(
        f'Tiles: `{plans["command"]}`. Runs: `convolume convolve --problem P --x x.raw --w w.raw --y y.raw --direct '
        f'--tile N,K,C,Z,Y,X`, and `--unbuffered` for "unbuffered". Medians of {ROUNDS} rounds, in which all ways ran '
        f'in turn. Machine: {machine["processor"]}, {machine["usable_processors"]} cores, load average {load:.1f} at '
        "the start.",
        "Slow memory is a disk: x is read with O_DIRECT. w and y go through the page cache, because the command offers "
        "O_DIRECT for x only. The paper moves tiles from the DRAM of a Zynq-7020 to its on-chip memory.",
        "The paper's \"unbuffered\" computes in the slow memory itself. A processor cannot compute in a file, so ours "
        "moves the naive tile and computes in turn.",
        f'"Naive" and "best" are the picks of `plan transfer` with {MEMORY} instead of 256K, and with the prices that '
        "the command takes for raw files. The command rounds channels up to blocks of 16, so some tiles take more than "
        f"{MEMORY}: at most {peaks[0]:.1f} MiB (naive) and {peaks[1]:.1f} MiB (best).",
        f"Paper: {paper[0]}, {paper[1]} and {paper[2]} s, so {paper[0] / paper[2]:.2f} times as fast in total, and at "
        f"most 2.4 times, in conv_2. Ours: {total['unbuffered'] / total['best']:.2f} times in total, and at most "
        f"{max(gains['best']):.2f} times, in {peak}. Computing takes {compute:.2f} of the {total['best']:.2f} s with "
        "best tiles. So transfers decide, and double buffering can hide the computation only.",
        f"\"Command's tile\" is what `--memory {MEMORY}` chooses, by exact counts at the same prices. It keeps the "
        "limit. \"Whole\" is one tile without a limit of memory, which reads, computes and writes once, in turn.",
        '"Best / longest part" is the time over the longest of reading, writing and computing: 1 if all else is '
        "hidden. Runs of some hundredths of a second also start threads and sync y.")
    picture = grouped_bars("Paper 001, Figure 3: unbuffered time over that of double-buffered tiles",
                           "ratio, logarithmic", list(runs), [Series("naive tile", OTHER, gains["naive"]),
                                                              Series("best tile", OURS, gains["best"])],
                           logarithmic=True)
    keep = ("tile", "tiles", "bytes", "runs", "peak_bytes", "read_s", "write_s", "compute_s", "seconds", "overlap")
    rows = [{"layer": name, "way": way, "gain": each["gains"].get(way), **{key: each[way][key] for key in keep}}
            for name, each in runs.items() for way in ways]
    measured = {"machine": named(machine), "load_average": load, "capacity": MEMORY, "runs": rows}
    return Result({"paper_seconds": FIGURE_3, "total": total, **measured}, text, picture, measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", type=int, choices=[1])
    what.add_argument("--figure", type=int, choices=[3, 4])
    add_output_options(parser)
    parser.add_argument("--convolume", default=str(BENCH.parent / "build/release/tools/convolume"))
    parser.add_argument("--folder", default=".", help="where files are written")
    arguments = parser.parse_args()
    name = "table 1" if arguments.table else f"figure {arguments.figure}"
    result = {"table 1": table_1, "figure 3": figure_3, "figure 4": figure_4}[name](arguments)
    write(result, arguments, "001", name, "cecconi.py")


if __name__ == "__main__":
    main()
