"""How the scripts of papers run benchmarks."""
import argparse
import hashlib
import json
import os
import pathlib
import tempfile
from typing import Any

from yang_common import Command

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def build_of(command: Command) -> str:
    """A short text that names the files of a build: measurements of different builds do not belong together."""
    found = hashlib.sha256()
    for binary in (command.binary, Bench(command, "bench_conv").command.binary):
        found.update(pathlib.Path(binary).resolve().read_bytes())
    return found.hexdigest()[:12]


def identity_of(script: str, command: Command, machine: dict[str, Any]) -> dict[str, Any]:
    """What all measurements of a record depend on, besides the options of its script."""
    return {"script": script, "processor": machine["processor"], "simd": machine["simd"], "build": build_of(command)}


def add_measuring_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    parser.add_argument("--record", type=pathlib.Path, required=True, help="file that keeps finished measurements")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds in turn [{rounds}]")
    parser.add_argument("--convolume", default=str(ROOT / "build/release/tools/convolume"))


class Bench:
    """A benchmark of the build that has the command."""

    def __init__(self, command: Command, name: str):
        self.command = Command(str(pathlib.Path(command.binary).resolve().parent.parent / "bench" / name))

    def report(self, *words: str) -> dict[str, Any]:
        """Runs it and returns its report, with the load average before."""
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            self.command.text(*words, "--json", str(file))
            return {**json.loads(file.read_text()), "load_average": load}
