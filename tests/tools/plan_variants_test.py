#!/usr/bin/env python3
"""`convolume plan variants`: what it prints, how it continues, and what it refuses."""

import json
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest

from command import CONVOLUME, CliTest

PLANAR = "mb2ic64ih12oc64oh12kh3ph1"
SMALL = "mb1ic16ih6oc32oh6kh3ph1"  # orders of y, ky and kx


class PlanVariants(CliTest):
    def variants(self, *arguments, expect=0):
        return json.loads(self.run_cli("plan", "variants", "--json", *arguments, expect=expect))

    def test_all_orders_of_a_planar_layer_are_ranked(self):
        report = self.variants("--problem", PLANAR, "--top", "3")
        layer = report["layers"][0]
        self.assertEqual([layer[key] for key in ("candidates", "taken", "variants", "refused")], [120, 120, 120, {}])
        self.assertEqual(layer["list"][0]["nest"], "n* k c y ky kx | c16 x k32")
        self.assertEqual(len({one["nest"] for one in layer["list"]}), 120)
        for rank, keys in (("rank_reuse", ("reuse_cost", "model_seconds")),
                           ("rank_seconds", ("model_seconds", "reuse_cost"))):
            order = sorted(layer["list"], key=lambda one: one[rank])
            self.assertEqual([one[rank] for one in order], list(range(1, 121)))
            costs = [tuple(one[key] for key in keys) for one in order]
            self.assertEqual(costs, sorted(costs))
        self.assertEqual([layer["list"][i]["rank_seconds"] for i in layer["picks"]], [1, 2, 3])
        self.assertTrue(layer["list"][layer["picks"][0]]["nest"].endswith(" k y | c16 x k32"))  # few products
        reuse = json.loads(self.run_cli("plan", "reuse", "--json", "--problem", PLANAR, "--nest",
                                        layer["list"][17]["nest"]))
        self.assertAlmostEqual(reuse["cost"] / layer["list"][17]["reuse_cost"], 1)
        by_reuse = self.variants("--problem", PLANAR, "--rank", "reuse")["layers"][0]
        self.assertEqual(by_reuse["list"][by_reuse["picks"][0]]["rank_reuse"], 1)

    def test_spaces_directions_and_limits(self):
        count = lambda *arguments: self.variants(*arguments)["layers"][0]["variants"]
        self.assertEqual(count("--problem", "mb2ic64ih12oc64oh12kh1"), 6)
        self.assertEqual(count("--problem", PLANAR, "--limit", "7"), 7)
        self.assertGreater(count("--problem", PLANAR, "--space", "tiles"), 4)
        self.assertEqual(count("--problem", "mb2ic64ih28oc64oh28kh1", "--space", "all", "--limit", "20"), 20)
        volume = self.variants("--problem", "mb1ic64id6oc64kd3pd1")["layers"][0]
        self.assertEqual((volume["candidates"], volume["taken"]), (5040, 720))
        for direction in ("bwd_d", "bwd_w"):
            self.assertEqual(count("--problem", PLANAR, "--dir", direction), 120)
            strided = self.variants("--problem", "mb2ic64ih12oc64oh6kh3sh2ph1", "--dir", direction)["layers"][0]
            self.assertGreater(strided["variants"], 1)

    def test_the_time_of_the_models_is_printed(self):
        times = self.variants("--problem", PLANAR, "--time-models")["layers"][0]["model_times"]
        for model in ("reuse", "seconds"):
            self.assertTrue(0 < times[model]["median"] < times[model]["all"])
        table = self.run_cli("plan", "variants", "--problem", PLANAR, "--time-models")
        self.assertIn("ms of processor time per variant", table)

    def test_variants_are_measured_with_controls_and_finals(self):
        for direction in ("fwd", "bwd_d", "bwd_w"):
            report = self.variants("--problem", SMALL, "--measure", "--threads", "1", "--dir", direction)
            layer = report["layers"][0]
            self.assertEqual(report["threads"], 1)
            self.assertTrue(layer["variants"] >= 6)
            for one in layer["list"]:
                self.assertGreater(one["seconds"], 0)
                self.assertAlmostEqual(one["gflops"] * one["seconds"] * 1e9 / layer["flops"], 1)
            self.assertEqual(set(layer["finalists"]), {"pick", "best", "default", "automatic"})
            for final in layer["finalists"].values():
                self.assertEqual(len(final["rounds"]), 9)
                self.assertEqual(final["seconds"], sorted(final["rounds"])[2])
            self.assertEqual(layer["finalists"]["pick"]["nest"], layer["list"][layer["picks"][0]]["nest"])
            best = min(layer["list"], key=lambda one: one["seconds"])
            self.assertEqual(layer["finalists"]["best"]["nest"], best["nest"])
            self.assertAlmostEqual(layer["pick_over_best"],
                                   layer["finalists"]["best"]["seconds"] / layer["finalists"]["pick"]["seconds"])
            self.assertEqual(len(layer["control_seconds"]), 1 + layer["variants"] // 16)
            self.assertIn(layer["passes"], (1, 2))
            self.assertTrue(layer["steady"] or layer["passes"] == 2)
        table = self.run_cli("plan", "variants", "--problem", SMALL, "--measure", "--threads", "1")
        for word in ("6 of 6 candidates", "pick", "best", "automatic", "GFLOP/s", "about"):
            self.assertIn(word, table)

    def test_a_list_goes_on_after_a_problem_that_is_not_in_the_space(self):
        refused = 'g8ic8ih6oc8kh3ph1n"depthwise"\ng2ic32ih6oc32kh3ph1n"grouped"\n'
        (self.folder / "list.txt").write_text(f"{refused}{SMALL}\n")
        report = self.variants("--problems", "list.txt", expect=1)
        self.assertEqual(len(report["layers"]), 1)
        self.assertEqual([one["name"] for one in report["not_served"]], ["depthwise", "grouped"])
        for one in report["not_served"]:
            self.assertIn("not in this space", one["reason"])
        table = self.run_cli("plan", "variants", "--problems", "list.txt", expect=1)
        self.assertIn("not served: grouped", table)
        (self.folder / "none.txt").write_text("g8ic8ih6oc8kh3ph1\n")
        self.fails("plan", "variants", "--problems", "none.txt",
                   says=["none.txt", "no variant of any problem", "not in this space"])

    def test_a_file_continues_a_run_and_keeps_finished_layers(self):
        (self.folder / "list.txt").write_text(f'{SMALL}n"one"\n{PLANAR}n"two"\n')
        arguments = ("plan", "variants", "--problems", "list.txt", "--out", "out.json", "--measure", "--threads", "1",
                     "--limit", "8", "--json")
        whole = json.loads(self.run_cli(*arguments))
        record = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(list(record["layers"].values()), whole["layers"])
        # Measured times never repeat, so equal times were not measured again.
        self.assertEqual(json.loads(self.run_cli(*arguments)), whole)
        del record["layers"]["1"]
        (self.folder / "out.json").write_text(json.dumps(record))
        again = json.loads(self.run_cli(*arguments))
        self.assertEqual(again["layers"][0], whole["layers"][0])
        self.assertNotEqual(again["layers"][1]["control_seconds"], whole["layers"][1]["control_seconds"])

    def test_ctrl_c_and_kill_keep_finished_layers(self):
        many = "".join(f'{PLANAR}n"layer {i}"\n' for i in range(40))
        (self.folder / "list.txt").write_text(f'{SMALL}n"first"\n{many}')
        for sent, status in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            out = self.folder / f"out{sent}.json"
            process = subprocess.Popen([CONVOLUME, "plan", "variants", "--problems", "list.txt", "--out", out,
                                        "--measure", "--threads", "1"], cwd=self.folder, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            for _ in range(6000):
                if out.exists() and len(json.loads(out.read_text())["layers"]) >= 1:
                    break
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(sent)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, status, errors)
            layers = json.loads(out.read_text())["layers"]
            self.assertTrue(1 <= len(layers) < 41)
            self.assertEqual(layers["0"]["name"], "first")
            if sent == signal.SIGINT:
                self.assertIn("Run the same command to continue", errors)

    def test_files_of_other_runs_are_refused(self):
        arguments = ("plan", "variants", "--problem", SMALL, "--out", "out.json")
        self.run_cli(*arguments)
        record = json.loads((self.folder / "out.json").read_text())
        for key, value in (("machine", "Abacus"), ("version", 0), ("list", "another"), ("limit", 3)):
            (self.folder / "out.json").write_text(json.dumps({**record, key: value}))
            self.fails(*arguments, says=["out.json", f"its {key} is", "use another file"])
        (self.folder / "out.json").write_text(json.dumps({**record, "layers": {"0": 7}}))
        self.fails(*arguments, says=["out.json", "layer 0 is damaged"])
        layer = record["layers"]["0"]
        for damaged in ({**layer, "picks": [999]}, {key: value for key, value in layer.items() if key != "name"},
                        {**layer, "list": 7}):
            (self.folder / "out.json").write_text(json.dumps({**record, "layers": {"0": damaged}}))
            self.fails(*arguments, says=["out.json", "a layer is damaged"])
        for text in ("", "[]", '{"layers": 3}', json.dumps(record)[:-40]):
            (self.folder / "out.json").write_text(text)
            self.fails(*arguments, says=["out.json", "no file of `plan variants`", "use another file"])
        self.fails(*arguments[:-1], "missing/out.json", says=["missing/out.json", "folder exists"])

    def test_a_full_disk_keeps_the_layers_from_before(self):
        (self.folder / "list.txt").write_text(f'{SMALL}n"one"\n{PLANAR}n"two"\n')
        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 10, 8 << 10))
        text = self.run_cli("plan", "variants", "--problems", "list.txt", "--out", "out.json", expect=1,
                            preexec=no_room)
        self.assertIn("out.json: cannot be written", text)
        self.assertEqual(list(json.loads((self.folder / "out.json").read_text())["layers"]), ["0"])
        self.assertFalse((self.folder / "out.json.tmp").exists())
        self.run_cli("plan", "variants", "--problems", "list.txt", "--out", "out.json")

    def test_a_net_learns_from_pairs_and_ranks(self):
        others = "".join(f'mb1ic{c}ih12oc64oh12kh3ph1n"{c} channels"\n' for c in (32, 48, 64, 80, 96, 112))
        (self.folder / "list.txt").write_text(others)
        arguments = ("--problems", "list.txt", "--measure", "--threads", "1", "--limit", "16", "--out", "out.json",
                     "--dataset", "variant_pairs.h5")
        pairs = self.variants(*arguments)["pairs"]
        self.assertEqual((pairs["training_layers"], pairs["held_out_layers"]), (2, 4))
        self.assertEqual(pairs["training_pairs"] + pairs["held_out_pairs"] + pairs["nearly_equal_pairs"], 720)
        self.assertEqual(set(pairs["in_order"]), {"reuse", "seconds"})
        for part, count in (("training", pairs["training_pairs"]), ("validation", pairs["held_out_pairs"])):
            self.assertIn(f"8 x 1 x {count}", self.run_cli("info", f"variant_pairs.h5:/version_1/{part}/image"))
        table = self.run_cli("plan", "variants", *arguments)
        self.assertIn("layers to learn from", table)
        self.assertIn("of the held-out pairs as measured", table)
        zoo = pathlib.Path(__file__).resolve().parents[2] / "nets/zoo"
        self.run_cli("train", zoo / "pair_ranker.toml", "--data", zoo / "data/pair_ranker.toml", "--out", "ranker",
                     "--iterations", "20", "--set", "input.patch=[8,1,4]", "--quiet",
                     env={"CONVOLUME_DATA_DIR": str(self.folder)})
        other = (zoo / "pair_ranker.toml").read_text().replace("softsign", "tanh")
        (self.folder / "other.toml").write_text(other)
        self.run_cli("train", "other.toml", "--data", zoo / "data/pair_ranker.toml", "--out", "other", "--iterations",
                     "1", "--set", "input.patch=[8,1,4]", "--quiet", env={"CONVOLUME_DATA_DIR": str(self.folder)})
        self.fails("plan", "variants", "--problem", SMALL, "--rank", f"dnn:{self.last('other')}",
                   says=["other layers than figure 5", "pair_ranker.toml"])
        net = "dnn:ranker/checkpoints/last.safetensors"
        ranked = self.variants("--problem", PLANAR, "--rank", net)
        layer = ranked["layers"][0]
        self.assertTrue(ranked["rank"].startswith("dnn "))
        self.assertEqual(sorted(one["rank_dnn"] for one in layer["list"]), list(range(1, 121)))
        self.assertEqual(layer["list"][layer["picks"][0]]["rank_dnn"], 1)
        self.assertIn("\ndnn ", self.run_cli("plan", "variants", "--problem", PLANAR, "--rank", net))
        # The same times, ranked by the net: its loops agree with the validation of the training.
        header = self.parts("ranker")[0]["__metadata__"]
        record = json.loads((self.folder / "out.json").read_text())
        (self.folder / "out.json").write_text(json.dumps({**record, "rank": f"dnn {header['digest']}"}))
        judged = self.variants(*arguments, "--rank", net)["pairs"]["in_order"]
        metrics = json.loads((self.folder / "ranker/metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(set(judged), {"reuse", "seconds", "dnn"})
        # A pair whose probabilities are equal but for rounding may fall on either side.
        self.assertAlmostEqual(judged["dnn"], 1 - metrics["pixel_error"], delta=0.01)

    def test_pairs_and_rankers_that_do_not_fit_are_refused(self):
        def refused(*arguments, says, problem=("--problem", SMALL)):
            self.fails("plan", "variants", *problem, *arguments, says=says)

        refused("--rank", "fastest", says=["--rank fastest", "dnn:FILE"])
        refused("--rank", "dnn:missing.safetensors", says=["missing.safetensors"])
        (self.folder / "text.safetensors").write_text("no checkpoint")
        refused("--rank", "dnn:text.safetensors", says=["text.safetensors"])
        self.train()
        refused("--rank", f"dnn:{self.last()}", says=[str(self.last()), "the net 'small' has no tensor 'features_1.weight'", "pair_ranker.toml"])
        refused("--dataset", "pairs.h5", says=["--dataset", "--measure"])
        refused("--dataset", "pairs.tif", "--measure", says=["pairs.tif", ".h5"])
        refused("--dataset", "missing/pairs.h5", "--measure", says=["missing/pairs.h5"])
        self.run_cli("export", "data.toml", "--image", "image.tif", "--label", "label.tif")
        self.run_cli("convert", "image.tif", "image.h5:/raw")
        refused("--dataset", "image.h5", "--measure", says=["image.h5", "/raw", "use another file"])
        refused("--dataset", "pairs.h5", "--measure", "--threads", "1", says=["of 1 layers are held out", "longer list"])
        self.assertFalse((self.folder / "pairs.h5").exists())
        self.assertEqual(list(self.folder.glob("pairs.h5.tmp*")), [])

    def test_a_full_disk_keeps_the_pairs_from_before(self):
        (self.folder / "list.txt").write_text(f'{SMALL}n"one"\n{PLANAR}n"two"\n')
        arguments = ("plan", "variants", "--problems", "list.txt", "--measure", "--threads", "1", "--limit", "16",
                     "--dataset", "pairs.h5")
        self.run_cli(*arguments)
        before = (self.folder / "pairs.h5").read_bytes()
        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 10, 2 << 10))
        self.assertIn("pairs.h5", self.run_cli(*arguments, expect=1, preexec=no_room))
        self.assertEqual((self.folder / "pairs.h5").read_bytes(), before)
        self.assertEqual([one.name for one in self.folder.glob("pairs.h5*")], ["pairs.h5"])

    def test_nonsense_is_refused_with_the_value_and_the_remedy(self):
        def refused(*arguments, says, problem=("--problem", SMALL)):
            self.fails("plan", "variants", *problem, *arguments, says=says)

        refused("--limit", "0", says=["--limit 0", "at least 1"])
        refused("--top", "0", says=["--top 0", "at least 1"])
        refused("--top", "7", says=["--top 7", "there are 6 variants"])
        refused("--threads", "-1", says=["--threads -1", "positive"])
        refused(problem=("--problem", "g8ic8ih6oc8kh3ph1"), says=["8 groups", "not in this space"])
        refused(problem=("--problem", "nonsense"), says=["benchdnn"])
        refused(problem=("--problems", "missing.txt"), says=["missing.txt", "path"])
        (self.folder / "bad.txt").write_text(f"{SMALL}\nic4junk\n")
        refused(problem=("--problems", "bad.txt"), says=["bad.txt:2"])
        (self.folder / "empty.txt").write_text("# nothing\n")
        refused(problem=("--problems", "empty.txt"), says=["contains no problem"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
