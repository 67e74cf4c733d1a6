"""3-D convolutions that are fast on CPUs.

Arrays are those of NumPy, float32 or float64. Volumes have the axes (N, C, Z, Y, X), or (C, Z, Y, X) without a batch.

>>> import numpy, convolume
>>> x = numpy.zeros((1, 16, 32, 32, 32), "float32")
>>> w = numpy.zeros((16, 16, 3, 3, 3), "float32")
>>> convolume.conv3d(x, w, padding=1).shape
(1, 16, 32, 32, 32)
"""
from . import fft
from ._convolution import ConvPlan, Gradients, conv3d, conv_transpose3d
from ._core import (ConfigError, Error, FormatError, InvalidArgument, IoError, MemoryBudgetExceeded, NumericalError,
                    OverflowError, PreparedWeights, ShapeMismatch, Spectra, StaleCache, Unsupported, version)
from ._runtime import set_threads, show, statistics, threads, trim

__version__ = version()

__all__ = ["ConfigError", "ConvPlan", "Error", "FormatError", "Gradients", "InvalidArgument", "IoError",
           "MemoryBudgetExceeded", "NumericalError", "OverflowError", "PreparedWeights", "ShapeMismatch", "Spectra",
           "StaleCache", "Unsupported", "__version__", "conv3d", "conv_transpose3d", "fft", "set_threads", "show", "statistics",
           "threads", "trim"]
