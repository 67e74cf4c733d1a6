#!/usr/bin/env python3
"""Draws the results of `bench_fft --side-by-side --json FILE`.

    bench/fft/plot_fft.py FILE... --out PREFIX

Writes PREFIX.svg and PREFIX.png. They show the ratio of FFTW's time to ours over N, the times themselves, and, if both
orders were measured, the ratio of natural to rotated order. These are figures 9 to 12 of Feinberg, "Performance
Optimization for CNNs on Modern Intel CPUs" (2015): a ratio over N with its mean and the line of ratio 1, a line fitted
through the primes, and times over N.

Needs matplotlib. On Debian: apt-get install python3-matplotlib
"""
import argparse
import json
import math
import sys
from pathlib import Path

try:
    import matplotlib
except ImportError:
    sys.exit(
        f"plot_fft.py: matplotlib is missing for {sys.executable}. On Debian: apt-get install python3-matplotlib, "
        "then run this script with /usr/bin/python3"
    )
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402, a backend without a display must be selected first


def largest_prime_factor(n):
    largest, p = 1, 2
    while p * p <= n:
        while n % p == 0:
            largest, n = p, n // p
        p += 1
    return max(largest, n)


def size_class(n):
    """Returns the size class of bench_fft: smooth, prime, or other."""
    if largest_prime_factor(n) <= 13:
        return "smooth"
    return "prime" if largest_prime_factor(n) == n else "other"


MARKERS = {"smooth": "o", "prime": "^", "other": "."}


def load(files):
    """Returns {name of a series: rows in ascending N}. The names contain the file if there are several."""
    series = {}
    for file in files:
        try:
            rows = json.loads(Path(file).read_text())["results"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            sys.exit(f"plot_fft.py: {file}: not a report of bench_fft --side-by-side ({error})")
        for row in rows:
            prefix = f"{Path(file).stem}: " if len(files) > 1 else ""
            name = f"{prefix}{row['kind']} {row['order']} {row['precision']}"
            series.setdefault(name, []).append(row)
    if not series:
        sys.exit("plot_fft.py: the reports contain no results")
    return {name: sorted(rows, key=lambda row: row["n"]) for name, rows in series.items()}


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def fit_line(points):
    """Returns slope, intercept and R^2 of a least-squares fit."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    slope = xy / xx
    return slope, mean_y - slope * mean_x, xy * xy / (xx * yy) if yy > 0 else 1.0


def scatter(axes, points, color):
    """Draws points (N, value, low, high)."""
    for name, marker in MARKERS.items():
        chosen = [point for point in points if size_class(point[0]) == name]
        if not chosen:
            continue
        n, value, low, high = zip(*chosen)
        axes.vlines(n, low, high, color=color, alpha=0.35, linewidth=1)
        axes.scatter(n, value, marker=marker, s=14 if name == "other" else 22, color=color, zorder=3)


def finish_ratio(axes, label):
    axes.axhline(1, color="tab:blue", linewidth=1)
    for name, marker in MARKERS.items():
        text = {"smooth": "prime factors up to 13", "prime": "prime, 17 or more", "other": "others"}[name]
        axes.scatter([], [], marker=marker, s=22, color="black", label=text)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def draw_ratios(axes, series, colors):
    for name, rows in series.items():
        scatter(axes, [(r["n"], r["ratio"], r["ratio_low"], r["ratio_high"]) for r in rows], colors[name])
        mean = geometric_mean([row["ratio"] for row in rows])
        axes.axhline(mean, color=colors[name], linestyle="--", linewidth=1, label=f"{name}: geometric mean {mean:.2f}")
        primes = [(row["n"], row["ratio"]) for row in rows if size_class(row["n"]) == "prime"]
        if len(primes) > 2:
            slope, intercept, r2 = fit_line(primes)
            ends = [primes[0][0], primes[-1][0]]
            axes.plot(ends, [intercept + slope * n for n in ends], color=colors[name], linestyle=":", linewidth=1,
                      label=f"primes: {intercept:.2f} + {slope:.4f} N, $R^2$ = {r2:.2f}")
    finish_ratio(axes, "FFTW's time / ours")


def draw_times(axes, series, colors):
    for name, rows in series.items():
        n = [row["n"] for row in rows]
        axes.plot(n, [row["native_s"] for row in rows], color=colors[name], linewidth=1, label=name)
        axes.plot(n, [row["fftw_s"] for row in rows], color=colors[name], linewidth=1, linestyle=":",
                  label=f"{name}, FFTW")
    axes.set_yscale("log")
    axes.set_ylabel("seconds")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def order_pairs(series):
    """Returns {series name without the order: (N, natural / rotated) points}."""
    pairs = {}
    for name, rows in series.items():
        if " rotated " not in name:
            continue
        natural = {row["n"]: row for row in series.get(name.replace(" rotated ", " natural "), [])}
        points = [(r["n"], natural[r["n"]]["native_s"] / r["native_s"]) for r in rows if r["n"] in natural]
        if points:
            pairs[name] = points
    return pairs


def draw_orders(axes, pairs, colors):
    for name, points in pairs.items():
        scatter(axes, [(n, ratio, ratio, ratio) for n, ratio in points], colors[name])
        mean = geometric_mean([ratio for _, ratio in points])
        axes.axhline(mean, color="tab:red" if len(pairs) == 1 else colors[name], linestyle="--", linewidth=1,
                     label=f"{name.replace(' rotated ', ' ')}: geometric mean {mean:.3f}")
    finish_ratio(axes, "natural / rotated order")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="reports of bench_fft --side-by-side --json")
    parser.add_argument("--out", required=True, metavar="PREFIX", help="pictures are PREFIX.svg and PREFIX.png")
    arguments = parser.parse_args()

    series = load(arguments.files)
    palette = plt.get_cmap("tab10")
    colors = {name: palette(i % 10) for i, name in enumerate(series)}
    pairs = order_pairs(series)
    figure, axes = plt.subplots(3 if pairs else 2, 1, figsize=(9, 12 if pairs else 8.5), sharex=True)
    draw_ratios(axes[0], series, colors)
    draw_times(axes[1], series, colors)
    if pairs:
        draw_orders(axes[2], pairs, colors)
    axes[0].set_title("Transforms of cubes, one thread")
    axes[-1].set_xlabel("N")
    figure.tight_layout()
    for suffix in ("svg", "png"):
        figure.savefig(f"{arguments.out}.{suffix}", dpi=150)
        print(f"wrote {arguments.out}.{suffix}")


if __name__ == "__main__":
    main()
