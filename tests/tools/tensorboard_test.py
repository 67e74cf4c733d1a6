#!/usr/bin/env python3
"""The event files of train --tensorboard, decoded without TensorFlow: TFRecord framing, checksums, protocol buffers."""

import json
import math
import resource
import signal
import struct
import time
import unittest

from command import DATA, CliTest


def crc32c(data):
    """CRC32C (Castagnoli), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The contents of all TFRecords; an assertion fails at a damaged one."""
    at = 0
    while at < len(data):
        size, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8]), "the checksum of a length"
        content = data[at + 12:at + 12 + size]
        assert len(content) == size, "a record is cut"
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(content), "the checksum of a record"
        yield content
        at += 16 + size


def fields(message):
    """Pairs of a number and a value: an integer, or the bytes of another type."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 2: None, 5: 4}[key & 7]
        size = varint() if size is None else size
        assert at + size <= len(message), "a field is longer than its message"
        yield key >> 3, message[at:at + size]
        at += size


class TensorBoard(CliTest):
    def files(self, out="run"):
        return sorted((self.folder / out / "tensorboard").iterdir())

    def scalars(self, out="run"):
        """Triples of iteration, tag and value from all files. Each file begins with its version."""
        found = []
        for file in self.files(out):
            self.assertTrue(file.name.startswith("events.out.tfevents."))
            version, *events = [dict(fields(content)) for content in records(file.read_bytes())]
            self.assertEqual(version.pop(3), b"brain.Event:2")
            times = [struct.unpack("<d", event[1])[0] for event in (version, *events)]
            self.assertEqual(times, sorted(times))
            self.assertLess(abs(times[-1] - time.time()), 600)
            for event in events:
                self.assertEqual(set(event), {1, 2, 5})
                for number, value in fields(event[5]):
                    self.assertEqual(number, 1)
                    parts = dict(fields(value))
                    self.assertEqual(set(parts), {1, 2})
                    found.append((event[2], parts[1].decode(), struct.unpack("<f", parts[2])[0]))
        return found

    def expected(self, out="run", last=math.inf):
        """The same from metrics.jsonl."""
        lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        return [(line["iteration"], key if key == "loss" else f"validation/{key}", value)
                for line in lines if line["iteration"] <= last
                for key, value in line.items() if key not in ("iteration", "seconds") and value is not None]

    def check(self, out="run", last=math.inf):
        """Every number of the log is there once, as a float."""
        found = [scalar for scalar in self.scalars(out) if scalar[0] <= last]
        single = [(step, tag, struct.unpack("<f", struct.pack("<f", value))[0])
                  for step, tag, value in self.expected(out, last)]
        self.assertEqual(sorted(found), sorted(single))

    def test_the_checksum_is_crc32c(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)

    def test_events_hold_the_loss_and_all_scores(self):
        self.assertIn("tensorboard", self.train("run", "--tensorboard"))
        self.check()
        tags = {tag for step, tag, _ in self.scalars() if step == 3}
        self.assertLessEqual({"loss", "validation/dice", "validation/iou", "validation/pixel_error"}, tags)
        self.assertEqual(len(self.files()), 1)
        self.train("plain")
        self.assertFalse((self.folder / "plain/tensorboard").exists())
        self.assertEqual(self.digest(), self.digest("plain"))

    def test_a_run_without_validation_has_losses(self):
        (self.folder / "data.toml").write_text(DATA[:DATA.index("[[validation]]")])
        self.train("run", "--tensorboard", "--iterations", 200)
        self.check()
        self.assertEqual([(step, tag) for step, tag, _ in self.scalars()], [(i, "loss") for i in range(1, 201)])

    def test_a_resumed_run_adds_a_file_that_repeats_nothing(self):
        for total in (2, 3, 5):
            self.train("run", "--tensorboard", "--iterations", total, *(["--resume"] if total > 2 else []))
        self.assertEqual(len(self.files()), 3)
        self.check()
        # Without the option, nothing is written. The next file has what is missing.
        self.train("run", "--iterations", 7, "--resume")
        self.assertEqual(len(self.files()), 3)
        self.train("run", "--tensorboard", "--iterations", 8, "--resume")
        self.check()

    def test_a_killed_run_repeats_nothing_after_its_resume(self):
        process = self.start("--tensorboard")
        self.wait_for_lines(process, 9)
        process.kill()
        process.communicate()
        # The end of a record is missing, as after a kill in the middle of a write.
        file, = self.files()
        file.write_bytes(file.read_bytes()[:-3])
        last = int(max(self.last().parent.glob("iteration-*.safetensors")).stem.split("-")[1]) + 3
        self.train("run", "--tensorboard", "--iterations", last, "--resume")
        self.assertTrue(list(records(self.files()[1].read_bytes())))
        file.write_bytes(self.whole_records(file))
        self.check(last=last)

    def whole_records(self, file):
        """The file without the rest of a record at its end."""
        data, at = file.read_bytes(), 0
        while at + 12 <= len(data) and at + 16 + struct.unpack_from("<Q", data, at)[0] <= len(data):
            at += 16 + struct.unpack_from("<Q", data, at)[0]
        self.assertLess(at, len(data))
        return data[:at]

    def test_a_validation_that_was_interrupted_is_added_after_the_resume(self):
        net = (self.folder / "net.toml").read_text().replace("validate_every = 3", 'best = "dice"\nvalidate_every = 1')
        (self.folder / "net.toml").write_text(net)
        process = self.start("--tensorboard")
        self.wait_for_lines(process, 5)
        process.send_signal(signal.SIGINT)
        done = int(process.communicate(timeout=60)[0].split("interrupted at iteration ")[1].split(",")[0])
        self.train("run", "--tensorboard", "--resume", "--iterations", done + 2)
        self.check()

    def test_events_of_a_run_without_a_checkpoint_are_removed(self):
        folder = self.folder / "run/tensorboard"
        folder.mkdir(parents=True)
        (folder / "events.out.tfevents.000007").write_bytes(b"of an earlier run")
        (folder / "notes.txt").write_text("of the user")
        self.train("run", "--tensorboard")
        self.assertEqual([file.name for file in self.files()], ["events.out.tfevents.000000", "notes.txt"])

    def test_a_full_disk_ends_the_run_with_the_name_of_the_file(self):
        # The events of many validations take more bytes than their lines of metrics.jsonl.
        train = ["--set", "training.validate_every=1", "--set", "optimizer.learning_rate=1e-30"]
        self.train("run", "--iterations", 60, *train)
        log = (self.folder / "run/metrics.jsonl").stat().st_size

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (log + 100, log + 100))
        resume = [*train, "--tensorboard", "--resume", "--iterations", 62]
        text = self.train("run", *resume, expect=1, preexec=small_files)
        self.assertIn("events.out.tfevents.000000: writing failed; free some space and resume the run", text)
        file, = self.files()
        self.assertEqual(file.stat().st_size, log + 100)
        self.train("run", *resume)
        file.write_bytes(self.whole_records(file))
        self.check()


if __name__ == "__main__":
    unittest.main(verbosity=1)
