#!/usr/bin/env python3
"""Measures whether memory grows: random calls of convolutions and transforms with 300 shapes of 1 to 4 channels.

    PYTHONPATH=build/native/python python bench/python/memory.py [--calls 10000] [--settle 1000] [--shapes 300]
                                                                 [--limit MIB]

Prints the resident memory after the first calls (`--settle`), every tenth of the calls and at the end. With --limit,
the status is 1 if it grew by more.
"""
import argparse
import gc
import os
import sys

import numpy as np

import convolume
from common import print_machine


def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--settle", type=int, default=1000, help="calls before the first measurement")
    parser.add_argument("--shapes", type=int, default=300)
    parser.add_argument("--limit", type=float, help="MiB of growth that are an error")
    options = parser.parse_args()
    print_machine("scipy", threads=[2])
    convolume.set_threads(2)
    if not 0 < options.settle < options.calls:
        raise SystemExit(f"memory.py: --settle is {options.settle}; it must be at least 1 and below --calls")
    rng = np.random.default_rng(1)
    shapes = [tuple(int(one) for one in rng.integers(3, 25, 3)) for _ in range(options.shapes)]
    begin = 0.0
    for i in range(options.calls):
        number = rng.integers(len(shapes))
        shape, channels = shapes[number], 1 + number % 4
        x = np.ones((1, channels, *shape), "float32")
        y = convolume.conv3d(x, np.ones((channels, channels, 3, 3, 3), "float32"), padding=1)
        convolume.fft.irfftn(convolume.fft.rfftn(y, axes=(-3, -2, -1)), s=shape, axes=(-3, -2, -1))
        convolume.fft.Plan("rfftn", shape)(x[0, 0])
        if i + 1 == options.settle:
            gc.collect()
            begin = resident_mib()
            print(f"{i + 1:6} calls: {begin:8.1f} MiB")
        elif i + 1 > options.settle and (i + 1) % max(1, options.calls // 10) == 0:
            print(f"{i + 1:6} calls: {resident_mib():8.1f} MiB", flush=True)
    gc.collect()
    growth = resident_mib() - begin
    print(f"growth after the first {options.settle} calls: {growth:.1f} MiB; {convolume.statistics()}")
    return 1 if options.limit is not None and growth > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
