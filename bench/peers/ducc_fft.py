#!/usr/bin/env python3
"""Times ducc0's transforms of cubes, called from Python. bench_fft --impl ducc0 runs it.

It is a service (service.py). The command "KIND PRECISION N" (KIND is r2c, c2r, c2c or c2c_backward) makes the arrays
of a cube and answers {"call_s"}: the seconds of a call from Python for a cube of one voxel, which computes nothing.
"REPEAT" makes one untimed call and REPEAT timed calls, on one thread, into an array that exists, and answers the mean
as {"seconds"}.
"""
import time

from environment import check
from service import serve


def transform(ducc0, numpy, kind, precision, n):
    """Returns a call without arguments that transforms a cube of edge n."""
    real, complex_ = {"float": ("f4", "c8"), "double": ("f8", "c16")}[precision]
    random = numpy.random.default_rng(1)
    space = random.standard_normal((n, n, n)).astype(real)
    axes = (0, 1, 2)
    if kind == "r2c":
        out = numpy.empty((n, n, n // 2 + 1), complex_)
        return lambda: ducc0.fft.r2c(space, axes=axes, nthreads=1, out=out)
    if kind == "c2r":
        spectrum, out = ducc0.fft.r2c(space, axes=axes), numpy.empty_like(space)
        return lambda: ducc0.fft.c2r(spectrum, axes=axes, lastsize=n, forward=False, nthreads=1, out=out)
    values = space.astype(complex_)
    out, forward = numpy.empty_like(values), kind == "c2c"
    return lambda: ducc0.fft.c2c(values, axes=axes, forward=forward, nthreads=1, out=out)


def check_result(ducc0, numpy, kind, precision):
    """Raises ValueError unless ducc0's transform of a small cube is NumPy's."""
    n, random = 6, numpy.random.default_rng(1).standard_normal((6, 6, 6))
    got = transform(ducc0, numpy, kind, precision, n)()
    wanted = {"r2c": lambda: numpy.fft.rfftn(random), "c2r": lambda: random * n**3,
              "c2c": lambda: numpy.fft.fftn(random), "c2c_backward": lambda: numpy.fft.ifftn(random) * n**3}[kind]()
    if not numpy.linalg.norm(got - wanted) <= 1e-5 * numpy.linalg.norm(wanted):
        raise ValueError(f"ducc0's {kind} differs from NumPy's")


def mean_seconds(call, repeat):
    begin = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - begin) / repeat


def start():
    check("ducc0", "numpy")
    import ducc0
    import numpy

    call = None

    def answer(command):
        nonlocal call
        words = command.split()
        if len(words) == 3:
            kind, precision, n = words
            check_result(ducc0, numpy, kind, precision)
            call = transform(ducc0, numpy, kind, precision, int(n))
            one_voxel = transform(ducc0, numpy, kind, precision, 1)
            mean_seconds(one_voxel, 100)
            return {"call_s": min(mean_seconds(one_voxel, 1000) for _ in range(5))}
        call()
        return {"seconds": mean_seconds(call, int(command))}

    return {"version": ducc0.__version__}, answer


if __name__ == "__main__":
    serve(start)
