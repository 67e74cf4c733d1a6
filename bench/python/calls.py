#!/usr/bin/env python3
"""Times what a call costs beside its computation: convolutions of one voxel, and transforms of 2 x 2 x 2 voxels.

    PYTHONPATH=build/native/python python bench/python/calls.py [--rounds 9] [--calls 2000]

Prints the median and the quartiles in nanoseconds, with one thread.
"""
import argparse

import numpy as np
import scipy.fft

import convolume
from common import print_machine, quartiles, seconds_of


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    print_machine("scipy", threads=[1])
    convolume.set_threads(1)
    x, w = np.ones((1, 1, 1, 1, 1), "float32"), np.ones((1, 1, 1, 1, 1), "float32")
    plan = convolume.ConvPlan(x.shape, w.shape, want=())
    w_hat, y = plan.prepare(w), np.empty_like(x)
    cube = np.ones((2, 2, 2), "float32")
    transform = convolume.fft.Plan("rfftn", cube.shape, workers=1)
    out = transform(cube)
    calls = {"plan.forward(x, w_hat, out=y)": lambda: plan.forward(x, w_hat, out=y),
             "plan.forward(x, w)": lambda: plan.forward(x, w),
             "conv3d(x, w)": lambda: convolume.conv3d(x, w),
             "conv3d(x, w, out=y)": lambda: convolume.conv3d(x, w, out=y),
             "fft.Plan(...)(x, out)": lambda: transform(cube, out),
             "fft.Plan(...)(x)": lambda: transform(cube),
             "fft.rfftn(x)": lambda: convolume.fft.rfftn(cube, workers=1),
             "scipy.fft.rfftn(x)": lambda: scipy.fft.rfftn(cube, workers=1)}
    found = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            call()
            found[name].append(seconds_of(call, options.calls) * 1e9)
    for name, values in found.items():
        low, middle, high = quartiles(values)
        print(f"{name:32} {middle:8.0f} ns ({low:.0f}-{high:.0f})")


if __name__ == "__main__":
    main()
