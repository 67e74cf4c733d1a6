#!/usr/bin/env python3
"""Reproduces tables and figures of paper 000 (Yang et al., A Systematic Approach to Blocking Convolutional Neural
Networks) with `convolume plan energy`.

    bench/papers/yang.py (--table 1|2|3|4 | --figure 3|4|5|6|7|8|9 | --search | --system | --volumes)
                         --out PREFIX [--into docs/papers.md] [--json FILE]
                         [--convolume build/release/tools/convolume]

Writes PREFIX.md and PREFIX.svg: the paper's value, ours, and the reason for a difference. --into puts the text also
into a document, between the comments that name the table or figure. PREFIX.json holds what was measured, where
something was; --json FILE writes all numbers. --search compares the iterative with the exhaustive search, --system
designs common memories for several layers, and --volumes blocks layers with three axes. Only the seconds of --search
and --system are measured, and the cache accesses of Figures 3 and 4. The longest item takes about a minute, except
these figures: they run bench_conv, which stands beside --convolume, under a cache simulator for a quarter of an hour.
--counts takes the counts of an earlier run from its PREFIX.json instead. They need Valgrind, ATLAS and OpenBLAS (on
Debian: apt-get install valgrind libatlas3-base libopenblas0-pthread). The others need Python 3 only.
"""
import argparse
import math
import pathlib
import sys
import tempfile
from typing import Any, Callable, NamedTuple, Sequence

sys.dont_write_bytecode = True
from paper_page import Result, add_output_options, table, write  # noqa: E402
from yang_caches import cache_figure  # noqa: E402
from yang_common import (DRAM, OPERANDS, OTHER, PAPER, W, X, Y, Command, CommandFailed, Stack, code, geometric_mean,
                         memory, operand, operand_stack, stacked_bars, wrapped)  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent.parent
CONVS = ["conv1", "conv2", "conv3", "conv4", "conv5"]
DATAPATH = 16

# Convolutions of networks as (input channels, output channels, output extent, kernel, groups).
ALEXNET = [(3, 96, 55, 11, 1), (96, 256, 27, 5, 2), (256, 384, 13, 3, 1), (384, 384, 13, 3, 2), (384, 256, 13, 3, 2)]
VGG_B = [(3, 64, 224, 3, 1), (64, 64, 224, 3, 1), (64, 128, 112, 3, 1), (128, 128, 112, 3, 1), (128, 256, 56, 3, 1),
         (256, 256, 56, 3, 1), (256, 512, 28, 3, 1), (512, 512, 28, 3, 1), (512, 512, 14, 3, 1), (512, 512, 14, 3, 1)]
VGG_D = VGG_B[:6] + [VGG_B[5]] + VGG_B[6:8] + [VGG_B[7]] + VGG_B[8:] + [VGG_B[9]]
ALEXNET_FC = [(9216, 4096), (4096, 4096), (4096, 1000)]
VGG_FC = [(25088, 4096), (4096, 4096), (4096, 1000)]
# Table 3: rows of 1, 2, 4, ... 1024 KB, for words of 64, 128, 256 and 512 bits.
TABLE_3 = [[1.20, 0.93, 0.69, 0.57], [1.54, 1.37, 0.91, 0.68], [2.11, 1.68, 1.34, 0.90], [3.19, 2.71, 2.21, 1.33],
           [4.36, 3.57, 2.66, 2.19], [5.82, 4.80, 3.52, 2.64], [8.10, 7.51, 5.79, 4.67], [11.66, 11.50, 8.46, 6.15],
           [15.60, 15.51, 13.09, 8.99], [23.37, 23.24, 17.93, 15.76], [36.32, 32.81, 28.88, 25.22]]
WIDTHS = [64, 128, 256, 512]
# Table 4: X, Y, C, K, F of the convolutions.
TABLE_4 = {"conv1": (256, 256, 256, 384, 11), "conv2": (500, 375, 32, 48, 9), "conv3": (32, 32, 108, 200, 4),
           "conv4": (56, 56, 128, 256, 3), "conv5": (28, 28, 256, 512, 3)}
# DianNao's tiles of x, y and output channels. The paper does not print its own.
DIANNAO_TILES = {"conv1": (32, 32, 64), "conv2": (20, 25, 48), "conv3": (32, 32, 16), "conv4": (28, 28, 64),
                 "conv5": (28, 28, 64)}
BEST = ("--search", "exhaustive", "--levels", "3", "--top", "1")
# DianNao has no registers between its buffers and its multipliers, so each step reads the buffers.
DIANNAO = ("--hierarchy", "diannao", "--latches", "counted")


def conv_row(layers: Sequence[tuple[int, int, int, int, int]]) -> tuple[float, float]:
    """Multiply-adds in 10^9, and megabytes of weights of 16 bits."""
    macs = sum(c // g * k * e * e * f * f for c, k, e, f, g in layers)
    return macs / 1e9, sum(2 * c // g * k * f * f for c, k, _, f, g in layers) / 1e6


def fc_row(layers: Sequence[tuple[int, int]]) -> tuple[float, float]:
    weights = sum(c * k for c, k in layers)
    return weights / 1e9, 2 * weights / 1e6


def table_1(_: Command) -> Result:
    one_group = [(c, k, e, f, 1) for c, k, e, f, _ in ALEXNET]
    ours = [("AlexNet convolutions", 1.9, 2, *conv_row(ALEXNET)), ("the same, without groups", 1.9, 2,
                                                                    *conv_row(one_group)),
            ("VGGNet-B convolutions", 11.2, 19, *conv_row(VGG_B)),
            ("VGGNet-D convolutions", 15.3, 29, *conv_row(VGG_D)),
            ("AlexNet fully connected", 0.065, 130, *fc_row(ALEXNET_FC)),
            ("VGGNet-B and D fully connected", 0.124, 247, *fc_row(VGG_FC))]
    text = table(["", "10^9 multiply-adds, paper", "ours", "MB, paper", "ours"],
                 [[name, f"{a:g}", f"{c:.4g}", f"{b:g}", f"{d:.4g}"] for name, a, b, c, d in ours])
    text += """
- Computed from the definitions of the networks; words of 16 bits; MB are 10^6 bytes of weights.
- The rows of VGGNet agree. The rows of AlexNet do not, neither with its two groups nor without. Its
  published layers have 58.6 million weights in the fully connected part, the paper says 65 million.
"""
    picture = stacked_bars("Paper 000, Table 1: multiply-adds", "10^9",
                           [Stack(f"{row[0]}{who}", [(color, row[i])]) for row in ours
                            for who, color, i in (("", PAPER, 1), (" (ours)", X, 3))],
                           [(PAPER, "paper"), (X, "ours")])
    return Result({"rows": [list(row) for row in ours]}, text, picture)


def table_2(command: Command) -> Result:
    nest = "FwFhX0(8)Y0(8)C0(16)K0(16)C1(128)K1(256)X1(56)Y1(56)"
    words = ("--layer", "conv4", "--nest", nest, "--datapath", "1,1", "--latches", "counted")
    exact, literal = command.energy(*words), command.energy(*words, "--counts", "table2")
    rows, stacks = [], []
    for one, other in zip(exact["levels"], literal["levels"]):
        name = next(o for o in "xwy" if one[o] > 0)
        if one["bytes"] is None:
            continue
        rows.append([one["name"], f"{one['words'][name]:.0f}", f"{one[name]:.0f}", f"{other[name]:.0f}"])
        stacks += [Stack(f"{one['name']} exact", [(X, one[name] / 1e6)]),
                   Stack(f"{one['name']} Table 2", [(PAPER, other[name] / 1e6)])]
    text = table(["buffer", "words", "accesses, exact", "accesses, Table 2"], rows)
    text += f"""
Conv4 as `{nest}`. `{exact["command"]}`, and with `--counts table2`.

- Sizes are those of Table 2.
- Table 2 multiplies the borders of the windows of all levels, so IB0 is read more often than a window
  that slides needs. It also counts the 2 of the output once per level. Our default counts each word of
  a buffer once per pass, and an output as read and written, except for its first read.
- The paper prints no numbers for Table 2.
"""
    picture = stacked_bars("Paper 000, Table 2 and equation 1: accesses of Conv4", "10^6 words", stacks,
                           [(X, "exact"), (PAPER, "Table 2 to the letter")])
    return Result({"exact": exact, "table2": literal}, text, picture)


def table_3(command: Command) -> Result:
    sizes = [2.0 ** i for i in range(-2, 15)]
    levels = "".join(f'[[level]]\nname = "{kb:g}"\nbytes = {int(kb * 1024)}\n' for kb in sizes)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "sizes.toml"
        file.write_text(levels + '[[level]]\nname = "DRAM"\n')
        columns = [command.energy("--layer", "conv5", "--nest", "y x k c | ky kx", "--hierarchy", str(file),
                                  "--word-bits", str(bits))["levels"] for bits in WIDTHS]
    rows, deviation = [], 0.0
    for i, level in enumerate(columns[0]):
        ours = [column[i]["pj_per_word"]["x"] for column in columns]
        paper = TABLE_3[i - 2] if 2 <= i < 13 else [320.0] * 4 if level["bytes"] is None else None
        if paper is not None:
            deviation = max(deviation, max(abs(a - b) for a, b in zip(ours, paper)))
        kind = "Table 3" if paper is not None else "extrapolated"
        rows.append([level["name"], *(f"{value:.2f}" for value in ours), kind])
    text = table(["KB", *(f"{bits} bits" for bits in WIDTHS), ""], rows)
    text += f"""
pJ per word of 16 bits, as `convolume plan energy --hierarchy FILE.toml --word-bits B` prints them.

- At the 44 values of Table 3 ours differ by {deviation:.2g} at most. Between them energies are interpolated on
  logarithmic scales.
- The paper has no values below 1 KB and from 1 to 16 MB, and none for register files. Ours go on with
  the slope of the nearest doubling, down to 0.03 pJ; `--register-pj` replaces that of register files.
"""
    picture = stacked_bars("Paper 000, Table 3: energy of an access, 256 bits", "pJ per word",
                           [Stack(f"{row[0]} KB", [(X if row[5] == "Table 3" else PAPER, float(row[3]))])
                            for row in rows[:-1]], [(X, "Table 3"), (PAPER, "extrapolated")])
    return Result({"rows": rows, "deviation": deviation}, text, picture)


def strings(levels: int) -> int:
    """Orders of X, Y, C and K, each split into so many levels."""
    return math.factorial(4 * levels) // math.factorial(levels) ** 4


def table_4(command: Command) -> Result:
    rows, stacks = [], []
    for name in [*CONVS, "fc1", "fc2", "pool", "lrn"]:
        report = command.energy("--layer", name, "--limit", "8M", *BEST)
        rows.append([name, f"{report['macs'] / 1e9:.4g}", code(report["string"]), f"{memory(report):.3f}",
                     f"{report['sram_bytes'] / 1024:.0f}"])
        stacks.append(operand_stack(name, report))
    text = table(["layer", "10^9 multiply-adds", "best string, at most 8 MB", "memory, pJ per multiply-add", "KB"],
                 rows)
    text += f"""
`convolume plan energy --layer NAME --limit 8M {" ".join(BEST)}`.

- fc1 and fc2 have 64 samples. Pooling (2 x 2, stride 2) and normalisation (over 5 channels, our
  assumption) compute one channel at a time.
- Strings with loops over X, Y, C and K, windows innermost: {strings(2)} with two levels ("approximately 3000"
  in the paper), {strings(4)} with four. Of these, 2265024 differ if neighbouring loops over one dimension are
  one loop, and 372252 if in addition X and Y are exchangeable ("in the order of a million").
"""
    picture = stacked_bars("Paper 000, Table 4: memory energy of the best nests, at most 8 MB", "pJ per multiply-add",
                           stacks, OPERANDS)
    return Result({"rows": rows}, text, picture)


def diannao_nests(name: str) -> tuple[str, str]:
    """DianNao's loops, and the same with one more split of X: the largest inner part whose windows fit into 2 KB."""
    x, y, k = DIANNAO_TILES[name]
    taps = TABLE_4[name][4]
    words = 2048 // 2 // DATAPATH
    inner = max(d for d in range(1, x + 1) if x % d == 0 and d + taps - 1 <= words)
    outer = "" if inner == x else f" x{x}"
    return f"y x k y{y} x{x} k{k} ky kx c | c16 k16", f"y x k y{y}{outer} k{k} ky c kx x{inner} | c16 k16"


class DianNao(NamedTuple):
    original: dict[str, Any]
    baseline: dict[str, Any]
    optimal: dict[str, Any]


def diannao(command: Command, name: str) -> DianNao:
    original, baseline = (command.energy("--layer", name, "--nest", nest, *DIANNAO) for nest in diannao_nests(name))
    return DianNao(original, baseline, command.energy("--layer", name, *DIANNAO, *BEST))


def figure_5(command: Command) -> Result:
    rows, stacks, data, kernels, inputs = [], [], {}, [], []
    for name in CONVS:
        one = diannao(command, name)
        data[name] = one._asdict()
        x, y, c, k, f = TABLE_4[name]
        inputs.append(one.original["dram_pj"]["x"] / one.baseline["dram_pj"]["x"])
        kernels.append(operand(one.baseline, "w") / operand(one.optimal, "w"))
        rows.append([name, f"{2 * f * f * -(-c // DATAPATH) * DATAPATH / 1024:.1f}", f"{inputs[-1]:.1f}",
                     *(f"{operand(one.baseline, o):.2f}" for o in "xwy"), f"{memory(one.baseline):.2f}",
                     *(f"{operand(one.optimal, o):.2f}" for o in "xwy"), f"{memory(one.optimal):.2f}",
                     f"{kernels[-1]:.1f}"])
        stacks += [operand_stack(f"{name} baseline", one.baseline), operand_stack(f"{name} optimal", one.optimal)]
    lower = all(float(row[6]) > float(row[10]) and float(row[11]) > 1 for row in rows)
    text = table(["layer", "smallest IB, KB", "input DRAM accesses, without / with the split", "baseline x", "w", "y",
                  "total", "optimal x", "w", "y", "total", "KB energy, baseline / optimal"], rows)
    text += f"""
pJ per multiply-add of all accesses, DRAM included. `{data["conv4"]["baseline"]["command"]}` and
`{data["conv4"]["optimal"]["command"]}`.

- The smallest IB of DianNao's own loops, Fw Fh C, overflows 2 KB in all five layers, as in the paper.
- One more split of X shrinks IB to 2 KB. It saves {geometric_mean(inputs):.1f} times the DRAM accesses of inputs
  (geometric mean;
  paper: 4). The paper prints neither its tiles nor its split. Ours are in the script, and the split is
  the largest one that fits.
- The optimal schedule lowers the energy of KB by {min(kernels):.1f} to {max(kernels):.1f} (paper: 2 to 15) and the
  total in {"all five" if lower else "NOT all"}
  layers. Inputs and outputs in DRAM dominate it, as in the paper.
- DianNao reads its three buffers at each step, so latches are counted here.
"""
    picture = stacked_bars("Paper 000, Figure 5: DianNao, baseline and optimal schedule", "pJ per multiply-add",
                           stacks, OPERANDS)
    return Result({"layers": data}, text, picture)


def codesigned(command: Command, name: str, limit: str, *more: str) -> dict[str, Any]:
    return command.energy("--layer", name, "--limit", limit, *BEST, *more)


def register_energy(ratio: Callable[[float], float], wanted: float) -> float | None:
    """Returns the energy of register files for which a ratio is reached, or nothing if it is not even without them."""
    low, high = 1e-6, 10.0
    if ratio(low) < wanted:
        return None
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if ratio(middle) >= wanted else (low, middle)
    return low


def figure_6(command: Command) -> Result:
    rows, stacks, data = [], [], {}
    worst, counted_ratios = math.inf, []
    for name in CONVS:
        one, ours = diannao(command, name), codesigned(command, name, "8M")
        counted = codesigned(command, name, "8M", "--latches", "counted")
        same = command.energy("--layer", name, "--hierarchy", "diannao", *BEST)

        def ratio(pj: float) -> float:
            with_registers = codesigned(command, name, "8M", "--latches", "counted", "--register-pj", f"{pj:.6g}")
            return memory(one.baseline) / memory(with_registers)

        pj = register_energy(ratio, 13)
        compulsory = sum(ours["dram_pj"].values()) / ours["macs"]
        ratios = {"baseline": memory(one.baseline) / memory(ours),
                  "baseline_counted": memory(one.baseline) / memory(counted),
                  "optimal": memory(one.optimal) / memory(ours), "optimal_free": memory(same) / memory(ours),
                  "optimal_counted": memory(one.optimal) / memory(counted)}
        worst = min(worst, ratios["baseline"])
        counted_ratios.append(ratios["baseline_counted"])
        rows.append([name, f"{memory(one.baseline):.2f}", f"{memory(one.optimal):.2f}", f"{memory(ours):.3f}",
                     f"{compulsory:.3f}", f"{ratios['baseline']:.1f}", f"{ratios['baseline_counted']:.1f}",
                     "none" if pj is None else f"{pj:.2f}", f"{ratios['optimal']:.1f}", f"{ratios['optimal_free']:.1f}",
                     f"{ratios['optimal_counted']:.1f}"])
        data[name] = {"baseline": one.baseline, "optimal": one.optimal, "ours": ours, "ours_counted": counted,
                      "ratios": ratios, "register_pj_for_13": pj}
        stacks += [operand_stack(f"{name} baseline", one.baseline, 1 / memory(one.optimal)),
                   operand_stack(f"{name} optimal schedule", one.optimal, 1 / memory(one.optimal)),
                   operand_stack(f"{name} optimal memories", ours, 1 / memory(one.optimal))]
    proven = all(entry["ours"]["proven"] for entry in data.values())
    same_keys = ("optimal_free", "optimal_counted")
    same_least = min(entry["ratios"][key] for entry in data.values() for key in same_keys)
    same_most = max(entry["ratios"][key] for entry in data.values() for key in same_keys)
    same_below = ", ".join(name for name, entry in data.items() if min(entry["ratios"][key] for key in same_keys) < 5)
    bounds = {name: memory(entry["optimal"]) * entry["ours"]["macs"] / sum(entry["ours"]["dram_pj"].values())
              for name, entry in data.items()}
    unreachable = [name for name, bound in bounds.items() if bound < 13]
    text = table(["layer", "DianNao, baseline schedule", "DianNao, optimal schedule", "8 MB designed", "of this DRAM",
                  "baseline / ours", "with latches counted", "register pJ for 13", "optimal schedule / ours",
                  "latches free in both", "counted in both"], rows)
    text += f"""
pJ per multiply-add of all memories, and their ratios. `{data["conv4"]["ours"]["command"]}`.

- The search is {"exhaustive, and proves that no nest with three levels needs less" if proven else "NOT proven"}.
- Against DianNao's baseline schedule the designed memories need at least {worst:.1f} times less energy (paper:
  at least 13; required: 5 on Conv2 to Conv5). The caption of Figure 6 divides by DianNao with the optimal
  schedule. Against that one they need {min(e["ratios"]["optimal"] for e in data.values()):.1f} to
  {max(e["ratios"]["optimal"] for e in data.values()):.1f} times less. Our optimal schedule
  of DianNao comes from an exhaustive search with three levels, and nothing says that the paper's does.
- If both sides make the same assumption about latches (last two columns), the optimal schedule on DianNao
  needs only {same_least:.1f} to {same_most:.1f} times the energy of ours. That is below 5 in {same_below}.
- No register file gives 13 against the optimal schedule in {", ".join(unreachable)}. If all memories on chip cost
  nothing, the remaining accesses of the DRAM alone would leave {min(bounds.values()):.1f} to
  {max(bounds[n] for n in unreachable):.1f} there.
- "Register pJ for 13": if what the datapath holds for one step (16 + 256 + 16 words) counts as register
  files, this energy per word gives 13 against the baseline. The paper does not publish its registers.
  By the slope of Table 3 they would cost 0.17 to 0.48 pJ, and the ratio would be {min(counted_ratios):.1f} to
  {max(counted_ratios):.1f}.
- DianNao reads its buffers at each step, so its latches are counted, except in the column "latches free in
  both".
"""
    picture = stacked_bars("Paper 000, Figure 6: designed memories of 8 MB", "energy over that of DianNao with the "
                           "optimal schedule", stacks, OPERANDS)
    return Result({"layers": data}, text, picture)


def area_mm2(mib: float) -> float:
    return 0.8 + 5.5 * mib


def figure_7(command: Command) -> Result:
    limits = ["8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M", "4M", "8M"]
    base = {name: diannao(command, name) for name in CONVS}
    rows, stacks, data = [], [], {}
    for limit in limits:
        mib = int(limit[:-1]) / (1 if limit.endswith("M") else 1024)
        area = area_mm2(mib) / area_mm2(36 / 1024)
        found = {name: codesigned(command, name, limit) for name in CONVS}
        shares = {name: memory(base[name].baseline) / memory(found[name]) for name in CONVS}
        against_optimal = geometric_mean([memory(base[name].optimal) / memory(found[name]) for name in CONVS])
        rows.append([limit, f"{area:.1f}", *(f"{shares[name]:.1f}" for name in CONVS),
                     f"{geometric_mean(list(shares.values())):.1f}", f"{against_optimal:.1f}",
                     "yes" if all(r["proven"] for r in found.values()) else "no"])
        data[limit] = {"area_over_diannao": area, "baseline_over_ours": shares, "memory_pj_per_mac":
                       {name: memory(found[name]) for name in CONVS}}
        stacks.append(Stack(limit, [(X, 1 / geometric_mean(list(shares.values())))]))
    text = table(["limit", "area over DianNao's", *CONVS, "geometric mean", "against the optimal schedule",
                  "proven"], rows)
    text += f"""
Energy of DianNao's baseline over ours. `convolume plan energy --layer NAME --limit LIMIT {" ".join(BEST)}`.

- The area is our fit 0.8 mm2 + 5.5 mm2 per MB to the two points of the paper, 6 times with 1 MB and 45
  times with 8 MB. It says nothing new at these points.
- Paper: 10 times less energy with 1 MB, at least 13 with 8 MB. Ours hardly changes from 1 MB on, because
  only Conv1 and Conv4 use more.
"""
    picture = stacked_bars("Paper 000, Figure 7: energy over DianNao's baseline by limit (geometric mean)", "ratio",
                           stacks, [(X, "energy")])
    return Result({"limits": data}, text, picture)


def best_batch(command: Command, name: str) -> tuple[int | None, int, float]:
    """Returns the least batch (a power of two) for which memories need less energy than multiply-adds, if there is one,
    and the batch with the least energy of memories."""
    ratios = {batch: memory(command.energy("--layer", name, "--batch", str(batch), "--limit", "8M", *BEST))
              for batch in (1 << i for i in range(6, 14))}
    below = [batch for batch, ratio in ratios.items() if ratio < 1]
    best = min(ratios, key=lambda batch: ratios[batch])
    return (below[0] if below else None), best, ratios[best]


def batch_text(found: tuple[int | None, int, float]) -> str:
    least, best, ratio = found
    if least is None:
        return f"never below 1; the best batch is {best}, with {ratio:.2f}"
    return f"below 1 from a batch of {least} on"


def figure_8(command: Command) -> Result:
    rows, stacks, data = [], [], {}
    for name in [*CONVS, "fc1", "fc2", "pool", "lrn"]:
        report = codesigned(command, name, "8M")
        dram = sum(report["dram_pj"].values()) / report["macs"]
        data[name] = report
        rows.append([name, f"{memory(report):.3f}", f"{dram:.3f}", "yes" if memory(report) < 0.8 else "no",
                     "yes" if memory(report) < 1 else "no"])
        stacks.append(Stack(name, [(X, memory(report) - dram), (DRAM, dram)]))
    one = command.energy("--layer", "fc2", "--batch", "1", "--limit", "8M", *BEST)
    batches = {name: best_batch(command, name) for name in ("fc1", "fc2")}
    text = table(["layer", "memory over multiply-adds", "of this DRAM", "below 0.8", "below 1"], rows)
    text += f"""
At most 8 MB; a multiply-add costs 1 pJ, which is an assumption (`--mac-pj`). `{data["conv4"]["command"]}`.

- The caption says less than 0.8 for all convolutions and fully connected layers, the text less than 1.
  All five convolutions are below 1.
- With one sample fc2 needs {memory(one):.0f}: every weight comes from the DRAM for one multiply-add, which is 320 pJ.
  The table has 64 samples. Among batches of 64, 128, ... 8192, fc2 is {batch_text(batches["fc2"])}.
  Large batches do not fit into 8 MB.
- fc1 is {batch_text(batches["fc1"])}. Its inputs and results serve 100 and
  200 multiply-adds each. If they come from the DRAM, that alone is 320/100 + 320/200 = 4.8 pJ.
- So the claim about fully connected layers holds for us only if their inputs and results stay on chip,
  or if a multiply-add costs more.
- Pooling and normalisation use each word a few times only. The paper does not claim less than 1 for them.
"""
    picture = stacked_bars("Paper 000, Figure 8: memory energy over that of multiply-adds", "ratio", stacks,
                           [(X, "on chip"), (DRAM, "DRAM")])
    return Result({"layers": data, "batches": batches, "fc2_one_sample": one}, text, picture)


def figure_9(command: Command) -> Result:
    found = command.energy("--layer", "conv1", "--limit", "8M", "--search", "exhaustive", "--levels", "2", "--top", "4")
    keys = [("private", "#8c564b"), ("last_x", X), ("last_w", W), ("last_y", Y), ("broadcast", OTHER), ("dram", DRAM),
            ("shuffle", PAPER)]
    rows, stacks, data = [], [], []
    falls = gains = True
    two: list[float] = []
    eight: list[float] = []
    largest_shuffle = 0.0
    for i, one in enumerate(found["top"]):
        for split, name in (("xy", "shared KB"), ("k", "shared IB")):
            report = command.energy("--layer", "conv1", "--limit", "8M", "--nest", one["loops"], "--cores", "1,2,4,8",
                                    "--split", split)
            totals = [core["energy_pj"]["total"] for core in report["cores"]]
            for core in report["cores"]:
                pj = core["energy_pj"]
                largest_shuffle = max(largest_shuffle, pj["shuffle"] / pj["total"])
                stacks.append(Stack(f"{i + 1}, {name}, {core['cores']} cores",
                                    [(color, pj[key] / totals[0]) for key, color in keys]))
            rows.append([str(i + 1), name, *(f"{total / totals[0]:.3f}" for total in totals),
                         f"{report['cores'][-1]['energy_pj']['shuffle'] / totals[-1]:.4f}"])
            data.append({"schedule": one["string"], "split": split, "cores": report["cores"]})
            if split == "xy":
                falls = falls and all(a > b for a, b in zip(totals, totals[1:]))
            else:
                two.append(totals[1] / totals[0])
                eight.append(totals[-1] / totals[0])
                gains = gains and totals[-1] < data[-2]["cores"][-1]["energy_pj"]["total"]
    text = table(["schedule", "", "1 core", "2", "4", "8", "shuffle, 8 cores"], rows)
    text += f"""
Energy of all memories over that of one core; Conv1, the four best schedules.
`{found["command"]}`, then `--nest NEST --cores 1,2,4,8 --split xy` and `k`.

- With a shared KB the energy falls with the cores: {"yes" if falls else "NO"} (as in the paper).
- A shared IB needs {min(two):.2f} to {max(two):.2f} of one core's energy on 2 cores, and {min(eight):.2f} to
  {max(eight):.2f} on 8. It
  {"is never better than a shared KB" if not gains else "is better than a shared KB in some schedule"} on 8 cores,
  because each
  of its reads crosses a chip whose size KB decides. The paper says that it does not gain at all.
- Shuffling the results costs at most {100 * largest_shuffle:.1f} % of a total (required: less than 5).
- The paper does not say how often a shared buffer is read. Ours is read once for all cores, and a read
  costs what a memory as large as all memories of the chip costs.
"""
    legend = [(color, key.replace("last_x", "LL IB").replace("last_w", "LL KB").replace("last_y", "LL OB"))
              for key, color in keys]
    picture = stacked_bars("Paper 000, Figure 9: several cores, Conv1", "energy over that of one core", stacks, legend)
    return Result({"schedules": data}, text, picture)


def search(command: Command) -> Result:
    rows, data, stacks, searches = [], {}, [], []
    worst, slowest = 0.0, 0.0
    for name in CONVS:
        data[name] = {}
        for levels in (2, 3, 4, 5):
            words = ("--layer", name, "--levels", str(levels), "--top", "1")
            exact = command.energy(*words, "--search", "exhaustive")
            iterative = command.energy(*words, "--search", "iterative")
            ratio = memory(iterative) / memory(exact)
            if levels <= 3:
                worst = max(worst, ratio)
            command_text = exact["command"]
            slowest = max(slowest, iterative["seconds"])
            keys = ("string", "memory_pj_per_mac", "strings_tried", "proven", "seconds")
            data[name][levels] = {"exhaustive": {key: exact[key] for key in keys},
                                  "iterative": {key: iterative[key] for key in keys}, "ratio": ratio}
            searches += [{"layer": name, "levels": levels, "search": way, **data[name][levels][way]}
                         for way in ("exhaustive", "iterative")]
            rows.append([name, str(levels), f"{memory(exact):.4f}", "yes" if exact["proven"] else "no",
                         f"{exact['seconds']:.2f}", f"{memory(iterative):.4f}", f"{iterative['seconds']:.2f}",
                         f"{iterative['strings_tried']:.0f}", f"{100 * (ratio - 1):.2f}"])
        stacks.append(Stack(f"{name}, 5 levels", [(X, data[name][5]["iterative"]["seconds"])]))
    text = table(["layer", "levels", "exhaustive, pJ per multiply-add", "proven", "s", "iterative", "s", "nests tried",
                  "% above"], rows)
    text += f"""
Memory energy. `{command_text}`, and `--search iterative`.

- The iterative search is at most {100 * (worst - 1):.2f} % above the exhaustive one with two and three levels (paper
  and
  required: 8 %).
- It takes at most {slowest:.1f} s for a layer on one core (paper: a few minutes; required: 10 minutes).
- The exhaustive search takes seconds where the paper's took about 24 hours: the least energy that
  completes a partial nest depends only on its tile, on the loops that are still to come, and on the
  operand that is being reused. It is tabulated, and branch and bound follows the table.
"""
    picture = stacked_bars("Paper 000, section 3.5: seconds of the iterative search", "s", stacks, [(X, "iterative")])
    return Result({"layers": data}, text, picture, {"searches": searches})


def system(command: Command) -> Result:
    rows, stacks, data, texts = [], [], {}, []
    for limit in ("64K", "1M", "8M"):
        found = command.run("plan", "system", "--layers", ",".join(CONVS), "--limit", limit, "--top", "1")
        best = found["systems"][0]
        data[limit] = found
        memories = ", ".join(f"{m['name']} {m['bytes'] / 1024:.3g}" for m in best["memories"])
        texts.append(f"- {limit}: {memories} KB.")
        for alone, one in zip(found["alone"], best["layers"]):
            rows.append([limit, one["layer"], f"{memory(alone):.3f}", f"{memory(one):.3f}",
                         f"{memory(one) / memory(alone):.2f}"])
            stacks.append(Stack(f"{one['layer']}, {limit}", [(X, memory(one) / memory(alone))]))
    text = table(["limit", "layer", "memories of its own, pJ per multiply-add", "common memories", "ratio"], rows)
    text += f"""
`{data["1M"]["command"]}`, at most {max(found["seconds"] for found in data.values()):.0f} s. Common memories:

{chr(10).join(texts)}

The sum over all layers is minimised, as in the paper, and Conv1 has 97 % of the multiply-adds. The paper
prints no numbers for this.
"""
    picture = stacked_bars("Paper 000, section 3.6: common memories for five layers", "energy over that with memories "
                           "of its own", stacks, [(X, "common memories")])
    searches = [{key: found[key] for key in ("command", "strings_tried", "seconds")} for found in data.values()]
    return Result({"limits": data}, text, picture, {"searches": searches})


VOLUMES = ["ic32id64oc32kd3pd1", "ic64id32oc64kd3pd1", "ic256id8oc256kd3pd1", "ic32id32oc32kd5pd2",
           "ic32id48oc32kd7pd3", "ic32id16ih96iw96oc64kd1kh3kw3ph1pw1"]


def volumes(command: Command) -> Result:
    rows, stacks, data = [], [], {}
    for problem in VOLUMES:
        found = {limit: command.energy("--problem", problem, "--limit", limit, "--search", "exhaustive",
                                       "--levels", "2", "--top", "1") for limit in ("64K", "1M")}
        data[problem] = found
        rows.append([code(problem), code(found["1M"]["string"]), f"{found['1M']['sram_bytes'] / 1024:.0f}",
                     f"{memory(found['1M']):.3f}", f"{memory(found['64K']):.3f}",
                     "yes" if all(one["proven"] for one in found.values()) else "no"])
        stacks += [operand_stack(problem if limit == "1M" else "64 KB", found[limit]) for limit in ("1M", "64K")]
    text = table(["problem", "best string, at most 1 MB", "KB", "memory, pJ per multiply-add", "with 64 KB", "proven"],
                 rows)
    text += f"""
`{data[VOLUMES[0]]["1M"]["command"]}`. The paper's layers are planar. Here Z and Fd are blocked as X and Fw are.
"""
    picture = stacked_bars("Volumes: memory energy of the best nests", "pJ per multiply-add", stacks, OPERANDS)
    return Result({"problems": data}, text, picture)


TABLES = {1: table_1, 2: table_2, 3: table_3, 4: table_4}
OTHERS = {"search": search, "system": system, "volumes": volumes}
FIGURES = {5: figure_5, 6: figure_6, 7: figure_7, 8: figure_8, 9: figure_9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", type=int, choices=list(TABLES))
    what.add_argument("--figure", type=int, choices=[3, 4, *FIGURES])
    for name in OTHERS:
        what.add_argument(f"--{name}", action="store_true")
    add_output_options(parser)
    parser.add_argument("--counts", type=pathlib.Path, help="with --figure 3 or 4: PREFIX.json of an earlier run")
    parser.add_argument("--convolume", default=str(BENCH.parent / "build/release/tools/convolume"))
    arguments = parser.parse_args()
    if arguments.table:
        name, make = f"table {arguments.table}", TABLES[arguments.table]
    elif arguments.figure in (3, 4):
        name = f"figure {arguments.figure}"
        make = lambda command: cache_figure(arguments.figure, command, arguments.counts)  # noqa: E731
    elif arguments.figure:
        name, make = f"figure {arguments.figure}", FIGURES[arguments.figure]
    else:
        name, make = next((name, make) for name, make in OTHERS.items() if getattr(arguments, name))
    try:
        result = make(Command(arguments.convolume))
    except CommandFailed as failure:
        sys.exit(str(failure))
    write(result._replace(text=wrapped(result.text)), arguments, "000", name, "yang.py")


if __name__ == "__main__":
    main()
