#!/usr/bin/env python3
"""Trains the same net in PyTorch and compares every number.

parity_test.py PARITY_DUMP NET.toml DATA.toml

Runs PARITY_DUMP, rebuilds the net in PyTorch from its description and the dumped weights, runs the same iterations on
the same patches, and compares logits, losses, gradients, the final weights and how far they moved: |a - b| / |b| in the
Euclidean norm.
Exits with 0 (all equal within the tolerances), 1 (differences, named), or 77 where PyTorch is not installed.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError:
    print("SKIPPED: python3-torch is not installed")
    sys.exit(77)

ITERATIONS = 10
TOLERANCE = 1e-4
FIRST_TOLERANCE = 1e-5  # nothing has had time to drift apart


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


def three(value):
    return [value] * 3 if isinstance(value, int) else list(value)


def activation(x, node, key="activation", default="none"):
    kind = node.get(key, default)
    if kind == "leaky_relu":
        return F.leaky_relu(x, node.get("slope", 0.01))
    return {"none": lambda t: t, "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}[kind](x)


def centre(x, extent):
    """The middle of x. Our nets crop by what voxels see; in the nets of this folder that is the middle."""
    for axis in range(3):
        spare = x.shape[2 + axis] - extent[axis]
        assert spare >= 0 and spare % 2 == 0, "the nets of this folder crop evenly"
        x = x.narrow(2 + axis, spare // 2, extent[axis])
    return x


def common(inputs):
    extent = [min(x.shape[2 + axis] for x in inputs) for axis in range(3)]
    return [centre(x, extent) for x in inputs]


class Net:
    def __init__(self, description, initial):
        self.nodes = description["node"]
        self.parameters = {}
        for name, value in initial.items():
            node, kind = name.split(".")
            self.parameters[name] = value.clone() if kind == "weight" else value.reshape(-1).clone()
            self.parameters[name].requires_grad_(True)

    def convolve(self, node, x):
        weight = self.parameters[node["name"] + ".weight"]
        bias = self.parameters.get(node["name"] + ".bias")
        kernel, stride, dilation = (three(node.get(key, 1)) for key in ("kernel", "stride", "dilation"))
        padding, groups = node.get("padding", 0), node.get("groups", 1)
        assert list(weight.shape[2:]) == kernel and (bias is not None) == node.get("bias", True)
        if node["type"] == "transposed_conv":
            output_padding = three(node.get("output_padding", 0))
            return F.conv_transpose3d(x, weight, bias, stride, three(padding), output_padding, groups, dilation)
        if padding == "same":
            sides = []
            for k, d in reversed(list(zip(kernel, dilation))):
                margin = (k - 1) * d
                sides += [margin // 2, margin - margin // 2]  # the voxel that is left over goes behind
            x, padding = F.pad(x, sides), 0
        elif padding == "valid":
            padding = 0
        return F.conv3d(x, weight, bias, stride, three(padding), dilation, groups)

    def norm(self, node, x):
        groups = {"group_norm": node.get("groups"), "instance_norm": x.shape[1], "layer_norm": 1}[node["type"]]
        gamma, beta = (self.parameters[node["name"] + key] for key in (".gamma", ".beta"))
        return F.group_norm(x, groups, gamma, beta, node.get("epsilon", 1e-5))

    def forward(self, x):
        values, last = {"input": x}, "input"
        for node in self.nodes:
            source = node.get("from", last)
            inputs = [values[name] for name in ([source] if isinstance(source, str) else source)]
            x = inputs[0]
            kind = node["type"]
            if kind in ("conv", "transposed_conv"):
                y = activation(self.convolve(node, x), node)
            elif kind == "activation":
                y = activation(x, node, default="relu")
            elif kind == "max_pool":
                window = three(node.get("window", 2))
                stride = three(node.get("stride", window))
                y = F.max_pool3d(x, window, stride, 0, three(node.get("dilation", 1)))
            elif kind == "upsample":
                y = F.interpolate(x, scale_factor=[float(f) for f in three(node.get("factor", 2))], mode="nearest")
            elif kind == "concat":
                y = torch.cat(common(inputs), 1)
            elif kind == "add":
                y = sum(common(inputs))
            elif kind == "crop":
                before, after = three(node.get("before", 0)), three(node.get("after", 0))
                y = x
                for axis in range(3):
                    y = y.narrow(2 + axis, before[axis], y.shape[2 + axis] - before[axis] - after[axis])
            else:
                y = self.norm(node, x)
            last = node["name"]
            values[last] = y
        return values[last]


def loss_of(description, logits, target):
    options = description.get("loss", {})
    kind = options.get("kind", "binary_cross_entropy")
    if kind == "square":
        return F.mse_loss(logits, target)
    if kind == "dice":
        probability, smooth = torch.sigmoid(logits), options.get("smooth", 1.0)
        axes = (0, 2, 3, 4)
        overlap = (probability * target).sum(axes)
        score = (2 * overlap + smooth) / (probability.sum(axes) + target.sum(axes) + smooth)
        return (1 - score).mean()
    classes = logits.shape[1] if kind == "softmax_cross_entropy" else 2
    counts = torch.bincount(target.reshape(-1).long(), minlength=classes).double()
    weight = torch.ones(classes, dtype=torch.float64)
    if options.get("rebalance", False):
        weight = torch.where(counts > 0, target.numel() / (classes * counts), torch.zeros_like(counts))
    if kind == "softmax_cross_entropy":
        return F.cross_entropy(logits, target[:, 0].long(), weight=weight.float())
    weight[1] *= options.get("positive_weight", 1.0)
    per_voxel = torch.where(target >= 0.5, weight[1], weight[0]).float()
    return F.binary_cross_entropy_with_logits(logits, target, per_voxel, reduction="sum") / per_voxel.sum()


def optimizer_of(description, parameters):
    o = description.get("optimizer", {})
    decay = o.get("weight_decay", 0.0)
    if o.get("kind", "adam") == "sgd":
        return torch.optim.SGD(parameters, lr=0.0, momentum=o.get("momentum", 0.9), weight_decay=decay,
                               nesterov=o.get("nesterov", False))
    kind = torch.optim.AdamW if o.get("decoupled", False) else torch.optim.Adam
    return kind(parameters, lr=0.0, betas=(o.get("beta1", 0.9), o.get("beta2", 0.999)), eps=o.get("epsilon", 1e-8),
                weight_decay=decay)


def learning_rate(description, step):
    o = description.get("optimizer", {})
    rate = o.get("learning_rate", 1e-3)
    if step < o.get("warmup", 0):
        rate *= step / o["warmup"]
    if o.get("decay_every", 0) > 0:
        rate *= o.get("decay_factor", 0.5) ** ((step - 1) // o["decay_every"])
    return rate


class Table:
    """The largest difference of each quantity, in the first iteration and over all."""

    def __init__(self):
        self.rows = {}
        self.clipped = False

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


def run(dump, description):
    initial = {name.removeprefix("initial/"): value for name, value in dump.items() if name.startswith("initial/")}
    net = Net(description, initial)
    optimizer = optimizer_of(description, list(net.parameters.values()))
    most = description.get("optimizer", {}).get("clip_norm", 0.0)
    table = Table()
    for i in range(ITERATIONS):
        logits = net.forward(dump[f"{i}/input"])
        target = centre(dump[f"{i}/label"], logits.shape[2:])
        loss = loss_of(description, logits, target)
        optimizer.zero_grad()
        loss.backward()
        table.add("logits", dump[f"{i}/logits"], logits, i == 0)
        table.add("loss", dump[f"{i}/loss"], loss, i == 0)
        for name, parameter in net.parameters.items():
            table.add("gradient " + name, dump[f"{i}/gradient/{name}"], parameter.grad, i == 0)
        if most > 0:
            norm = torch.nn.utils.clip_grad_norm_(list(net.parameters.values()), most)
            table.clipped = table.clipped or norm > most
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(description, i + 1)
        optimizer.step()
    for name, parameter in net.parameters.items():
        before = initial[name].reshape(parameter.shape).double()
        assert (parameter - before).norm() > 1e-3 * before.norm(), f"{name} hardly moves; the comparison is empty"
        table.add("final " + name, dump["final/" + name], parameter, False)
        moved = dump["final/" + name].reshape(parameter.shape) - before
        table.add("change of " + name, moved, parameter - before, False)
    assert most == 0 or table.clipped, "no gradient was clipped; lower clip_norm"
    return table


def main():
    program, net, data = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(2)
    with open(net, "rb") as file:
        description = tomllib.load(file)
    handle, path = tempfile.mkstemp(suffix=".safetensors")
    os.close(handle)
    try:
        subprocess.run([program, net, data, path, str(ITERATIONS)], check=True)
        dump = read_safetensors(path)
    finally:
        os.remove(path)
    print(f"net {description['name']}, {ITERATIONS} iterations, PyTorch {torch.__version__}, float32")
    wrong = run(dump, description).report()
    if wrong:
        print(f"FAILED: more than {TOLERANCE:g} (first iteration {FIRST_TOLERANCE:g}): {', '.join(wrong)}")
        return 1
    print(f"all within {TOLERANCE:g}, the first iteration within {FIRST_TOLERANCE:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
