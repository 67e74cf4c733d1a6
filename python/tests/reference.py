"""Convolutions by loops in double precision, written from their definitions."""
import itertools

import numpy as np


def conv3d(x, w, bias=None, stride=(1, 1, 1), padding=((0, 0), (0, 0), (0, 0)), dilation=(1, 1, 1), groups=1):
    x, w = np.asarray(x, "f8"), np.asarray(w, "f8")
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    kernel = w.shape[2:]
    extent = [(padded.shape[2 + a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(3)]
    outputs, inputs = w.shape[0] // groups, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *extent))
    for tap in itertools.product(*(range(k) for k in kernel)):
        first = [dilation[a] * tap[a] for a in range(3)]
        window = padded[(slice(None), slice(None),
                         *(slice(f, f + (extent[a] - 1) * stride[a] + 1, stride[a]) for a, f in enumerate(first)))]
        for g in range(groups):
            part = w[(slice(g * outputs, (g + 1) * outputs), slice(None), *tap)]
            y[:, g * outputs:(g + 1) * outputs] += np.einsum("oc,nczyx->nozyx", part,
                                                             window[:, g * inputs:(g + 1) * inputs])
    return y if bias is None else y + np.asarray(bias, "f8")[:, None, None, None]


def relative_error(found, wanted):
    return float(np.linalg.norm(found - wanted)) / (float(np.linalg.norm(wanted)) + 1e-300)  # as doubles
