#!/usr/bin/env python3
"""Times PyTorch's 3-D convolution: forward, and forward with both gradients. bench_conv --peers torch runs it.

It is a service (service.py) whose commands are JSON:
  {"make": FORMAT, "problem", "precision", "threads", "x", "w", "dy"}  makes a problem in benchdnn's grammar in a memory
      format. x, w and dy name files with the plain tensors. Answers {"threads"}.
  {"time": FORMAT, "direction"}  times one pass (fwd or training) after 50 ms of rest and untimed passes for at least a
      millisecond. Answers {"seconds"}.
  {"write": FORMAT, "output", "file"}  writes y, dx or dw of the last pass to a file, as a plain tensor. Answers {}.

Formats: contiguous; channels_last_3d; opaque, in which x is in oneDNN's own layout and the weights are packed for it,
both before the time counts, as for oneDNN itself. PyTorch trains in the first two only.
"""
import json
import re

from environment import PeerError, check
from service import serve, timed

AXES = "dhw"
TOKEN = re.compile(r"([a-z]+)(\d+)")
FAMILIES = {"i": 1, "o": 1, "k": 1, "s": 1, "p": 0, "d": 0}  # default values of absent axes


def parse_problem(text):
    """Returns the problem as a dictionary; Z, Y, X in lists. Raises ValueError that names what is wrong."""
    descriptor = text.split('n"')[0].replace("_", "").replace(" ", "")
    tokens, at = {}, 0
    for match in TOKEN.finditer(descriptor):
        if match.start() != at:
            break
        if match.group(1) in tokens:
            raise ValueError(f"problem '{text}': '{match.group(1)}' stands twice")
        tokens[match.group(1)] = int(match.group(2))
        at = match.end()
    known = {"mb", "g", "ic", "oc"} | {f + a for f in FAMILIES for a in AXES}
    if at != len(descriptor) or not set(tokens) <= known or not {"ic", "oc"} <= set(tokens):
        raise ValueError(f"problem '{text}' is not in benchdnn's grammar, e.g. mb1ic32id52oc32od48kd5")

    def family(prefix, absent):
        values = []
        for axis in AXES:  # a missing axis repeats the one before, but an absent family keeps its default
            before = any(prefix + other in tokens for other in AXES[: len(values)])
            values.append(tokens.get(prefix + axis, values[-1] if before else absent))
        return values

    problem = {"batch": tokens.get("mb", 1), "groups": tokens.get("g", 1), "ic": tokens["ic"], "oc": tokens["oc"]}
    for name, key in (("i", "input"), ("k", "kernel"), ("s", "stride"), ("p", "before")):
        problem[key] = family(name, FAMILIES[name])
    problem["dilation"] = [d + 1 for d in family("d", FAMILIES["d"])]
    problem["after"] = list(problem["before"])
    if any("o" + axis in tokens for axis in AXES):
        outputs = family("o", FAMILIES["o"])
        for axis in range(3):
            span = (problem["kernel"][axis] - 1) * problem["dilation"][axis] + 1
            needed = (outputs[axis] - 1) * problem["stride"][axis] + span
            problem["after"][axis] = max(0, needed - problem["input"][axis] - problem["before"][axis])
    return problem


def tensor(torch, numpy, file, shape, kind):
    """Returns the plain tensor that a file holds."""
    array = numpy.fromfile(file, {torch.float32: "f4", torch.float64: "f8"}[kind])
    return torch.from_numpy(array.reshape(shape))


class Convolution:
    """One problem in one memory format."""

    def __init__(self, torch, numpy, request):
        self.torch, self.p = torch, parse_problem(request["problem"])
        p, kind = self.p, torch.float32 if request["precision"] == "float" else torch.float64
        self.opaque = request["make"] == "opaque"
        if self.opaque and kind != torch.float32:
            raise PeerError("oneDNN has no convolutions in double")
        layout = torch.channels_last_3d if request["make"] == "channels_last_3d" else torch.contiguous_format
        self.same = p["before"] == p["after"]
        self.pad = [n for sides in zip(reversed(p["before"]), reversed(p["after"])) for n in sides]
        x_shape = (p["batch"], p["ic"], *p["input"])
        w_shape = (p["oc"], p["ic"] // p["groups"], *p["kernel"])
        self.x = tensor(torch, numpy, request["x"], x_shape, kind).contiguous(memory_format=layout)
        self.w = tensor(torch, numpy, request["w"], w_shape, kind).contiguous(memory_format=layout)
        self.result = {}
        if self.opaque:
            self.make_opaque()
            return
        self.x.requires_grad_(), self.w.requires_grad_()
        shape = self.infer().shape
        self.dy = tensor(torch, numpy, request["dy"], shape, kind).contiguous(memory_format=layout)

    def make_opaque(self):
        """Brings x and the weights into oneDNN's layouts, by PyTorch's converter of modules."""
        from torch.utils.mkldnn import to_mkldnn

        p = self.p
        if not self.same:
            raise PeerError("PyTorch pads no tensor in oneDNN's own layout on one side only")
        module = self.torch.nn.Conv3d(p["ic"], p["oc"], p["kernel"], p["stride"], p["before"], p["dilation"],
                                      p["groups"], bias=False)
        module.weight = self.torch.nn.Parameter(self.w)
        self.module, self.x = to_mkldnn(module.eval()), self.x.to_mkldnn()

    def forward(self):
        p = self.p
        if self.opaque:
            return self.module(self.x)
        functional = self.torch.nn.functional
        source = self.x if self.same else functional.pad(self.x, self.pad)
        return functional.conv3d(source, self.w, stride=p["stride"], padding=p["before"] if self.same else 0,
                                 dilation=p["dilation"], groups=p["groups"])

    def infer(self):
        with self.torch.no_grad():
            return self.forward()

    def train(self):
        self.x.grad = self.w.grad = None
        y = self.forward()
        y.backward(self.dy)
        return y

    def time(self, direction):
        if direction == "training" and self.opaque:
            raise PeerError("PyTorch does not train tensors in oneDNN's own layout")
        seconds, y = timed({"fwd": self.infer, "training": self.train}[direction], 1e-3)
        self.result = {"y": y.detach()}
        if direction == "training":
            self.result.update(dx=self.x.grad, dw=self.w.grad)
        return {"seconds": seconds}

    def write(self, output, file):
        result = self.result[output]
        plain = result.to_dense() if self.opaque else result
        plain.contiguous(memory_format=self.torch.contiguous_format).numpy().tofile(file)
        return {}


def start():
    check("torch", "numpy")
    import numpy
    import torch
    from libraries import torch_facts

    made = {}

    def answer(command):
        request = json.loads(command)
        if "make" in request:
            torch.set_num_threads(request["threads"])
            made.pop(request["make"], None)  # frees its memory first
            made[request["make"]] = Convolution(torch, numpy, request)
            return {"threads": torch.get_num_threads()}
        if "time" in request:
            return made[request["time"]].time(request["direction"])
        return made[request["write"]].write(request["output"], request["file"])

    # The number of threads is that of each "make".
    return dict(torch_facts(torch, any_blas=False), threads=0), answer


if __name__ == "__main__":
    serve(start)
