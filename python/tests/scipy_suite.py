"""Runs SciPy's own tests of scipy.fft and of fftconvolve with convolume.fft as the global backend, and without.

    python python/tests/scipy_suite.py

A test that fails with the backend and passes without it is an error. Prints the share of calls that were ours.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SUITES = [["scipy.fft.tests"], ["scipy.signal.tests.test_signaltools", "-k",
                                  "FFTConvolve or fftconvolve or OAConvolve"]]
# irfft runs in other processes, which know no backend, and must agree with the result here. Zeros are compared without
# a tolerance, so any backend that rounds otherwise than SciPy fails.
EXPECTED = {"test_basic.py::test_multiprocess[irfft]"}


def run(backend, suite, folder):
    """Returns the report of one run."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "scipy_plugin", "-p", "no:cacheprovider", "--tb=short",
                    "--no-header", "-W", "ignore", "--pyargs", *suite], cwd=folder, check=False,
                   env={**os.environ, "PYTHONPATH": path, "CONVOLUME_SCIPY_REPORT": str(report),
                        "CONVOLUME_SCIPY_BACKEND": str(int(backend))})
    return json.loads(report.read_text())


def main():
    new = []
    with tempfile.TemporaryDirectory() as name:
        for suite in SUITES:
            with_us, without = (run(backend, suite, pathlib.Path(name)) for backend in (True, False))
            seen, ours = sum(with_us["seen"].values()), sum(with_us["ours"].values())
            print(f"{suite[0]}: {with_us['passed']} passed, {len(with_us['failures'])} failed with convolume.fft, "
                  f"{without['passed']} and {len(without['failures'])} without; "
                  f"{ours} of {seen} calls were ours ({100 * ours / max(1, seen):.0f} %)", flush=True)
            for function, count in sorted(with_us["seen"].items()):
                print(f"  {function}: {with_us['ours'].get(function, 0)} of {count}")
            new += sorted(set(with_us["failures"]) - set(without["failures"]) - EXPECTED)
            if ours == 0 or with_us["passed"] == 0:
                new.append(f"{suite[0]}: nothing was computed by convolume.fft")
    for one in new:
        print("only with convolume.fft:", one)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
