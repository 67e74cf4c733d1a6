#!/usr/bin/env python3
"""Compares models of PyTorch whose convolutions are replaced with unchanged ones, in training and in inference.

    PYTHONPATH=build/native/python build/peers/bin/python bench/python/torch_models.py [--nets vnet,mednext]
        [--threads 2] [--rounds 5] [--batch 1] [--policy fastest] [--json FILE] [--calls] [--pools] [--layers [80]]

For each net it prints medians of competitors that take turns, with quartiles:
  - PyTorch's time over ours. PyTorch computes in the faster one of its memory formats. A training step has forward,
    loss, backward and a step of Adam. Inference is that of a frozen model, without gradients; onnxruntime and OpenVINO
    compute it in float32.
  - The bound: the same time over the sum of what PyTorch takes outside convolutions and what our plans take alone. The
    first is measured with convolutions that only allocate their results, the second with NumPy arrays.
  - Our time over that sum.
  - The growth of the resident memory in two training steps, each side in a process of its own.

--calls, --pools and --layers measure single layers. With them, nets are measured only if --nets names them.
"""
import argparse
import contextlib
import copy
import importlib.util
import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch

import convolume.torch as ours
from common import print_machine, quartiles, take_turns
from torch_layers import COUNT, measure_calls, measure_layers, measure_pools
from torch_parts import REST, OwnPlans, layers_of, require_equal, runtimes_of, without_convolutions

FORMATS = {"contiguous": torch.contiguous_format, "channels_last_3d": torch.channels_last_3d}


def _examples():
    file = pathlib.Path(__file__).resolve().parents[2] / "python/examples/torch_models.py"
    spec = importlib.util.spec_from_file_location("example_models", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


models = _examples()
NETS = {"unet_isotropic": (models.unet_isotropic, (64, 64, 64)),
        "unet_anisotropic": (models.unet_anisotropic, (8, 128, 128)),
        "vnet": (models.VNet, (64, 64, 64)), "mednext": (models.MedNeXt, (64, 64, 64)),
        "tiny": (lambda: models.UNet(width=4, levels=2, groups=2), (8, 8, 8))}  # for tests of this script


def made(name, batch):
    """Returns a net and its input, the same in each call."""
    make, extent = NETS[name]
    torch.manual_seed(1)
    return make(), torch.randn(batch, 1, *extent)


class Training:
    """Training steps of a model, which it changes: forward, loss, backward and a step of Adam."""

    def __init__(self, model, x, memory_format=torch.contiguous_format):
        self.model = model.train().to(memory_format=memory_format)
        self.x = x.contiguous(memory_format=memory_format)
        with torch.no_grad():
            self.target = torch.full_like(model(self.x), 0.5)
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-4)

    def step(self):
        self.optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(self.model(self.x), self.target).backward()
        self.optimizer.step()


def within(context, call):
    def wrapped():
        with context():
            call()
    return wrapped


def training_times(model, x, layers, options):
    """Returns {name: seconds in each round} of training steps."""
    calls = {name: Training(copy.deepcopy(model), x, one).step for name, one in FORMATS.items()}
    replaced = copy.deepcopy(model)
    ours.replace_conv3d(replaced, policy=options.policy)
    calls["ours"] = Training(replaced, x).step
    calls["plans"] = OwnPlans([layer for _, layer in layers], True, options.threads).run
    with without_convolutions(layers):
        calls["outside"] = within(lambda: without_convolutions(layers), Training(model, x).step)  # the last use of it
    return take_turns(calls, options.rounds, rest=REST)


def inference_times(model, x, layers, options, folder):
    """Returns {name: seconds in each round} of inference without gradients, and notes."""
    model.eval()
    calls, notes = runtimes_of(model, x, options.threads, folder)
    for name, memory_format in FORMATS.items():
        other, source = copy.deepcopy(model).to(memory_format=memory_format), x.contiguous(memory_format=memory_format)
        calls[name] = within(torch.no_grad, lambda other=other, source=source: other(source))
    frozen = copy.deepcopy(model)
    ours.replace_conv3d(frozen, policy=options.policy)
    ours.freeze(frozen)
    calls["ours"] = within(torch.no_grad, lambda: frozen(x))
    with torch.no_grad():
        require_equal("the frozen model", frozen(x).numpy(), model(x).numpy())

    @contextlib.contextmanager
    def outside():
        with torch.no_grad(), without_convolutions(layers):
            yield

    calls["outside"] = within(outside, lambda: model(x))
    calls["plans"] = OwnPlans([layer for _, layer in layers], False, options.threads).run
    return take_turns(calls, options.rounds, rest=REST), notes


def peaks_of(name, sides, options):
    """Returns {side: bytes by which the resident memory grows in two training steps}, each in a process of its own."""
    command = [sys.executable, __file__, "--nets", name, "--threads", str(options.threads), "--batch",
               str(options.batch), "--policy", options.policy]
    processes = {side: subprocess.Popen([*command, "--peak", side], text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE) for side in sides}
    found = {side: process.communicate() for side, process in processes.items()}
    for side, process in processes.items():
        if process.returncode != 0:
            raise ValueError(f"the process for the memory of {side} has failed: {found[side][1].strip()[-300:]}")
    return {side: int(output) for side, (output, _) in found.items()}


def measure_peak(options):
    """Prints the growth: the largest resident memory in two training steps minus that before them."""
    from service import forget_peak, peak_bytes

    model, x = made(options.nets, options.batch)
    if options.peak == "ours":
        ours.replace_conv3d(model, policy=options.policy)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one imports modules
    forget_peak()
    before = peak_bytes()
    training = Training(model, x, FORMATS.get(options.peak, torch.contiguous_format))
    training.step()
    training.step()
    print(peak_bytes() - before)


def milliseconds(times):
    return f"{quartiles(times)[1] * 1e3:.3g} ms"


def row(text, tops, bottoms, *notes):
    """Prints a ratio: the median of the rounds, with quartiles."""
    low, middle, high = quartiles([top / bottom for top, bottom in zip(tops, bottoms)])
    print(f"  {text:52}{f'{middle:.2f} ({low:.2f}-{high:.2f})':>22}  {', '.join(notes)}", flush=True)


def print_work(work, times):
    """Prints the rows of training or inference. Returns the faster memory format of PyTorch."""
    sums = [one + other for one, other in zip(times["outside"], times["plans"])]
    fastest = min(FORMATS, key=lambda name: quartiles(times[name])[1])
    peers = {f"PyTorch ({fastest})": times[fastest],
             **{name: found for name, found in times.items() if name not in (*FORMATS, "ours", "outside", "plans")}}
    mine, outside, plans = (milliseconds(times[name]) for name in ("ours", "outside", "plans"))
    print(f" {work}: ours {mine}, outside convolutions {outside}, plans alone {plans}")
    for name, found in peers.items():
        row(f"{name} over ours", found, times["ours"], milliseconds(found))
        row("  bound: over outside and plans", found, sums)
    row("ours over outside and plans", times["ours"], sums)
    return fastest


def measure_net(name, options):
    """Prints the rows of a net. Returns its numbers: seconds in each round, and bytes."""
    model, x = made(name, options.batch)
    parameters = sum(one.numel() for one in model.parameters())
    print(f"\n{name}: input {' x '.join(map(str, x.shape))}, {parameters} parameters, {models.convolutions(model)} "
          "convolutions", flush=True)
    layers = layers_of(model, x)
    report = {"input": list(x.shape)}
    with tempfile.TemporaryDirectory() as folder:
        report["inference"], notes = inference_times(model, x, layers, options, pathlib.Path(folder))
    report["training"] = training_times(model, x, layers, options)
    fastest = print_work("training step", report["training"])
    del model, layers
    report["peak_bytes"] = peaks_of(name, ("ours", fastest), options)
    mine, theirs = report["peak_bytes"]["ours"], report["peak_bytes"][fastest]
    print(f"  {f'memory: ours over PyTorch ({fastest})':52}{mine / theirs:>22.2f}  {mine / 2**20:.0f} MiB, "
          f"{theirs / 2**20:.0f} MiB", flush=True)
    print_work("inference", report["inference"])
    for note in notes:
        print(f"  not measured: {note}")
    return report


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", help=f"some of {','.join(NETS)}; all but tiny if it is not given")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--policy", default="fastest", help="which layers are replaced, as for replace_conv3d()")
    parser.add_argument("--json", help="a file that gets all numbers")
    parser.add_argument("--calls", action="store_true", help="measure the cost of a call")
    parser.add_argument("--pools", action="store_true", help="measure layers of ours and of PyTorch in alternation")
    parser.add_argument("--layers", type=int, nargs="?", const=COUNT, default=0,
                        help=f"measure the first layers of a list ({COUNT} if no number is given)")
    parser.add_argument("--peak", help=argparse.SUPPRESS)  # the process of one side
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.peak:
        measure_peak(options)
        return
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    if options.nets is None:
        names = [] if options.calls or options.pools or options.layers else [name for name in NETS if name != "tiny"]
    else:
        names = options.nets.split(",")
    if unknown := [name for name in names if name not in NETS]:
        sys.exit(f"torch_models.py: --nets {unknown[0]}: there is no such net; use some of {','.join(NETS)}")
    print_machine("torch", "onnxruntime", "openvino", threads=[options.threads])
    print(f"policy    {options.policy}")
    report = {"threads": options.threads, "policy": options.policy, "nets": {}}
    if options.calls:
        report["calls"] = measure_calls(options)
    if options.pools:
        report["pools"] = measure_pools(options)
    if options.layers:
        report["layers"] = measure_layers(options)
    for name in names:
        try:
            report["nets"][name] = measure_net(name, options)
        except ValueError as error:
            sys.exit(f"torch_models.py: {name}: {error}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
