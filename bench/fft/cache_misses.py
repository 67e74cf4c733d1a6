#!/usr/bin/env python3
"""Counts the cache misses of transforms of cubes in Valgrind's simulator.

    bench/fft/cache_misses.py --bench build/release/bench/bench_fft --out PREFIX [--sizes 32,64,97]

Every transform runs in a separate process, once and three times (bench_fft --once --repeat 1 and 3). Half of the
difference is the cost of one transform, with the caches as the previous transform left them. The costs of process
start and planner cancel out. The competitors are this library's transform (native), FFTW's own three-dimensional plan
(fftw), and this library's volumes with FFTW's lines and planes (algorithm2). The last two are planned with
FFTW_ESTIMATE.

Writes PREFIX.json, PREFIX.md (a table), PREFIX.svg and PREFIX.png. They show the misses of the first and of the last
level per transformed point, and the share of first-level misses that the last level serves, as in figure 13 of
Feinberg, "Performance Optimization for CNNs on Modern Intel CPUs" (2015). The last level represents a core's L2.

The simulator models neither prefetching nor AVX-512. It counts every line that a transform fetches, whether or not the
wait is hidden. All competitors run with AVX2.

Needs Valgrind and matplotlib. On Debian: apt-get install valgrind python3-matplotlib
"""
import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

try:
    import matplotlib
except ImportError:
    sys.exit(
        f"cache_misses.py: matplotlib is missing for {sys.executable}. On Debian: apt-get install python3-matplotlib, "
        "then run this script with /usr/bin/python3"
    )
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402, a backend without a display must be selected first

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
from cachegrind import CachegrindError, count_events  # noqa: E402

IMPLEMENTATIONS = ("native", "fftw", "algorithm2")
REPEATS = (1, 3)


def stop(message):
    sys.exit(f"cache_misses.py: {message}")


def events_of(arguments, implementation, n, repeat):
    """Returns the counts of cachegrind in one process, by the names of the events."""
    command = [
        arguments.bench, "--once", "--impl", implementation, "--sizes", str(n), "--repeat", str(repeat),
        "--kind", arguments.kind, "--order", arguments.order, "--precision", arguments.precision,
    ]  # fmt: skip
    try:
        return count_events(command, arguments.l1, arguments.ll, arguments.simd)
    except CachegrindError as error:
        stop(error)


def measure(arguments, implementation, n):
    few, many = (events_of(arguments, implementation, n, repeat) for repeat in REPEATS)
    executions = REPEATS[1] - REPEATS[0]
    event = {name: (many[name] - few[name]) / executions for name in few}
    points = n**3
    d1 = event["D1mr"] + event["D1mw"]
    ll = event["DLmr"] + event["DLmw"]
    return {
        "n": n,
        "impl": implementation,
        "d1_misses_per_point": d1 / points,
        "ll_misses_per_point": ll / points,
        "ll_hit_ratio": 1 - ll / d1 if d1 > 0 else 1.0,
        "references_per_point": (event["Dr"] + event["Dw"]) / points,
        "instructions_per_point": event["Ir"] / points,
    }


def bytes_per_point(arguments, n):
    """Returns the bytes of input and output, without padding."""
    element = 4 if arguments.precision == "float" else 8
    if arguments.kind in ("c2c", "c2c_backward"):
        return 4 * element
    return element * (1 + 2 * (n // 2 + 1) / n)


def table(arguments, rows):
    """Returns a table in Markdown. The floor is one pass over input and output, in cache lines."""
    by = {(row["n"], row["impl"]): row for row in rows}
    names = [name for name in IMPLEMENTATIONS if any(row["impl"] == name for row in rows)]
    columns = [f"{level} {name}" for level in ("D1", "LL") for name in names] + [f"served {name}" for name in names]
    lines = [
        f"Cache misses per transformed point, {arguments.kind}, {arguments.precision}, {arguments.simd}, order of ours "
        f"{arguments.order}; D1 = {arguments.l1}, LL = {arguments.ll} (bytes, ways, line); served: share of D1 misses "
        "that LL serves; floor: input and output fetched once.",
        "",
        "| N | " + " | ".join(columns) + " | floor |",
        "|--:" * (len(columns) + 2) + "|",
    ]
    line = int(arguments.ll.split(",")[2])
    for n in sorted({row["n"] for row in rows}):
        # Avoid "-0.000" if two runs differ by a line or two.
        cells = [f"{round(by[n, name][key], 3) + 0.0:.3f}" if (n, name) in by else "-"
                 for key in ("d1_misses_per_point", "ll_misses_per_point") for name in names]  # fmt: skip
        cells += [f"{100 * by[n, name]['ll_hit_ratio']:.0f} %" if (n, name) in by else "-" for name in names]
        lines.append(f"| {n} | " + " | ".join(cells) + f" | {bytes_per_point(arguments, n) / line:.3f} |")
    return "\n".join(lines) + "\n"


def draw(arguments, rows):
    figure, axes = plt.subplots(3, 1, figsize=(9, 11), sharex=True)
    panels = (
        ("d1_misses_per_point", "first-level misses per point"),
        ("ll_misses_per_point", "last-level misses per point"),
        ("ll_hit_ratio", "share that the last level serves"),
    )
    markers = {"native": "o", "fftw": "s", "algorithm2": "^"}
    for panel, (key, label) in zip(axes, panels):
        for name in IMPLEMENTATIONS:
            points = sorted((row["n"], row[key]) for row in rows if row["impl"] == name)
            if points:
                panel.plot(*zip(*points), marker=markers[name], markersize=5, linewidth=1, label=name)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    line = int(arguments.ll.split(",")[2])
    sizes = sorted({row["n"] for row in rows})
    axes[1].plot(sizes, [bytes_per_point(arguments, n) / line for n in sizes], color="black", linestyle=":",
                 linewidth=1, label="input and output once")  # fmt: skip
    axes[2].set_ylim(top=1)
    for panel in axes:
        panel.legend(fontsize="small")
    axes[0].set_title(f"Simulated caches ({arguments.l1} and {arguments.ll}), {arguments.kind}, {arguments.precision}")
    axes[-1].set_xlabel("N")
    figure.tight_layout()
    for suffix in ("svg", "png"):
        figure.savefig(f"{arguments.out}.{suffix}", dpi=150)
        print(f"wrote {arguments.out}.{suffix}")
    plt.close(figure)


def write(arguments, rows):
    report = {
        "kind": arguments.kind,
        "order": arguments.order,
        "precision": arguments.precision,
        "simd": arguments.simd,
        "l1": arguments.l1,
        "ll": arguments.ll,
        "results": rows,
    }
    Path(f"{arguments.out}.json").write_text(json.dumps(report, indent=1) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, metavar="FILE", help="the program bench_fft")
    parser.add_argument("--out", required=True, metavar="PREFIX", help="results are PREFIX.json, .md, .svg and .png")
    parser.add_argument("--sizes", default="32,48,61,64,80,97,100,113,128,160", metavar="N,N,...",
                        help="edges of the cubes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--impl", default=",".join(IMPLEMENTATIONS), metavar="NAMES", help="default: %(default)s")
    parser.add_argument("--kind", default="r2c", choices=("r2c", "c2r", "c2c", "c2c_backward"))
    parser.add_argument("--order", default="rotated", choices=("rotated", "natural"), help="order of the spectra of native and algorithm2")
    parser.add_argument("--precision", default="float", choices=("float", "double"))
    parser.add_argument("--simd", default="AVX2", metavar="NAME", help="CONVOLUME_SIMD (default: %(default)s)")
    parser.add_argument("--l1", default="32768,8,64", metavar="BYTES,WAYS,LINE", help="default: %(default)s")
    parser.add_argument("--ll", default="1048576,8,64", metavar="BYTES,WAYS,LINE", help="default: %(default)s")
    arguments = parser.parse_args()
    try:
        arguments.sizes = sorted({int(word) for word in arguments.sizes.split(",")})
    except ValueError:
        parser.error(f"--sizes: '{arguments.sizes}' is not a list of numbers; write e.g. 32,64,97")
    arguments.impl = arguments.impl.split(",")
    for name in arguments.impl:
        if name not in IMPLEMENTATIONS:
            parser.error(f"--impl: '{name}' is unknown; use {', '.join(IMPLEMENTATIONS)}")
    if not shutil.which("valgrind"):
        stop("valgrind is missing. On Debian: apt-get install valgrind")
    if not os.access(arguments.bench, os.X_OK):
        stop(f"{arguments.bench} cannot be run; build bench_fft and name it in --bench")
    return arguments


def main():
    arguments = parse()
    rows = []
    begin = time.monotonic()
    for n in arguments.sizes:
        for implementation in arguments.impl:
            row = measure(arguments, implementation, n)
            rows.append(row)
            print(f"{time.monotonic() - begin:6.0f} s  N = {n:4}  {implementation:10}  "
                  f"D1 {row['d1_misses_per_point']:.3f}  LL {row['ll_misses_per_point']:.3f}", flush=True)  # fmt: skip
            write(arguments, rows)
    print(f"wrote {arguments.out}.json")
    text = table(arguments, rows)
    Path(f"{arguments.out}.md").write_text(text)
    print(f"wrote {arguments.out}.md")
    draw(arguments, rows)
    print("\n" + text, end="")


if __name__ == "__main__":
    main()
