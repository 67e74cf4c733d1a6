"""Measurements that take long, kept one by one, so that a script continues where it was interrupted."""
import json
import pathlib
import sys
from typing import Any

REMEDY = "use another file, or remove this one to begin again"


class Record:
    """A file with one JSON object per line: first what all measurements depend on, then each finished measurement."""

    def __init__(self, file: pathlib.Path, identity: dict[str, Any]):
        self.file = file
        self.found: dict[str, Any] = {}
        text = file.read_text() if file.exists() else ""
        # A process that was killed may leave a part of a line.
        whole = text[:text.rfind("\n") + 1]
        if not whole:
            if not json.dumps(identity).startswith(text):
                sys.exit(f"{file}: is no record of measurements; {REMEDY}")
            file.write_text(json.dumps(identity) + "\n")
            return
        if whole != text:
            file.write_text(whole)
        self._read(whole.splitlines(), identity)

    def _read(self, lines: list[str], identity: dict[str, Any]) -> None:
        try:
            known, *measurements = (dict(json.loads(line)) for line in lines)
        except (ValueError, TypeError) as error:
            sys.exit(f"{self.file}: a line is damaged ({error}); {REMEDY}")
        for key, wanted in identity.items():
            if known.get(key) != wanted:
                sys.exit(f"{self.file}: its {key} is {known.get(key)!r}, but this run has {wanted!r}; {REMEDY}")
        for measurement in measurements:
            self.found.update(measurement)

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def __getitem__(self, key: str) -> Any:
        return self.found[key]

    def add(self, key: str, value: Any) -> None:
        """Keeps a measurement, even if the process is killed afterwards."""
        with open(self.file, "a") as stream:
            stream.write(json.dumps({key: value}) + "\n")
        self.found[key] = value
