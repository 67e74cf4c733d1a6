"""Nets of MONAI have the same outputs and gradients in accelerated(), after replace_conv3d(), and by PyTorch alone.

    monai_nets.py       status 77 if MONAI is missing

build/peers has MONAI (tools/install_packages.sh --peers).
"""
import contextlib
import importlib.util
import sys

TOLERANCES = {"float64": 1e-10, "float32": 1e-4}


def make_nets():
    """Returns functions that make small nets of two input channels, and the extents of an input."""
    from monai.networks.nets import UNETR, DynUNet, SegResNet, VNet
    return {
        "DynUNet": (lambda: DynUNet(3, 2, 3, [3, 3, (1, 3, 3)], [1, 2, (1, 2, 2)], [2, (1, 2, 2)], filters=[8, 12, 16],
                                    res_block=True, deep_supervision=False), (16, 16, 12)),
        "SegResNet": (lambda: SegResNet(3, 8, 2, 3, blocks_down=(1, 1, 1), blocks_up=(1, 1)), (16, 12, 16)),
        "VNet": (lambda: VNet(3, 2, 3), (32, 32, 32)),
        "UNETR": (lambda: UNETR(2, 3, (16, 16, 16), feature_size=4, hidden_size=24, mlp_dim=48, num_heads=4),
                  (16, 16, 16)),
    }


def step(net, x):
    """Returns the outputs and all gradients. Dropout is the same in each call."""
    import torch
    torch.manual_seed(2)
    x = x.clone().requires_grad_()
    y = net(x)
    net.zero_grad()
    y.square().mean().backward()
    return {"y": y.detach(), "x": x.grad, **{name: one.grad.clone() for name, one in net.named_parameters()
                                             if one.grad is not None}}


def distance(results, wanted):
    """Returns the largest difference, relative to the largest value of a tensor, and the name of the tensor.

    The gradient of a bias before a normalisation is 0 but for rounding. So a gradient counts by at least a thousandth
    of the largest gradient.
    """
    assert list(results) == list(wanted)
    least = max(one.abs().max() for name, one in wanted.items() if name != "y") * 1e-3
    return max(((results[name] - one).abs().max() / max(one.abs().max(), least)).item() for name, one in wanted.items())


def compare_steps(name, make, extents):
    import torch

    import convolume.torch as ours
    for dtype, tolerance in TOLERANCES.items():
        torch.manual_seed(1)
        net, x = make().to(getattr(torch, dtype)), torch.randn(2, 2, *extents, dtype=getattr(torch, dtype))
        wanted = step(net, x)
        with ours.accelerated("always") as calls:
            accelerated = step(net, x)
        assert calls.ours > 0
        assert calls.others == 0
        report = ours.replace_conv3d(net, policy="always")
        assert all(row.replaced for row in report.rows), str(report)
        for kind, results in (("accelerated", accelerated), ("replaced", step(net, x))):
            largest = distance(results, wanted)
            print(f"{name}, {dtype}, {kind}: {largest:.1e} ({calls.ours} convolutions)", flush=True)
            assert largest < tolerance


def compare_windows(make):
    import torch
    from monai.inferers import sliding_window_inference

    import convolume.torch as ours
    torch.manual_seed(1)
    net, x = make().eval(), torch.randn(1, 2, 24, 20, 28)
    results = []
    for block in (contextlib.nullcontext(), ours.accelerated("always")):
        with block as calls, torch.inference_mode():
            results.append(sliding_window_inference(x, (16, 16, 16), 2, net, overlap=0.5, mode="gaussian"))
    largest = distance({"y": results[1], "all": results[1]}, {"y": results[0], "all": results[0]})
    print(f"sliding_window_inference: {largest:.1e} ({calls.ours} convolutions)")
    assert calls.ours > 0
    assert largest < TOLERANCES["float32"]


def main():
    if importlib.util.find_spec("monai") is None:
        print("SKIPPED: MONAI is not installed")
        sys.exit(77)
    nets = make_nets()
    for name, (make, extents) in nets.items():
        compare_steps(name, make, extents)
    compare_windows(nets["SegResNet"][0])


if __name__ == "__main__":
    main()
