#!/usr/bin/env python3
"""Reproduces Tables 2 to 4 and Figures 2 and 6 to 11 of paper 003 (Zhao et al., swDNN and swCaffe) with
`convolume plan bandwidth`, `plan explain`, `bench_conv`, `bench_net` and `bench_scheduler`.

    bench/papers/swdnn.py (--table 2|3|4 | --figure 2|6|7|8|9|10|11 | --all) --out PREFIX --record FILE
                          [--threads 2] [--into docs/papers.md] [--json FILE]
                          [--convolume build/release/tools/convolume]

Writes PREFIX.md and PREFIX.svg: the paper's value, ours, and the reason for a difference. --into puts the text also
into a document, between the comments that name the table or figure. --all writes all items, each with a prefix of its
own (PREFIX_table_2, PREFIX_figure_6), and prints the required ratios. PREFIX.json holds what was measured.

The tables and Figure 2 are computed. Figures 6 and 7 measure the 51 problems of the test sets in float and double,
which takes one to two hours, Figure 8 takes minutes, and Figures 9 and 11 a quarter of an hour each. --record keeps
each finished measurement as a line of JSON, so that the same command continues after Ctrl-C or a crash. Nothing else
should run meanwhile. Needs bench_conv with oneDNN beside --convolume, OpenBLAS (on Debian: apt-get install
libopenblas0-pthread), and Python 3.
"""
import argparse
import pathlib
import sys
from typing import Any, Callable, NamedTuple, Sequence

sys.dont_write_bytecode = True
from paper_bars import Series, grouped_bars  # noqa: E402
from paper_bench import add_measuring_options, identity_of  # noqa: E402
from paper_page import Result, add_output_options, named, table, write_items  # noqa: E402
from paper_record import Record  # noqa: E402
from swdnn_measure import CUT_BATCH, LONG_PASS, Case, Measurement, Options, mean, speed, test_sets  # noqa: E402
from swdnn_vgg import SCHEDULED, VGG_16, VggTraining  # noqa: E402
from yang_common import Command, CommandFailed, at_least, bullets, code, geometric_mean  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = "swdnn.py"
PAPER, OURS, OTHER, THIRD = "#999999", "#1f77b4", "#ff7f0e", "#2ca02c"
# Table 2: bytes of a run, and GB/s of a core group, get and put.
TABLE_2 = [(32, 4.31, 2.56), (64, 9.00, 9.20), (128, 17.25, 18.83), (192, 17.94, 19.82), (256, 22.44, 25.80),
           (512, 27.42, 30.34), (576, 25.96, 28.91), (640, 29.05, 32.00), (1024, 29.79, 33.44), (2048, 31.32, 35.19)]
PAPER_MEAN, PAPER_LEAST, PAPER_MOST, PAPER_PEAK = 1680, 1300, 2000, 3020  # GFLOP/s of all cases; Table 3
PAPER_LADDER = 48
VGG_BATCH = 8
TRAINING_BATCHES = (8, 32)
REQUIRED = {"onednn": 0.9, "im2col": 1.0, "double": 2.3, "step": 0.97, "ladder": 48.0, "vgg16": 1.2,
            "scheduler": 1.03}
PAPER_TRAINING = "4.6 times (float) and 3.8 times before layouts and threads were changed, over its processor"


class Page(NamedTuple):
    """What all items share."""
    command: Command
    measurement: Measurement
    cases: Sequence[Case]
    layers: pathlib.Path
    machine: dict[str, Any]

    def rows(self, sets: Sequence[int]) -> list[tuple[Case, dict[str, dict[str, Any]]]]:
        """The cases of these sets with what was measured of each, by type."""
        chosen = [case for case in self.cases if case.set in sets]
        self.measurement.cases([case.problem for case in chosen])
        record = self.measurement.record
        return [(case, {precision: record[f"{case.problem} {precision}"] for precision in ("float", "double")})
                for case in chosen]

    def has_all(self) -> bool:
        """Whether all test sets are measured."""
        return self.measurement.has([case.problem for case in self.cases])

    def openblas(self) -> str:
        core = self.measurement.record["openblas"]
        return f"OpenBLAS with {f'OPENBLAS_CORETYPE={core}' if core else 'the kernels that it takes by itself'}."

    def machine_and_load(self, loads: Sequence[float]) -> str:
        return (f"Machine: {self.machine['processor']}, {self.measurement.options.threads} threads, "
                f"{self.machine['simd']}. Load average {min(loads):.1f} to {max(loads):.1f}.")

    def source(self, loads: Sequence[float]) -> str:
        rounds = self.measurement.options.rounds
        return self.machine_and_load(loads) + f" Lower quartiles of {min(3, rounds)} to {rounds} rounds in turn."


def at_most(value: float, required: float) -> str:
    return f"{value:.3f} (required: at most {required:g}{'' if value <= required else ', NOT reached'})"


def table_2(page: Page) -> Result:
    values = {one["name"]: one["value"] for one in page.command.run("machine")["values"]}
    ours = [run / (values["memory_jump"] + values["memory_element"] * run / 4) for run, _, _ in TABLE_2]
    rows = [[str(run), f"{get:.2f}", f"{put:.2f}", f"{mine:.2f}"] for (run, get, put), mine in zip(TABLE_2, ours)]
    text = table(["bytes of a run", "get, SW26010 GB/s", "put", f"copies of a core here, row {page.machine['row']}"],
                 rows)
    text += "\n" + bullets(
        "The first columns are the paper's and the data of our model (`docs/sw26010.toml`). Between rows the model is "
        "linear, below the first it is proportional.",
        "The last column follows from the prices of the machine row (`convolume machine`): a jump and the elements of "
        "a run, from memory. It is of one core, where the paper's is of 64.")
    picture = grouped_bars("Paper 003, Table 2: bandwidth by the length of a run", "GB/s",
                           [str(run) for run, _, _ in TABLE_2],
                           [Series("get, SW26010", PAPER, [get for _, get, _ in TABLE_2]),
                            Series("put, SW26010", OTHER, [put for _, _, put in TABLE_2]),
                            Series("one core here", OURS, ours)], False)
    return Result({"here_gb_per_s": ours}, text, picture)


def table_3(page: Page) -> Result:
    published = page.command.run("plan", "bandwidth", "--test-sets", "--machine", "sw26010")["published_processors"]
    cores = page.measurement.options.threads
    peak = page.machine["gflops_per_core"] * cores
    values = {one["name"]: one["value"] for one in page.command.run("machine")["values"]}
    rows = [[one["name"], f"{one['memory_gb_per_s']:g}", f"{one['float_gflops'] / 1000:.2f}",
             f"{one['double_gflops'] / 1000:.2f}"] for one in published]
    rows.append([f"{page.machine['processor']}, {cores} cores (row {page.machine['row']})",
                 f"{values['memory_gb_per_s']:g} (one core)", f"{peak / 1000:.3f}", f"{peak / 2000:.3f}"])
    text = table(["processor", "memory, GB/s", "float, TFLOP/s", "double"], rows)
    text += "\n" + bullets(
        "The paper prints three peaks for its chip: 3.06 in the introduction, 3.02 here, and 2.97 from equation 1. Our "
        "model computes with 2.97, and shares in percent are of 3.02, as the paper's.")
    picture = grouped_bars("Paper 003, Table 3: peaks", "TFLOP/s, float", [row[0].split(",")[0] for row in rows],
                           [Series("float", OURS, [float(row[2]) for row in rows])], False)
    return Result({"processors": published}, text, picture)


def table_4(page: Page) -> Result:
    rows, data, same = [], [], 0
    for name, shape in VGG_16:
        problem = f"mb{VGG_BATCH}{shape}"
        way = "gemm" if name.startswith("fc") else page.command.run(
            "plan", "bandwidth", "--machine", "here", "--problem", problem)["cases"][0]["way"]
        plan = page.command.run("plan", "explain", "--problem", problem, "--layout", "blocked")
        data.append({"layer": name, "problem": problem, "way": way, "engine": plan["engine"]})
        same += way == plan["engine"]
        rows.append([name, code(problem), way, plan["engine"]])
    text = table(["layer of VGG-16", "problem", "the paper's rule", "`automatic`"], rows)
    text += "\n" + bullets(
        "The rule: `direct` if both sides have at least 64 channels, im2col and a product of matrices if not, and a "
        "product of matrices for fully connected layers. `automatic` compares the seconds of cost models, for training "
        "with blocked tensors.",
        f"{same} of {len(rows)} layers go the same way. There is no engine for im2col here: `direct` reads windows "
        "where they lie. Where kernels of 3 go to toom_cook, that engine multiplies less often, which the paper's code "
        "does not. Fully connected layers are convolutions whose kernel covers x; `direct` computes them as products "
        "of matrices over samples.")
    picture = grouped_bars("Paper 003, Table 4: input channels of the layers of VGG-16", "channels",
                           [name.split(",")[0] for name, _ in VGG_16],
                           [Series("input channels", OURS, [int(shape[2:shape.index("ih")]) for _, shape in VGG_16])],
                           False)
    return Result({"layers": data}, text, picture)


def figure_2(page: Page) -> Result:
    problem = "mb128ic256ih34oc256oh32kh3"
    ways = [("gload", "reordered"), ("ldm", "simple"), ("ldm", "reordered")]
    rows, data, speeds = [], [], []
    for pattern, issue in ways:
        words = ("plan", "bandwidth", "--machine", "sw26010", "--problem", problem, "--pattern", pattern, "--issue",
                 issue)
        found = page.command.run(*words)
        case = found["cases"][0]
        data.append(found)
        speeds.append(case["gflops"])
        rows.append([pattern, issue, f"{case['cdr']:.2f} (needs {case['cdr_needed']:g})", f"{100 * case['ee']:.1f} %",
                     f"{case['rbw_gb_per_s']['memory']:.1f} of {case['mbw_gb_per_s']['memory']:.1f}",
                     f"{case['gflops']:.0f}", case["bound_by"]])
    sets = page.command.run("plan", "bandwidth", "--test-sets", "--machine", "sw26010")["test_sets"]
    text = table(["pattern", "issue", "multiply-adds per load", "EE", "memory, GB/s needed of there are", "GFLOP/s",
                  "bound by"], rows)
    text += "\n" + bullets(
        f"`{data[-1]['command']}`, and others. Figure 2 is the model as a drawing, without numbers.",
        f"Mean of the model over the 51 cases: {sets['mean']:.0f} GFLOP/s, {sets['min']:.0f} to {sets['max']:.0f}. The "
        f"paper measured {PAPER_MEAN} on average, {PAPER_LEAST} to {PAPER_MOST}. Required: within 5 %; it is "
        f"{100 * (sets['mean'] / PAPER_MEAN - 1):+.1f} %.")
    picture = grouped_bars("Paper 003, Figure 2: the model's speed of one convolution", "GFLOP/s",
                           [" ".join(way) for way in ways], [Series("model", OURS, speeds)], False)
    return Result({"models": data, "test_sets": sets}, text, picture)


Rows = list[tuple[Case, dict[str, dict[str, Any]]]]
COLUMNS = ["cases", "SW26010, model GFLOP/s", "of its peak", "double here, GFLOP/s", "of the peak", "float here",
           "of the peak", "oneDNN, float", "im2col, float"]


def share(rows: Rows, precision: str) -> float:
    return 100 * mean([1e9 * speed(found[precision]) / found[precision]["peak_flops"] for _, found in rows])


def group_row(name: str, rows: Rows) -> list[str]:
    model = mean([case.gflops for case, _ in rows])
    cut = [precision for precision in ("float", "double") if any(found[precision]["cut"] for _, found in rows)]
    floats = [found["float"] for _, found in rows]
    return [name + (f" (batch {CUT_BATCH} in {' and '.join(cut)})" if cut else ""), str(len(rows)), f"{model:.0f}",
            f"{100 * model / PAPER_PEAK:.0f} %", f"{mean([speed(found['double']) for _, found in rows]):.1f}",
            f"{share(rows, 'double'):.0f} %", f"{mean([speed(row) for row in floats]):.1f}",
            f"{share(rows, 'float'):.0f} %", f"{mean([speed(row, 'onednn') for row in floats]):.1f}",
            f"{mean([speed(row, 'im2col') for row in floats]):.1f}"]


def groups_of(rows: Rows, letters: str, name: str) -> dict[str, Rows]:
    groups: dict[str, Rows] = {}
    for case, found in rows:
        groups.setdefault(f"{name} {case.extent(letters)}", []).append((case, found))
    return groups


def share_figure(title: str, groups: dict[str, Rows]) -> str:
    return grouped_bars(title, "% of the peak", list(groups), [
        Series("SW26010, model", PAPER, [100 * mean([case.gflops for case, _ in rows]) / PAPER_PEAK
                                         for rows in groups.values()]),
        Series("double here", OTHER, [share(rows, "double") for rows in groups.values()]),
        Series("float here", OURS, [share(rows, "float") for rows in groups.values()])], False)


def loads_of(rows: Rows) -> list[float]:
    return [row["load"] for _, found in rows for row in found.values()]


def engines_of(rows: Rows, precision: str) -> str:
    engines = [found[precision]["engine"] for _, found in rows]
    return ", ".join(f"{engine} {engines.count(engine)}" for engine in dict.fromkeys(engines))


def facts(rows: Rows, whole: bool) -> list[str]:
    """The ratios of some cases as sentences. Those of all test sets, `whole`, are required."""
    floats = [found["float"] for _, found in rows]
    over = {peer: geometric_mean([row[f"{peer}_low_s"] / row["ours_low_s"] for row in floats])
            for peer in ("onednn", "im2col")}
    # Per operation, because the batch may be cut in double only.
    double = geometric_mean([speed(found["float"]) / speed(found["double"]) for _, found in rows])
    texts = {key: at_least(value, REQUIRED[key]) if whole else f"{value:.3f}" for key, value in over.items()}
    texts["double"] = at_most(double, REQUIRED["double"]) if whole else f"{double:.3f}"
    cuts = {f"{case.problem} {precision}": row["cut"] for case, found in rows for precision, row in found.items()
            if row["cut"]}
    reasons = list(cuts.values())
    return [
        f"`automatic` in float over oneDNN, geometric mean of {len(rows)} cases: {texts['onednn']}; over im2col with "
        f"OpenBLAS {texts['im2col']}. Seconds of double over float: {texts['double']}.",
        f"Share of the peak that was measured in the same run: float {share(rows, 'float'):.0f} %, double "
        f"{share(rows, 'double'):.0f} % (paper: 56 %, double). Engines: float {engines_of(rows, 'float')}; double "
        f"{engines_of(rows, 'double')}. The operations of the definition are counted. fft_tiled and toom_cook need "
        "fewer, so they can exceed the peak.",
        f"The batch was cut to {CUT_BATCH} in {len(cuts)} measurements: in {reasons.count('time')} because a pass of "
        f"the slowest side takes more than {LONG_PASS:g} s, and in {reasons.count('memory')} because the tensors of "
        "all sides would fill half of the memory." if cuts else ""]


def measured_rows(rows: Rows) -> list[dict[str, Any]]:
    return [{"set": case.set, "problem": case.problem, "precision": precision, "model_gflops": case.gflops, **row}
            for case, found in rows for precision, row in found.items()]


def figure_6(page: Page) -> Result:
    rows = page.rows([1])
    inputs, outputs = groups_of(rows, "ic", "Ni"), groups_of(rows, "oc", "No")
    text = table(["(a) input channels", *COLUMNS], [group_row(name, group) for name, group in inputs.items()]) + "\n"
    text += table(["(b) output channels", *COLUMNS], [group_row(name, group) for name, group in outputs.items()])
    text += "\n" + bullets(
        page.source(loads_of(rows)) + " Means of test set 1, forward, blocked tensors, fresh weights. "
        + page.openblas(),
        "The numbers of the paper's bars are lost with its picture. The text says that speed rises with the input "
        "channels, and hardly depends on the output channels.", *facts(rows, False))
    everything = {"machine": named(page.machine), "rows": measured_rows(rows)}
    return Result(everything, text,
                  share_figure("Paper 003, Figure 6: test set 1", {**inputs, **outputs}), everything)


def figure_7(page: Page) -> Result:
    rows = page.rows([2, 3, 4])
    parts = {"(a) maps": groups_of([row for row in rows if row[0].set == 2], "oh", "R"),
             "(b) kernels": groups_of([row for row in rows if row[0].set == 3], "kh", "K"),
             "(c) samples": groups_of([row for row in rows if row[0].set == 4], "mb", "B")}
    text = "\n".join(table([head, *COLUMNS], [group_row(name, group) for name, group in groups.items()])
                     for head, groups in parts.items())
    text += "\n" + bullets(
        page.source(loads_of(rows)) + " Test sets 2 to 4, forward, blocked tensors, fresh weights. "
        + page.openblas(),
        "Paper: small maps and batches of 32 and 64 are slower, and the size of the kernel hardly matters.",
        *facts(rows, False))
    must = facts(page.rows([1, 2, 3, 4]), True) if page.has_all() else []
    text += "\nAll test sets:\n\n" + bullets(*must) if must else ""
    everything = {"machine": named(page.machine), "rows": measured_rows(rows)}
    picture = share_figure("Paper 003, Figure 7: test sets 2 to 4",
                           {name: group for groups in parts.values() for name, group in groups.items()})
    return Result({"musts": must, **everything}, text, picture, everything)


def figure_8(page: Page) -> Result:
    found = page.measurement.ladder()
    steps = found["steps"]
    gains = [before["low_s"] / step["low_s"] for before, step in zip(steps, steps[1:])]
    rows = [[step["step"], str(step["threads"]), f"{step['low_s']:.4g}", f"{step['gflops']:.2f}",
             f"{gains[i - 1]:.2f}" if i else "", f"{steps[0]['low_s'] / step['low_s']:.1f}"]
            for i, step in enumerate(steps)]
    product = steps[0]["low_s"] / steps[-1]["low_s"]
    must = [f"Least gain of a step: {at_least(min(gains), REQUIRED['step'])}. All steps: "
            f"{at_least(product, REQUIRED['ladder'])}, paper: {PAPER_LADDER}."]
    text = table(["step", "threads", "seconds", "GFLOP/s", "over the step before", "over the first"], rows)
    text += "\n" + bullets(
        page.source([found["load"]]) + f" `bench_conv --ladder`, problem `{steps[0]['problem']}`, in float.", *must,
        "The paper's steps are Algorithm 2, vectors, blocks in scratch memory, registers, order of the instructions, "
        "and four core groups. Here caches take the place of scratch memory, and the order of the instructions is the "
        "compiler's; the fifth step is the default nest of `direct`. The first step has `-O2 -fno-tree-vectorize`, the "
        "next two `-O3` and the whole instruction set.")
    picture = grouped_bars("Paper 003, Figure 8: steps of the optimisation", "times the first step, logarithmic",
                           [step["step"].split(",")[0] for step in steps],
                           [Series("ours", OURS, [steps[0]["low_s"] / step["low_s"] for step in steps])], True)
    measured = {"machine": named(page.machine), "load_average": found["load"], "steps": steps}
    return Result({"musts": must, **measured}, text, picture, measured)


def figure_9(page: Page) -> Result:
    layers = page.measurement.vgg_16(page.layers, VGG_BATCH)
    words = ("plan", "bandwidth", "--test-sets", "--machine", "sw26010")
    models = {(precision, issue): page.command.run(*words, "--type", precision, "--issue", issue)["test_sets"]["mean"]
              for precision, issue in (("f64", "reordered"), ("f32", "float"), ("f32", "float2double"))}
    speeds = {precision: [speed(found[precision]) for found in layers.values()] for precision in ("float", "double")}
    rows = [[name, *(f"{speed(found[precision]):.1f}" for precision in ("double", "float")),
             f"{speed(found['float']) / speed(found['double']):.2f}", found["float"]["engine"],
             found["double"]["engine"]] for name, found in layers.items()]
    gain = models["f32", "float2double"] / models["f32", "float"]
    text = table(["layer", "double, GFLOP/s", "float", "float over double", "engine in float", "in double"], rows)
    text += "\n" + bullets(
        page.source([row["load"] for found in layers.values() for row in found.values()])
        + f" Training of the nine convolutions of VGG-16 that differ, batch {VGG_BATCH}; a training pass is three "
        "passes.",
        f"Means: double {mean(speeds['double']):.1f}, float {mean(speeds['float']):.1f} GFLOP/s. A vector of this "
        "machine has twice as many floats as doubles; the SW26010 has four of either.",
        f"The model of the SW26010, mean of the 51 test cases: double {models['f64', 'reordered']:.0f}, float without "
        f"a cast {models['f32', 'float']:.0f}, float2double {models['f32', 'float2double']:.0f} GFLOP/s. Casting gains "
        f"{100 * (gain - 1):.0f} % (paper: about 10 %, on the layers of VGG-16). The slots of a cast are our "
        "assumption.")
    picture = grouped_bars("Paper 003, Figure 9: training of VGG-16's convolutions", "GFLOP/s", list(layers), [
        Series("double", OTHER, speeds["double"]), Series("float", OURS, speeds["float"])], False)
    measured = {"machine": named(page.machine), "layers": [
        {"layer": name, "precision": precision, **row} for name, found in layers.items()
        for precision, row in found.items()]}
    means = {" ".join(key): value for key, value in models.items()}
    return Result({"models": means, **measured}, text, picture, measured)


def training_of(page: Page) -> VggTraining:
    options = page.measurement.options
    return VggTraining(page.command, page.measurement.record, options.threads, min(3, options.rounds))


def figure_10(page: Page) -> Result:
    found = {name: training_of(page).schedulers(name) for name in SCHEDULED}
    rows, must = [], []
    for name, row in found.items():
        ours, joined = row["convolume"], row["join_levels"]
        rows.append([name, str(ours["tasks"]), str(ours["levels"]), f"{ours['us_per_level']:.2f}",
                     f"{joined['us_per_level']:.2f}", f"{joined['ratio']:.2f}"])
        must.append(f"{name}, time of our scheduler over that of joined threads: "
                    f"{at_most(1 / joined['ratio'], REQUIRED['scheduler'])}.")
    text = table(["net", "tasks of an iteration", "levels", "our scheduler, µs per level", "threads made and joined",
                  "ratio"], rows)
    text += "\n" + bullets(
        page.machine_and_load([row["load"] for row in found.values()]) + " Medians of nine rounds in turn, "
        "`bench_scheduler --side-by-side --set training.batch=8`, tasks without work.", *must,
        "A level holds the tasks that come after equally many others. Threads are made where a level has several "
        "tasks, and joined before the next level. Our scheduler keeps its threads and has no levels. The numbers of "
        "the paper's bars are lost with the picture.")
    picture = grouped_bars("Paper 003, Figure 10: threads that stay, and threads that are joined", "µs per level",
                           list(found), [
        Series("made and joined", OTHER, [row["join_levels"]["us_per_level"] for row in found.values()]),
        Series("our scheduler", OURS, [row["convolume"]["us_per_level"] for row in found.values()])], True)
    measured = {"machine": named(page.machine), "nets": found}
    return Result({"musts": must, **measured}, text, picture, measured)


def figure_11(page: Page) -> Result:
    training = training_of(page)
    page.measurement.take_fastest_openblas()
    rows, ratios, speeds, loads = [], [], {}, []
    for batch in TRAINING_BATCHES:
        net, peers = training.net(batch), training.peers(batch)
        bar = peers + net["outside"]
        ratios.append(bar / net["seconds"])
        speeds[batch] = (batch / net["seconds"], batch / bar)
        loads += [net["load"], *(training.peer(name, shape, batch)["load"] for name, shape in VGG_16)]
        rows.append([str(batch), f"{net['seconds']:.2f}", f"{speeds[batch][0]:.2f}", f"{net['outside']:.2f}",
                     f"{peers:.2f}", f"{speeds[batch][1]:.2f}", at_least(ratios[-1], REQUIRED["vgg16"])])
    text = table(["batch", "our iteration, s", "images/s", "outside of convolutions, s", "convolutions by im2col and "
                  "OpenBLAS, s", "images/s with them", "ratio"], rows)
    text += "\n" + bullets(
        page.machine_and_load(loads) + " Training of `nets/zoo/vgg16.toml` by `bench_net`; medians of "
        f"{training.rounds} rounds. " + page.openblas(),
        "The bar of im2col is the sum of the training passes of all 16 layers (`bench_conv`, the same batch) and what "
        "our net takes outside of convolutions. Its first layer computes no gradient of x, as ours.",
        f"Paper: {PAPER_TRAINING}. The numbers of its bars are lost with the picture.")
    picture = grouped_bars("Paper 003, Figure 11: training of VGG-16", "images/s",
                           [f"batch {batch}" for batch in speeds],
                           [Series("im2col and OpenBLAS", OTHER, [theirs for _, theirs in speeds.values()]),
                            Series("ours", OURS, [mine for mine, _ in speeds.values()])], False)
    must = [f"Batch {batch}, images/s over those with im2col: {at_least(ratio, REQUIRED['vgg16'])}."
            for batch, ratio in zip(speeds, ratios)]
    measured = {"machine": named(page.machine), "images_per_second": speeds, "ratios": ratios}
    return Result({"musts": must, **measured}, text, picture, measured)


ITEMS: dict[str, Callable[[Page], Result]] = {
    "table 2": table_2, "table 3": table_3, "table 4": table_4, "figure 2": figure_2, "figure 6": figure_6,
    "figure 7": figure_7, "figure 8": figure_8, "figure 9": figure_9, "figure 10": figure_10, "figure 11": figure_11}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", type=int, choices=[2, 3, 4])
    what.add_argument("--figure", type=int, choices=[2, 6, 7, 8, 9, 10, 11])
    what.add_argument("--all", action="store_true")
    add_output_options(parser)
    add_measuring_options(parser, rounds=5)
    parser.add_argument("--threads", type=int, default=2, help="threads [2]")
    parser.add_argument("--max-seconds", type=float, default=20,
                        help="no round of a problem begins that would end later, except the first three [20]")
    parser.add_argument("--layers", type=pathlib.Path, default=BENCH / "problems/published/vgg16.txt",
                        help="list of the layers of Figure 9")
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    options = Options(arguments.threads, arguments.rounds, arguments.max_seconds)
    command = Command(arguments.convolume)
    try:
        machine = command.run("machine")
        identity = {**identity_of(SCRIPT, command, machine), **options._asdict()}
        measurement = Measurement(command, Record(arguments.record, identity), options, machine)
        page = Page(command, measurement, test_sets(command), arguments.layers, machine)
        write_items(ITEMS, page, arguments, "003", SCRIPT)
    except CommandFailed as failure:
        sys.exit(f"{failure}\n{arguments.record} keeps what is finished; the same command continues")
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {arguments.record} keeps what is finished, and the same command continues")


if __name__ == "__main__":
    main()
