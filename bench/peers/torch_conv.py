#!/usr/bin/env python3
"""Times PyTorch's 3-D convolution on problems in benchdnn's grammar: forward, and forward with both gradients.

    /usr/bin/python3 bench/peers/torch_conv.py --problems bench/problems/headline.txt --threads 2 --json torch.json

Prints medians and quartiles over the rounds. Before each timed call there are 50 ms of rest and one untimed call, as in
bench_conv --side-by-side --peers torch, which runs this script. Needs python3-torch.
"""
import argparse
import json
import re
import statistics
import sys
import time

AXES = "dhw"
TOKEN = re.compile(r"([a-z]+)(\d+)")
FAMILIES = {"i": 1, "o": 1, "k": 1, "s": 1, "p": 0, "d": 0}  # default values of absent axes


def parse_problem(text):
    """Returns the problem as a dictionary; Z, Y, X in lists. Raises ValueError that names what is wrong."""
    descriptor = text.split('n"')[0].replace("_", "").replace(" ", "")
    tokens, at = {}, 0
    for match in TOKEN.finditer(descriptor):
        if match.start() != at:
            break
        if match.group(1) in tokens:
            raise ValueError(f"problem '{text}': '{match.group(1)}' stands twice")
        tokens[match.group(1)] = int(match.group(2))
        at = match.end()
    known = {"mb", "g", "ic", "oc"} | {f + a for f in FAMILIES for a in AXES}
    if at != len(descriptor) or not set(tokens) <= known or not {"ic", "oc"} <= set(tokens):
        raise ValueError(f"problem '{text}' is not in benchdnn's grammar, e.g. mb1ic32id52oc32od48kd5")

    def family(prefix, absent):
        values = []
        for axis in AXES:  # a missing axis repeats the one before, but an absent family keeps its default
            before = any(prefix + other in tokens for other in AXES[: len(values)])
            values.append(tokens.get(prefix + axis, values[-1] if before else absent))
        return values

    problem = {"batch": tokens.get("mb", 1), "groups": tokens.get("g", 1), "ic": tokens["ic"], "oc": tokens["oc"]}
    for name, key in (("i", "input"), ("k", "kernel"), ("s", "stride"), ("p", "before")):
        problem[key] = family(name, FAMILIES[name])
    problem["dilation"] = [d + 1 for d in family("d", FAMILIES["d"])]
    problem["after"] = list(problem["before"])
    if any("o" + axis in tokens for axis in AXES):
        outputs = family("o", FAMILIES["o"])
        for axis in range(3):
            span = (problem["kernel"][axis] - 1) * problem["dilation"][axis] + 1
            needed = (outputs[axis] - 1) * problem["stride"][axis] + span
            problem["after"][axis] = max(0, needed - problem["input"][axis] - problem["before"][axis])
    return problem


def read_problems(paths):
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            texts += [line.split("#")[0].strip() for line in lines]
    return [text for text in texts if text]


def summary(name, seconds):
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return {f"{name}_s": median, f"{name}_low_s": low, f"{name}_high_s": high}


def rounds_of(call, options):
    """Returns the seconds of the rounds of one call."""
    call()
    seconds, begin = [], time.perf_counter()
    while len(seconds) < options.rounds:
        if len(seconds) >= 3 and time.perf_counter() - begin > options.max_seconds:
            break
        time.sleep(0.05)
        call()
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(torch, text, options):
    p = parse_problem(text)
    kind = torch.float32 if options.precision == "float" else torch.float64
    torch.manual_seed(1)
    x = torch.randn(p["batch"], p["ic"], *p["input"], dtype=kind, requires_grad=True)
    w = torch.randn(p["oc"], p["ic"] // p["groups"], *p["kernel"], dtype=kind, requires_grad=True)
    same = p["before"] == p["after"]
    pad = [n for before, after in zip(reversed(p["before"]), reversed(p["after"])) for n in (before, after)]

    def forward():
        source = x if same else torch.nn.functional.pad(x, pad)
        return torch.nn.functional.conv3d(source, w, stride=p["stride"], padding=p["before"] if same else 0,
                                          dilation=p["dilation"], groups=p["groups"])

    def without_gradients():
        with torch.no_grad():
            return forward()

    dy = torch.randn_like(without_gradients())

    def training():
        x.grad = w.grad = None
        forward().backward(dy)

    row = {"problem": text, "threads": torch.get_num_threads()}
    row.update(summary("forward", rounds_of(without_gradients, options)))
    row.update(summary("training", rounds_of(training, options)))
    return row


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--problem", nargs="+", default=[], help="problems in benchdnn's grammar")
    parser.add_argument("--problems", nargs="+", default=[], metavar="FILE", help="files of problems, one per line")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0 means PyTorch's default")
    parser.add_argument("--rounds", type=int, default=9, help="timed calls of each kind")
    parser.add_argument("--max-seconds", type=float, default=30,
                        help="no call begins after this time, except the first three")
    parser.add_argument("--precision", choices=["float", "double"], default="float")
    parser.add_argument("--json", metavar="FILE", help="file for the results; - is standard output")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 0:
        parser.error("--rounds must be at least 1 and --threads at least 0")
    if not options.problem and not options.problems:
        parser.error("no problems: name some with --problem or --problems")
    return options


def main():
    options = arguments()
    try:
        import torch
    except ImportError:
        print("PyTorch is missing: apt-get install python3-torch, and run this with /usr/bin/python3", file=sys.stderr)
        return 3
    if options.threads:
        torch.set_num_threads(options.threads)
    rows = []
    try:
        for text in options.problem + read_problems(options.problems):
            rows.append(measure(torch, text, options))
            if options.json != "-":
                print(f"{text}: forward {1e3 * rows[-1]['forward_s']:.3f} ms, with gradients "
                      f"{1e3 * rows[-1]['training_s']:.3f} ms", flush=True)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"torch_conv.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass  # the results so far are written
    report = json.dumps({"machine": {"torch": torch.__version__}, "results": rows}, indent=1) + "\n"
    if options.json == "-":
        sys.stdout.write(report)
    elif options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(report)
    return 0


sys.exit(main())
