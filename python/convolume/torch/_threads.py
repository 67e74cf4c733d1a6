# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""The helper threads of computations: those that PyTorch uses itself."""
import ctypes

import torch

from .. import _core


def use_team_of_pytorch() -> bool:
    """Lets plans compute in the OpenMP threads of PyTorch. Returns False if it has none: threads of TBB then help.

    After a parallel region these threads wait actively for some milliseconds. Other threads would share processors
    with them.
    """
    try:
        # A symbol of a library is looked up in the libraries that it needs too, whatever their names are.
        library = ctypes.CDLL(torch._C.__file__)  # noqa: SLF001
        functions = [library.GOMP_parallel, library.omp_get_thread_num]
    except (OSError, AttributeError):
        return False
    parallel, thread_number = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)
    _core.use_openmp(parallel, thread_number)
    return bool(parallel and thread_number)


def use_own_threads() -> None:
    """Undoes use_team_of_pytorch()."""
    _core.use_openmp(0, 0)
