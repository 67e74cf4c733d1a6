"""Imports the package beside PyTorch, SciPy, h5py, OpenCV and numba, in three orders, and computes with all of them.

    neighbours.py            runs the orders in processes of their own; status 77 if a package is missing
    neighbours.py NAME ...   imports the packages in this order

Several of them bring TBB, OpenMP or HDF5. build/peers has them (tools/install_packages.sh --peers).
"""
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile

ORDERS = (("convolume", "torch", "scipy", "h5py", "cv2", "numba"), ("numba", "cv2", "h5py", "scipy", "torch", "convolume"),
          ("torch", "h5py", "convolume", "cv2", "numba", "scipy"))


def use_scipy():
    import numpy
    import scipy.signal
    return scipy.signal.fftconvolve(numpy.ones((20, 20)), numpy.ones((3, 3))).sum()


def use_torch():
    import torch
    return torch.nn.functional.conv3d(torch.ones(1, 4, 8, 8, 8), torch.ones(4, 4, 3, 3, 3)).sum().item()


def use_h5py():
    import h5py
    with tempfile.TemporaryDirectory() as folder, h5py.File(os.path.join(folder, "a.h5"), "w") as file:
        file["x"] = [1.0, 2.0]
        return file["x"][:].sum()


def use_cv2():
    import cv2
    import numpy
    return cv2.blur(numpy.ones((300, 300), "float32"), (5, 5)).sum()


def use_numba():
    import numba
    import numpy

    @numba.njit(parallel=True)
    def total(values):
        result = 0.0
        for i in numba.prange(len(values)):
            result += values[i]
        return result

    return total(numpy.ones(1000))


def use_convolume():
    import numpy

    import convolume
    x = numpy.random.default_rng(1).standard_normal((1, 16, 24, 24, 24), dtype="float32")
    w = numpy.random.default_rng(2).standard_normal((16, 16, 5, 5, 5), dtype="float32")
    with tempfile.TemporaryDirectory() as folder:
        convolume.convert(x[0], os.path.join(folder, "x.h5:/x"))
    return hashlib.sha256(convolume.conv3d(x, w, threads=2).tobytes()).hexdigest()


def compute(order):
    for name in order:
        importlib.import_module(name)
    results = {}
    for _ in range(3):
        for name in order:
            result = globals()["use_" + name]()
            assert results.setdefault(name, result) == result, name
    print(results["convolume"])


def main():
    missing = [name for name in ORDERS[0] if importlib.util.find_spec(name) is None]
    if missing:
        print(f"SKIPPED: neighbours: {', '.join(missing)} missing; tools/install_packages.sh --peers")
        return 77
    results = set()
    for variables in ({}, {"OMP_PROC_BIND": "true"}):
        for order in ORDERS:
            run = subprocess.run([sys.executable, __file__, *order], env={**os.environ, **variables}, capture_output=True,
                                 text=True, timeout=600, check=False)
            if run.returncode != 0:
                print(f"{' '.join(order)} {variables}: status {run.returncode}\n{run.stdout}{run.stderr}")
                return 1
            results.add(run.stdout)
    print(f"{len(ORDERS)} orders, with free and with bound threads: {len(results)} result")
    return 0 if len(results) == 1 else 1


if len(sys.argv) > 1:
    compute(sys.argv[1:])
else:
    sys.exit(main())
