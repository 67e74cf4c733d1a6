#!/usr/bin/env python3
"""Trains the recipes of the zoo to their end and prints their scores, and measures what patches cost.

  bench/net/recipes.py [--build build/native] [--only hippocampus,isbi2012,patches,streaming] [--seeds 1]
                       [--out FOLDER] [--json FILE]

hippocampus, isbi2012: the scores of the best checkpoint, and the minutes, with 2 threads. --seeds 1,2,3 trains each three
times. patches: seconds of an iteration with every augmentation over those without, in turn. streaming: the same for a
training volume of 8 GiB that is read from a Zarr with --memory 1G, over a volume in memory. Both also print the share of
the time in which iterations wait for patches.
CONVOLUME_DATA_DIR names the folder with the volumes. Nothing else should run on the machine.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = {"hippocampus": ("hippocampus", "hippocampus"), "isbi2012": ("unet_anisotropic", "isbi2012")}
EVERY_AUGMENTATION = """
rotate = { probability = 1, degrees = [0, 0, 180] }
scale = { probability = 1, range = [0.8, 1.25] }
elastic = { probability = 1, grid = [4, 16, 16], sigma = 2 }
brightness = { probability = 1, range = [-0.2, 0.2] }
contrast = { probability = 1, range = [0.75, 1.25] }
gamma = { probability = 1, range = [0.7, 1.5] }
noise = { probability = 1, sigma = [0, 0.1] }
low_resolution = { probability = 1, factor = [1.5, 3] }
blur = { probability = 1, sigma = [0.5, 1] }
missing_section = { probability = 1 }
misalign = { probability = 1, pixels = 8 }
blurred_section = { probability = 1, sigma = [1, 2] }
cut_out = { probability = 1, extent = [2, 16, 16] }
"""


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def machine():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "cpu family")):
            yield line.split(":")[1].strip()
        if line.startswith("model name"):
            return


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def train(options, out, net, data, *more):
    text = run(options.build / "tools/convolume", "train", net, "--data", data, "--out", out, "--threads", 2, "--quiet",
               *more)
    lines = metrics(out)
    waited = re.search(r"waited ([0-9.]+) s", text)
    return lines, float(waited.group(1)) if waited else 0.0


def recipe(options, name, folder):
    net, data = RECIPES[name]
    rows = []
    for seed in options.seeds:
        out = folder / f"{name}-{seed}"
        lines, _ = train(options, out, ROOT / f"nets/zoo/{net}.toml", ROOT / f"nets/zoo/data/{data}.toml", "--seed", seed)
        validated = [line for line in lines if "dice" in line]
        score = "dice" if name == "hippocampus" else "roc_auc"
        best = max(validated, key=lambda line: line[score])
        shown = {key: best[key] for key in best if key not in ("seconds", "loss")}
        shown.update(seed=seed, iterations=lines[-1]["iteration"], minutes=round(lines[-1]["seconds"] / 60, 2),
                     last={key: lines[-1][key] for key in shown if key != "iteration" and key in lines[-1]})
        print(f"{name}, seed {seed}: {shown['iterations']} iterations in {shown['minutes']} minutes; best at "
              f"{best['iteration']}: " + ", ".join(f"{k} {best[k]:.4f}" for k in best if k not in
                                                   ("iteration", "seconds", "loss")), flush=True)
        rows.append(shown)
    return rows


def seconds_per_iteration(lines, skip=5, window=15):
    """The median over windows of some iterations, because the log has milliseconds."""
    times = [line["seconds"] for line in lines][skip:]
    return statistics.median((b - a) / window for a, b in zip(times[::window], times[window::window]))


def compare(options, folder, name, net, first, second, rounds, iterations):
    """Trains on two data sets in turn. Prints and returns seconds of `second` over those of `first`."""
    ratios, shares = [], []
    for turn in range(rounds):
        seconds = []
        for i, (data, more) in enumerate((first, second)):
            lines, waited = train(options, folder / f"{name}-{turn}-{i}", net, data, "--iterations", iterations, "--set",
                                  "training.validate_every=100000", "--set", "training.checkpoint_every=100000", "--set",
                                  'training.best=""', *more)
            seconds.append(seconds_per_iteration(lines))
            if i == 1:
                shares.append(waited / lines[-1]["seconds"])
        ratios.append(seconds[1] / seconds[0])
        print(f"{name}, round {turn + 1}: {1e3 * seconds[0]:.1f} ms and {1e3 * seconds[1]:.1f} ms, ratio {ratios[-1]:.3f}, "
              f"waited {100 * shares[-1]:.2f} %", flush=True)
    print(f"{name}: ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}), waited "
          f"{100 * statistics.median(shares):.2f} %")
    return {"ratios": ratios, "waited": shares}


def without_validation(text):
    """The data set without its [[validation]] tables."""
    return re.sub(r"\[\[validation\]\]\n(?:[^\[\n].*\n|\n)*", "", text)


def patches(options, folder):
    text = without_validation((ROOT / "nets/zoo/data/isbi2012.toml").read_text())
    plain, every = folder / "plain.toml", folder / "every.toml"
    plain.write_text(text[:text.index("[augment]")])
    every.write_text(text[:text.index("[augment]")] + "[augment]\nflip = [\"z\", \"y\", \"x\"]\nrotate90 = true\n" +
                     EVERY_AUGMENTATION)
    return compare(options, folder, "patches", ROOT / "nets/zoo/unet_anisotropic.toml", (plain, ()), (every, ()),
                   options.rounds, 200)


def write_zarr(path, planes, side):
    """Writes random bytes in chunks of 64 cubed, the same ones again and again."""
    path.mkdir()
    (path / ".zarray").write_text(json.dumps({
        "zarr_format": 2, "shape": [planes, side, side], "chunks": [64, 64, 64], "dtype": "|u1", "compressor": None,
        "fill_value": 0, "order": "C", "filters": None}))
    some = [os.urandom(64 ** 3) for _ in range(16)]
    if "label" in path.name:
        some = [bytes(b & 1 for b in chunk) for chunk in some]
    i = 0
    for z in range(planes // 64):
        for y in range(side // 64):
            for x in range(side // 64):
                (path / f"{z}.{y}.{x}").write_bytes(some[i % 16])
                i += 1


def streaming(options, folder):
    planes, side = 1024, 2048  # 4 GiB of image and 4 GiB of label
    for kind in ("image", "label"):
        write_zarr(folder / f"{kind}.zarr", planes, side)
    large, small = folder / "large.toml", folder / "small.toml"
    body = ('name = "{}"\n[[train]]\nimage = "image.zarr"\nlabel = "label.zarr"\n{}\n[label]\npositive = [1]\n')
    large.write_text(body.format("large", ""))
    small.write_text(body.format("small", "slices = [0, 64]"))
    return compare(options, folder, "streaming", ROOT / "nets/zoo/unet_anisotropic.toml", (small, ()),
                   (large, ("--memory", "1G")), options.rounds, 200)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/native")
    parser.add_argument("--only", default="hippocampus,isbi2012,patches,streaming")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = {"machine": list(machine())}
        for name in options.only.split(","):
            report[name] = {"patches": patches, "streaming": streaming}[name](options, folder) if name not in RECIPES \
                else recipe(options, name, folder)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
