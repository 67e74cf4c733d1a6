"""Measures training iterations of VGG-16 for Figures 10 and 11 of paper 003: threads that are made and joined, and
im2col with OpenBLAS."""
import pathlib
import sys
from typing import Any

from paper_bench import Bench
from paper_record import Record
from swdnn_measure import openblas_seconds
from yang_common import Command

ZOO = pathlib.Path(__file__).resolve().parent.parent.parent / "nets/zoo"
NET = ZOO / "vgg16.toml"
SCHEDULED = ("width_depth", "vgg16")
# The layers of VGG-16, its fully connected layers as convolutions whose kernel covers x.
VGG_16 = [("conv1_1", "ic3ih224oc64oh224kh3ph1"), ("conv1_2", "ic64ih224oc64oh224kh3ph1"),
          ("conv2_1", "ic64ih112oc128oh112kh3ph1"), ("conv2_2", "ic128ih112oc128oh112kh3ph1"),
          ("conv3_1", "ic128ih56oc256oh56kh3ph1"), ("conv3_2, 3_3", "ic256ih56oc256oh56kh3ph1"),
          ("conv4_1", "ic256ih28oc512oh28kh3ph1"), ("conv4_2, 4_3", "ic512ih28oc512oh28kh3ph1"),
          ("conv5_1, 5_2, 5_3", "ic512ih14oc512oh14kh3ph1"), ("fc6", "ic512ih7oc4096oh1kh7"),
          ("fc7", "ic4096ih1oc4096oh1kh1"), ("fc8", "ic4096ih1oc1000oh1kh1")]


def layers_of(name: str) -> int:
    return len(name.split(","))


class VggTraining:
    """Measures what the record does not have yet."""

    def __init__(self, command: Command, record: Record, threads: int, rounds: int):
        self.record, self.threads, self.rounds = record, threads, rounds
        self.bench_conv, self.bench_net, self.bench_scheduler = (
            Bench(command, name) for name in ("bench_conv", "bench_net", "bench_scheduler"))

    def net(self, batch: int) -> dict[str, Any]:
        """An iteration of our net: seconds, and those of all tasks that are no convolutions, on all threads at once."""
        key = f"vgg16 batch {batch}"
        if key not in self.record:
            print(f"VGG-16, a training iteration of batch {batch}", file=sys.stderr, flush=True)
            report = self.bench_net.report(
                "--side-by-side", "--net", str(NET), "--engine", "automatic", "--batch", str(batch), "--backend",
                "native", "--cache", "on", "--threads", str(self.threads), "--rounds", str(self.rounds),
                "--min-seconds", "0")
            row = report["results"][0]
            outside = (row["ops_seconds"] + row["other_seconds"]) / self.threads
            self.record.add(key, {"seconds": row["seconds"], "outside": outside, "peak_bytes": row["peak_bytes"],
                                  "load": report["load_average"]})
        return dict(self.record[key])

    def schedulers(self, name: str) -> dict[str, Any]:
        """The graph of a net's iteration with empty tasks: by our scheduler, and by threads that are joined."""
        key = f"schedulers {name}"
        if key not in self.record:
            print(f"schedulers, {name}", file=sys.stderr, flush=True)
            report = self.bench_scheduler.report(
                "--side-by-side", "--net", str(ZOO / f"{name}.toml"), "--set", "training.batch=8", "--threads",
                str(self.threads), "--rounds", "9")
            rows = {row["runner"]: row for row in report["results"] if row["graph"] == f"iteration of {name}"}
            self.record.add(key, {"load": report["load_average"], "convolume": rows["convolume"],
                                  "join_levels": rows["join_levels"]})
        return dict(self.record[key])

    def peer(self, name: str, shape: str, batch: int) -> dict[str, Any]:
        """A training pass of a layer by im2col and OpenBLAS. The first layer needs no gradient of x."""
        key = f"vgg16 {name} batch {batch}"
        if key not in self.record:
            print(f"VGG-16 {name}, im2col, batch {batch}", file=sys.stderr, flush=True)
            directions = "fwd,bwd_w" if name == VGG_16[0][0] else "fwd,bwd_d,bwd_w"
            report = self.bench_conv.report(
                "--side-by-side", "--problem", f"mb{batch}{shape}", "--dir", directions, "--layout", "blocked",
                "--threads", str(self.threads), "--peers", "im2col:openblas", "--rounds", str(self.rounds),
                "--min-seconds", "0", "--max-seconds", "60")
            rows = report["results"]
            self.record.add(key, {"seconds": sum(openblas_seconds(row, "im2col_openblas_s") for row in rows),
                                  "ours": sum(row["ours_s"] for row in rows), "load": report["load_average"]})
        return dict(self.record[key])

    def peers(self, batch: int) -> float:
        """Seconds of all convolutions of an iteration by im2col and OpenBLAS."""
        return sum(float(self.peer(name, shape, batch)["seconds"]) * layers_of(name) for name, shape in VGG_16)
