#!/usr/bin/env python3
"""One process at a time works on a run folder or an output. Usage: owner_test.py CONVOLUME [--pairs NUMBER]"""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

PAIRS = int(sys.argv.pop(sys.argv.index("--pairs") + 1)) if "--pairs" in sys.argv else 10
if "--pairs" in sys.argv:
    sys.argv.remove("--pairs")

from command import CONVOLUME, CliTest  # noqa: E402

ITERATIONS = 120


class Owner(CliTest):
    def setUp(self):
        super().setUp()
        text = (self.folder / "net.toml").read_text()
        (self.folder / "net.toml").write_text(text.replace("checkpoint_every = 2", "checkpoint_every = 20"))

    def command(self, *more):
        return [CONVOLUME, "train", "net.toml", "--data", "data.toml", "--out", "run", "--iterations", str(ITERATIONS),
                "--threads", "1", "--quiet", *more]

    def begin(self, *more):
        return subprocess.Popen(self.command(*more), cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)

    def losses(self, out):
        lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        return [(line["iteration"], line["loss"]) for line in lines]

    def resumes(self):
        return ["--resume"] if self.last().exists() else []

    def test_pairs_of_processes_never_work_on_one_folder(self):
        whole = self.command()
        whole[whole.index("run")] = "whole"
        subprocess.run(whole, cwd=self.folder, check=True, capture_output=True)
        numbers = random.Random(7)
        refused = killed = 0
        for pair in range(PAIRS):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            if pair % 2:  # two resumes of a run of some iterations
                begun = self.command()
                begun[begun.index(str(ITERATIONS))] = str(numbers.randrange(1, ITERATIONS - 1))
                subprocess.run(begun, cwd=self.folder, check=True, capture_output=True)
            running = [self.begin(*self.resumes())]
            time.sleep(numbers.choice([0, numbers.random() * 0.2]))
            # The second one asks for a fresh run or a resume, as it finds the folder.
            running.append(self.begin(*self.resumes()))
            if pair % 5 < 3:
                time.sleep(numbers.random() * 0.4)
                killed += running[0].poll() is None
                running[0].send_signal(signal.SIGKILL)
            texts = [process.communicate(timeout=120)[0] for process in running]
            codes = [process.returncode for process in running]
            for code, text, other in zip(codes, texts, reversed(running)):
                self.assertIn(code, (0, 1, -signal.SIGKILL), text)
                if code == 1 and "belongs to" in text:
                    refused += 1
                    self.assertIn(f"process {other.pid} on host", text)
                elif code == 1:  # it came when the other one had ended, or before it wrote a checkpoint
                    self.assertRegex(text, "already contains a run|no checkpoint to resume from|already at iteration")
            if 0 not in codes:  # the one that was left was refused, or came too late for a fresh run
                rest = subprocess.run(self.command(*self.resumes()), cwd=self.folder, capture_output=True, text=True)
                # The one that was killed may have written its last checkpoint before.
                self.assertTrue(rest.returncode == 0 or "already at iteration" in rest.stderr, rest.stderr)
            self.assertEqual(self.losses("run"), self.losses("whole"), f"pair {pair}: {codes} {texts}")
            self.assertEqual(self.digest("run"), self.digest("whole"))
            self.assertFalse((self.folder / "run/owner").exists())
        self.assertGreater(refused, 0)
        self.assertGreater(killed, 0)

    def leave(self, file, host, process, ticks=1):
        """Writes the file that a process leaves if it is killed."""
        file.parent.mkdir(exist_ok=True)
        machine = pathlib.Path("/etc/machine-id")
        file.write_text(json.dumps({"host": host, "process": process, "start": "2026-01-01 00:00:00", "ticks": ticks, "boot": "",
                                    "machine": machine.read_text().strip() if machine.exists() else ""}))

    def gone(self):
        process = subprocess.Popen(["true"])
        process.wait()
        return process.pid

    def test_a_folder_of_a_process_that_is_gone_is_taken_over_and_that_is_said(self):
        gone = self.gone()
        self.leave(self.folder / "run/owner", socket.gethostname(), gone)
        text = self.train()
        self.assertIn(f"process {gone} on host {socket.gethostname()}", text)
        self.assertIn("takes it over", text)
        # The number of a process is used again by another one, which began at another time.
        self.leave(self.folder / "next/owner", socket.gethostname(), os.getpid())
        self.assertIn("takes it over", self.train("next"))
        # A process that has ended, but whose parent has not asked for its status.
        zombie = subprocess.Popen(["sleep", "100"])
        ticks = int(pathlib.Path(f"/proc/{zombie.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        self.leave(self.folder / "zombie/owner", socket.gethostname(), zombie.pid, ticks)
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "zombie", says=[f"process {zombie.pid}", "wait"])
        zombie.kill()
        while pathlib.Path(f"/proc/{zombie.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.001)
        self.assertIn("takes it over", self.train("zombie"))
        zombie.wait()
        # A process that was killed while it wrote its name.
        (self.folder / "empty").mkdir()
        (self.folder / "empty/owner").write_text('{"host"')
        self.train("empty")

    def test_another_host_is_named_with_the_remedy(self):
        self.leave(self.folder / "run/owner", "elsewhere", 4711)
        says = ["process 4711 on host elsewhere", "run/owner", "--take-over"]
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", says=says)
        self.assertIn("takes it over", self.train("run", "--take-over"))

    def test_outputs_of_infer_and_convert_have_one_owner_too(self):
        self.train()
        self.run_cli("export", "data.toml", "--image", "image.tif", "--label", "label.tif")
        for command, output, owner in ((["infer", self.last(), "image.tif", "--out"], "p.nii", "p.nii.owner"),
                                       (["convert", "image.tif"], "c.h5:/raw", "c.h5.owner"),
                                       (["convert", "image.tif"], "c.zarr:/s0", "c.zarr.s0.owner"),
                                       (["convert", "image.tif"], "s/*.tif", "s.owner")):
            (self.folder / "s").mkdir(exist_ok=True)
            self.leave(self.folder / owner, "elsewhere", 4711)
            self.fails(*command, output, says=["process 4711 on host elsewhere", owner, "--take-over"])
            self.leave(self.folder / owner, socket.gethostname(), os.getpid(), self.ticks_of_this_process())
            self.fails(*command, output, says=[f"process {os.getpid()}", "wait until it ends"])
            self.leave(self.folder / owner, socket.gethostname(), self.gone())
            self.assertIn("takes it over", self.run_cli(*command, output))
            self.assertFalse((self.folder / owner).exists())

    def ticks_of_this_process(self):
        return int(pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])

    def test_a_folder_that_cannot_be_owned_is_named(self):
        (self.folder / "run/owner").mkdir(parents=True)
        self.fails("train", "net.toml", "--data", "data.toml", "--out", "run", says=["run/owner", "Is a directory"])


if __name__ == "__main__":
    unittest.main()
