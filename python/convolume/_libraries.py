"""The shared libraries of the process. The first file of a name wins, so another package may have brought an older one."""
from __future__ import annotations

import ctypes
import os

from ._built import TBB_VERSION

_TBB = "libtbb.so.12"


def _loaded(name: str) -> str | None:
    """Returns the file of a library that this process has loaded."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if os.path.basename(path) == name:
                    return "/" + path
    except OSError:
        pass
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(one) for one in version.split(".") if one.isdigit())


def uses_tbb_of_the_system() -> bool:
    """Returns whether the package uses a file of oneTBB that others may use too. A wheel has its own, renamed."""
    package = os.path.dirname(os.path.abspath(__file__))
    return not os.path.isdir(package + ".libs")


def require_tbb() -> None:
    """Raises ImportError if an older oneTBB is loaded than the one that the package was built with."""
    file = _loaded(_TBB) if uses_tbb_of_the_system() else None
    if file is None:
        return
    version = ctypes.CDLL(file).TBB_runtime_version
    version.restype = ctypes.c_char_p
    found = version().decode()
    if _numbers(found) < _numbers(TBB_VERSION):
        raise ImportError(f"{file}: oneTBB {found} is loaded already, and convolume was built with {TBB_VERSION}; import "
                          "convolume first, or update the package that brought this file")
