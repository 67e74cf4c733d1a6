"""3-D convolutions that are fast on CPUs.

Arrays are those of NumPy, float32 or float64. Volumes have the axes (N, C, Z, Y, X), or (C, Z, Y, X) without a batch.

>>> import numpy, convolume
>>> x = numpy.zeros((1, 16, 32, 32, 32), "float32")
>>> w = numpy.zeros((16, 16, 3, 3, 3), "float32")
>>> convolume.conv3d(x, w, padding=1).shape
(1, 16, 32, 32, 32)
"""
from . import _libraries

_libraries.require_tbb()

from . import fft  # noqa: E402
from ._convolution import ConvPlan, Gradients, conv3d, conv_transpose3d
from ._core import (ConfigError, Error, FormatError, InvalidArgument, IoError, MemoryBudgetExceeded, NumericalError,
                    OverflowError, PreparedWeights, ShapeMismatch, Spectra, StaleCache, Unsupported, version)
from ._core import BestCheckpoint, Scores, TrainProgress, TrainResult
from ._nets import Predictor, convert, describe, evaluate, infer, train
from ._runtime import set_threads, show, statistics, threads, trim

__version__ = version()

__all__ = ["BestCheckpoint", "ConfigError", "ConvPlan", "Error", "FormatError", "Gradients", "InvalidArgument", "IoError",
           "MemoryBudgetExceeded", "NumericalError", "OverflowError", "Predictor", "PreparedWeights", "Scores",
           "ShapeMismatch", "Spectra", "StaleCache", "TrainProgress", "TrainResult", "Unsupported", "__version__", "conv3d",
           "conv_transpose3d", "convert", "describe", "evaluate", "fft", "infer", "set_threads", "show", "statistics",
           "threads", "train", "trim"]
