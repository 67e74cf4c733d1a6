"""Runs a Python program with accelerated() on, in it and in the processes that it starts."""
from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import NoReturn

_POLICIES = ("fastest", "tuned", "always")
_USAGE = """python -m convolume.torch [--policy P] [--memory-budget BYTES] PROGRAM ARGS...
       python -m convolume.torch [--policy P] [--memory-budget BYTES] -m MODULE ARGS..."""
_EPILOG = """The program runs as Python would run it. When it ends, one line on stderr says how many convolutions the
package computed."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m convolume.torch", _USAGE, __doc__, _EPILOG, allow_abbrev=False)
    parser.add_argument("--policy", metavar="P", choices=_POLICIES, default=_POLICIES[0],
                        help="which convolutions the package computes: fastest (default), tuned or always")
    parser.add_argument("--memory-budget", metavar="BYTES", type=_number, default=0,
                        help="limits the spectra that a call keeps from forward to backward (default: 0, none)")
    parser.add_argument("-m", metavar="MODULE", dest="module", nargs=argparse.REMAINDER, help="runs a module")
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER,
                        help="a Python file, or a console script beside the interpreter or in PATH")
    return parser


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes")
    return int(text)


def _interpreter_options(words: Sequence[str], arguments: int) -> list[str]:
    """Returns the options of the interpreter: the words of its command line before `-m convolume.torch` and this number
    of arguments."""
    options = list(words[1:len(words) - arguments])
    last = options.pop() if options else ""
    if options and not last.startswith("-"):
        last = options.pop() + last
    # -m may stand behind other letters, and its argument in the same word.
    letters = re.fullmatch(r"(-\w*?)mconvolume\.torch(\.__main__)?", last)
    if letters is None:  # it was not started by -m
        return []
    return options if letters[1] == "-" else [*options, letters[1]]


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


def _find_program(name: str, parser: argparse.ArgumentParser) -> str:
    """Returns the path of a program, or ends the process with status 2."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    try:
        if os.path.exists(name) and ("/" in name or _is_python(name)):
            found: str | None = name
        else:
            found = beside if "/" not in name and os.path.isfile(beside) else shutil.which(name)
        if found is None:
            parser.error(f"found no program {name!r}: neither a file, nor beside {sys.executable}, nor in PATH")
        if not _is_python(found):
            parser.error(f"{found} is not a Python program")
    except OSError as error:
        parser.error(f"cannot read {error.filename}: {error.strerror}")
    return found


def _what_to_run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """Returns the arguments of the interpreter, or ends the process with status 2."""
    if arguments.module is None:
        words = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
        if not words:
            parser.error("no program")
        return [_find_program(words[0], parser), *words[1:]]
    words = [*arguments.module, *arguments.program]
    if not words or not words[0]:
        parser.error("-m needs the name of a module")
    if importlib.util.find_spec(words[0].partition(".")[0]) is None:
        parser.error(f"found no module {words[0]!r}")
    return ["-m", *words]


def main() -> NoReturn:
    parser = _parser()
    arguments = parser.parse_args()
    program = _what_to_run(arguments, parser)
    if importlib.util.find_spec("torch") is None:
        parser.error(f"PyTorch is not installed for {sys.executable}")
    if sys.flags.ignore_environment or sys.flags.no_site:
        parser.error("Python's options -E, -I and -S are not possible, because processes learn from PYTHONPATH")
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one not in ("", folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *others])
    handle, counts = tempfile.mkstemp(prefix="convolume-torch-")
    os.close(handle)
    # sitecustomize.py in that folder reads it, here and in all children.
    os.environ["CONVOLUME_TORCH"] = f"{arguments.policy}:{arguments.memory_budget}:{os.getpid()}:{counts}"
    # The program gets a fresh interpreter in this process, so everything is as without us.
    os.execv(sys.executable, [sys.executable, *_interpreter_options(sys.orig_argv, len(sys.argv) - 1), *program])


if __name__ == "__main__":
    main()
