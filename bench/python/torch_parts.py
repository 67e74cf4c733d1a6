"""Parts of torch_models.py: the convolutions of a model, the time outside of them, and their plans alone."""
import contextlib
import pathlib
import sys
import types
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

import convolume

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "peers"))

REST = 0.05  # seconds before a call is timed, as in bench/peers/service.py


class Layer(NamedTuple):
    """A call of a convolution in a model."""

    x_shape: tuple
    w_shape: tuple
    y_shape: tuple
    stride: tuple
    padding: object
    dilation: tuple
    groups: int
    bias: bool
    transposed: bool
    output_padding: tuple
    wants_dx: bool


def is_convolution(module):
    return isinstance(module, (nn.Conv3d, nn.ConvTranspose3d))


def layers_of(model, x):
    """Returns [(module, layer)] of a training pass, in the order of the calls."""
    found = []

    def note(module, inputs, y):
        found.append((module, Layer(
            tuple(inputs[0].shape), tuple(module.weight.shape), tuple(y.shape), module.stride, module.padding,
            module.dilation, module.groups, module.bias is not None, isinstance(module, nn.ConvTranspose3d),
            module.output_padding, inputs[0].requires_grad)))

    hooks = [module.register_forward_hook(note) for module in model.modules() if is_convolution(module)]
    model(x)
    for hook in hooks:
        hook.remove()
    return found


class _Allocate(torch.autograd.Function):
    """A convolution that computes nothing: its forward and its backward allocate their results."""

    @staticmethod
    def forward(ctx, x, weight, bias, shape):
        ctx.save_for_backward(x, weight)
        ctx.bias = bias
        return x.new_empty(shape)

    @staticmethod
    def backward(ctx, dy):
        tensors = (*ctx.saved_tensors, ctx.bias)
        return *(torch.empty_like(one, memory_format=torch.contiguous_format) if wanted else None
                 for one, wanted in zip(tensors, ctx.needs_input_grad)), None


@contextlib.contextmanager
def without_convolutions(layers):
    """Within it, these modules only allocate the results of their convolutions."""
    shapes = {}
    for module, layer in layers:
        shapes.setdefault(module, layer.y_shape)
    for module, shape in shapes.items():
        module.forward = types.MethodType(
            lambda self, x, shape=shape: _Allocate.apply(x, self.weight, self.bias, shape), module)
    try:
        yield
    finally:
        for module in shapes:
            del module.forward


class OwnPlans:
    """The plans of the layers of a model, called with NumPy arrays, without PyTorch."""

    def __init__(self, layers, training, threads):
        self.threads, self.training = threads, training
        self.arrays, self.parts = {}, []
        made = {}
        for layer in layers:
            if layer not in made:
                made[layer] = self._made(layer)
            self.parts.append(made[layer])

    def _array(self, shape):
        if shape not in self.arrays:
            self.arrays[shape] = np.random.default_rng(len(self.arrays)).standard_normal(shape, dtype="float32")
        return self.arrays[shape]

    def _made(self, layer):
        want = (("dx", "dw") if layer.wants_dx else ("dw",)) if self.training else ()
        plan = convolume.ConvPlan(layer.x_shape, layer.w_shape, stride=layer.stride, padding=layer.padding,
                                  dilation=layer.dilation, groups=layer.groups, bias=layer.bias, want=want,
                                  transposed=layer.transposed, output_padding=layer.output_padding)
        w = self._array(layer.w_shape)
        bias = self._array((plan.y_shape[1],)) if layer.bias else None
        return (plan, self._array(layer.x_shape), w if self.training else plan.prepare(w, threads=self.threads), bias,
                self._array(layer.y_shape), (*want, "dbias") if layer.bias else want)

    def run(self):
        """Computes all layers forward and, in training, backward."""
        spectra = []
        for plan, x, w, bias, *_ in self.parts:
            spectra.append(plan.spectra() if self.training else None)
            plan.forward(x, w, bias, x_hat=spectra[-1], threads=self.threads)
        if not self.training:
            return
        for plan, x, w, _, dy, want in reversed(self.parts):
            plan.backward(x, dy, w, x_hat=spectra.pop(), want=want, threads=self.threads)


def runtimes_of(model, x, threads, folder):
    """Returns ({name: a call of a runtime for the model}, texts about those that are not there).

    Raises ValueError if a result differs from PyTorch's.
    """
    import onnx_net
    from environment import PeerError, check

    calls, missing = {}, []
    file, options = str(folder / "net.onnx"), types.SimpleNamespace(threads=threads, precision="float32")
    with torch.no_grad():
        wanted = model(x).numpy()
    try:
        check("onnx", "onnxscript")
        with torch.no_grad():
            torch.onnx.export(model, (x,), file, verbose=False)
    except PeerError as error:
        return calls, [str(error)]
    for name, kind in onnx_net.RUNTIMES.items():
        try:
            runtime = kind(file, options, x.numpy())
        except PeerError as error:
            missing.append(str(error))
            continue
        runtime.call()
        require_equal(name, runtime.result(), wanted)
        calls[name] = runtime.call
    return calls, missing


def require_equal(name, found, wanted, most=1e-4):
    """Raises ValueError if an array differs from another one."""
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    if not error <= most:
        raise ValueError(f"{name}: the result differs from PyTorch's by {error:.2g}, relative; at most {most:g} is "
                         "allowed")
