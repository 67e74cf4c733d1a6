#!/usr/bin/env python3
"""Times the inference of a net of this library in onnxruntime or OpenVINO, for bench_net --peers.

The net is a file from bench_net --describe. PyTorch builds it (torch_model.py) and exports it to ONNX. The result of
the first call is compared with PyTorch's. Data and results stay in memory that the runtime uses directly.

It is a service (service.py) with the command "inference", which times one call after 50 ms of rest and one untimed
call, and answers {"seconds", "peak_bytes"}.
"""
import argparse
import importlib
import json
import logging
import os
import tempfile
import warnings

from environment import PeerError, check
from service import forget_peak, peak_bytes, serve, timed

LARGEST_ERROR = {"float32": 1e-4, "bfloat16": 0.1}  # relative to PyTorch's result in float, Euclidean norm


def export(torch, description, batch_input, file):
    """Writes the net to an ONNX file. Returns the number of its parameters, and PyTorch's result for the input."""
    import torch_model

    initial = torch_model.initial_parameters(description)
    net = torch_model.Net(description, initial, training=False)

    class Module(torch.nn.Module):
        """The net, as the exporter wants it."""

        def __init__(self):
            super().__init__()
            self.values = torch.nn.ParameterDict(
                {name.replace(".", "-"): torch.nn.Parameter(value) for name, value in net.parameters.items()})

        def forward(self, x):
            net.parameters = {name.replace("-", "."): value for name, value in self.values.items()}
            return net.forward(x)

    module = Module().eval()
    # The exporter warns of packages that this net does not need, and of its own parts.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", FutureWarning)
    with torch.no_grad():
        torch.onnx.export(module, (batch_input,), file, verbose=False)
        wanted = module(batch_input).numpy()
    return sum(value.numel() for value in initial.values()), wanted


class OnnxRuntime:
    """A session of onnxruntime whose input and output are bound to memory of its own kind."""

    def __init__(self, file, options, x):
        check("onnxruntime")
        import onnxruntime

        if options.precision != "float32":
            raise PeerError("onnxruntime has no bfloat16 convolutions on CPUs")
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
        self.binding = session.io_binding()
        self.input = onnxruntime.OrtValue.ortvalue_from_numpy(x)
        self.binding.bind_ortvalue_input(session.get_inputs()[0].name, self.input)
        self.binding.bind_output(session.get_outputs()[0].name)
        self.session = session
        self.facts = {"version": onnxruntime.__version__, "threads": options.threads,
                      "blas": "MLAS (linked statically)", "onednn": "none"}

    def call(self):
        self.session.run_with_iobinding(self.binding)

    def result(self):
        return self.binding.get_outputs()[0].numpy()


class OpenVino:
    """A request of OpenVINO, compiled for the latency of single calls."""

    def __init__(self, file, options, x):
        check("openvino")
        import openvino

        kind = {"float32": openvino.Type.f32, "bfloat16": openvino.Type.bf16}[options.precision]
        core = openvino.Core()
        capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if options.precision == "bfloat16" and "BF16" not in capabilities:
            raise PeerError("OpenVINO has no bfloat16 on this processor")
        settings = {"INFERENCE_PRECISION_HINT": kind, "INFERENCE_NUM_THREADS": options.threads, "NUM_STREAMS": 1,
                    "PERFORMANCE_HINT": "LATENCY"}
        compiled = core.compile_model(core.read_model(file), "CPU", settings)
        self.request = compiled.create_infer_request()
        self.x = x  # the tensor refers to its memory
        self.input = openvino.Tensor(x, shared_memory=True)
        self.request.set_input_tensor(self.input)
        self.facts = {"version": openvino.__version__.split("-")[0],
                      "threads": compiled.get_property("INFERENCE_NUM_THREADS"),
                      "blas": "none", "onednn": "OpenVINO's fork (linked statically)"}

    def call(self):
        self.request.infer(share_outputs=True)  # without a copy of the result

    def result(self):
        return self.request.get_output_tensor().data


RUNTIMES = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}


def start():
    options = arguments()
    check("torch", "onnx", "onnxscript")
    import numpy
    import torch

    torch.manual_seed(1)
    with open(options.net, encoding="utf-8") as file:
        description = json.load(file)
    shape = description["training"]["batch"], description["input"]["channels"], *description["input"]["patch"]
    x = torch.randn(shape)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        parameters, wanted = export(torch, description, x, path)
        importlib.import_module(options.runtime)  # its own memory is not that of the net
        forget_peak()
        before = peak_bytes()
        runtime = RUNTIMES[options.runtime](path, options, x.numpy())
    runtime.call()
    error = numpy.linalg.norm(runtime.result() - wanted) / numpy.linalg.norm(wanted)
    if not error <= LARGEST_ERROR[options.precision]:
        raise ValueError(f"the result differs from PyTorch's by {error:.2g}, relative; at most "
                         f"{LARGEST_ERROR[options.precision]:g} is allowed")

    def answer(command):
        if command != "inference":
            raise ValueError(f"the command '{command}' is unknown; write inference")
        seconds, _ = timed(runtime.call)
        return {"seconds": seconds, "peak_bytes": peak_bytes() - before}

    return dict(runtime.facts, parameters=parameters), answer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--net", required=True, metavar="FILE", help="description from bench_net --describe")
    parser.add_argument("--threads", type=int, required=True, help="threads of the runtime")
    parser.add_argument("--runtime", choices=list(RUNTIMES), required=True)
    parser.add_argument("--precision", choices=list(LARGEST_ERROR), required=True)
    return parser.parse_args()


if __name__ == "__main__":
    serve(start)
