"""convolume.fft as a backend of scipy.fft: the protocol of uarray, which SciPy uses."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_WORKERS_AT = 5  # of the positional arguments of every transform of scipy.fft


def _ours(x: Any) -> bool:
    """Returns whether the package transforms such an input. Arrays of other libraries and longdouble are SciPy's."""
    if not isinstance(x, np.ndarray):
        if hasattr(x, "__array_namespace__"):
            return False
        try:
            x = np.asarray(x)
        except ValueError:
            return False
    kind = x.dtype.kind
    return kind in "biu" or kind in "fc" and x.dtype.itemsize <= (8 if kind == "f" else 16)


def call(functions: Mapping[str, Callable[..., Any]], method: Callable[..., Any], arguments: tuple[Any, ...],
         options: dict[str, Any]) -> Any:
    """Returns what one of the functions returns, or NotImplemented if SciPy has to compute it.

    If a call names no workers, it has those of scipy.fft.set_workers(), as in SciPy.
    """
    function = functions.get(method.__name__)
    if function is None or not _ours(arguments[0] if arguments else options.get("x")):
        return NotImplemented
    from scipy.fft import get_workers  # type: ignore[import-untyped]  # loaded, because SciPy calls this
    if len(arguments) <= _WORKERS_AT:
        if options.get("workers") is None:
            options = {**options, "workers": get_workers()}
    elif arguments[_WORKERS_AT] is None:
        arguments = (*arguments[:_WORKERS_AT], get_workers(), *arguments[_WORKERS_AT + 1:])
    return function(*arguments, **options)
