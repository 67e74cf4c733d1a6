"""What the benchmarks of the Python package share: the machine, medians, and competitors that take turns."""
import importlib.metadata
import math
import statistics
import time

import numpy as np

import convolume


def print_machine(*packages, threads):
    """Prints the machine, the versions of convolume and of packages that are installed, and the threads."""
    from convolume import _core
    versions = []
    for name in packages:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} is not installed")
    print(f"machine   {_core.cpu_name()}, {_core.available_cpus()} CPUs, SIMD target {_core.simd_target()}")
    print(f"versions  convolume {convolume.__version__}, numpy {np.__version__}, {', '.join(versions)}")
    print(f"threads   {', '.join(str(one) for one in threads)}")


def seconds_of(call, repeat):
    """Returns the mean seconds of a number of calls."""
    begin = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - begin) / repeat


def take_turns(calls, rounds, least_seconds=2e-3, rest=0):
    """Returns {name: seconds in each round}. In a round every call runs once, or as often as fills `least_seconds`.

    Before a call is timed, all threads rest for `rest` seconds, because those of another library may still wait
    actively.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        repeats[name] = max(1, math.ceil(least_seconds / max(1e-9, seconds_of(call, 1))))
    found = {name: [] for name in calls}
    for turn in range(rounds):
        names = list(calls) if turn % 2 == 0 else list(calls)[::-1]
        for name in names:
            time.sleep(rest)
            found[name].append(seconds_of(calls[name], repeats[name]))
    return found


def quartiles(values):
    """Returns the lower quartile, the median and the upper quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(math.log(one) for one in values) / len(values))


def is_prime(number):
    return number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1))
