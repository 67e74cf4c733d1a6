#!/usr/bin/env python3
"""Compares convolutions of one channel with SciPy: fftconvolve with either backend, and conv3d with oaconvolve.

    PYTHONPATH=build/native/python python bench/python/convolution.py [--sides 32,64,96] [--kernels 3,5,9,15]
                                                                      [--threads 1,2] [--rounds 5]

A ratio is SciPy's median over ours; above 1 ours is faster. SciPy's transforms have the same number of workers.
"""
import argparse
import sys

import numpy as np
import scipy.fft
import scipy.signal

import convolume
from common import geometric_mean, print_machine, quartiles, take_turns


def with_backend(x, w):
    with scipy.fft.set_backend(convolume.fft):
        return scipy.signal.fftconvolve(x, w, "valid")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", default="32,64,96")
    parser.add_argument("--kernels", default="3,5,9,15")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    sides, kernels, threads = ([int(one) for one in text.split(",")]
                               for text in (options.sides, options.kernels, options.threads))
    print_machine("scipy", threads=threads)
    rng = np.random.default_rng(1)
    for number in threads:
        ratios = {"fftconvolve": [], "oaconvolve": []}
        print(f"\n{number} thread(s): side, kernel, fftconvolve with scipy.fft over convolume.fft, oaconvolve over "
              "conv3d")
        for side in sides:
            for kernel in kernels:
                x = rng.standard_normal((side,) * 3, dtype="float32")
                w = rng.standard_normal((kernel,) * 3, dtype="float32")
                flipped = np.ascontiguousarray(w[::-1, ::-1, ::-1])  # SciPy convolves, conv3d correlates
                calls = {"scipy": lambda: scipy.signal.fftconvolve(x, w, "valid"),
                         "backend": lambda: with_backend(x, w),
                         "oaconvolve": lambda: scipy.signal.oaconvolve(x, w, "valid"),
                         "conv3d": lambda: convolume.conv3d(x[None], flipped[None, None], threads=number)[0]}
                with scipy.fft.set_workers(number):
                    wanted = calls["scipy"]()
                    for name, call in calls.items():
                        if not np.linalg.norm(call() - wanted) <= 1e-5 * np.linalg.norm(wanted):
                            sys.exit(f"convolution.py: {name}, side {side}, kernel {kernel}: results differ")
                    times = take_turns(calls, options.rounds)
                text = []
                for name, theirs, ours in (("fftconvolve", "scipy", "backend"), ("oaconvolve", "oaconvolve", "conv3d")):
                    low, _, high = quartiles([one / other for one, other in zip(times[theirs], times[ours])])
                    ratio = quartiles(times[theirs])[1] / quartiles(times[ours])[1]
                    ratios[name].append(ratio)
                    text.append(f"{ratio:6.2f} ({low:.2f}-{high:.2f}), {quartiles(times[ours])[1] * 1e3:.2f} ms")
                print(f"{side:4} {kernel:3} {text[0]:>32} {text[1]:>32}", flush=True)
        print("geometric means: " + ", ".join(f"{name} {geometric_mean(found):.2f}" for name, found in ratios.items()))


if __name__ == "__main__":
    main()
