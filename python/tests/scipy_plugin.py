"""A plugin of pytest for scipy_suite.py: records failures, and makes convolume.fft the backend of scipy.fft.

Two variables of the environment steer it. CONVOLUME_SCIPY_REPORT names the file to write.
CONVOLUME_SCIPY_BACKEND is 1 if the backend is used.
"""
import json
import os
from collections import Counter

import pytest
import scipy.fft

import convolume

failures, passed, seen, ours = [], [], Counter(), Counter()


class Backend:
    """Counts the calls of each function, and those that convolume computes."""

    __ua_domain__ = convolume.fft.__ua_domain__

    @staticmethod
    def __ua_function__(method, arguments, options):
        seen[method.__name__] += 1
        try:
            result = convolume.fft.__ua_function__(method, arguments, options)
        except Exception:
            ours[method.__name__] += 1
            raise
        if result is not NotImplemented:
            ours[method.__name__] += 1
        return result


@pytest.fixture(autouse=True)
def global_backend():
    # Some tests of SciPy set a global backend too, so each test sets ours anew.
    if os.environ["CONVOLUME_SCIPY_BACKEND"] == "1":
        scipy.fft.set_global_backend(Backend)
        scipy.fft.register_backend("scipy")  # computes what we leave; a global backend replaces SciPy's own
    yield


def pytest_runtest_logreport(report):
    if report.failed:
        failures.append(report.nodeid)
    elif report.passed and report.when == "call":
        passed.append(report.nodeid)


def pytest_sessionfinish():
    with open(os.environ["CONVOLUME_SCIPY_REPORT"], "w") as file:
        json.dump({"failures": sorted(set(failures)), "passed": len(passed), "seen": seen, "ours": ours}, file)
