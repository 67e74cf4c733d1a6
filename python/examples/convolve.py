"""Convolves a volume, computes the gradients, and compares the spectra of both."""
import numpy as np

import convolume

rng = np.random.default_rng(1)
x = rng.standard_normal((1, 16, 48, 48, 48), dtype="float32")
w = rng.standard_normal((32, 16, 3, 3, 3), dtype="float32")
bias = np.zeros(32, "float32")

y = convolume.conv3d(x, w, bias, padding="same", activation="relu")

plan = convolume.ConvPlan(x.shape, w.shape, padding="same", bias=True, activation="relu")
y = plan.forward(x, w, bias)
dx, dw, dbias = plan.backward(x, np.ones_like(y), w, y=y, want=("dx", "dw", "dbias"))
assert dx is not None and dw is not None and dbias is not None
print(plan.engine, y.shape, dx.shape, dw.shape, dbias.shape)

spectrum = convolume.fft.rfftn(y, axes=(-3, -2, -1), workers=2)
print(spectrum.shape, np.abs(convolume.fft.irfftn(spectrum, s=y.shape[-3:], axes=(-3, -2, -1)) - y).max() < 1e-3)
