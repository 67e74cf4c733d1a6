#!/usr/bin/env python3
"""Trains the same net in PyTorch and compares every number.

parity_test.py PARITY_DUMP NET.toml DATA.toml

Runs PARITY_DUMP, rebuilds the net in PyTorch from its description and the dumped weights, runs the same iterations on
the same patches, in both memory formats, and compares logits, losses, gradients, the final weights and how far they moved: |a - b| / |b| in the
Euclidean norm.
Exits with 0 (all equal within the tolerances), 1 (differences, named), or 77 where build/peers is missing.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "peers"))
import environment  # noqa: E402

environment.enter()
environment.check("torch", "numpy")
import numpy  # noqa: E402
import torch  # noqa: E402
from torch_model import Net, Training, centre  # noqa: E402

ITERATIONS = 10
TOLERANCE = 1e-4
FIRST_TOLERANCE = 1e-5  # rounding errors have not accumulated yet


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "F64": "<f8"}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = numpy.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return tensors


class Table:
    """The largest difference of each quantity, in the first iteration and over all."""

    def __init__(self):
        self.rows = {}

    def add(self, name, ours, theirs, first):
        ours, theirs = ours.double().reshape(-1), theirs.detach().double().reshape(-1)
        assert ours.shape == theirs.shape, f"{name}: {tuple(ours.shape)} and {tuple(theirs.shape)} elements"
        difference = ((ours - theirs).norm() / theirs.norm()).item()
        if not difference < float("inf"):
            difference = float("inf")
        row = self.rows.setdefault(name, [None, 0.0])
        row[1] = max(row[1], difference)
        if first:
            row[0] = difference

    def report(self):
        """Prints the table and returns what is out of tolerance."""
        wrong = []
        print(f"{'quantity':32} {'first':>10} {'all':>10}")
        for name, (first, largest) in self.rows.items():
            bad = largest > TOLERANCE or (first is not None and first > FIRST_TOLERANCE)
            wrong += [name] if bad else []
            print(f"{name:32} {'-' if first is None else f'{first:.1e}':>10} {largest:10.1e}{'  <-' if bad else ''}")
        return wrong


def run(dump, description, memory_format):
    initial = {name.removeprefix("initial/"): value for name, value in dump.items() if name.startswith("initial/")}
    net = Net(description, initial, memory_format=memory_format)
    training = Training(description, net)
    table = Table()
    for i in range(ITERATIONS):
        x = dump[f"{i}/input"].contiguous(memory_format=memory_format)
        target = centre(dump[f"{i}/label"], description["node"][-1]["extent"])
        logits, loss = training.gradients(x, target)
        table.add("logits", dump[f"{i}/logits"], logits, i == 0)
        table.add("loss", dump[f"{i}/loss"], loss, i == 0)
        for name, parameter in net.parameters.items():
            table.add("gradient " + name, dump[f"{i}/gradient/{name}"], parameter.grad, i == 0)
        training.update()
    for name, parameter in net.parameters.items():
        before = initial[name].reshape(parameter.shape).double()
        assert (parameter - before).norm() > 1e-3 * before.norm(), f"{name} hardly moves; the comparison is empty"
        table.add("final " + name, dump["final/" + name], parameter, False)
        moved = dump["final/" + name].reshape(parameter.shape) - before
        table.add("change of " + name, moved, parameter - before, False)
    assert training.most == 0 or training.clipped, "no gradient was clipped; lower clip_norm"
    return table


def main():
    program, net, data = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        path, described = os.path.join(folder, "dump.safetensors"), os.path.join(folder, "net.json")
        subprocess.run([program, net, data, path, described, str(ITERATIONS)], check=True)
        dump = read_safetensors(path)
        with open(described, encoding="utf-8") as file:
            description = json.load(file)
    wrong = []
    for memory_format in (torch.contiguous_format, torch.channels_last_3d):
        print(f"net {description['name']}, {ITERATIONS} iterations, PyTorch {torch.__version__}, {memory_format}")
        wrong += run(dump, description, memory_format).report()
    if wrong:
        print(f"FAILED: more than {TOLERANCE:g} (first iteration {FIRST_TOLERANCE:g}): {', '.join(wrong)}")
        return 1
    print(f"all within {TOLERANCE:g}, the first iteration within {FIRST_TOLERANCE:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
