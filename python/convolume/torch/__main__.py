"""Runs a program with accelerated() on, in it and in the processes that it starts.

    python -m convolume.torch [--policy P] [--memory-budget BYTES] PROGRAM ARGS...
    python -m convolume.torch [--policy P] [--memory-budget BYTES] -m MODULE ARGS...

PROGRAM is a Python file, or the name of a console script: beside the interpreter, or in PATH. It runs as Python would
run it. Its last line on stderr says how many convolutions were ours.

  --policy P             which convolutions are ours: fastest (default), tuned, always
  --memory-budget BYTES  limit of the spectra that a call keeps from forward to backward; default: none
  -h, --help             prints this
"""
from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import NoReturn

_POLICIES = ("fastest", "tuned", "always")


def _fail(text: str) -> NoReturn:
    print(f"python -m convolume.torch: {text}", file=sys.stderr)
    raise SystemExit(2)


def _interpreter_options(original: Sequence[str]) -> list[str]:
    """Returns the options of the interpreter before `-m convolume.torch`."""
    name = (__package__ or "convolume.torch")
    for place, word in enumerate(original):
        if word.startswith("-") and not word.startswith("--"):
            if word.endswith("m") and original[place + 1:place + 2] == [name]:
                return [*original[1:place], *([word[:-1]] if len(word) > 2 else [])]
            if word.endswith(f"m{name}"):
                rest = word[:-len(name) - 1]
                return [*original[1:place], *([rest] if len(rest) > 1 else [])]
    return []


def _is_python(path: str) -> bool:
    """Returns whether Python can run this file or folder."""
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, "__main__.py"))
    if path.endswith((".py", ".pyw", ".pyc")) or zipfile.is_zipfile(path):
        return True
    with open(path, "rb") as file:
        start = file.read(1024)
    # A long path of the interpreter stands in the second line, which a shell reads.
    return b"\0" not in start and (not start.startswith(b"#!") or b"python" in b"".join(start.split(b"\n")[:2]))


def _find_program(name: str) -> str:
    """Returns the path of a program, or ends the process with status 2."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if os.path.exists(name) and ("/" in name or _is_python(name)):
        found: str | None = name
    else:
        found = beside if "/" not in name and os.path.isfile(beside) else shutil.which(name)
    if found is None:
        _fail(f"found no program {name!r}: neither a file, nor beside {sys.executable}, nor in PATH")
    try:
        if not _is_python(found):
            _fail(f"{found} is not a Python script")
    except OSError as error:
        _fail(f"cannot read {found}: {error.strerror}")
    return found


def _parse(words: list[str]) -> tuple[str, int | None, list[str]]:
    """Returns the policy, the budget, and what Python has to run."""
    policy, budget = _POLICIES[0], None
    while words and words[0].startswith("-"):
        option, _, value = words.pop(0).partition("=")
        if option in ("-h", "--help"):
            print((__doc__ or "").rstrip())
            raise SystemExit(0)
        if option == "--":
            break
        if option.startswith("-m") and not option.startswith("--"):
            name = option[2:] or (words.pop(0) if words else _fail("-m needs the name of a module"))
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                _fail(f"found no module {name!r}")
            return policy, budget, ["-m", name, *words]
        if option not in ("--policy", "--memory-budget"):
            _fail(f"unknown option {option!r}; see --help")
        if not value:
            value = words.pop(0) if words else _fail(f"{option} needs a value")
        if option == "--policy":
            if value not in _POLICIES:
                _fail(f"--policy must be one of {', '.join(_POLICIES)}; it is {value!r}")
            policy = value
        else:
            if not value.isdecimal():
                _fail(f"--memory-budget must be a number of bytes; it is {value!r}")
            budget = int(value)
    if not words:
        _fail("no program; see --help")
    return policy, budget, [_find_program(words[0]), *words[1:]]


def main() -> NoReturn:
    options = _interpreter_options(sys.orig_argv)
    policy, budget, program = _parse(sys.argv[1:])
    if importlib.util.find_spec("torch") is None:
        _fail(f"PyTorch is not installed for {sys.executable}")
    if sys.flags.ignore_environment or sys.flags.no_site:
        _fail("the options -E, -I and -S of Python are not possible, because processes learn from PYTHONPATH")
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one not in ("", folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *others])
    handle, counts = tempfile.mkstemp(prefix="convolume-torch-")
    os.close(handle)
    # sitecustomize.py in that folder reads it, here and in all children.
    os.environ["CONVOLUME_TORCH"] = f"{policy}:{'' if budget is None else budget}:{os.getpid()}:{counts}"
    # The program gets a fresh interpreter in this process, so everything is as without us.
    os.execv(sys.executable, [sys.executable, *options, *program])


if __name__ == "__main__":
    main()
