"""Measures what the table and the figures of paper 004 need: for each layer all variants of its loops, then the picks,
the best, the default order, `automatic`, oneDNN and the paper's loops in C in turn."""
import pathlib
import re
import sys
import time
from typing import Any, NamedTuple, Optional, Sequence

from paper_bench import Bench
from paper_record import Record
from yang_common import Command, CommandFailed, nest_choice

# Ten nets, in the order of Table 1: our list, and the paper's name.
NETS = {"resnet50": "Resnet-50", "fast_rcnn": "fastrcnn", "mask_rcnn": "maskrcnn", "xception": "xception",
        "yolov2": "yolov2", "mobilenet": "mobilenet", "alexnet": "alexnet", "overfeat": "overfeat",
        "googlenet_v1": "googlenetv1", "googlenet_v3": "googlenetv3"}
# Four orders for Figures 1 and 2. The paper does not name its own.
ORDERS = {"v1": "k c y ky kx", "v2": "y k c ky kx", "v3": "c k y ky kx", "v4": "ky kx k c y"}
ORDERS_OF = "fast_rcnn"
LEAST_VARIANTS, MOST_VARIANTS = 120, 480


class Layer(NamedTuple):
    """A line of a list, with the batch that is measured. Numbers count the lines that are not left out."""
    net: str
    number: int
    name: str
    problem: str


class Options(NamedTuple):
    threads: int
    rounds: int
    variants: Optional[int]  # candidates per layer; none: as many as the time allows
    minutes: float           # of all layers of a run


def read_list(folder: pathlib.Path, net: str, batch: int) -> list[Layer]:
    lines = (folder / f"{net}.txt").read_text().splitlines()
    found = [re.fullmatch(r'(\S+?)n"(.*)"', line) for line in lines if line and not line.startswith("#")]
    return [Layer(net, i + 1, match[2], re.sub(r"mb\d+", f"mb{batch}", match[1]))
            for i, match in enumerate(match for match in found if match)]


def outer_order(nest: str, order: str) -> str:
    """The nest with its outer loops over channels, rows and taps in this order."""
    outer, kernel = nest.split(" | ")
    words = outer.split()
    first = [word for word in words if word.endswith("*")]
    moved = [word for word in order.split() if word in words]
    last = [word for word in words if word not in first and word not in moved]
    return " ".join([*first, *moved, *last]) + " | " + kernel


class Budget:
    """Shares the minutes of a run among the layers that are still to be measured."""

    def __init__(self, minutes: float, layers: int):
        self.end = time.monotonic() + 60 * minutes
        self.begin = time.monotonic()
        self.layers = self.left = layers
        self.estimated = 0.0
        self.spent = 0.0

    def seconds_per_layer(self) -> float:
        return max(0.0, self.end - time.monotonic()) / max(1, self.left)

    def candidates(self, model_seconds: float, competitors: int, options: Options) -> tuple[int, float]:
        """How many candidates are measured, and the seconds that they take by the estimate."""
        # The machine may be slower than its model, which the layers before this one tell.
        factor = self.spent / self.estimated if self.estimated else 1.0
        one = 4 * max(model_seconds, 0.0025)
        finals = options.rounds * (0.05 * competitors + 2 * (competitors + 3) * model_seconds) + 36 * one
        count = options.variants
        if count is None:
            affordable = (self.seconds_per_layer() / factor - finals) / one
            count = int(min(max(affordable, LEAST_VARIANTS), MOST_VARIANTS))
        return count, finals + count * one

    def finished(self, estimate: float, seconds: float) -> None:
        self.estimated += estimate
        self.spent += seconds
        self.left -= 1

    def text(self) -> str:
        done = self.layers - self.left
        minutes = (time.monotonic() - self.begin) / max(1, done) * self.left / 60
        left = f"about {minutes:.0f} minutes left" if done else "the first"
        return f"{left}, {self.seconds_per_layer():.0f} s per layer"


class Measurement:
    """Measures the layers that the record does not have yet."""

    def __init__(self, command: Command, record: Record, options: Options):
        self.command, self.record, self.options = command, record, options
        self.bench = Bench(command, "bench_conv")

    def has(self, layer: Layer) -> bool:
        """Whether a layer is finished. Another net may have measured it, without the orders."""
        return layer.problem in self.record and (layer.net != ORDERS_OF or "reuse" in self.record[layer.problem])

    def run(self, layers: Sequence[Layer]) -> None:
        # Layers that several nets have are measured once. Those with orders go first, so that all have them.
        missing: dict[str, Layer] = {}
        for layer in sorted(layers, key=lambda layer: layer.net != ORDERS_OF):
            if not self.has(layer):
                missing.setdefault(layer.problem, layer)
        budget = Budget(self.options.minutes, len(missing))
        for layer in missing.values():
            print(f"{budget.layers - budget.left + 1} of {budget.layers} layers, {budget.text()}: {layer.net} "
                  f"{layer.name}", file=sys.stderr, flush=True)
            self.record.add(layer.problem, self.layer(layer, budget))

    def layer(self, layer: Layer, budget: Budget) -> dict[str, Any]:
        begin = time.monotonic()
        words = ("plan", "variants", "--problem", layer.problem, "--space", "all", "--threads",
                 str(self.options.threads))
        model = self.command.run(*words, "--limit", "1")["layers"][0]["list"][0]["model_seconds"]
        competitors = 7 + (len(ORDERS) - 1 if layer.net == ORDERS_OF else 0)
        limit, estimate = budget.candidates(model / self.options.threads, competitors, self.options)
        found = self.command.run(*words, "--limit", str(limit), "--measure")["layers"][0]
        nests = self.finalists(layer, found)
        times = sorted(one["seconds"] for one in found["list"])
        measured = {"flops": found["flops"], "candidates": found["candidates"], "variants": found["variants"],
                    "steady": found["steady"], "passes": found["passes"], "slowest_s": times[-1],
                    "median_s": times[len(times) // 2], "fastest_s": times[0], "nests": nests,
                    **self.finals(layer, nests)}
        if layer.net == ORDERS_OF:
            measured["reuse"] = {name: self.command.run("plan", "reuse", "--problem", layer.problem, "--nest",
                                                        nests[name])["cost"] for name in ORDERS}
        budget.finished(estimate, time.monotonic() - begin)
        return measured

    @staticmethod
    def finalists(layer: Layer, found: dict[str, Any]) -> dict[str, str]:
        variants = found["list"]
        nests = {"default": variants[0]["nest"], "best": found["finalists"]["best"]["nest"]}
        for rank in ("reuse", "seconds"):
            nests[rank] = next(one["nest"] for one in variants if one[f"rank_{rank}"] == 1)
        if layer.net == ORDERS_OF:
            nests.update({name: outer_order(nests["default"], order) for name, order in ORDERS.items()})
        return nests

    def finals(self, layer: Layer, nests: dict[str, str]) -> dict[str, Any]:
        """Seconds of each finalist, measured in turn: lower quartile and median; and the load before."""
        choices = {name: nest_choice(self.command, layer.problem, nest) for name, nest in nests.items()}
        report = self.bench.report(
            "--side-by-side", "--problem", layer.problem, "--dir", "fwd", "--layout", "blocked", "--weights", "cached",
            "--threads", str(self.options.threads), "--choice", "automatic", *dict.fromkeys(choices.values()),
            "--peers", "onednn,c_loops", "--rounds", str(self.options.rounds), "--min-seconds", "0", "--max-seconds",
            "3600")
        rows = report["results"]
        # Equal choices have one row. The first row is that of `automatic`.
        by_nest = {row["choice"].split()[1]: row for row in rows if row["engine"] == "direct"}
        mine = {"automatic": rows[0], **{name: by_nest[text.split()[1]] for name, text in choices.items()}}
        finals = {name: {"low_s": row["ours_low_s"], "median_s": row["ours_s"]} for name, row in mine.items()}
        finals["automatic"]["engine"] = rows[0]["engine"]
        for peer in ("onednn", "c_loops"):
            if rows[0][f"{peer}_s"] is None:
                raise CommandFailed(f"{layer.problem}: bench_conv has no times of {peer}. Build it with oneDNN (on "
                                    "Debian: apt-get install libdnnl-dev)")
            finals[peer] = {"low_s": rows[0][f"{peer}_low_s"], "median_s": rows[0][f"{peer}_s"]}
        return {"finals": finals, "load": report["load_average"]}
