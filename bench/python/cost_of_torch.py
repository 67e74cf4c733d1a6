"""Compares the models behind policy="fastest" with measured times, over random layers.

    PYTHONPATH=build/native/python build/peers/bin/python bench/python/cost_of_torch.py --layers 170

For each kind of layer it prints expected over measured times: the geometric mean, and the factor by which single layers
differ from it (one standard deviation). Then what the decisions save, and the layers that they make slower.
"""
import argparse
import json
import math
import pathlib
import random
import statistics

import torch
from torch import nn

import convolume.torch as ours
from common import print_machine, quartiles, take_turns
from torch_layers import compared, text_of
from torch_parts import REST

FEW_FLOPS, MOST_FLOPS = 1e8, 1e9  # forward, of layers with groups and of others


def layer_of(seed):
    """Returns (x, layer), or None if the drawn layer is too large or cannot be."""
    draw = random.Random(seed)
    kind = draw.choice(["one"] * 6 + ["depthwise"] * 2 + ["two"])
    transposed = kind != "two" and draw.random() < 0.12
    channels = draw.choice([1, 2, 3, 4, 8, 12, 16, 16, 24, 32, 32, 48, 64, 96, 128, 256])
    out = draw.choice([1, 2, 3, 8, 16, 16, 24, 32, 32, 64, 64, 128, 256])
    edge, stride = draw.choice([1, 3, 3, 3, 3, 5, 5, 7, 2, 4]), draw.choice([1, 1, 1, 2])
    batch, dilation = draw.choice([1, 1, 1, 2, 2, 4]), draw.choice([1] * 7 + [2])
    extent, planar = draw.choice([1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64]), draw.random() < 0.2
    if kind != "one":
        channels, out = (channels, channels) if kind == "depthwise" else (2 * channels, 2 * out)
    groups = {"one": 1, "two": 2, "depthwise": channels}[kind]
    kernel, extents = (edge,) * 3, (extent,) * 3
    if planar:
        kernel, extents = (1, edge, edge), (max(1, extent // 4), extent, extent)
    if transposed and kind == "one":
        kernel, stride, dilation = (2, 2, 2), 2, 1
    padding = (0, 0, 0) if transposed else tuple(dilation * (one // 2) for one in kernel)
    voxels = math.prod(math.ceil(one / stride) for one in extents)
    flops = 2 * batch * math.prod(kernel) * channels * out / groups * voxels
    if flops > (MOST_FLOPS if kind == "one" else FEW_FLOPS):
        return None
    torch.manual_seed(seed)
    made = nn.ConvTranspose3d if transposed else nn.Conv3d
    layer = made(channels, out, kernel, stride, padding=padding, dilation=dilation, groups=groups)
    x = torch.randn(batch, channels, *extents)
    try:
        with torch.no_grad():
            layer(x)
    except RuntimeError:  # the kernel is larger than the input
        return None
    return x, layer


def expected(x, layer, narrow=None):
    """Returns (seconds of ours, of PyTorch, kind, whether it is ours), forward and backward. `narrow` is the type of
    autocast."""
    from convolume.torch import _convolution, _policy, _problem, _torch_cost
    transposed = isinstance(layer, nn.ConvTranspose3d)
    geometry = _problem.geometry_of(layer.weight, layer.stride, layer.padding, layer.dilation, layer.groups, transposed)
    problem = _convolution.problem_of(x.clone().requires_grad_(), layer.weight, layer.bias, geometry, narrow)
    decision = _policy.decide(problem, _problem.Options("fastest"))
    way = "oneDNN" if _torch_cost.uses_onednn(problem) else "unfolded"
    kind = "transposed" if transposed else "one group" if layer.groups == 1 else "groups"
    return decision.ours, decision.theirs, f"{way}, {kind}", decision.plan is not None


def spread(values):
    logs = [math.log(one) for one in values]
    return f"{math.exp(statistics.fmean(logs)):6.2f} x/ {math.exp(statistics.pstdev(logs)):4.2f}  ({len(logs)} layers)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=170)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--autocast", action="store_true", help="under autocast in bfloat16")
    parser.add_argument("--json", help="a file that gets all numbers")
    options = parser.parse_args()
    print_machine("torch", threads=[options.threads])
    torch.set_num_threads(options.threads)
    rows, seed = [], options.first
    while len(rows) < options.layers:
        drawn = layer_of(seed)
        seed += 1
        if drawn is None:
            continue
        narrow = torch.bfloat16 if options.autocast else None
        mine, theirs, kind, chosen = expected(*drawn, narrow)
        calls = compared(*drawn, ["always"], narrow)
        times = {name: quartiles(found)[0]
                 for name, found in take_turns(calls, options.rounds, rest=REST / 10).items()}
        rows.append({"layer": text_of(*drawn), "kind": kind, "chosen": chosen, "ours": times["always"],
                     "PyTorch": times["PyTorch"], "ours expected": mine, "PyTorch expected": theirs})
    print("expected over measured seconds, forward and backward: geometric mean, and the factor of one deviation")
    for kind in sorted({row["kind"] for row in rows}):
        found = [row["PyTorch expected"] / row["PyTorch"] for row in rows if row["kind"] == kind]
        print(f"  PyTorch, {kind:24} {spread(found)}")
    print(f"  {'ours':33} {spread(row['ours expected'] / row['ours'] for row in rows)}")
    gains = [(row["PyTorch"] - row["ours"], row) for row in rows]
    most, saved = sum(max(0, gain) for gain, _ in gains), sum(gain for gain, row in gains if row["chosen"])
    print(f"saved {saved / most:.1%} of the {most * 1e3:.1f} ms that replacing exactly the faster layers saves")
    print("layers that the decisions make slower, PyTorch's time over ours:")
    for gain, row in gains:
        if gain < 0 and row["chosen"]:
            print(f"  {row['PyTorch'] / row['ours']:.2f}  {row['layer']}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
