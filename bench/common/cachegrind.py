"""Counts the events of a process with Valgrind's cache simulator, for the scripts of the benchmarks."""
import os
import subprocess
import tempfile
from pathlib import Path


class CachegrindError(RuntimeError):
    pass


def count_events(command, l1, last_level, simd):
    """Returns the events of one process by name; `l1` and `last_level` are "bytes,ways,line"."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cachegrind.out"
        watched = [
            "valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}",
            f"--I1={l1}", f"--D1={l1}", f"--LL={last_level}", *command,
        ]  # fmt: skip
        env = dict(os.environ, CONVOLUME_SIMD=simd)
        timer = Path(command[0]).resolve().parent.parent / "testing/libconvolume_valgrind_timer.so"
        if timer.exists():
            env["LD_PRELOAD"] = str(timer)
        result = subprocess.run(watched, env=env, capture_output=True, text=True)
        if result.returncode != 0:
            raise CachegrindError(f"{' '.join(watched)} ended with {result.returncode}:\n{result.stderr.strip()}")
        events, totals = None, None
        for line in out.read_text().splitlines():
            if line.startswith("events:"):
                events = line.split()[1:]
            elif line.startswith("summary:"):
                totals = [int(word) for word in line.split()[1:]]
    if not events or not totals or len(events) != len(totals):
        raise CachegrindError("cachegrind wrote no summary that this script understands")
    return dict(zip(events, totals))
