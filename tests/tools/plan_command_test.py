#!/usr/bin/env python3
"""`convolume plan`: what it prints, and what it refuses."""

import json
import sys
import unittest
import xml.etree.ElementTree

from command import CliTest

PROBLEM = "ic16id4ih14iw14oc128kd3pd1"
NEST = "n1* k128* z4* y14* c16 k32 z1 y1 x14 | kz3 ky3 kx3 c16 x14 k32"


class Plan(CliTest):
    def count(self, *arguments):
        return json.loads(self.run_cli("plan", "count", "--json", *arguments))

    def test_count_prints_all_keys_as_json(self):
        counts = self.count("--problem", PROBLEM, "--nest", NEST)
        self.assertEqual(set(counts), {"problem", "direction", "layout", "phase", "phases", "groups", "element_bytes",
                                       "macs", "nest", "blocking_string", "levels", "buffers"})
        self.assertEqual(counts["macs"], 128 * 16 * 27 * 4 * 14 * 14)
        self.assertEqual(counts["nest"], NEST)
        self.assertEqual(len(counts["levels"]), 15)
        outermost = counts["levels"][0]
        self.assertEqual(outermost["loop"], "n1*")
        self.assertEqual(outermost["x"], {"words": 16 * 4 * 14 * 14, "loads": 1, "fetched": 16 * 4 * 14 * 14, "runs": 1,
                                          "run_bytes": 4 * 16 * 4 * 14 * 14})
        self.assertEqual(outermost["w"]["words"], 128 * 16 * 27)
        self.assertEqual(outermost["y"]["fetched"], 128 * 4 * 14 * 14)
        pair = counts["levels"][6]  # z1: what a task does for two blocks of output channels
        self.assertEqual((pair["loop"], pair["tile"]["k"], pair["tile"]["x"]), ("z1", 32, 14))
        self.assertEqual((pair["w"]["words"], pair["w"]["loads"]), (32 * 16 * 27, 4))
        self.assertEqual(set(counts["buffers"][0]), {"operand", "loop", "depth", "words", "loads", "passes", "reads"})
        self.assertEqual(set(counts["buffers"][0]["reads"]), {"exact", "table2", "plain"})

    def test_explain_says_which_engine_and_why(self):
        text = self.run_cli("plan", "explain", "--problem", "ic256id8oc256kd3pd1", "--layout", "blocked")
        for part in ("direct", "fft_tiled", "fft_volume", "reference", "ms"):
            self.assertIn(part, text)
        forced = self.run_cli("plan", "explain", "--problem", PROBLEM, "--engine", "fft_tiled", "--type", "f64")
        self.assertIn("fft_tiled", forced)
        self.assertNotEqual(forced, text)
        few = ("plan", "explain", "--problem", "ic3id16oc4kd3", "--layout")
        self.assertEqual(self.run_cli(*few, "blocked"), self.run_cli(*few, "plain"))
        more = ("plan", "explain", "--problem", "ic16id16oc16kd3", "--layout")
        self.assertNotEqual(self.run_cli(*more, "blocked"), self.run_cli(*more, "plain"))
        for option, value in (("--engine", "cudnn"), ("--choice", "direct fwd=q")):
            self.fails("plan", "explain", "--problem", PROBLEM, option, value, says=[value])

    def test_explain_prints_its_data_as_json(self):
        command = ("plan", "explain", "--problem", "ic32id12oc32kd3pd1", "--layout", "blocked")
        report, text = json.loads(self.run_cli(*command, "--json")), self.run_cli(*command)
        self.assertEqual(set(report), {"problem", "x_layout", "y_layout", "engines", "engine", "choice", "seconds",
                                       "bounds", "caches"})
        self.assertEqual((report["x_layout"], report["y_layout"]), ("blocked", "blocked"))
        self.assertIn(f"chosen: {report['choice']}\n", text)
        self.assertEqual(report["choice"].split()[0], report["engine"])
        for engine in report["engines"]:
            self.assertEqual("seconds" in engine, "reason" not in engine)
            self.assertIn(f"  {engine['name']}: ", text)
        chosen = [engine.get("seconds") for engine in report["engines"] if engine["engine"] == report["engine"]]
        self.assertIn(report["seconds"], chosen)
        direct = json.loads(self.run_cli(*command, "--engine", "direct", "--json"))
        self.assertEqual([bound["result"] for bound in direct["bounds"]], ["y", "dx", "dw"])
        self.assertEqual(set(direct["bounds"][0]), {"result", "seconds", "part", "part_seconds", "floor_seconds"})

    def test_a_blocking_string_of_the_paper_is_a_nest(self):
        arguments = ("--problem", "ic128ih56iw56oc256kh3ph1", "--nest")
        string = self.count(*arguments, "FwFhX0(8)Y0(8)C0(16)K0(16)C1K1X1Y1")
        nest = self.count(*arguments, "y x k c k16 c16 y8 x8 | ky kx")
        self.assertEqual(string, nest)
        self.assertEqual(nest["blocking_string"], "FwFhX0(8)Y0(8)C0(16)K0(16)C1K1X1Y1")

    def test_directions_layouts_types_and_phases(self):
        problem = ("--problem", "g2ic32id9oc32kd3sd2pd1")
        for direction in ("fwd", "bwd_d", "bwd_w"):
            counts = self.count(*problem, "--nest", "z y x c k | kz ky kx", "--dir", direction, "--layout", "blocked")
            self.assertEqual(counts["phases"], 8 if direction == "bwd_d" else 1)
            self.assertEqual((counts["groups"], counts["direction"]), (2, direction))
        phase = self.count(*problem, "--nest", "z y x c k | kz ky kx", "--dir", "bwd_d", "--phase", "7")
        self.assertLess(phase["macs"], counts["macs"])
        double = self.count(*problem, "--nest", "z y x c k | kz ky kx", "--type", "f64")
        self.assertEqual(double["element_bytes"], 8)

    def test_a_datapath_multiplies_channels_at_once(self):
        counts = self.count("--problem", "ic32id8oc32kd3", "--nest", "k c z y x | kz ky kx", "--datapath", "8,16")
        self.assertEqual(counts["nest"], "k c z y x kz ky kx | c8 k16")
        # Each step reads 8 voxels of x for 128 multiply-adds.
        innermost = [b for b in counts["buffers"] if b["operand"] == "x"][0]
        self.assertEqual((innermost["words"], innermost["passes"]), (1, 16))

    def test_the_table_and_the_picture_show_every_loop(self):
        table = self.run_cli("plan", "count", "--problem", PROBLEM, "--nest", NEST, "--svg", "nest.svg")
        for word in ("multiply-adds", "k128*", "| kz3", "holds", "fetches", "table 2"):
            self.assertIn(word, table)
        text = (self.folder / "nest.svg").read_text()
        xml.etree.ElementTree.fromstring(text)
        for loop in NEST.replace("|", "").split():
            self.assertIn(f">{loop}<", text)

    def test_nonsense_is_refused_with_the_token_and_the_remedy(self):
        def refused(nest, *says, problem=PROBLEM, more=()):
            self.fails("plan", "count", "--problem", problem, "--nest", nest, *more, says=list(says))

        refused("n k z y c x kz ky kx", "'|' is missing")
        refused("n k z y c x | kz ky kx junk", "'junk' at position 23")
        refused("n k0 z y c x | kz ky kx", "'k0' at position 2", "at least 1")
        refused("n k99999999999999999999 | x", "does not fit")
        refused("n k64 z y c x | kz ky kx", "covers 64 of 128", "'k128'")
        refused("n* c* k z y x | kz ky kx", "parallel", "summed over")
        refused("n k z y x | kz ky kx", "no loop covers 'c'")
        refused("FwFhX0Q", "blocking string", "position")
        refused("z y x c k | kz ky kx", "depthwise", problem="g8ic8id5oc8kd3")
        refused("z y x c k | kz ky kx", "benchdnn", problem="nonsense")
        refused("z y x c k | kz ky kx", "--phase 1", more=("--phase", "1"))
        refused("z y x c k | kz ky kx", "--datapath '8'", more=("--datapath", "8"))
        refused("z y x c k | kz ky kx", "folder", more=("--svg", "no/such/folder.svg"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
