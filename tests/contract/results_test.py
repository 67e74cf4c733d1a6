"""The pages of measured results: tables, losses and plots from a small fixture, and the committed pages.

    results_test.py SOURCE
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(sys.argv.pop()).resolve()
SCRIPT = SOURCE / "bench/results.py"
sys.path.insert(0, str(SOURCE / "bench"))
import results  # noqa: E402
import results_data  # noqa: E402

MACHINE = {"processor": "Fixture CPU", "family": "25", "model": "17", "threads": 2, "simd": "AVX3",
           "row": "fixture/AVX3", "load_average": 0.25}


def ratio(value):
    return {"ratio": value, "ratio_low": 0.9 * value, "ratio_high": 1.1 * value}


def fft_row(n, value):
    return {"n": n, "kind": "r2c", "native_s": 1e-6, "fftw_s": value * 1e-6, **ratio(value)}


def conv_row(name, problem, direction, engine, value, in_time, threads=2):
    return {"name": f"headline:{name}", "problem": problem, "dir": direction, "engine": engine, "threads": threads,
            "ours_s": 2e-3, "ours_low_s": 1e-3, "onednn_s": value * 2e-3, "onednn_low_s": in_time * 1e-3,
            "floor_fraction": 0.4, "ratio_in_time": in_time, **ratio(value)}


def runner(name, value):
    return {"graph": "chain of 10", "tasks": 10, "edges": 9, "threads": 2, "runner": name, "ns_per_task": 20 * value,
            "ns_per_task_low": 19 * value, "ns_per_task_high": 21 * value, **ratio(value)}


def allocator(name, value):
    return {"work": "larson", "threads": 1, "allocator": name, "seconds": value * 1e-3, "peak_bytes": 2**20,
            "live_peak_bytes": 0, **ratio(value)}


MARKS = "<!-- results: bench/results.py --render writes this part -->", "<!-- end of results -->"
DENSE, STRIDED = "mb1ic32id64oc32od62kd3kh3kw3", "mb1ic16id48oc32od24kd2kh2kw2sd2sh2sw2"
NET = {"net": "fixture_net", "work": "training", "batch": 1}
OURS = {**NET, "seconds": 0.1, "peak_bytes": 3 * 2**20, "resident_bytes": 4 * 2**20}
TORCH = {"version": "2.13.0", "peer_threads": 2, "blas": "MKL (linked statically)", "onednn": "oneDNN 3.12"}
OPENVINO = {**TORCH, "work": "inference", "blas": "none", "version": "2026.4", "peer": "openvino", "resident_bytes": 2**20}
REPORTS = {
    "fft_r2c": {"results": [fft_row(8, 2.0), fft_row(16, 8.0), fft_row(17, 6.0)]},
    "conv_headline_blocked": {"results": [conv_row("dense", DENSE, "fwd", "fft_tiled", 3.5, 3.0),
                                          conv_row("dense", DENSE, "fwd", "fft_tiled", 2.0, 2.1, threads=1),
                                          conv_row("32-to-32-48-k1", DENSE, "bwd_d", "direct", 9.0, 8.0),
                                          conv_row("strided", STRIDED, "fwd", "direct", 5.0, 0.65),
                                          conv_row("strided", STRIDED, "fwd", "direct", 0.9, 0.9, threads=1),
                                          conv_row("dense", DENSE, "training", "fft_tiled", 1.1, 1.2),
                                          conv_row("dense", DENSE, "training", "fft_tiled", 0.8, 0.9, threads=1)]},
    "net_peers_width_depth": {
        "results": [OURS, {**OURS, "batch": 2}, {**OURS, "work": "inference"}],
        "peers": [{**NET, **TORCH, "peer": "torch", "setting": "contiguous", "seconds": 0.5, "resident_bytes": 2**20},
                  {**NET, **TORCH, "peer": "torch", "setting": "contiguous", "seconds": 0.4, "resident_bytes": 2**20,
                   "batch": 2},
                  {**NET, **OPENVINO, "setting": "float32", "seconds": 0.3},
                  {**NET, **OPENVINO, "setting": "bfloat16", "seconds": 0.05}],
        "ratios": [{**NET, "peer": "torch", "setting": "contiguous", **ratio(5.0)},
                   {**NET, "peer": "torch", "setting": "contiguous", "batch": 2, **ratio(4.0)},
                   {**NET, "work": "inference", "peer": "openvino", "setting": "float32", **ratio(3.0)},
                   {**NET, "work": "inference", "peer": "openvino", "setting": "bfloat16", **ratio(0.5)}],
        "left_out": [{**NET, "peer": "onnxruntime", "setting": "float32", "reason": "it is missing"}]},
    "net_onednn_width_depth": {
        "results": [{**OURS, "engine": "automatic", "batch": 2}, {**OURS, "engine": "onednn", "batch": 2, "seconds": 0.35}],
        "ratios": [{**NET, "batch": 2, **ratio(3.5)}]},
    "fft_peers": {"machine": {"mkl": "2026.2", "ducc0": "0.42"},
                  "results": [{**fft_row(17, 2.0), "mkl_s": 9e-7, "mkl_ratio": 0.9, "mkl_ratio_low": 0.8,
                               "mkl_ratio_high": 1.1, "ducc0_s": 4e-6, "ducc0_ratio": 4.0, "ducc0_ratio_low": 3.9,
                               "ducc0_ratio_high": 4.1, "ducc0_call_s": 2e-6}]},
    "scheduler": {"results": [runner("convolume", 1.0), runner("flow_graph", 3.0), runner("task_group", 0.5)]},
    "alloc": {"results": [allocator("slab", 1.0), allocator("glibc", 4.0)]},
}


def write_fixture(folder, names=tuple(REPORTS)):
    for name in names:
        content = {"name": name, "machine": MACHINE, "commit": "0123456789ab", "date": "2026-01-02 03:04 UTC",
                   "quick": False, "command": f"build/release/bench/of_{name} --fixture", "report": REPORTS[name]}
        (folder / f"{name}.json").write_text(results.file_text(content))


def read(file):
    """The content of a data file, with lists of rows."""
    content = json.loads(file.read_text())
    return {**content, "report": results_data.expanded(content["report"])}


def call(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.data, self.out = pathlib.Path(self.folder.name) / "data", pathlib.Path(self.folder.name) / "out"
        self.data.mkdir()
        self.out.mkdir()
        self.readme = self.out / "README.md"
        self.readme.write_text(f"# Title\n\n{MARKS[0]}\nold\n{MARKS[1]}\nEnd.\n")

    def act(self, mode):
        return call(mode, "--data", self.data, "--out", self.out, "--readme", self.readme)

    def rendered(self, name):
        result = self.act("--render")
        self.assertEqual(result.returncode, 0, result.stderr)
        return (self.out / name).read_text(encoding="utf-8")

    def test_tables(self):
        write_fixture(self.data)
        page = self.rendered("results.md")
        for text in ("Fixture CPU (family 25, model 17), 2 hardware threads, AVX3, machine row `fixture/AVX3`",
                     "Commit `0123456789ab`, 2026-01-02 03:04 UTC.",
                     "```\nbuild/release/bench/of_fft_r2c --fixture\n```",
                     "| all | 3 | 4.58 | 2.00 |", "| prime factors up to 13 | 2 | 4.00 | 2.00 |",
                     "| primes from 17 | 1 | 6.00 | 6.00 |",
                     "| dense | `fft_tiled` | 2.00 ms | 7.00 ms | 3.50 (3.15-3.85) | 3.00 | 2.00 (2.00 ms) | 40 % |",
                     "| strided | `direct` | 2.00 ms | 10.0 ms | 5.00 (4.50-5.50) | **0.650** | **0.900** (2.00 ms) | 40 % |",
                     "| headline_blocked | forward | 2 | 4.18 | 1.14 | 0.650 | 1 |",
                     "- PyTorch 2.13.0: 2 threads, BLAS: MKL (linked statically), oneDNN: oneDNN 3.12",
                     "| training | 1 | 100 ms | PyTorch 2.13.0 (contiguous) | 500 ms | 5.00 (4.50-5.50) | 3.0 | 4.0 | 1.0 |",
                     "| inference | 1 | 100 ms | OpenVINO 2026.4, bfloat16 | 50.0 ms | **0.500** (0.450-0.550) |",
                     "onnxruntime (float32) was left out: it is missing.",
                     "MKL 2026.2, ducc0 0.42, one thread. ducc0 is called from Python; 2.00 µs to 2.00 µs",
                     "| r2c | 17 | prime | 1.00 µs | 2.00 (1.80-2.20) | **0.900** (0.800-1.10) | 4.00 (3.90-4.10) |",
                     "| chain of 10 | 10 | 9 | 2 | 20.0 (19.0-21.0) | 3.00 (2.70-3.30) | **0.500** (0.450-0.550) |",
                     "| larson | 1 | 1.00 ms | 4.00 (3.60-4.40) | - | - |",
                     "Not measured yet; run `bench/results.py --run --only conv_unet3d`."):
            self.assertIn(text, page)

    def test_losses_are_sorted_and_explained(self):
        write_fixture(self.data)
        page = self.rendered("losses.md")
        rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][2:]
        self.assertEqual([row[4].split()[0] for row in rows], ["0.500", "0.500", "0.650", "0.800", "0.900"])
        self.assertEqual([row[5] for row in rows], ["automatic", "scheduler", "direct", "fft_tiled", "native"])
        # The lower quartiles on two threads count for one row, the medians on one thread for the other.
        self.assertEqual(rows[2][1:4], ["strided, forward", "oneDNN", "1.00 ms, 650 µs"])
        self.assertEqual(rows[3][1:4], ["dense, training, one thread", "oneDNN", "2.00 ms, 1.60 ms"])
        self.assertEqual(rows[0][1:4], ["fixture_net, inference, batch 1", "OpenVINO 2026.4, bfloat16", "100 ms, 50.0 ms"])
        self.assertEqual(rows[4][1:3], ["N = 17, r2c", "MKL"])
        self.assertIn("we compute in float", rows[0][6])
        self.assertIn("strided kernels", rows[2][6])
        self.assertIn("not explained yet", rows[3][6])
        self.assertIn("5 rows:", page)
        self.assertIn("Not measured: conv_anisotropic, conv_depthwise", page)
        self.assertNotIn("quick run:", page)

    def test_pytorch_is_the_peer_where_its_onednn_is_faster_by_more_than_5_percent(self):
        write_fixture(self.data)
        data = read(self.data / "conv_headline_blocked.json")
        for row in data["report"]["results"]:
            faster = 1.2 if row["name"] == "headline:dense" and row["dir"] == "fwd" else 1.04
            for key in ("s", "low_s"):
                row[f"torch_{key}"] = row[f"onednn_{key}"] / faster
            for key in ("ratio", "ratio_low", "ratio_high", "ratio_in_time"):
                row[f"torch_{key}"] = row[key] / faster
        data["report"]["machine"] = {"torch": TORCH}
        data["command"] = "-"
        (self.data / "conv_headline_blocked.json").write_text(results.file_text(data))
        page = self.rendered("results.md")
        self.assertIn("PyTorch 2.13.0 with oneDNN 3.12, as many threads as ours", page)
        self.assertIn("| dense | `fft_tiled` | 2.00 ms | 7.00 ms | 5.83 ms | 2.92 (2.62-3.21) | 2.50 | 1.67 (2.00 ms) |", page)
        self.assertIn("| strided | `direct` | 2.00 ms | 10.0 ms | 9.62 ms | 5.00 (4.50-5.50) | **0.650** |", page)
        self.assertIn("| strided, forward | oneDNN |", self.rendered("losses.md"))

    def test_pytorch_without_version_or_blas_is_refused(self):
        for name, kind in (("net_peers_width_depth", "peers"), ("conv_headline_blocked", "results")):
            for missing in ("version", "blas"):
                write_fixture(self.data)
                data = read(self.data / f"{name}.json")
                facts = {key: value for key, value in TORCH.items() if key != missing}
                if kind == "results":
                    data["report"]["results"][0]["torch_s"] = 1.0
                    data["report"]["machine"] = {"torch": facts}
                else:
                    data["report"]["peers"] = [{**NET, **facts, "peer": "torch", "setting": "contiguous", "seconds": 1.0}]
                data["command"] = "-"
                (self.data / f"{name}.json").write_text(results.file_text(data))
                result = self.act("--check")
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"{name}.json: a row of PyTorch has no version or no BLAS; run the measurement again",
                              result.stderr)

    def test_shares_of_published_nets(self):
        write_fixture(self.data)
        self.assertNotIn("## Published nets", self.rendered("losses.md"))
        rows = [{**conv_row("", DENSE, direction, "direct", 1.0, in_time), "name": f"{net}:layer"}
                for net, direction, in_time in (("vgg16", "fwd", 0.5), ("vgg16", "training", 2.0), ("i3d", "fwd", 4.0))]
        (self.data / "conv_published.json").write_text(results.file_text(
            {"name": "conv_published", "machine": MACHINE, "commit": "0", "date": "-", "quick": False, "command": "-",
             "report": {"results": rows}}))
        page = self.rendered("losses.md")
        self.assertIn("| vgg16 | 2 | 1.00 | 0.500 | 50 % |", page)
        self.assertIn("| i3d | 1 | 4.00 | 4.00 | 0 % |", page)

    def test_the_readme_gets_its_table_between_the_marks(self):
        write_fixture(self.data)
        data = self.data / "conv_headline_blocked.json"
        data.write_text(data.read_text().replace("headline:dense", "headline:32-to-32-64-k3"))
        text = self.rendered("README.md")
        self.assertTrue(text.startswith(f"# Title\n\n{MARKS[0]}\n\nFixture CPU (machine row `fixture/AVX3`), 2 cores"))
        self.assertTrue(text.endswith(f" |\n\n{MARKS[1]}\nEnd.\n"))
        self.assertNotIn("old", text)
        # The medians of one thread count, because they are worse.
        self.assertIn("| kernel 3: 32 to 32 channels, 64³, forward, one thread | 2.00 ms | oneDNN | 4.00 ms | 2.00 |", text)
        # Of all batches and peers in our precision the least ratio.
        self.assertIn("| 8 layers of 30 channels, kernel 5, training iteration, batch 2 | 100 ms | "
                      "our framework with oneDNN's convolutions | 350 ms | 3.50 (3.15-3.85) |", text)
        self.assertIn("| 8 layers of 30 channels, kernel 5, inference, batch 1 | 100 ms | OpenVINO 2026.4 | 300 ms | "
                      "3.00 (2.70-3.30) |", text)
        self.assertNotIn("48³", text)  # that row has no forward pass
        lines = text.splitlines()
        data.write_text(data.read_text().replace('"columns": ["name", ', '"columns": ["name", "ratios", ')
                        .replace('["headline:32-to-32-64-k3", ', '["headline:32-to-32-64-k3", [1.9, 2.2, 2.0], ')
                        .replace('["headline:strided", ', '["headline:strided", null, ')
                        .replace('["headline:32-to-32-48-k1", ', '["headline:32-to-32-48-k1", null, '))
        self.assertIn("| 4.00 ms | 2.00 (1.90-2.20) |", self.rendered("README.md"))
        self.assertEqual(len(self.rendered("README.md").splitlines()), len(lines))
        for name in ("peers", "onednn"):
            net = self.data / f"net_{name}_width_depth.json"
            net.write_text(net.read_text().replace('"quick": false', '"quick": true'))
        self.assertNotIn("8 layers", self.rendered("README.md"))
        self.readme.write_text("# Title\n")
        self.assertIn("README.md: the lines", self.act("--render").stderr)

    def test_plots_are_svg(self):
        write_fixture(self.data)
        for name in ("plots/fft_r2c.svg", "plots/conv_headline.svg"):
            root = xml.etree.ElementTree.fromstring(self.rendered(name))
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertIn("geometric mean 4.58", self.rendered("plots/fft_r2c.svg"))

    def test_check_sees_what_differs(self):
        write_fixture(self.data)
        self.assertEqual(self.act("--check").returncode, 1)
        page = self.rendered("results.md")
        self.assertEqual(self.act("--check").returncode, 0)
        self.assertEqual(self.rendered("results.md"), page)
        (self.out / "losses.md").write_text("by hand\n")
        checked = self.act("--check")
        self.assertEqual(checked.returncode, 1)
        self.assertIn("losses.md differs from the data", checked.stderr)

    def test_plots_go_with_their_data(self):
        write_fixture(self.data)
        self.rendered("results.md")
        (self.data / "fft_r2c.json").unlink()
        self.assertEqual(self.act("--check").returncode, 1)
        self.assertIn("Not measured yet; run `bench/results.py --run --only fft_r2c`.", self.rendered("results.md"))
        self.assertFalse((self.out / "plots/fft_r2c.svg").exists())
        self.assertEqual(self.act("--check").returncode, 0)

    def test_nothing_measured_is_no_error(self):
        self.assertIn("Not measured yet", self.rendered("results.md"))
        self.assertIn("Not measured yet", self.rendered("losses.md"))

    def test_a_peer_that_is_missing_is_no_error(self):
        write_fixture(self.data)
        data = read(self.data / "conv_headline_blocked.json")
        for row in data["report"]["results"]:
            row.update(dict.fromkeys(("onednn_s", "ratio", "ratio_low", "ratio_high")))
        data["command"] = "-"
        (self.data / "conv_headline_blocked.json").write_text(results.file_text(data))
        page = self.rendered("results.md")
        self.assertIn("oneDNN did not take part.", page)
        self.assertIn("| dense | `fft_tiled` | 2.00 ms | - | - | - | - | 40 % |", page)

    def test_a_broken_file_is_named(self):
        write_fixture(self.data)
        good = json.loads((self.data / "scheduler.json").read_text())
        table = good["report"]["results"]
        short = {**table, "rows": [row[1:] for row in table["rows"]]}
        no_graph = {**table, "same": {key: value for key, value in table["same"].items() if key != "graph"}}
        reports = {"results": results_data.rows_of(table)}, {"results": short}, {"results": no_graph}
        contents = [{**good, "report": report} for report in reports] + [{**good, "command": "a string"}]
        for text in ('{"name": "scheduler", ', "[]", '{"name": "other", "report": {}}', *map(json.dumps, contents)):
            (self.data / "scheduler.json").write_text(text)
            for mode in ("--render", "--check"):
                result = self.act(mode)
                self.assertEqual(result.returncode, 1)
                self.assertIn(str(self.data / "scheduler.json"), result.stderr)
                self.assertNotIn("Traceback", result.stderr)
        self.assertIn("run the measurement again with bench/results.py --run", result.stderr)


class Form(unittest.TestCase):
    def test_rows_come_back(self):
        rows = [{"name": "a", "threads": 2, "ratio": 1.23456789, "extent": [8, 8], "what": "a ratio", "peer": None},
                {"name": "b", "threads": 2, "ratio": 3.0, "extent": [8, 9], "late": True, "peer": None}]
        report = results_data.compact({"results": rows, "worse": rows, "peers": [], "machine": {"simd": "AVX2"}})
        self.assertEqual(report["results"], {"same": {"threads": 2}, "columns": ["name", "ratio", "extent", "late"],
                                             "rows": [["a", 1.23456789, [8, 8], None], ["b", 3.0, [8, 9], True]]})
        again = json.loads(results_data.text(report))
        self.assertEqual(results_data.expanded(again), {
            "results": [{"name": "a", "threads": 2, "ratio": 1.234568, "extent": [8, 8]},
                        {"name": "b", "threads": 2, "ratio": 3, "extent": [8, 9], "late": True}],
            "machine": {"simd": "AVX2"}})

    def test_a_row_is_a_line(self):
        rows = [{"name": f"{i}" * 100, "ratio": i, "ratios": [i]} for i in range(5)]
        lines = results_data.text(results_data.compact({"results": rows})).splitlines()
        self.assertEqual([line for line in lines if "00" in line], [f'["{"0" * 100}", 0, [0]],'])

    def test_no_line_is_too_long(self):
        rows = [{"name": f"{i}" * 300, "peer": f"{i}" * 200} for i in range(2)]
        content = results_data.compact({"results": rows, "machine": {f"key {i}": i for i in range(100)}})
        text = results_data.text(content)
        self.assertLessEqual(max(map(len, text.splitlines())), results_data.LINE)
        self.assertEqual(json.loads(text), content)
        with self.assertRaisesRegex(results_data.FormError, "a line would have 5.. characters, more than 400"):
            results_data.text({"name": "x" * 500})


class Runs(unittest.TestCase):
    def test_a_missing_program_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            result = call("--run", "--build", folder, "--only", "scheduler", "--data", folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"{folder}/bench/bench_scheduler: there is no such program", result.stderr)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_an_unknown_measurement_is_named(self):
        result = call("--run", "--only", "fft,nonsense")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--only nonsense: there is no such measurement or group", result.stderr)

    def test_files_and_failures(self):
        """Stand-ins for two benchmarks: one writes a report, the other one fails, and the first file stays whole."""
        with tempfile.TemporaryDirectory() as folder:
            programs, data = pathlib.Path(folder) / "bench", pathlib.Path(folder) / "data"
            programs.mkdir()
            works = '#!/bin/sh\nfor file; do :; done\necho \'{"machine": {"simd": "AVX2"}, "results": []}\' > "$file"\n'
            for name, text in (("bench_scheduler", works), ("bench_alloc", "#!/bin/sh\nexit 3\n")):
                (programs / name).write_text(text)
                (programs / name).chmod(0o755)
            result = call("--run", "--build", folder, "--only", "alloc,scheduler", "--data", data)
            self.assertEqual(result.returncode, 1)
            self.assertIn("bench_alloc ended with status 3", result.stderr)
            self.assertIn("scheduler, about 1 minute: ", result.stdout)
            self.assertEqual([file.name for file in data.iterdir()], ["scheduler.json"])
            content = read(data / "scheduler.json")
            self.assertEqual(set(content), {"name", "machine", "commit", "date", "quick", "command", "report"})
            self.assertEqual((content["name"], content["machine"]["simd"]), ("scheduler", "AVX2"))
            self.assertIn("--side-by-side", content["command"])

    def test_of_several_processes_the_median_row_counts_and_all_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            program, data = pathlib.Path(folder) / "bench/bench_conv", pathlib.Path(folder) / "data"
            program.parent.mkdir()
            # A stand-in whose ratio is 3 in the first process, then 1, then 2; on one thread it is constant.
            program.write_text(f"""#!/bin/sh
for file; do :; done
echo >> {folder}/count
case $(wc -l < {folder}/count) in 1) ratio=3;; 2) ratio=1;; *) ratio=2;; esac
echo '{{"results": [{{"name": "planar:a", "dir": "fwd", "threads": 2, "ratio": 9, "onednn_s": 1, "onednn_low_s": 1, "ratio_in_time": '$ratio'}},
  {{"name": "planar:a", "dir": "fwd", "threads": 1, "onednn_s": 1, "ratio": 5}}]}}' > "$file"
""")
            program.chmod(0o755)
            result = call("--run", "--build", folder, "--only", "conv_planar", "--data", data, "--processes", 3)
            self.assertEqual(result.returncode, 0, result.stderr)
            content = read(data / "conv_planar.json")
            rows = content["report"]["results"]
            self.assertEqual([row.get("ratio_in_time") for row in rows], [2, None])
            self.assertEqual([row["ratios"] for row in rows], [[3, 1, 2], [5, 5, 5]])
            self.assertEqual([set(process) for process in content["processes"]], [{"date", "load_average"}] * 3)
        self.assertIn("--processes 0: at least one", call("--run", "--processes", 0).stderr)

    def test_all_problems_are_measured_in_time(self):
        names = {measurement.name for measurement in results.MEASUREMENTS}
        lists = {file.stem for file in (SOURCE / "bench/problems").glob("*.txt")} - {"headline", "swdnn"}
        self.assertEqual({f"conv_{name}" for name in lists} - names, set())
        self.assertLessEqual(sum(measurement.cost(False) for measurement in results.chosen("", False)), 150)
        self.assertLessEqual(sum(measurement.cost(True) for measurement in results.chosen("", True)), 8)


class Tree(unittest.TestCase):
    def test_committed_pages_fit_the_data(self):
        result = call("--check")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_committed_data_are_small(self):
        """Larger files drown searches and diffs of the tree."""
        files = sorted((SOURCE / "docs").rglob("*.json"))
        lines = {file: file.read_text(encoding="utf-8").splitlines() for file in files}
        too_long = [f"{file}:{number}" for file, texts in lines.items() for number, text in enumerate(texts, 1)
                    if len(text) > results_data.LINE]
        self.assertEqual(too_long, [])
        self.assertLessEqual(sum(map(len, lines.values())), 3000)


if __name__ == "__main__":
    unittest.main()
