#!/usr/bin/env python3
"""Compares convolume.fft.Plan("rfftn") of float32 cubes with the fastest of SciPy, ducc0 and pyFFTW.

    PYTHONPATH=build/native/python python bench/python/fft.py [--first 16] [--last 256] [--step 1] [--workers 1,2]
                                                              [--rounds 7] [--only primes]

bench/python/requirements.txt has the versions. All write into arrays that exist, except SciPy, which cannot. pyFFTW
plans with FFTW_MEASURE before the time starts. A ratio is the fastest peer's median over ours; above 1 ours is faster.
mkl_fft is reported if it is installed, and does not count. MKL_NUM_THREADS sets its threads.
"""
import argparse
import sys

import numpy as np
import scipy.fft

import convolume
from common import geometric_mean, is_prime, print_machine, quartiles, take_turns


def peers_of(x, workers):
    """Returns {name: a call that transforms x}."""
    shape = (*x.shape[:2], x.shape[2] // 2 + 1)
    calls = {"scipy": lambda: scipy.fft.rfftn(x, workers=workers)}
    try:
        import ducc0
        out = np.empty(shape, "c8")
        calls["ducc0"] = lambda: ducc0.fft.r2c(x, axes=(0, 1, 2), nthreads=workers, out=out)
    except ImportError:
        pass
    try:
        import pyfftw
        source, target = pyfftw.empty_aligned(x.shape, "f4"), pyfftw.empty_aligned(shape, "c8")
        plan = pyfftw.FFTW(source, target, axes=(0, 1, 2), flags=("FFTW_MEASURE",), threads=workers)
        source[...] = x  # planning overwrites it
        calls["pyfftw"] = plan.execute
    except ImportError:
        pass
    try:
        import mkl_fft
        calls["mkl_fft"] = lambda: mkl_fft.rfftn(x)
    except ImportError:
        pass
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=16, help="smallest side")
    parser.add_argument("--last", type=int, default=256, help="largest side")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=["primes"], help="only sides that are prime")
    options = parser.parse_args()
    workers = [int(one) for one in options.workers.split(",")]
    sides = [side for side in range(options.first, options.last + 1, options.step)
             if options.only is None or is_prime(side)]
    print_machine("scipy", "ducc0", "pyfftw", "mkl_fft", threads=workers)
    for number in workers:
        print(f"\n{number} worker(s)  {'ours ms':>24} {'fastest peer ms':>32}  ratio (quartiles)")
        ratios = {}
        for side in sides:
            x = np.random.default_rng(side).standard_normal((side,) * 3, dtype="float32")
            plan = convolume.fft.Plan("rfftn", x.shape, workers=number)
            out = np.empty(plan.y_shape, "c8")
            peers = peers_of(x, number)
            times = take_turns({"convolume": lambda: plan(x, out), **peers}, options.rounds)
            wanted = scipy.fft.rfftn(x.astype("f8"))
            if not np.linalg.norm(out - wanted) <= 1e-6 * np.linalg.norm(wanted):
                sys.exit(f"fft.py: side {side}: the result differs from SciPy's in double precision")
            ours = quartiles(times["convolume"])
            counted = {name: quartiles(found) for name, found in times.items()
                       if name not in ("convolume", "mkl_fft")}
            fastest = min(counted, key=lambda name: counted[name][1])
            ratios[side] = counted[fastest][1] / ours[1]
            paired = quartiles([theirs / mine for theirs, mine in zip(times[fastest], times["convolume"])])
            texts = [f"{m * 1e3:.3f} ({l * 1e3:.3f}-{h * 1e3:.3f})" for l, m, h in (ours, counted[fastest])]
            mkl = f"  mkl_fft {quartiles(times['mkl_fft'])[1] * 1e3:.3f} ms" if "mkl_fft" in times else ""
            print(f"{side:4}{'p' if is_prime(side) else ' '} {texts[0]:>32} {fastest:>8} {texts[1]:>23}  "
                  f"{ratios[side]:.2f} ({paired[0]:.2f}-{paired[2]:.2f}){mkl}", flush=True)
        primes = [ratio for side, ratio in ratios.items() if is_prime(side)]
        worst = min(ratios, key=ratios.get)
        print(f"geometric mean of {len(ratios)} sides {geometric_mean(ratios.values()):.2f}; "
              + (f"of {len(primes)} primes {geometric_mean(primes):.2f}; " if primes else "")
              + f"worst {ratios[worst]:.2f} at {worst}; {sum(one > 1 for one in ratios.values())} faster than all peers")


if __name__ == "__main__":
    main()
