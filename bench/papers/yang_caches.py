"""Figures 3 and 4 of paper 000: cache accesses of our blocked code and of matrix products, counted by a simulator.

The caches are those of the paper's Westmere: 32 KiB and 256 KiB, 8 ways. What misses the first is an access to the L2,
what misses the second an access to the L3. Westmere has SSE only, so all codes run their SSE kernels.
"""
import concurrent.futures
import json
import os
import pathlib
import sys
from typing import Any, Iterator, NamedTuple

from paper_page import Result, table
from yang_common import OTHER, PAPER, X, Command, CommandFailed, Stack, code, geometric_mean, nest_choice, stacked_bars

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH / "common")]
import results_data  # noqa: E402
from cachegrind import CachegrindError, count_events  # noqa: E402

L1, L2, LINE, WAYS = 32 << 10, 256 << 10, 64, 8
CODES = {"im2col:atlas": "im2col + ATLAS", "im2col:openblas": "im2col + OpenBLAS", "ours": "ours"}


class Layer(NamedTuple):
    """A layer of Table 4, and the rows of y that are computed."""
    x: int
    y: int
    c: int
    k: int
    taps: int

    @property
    def problem(self) -> str:
        edge = self.taps - 1
        return (f"ic{self.c}ih{self.y + edge}iw{self.x + edge}oc{self.k}oh{self.y}ow{self.x}"
                f"kh{self.taps}kw{self.taps}")

    @property
    def macs(self) -> float:
        return float(self.x * self.y * self.c * self.k * self.taps * self.taps)


# Conv1 has 780 G multiply-adds. Eight of its 256 rows take minutes under the simulator, all would take hours.
LAYERS = {"conv1": Layer(256, 8, 256, 384, 11), "conv2": Layer(500, 375, 32, 48, 9),
          "conv3": Layer(32, 32, 108, 200, 4), "conv4": Layer(56, 56, 128, 256, 3), "conv5": Layer(28, 28, 256, 512, 3)}
SLABS = {"conv1": "8 of 256 rows"}


def candidates(layer: Layer) -> Iterator[str]:
    """Nests of the microkernels of `direct`: which voxels, channels and taps are the tiles, and in which order."""
    rows = [n for n in range(14, 29) if layer.x % n == 0][-2:]
    for row in rows:
        for taps in ("ky kx", "kx"):
            outer_taps = "ky " if taps == "kx" else ""
            for outer in (f"k c {outer_taps}x", f"x k c {outer_taps}", f"k c x {outer_taps}", f"y k c {outer_taps}x",
                          f"x y k c {outer_taps}"):
                for inner in ("y k32", "y", "k"):
                    split = outer.startswith(("y ", "x y "))
                    for extent in ([n for n in (8, 32) if n < layer.y] if split else [0]):
                        tile = inner.replace("y", f"y{extent}") if extent else inner
                        yield f"{outer.strip()} {tile} | {taps} c16 x{row} k16"


def accesses(levels: list[dict[str, Any]], bytes_: int) -> float:
    """Lines that enter a cache: what the outermost loop fetches whose tiles fill at most three quarters of it."""
    fits = next((one for one in levels if 4 * sum(one[o]["words"] for o in "xwy") <= 0.75 * bytes_), levels[-1])
    return 4 * sum(fits[o]["fetched"] for o in "xwy") / LINE


class Nest(NamedTuple):
    text: str
    l2: float
    l3: float
    tried: int


def best_nest(command: Command, layer: Layer) -> Nest:
    """The candidate with the least product of L2 and L3 accesses, by the counts of `convolume plan count`."""
    nests = []
    for text in dict.fromkeys(candidates(layer)):
        try:
            levels = command.run("plan", "count", "--problem", layer.problem, "--nest", text, "--layout",
                                 "blocked")["levels"]
        except CommandFailed:  # a tile as large as its axis
            continue
        nests.append(Nest(text, accesses(levels, L1), accesses(levels, L2), 0))
    return min(nests, key=lambda nest: nest.l2 * nest.l3)._replace(tried=len(nests))


def count(bench: pathlib.Path, who: str, layer: Layer, chosen: str) -> dict[str, float]:
    """Accesses of one forward pass: those of a process with one pass less those of a process with none. Lowering, and
    packing of the weights, are part of a pass."""
    def process(passes: int) -> dict[str, int]:
        ours = ["--engine", "direct", "--layout", "blocked", "--choice", chosen] if who == "ours" else []
        return count_events([str(bench), "--passes", who, "--problem", layer.problem, "--dir", "fwd", "--threads", "1",
                             "--rounds", str(passes), *ours], f"{L1},{WAYS},{LINE}", f"{L2},{WAYS},{LINE}", "SSE4")

    none, one = process(0), process(1)
    return {name: float(sum(one[event] - none[event] for event in events))
            for name, events in (("l2", ("D1mr", "D1mw")), ("l3", ("DLmr", "DLmw")))}


def count_all(command: Command) -> dict[str, Any]:
    os.environ["OPENBLAS_CORETYPE"] = "Nehalem"  # the family of Westmere
    bench = pathlib.Path(command.binary).resolve().parent.parent / "bench/bench_conv"
    layers = {}
    for name, layer in LAYERS.items():
        nest = best_nest(command, layer)
        layers[name] = {"problem": layer.problem, "macs": layer.macs, "nest": nest.text,
                        "choice": nest_choice(command, layer.problem, nest.text),
                        "predicted": {"l2": nest.l2, "l3": nest.l3},
                        "tried": nest.tried}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = {(name, who): pool.submit(count, bench, who, LAYERS[name], layers[name]["choice"])
                for name in reversed(LAYERS) for who in CODES}
        for (name, who), run in runs.items():
            layers[name][who] = run.result()
            print(f"{name} {who}: counted", file=sys.stderr, flush=True)
    return layers


def figure(number: int, layers: dict[str, Any]) -> Result:
    level, cache = {3: ("l2", "L2"), 4: ("l3", "L3")}[number]
    paper = {3: "2 to 5 times (ATLAS) and 4 to 8 times (MKL)",
             4: "5 to 11 times (ATLAS) and 2 to 7 times (MKL)"}[number]
    peers = [who for who in CODES if who != "ours"]
    rows, stacks, ratios = [], [], {who: [] for who in peers}
    for name, layer in layers.items():
        ours = layer["ours"][level]
        for who in peers:
            ratios[who].append(layer[who][level] / ours)
        rows.append([name + (f", {SLABS[name]}" if name in SLABS else ""), code(layer["nest"]),
                     f"{layer['predicted'][level] / 1e6:.2f}", f"{ours / 1e6:.2f}",
                     *(text for who in peers for text in (f"{layer[who][level] / 1e6:.2f}", f"{ratios[who][-1]:.1f}"))])
        stacks += [Stack(f"{name} {label}", [(color, layer[who][level] * 1000 / layer["macs"])])
                   for (who, label), color in zip(CODES.items(), (PAPER, OTHER, X))]
    fewest = all(ratio > 1 for one in ratios.values() for ratio in one)
    head = ["layer", "our nest", "10^6 accesses by the model", "counted", *(
        text for who in peers for text in (CODES[who], "ratio"))]
    falls = " and from ".join(f"{ratios[who][0]:.1f} to {ratios[who][-1]:.1f} ({CODES[who]})" for who in peers)
    tried = [layer["tried"] for layer in layers.values()]
    fewest_tried, most_tried = min(tried), max(tried)
    means = ", ".join(f"{geometric_mean(ratios[who]):.1f} times fewer than {CODES[who]}" for who in peers)
    text = table(head, rows) + f"""
Accesses to the {cache} in one forward pass of one core, in lines of {LINE} bytes, counted by cachegrind with
`--D1={L1},{WAYS},{LINE} --LL={L2},{WAYS},{LINE}`: the difference between a process with one pass and one with none.

- Ours is {"the least in all five layers" if fewest else "NOT the least in all layers"}. In the geometric mean it has
  {means}. The paper's code has {paper} fewer. Its
  lead falls from Conv1 to Conv5. Ours goes from {falls}. Of Conv1, ours and the peers
  compute 8 of 256 rows.
- Misses of reads and writes of data are counted, not those of instructions. Lines that are written back are
  not counted.
- Our nests have the least product of L2 and L3 accesses among {fewest_tried} to {most_tried} candidates, by the counts
  of `convolume plan count` for tiles that fill three quarters of a cache. The model knows no conflicts between
  lines of the same set, and not what packing the weights costs.
- The paper's machine has SSE only, so all codes run their SSE kernels, and OpenBLAS those of Nehalem (in
  the place of MKL). Elements have 32 bits. The paper counts in words of 16 bits, on a real machine.
- Our tensors are blocked by 16 channels. The matrix products read plain tensors; they copy the windows
  of the whole layer to a matrix, as Caffe does.
"""
    picture = stacked_bars(f"Paper 000, Figure {number}: accesses to the {cache}", "per 1000 multiply-adds", stacks,
                           [(color, label) for label, color in zip(CODES.values(), (PAPER, OTHER, X))])
    return Result({"layers": layers, "geometric_means": {who: geometric_mean(ratios[who]) for who in peers}}, text,
                  picture)


def counts_of(file: pathlib.Path) -> dict[str, Any]:
    """The counts of an earlier run, by layer."""
    rows = results_data.expanded(json.loads(file.read_text()))["layers"]
    return {row.pop("layer"): row for row in rows}


def cache_figure(number: int, command: Command, counts: pathlib.Path | None) -> Result:
    """Counts, which takes a quarter of an hour on two cores, or takes the counts of an earlier run."""
    if counts is not None:
        return figure(number, counts_of(counts))
    try:
        layers = count_all(command)
    except CachegrindError as error:
        raise CommandFailed(str(error)) from error
    rows = [{"layer": name, **{key: value for key, value in layer.items() if key != "choice"}}
            for name, layer in layers.items()]
    return figure(number, layers)._replace(measured={"layers": rows})
