"""Measures inference: seconds over those of the net alone, resident memory over --memory, and PyTorch.

volumes.py prints the results. The net is the demo's, after two iterations on the built-in volume.
"""
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NET = ROOT / "nets/zoo/demo.toml"
PEERS = ROOT / "build/peers/bin/python"


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def measured(*command):
    """Returns the seconds and the largest resident bytes of a command."""
    import time
    begin = time.perf_counter()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed")
    return time.perf_counter() - begin, usage.ru_maxrss * 1024


class Inference:
    def __init__(self, build, folder, threads):
        self.convolume, self.bench_net = build / "tools/convolume", build / "bench/bench_net"
        self.folder, self.threads = folder, threads
        run(self.convolume, "train", NET, "--data", ROOT / "nets/zoo/data/synthetic.toml", "--out", folder / "run",
            "--iterations", 2, "--quiet")
        self.checkpoint = folder / "run/checkpoints/last.safetensors"

    def infer(self, volume, out, *more):
        return measured(self.convolume, "infer", self.checkpoint, volume, "--out", self.folder / out, "--quiet",
                        "--threads", self.threads, *more)

    def passes(self, volume):
        plan = run(self.convolume, "infer", self.checkpoint, volume, "--out", self.folder / "p.zarr", "--dry-run")
        return int(plan.split(" passes of the net")[0].split()[-1])

    def net_seconds(self):
        report = self.folder / "net.json"
        run(self.bench_net, "--side-by-side", "--net", NET, "--engine", "automatic", "--backend", "native", "--cache",
            "on", "--work", "inference", "--threads", self.threads, "--json", report)
        return json.loads(report.read_text())["results"][0]["seconds"]

    def over_net(self, volume, rounds):
        """Ratios of whole inferences to the net's own time for as many patches, in turn."""
        passes = self.passes(volume)
        outputs = {"TIFF of floats": ["p.tif"], "Zarr of floats": ["p.zarr"], "Zarr of labels": ["l.zarr", "--labels"]}
        ratios = {name: [] for name in outputs}
        for _ in range(rounds):
            for name, (out, *more) in outputs.items():
                before = self.net_seconds()
                seconds, _ = self.infer(volume, out, *more)
                ratios[name].append(seconds / passes / statistics.mean([before, self.net_seconds()]))
        return passes, ratios

    def torch_seconds(self, volume):
        description = self.folder / "net.description.json"
        description.write_text(run(self.bench_net, "--describe", "--net", NET))
        script = ROOT / "bench/peers/torch_window.py"
        if not PEERS.exists():
            print("PyTorch was not measured: build/peers is missing; tools/install_packages.sh --peers makes it",
                  file=sys.stderr)
            return None
        result = subprocess.run([str(PEERS), str(script), "--net", str(description), "--volume",
                                 str(volume), "--threads", str(self.threads)], capture_output=True, text=True)
        if result.returncode != 0:
            print(f"PyTorch was not measured: {result.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return None
        return json.loads(result.stdout)

    def large(self, memory):
        """Segments 2 Gvoxel within some memory. Its chunks are links to 64 files, which take 16 MiB."""
        volume, seeds = self.folder / "large.zarr", self.folder / "seeds"
        volume.mkdir()
        seeds.mkdir()
        numbers = random.Random(1)
        for i in range(64):
            (seeds / str(i)).write_bytes(numbers.randbytes(64 ** 3))
        (volume / ".zarray").write_text(json.dumps({
            "zarr_format": 2, "shape": [512, 2048, 2048], "chunks": [64, 64, 64], "dtype": "|u1", "compressor": None,
            "fill_value": 0, "order": "C", "filters": None}))
        for z in range(8):
            for y in range(32):
                for x in range(32):
                    os.link(seeds / str(numbers.randrange(64)), volume / f"{z}.{y}.{x}")
        seconds, resident = self.infer(volume, "large-labels.zarr", "--labels", "--memory", memory, "--patch",
                                       "24,192,192")
        return seconds, resident


def bytes_of(text):
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]


def table(build, folder, options):
    """Prints the table, and returns its numbers."""
    report = {}
    inference = Inference(build, folder, options.threads)
    print("\n| inference, the demo's net | result |\n|---|---|")
    data = os.environ.get("CONVOLUME_DATA_DIR")
    if data:
        volume = Path(data) / "isbi2012/test-volume.tif"
        passes, report["over_net"] = inference.over_net(volume, options.rounds)
        for name, ratios in report["over_net"].items():
            print(f"| isbi2012/test-volume.tif to a {name}, over {passes} passes of the net alone | "
                  f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}) |", flush=True)
        peer = inference.torch_seconds(volume)
        if peer:
            ours = [inference.infer(volume, "p.zarr")[0] for _ in range(3)]
            report["torch"], report["ours"] = peer["seconds"], ours
            print(f"| the same volume by a sliding window in PyTorch {peer['version']} over ours | "
                  f"{peer['seconds'] / statistics.median(ours):.1f} ({peer['seconds']:.1f} s over "
                  f"{statistics.median(ours):.1f} s) |", flush=True)
    else:
        print("| isbi2012/test-volume.tif | left out: CONVOLUME_DATA_DIR is not set |")
    if options.large:
        seconds, resident = inference.large(options.memory)
        report["large"] = {"memory": bytes_of(options.memory), "resident": resident, "seconds": seconds}
        print(f"| 512 x 2048 x 2048 uint8, patch 24 x 192 x 192, --memory {options.memory}: resident peak | "
              f"{resident / 2**20:.0f} MiB, {(resident - bytes_of(options.memory)) / 2**20:+.0f} MiB ({seconds:.0f} s) |")
    return report
