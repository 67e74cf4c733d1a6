#!/usr/bin/env python3
"""Times a sliding window in PyTorch over a TIFF stack: overlapping patches, Gaussian weights, their weighted mean.

The net is that of a description from bench_net --describe. Patches and overlap are those that convolume infer takes by
default for nets with padding.
"""
import argparse
import json
import time

from environment import check

check("torch", "numpy", "tifffile")
import numpy  # noqa: E402
import tifffile  # noqa: E402
import torch  # noqa: E402

import torch_model  # noqa: E402


def starts(extent, patch, overlap):
    step = patch - overlap
    last = max(0, extent - patch)
    return sorted({*range(0, last, step), last})


def gaussian(patch):
    weight = torch.ones(1)
    for n in patch:
        i = (torch.arange(n) - (n - 1) / 2) / (n / 8)
        weight = weight[..., None] * torch.exp(-i * i / 2).clamp_min(1e-3)
    return weight[0]


def window(net, volume, patch, overlap, batch):
    """Returns the weighted mean of the net's probabilities."""
    patch = [min(p, n) for p, n in zip(patch, volume.shape)]
    weight = gaussian(patch)
    total, weights = torch.zeros(volume.shape), torch.zeros(volume.shape)
    places = [(z, y, x) for z in starts(volume.shape[0], patch[0], overlap[0])
              for y in starts(volume.shape[1], patch[1], overlap[1])
              for x in starts(volume.shape[2], patch[2], overlap[2])]
    for first in range(0, len(places), batch):
        boxes = [tuple(slice(b, b + n) for b, n in zip(place, patch)) for place in places[first:first + batch]]
        result = torch.sigmoid(net.forward(torch.stack([volume[box] for box in boxes])[:, None]))
        for box, one in zip(boxes, result):
            total[box] += weight * one[0]
            weights[box] += weight
    return total / weights, len(places)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--net", required=True, metavar="FILE", help="description from bench_net --describe")
    parser.add_argument("--volume", required=True, metavar="FILE", help="TIFF stack")
    parser.add_argument("--overlap", type=int, nargs=3, default=[4, 27, 27])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    with open(options.net, encoding="utf-8") as file:
        description = json.load(file)
    pages = tifffile.imread(options.volume).astype(numpy.float32)
    net = torch_model.Net(description, torch_model.initial_parameters(description), False)
    with torch.inference_mode():
        begin = time.perf_counter()
        volume = torch.from_numpy(pages)
        volume = (volume - volume.mean()) / volume.std()
        _, patches = window(net, volume, description["input"]["patch"], options.overlap, options.batch)
        seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "patches": patches, "version": torch.__version__}))


if __name__ == "__main__":
    main()
