#!/usr/bin/env python3
"""Reproduces Table 1 and Figures 1, 2, 4 and 7 to 26 of paper 004 (Tavarageri et al., PolyScientist) with
`convolume plan variants`, `plan reuse` and `bench_conv --side-by-side`.

    bench/papers/polyscientist.py (--table 1 | --figure 1|2|4|7|8|...|26 | --all) --out PREFIX --record FILE
                                  [--minutes 100] [--threads 2] [--into docs/papers.md] [--json FILE]
                                  [--convolume build/release/tools/convolume]

Writes PREFIX.md and PREFIX.svg: the paper's value, ours, and the reason for a difference. --into puts the text also
into a document, between the comments that name the table or figure. --all writes all items, each with a prefix of its
own (PREFIX_table_1, PREFIX_figure_7), and prints the required ratios. PREFIX.json of Table 1 has a row per layer.

An item measures the layers that it needs. --record keeps each finished layer as a line of JSON, so that the same
command continues after Ctrl-C or a crash, and no layer is measured twice. --minutes is the time of all layers of a run;
the seconds per layer follow, and so does the number of variants: all that there are up to 480, but at least 120.
Nothing else should run meanwhile. Needs bench_conv with oneDNN beside --convolume, and Python 3.
"""
import argparse
import pathlib
import statistics
import sys
from typing import Any, Callable, NamedTuple, Sequence

sys.dont_write_bytecode = True
from paper_bars import Series, grouped_bars  # noqa: E402
from paper_bench import add_measuring_options, identity_of  # noqa: E402
from paper_page import Result, add_output_options, named, table, write_items  # noqa: E402
from paper_record import Record  # noqa: E402
from polyscientist_measure import NETS, ORDERS, ORDERS_OF, Layer, Measurement, Options, read_list  # noqa: E402
from yang_common import Command, CommandFailed, at_least, bullets, code, geometric_mean  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = "polyscientist.py"
# Table 1, GFLOP/s on 28 cores: baseline, PolyScientist, PolyScientist-DNN, MKL-DNN.
TABLE_1 = {"resnet50": (391, 2448, 2463, 2459), "fast_rcnn": (390, 2305, 2312, 2511),
           "mask_rcnn": (336, 1988, 2052, 2243), "xception": (348, 2276, 2292, 2595),
           "yolov2": (387, 2503, 2551, 2547), "mobilenet": (333, 2217, 2247, 2440),
           "alexnet": (418, 2751, 2779, 2563), "overfeat": (331, 2621, 2644, 2534),
           "googlenet_v1": (241, 2322, 2377, 2276), "googlenet_v3": (291, 2480, 2492, 2547)}
# What the text of section 6.2 says of each net's two figures.
SENTENCES = {
    "resnet50": "Paper: 5 to 10 times the baseline; the default order is as good as the pick; in layer 19 the pick is "
                "14 % slower than the best variant.",
    "fast_rcnn": "Paper: 4 to 11 times the baseline; 28 % over the default order, about 2 times in layers 4, 7, 8, 10 "
                 "and 11.",
    "mask_rcnn": "Paper: 41 % over the default order, more than 2 times in seven layers; layers 31 and 32 (7 x 7 and "
                 "1 x 1) are far below the peak.",
    "xception": "Paper: the right variant in all layers.",
    "yolov2": "Paper: close to MKL-DNN; the variants differ much.",
    "mobilenet": "Paper: as fast as MKL-DNN; the variants differ little.",
    "alexnet": "Paper: hardly a difference between the layers; faster than MKL-DNN.",
    "overfeat": "Paper: slightly faster than MKL-DNN.",
    "googlenet_v1": "Paper: slightly faster than MKL-DNN.",
    "googlenet_v3": "Paper: slightly slower than MKL-DNN."}
WAYS = {"c_loops": "Figure 6 in C", "default": "default order", "reuse": "pick by reuse", "seconds": "pick by seconds",
        "automatic": "automatic", "onednn": "oneDNN"}
COLORS = {"c_loops": "#999999", "default": "#ff7f0e", "reuse": "#1f77b4", "seconds": "#9467bd", "automatic": "#2ca02c",
          "onednn": "#d62728"}
REQUIRED = {"net": 0.80, "nets": 0.90, "pick": 0.95, "worst pick": 0.80}
# oneDNN waits for its threads in some calls. Layers whose median is so much above the lower quartile are shown apart.
UNSTEADY_PEER = 3


class Measured(NamedTuple):
    """A layer with what the record has of it."""
    layer: Layer
    data: dict[str, Any]

    def low(self, who: str) -> float:
        """Lower quartile of the seconds in turn."""
        return self.data["finals"][who]["low_s"]

    def gflops(self, who: str) -> float:
        return self.data["flops"] / self.low(who) / 1e9

    def speed(self, who: str, over: str) -> float:
        return self.low(over) / self.low(who)

    @property
    def peer_is_steady(self) -> bool:
        one = self.data["finals"]["onednn"]
        return one["median_s"] <= UNSTEADY_PEER * one["low_s"]


class Page(NamedTuple):
    """What all items share."""
    command: Command
    measurement: Measurement
    lists: pathlib.Path
    threads: int
    machine: dict[str, Any]

    def layers(self, net: str) -> list[Layer]:
        return read_list(self.lists, net, self.threads)

    def measured(self, *nets: str) -> dict[str, list[Measured]]:
        """Measures what is missing."""
        layers = {net: self.layers(net) for net in nets}
        self.measurement.run([layer for found in layers.values() for layer in found])
        return {net: [Measured(layer, self.measurement.record[layer.problem]) for layer in found]
                for net, found in layers.items()}

    def source(self, layers: Sequence[Measured]) -> str:
        loads = [one.data["load"] for one in layers]
        return (f"Machine: {self.machine['processor']}, {self.threads} threads, {self.machine['simd']}; "
                f"forward, batch {self.threads}, prepared weights on all sides. Lower quartiles of at least "
                f"{self.measurement.options.rounds} rounds in turn. Load average {min(loads):.1f} to {max(loads):.1f}.")


def mean_of(layers: Sequence[Measured], who: str, over: str) -> float:
    return geometric_mean([one.speed(who, over) for one in layers])


def musts_of_pick(nets: dict[str, list[Measured]], who: str) -> list[str]:
    """The required ratios of a pick."""
    layers = [one for found in nets.values() for one in found]
    of_nets = {net: mean_of(found, who, "onednn") for net, found in nets.items()}
    slow = [f"{NETS[net]} {value:.3f}" for net, value in of_nets.items() if value < REQUIRED["net"]]
    steady = {net: [one for one in found if one.peer_is_steady] for net, found in nets.items()}
    steady_means = [mean_of(found, who, "onednn") for found in steady.values() if found]
    over_best = [one.speed(who, "best") for one in layers]
    worst = min(layers, key=lambda one: one.speed(who, "best"))
    pick = WAYS[who].capitalize()
    return [
        f"{pick} over oneDNN, geometric mean of the {len(nets)} nets: "
        f"{at_least(geometric_mean(list(of_nets.values())), REQUIRED['nets'])}. "
        + (f"Nets below {REQUIRED['net']:.2f}: {', '.join(slow)}. " if slow else
           f"No net is below {REQUIRED['net']:.2f}. ")
        + (f"Without the {sum(not one.peer_is_steady for one in layers)} layers in which oneDNN's median is above "
           f"{UNSTEADY_PEER} times its lower quartile: {geometric_mean(steady_means):.3f}." if steady_means else
           "oneDNN is unsteady in all layers."),
        f"{pick} over the best variant: {at_least(geometric_mean(over_best), REQUIRED['pick'])}; the worst layer is "
        f"{worst.layer.name} of {NETS[worst.layer.net]} with {at_least(min(over_best), REQUIRED['worst pick'])}; "
        f"{sum(share < REQUIRED['worst pick'] for share in over_best)} of {len(layers)} layers are below "
        f"{REQUIRED['worst pick']}.",
        f"{pick} over the default order: {mean_of(layers, who, 'default'):.3f}; over Figure 6 in C: "
        f"{mean_of(layers, who, 'c_loops'):.2f} (paper: 4 to 11)."]


def musts(nets: dict[str, list[Measured]]) -> list[str]:
    """The required ratios, each as a sentence."""
    layers = [one for found in nets.values() for one in found]
    few = sum(one.data["variants"] < 120 for one in layers)
    short = [one for one in layers if one.data["variants"] < min(120, one.data["candidates"])]
    unsteady = [one for one in layers if not one.data["steady"]]
    return [
        *musts_of_pick(nets, "seconds"), *musts_of_pick(nets, "reuse"),
        f"Automatic over oneDNN: {geometric_mean([mean_of(f, 'automatic', 'onednn') for f in nets.values()]):.3f}.",
        f"Variants per layer: {min(one.data['variants'] for one in layers)} to "
        f"{max(one.data['variants'] for one in layers)}; {few} of {len(layers)} layers have fewer than 120. "
        + (f"{len(short)} of these have more candidates." if short else "These have all that there are."),
        f"Unsteady layers (the default order's times differ by more than 10 %, twice): {len(unsteady)} of "
        f"{len(layers)}."]


def engines_text(layers: Sequence[Measured]) -> str:
    engines = [one.data["finals"]["automatic"]["engine"] for one in layers]
    return ", ".join(f"{engine} {engines.count(engine)}" for engine in dict.fromkeys(engines))


def table_1(page: Page) -> Result:
    nets = page.measured(*NETS)
    speeds = {net: {who: geometric_mean([one.gflops(who) for one in found]) for who in WAYS}
              for net, found in nets.items()}
    rows, ratios = [], []
    for net, found in nets.items():
        paper, ours = TABLE_1[net], speeds[net]
        rows.append([NETS[net], str(len(found)), *(str(value) for value in paper),
                     *(f"{ours[who]:.1f}" for who in WAYS), engines_text(found)])
        ratios.append([NETS[net], f"{paper[1] / paper[3]:.3f}",
                       *(f"{mean_of(found, who, 'onednn'):.3f}" for who in ("seconds", "reuse", "automatic")),
                       f"{paper[1] / paper[0]:.1f}", f"{mean_of(found, 'seconds', 'c_loops'):.1f}",
                       f"{mean_of(found, 'seconds', 'default'):.3f}",
                       *(f"{mean_of(found, who, 'best'):.3f} ({min(one.speed(who, 'best') for one in found):.2f})"
                         for who in ("seconds", "reuse"))])
    text = table(["net", "layers", "paper: baseline", "PolyScientist", "with a network", "MKL-DNN",
                  *(f"ours: {name}" if i == 0 else name for i, name in enumerate(WAYS.values())), "engines"], rows)
    text += "\nGFLOP/s, geometric means of a net's layers.\n\n"
    text += table(["net", "pick over MKL-DNN, paper", "over oneDNN: by seconds", "by reuse", "automatic",
                   "pick over baseline, paper", "over Figure 6 in C", "over the default order",
                   "over the best variant (at worst)", "the same, by reuse"], ratios)
    text += "\n" + bullets(
        page.source(sum(nets.values(), [])) + " Ratios of speed. Our pick is by seconds, if not said otherwise; the "
        "reuse cost orders variants of equal seconds.", *musts(nets),
        "The paper measured 28 cores of a Xeon Platinum 8280 with a batch of 28, icc 19 and MKL-DNN 1.0.4. Its pick by "
        "a network of pairs is not repeated here. \"Figure 6 in C\" is `bench/peers/blocked_loops.c`: `-O3`, the whole "
        "instruction set, sums in any order.",
        "`automatic` takes any engine. Where it is toom_cook or fft_tiled, it computes less than the other columns, and "
        "GFLOP/s count a direct computation.")
    picture = grouped_bars("Paper 004, Table 1: geometric means of the layers", "GFLOP/s", list(NETS.values()), [
        Series(name, COLORS[who], [speeds[net][who] for net in NETS]) for who, name in WAYS.items()], logarithmic=False)
    measured = {"machine": named(page.machine), "threads": page.threads, "layers": [record_row(one) for one in
                                                                                   sum(nets.values(), [])]}
    return Result({"gflops": speeds, "musts": musts(nets), **measured}, text, picture, measured)


def record_row(one: Measured) -> dict[str, Any]:
    """A row of the data file: lower quartiles, and oneDNN's median. A number takes less of a line than a name."""
    finals = one.data["finals"]
    seconds = {f"{who}_low_s": finals[who]["low_s"] for who in (*WAYS, "best")}
    keep = ("variants", "steady", "slowest_s", "median_s", "fastest_s")
    return {"net": one.layer.net, "layer": one.layer.number, "problem": one.layer.problem,
            **{key: one.data[key] for key in keep}, **seconds, "engine": finals["automatic"]["engine"],
            "onednn_median_s": finals["onednn"]["median_s"], "pick": one.data["nests"]["seconds"],
            "pick_by_reuse": one.data["nests"]["reuse"], "best": one.data["nests"]["best"]}


def numbers(layers: Sequence[Measured]) -> list[str]:
    return [str(one.layer.number) for one in layers]


def bars_figure(page: Page, number: int, net: str) -> Result:
    layers = page.measured(net)[net]
    rows = [[str(one.layer.number), one.layer.name, code(one.layer.problem),
             *(f"{one.gflops(who):.1f}" for who in WAYS),
             one.data["finals"]["automatic"]["engine"],
             f"{one.speed('seconds', 'onednn'):.2f}" + ("" if one.peer_is_steady else " (oneDNN unsteady)"),
             str(one.data["variants"]) + ("" if one.data["steady"] else " (unsteady)"),
             f"{one.data['fastest_s'] / one.data['slowest_s']:.2f}", f"{one.speed('seconds', 'best'):.3f}",
             f"{one.speed('reuse', 'best'):.3f}"] for one in layers]
    text = table(["", "layer", "problem", *WAYS.values(), "engine", "pick over oneDNN", "variants",
                  "slowest over fastest", "pick over best", "pick by reuse over best"], rows)
    slow = [f"{one.layer.number} ({one.speed('seconds', 'onednn'):.2f})" for one in layers
            if one.speed("seconds", "onednn") < REQUIRED["net"]]
    text += "\n" + bullets(
        "GFLOP/s. " + page.source(layers),
        f"Geometric means: the pick (by seconds) over oneDNN "
        f"{at_least(mean_of(layers, 'seconds', 'onednn'), REQUIRED['net'])}, "
        f"over the default order {mean_of(layers, 'seconds', 'default'):.3f}, over Figure 6 in C "
        f"{mean_of(layers, 'seconds', 'c_loops'):.2f} ({min(one.speed('seconds', 'c_loops') for one in layers):.1f} to "
        f"{max(one.speed('seconds', 'c_loops') for one in layers):.1f}).",
        f"Layers in which the pick has less than {REQUIRED['net']:.2f} of oneDNN's speed: {', '.join(slow)}." if slow
        else "", SENTENCES[net])
    picture = grouped_bars(f"Paper 004, Figure {number}: layers of {NETS[net]}", "GFLOP/s", numbers(layers), [
        Series(name, COLORS[who], [one.gflops(who) for one in layers])
        for who, name in WAYS.items()], logarithmic=False)
    return Result({"layers": [record_row(one) for one in layers]}, text, picture)


def distribution_figure(page: Page, number: int, net: str) -> Result:
    layers = page.measured(net)[net]
    picks = {who: [one.speed(who, "best") for one in layers] for who in ("reuse", "seconds")}
    slowest = [one.data["fastest_s"] / one.data["slowest_s"] for one in layers]
    middle = [one.data["fastest_s"] / one.data["median_s"] for one in layers]
    worst = min(layers, key=lambda one: one.speed("seconds", "best"))
    text = bullets(
        f"Speed over that of the fastest variant: the slowest has {min(slowest):.2f} to {max(slowest):.2f}, the "
        f"median {min(middle):.2f} to {max(middle):.2f}. These are single measurements of all variants.",
        f"Pick by seconds {geometric_mean(picks['seconds']):.3f}, at worst {min(picks['seconds']):.3f} in layer "
        f"{worst.layer.number} ({worst.layer.name}); pick by reuse {geometric_mean(picks['reuse']):.3f}, at worst "
        f"{min(picks['reuse']):.3f}. These were measured in turn with the best.",
        f"{sum(not one.data['steady'] for one in layers)} of {len(layers)} layers were unsteady.")
    series = [Series("slowest variant", "#d62728", slowest), Series("median", "#999999", middle),
              Series("pick by seconds", COLORS["seconds"], picks["seconds"]),
              Series("pick by reuse", COLORS["reuse"], picks["reuse"])]
    picture = grouped_bars(f"Paper 004, Figure {number}: variants of {NETS[net]}",
                           "speed over that of the best variant", numbers(layers), series, logarithmic=False)
    return Result({"layers": [record_row(one) for one in layers]}, text, picture)


def figure_1(page: Page) -> Result:
    layers = page.measured(ORDERS_OF)[ORDERS_OF]
    shares = {name: [min(one.low(other) for other in ORDERS) / one.low(name) for one in layers] for name in ORDERS}
    rows = [[name, code(order), f"{geometric_mean(shares[name]):.3f}", f"{min(shares[name]):.2f}",
             str(sum(share >= 0.99 for share in shares[name]))] for name, order in ORDERS.items()]
    text = table(["", "order of the outer loops", "speed over the fastest of the four", "at worst",
                  "layers within 1 % of the fastest"], rows)
    text += "\n" + bullets(
        page.source(layers), f"Four orders on the {len(layers)} layers of {NETS[ORDERS_OF]}. The paper does not name "
        "its four, so these are ours: the default order, rows outside, input channels outside, and taps outside.",
        "Paper: no order is the fastest everywhere; v2 is good in layers 1 to 19 and poor in 20 to 27. Layers with a "
        "kernel of 1 have no loops over taps, so some orders are equal there.")
    picture = grouped_bars("Paper 004, Figure 1: four orders of the loops", "speed over the fastest of the four",
                           numbers(layers), [Series(name, color, shares[name]) for name, color in
                                             zip(ORDERS, ("#ff7f0e", "#1f77b4", "#2ca02c", "#9467bd"))], False)
    return Result({"shares": shares}, text, picture)


def figure_2(page: Page) -> Result:
    layers = page.measured(ORDERS_OF)[ORDERS_OF]
    picks = [min(ORDERS, key=lambda name: one.data["reuse"][name]) for one in layers]
    shares = [min(one.low(other) for other in ORDERS) / one.low(pick) for one, pick in zip(layers, picks)]
    counts = ", ".join(f"{name} {picks.count(name)}" for name in ORDERS)
    text = bullets(
        f"The order of least reuse cost among the four of Figure 1 has {geometric_mean(shares):.3f} of the speed of "
        f"the fastest (median {statistics.median(shares):.3f}, at worst {min(shares):.2f} in layer "
        f"{layers[shares.index(min(shares))].layer.number}). Picked: {counts}.",
        "Paper: close to the fastest in all 25 layers.")
    picture = grouped_bars("Paper 004, Figure 2: the order that the reuse cost picks",
                           "speed over the fastest of the four", numbers(layers),
                           [Series("pick by reuse", COLORS["reuse"], shares)], False)
    return Result({"picks": picks, "shares": shares}, text, picture)


def figure_4(page: Page) -> Result:
    m, n, k = 5, 7, 11
    found = page.command.run("plan", "reuse", "--problem", f"mb{m}ic{k}ih1oc{n}oh1kh1", "--nest", "n k | c")
    d2 = next(one for one in found["dependences"] if one["operand"] == "x")
    rows = [["least", f"2K + 3 = {2 * k + 3}", str(d2["ws_min"])],
            ["largest", f"NK + N + 1 = {n * k + n + 1}", str(d2["ws_max"])]]
    text = table(["working set of d2", "paper", "ours"], rows)
    text += "\n" + bullets(
        f"A product of matrices with M = {m}, N = {n} and K = {k}, as a convolution of {m} samples of one voxel. Its "
        f"nest is `{found['nest']}`: d2 is the reuse of x that the loop over k carries.", f"`{found['command']}`")
    picture = grouped_bars("Paper 004, Figure 4: working sets of d2", "elements", ["least", "largest"], [
        Series("paper", "#999999", [2 * k + 3, n * k + n + 1]),
        Series("ours", "#1f77b4", [d2["ws_min"], d2["ws_max"]])], False)
    return Result({"reuse": found}, text, picture)


def items() -> dict[str, Callable[[Page], Result]]:
    """All items by name, in the order of the paper."""
    def of_net(make: Callable[[Page, int, str], Result], number: int, net: str) -> Callable[[Page], Result]:
        return lambda page: make(page, number, net)

    found: dict[str, Callable[[Page], Result]] = {
        "table 1": table_1, "figure 1": figure_1, "figure 2": figure_2, "figure 4": figure_4}
    for i, net in enumerate(NETS):
        found[f"figure {7 + 2 * i}"] = of_net(bars_figure, 7 + 2 * i, net)
        found[f"figure {8 + 2 * i}"] = of_net(distribution_figure, 8 + 2 * i, net)
    return found


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--table", type=int, choices=[1])
    what.add_argument("--figure", type=int, choices=[1, 2, 4, *range(7, 27)], metavar="NUMBER")
    what.add_argument("--all", action="store_true")
    add_output_options(parser)
    add_measuring_options(parser, rounds=9)
    parser.add_argument("--minutes", type=float, default=100, help="time of all layers of this run [100]")
    parser.add_argument("--threads", type=int, default=2, help="threads, and samples of a batch [2]")
    parser.add_argument("--variants", type=int, help="candidates per layer [what the time allows]")
    parser.add_argument("--lists", type=pathlib.Path, default=BENCH / "problems/planar_nets",
                        help="folder of the lists")
    return parser.parse_args()


def main() -> None:
    arguments = read_arguments()
    options = Options(arguments.threads, arguments.rounds, arguments.variants, arguments.minutes)
    command = Command(arguments.convolume)
    try:
        machine = command.run("machine")
        identity = {**identity_of(SCRIPT, command, machine), "threads": options.threads, "rounds": options.rounds,
                    "variants": options.variants}
        measurement = Measurement(command, Record(arguments.record, identity), options)
        page = Page(command, measurement, arguments.lists, options.threads, machine)
        write_items(items(), page, arguments, "004", SCRIPT)
    except CommandFailed as failure:
        sys.exit(f"{failure}\n{arguments.record} keeps the finished layers; the same command continues")
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {arguments.record} keeps the finished layers, and the same command continues")


if __name__ == "__main__":
    main()
