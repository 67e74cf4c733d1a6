"""Counts the convolutions of a process, and their seconds, while accelerated() is on."""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

# A signal handler may convolve while its thread counts, so the lock is one that a thread may take twice.
lock = threading.RLock()
_counting: tuple[Calls, ...] = ()


class Calls:
    """The convolutions of this process since accelerated() began. str() is one line. Threads may share it.

    A forked child counts from 0.
    """

    def __init__(self) -> None:
        self._ours = self._others = 0
        self._seconds = 0.0

    @property
    def ours(self) -> int:
        """Calls that the package computed."""
        return self._ours

    @property
    def others(self) -> int:
        """Calls that were left to PyTorch."""
        return self._others

    @property
    def seconds(self) -> float:
        """Seconds that the package computed, forward and backward. Those of several threads are added."""
        return self._seconds

    def __str__(self) -> str:
        return f"convolume.torch: {self.ours} convolutions in {self.seconds:.3f} s; {self.others} left to PyTorch"

    def _add(self, ours: int, others: int, seconds: float) -> None:
        self._ours += ours
        self._others += others
        self._seconds += seconds

    def _renew(self) -> None:
        self._ours = self._others = 0
        self._seconds = 0.0


def begin(calls: Calls) -> None:
    global _counting
    with lock:
        _counting += (calls,)


def end(calls: Calls) -> None:
    global _counting
    with lock:
        _counting = tuple(one for one in _counting if one is not calls)


def _add(ours: int, others: int, seconds: float) -> None:
    with lock:
        for calls in _counting:
            calls._add(ours, others, seconds)  # noqa: SLF001


def left() -> None:
    """Counts a call that is left to PyTorch."""
    if _counting:
        _add(0, 1, 0.0)


def timed(ours: int, compute: Callable[..., _T], *arguments: object) -> _T:
    """Calls `compute`, and counts its seconds and this number of calls unless it raises."""
    if not _counting:
        return compute(*arguments)
    start = time.perf_counter()
    result = compute(*arguments)
    _add(ours, 0, time.perf_counter() - start)
    return result


def _renew() -> None:
    for calls in _counting:
        calls._renew()  # noqa: SLF001
    lock.release()


os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=_renew)
