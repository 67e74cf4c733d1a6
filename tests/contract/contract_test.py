"""What scripts of users rely on: targets, paths, options, keys of reports and names of files. A change that breaks one
of these breaks somebody's script. Names may be added; none may go.

    contract_test.py SOURCE BUILD
"""
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop())
SOURCE = pathlib.Path(sys.argv.pop())
CONVOLUME = BUILD / "tools/convolume"

TARGETS = ["convolume", "convolume_cli", "example_convolve", "bench_alloc", "bench_conv", "bench_fft", "bench_net",
           "bench_scheduler"]
CMAKE_OPTIONS = {"CONVOLUME_BUILD_TOOLS": "BOOL", "CONVOLUME_BUILD_TESTS": "BOOL", "CONVOLUME_BUILD_BENCH": "BOOL",
                 "CONVOLUME_BUILD_EXAMPLES": "BOOL", "CONVOLUME_WERROR": "BOOL", "CONVOLUME_FFTW": "BOOL",
                 "CONVOLUME_ONEDNN": "BOOL", "CONVOLUME_AVX2_ONLY": "BOOL", "CONVOLUME_SANITIZE": "STRING"}
COMMANDS = {
    "train": ["--data", "--out", "--iterations", "--seed", "--threads", "--resume", "--max-minutes"],
    "infer": ["--out", "--patch", "--overlap", "--uint8", "--threads", "--engine"],
    "eval": ["--positive", "--slices", "--threshold", "--json"],
    "info": ["--set", "--patch", "--threads"],
}
ZOO = ["demo.toml", "n4.toml", "unet_anisotropic.toml", "unet_isotropic.toml", "width_depth.toml",
       "data/isbi2012.toml", "data/synthetic.toml"]
PROBLEMS = {
    "anisotropic.txt": "655d410c7f062008",
    "depthwise.txt": "a32348ad76ffcce5",
    "dilated_strided.txt": "6b740c59e9cb7d03",
    "grouped.txt": "2097ddbce43716f7",
    "headline.txt": "093d0c8c58c79ebd",
    "kernels.txt": "a9f5140d1e4eafe4",
    "paper_nets.txt": "a19f511d1f01c781",
    "planar.txt": "73cb823a79d5d79d",
    "unet3d.txt": "4ee2ce9c64a146eb",
}

NET = """
name = "contract"
[input]
patch = [2, 12, 12]
[[node]]
name = "logits"
type = "conv"
out_channels = 1
kernel = [1, 3, 3]
padding = "same"
[training]
iterations = 4
validate_every = 2
checkpoint_every = 2
"""
DATA = """
name = "synthetic"
[synthetic]
extent = [6, 24, 24]
cell_diameter = 10
[[train]]
slices = [0, 4]
[[validation]]
slices = [4, 6]
"""


def run(*command, status=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    if done.returncode != status:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Contract(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="convolume-contract-")
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def report(self, program, *arguments):
        """The JSON report of a benchmark."""
        file = self.folder / "report.json"
        run(BUILD / "bench" / program, *arguments, "--json", file)
        return json.loads(file.read_text())

    def need(self, report, rows, keys):
        self.assertTrue(report[rows])
        for row in report[rows]:
            self.assertLessEqual(set(keys), set(row))

    def cache(self):
        lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
        return dict(re.match(r"([^:]+):([^=]+)", line).groups() for line in lines if re.match(r"[A-Za-z]\w*:\w+=", line))

    def test_targets_options_and_paths_of_the_build(self):
        targets = set(re.findall(r"^(?:\.\.\. )?([\w./]+)", run("cmake", "--build", BUILD, "--target", "help"), re.M))
        self.assertLessEqual(set(TARGETS), targets)
        cache = self.cache()
        for option, kind in CMAKE_OPTIONS.items():
            self.assertEqual(cache.get(option), kind, option)
        for program in ["tools/convolume"] + [f"bench/{name}" for name in TARGETS if name.startswith("bench_")]:
            self.assertTrue((BUILD / program).is_file(), program)

    def test_bench_fft_reports_geometric_means_and_ratios(self):
        report = self.report("bench_fft", "--side-by-side", "--sizes", "8,17", "--rounds", 2, "--min-seconds", 0)
        self.assertGreater(report["geomean"]["smooth"], 0)
        self.assertGreater(report["geomean"]["prime"], 0)
        self.need(report, "results", ["ratio"])

    def test_bench_conv_reports_seconds_and_ratios(self):
        quick = ["--side-by-side", "--rounds", 1, "--min-seconds", 0, "--dir", "fwd", "--layout", "plain"]
        line = self.folder / "problems.txt"
        line.write_text('ic3oc2id7kd3n"one"\n')
        with_onednn = "NOTFOUND" not in (re.search(r"^DNNL_LIBRARY:.*", (BUILD / "CMakeCache.txt").read_text(), re.M)
                                         or [""])[0]
        keys = ["dir", "ours_s"] + (["ratio", "onednn_s"] if with_onednn else [])
        self.need(self.report("bench_conv", *quick, "--problem", "ic3oc2id7kd3"), "results", keys)
        self.need(self.report("bench_conv", *quick, "--problems", line), "results", keys)

    def test_verify_ends_with_counts(self):
        for program, arguments in [("bench_conv", ["--problem", "ic3oc2id7kd3"]), ("bench_fft", ["--sizes", "8"])]:
            last = run(BUILD / "bench" / program, "--verify", *arguments).splitlines()[-1]
            self.assertRegex(last, r"^[1-9]\d* passed, 0 failed")

    def test_bench_alloc_and_bench_net_write_reports(self):
        net = self.folder / "net.toml"
        net.write_text(NET)
        alloc = self.report("bench_alloc", "--side-by-side", "--net", net, "--peers", "glibc", "--threads", 1,
                            "--rounds", 1, "--iterations", 1, "--operations", 2000)
        self.need(alloc, "results", ["threads", "seconds", "ratio", "peak_bytes"])
        training = self.report("bench_net", "--side-by-side", "--net", net, "--backend", "native", "--rounds", 1,
                               "--min-seconds", 0)
        self.need(training, "results", ["threads", "seconds", "peak_bytes"])
        self.need(training, "ratios", ["ratio"])

    def test_check_layers_tells_by_its_status(self):
        run(SOURCE / "tools/check_layers", SOURCE)
        bad = self.folder / "src/core"
        bad.mkdir(parents=True)
        (bad / "a.hpp").write_text('#include "fft/plan.hpp"\n')
        run(SOURCE / "tools/check_layers", self.folder, status=1)

    def test_options_of_the_command(self):
        for command, options in COMMANDS.items():
            text = run(CONVOLUME, command, "--help")
            for option in options:
                self.assertRegex(text, re.escape(option) + r"\b", command)

    def test_a_run_from_training_to_scores(self):
        f = self.folder
        (f / "net.toml").write_text(NET)
        (f / "data.toml").write_text(DATA)
        run(CONVOLUME, "train", f / "net.toml", "--data", f / "data.toml", "--out", f / "run", "--iterations", 2,
            "--seed", 3, "--threads", 2, "--max-minutes", 5)
        run(CONVOLUME, "train", f / "net.toml", "--data", f / "data.toml", "--out", f / "run", "--iterations", 4,
            "--resume")
        lines = [json.loads(line) for line in (f / "run/metrics.jsonl").read_text().splitlines()]
        for line in lines:
            self.assertLessEqual({"iteration", "seconds", "loss"}, set(line))
        self.assertLessEqual({"pixel_error", "roc_auc", "dice", "iou"}, set(lines[-1]))
        run(CONVOLUME, "export", f / "data.toml", "--image", f / "image.tif", "--label", f / "label.tif")
        run(CONVOLUME, "infer", f / "run/checkpoints/last.safetensors", f / "image.tif", "--out", f / "p.tif",
            "--patch", "2,12,12", "--overlap", "0,4,4", "--uint8", "--threads", 2, "--engine", "direct")
        scores = json.loads(run(CONVOLUME, "eval", f / "p.tif", f / "label.tif", "--positive", "255,1", "--slices", 0,
                                2, "--threshold", "100", "--json"))
        self.assertLessEqual({"pixel_error", "roc_auc", "dice", "iou", "voxels", "positives"}, set(scores))
        run(CONVOLUME, "info", f / "net.toml", "--set", "training.iterations=5", "--patch", "2,16,16", "--threads", 1)

    def test_names_of_the_zoo_and_lists_of_problems(self):
        for name in ZOO:
            self.assertTrue((SOURCE / "nets/zoo" / name).is_file(), name)
        for name, digest in PROBLEMS.items():
            text = (SOURCE / "bench/problems" / name).read_bytes()
            self.assertEqual(hashlib.sha256(text).hexdigest()[:16], digest, name)


if __name__ == "__main__":
    unittest.main()
