"""What is kept for later calls: plans, by the arguments of the call."""
from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")
_all: weakref.WeakSet[Kept[Any]] = weakref.WeakSet()


class Kept(Generic[_T]):
    """At most 256 values by key. The one that was not used for the longest time goes first. Thread-safe."""

    MOST = 256

    def __init__(self, plans: bool = False) -> None:
        """`plans` says that hits() counts this table."""
        self._values: dict[Hashable, _T] = {}
        self.of_plans = plans
        self.hits = 0  # calls that found a value
        self._lock = threading.RLock()  # a destructor or a signal handler may call the package meanwhile
        _all.add(self)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> _T | None:
        """Returns a value, or None. Raises TypeError if the key cannot be one."""
        found = self._values.get(key)
        if found is not None:
            with self._lock:
                self.hits += 1
                if self._values.pop(key, None) is not None:
                    self._values[key] = found  # a dict has its keys in the order in which they came
        return found

    def hit(self) -> None:
        """Counts a call that has found its value without get()."""
        with self._lock:
            self.hits += 1

    def add(self, key: Hashable, value: _T) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > self.MOST:
                del self._values[next(iter(self._values))]

    def renew_lock(self) -> None:
        self._lock = threading.RLock()


def hits() -> int:
    """Returns the calls that found their plan."""
    return sum(kept.hits for kept in list(_all) if kept.of_plans)


def _renew_locks() -> None:
    for kept in _all:
        kept.renew_lock()


# Another thread of the parent may have held a lock. A child of fork() does not have that thread.
os.register_at_fork(after_in_child=_renew_locks)
