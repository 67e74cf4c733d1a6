#!/usr/bin/env python3
"""Training runs of the convolume command: logs, checkpoints, reports, data sets, and what is left when a run breaks."""

import base64
import json
import os
import random
import re
import resource
import shutil
import signal
import unittest

from command import DATA, NET, CliTest, tiff


class Runs(CliTest):
    def test_train_writes_log_checkpoints_and_report(self):
        text = self.train()
        for part in ("pixel error", "ROC AUC", "last.safetensors", "metrics.jsonl", "report.html", "slice.png"):
            self.assertIn(part, text)
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["iteration"] for line in lines], [1, 2, 3, 4, 5, 6])
        self.assertEqual([i + 1 for i, line in enumerate(lines) if "roc_auc" in line], [3, 6])
        self.assertTrue(all({"seconds", "loss"} <= line.keys() for line in lines))
        names = sorted(path.name for path in self.last().parent.iterdir())
        self.assertEqual(names, ["iteration-00000002.safetensors", "iteration-00000004.safetensors",
                                 "iteration-00000006.safetensors", "last.safetensors"])
        self.assertEqual(self.last().read_bytes(), (self.last().parent / names[2]).read_bytes())

    def test_resume_gives_the_bytes_of_an_uninterrupted_run_for_any_k_and_any_threads(self):
        self.train("whole", "--threads", 1)
        for k in range(1, 6):
            self.train(f"k{k}", "--iterations", k, "--threads", 2)
            self.train(f"k{k}", "--resume", "--threads", 3)
            self.assertEqual(self.digest(f"k{k}"), self.digest("whole"), f"k = {k}")
        lines = (self.folder / "k3/metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["iteration"] for line in lines], [1, 2, 3, 4, 5, 6])

    def test_a_run_goes_on_with_the_same_bits_on_a_machine_that_would_choose_otherwise(self):
        # A machine whose direct sums are slow transforms everything; one whose transforms are slow sums everything.
        rows = {}
        for name, direct, transform in [("sums", 1.0, 0.005), ("transforms", 0.005, 1.0)]:
            text = self.run_cli("machine", "--row")
            for value, share in [("direct", direct), ("tile_transform", transform), ("spilled_tile_transform", transform),
                                 ("volume_transform", transform)]:
                text = re.sub(rf"^{value} = {{ value = [0-9.e-]+,", f"{value} = {{ value = {share},", text, flags=re.M)
            rows[name] = f"{name}.toml"
            (self.folder / rows[name]).write_text(text)
        for row, other in [("sums", "transforms"), ("transforms", "sums")]:
            self.train(f"{row}-whole", "--machine", rows[row])
            self.train(f"{row}-half", "--machine", rows[row], "--iterations", 2)
            self.train(f"{row}-half", "--machine", rows[other], "--resume", "--threads", 2)
            self.assertEqual(self.choices(f"{row}-whole"), self.choices(f"{row}-half"))
            self.assertEqual(self.parts(f"{row}-whole")[1], self.parts(f"{row}-half")[1])
        self.assertNotEqual(self.choices("sums-whole"), self.choices("transforms-whole"))

    def test_a_tuned_run_is_resumed_with_its_choices_whether_asked_to_tune_or_not(self):
        self.train("tuned", "--tune", "--iterations", 2)
        shutil.copytree(self.folder / "tuned", self.folder / "copy")
        self.train("tuned", "--resume", "--tune", "--threads", 1)
        self.train("copy", "--resume", "--threads", 3)
        self.assertEqual(self.digest("tuned"), self.digest("copy"))
        self.assertIn(b".tuned = ", self.last("copy").read_bytes())
        self.train("untuned", "--iterations", 2)
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "untuned", "--resume", "--tune",
                   says=["without --tune"])

    def test_low_error_leaves_toom_cook_out_and_a_run_keeps_its_choices(self):
        layer = """[[node]]
name = "conv{}"
type = "conv"
out_channels = 16
kernel = [3, 3, 3]
padding = "same"
activation = "relu"
"""
        text = NET.replace("patch = [2, 16, 16]", "patch = [4, 16, 16]")
        first = text.index("[[node]]"), text.index("[[node]]\nname = \"logits\"")
        (self.folder / "net.toml").write_text(text[:first[0]] + layer.format(1) + layer.format(2) + text[first[1]:])
        self.train("whole", "--low-error")
        self.train("half", "--low-error", "--iterations", 2)
        self.assertFalse(any("toom_cook" in line for line in self.choices("whole")))
        # Without the flag, the cost model may choose toom_cook. A run keeps the choices that it began with.
        self.train("half", "--resume")
        self.assertEqual(self.choices("half"), self.choices("whole"))
        self.assertEqual(self.digest("half"), self.digest("whole"))
        self.train("windows", "--engine", "toom_cook", "--iterations", 2)
        self.assertIn("node.conv2.choice = toom_cook 4x4x4", self.choices("windows"))
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "windows", "--engine", "toom_cook", "--resume",
                   "--low-error", says=["last.safetensors", "conv2", "toom_cook 4x4x4", "--low-error"])
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "new", "--engine", "toom_cook", "--low-error",
                   says=["engine 'toom_cook' has a larger error", "--low-error"])

    def test_a_run_is_never_overwritten_by_accident(self):
        self.train("run", "--iterations", 2)
        before = self.digest()
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", says=["run:", "--resume"])
        self.assertEqual(self.digest(), before)
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "new", "--resume", says=["no checkpoint"])

    def test_resume_refuses_another_net_seed_data_or_instruction_set(self):
        self.train("run", "--iterations", 2)
        before = self.digest()
        resume = ["train", "net.toml", "--data", "data.toml", "--out", "run", "--resume"]
        self.fails(*resume, "--seed", 99, says=["--seed 1", "99"])
        self.fails(*resume, "--set", "optimizer.learning_rate=0.5", says=["optimizer", "0.01", "0.5", "--set"])
        targets = self.run_cli("info").split("available: ")[1].split(";")[0].split(", ")
        if len(targets) > 1:  # Builds for one target have one.
            self.fails(*resume, says=["bit for bit", f"set CONVOLUME_SIMD={targets[0]}"],
                       env={"CONVOLUME_SIMD": targets[1]})
        (self.folder / "data.toml").write_text(DATA.replace("cell_diameter = 10", "cell_diameter = 11"))
        self.fails(*resume, says=["other data"])
        (self.folder / "data.toml").write_text(DATA)
        (self.folder / "net.toml").write_text(NET.replace("out_channels = 4", "out_channels = 5"))
        self.fails(*resume, says=["another net", "small"])
        self.assertEqual(self.digest(), before)

    def test_a_damaged_log_does_not_stop_a_resume(self):
        self.train("run", "--iterations", 3)
        log = self.folder / "run/metrics.jsonl"
        for rest in ('{"iteration": "a"}\n', '{"iteration": 3}\n', "[1]\n", '{"iteration": 3, "lo'):
            log.write_text("".join(log.read_text().splitlines(True)[:2]) + rest)
            shutil.copytree(self.folder / "run", self.folder / "copy")
            self.train("copy", "--resume", "--iterations", 5)
            lines = [json.loads(line) for line in (self.folder / "copy/metrics.jsonl").read_text().splitlines()]
            self.assertEqual(lines[-1]["iteration"], 5)
            shutil.rmtree(self.folder / "copy")

    def test_old_checkpoints_go_after_resumes_too(self):
        for total in (2, 4, 6, 8, 10):
            self.train("run", "--iterations", total, *(["--resume"] if total > 2 else []))
        names = sorted(path.name for path in self.last().parent.iterdir())
        self.assertEqual(names, [f"iteration-{i:08}.safetensors" for i in (6, 8, 10)] + ["last.safetensors"])
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", "--iterations", 10,
                   says=["at iteration 10 of 10"])

    def test_a_full_disk_leaves_the_last_good_checkpoint_and_no_rest(self):
        self.train("run", "--iterations", 2)
        before = self.digest()
        size = self.last().stat().st_size

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        text = self.train("run", "--resume", "--set", "training.validate_every=100", expect=1, preexec=small_files)
        self.assertIn("safetensors", text)
        self.assertEqual(self.digest(), before)
        self.assertFalse([p for p in self.last().parent.iterdir() if "tmp" in p.name])

        def files_without_a_report():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        text = self.train("run", "--resume", "--iterations", 3, expect=1, preexec=files_without_a_report)
        self.assertIn("report.html", text)
        self.assertNotEqual(self.digest(), before)  # the checkpoint came first
        self.assertFalse([p for p in (self.folder / "run/report").iterdir() if "tmp" in p.name])
        self.train("run", "--resume")
        (self.folder / "v.tif").write_bytes(tiff(2, 16, 16))

        def tiny_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        self.run_cli("infer", self.last(), "v.tif", "--out", "p.tif", expect=1, preexec=tiny_files)
        self.assertFalse([p for p in self.folder.iterdir() if p.name.startswith("p.tif")])

    def test_ctrl_c_saves_a_checkpoint_and_the_run_can_be_resumed_exactly(self):
        process = self.start()
        self.wait_for_lines(process, 5)
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130, text)
        self.assertIn("interrupted at iteration", text)
        done = int(text.split("interrupted at iteration ")[1].split(",")[0])
        self.train("run", "--resume", "--iterations", done + 3)
        self.train("whole", "--iterations", done + 3)
        self.assertEqual(self.digest(), self.digest("whole"))

    def test_a_killed_run_leaves_a_whole_checkpoint(self):
        process = self.start()
        self.wait_for_lines(process, 9)
        process.kill()
        process.communicate()
        self.train("run", "--resume", "--iterations", 40000, "--max-minutes", 0.01)
        lines = [json.loads(line)["iteration"] for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(lines, list(range(1, len(lines) + 1)))

    def test_a_loss_that_explodes_stops_with_iteration_and_layer_and_keeps_the_last_checkpoint(self):
        (self.folder / "net.toml").write_text(NET.replace("[optimizer]\nlearning_rate = 0.01",
                                                          '[optimizer]\nkind = "sgd"\nlearning_rate = 1e6')
                                              .replace("checkpoint_every = 2", "checkpoint_every = 1"))
        text = self.train("run", "--iterations", 200, expect=1)
        self.assertRegex(text, r"iteration \d+: the (loss|gradient)")
        self.assertTrue("layer" in text or "gradient of" in text, text)
        self.assertIn("the weights were not changed", text)
        (self.folder / "v.tif").write_bytes(tiff(2, 16, 16))
        self.run_cli("infer", self.last(), "v.tif", "--out", "p.tif")

    # The best checkpoint, and the end -----------------------------------------------------------------------------------

    def write_net(self, training, learning_rate="0.01"):
        text = NET.replace("learning_rate = 0.01", f"learning_rate = {learning_rate}")
        (self.folder / "net.toml").write_text(text[:text.index("[training]")] + "[training]\n" + training)

    def metrics(self, out="run"):
        return [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]

    def checkpoint(self, name, out="run"):
        return (self.folder / out / "checkpoints" / name).read_bytes()

    def test_the_best_checkpoint_is_kept(self):
        for score, better in (("roc_auc", max), ("pixel_error", min)):
            self.write_net(f'best = "{score}"\nvalidate_every = 2\ncheckpoint_every = 100\n', 0.3)
            text = self.train(score, "--iterations", 13)
            validated = [line for line in self.metrics(score) if score in line and line["iteration"] % 2 == 0]
            best = better(line[score] for line in validated)
            iteration = next(line["iteration"] for line in validated if line[score] == best)
            self.assertRegex(text, rf"best .*best.safetensors \({score} {best:.4f} at iteration {iteration}\)")
            # It is the checkpoint of that iteration, to the bit.
            self.train(f"{score}-until", "--iterations", iteration)
            self.assertEqual(self.checkpoint("best.safetensors", score),
                             self.checkpoint("last.safetensors", f"{score}-until"))

    def test_a_resumed_run_keeps_the_same_best_checkpoint(self):
        self.write_net('best = "roc_auc"\nvalidate_every = 2\ncheckpoint_every = 100\n', 0.3)
        self.train("whole", "--iterations", 9)
        for k in range(1, 9):
            self.train(f"k{k}", "--iterations", k)
            self.train(f"k{k}", "--iterations", 9, "--resume")
            for name in ("best.safetensors", "last.safetensors"):
                self.assertEqual(self.checkpoint(name, f"k{k}"), self.checkpoint(name, "whole"), (k, name))

    def test_a_validation_that_was_interrupted_is_done_after_the_resume(self):
        self.write_net('best = "roc_auc"\nvalidate_every = 1\ncheckpoint_every = 1\n', 0.3)
        process = self.start()
        self.wait_for_lines(process, 5)
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[0]
        done = int(text.split("interrupted at iteration ")[1].split(",")[0])
        self.train("run", "--resume", "--iterations", done + 2)
        self.train("whole", "--iterations", done + 2)
        self.assertEqual(self.digest(), self.digest("whole"))
        strip = lambda lines: [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
        self.assertEqual(strip(self.metrics()), strip(self.metrics("whole")))

    def test_a_run_ends_early_and_says_how_to_go_on(self):
        self.write_net('best = "dice"\nearly_stop = 3\nvalidate_every = 2\n', 1e-30)
        text = self.train("run", "--iterations", 100)
        self.assertIn("ended early at iteration 8", text)
        self.assertEqual(len(self.metrics()), 8)
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", "--iterations", 100,
                   says=["iteration 2", "training.early_stop=6"])
        text = self.train("run", "--resume", "--iterations", 100, "--set", "training.early_stop=6")
        self.assertIn("ended early at iteration 14", text)

    def test_another_score_or_another_validation_volume_is_refused_on_a_resume(self):
        self.write_net('best = "dice"\nvalidate_every = 2\n')
        self.train("run", "--iterations", 2)
        resume = ["train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", "--iterations", 4]
        self.fails(*resume, "--set", 'training.best="iou"', says=["best dice", "compares iou", "training"])
        (self.folder / "data.toml").write_text(DATA.replace("slices = [4, 6]", "slices = [3, 5]"))
        self.fails(*resume, says=["best dice", "[[validation]]"])
        (self.folder / "data.toml").write_text(DATA)
        self.run_cli(*resume)

    def test_scores_that_make_no_best_are_refused_by_key(self):
        train = ["train", "net.toml", "--data", "data.toml", "--out", "run"]
        self.write_net('best = "dices"\n')
        self.fails(*train, says=["training.best", "dices", "pixel_error, roc_auc, dice, iou"])
        self.write_net("early_stop = 3\n")
        self.fails(*train, says=["net.toml:", "early_stop", 'best = "dice"'])
        self.write_net('best = "dice"\n')
        (self.folder / "data.toml").write_text(DATA[:DATA.index("[[validation]]")])
        self.fails(*train, says=["training.best", "[[validation]]", "data.toml"])

    # The report ---------------------------------------------------------------------------------------------------------

    def report(self, out="run"):
        page = (self.folder / out / "report/report.html").read_text()
        # One file: nothing is loaded from elsewhere.
        self.assertIsNone(re.search(r"(src|href)\s*=\s*[\"'](?!data:)", re.sub(r"<script>.*?</script>", "", page, flags=re.S)))
        found = re.findall(r'<script type="application/json" id="report">(.*?)</script>', page, flags=re.S)
        self.assertEqual(len(found), 1)
        return json.loads(found[0])

    def test_the_report_holds_the_course_the_slices_and_the_trace(self):
        (self.folder / "data.toml").write_text(DATA.replace('"synthetic"', '"</script><b>"', 1))
        self.train("run", "--iterations", 6)
        report = self.report()
        self.assertEqual(report["title"], "small on </script><b>")
        self.assertIn("finished at iteration 6 of 6", report["state"])
        self.assertEqual([loss[0] for loss in report["losses"]], [1, 2, 3, 4, 5, 6])
        self.assertEqual([loss[1] for loss in report["losses"]], [line["loss"] for line in self.metrics()])
        self.assertEqual([(v["iteration"], v["scores"]["dice"]) for v in report["validations"]],
                         [(line["iteration"], line["dice"]) for line in self.metrics() if "dice" in line])
        volume = report["volume"]
        self.assertEqual((volume["z"], volume["width"], volume["height"], volume["classes"]), ([0, 1], 32, 32, 0))
        for name in ("image", "label", "prediction"):
            for picture in volume[name]:
                self.assertTrue(base64.b64decode(picture, validate=True).startswith(b"\x89PNG"))
        trace = report["trace"]
        self.assertEqual(trace["iterations"], 3)
        self.assertTrue(all(0 <= begin and begin + duration <= trace["microseconds"] + 0.02
                            for _, begin, duration, _, _ in trace["events"]))
        self.assertIn("learning_rate = 0.01", dict(report["texts"])["Net and recipe"])
        self.assertIn("[[validation]]", dict(report["texts"])["Data"])

    def test_the_report_is_written_without_validation_and_thins_long_courses(self):
        (self.folder / "data.toml").write_text(DATA[:DATA.index("[[validation]]")])
        self.train("run", "--iterations", 1500)
        report = self.report()
        self.assertEqual((report["volume"], report["validations"]), (None, []))
        self.assertEqual(len(report["losses"]), 1000)
        self.assertEqual(report["losses"][-1][0], 1500)
        self.assertTrue(all(low <= mean <= high for _, mean, low, high in report["losses"]))

    def test_a_killed_run_has_a_report(self):
        process = self.start()
        self.wait_for_lines(process, 9)
        process.kill()
        process.communicate()
        self.assertIn("is running", self.report()["state"])
        self.assertGreaterEqual(len(self.report()["validations"]), 1)

    # Data sets ----------------------------------------------------------------------------------------------------------

    def write_array(self, folder, labels, shape=(4, 24, 24)):
        """Noise, or labels of 0 and 1."""
        folder.mkdir(parents=True)
        (folder / ".zarray").write_text(json.dumps({
            "zarr_format": 2, "shape": shape, "chunks": shape, "dtype": "|u1", "compressor": None, "fill_value": 0,
            "order": "C", "filters": None}))
        voxels = random.randbytes(shape[0] * shape[1] * shape[2])
        (folder / "0.0.0").write_bytes(voxels.translate(bytes(i & 1 for i in range(256))) if labels else voxels)

    def write_cases(self, *cases):
        """Cases of 4 x 24 x 24 voxels: images/NAME.zarr and labels/NAME.zarr."""
        random.seed(7)
        for case in cases:
            self.write_array(self.folder / "images" / f"{case}.zarr", False)
            self.write_array(self.folder / "labels" / f"{case}.zarr", True)
        (self.folder / "data.toml").write_text("""
            name = "cases"
            [[train]]
            image = "images/*.zarr"
            label = "labels/*.zarr"
            not_cases = ["c"]
            [[validation]]
            image = "images/*.zarr"
            label = "labels/*.zarr"
            cases = ["c"]
            """)

    def test_statistics_are_kept_and_a_changed_volume_is_named(self):
        self.write_cases("a", "b", "c")
        self.train("run", "--iterations", 2)
        kept = json.loads((self.folder / "run/data.json").read_text())
        self.assertEqual(len(kept["cases"]), 3)
        chunk = self.folder / "images/b.zarr/0.0.0"
        os.utime(chunk, ns=(1, 1))
        resume = ["train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", "--iterations", 4]
        self.fails(*resume, says=["images/b.zarr", "--verify-data"])
        # The voxels are the same.
        self.run_cli(*resume, "--verify-data")
        self.train("whole", "--iterations", 4)
        self.assertEqual(self.digest(), self.digest("whole"))
        chunk.write_bytes(bytes(4 * 24 * 24 - 1) + b"\1")
        self.fails(*resume[:-1], 6, "--verify-data", says=["other data"])

    def test_volumes_that_do_not_fit_into_memory_give_the_same_bits(self):
        text = self.fails("train", "net.toml", "--data", "data.toml", "--out", "small", "--memory", "1M",
                          says=["--memory 1M", "at least"])
        least = int(re.search(r"at least (\d+)M", text).group(1))
        self.write_cases("a", "b", "c")
        # This volume is larger than the least memory for volumes, 16 MiB.
        self.write_array(self.folder / "images/d.zarr", False, (20, 1024, 1024))
        self.write_array(self.folder / "labels/d.zarr", True, (20, 1024, 1024))
        self.train("run", "--memory", f"{least}M")
        self.assertEqual([row[-1] for row in self.report()["tables"][1]["rows"]],
                         ["in memory", "in memory", "read when needed", "in memory"])
        self.train("whole")
        self.assertEqual(self.digest(), self.digest("whole"))

    def test_little_memory_trains_the_same_bits(self):
        layers = "".join(f'[[node]]\nname = "c{i}"\ntype = "conv"\nout_channels = 32\nkernel = 5\npadding = "same"\n'
                         'activation = "relu"\n' for i in range(4))
        net = NET.replace("[2, 16, 16]", "16").replace('[[node]]\nname = "conv1"', layers + '[[node]]\nname = "conv1"')
        (self.folder / "net.toml").write_text(net)
        (self.folder / "data.toml").write_text(DATA.replace("[6, ", "[36, ").replace("4]", "20]").replace(
            "[4, 6]", "[20, 36]"))
        points = json.loads(self.run_cli("info", "net.toml", "--memory-curve", "--json", "--threads", 2))["points"]
        self.assertGreater(len(points), 1)
        for point in points:
            self.assertEqual(point["memory_option_bytes"] % (1 << 20), 0)
        least = points[-1]["memory_option_bytes"] >> 20
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "small", "--threads", 2, "--memory",
                   f"{least - 1}M", says=[f"--memory {least - 1}M", f"at least {least}M", "--memory-curve"])
        self.train("run", "--threads", 2, "--memory", f"{least}M")
        self.train("whole", "--threads", 2)
        self.assertEqual(self.digest(), self.digest("whole"))

    def test_validation_volumes_that_do_not_fit_into_memory_are_refused(self):
        text = self.fails("train", "net.toml", "--data", "data.toml", "--out", "small", "--memory", "1M",
                          says=["at least"])
        least = int(re.search(r"at least (\d+)M", text).group(1))
        self.write_cases("a", "b", "c")
        for kind in ("images", "labels"):
            self.write_array(self.folder / f"{kind}/z.zarr", kind == "labels", (4, 600, 600))
        data = (self.folder / "data.toml").read_text().split("[[validation]]")[0]
        (self.folder / "data.toml").write_text(
            data + '[[validation]]\nimage = "images/z.zarr"\nlabel = "labels/z.zarr"\n')
        text = self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", "--memory", f"{least}M",
                          says=["validation volumes", "raise --memory by"])
        more = int(re.search(r"raise --memory by (\d+)M", text).group(1))
        self.train("run", "--memory", f"{least + more}M", "--iterations", 1)

    def test_volumes_of_one_file_have_statistics_of_their_own(self):
        random.seed(7)
        for name in ("t", "v"):
            (self.folder / f"all.zarr/{name}").mkdir(parents=True)
            (self.folder / f"all.zarr/{name}/.zgroup").write_text('{"zarr_format": 2}')
            self.write_array(self.folder / f"all.zarr/{name}/raw", False)
            self.write_array(self.folder / f"all.zarr/{name}/label", True)
        (self.folder / "all.zarr/.zgroup").write_text('{"zarr_format": 2}')
        chunk = self.folder / "all.zarr/v/raw/0.0.0"
        chunk.write_bytes(bytes(b // 8 + 100 for b in chunk.read_bytes()))
        case = 'image = "all.zarr:/{0}/raw"\nlabel = "all.zarr:/{0}/label"\n'
        text = 'name = "one file"\n[[train]]\n' + case.format("t") + "[[validation]]\n" + case.format("v")
        (self.folder / "data.toml").write_text(text)
        self.train("whole")
        self.train("run", "--iterations", 3)
        self.train("run", "--resume")
        self.assertEqual(self.metrics()[-1]["dice"], self.metrics("whole")[-1]["dice"])
        self.assertEqual(self.digest(), self.digest("whole"))
        (self.folder / "data.toml").write_text(text.replace(case.format("t"), case.format("v"), 1))
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", "--iterations", 9,
                   says=["other data"])

    def test_all_files_of_a_volume_are_compared_and_no_others(self):
        # A pair of NIfTI files, and slices in the folder of the run.
        (self.folder / "v.tif").write_bytes(tiff(6, 24, 24, value=9))
        self.run_cli("convert", "v.tif", "v.nii")
        header = bytearray((self.folder / "v.nii").read_bytes()[:348])
        header[344:348] = b"ni1\0"
        header[108:112] = b"\0\0\0\0"
        (self.folder / "p.hdr").write_bytes(bytes(header))
        random.seed(7)
        (self.folder / "p.img").write_bytes(random.randbytes(6 * 24 * 24))
        self.write_array(self.folder / "s.zarr", True, (6, 24, 24))
        self.run_cli("convert", "s.zarr", "l_*.tif")
        (self.folder / "data.toml").write_text('name = "files"\n[[train]]\nimage = "p.hdr"\nlabel = "l_*.tif"\n')
        self.train("run", "--iterations", 2)
        resume = ["train", "net.toml", "--data", "data.toml", "--out", "run", "--resume", "--iterations"]
        self.run_cli(*resume, 3)
        os.utime(self.folder / "p.img", ns=(1, 1 << 62))
        self.fails(*resume, 4, says=["p.hdr", "--verify-data"])

    def test_scores_are_those_of_an_inference_with_another_spacing(self):
        self.write_cases("a", "b", "c")
        text = (self.folder / "data.toml").read_text()
        text = text.replace("[[train]]", "[spacing]\ntarget = [2, 2, 4]\n[[train]]\nspacing = [2, 2, 3]")
        (self.folder / "data.toml").write_text(text.replace("[[validation]]", "[[validation]]\nspacing = [2, 2, 3]"))
        self.train("run", "--iterations", 6, "--set", "optimizer.learning_rate=0.1")
        infer = ["infer", self.last(), "images/c.zarr", "--out"]
        self.fails(*infer, "p.zarr", says=["images/c.zarr", "--spacing"])
        self.fails(*infer, "p.zarr", "--spacing", "200,200,300", says=["200 x 200 x 300", "2 x 2 x 4"])
        for name, more in (("p.zarr", []), ("p.h5", []), ("p.tif", ["--uint8"]), ("l.zarr", ["--labels"])):
            self.run_cli(*infer, name, "--spacing", "2,2,3", *more)
            classes = ["--classes", 2] if "--labels" in more else []
            score = json.loads(self.run_cli("eval", name, "labels/c.zarr", "--json", *classes))
            for key in ("dice", "pixel_error"):
                self.assertAlmostEqual(score[key], self.metrics()[-1][key], delta=0.15 if "--labels" in more else 0.02)
        # Parts and threads do not change the bits.
        self.run_cli(*infer, "one.zarr", "--spacing", "2,2,3", "--threads", 1)
        self.run_cli(*infer, "box.h5", "--spacing", "2,2,3", "--box", "1:3,4:20,5:24")
        self.run_cli("convert", "one.zarr", "cut.h5", "--box", "1:3,4:20,5:24")
        whole = self.run_cli("eval", "one.zarr", "labels/c.zarr", "--json")
        self.assertEqual(whole, self.run_cli("eval", "p.zarr", "labels/c.zarr", "--json"))
        self.assertIn("2 x 16 x 19", self.run_cli("info", "box.h5"))
        # Without [spacing], the option is an error.
        (self.folder / "data.toml").write_text(DATA)
        self.train("plain")
        self.fails("infer", self.last("plain"), "images/c.zarr", "--out", "q.zarr", "--spacing", "1,1,1",
                   says=["--spacing", "leave the option out"])

    def test_images_are_interpolated_cubically_in_training_and_in_inference(self):
        self.write_cases("a", "b", "c")
        text = (self.folder / "data.toml").read_text().replace("[[validation]]", "[[validation]]\nspacing = [2, 2, 3]")
        text = text.replace("[[train]]", "[spacing]\ntarget = [2, 3, 2]\n%s[[train]]\nspacing = [2, 2, 3]")
        scores = []
        for name, image in (("linear", ""), ("cubic", 'image = "cubic"\n')):
            (self.folder / "data.toml").write_text(text % image)
            self.train(name, "--set", "optimizer.learning_rate=0.1", "--iterations", 3)
            self.train(name, "--set", "optimizer.learning_rate=0.1", "--resume")
            self.run_cli("infer", self.last(name), "images/c.zarr", "--out", f"{name}.zarr", "--spacing", "2,2,3")
            score = json.loads(self.run_cli("eval", f"{name}.zarr", "labels/c.zarr", "--json"))
            self.assertAlmostEqual(score["roc_auc"], self.metrics(name)[-1]["roc_auc"], delta=1e-4)
            scores.append(score["roc_auc"])
        self.assertNotAlmostEqual(*scores, delta=1e-4)
        resume = ["train", "net.toml", "--data", "data.toml", "--out", "linear", "--resume", "--iterations", 9]
        self.fails(*resume, "--set", "optimizer.learning_rate=0.1", says=["other data"])

    def test_patterns_that_find_nothing_are_refused(self):
        self.write_cases("a", "b", "c")
        text = (self.folder / "data.toml").read_text()
        train = ["train", "net.toml", "--data", "data.toml", "--out", "run"]
        for old, new, says in (("images/*.zarr", "pictures/*.zarr", "pictures"), ('cases = ["c"]', 'cases = ["d"]', "d"),
                               ("labels/*.zarr", "labels/*_x.zarr", "labels")):
            (self.folder / "data.toml").write_text(text.replace(old, new))
            self.fails(*train, says=["data.toml:", says])

    def test_a_preview_shows_patches(self):
        self.write_cases("a", "b", "c")
        self.run_cli("preview", "data.toml", "--net", "net.toml", "--out", "p.png", "--count", 5)
        self.assertTrue((self.folder / "p.png").read_bytes().startswith(b"\x89PNG"))
        before = (self.folder / "p.png").read_bytes()
        self.run_cli("preview", "data.toml", "--net", "net.toml", "--out", "p.png", "--count", 5, "--seed", 2)
        self.assertNotEqual((self.folder / "p.png").read_bytes(), before)


if __name__ == "__main__":
    unittest.main(verbosity=1)
