"""How the scripts of papers run bench_conv."""
import hashlib
import json
import os
import pathlib
import tempfile
from typing import Any

from yang_common import Command


def build_of(command: Command) -> str:
    """A short text that names the files of a build: measurements of different builds do not belong together."""
    found = hashlib.sha256()
    for binary in (command.binary, BenchConv(command).command.binary):
        found.update(pathlib.Path(binary).resolve().read_bytes())
    return found.hexdigest()[:12]


class BenchConv:
    """bench_conv of the build that has the command."""

    def __init__(self, command: Command):
        self.command = Command(str(pathlib.Path(command.binary).resolve().parent.parent / "bench/bench_conv"))

    def report(self, *words: str) -> dict[str, Any]:
        """Runs it and returns its report, with the load average before."""
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            self.command.text(*words, "--json", str(file))
            return {**json.loads(file.read_text()), "load_average": load}
