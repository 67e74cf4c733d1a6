"""Single layers of PyTorch with Convolume and without: the cost of a call, and a list. For torch_models.py."""
import copy
import math
import os

import numpy as np
import torch
from torch import nn

import convolume
import convolume.torch as ours
from common import quartiles, take_turns
from torch_parts import REST, require_equal

# Lists of coprime lengths, which the number of a layer counts through. Small values stand in them several times.
EXTENTS = (1, 4, 16, 4, 1, 8, 2, 32, 4, 1, 48)
IN_CHANNELS = (3, 16, 1, 64, 3, 128, 32)
OUT_CHANNELS = (3, 32, 16, 128, 1)
KERNELS = (3, 1, 5)
STRIDES = (1, 1, 2, 1)
GROUPS = ("one", "depthwise", "one", "one", "two", "one", "depthwise", "one", "one", "two", "one", "one", "depthwise")
COUNT = 80
MOST_FLOPS = 2e9  # forward


def layer_of(number):
    """Returns (x, layer): a layer of the list, by its number."""
    extent, kernel = EXTENTS[number % 11], KERNELS[number % 3]
    stride, kind = STRIDES[number % 4], GROUPS[number % 13]
    channels, out = IN_CHANNELS[number % 7], OUT_CHANNELS[number % 5]
    if kind == "depthwise":
        out = channels
    elif kind == "two":
        channels, out = 2 * channels, 2 * out
    groups = {"one": 1, "two": 2, "depthwise": channels}[kind]
    voxels = math.ceil(extent / stride) ** 3
    while 2 * voxels * kernel ** 3 * out * (channels // groups) > MOST_FLOPS and channels // groups > 1:
        channels //= 2
    torch.manual_seed(number)
    layer = nn.Conv3d(channels, out, kernel, stride, padding=kernel // 2, groups=groups)
    return torch.randn(1, channels, extent, extent, extent), layer


def text_of(x, layer):
    groups = f", {layer.groups} groups" if layer.groups > 1 else ""
    channels = f"{layer.in_channels} to {layer.out_channels}"
    return f"{channels}, kernel {layer.kernel_size[0]}, stride {layer.stride[0]}{groups}, {x.shape[2]}^3 voxels"


def training_of(layer, x, narrow=None):
    """Returns a call that computes the layer forward and backward, with the gradient of x. `narrow` is the type of
    autocast, and then of x."""
    def forward():
        with torch.autocast("cpu", dtype=narrow, enabled=narrow is not None):
            return layer(x)

    x = x.to(narrow or x.dtype, copy=True).requires_grad_()
    dy = torch.ones_like(forward())

    def call():
        x.grad = layer.weight.grad = layer.bias.grad = None
        forward().backward(dy)

    call()
    return call, x


def compared(x, layer, policies, narrow=None):
    """Returns {name: a call}: PyTorch's layer, and the replaced one by each policy, under autocast if `narrow` is its
    type. Raises ValueError if they differ."""
    calls = {}
    calls["PyTorch"], wanted = training_of(layer, x, narrow)
    allowed = {} if narrow is None else {"most": 4 * torch.finfo(narrow).eps}
    for policy in policies:
        other = copy.deepcopy(layer)
        ours.replace_conv3d(other, policy=policy)
        calls[policy], found = training_of(other, x, narrow)
        require_equal(text_of(x, layer), found.grad.float().numpy(), wanted.grad.float().numpy(), **allowed)
        if narrow is None:  # PyTorch 2.13's dw in bfloat16 is wrong in some layers (log/pytorch.md)
            require_equal(text_of(x, layer), other.weight.grad.numpy(), layer.weight.grad.numpy())
    return calls


def plans_of(x, layer, threads):
    """Returns a call that computes the layer by its plan, with NumPy arrays."""
    x, w, bias = x.numpy(), layer.weight.detach().numpy(), layer.bias.detach().numpy()
    plan = convolume.ConvPlan(x.shape, w.shape, padding=layer.padding, bias=True)
    dy = np.ones(plan.y_shape, "float32")

    def call():
        spectra = plan.spectra()
        plan.forward(x, w, bias, x_hat=spectra, threads=threads)
        plan.backward(x, dy, w, x_hat=spectra, want=("dx", "dw", "dbias"), threads=threads)

    return call


def measure_calls(options):
    """Prints what a training call of the smallest layers costs. Returns microseconds."""
    print("\nforward and backward, microseconds (quartiles)")
    print(f"{'layer':38}{'replaced':>22}{'PyTorch':>22}{'plan alone':>22}")
    report = {}
    for kernel in (1, 3):
        torch.manual_seed(1)
        layer, x = nn.Conv3d(1, 1, kernel), torch.randn(1, 1, kernel, kernel, kernel)
        calls = compared(x, layer, [options.policy])
        calls["plan alone"] = plans_of(x, layer, options.threads)
        times = {name: [one * 1e6 for one in found]
                 for name, found in take_turns(calls, options.rounds, least_seconds=0.02).items()}
        cells = []
        for name in (options.policy, "PyTorch", "plan alone"):
            low, middle, high = quartiles(times[name])
            cells.append(f"{middle:.1f} ({low:.1f}-{high:.1f})")
        print(f"{text_of(x, layer):38}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
        report[text_of(x, layer)] = times
    return report


def measure_pools(options):
    """Prints the time of a convolution of ours and a layer of PyTorch in alternation over the sum of each alone, with
    helper threads of oneTBB and with those of PyTorch. Returns {"extent pool": seconds of each}."""
    from convolume.torch import _threads
    uses = {"oneTBB": _threads.use_own_threads, "PyTorch's": _threads.use_team_of_pytorch}
    print(f"\nconvolution and GroupNorm with ReLU, both over the sum of each alone (lower quartiles); OMP_WAIT_POLICY: "
          f"{os.environ.get('OMP_WAIT_POLICY', 'default')}")
    report = {}
    for extent in (6, 12, 24, 48):
        torch.manual_seed(1)
        x, w, norm = torch.randn(1, 32, extent, extent, extent), torch.randn(32, 32, 3, 3, 3), nn.GroupNorm(8, 32)
        alone = {"convolution": lambda x=x, w=w: ours.conv3d(x, w, padding=1),
                 "norm": lambda x=x, norm=norm: torch.relu(norm(x))}
        calls = {**alone, "both": lambda alone=alone: [call() for call in alone.values()]}
        for _ in range(options.rounds):
            for pool, use in uses.items():
                use()
                with torch.no_grad():
                    for name, found in take_turns(calls, 1, rest=REST / 2).items():
                        report.setdefault(f"{extent}^3, {pool}", {}).setdefault(name, []).extend(found)
    for text, times in report.items():
        convolution, norm, both = (quartiles(times[name])[0] for name in ("convolution", "norm", "both"))
        print(f"  {text:18} {both / (convolution + norm):5.2f}  ({both * 1e3:.3f} ms; alone {convolution * 1e3:.3f} "
              f"and {norm * 1e3:.3f} ms)")
    return report


def measure_layers(options):
    """Prints how replaced layers compare with PyTorch's, by lower quartiles. Returns the seconds of each."""
    policies = [options.policy] + (["always"] if options.policy != "always" else [])
    report = {}
    for number in range(options.layers):
        x, layer = layer_of(number)
        times = take_turns(compared(x, layer, policies), options.rounds, rest=REST / 10)
        report[f"{number}: {text_of(x, layer)}"] = {name: quartiles(found)[0] for name, found in times.items()}
    ratios = {text: one["PyTorch"] / one[options.policy] for text, one in report.items()}
    print(f"\n{len(report)} layers, forward and backward: PyTorch's time over the replaced layer's (lower quartiles)")
    for text in sorted(ratios, key=ratios.get)[:5]:
        one = report[text]
        theirs, mine = one["PyTorch"] * 1e6, one[options.policy] * 1e6
        print(f"  {ratios[text]:6.2f}  {theirs:9.1f} us, {mine:9.1f} us  layer {text}")
    below = sum(ratio < 0.9 for ratio in ratios.values())
    saved = sum(one["PyTorch"] - one[options.policy] for one in report.values())
    most = sum(max(0, one["PyTorch"] - one[policies[-1]]) for one in report.values())
    share = f"{saved / most:.1%}" if most > 0 else "none"
    print(f"worst {min(ratios.values()):.2f}; {below} below 0.9; saved {share} of the {most * 1e3:.2f} ms that "
          "replacing exactly the faster layers saves")
    return {"layers": report, "below": below, "saved": saved, "most": most}
