"""Switches accelerated() on when the program imports PyTorch. Python imports this file when it starts.

`python -m convolume.torch` puts this folder in front of PYTHONPATH, so that it also counts for the processes that a
program starts. The variable CONVOLUME_TORCH has the policy, the budget, the number of the first process, and a file.
Processes count their calls in this file. The first one prints the sum when it ends, and removes the file.
"""
from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_RECORD = "QQd"  # calls that were ours, calls that were left to PyTorch, seconds


class _Loader:
    """Loads PyTorch as its own loader does, and then calls a function."""

    def __init__(self, loader: Any, then: Any) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()


class _Finder:
    """Waits for the import of PyTorch, so that processes without it lose no time."""

    def __init__(self, then: Any) -> None:
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._loaded)  # type: ignore[assignment]
                return spec
        return None

    def _loaded(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()


def _new_record(path: str) -> Any:
    """Appends a record to a file, and returns a function that writes into it."""
    import functools
    import mmap
    import struct
    size = struct.calcsize(_RECORD)
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError:  # the first process has ended
        return lambda *_: None
    try:
        os.write(file, bytes(size))
        end = os.lseek(file, 0, os.SEEK_CUR)
        memory = mmap.mmap(file, end)
    finally:
        os.close(file)
    return functools.partial(struct.pack_into, _RECORD, memory, end - size)


def _print_sum(process: int, path: str) -> None:
    if os.getpid() != process:  # a child of fork() that ends by exit()
        return
    import struct
    try:
        with open(path, "rb") as file:
            records = list(struct.iter_unpack(_RECORD, file.read()))
        os.unlink(path)
    except OSError:
        return
    ours, others, seconds = (sum(column) for column in zip((0, 0, 0.0), *records))
    processes = f" ({len(records)} processes)" if len(records) > 1 else ""
    try:
        print(f"convolume.torch: {ours} convolutions in {seconds:.3f} s; {others} left to PyTorch{processes}",
              file=sys.stderr)
    except (OSError, ValueError, AttributeError):  # stderr is closed
        pass


def _switch_on(policy: str, budget: str, counts: str) -> None:
    # The same package as in the first process, wherever it is.
    parent = os.path.dirname(os.path.dirname(os.path.dirname(_FOLDER)))
    sys.path.insert(0, parent)
    try:
        from convolume.torch import _accelerated, _calls
    except Exception as error:  # noqa: BLE001  (the program has to run all the same)
        print(f"convolume.torch: PyTorch computes all convolutions of process {os.getpid()}: {error}", file=sys.stderr)
        return
    finally:
        sys.path.remove(parent)

    class Recorded(_calls.Calls):
        """Writes the numbers to a record of this process, so that they survive any end of it."""

        _record: Any = None

        def _add(self, ours: int, others: int, seconds: float) -> None:
            super()._add(ours, others, seconds)
            if self._record is None:
                self._record = _new_record(counts)
            self._record(self._ours, self._others, self._seconds)

        def _renew(self) -> None:
            super()._renew()
            self._record = None

    _accelerated.start(Recorded(), policy, int(budget))


def _load_next() -> None:
    """Loads the sitecustomize.py that Python would have imported without this one."""
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or ".") != _FOLDER]
    importlib.invalidate_caches()
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        # The module `site` then goes on as if there was none.
        raise ImportError("there is no other sitecustomize", name="sitecustomize")
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _main() -> None:
    words = os.environ.get("CONVOLUME_TORCH", "").split(":", 3)
    if len(words) == 4:
        policy, budget, process, counts = words
        sys.meta_path.insert(0, _Finder(lambda: _switch_on(policy, budget, counts)))
        if process == str(os.getpid()):
            atexit.register(_print_sum, os.getpid(), counts)


_main()
_load_next()
