"""Threads, memory and counters of the package."""
import contextlib
import os
from collections.abc import Iterator

from . import _convolution, _core, _kept


# A child of fork() has no other threads, so nobody computes there.
os.register_at_fork(after_in_child=_core.forget_computations)


def set_threads(number: int) -> None:
    """Sets the threads of calls that name none. 0 means one per physical core, which is the default."""
    _core.set_threads(number)


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    """Sets the threads of calls that this thread of Python makes in a `with` block."""
    before = _core.exchange_thread_local(number)
    try:
        yield
    finally:
        _core.exchange_thread_local(before)


def statistics() -> dict[str, int]:
    """Returns what the package has counted since it was imported.

    `calls` of the library, `team_calls` that had the threads of another package (PyTorch), `plans` that were made,
    `plans_kept` for conv3d(), `plan_hits` of calls that found theirs, `copies` of arrays whose rows were not
    contiguous and their `copied_bytes`, and bytes of results and scratch: `live_bytes`, `peak_bytes` and `held_bytes`.
    """
    return {**_core.statistics(), "plans_kept": _convolution.plans_kept(),
            "plan_hits": _kept.hits()}


def trim() -> int:
    """Gives free pages back to the system. Returns their bytes."""
    return _core.trim()


def show() -> None:
    """Prints version, processor, SIMD target, machine row, threads and libraries, for reports of problems."""
    print(f"convolume {_core.version()}")
    print(f"processor    {_core.cpu_name()}")
    print(f"SIMD target  {_core.simd_target()} of {', '.join(_core.available_simd_targets())}")
    print(f"machine row  {_core.machine_row()}")
    print(f"threads      {_core.threads()}, {_core.tasking_version()}")
