#!/usr/bin/env python3
"""Times a net of this library in PyTorch: a training iteration and an inference. bench_net --peers torch runs it.

The net is a file from bench_net --describe: generators are expanded and defaults filled in. An iteration clears the
gradients, computes forward, loss and backward, clips the gradients if the net says so, and lets the optimizer step. An
inference computes forward in torch.inference_mode(). The data are random, of the net's patch and batch.

It is a service (service.py) with the commands "training" and "inference". Each times one call, after 50 ms of rest and
one untimed call, and answers {"seconds", "loss", "peak_bytes"}.
"""
import argparse
import json

from environment import check
from libraries import torch_facts
from service import forget_peak, peak_bytes, serve, timed

FORMATS = {"contiguous": "contiguous_format", "channels_last_3d": "channels_last_3d"}


class Timer:
    """The net in one memory format."""

    def __init__(self, options):
        check("torch")
        import torch
        import torch_model

        self.torch, self.model = torch, torch_model
        torch.set_num_threads(options.threads)
        torch.manual_seed(1)
        with open(options.net, encoding="utf-8") as file:
            self.description = json.load(file)
        self.format = getattr(torch, FORMATS[options.format])
        self.initial = torch_model.initial_parameters(self.description)
        self.facts = dict(torch_facts(torch, options.any_blas),
                          parameters=sum(value.numel() for value in self.initial.values()))
        forget_peak()
        self.before = peak_bytes()
        self.x = self.target = self.net = self.training = None

    def make_data(self):
        batch, net_input = self.description["training"]["batch"], self.description["input"]
        x = self.torch.randn(batch, net_input["channels"], *net_input["patch"])
        self.x = x.contiguous(memory_format=self.format)
        self.target = (self.torch.rand(batch, 1, *self.description["node"][-1]["extent"]) < 0.5).float()

    def infer(self):
        if self.net is None:
            self.net = self.model.Net(self.description, self.initial, False, self.format)
        with self.torch.inference_mode():
            return self.net.forward(self.x)

    def train(self):
        if self.training is None:
            net = self.model.Net(self.description, self.initial, True, self.format)
            self.training = self.model.Training(self.description, net)
        return self.training.iterate(self.x, self.target)

    def time(self, work):
        """Returns the seconds of one call, the loss, and the peak so far."""
        calls = {"training": self.train, "inference": self.infer}
        if work not in calls:
            raise ValueError(f"the command '{work}' is unknown; write {' or '.join(calls)}")
        if self.x is None:
            self.make_data()
        seconds, result = timed(calls[work])
        loss = result if work == "training" else None
        if work == "inference" and list(result.shape[2:]) != self.description["node"][-1]["extent"]:
            raise ValueError(f"the output has shape {tuple(result.shape)}, not that of the description")
        return {"seconds": seconds, "loss": loss, "peak_bytes": peak_bytes() - self.before}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--net", required=True, metavar="FILE", help="description from bench_net --describe")
    parser.add_argument("--threads", type=int, required=True, help="threads of PyTorch")
    parser.add_argument("--format", choices=list(FORMATS), required=True, help="memory format of all tensors")
    parser.add_argument("--any-blas", action="store_true", help="also measure with a BLAS that holds PyTorch back")
    return parser.parse_args()


def start():
    timer = Timer(arguments())
    return timer.facts, timer.time


if __name__ == "__main__":
    serve(start)
