#!/usr/bin/env python3
"""Times a net of this library in PyTorch: a training iteration and an inference.

    /usr/bin/python3 bench/peers/torch_net.py --net net.json --threads 2 --format channels_last_3d

The net is a file from bench_net --describe: generators are expanded and defaults filled in. An iteration clears the
gradients, computes forward, loss and backward, clips the gradients if the net says so, and lets the optimizer step. An
inference computes forward in torch.inference_mode(). The data are random, of the net's patch and batch. Before each
timed call there are 50 ms of rest and one untimed call, as in bench_net --side-by-side --peers torch, which runs this
script. Needs python3-torch.

With --serve it reads one command per line from standard input, and answers each with one line of JSON. First it sends a
line with its version and the number of parameters. "training" and "inference" time one call and answer {"seconds",
"loss", "peak_bytes"}. The end of the input ends the script. Errors are answered as {"error"}.
"""
import argparse
import json
import resource
import signal
import statistics
import sys
import time

REST_SECONDS = 0.05
FORMATS = {"contiguous": "contiguous_format", "channels_last_3d": "channels_last_3d"}
WORKS = ("inference", "training")  # inference first, because its peak is visible only before any training


def peak_bytes():
    """Returns the largest resident memory so far."""
    # ru_maxrss may hold the value of the process that started this one, if that is larger.
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak():
    """Resets the peak, if the kernel allows it, because importing PyTorch took more memory than it kept."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass


class Timer:
    def __init__(self, options):
        import torch
        import torch_model

        self.torch, self.model = torch, torch_model
        if options.threads:
            torch.set_num_threads(options.threads)
        torch.manual_seed(1)
        with open(options.net, encoding="utf-8") as file:
            self.description = json.load(file)
        self.format = getattr(torch, FORMATS[options.format])
        forget_peak()
        self.before = peak_bytes()
        self.initial = torch_model.initial_parameters(self.description)
        self.x = self.target = self.net = self.training = None

    def facts(self):
        return {
            "torch": self.torch.__version__,
            "threads": self.torch.get_num_threads(),
            "parameters": sum(value.numel() for value in self.initial.values()),
        }

    def make_data(self):
        batch, net_input = self.description["training"]["batch"], self.description["input"]
        x = self.torch.randn(batch, net_input["channels"], *net_input["patch"])
        self.x = x.contiguous(memory_format=self.format)
        self.target = (self.torch.rand(batch, 1, *self.description["node"][-1]["extent"]) < 0.5).float()

    def infer(self):
        if self.net is None:
            self.net = self.model.Net(self.description, self.initial, False, self.format)
        with self.torch.inference_mode():
            return self.net.forward(self.x)

    def train(self):
        if self.training is None:
            net = self.model.Net(self.description, self.initial, True, self.format)
            self.training = self.model.Training(self.description, net)
        return self.training.iterate(self.x, self.target)

    def time(self, work):
        """Returns the seconds of one call after a rest and an untimed call, the loss, and the peak so far."""
        if self.x is None:
            self.make_data()
        call = {"training": self.train, "inference": self.infer}[work]
        time.sleep(REST_SECONDS)
        call()
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        loss = result if work == "training" else None
        if work == "inference" and list(result.shape[2:]) != self.description["node"][-1]["extent"]:
            raise ValueError(f"the output has shape {tuple(result.shape)}, not that of the description")
        return {"seconds": seconds, "loss": loss, "peak_bytes": peak_bytes() - self.before}


def answer(content):
    print(json.dumps(content), flush=True)


def serve(options):
    # Ctrl-C is handled by bench_net, which closes this script's input when it has its results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        timer = Timer(options)
        answer(timer.facts())
        for line in sys.stdin:
            if line.strip() not in WORKS:
                raise ValueError(f"the command '{line.strip()}' is unknown; write {' or '.join(WORKS)}")
            answer(timer.time(line.strip()))
    except ImportError as error:
        return answer({"error": explain_import(error)})
    except Exception as error:  # the other side must hear of every exception of PyTorch
        return answer({"error": f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]})


def explain_import(error):
    if error.name == "torch":
        return "PyTorch is missing: apt-get install python3-torch, and run this with /usr/bin/python3"
    return f"{error}; PyTorch needs it: apt-get install python3-{error.name}"


def run(options):
    timer = Timer(options)
    report = dict(timer.facts(), net=timer.description["name"], memory_format=options.format)
    for work in WORKS:
        results = [timer.time(work) for _ in range(options.rounds)]
        seconds = [result["seconds"] for result in results]
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
        report[work] = {"seconds": statistics.median(seconds), "seconds_low": low, "seconds_high": high,
                        "peak_bytes": results[-1]["peak_bytes"]}
    print(json.dumps(report, indent=1))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--net", required=True, metavar="FILE", help="description from bench_net --describe")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0 means PyTorch's default")
    parser.add_argument("--format", choices=list(FORMATS), default="contiguous", help="memory format of all tensors")
    parser.add_argument("--rounds", type=int, default=5, help="timed calls of each kind")
    parser.add_argument("--serve", action="store_true", help="time one call for each line of standard input")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 0:
        parser.error("--rounds must be at least 1 and --threads at least 0")
    return options


def main():
    options = arguments()
    if options.serve:
        serve(options)
        return 0
    try:
        run(options)
    except ImportError as error:
        print(explain_import(error), file=sys.stderr)
        return 3
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        print(f"torch_net.py: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
