"""Smooths a volume by multiplying its spectrum, with the names of scipy.fft."""
import numpy as np

from convolume import fft

volume = np.random.default_rng(1).standard_normal((60, 100, 97), dtype="float32")  # any lengths, primes too
spectrum = fft.rfftn(volume, workers=2)
z, y, x = (np.fft.fftfreq(n) for n in volume.shape)
squares = z[:, None, None] ** 2 + y[:, None] ** 2 + x[: spectrum.shape[2]] ** 2
smooth = fft.irfftn(spectrum * np.exp(-40 * squares).astype("float32"), s=volume.shape, workers=2)
print(smooth.dtype, smooth.std() < 0.2 * volume.std())
