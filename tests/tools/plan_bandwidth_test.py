#!/usr/bin/env python3
"""`convolume plan bandwidth`: what it prints for a chip and for this machine, and what it refuses."""

import json
import pathlib
import statistics
import sys
import unittest

from command import CliTest

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "docs/sw26010.toml"
PROBLEM = "mb128ic128ih66oc128oh64kh3"


class PlanBandwidth(CliTest):
    def bandwidth(self, *arguments):
        return json.loads(self.run_cli("plan", "bandwidth", "--json", *arguments))

    def one(self, *arguments):
        """The only case."""
        cases = self.bandwidth(*arguments)["cases"]
        self.assertEqual(len(cases), 1)
        return cases[0]

    def test_a_problem_has_all_numbers_of_the_model(self):
        report = self.bandwidth("--problem", PROBLEM)
        self.assertEqual((report["machine"], report["type"], report["pattern"], report["issue"]),
                         ("sw26010", "f64", "ldm", "reordered"))
        self.assertAlmostEqual(report["peak_gflops"], 2969.6)
        case = report["cases"][0]
        self.assertAlmostEqual(case["cdr_one_column"], 128 / 17)
        self.assertAlmostEqual(case["cdr"], 4 * 128 * 256 / (128 * 16 + 4 * 128 * 16 + 4 * 256))
        self.assertEqual(case["cdr_needed"], 3)
        self.assertAlmostEqual(case["ee"], 16 / 17)
        self.assertEqual(case["ldm_bytes_per_cpe"], 3 * 128 * 128 * 8 / 64)
        self.assertEqual((case["b_c"], case["way"], case["bound_by"]), (4, "direct", "memory"))
        self.assertEqual(set(case["rbw_gb_per_s"]), {"memory", "scratch"})
        self.assertAlmostEqual(case["mbw_gb_per_s"]["scratch"], 46.4)
        self.assertAlmostEqual(case["gflops"], 2969.6 * 16 / 17 * case["mbw_gb_per_s"]["memory"] /
                               case["rbw_gb_per_s"]["memory"])
        self.assertAlmostEqual(case["efficiency"], case["gflops"] / 2969.6)
        self.assertAlmostEqual(case["published_share"], case["gflops"] / 3020)
        self.assertEqual([(d["operand"], d["direction"]) for d in case["dma"]],
                         [("x", "get"), ("w", "get"), ("y", "get"), ("y", "put")])

    def test_the_test_sets_have_the_mean_of_the_paper(self):
        report = self.bandwidth("--test-sets")
        speeds = [case["gflops"] for case in report["cases"]]
        sets = report["test_sets"]
        self.assertEqual((len(speeds), sets["problems"]), (51, 51))
        self.assertEqual([one["problems"] for one in sets["sets"]], [36, 5, 5, 5])
        self.assertAlmostEqual(sets["mean"], statistics.mean(speeds))
        self.assertEqual((sets["min"], sets["max"]), (min(speeds), max(speeds)))
        self.assertLess(abs(sets["mean"] / 1680 - 1), 0.05)
        self.assertLess(abs(sets["sets"][0]["mean"] / 1770 - 1), 0.05)
        self.assertAlmostEqual(sets["sets"][3]["mean"],
                               statistics.mean(case["gflops"] for case in report["cases"] if case["set"] == 4))
        self.assertEqual(report["published_processors"][0]["double_gflops"], 3020)

    def test_options_change_what_they_say(self):
        usual = self.one("--problem", PROBLEM)
        simple = self.one("--problem", PROBLEM, "--issue", "simple")
        self.assertAlmostEqual(simple["ee"], 16 / 26)
        single = self.one("--problem", PROBLEM, "--type", "f32", "--issue", "float")
        self.assertAlmostEqual(single["ee"], 16 / 25)
        self.assertEqual(single["ldm_bytes_per_cpe"], usual["ldm_bytes_per_cpe"] / 2)
        cast = self.bandwidth("--problem", PROBLEM, "--type", "f32")
        self.assertEqual(cast["issue"], "float2double")
        self.assertGreater(cast["cases"][0]["ee"], single["ee"])
        self.assertEqual(cast["cases"][0]["dma"][0]["run_bytes"], usual["dma"][0]["run_bytes"] / 2)
        buffer = self.one("--problem", PROBLEM, "--single-buffer")
        self.assertEqual(buffer["tile_limit_bytes_per_cpe"], 2 * usual["tile_limit_bytes_per_cpe"])
        self.assertGreater(buffer["b_c"], usual["b_c"])
        gload = self.one("--problem", PROBLEM, "--pattern", "gload")
        self.assertEqual((gload["cdr_needed"], gload["mbw_gb_per_s"]["memory"], gload["b_c"]), (12, 8, 1))
        self.assertLess(10 * gload["gflops"], usual["gflops"])
        self.assertEqual(self.bandwidth("--problem", PROBLEM, "--pattern", "gload", "--type", "f32")["issue"], "float")

    def test_the_sample_file_is_the_built_in_chip(self):
        file, built_in = self.bandwidth("--test-sets", "--machine", SAMPLE), self.bandwidth("--test-sets")
        self.assertEqual(file.pop("machine"), str(SAMPLE))
        built_in.pop("machine")
        self.assertEqual(file, built_in)

    def test_a_chip_comes_from_a_file(self):
        text = SAMPLE.read_text().replace("scratch_bytes = 65536", "scratch_bytes = 262144")
        text = text.replace("published_gflops", "# published_gflops").replace("groups = 4", "groups = 1")
        (self.folder / "mine.toml").write_text(text)
        case = self.one("--problem", PROBLEM, "--machine", "mine.toml")
        self.assertEqual(case["b_c"], 16)
        self.assertNotIn("published_share", case)
        self.assertGreater(case["efficiency"], self.one("--problem", PROBLEM)["efficiency"])
        self.assertIn("of the peak", self.run_cli("plan", "bandwidth", "--test-sets", "--machine", "mine.toml"))

    def test_a_file_has_problems_with_names(self):
        (self.folder / "list.txt").write_text(f'{PROBLEM}n"deep" # comment\nmb128ic3ih34oc64oh32kh3n"first"\n')
        report = self.bandwidth("--problems", "list.txt")
        self.assertEqual([case["name"] for case in report["cases"]], ["deep", "first"])
        self.assertEqual([case["way"] for case in report["cases"]], ["direct", "im2col"])
        text = self.run_cli("plan", "bandwidth", "--problems", "list.txt")
        self.assertIn("deep", text)
        self.assertNotIn("set 1", text)

    def test_a_list_names_what_a_chip_cannot_do(self):
        (self.folder / "list.txt").write_text(f"ic8id8oc8kd3\nmb512ic512ih34oc512oh32kh3\n{PROBLEM}\n")
        cases = self.bandwidth("--problems", "list.txt")["cases"]
        self.assertIn("volumes", cases[0]["unsupported"])
        self.assertIn("scratch_bytes = 196608", cases[1]["unsupported"])
        self.assertGreater(cases[2]["gflops"], 1000)
        self.assertIn("196608", self.run_cli("plan", "bandwidth", "--problems", "list.txt"))
        (self.folder / "list.txt").write_text("ic8id8oc8kd3\nic8id9oc8kd3\n")
        self.fails("plan", "bandwidth", "--problems", "list.txt", says=["id9", "volumes"])
        (self.folder / "small.toml").write_text(SAMPLE.read_text().replace("= 65536", "= 16384"))
        self.fails("plan", "bandwidth", "--test-sets", "--machine", "small.toml",
                   says=["small.toml", "16384", "scratch_bytes ="])

    def test_tables_show_the_numbers(self):
        text = self.run_cli("plan", "bandwidth", "--problem", PROBLEM)
        for part in ("equation 2", "equation 3", "equation 4", "b_C = 4", "direct", "94.1 %", "put y", "scratch",
                     "published 3020", "memory", "two buffers"):
            self.assertIn(part, text)
        text = self.run_cli("plan", "bandwidth", "--test-sets")
        for part in ("set 1", "set 4", "all sets", "51", "NVIDIA K40m", "4: mb512"):
            self.assertIn(part, text)
        self.assertIn("no buffers", self.run_cli("plan", "bandwidth", "--problem", PROBLEM, "--pattern", "gload"))

    def test_this_machine_shows_levels_for_each_direction(self):
        problem = "ic32id16oc32kd3pd1"
        report = self.bandwidth("--problem", problem, "--machine", "here")
        directions = report["cases"][0]["directions"]
        self.assertEqual([one["dir"] for one in directions], ["fwd", "bwd_d", "bwd_w"])
        for one in directions:
            for key in ("bytes", "rbw_gb_per_s", "mbw_gb_per_s"):
                self.assertEqual(list(one[key]), ["L2", "L3", "memory"])
            multiply_adds = 2 * 32 * 32 * 27 * 16**3 / (1e9 * report["peak_gflops"] * one["ee"])
            for level, needed in one["rbw_gb_per_s"].items():
                self.assertAlmostEqual(1e-9 * one["bytes"][level] / needed / multiply_adds, 1)
            needs_more = [level for level in one["bytes"] if one["rbw_gb_per_s"][level] > one["mbw_gb_per_s"][level]]
            self.assertEqual(one["bound_by"] != "computation", bool(needs_more))
            self.assertAlmostEqual(one["efficiency"], one["gflops"] / report["peak_gflops"])
            self.assertTrue(0 < one["efficiency"] <= one["ee"])
        explained = json.loads(self.run_cli("plan", "explain", "--json", "--problem", problem, "--engine", "direct"))
        for one, bound in zip(directions, explained["bounds"]):
            self.assertAlmostEqual(one["seconds"] / bound["seconds"], 1)
        double = self.bandwidth("--problem", problem, "--machine", "here", "--type", "f64")
        self.assertAlmostEqual(double["peak_gflops"], report["peak_gflops"] / 2)
        self.assertGreater(double["cases"][0]["directions"][0]["seconds"], 1.5 * directions[0]["seconds"])
        text = self.run_cli("plan", "bandwidth", "--problem", problem, "--machine", "here")
        for part in ("L2", "L3", "memory", "bwd_w", "one core"):
            self.assertIn(part, text)

    def test_groups_count_on_this_machine_and_depthwise_is_named(self):
        grouped = self.one("--problem", "g2ic64id16oc64kd3pd1", "--machine", "here")["directions"][0]
        group = self.one("--problem", "ic32id16oc32kd3pd1", "--machine", "here")["directions"][0]
        self.assertAlmostEqual(grouped["seconds"] / group["seconds"], 2)
        self.assertAlmostEqual(grouped["gflops"], group["gflops"])
        (self.folder / "list.txt").write_text("ic32id8oc32kd3pd1\ng32ic32id8oc32kd3pd1\n")
        cases = self.bandwidth("--problems", "list.txt", "--machine", "here")["cases"]
        self.assertEqual(len(cases[0]["directions"]), 3)
        self.assertNotIn("directions", cases[1])
        self.assertIn("depthwise", cases[1]["unsupported"])
        self.fails("plan", "bandwidth", "--machine", "here", "--problem", "g32ic32id8oc32kd3pd1", says="depthwise")

    def test_nonsense_is_refused_with_the_remedy(self):
        def refused(*arguments, says):
            self.fails("plan", "bandwidth", *arguments, says=says)

        refused("--problem", "mb512ic512ih34oc512oh32kh3", says=["65536", "scratch_bytes = 196608", "smaller batch"])
        refused("--problem", PROBLEM, "--type", "f64", "--issue", "float", says=["float", "f64", "reordered"])
        refused("--problem", PROBLEM, "--issue", "float2double", says=["float2double", "f32"])
        refused("--problem", PROBLEM, "--type", "f32", "--issue", "simple", says=["simple", "float2double"])
        refused("--problem", "g2mb8ic64ih14oc64oh14kh3ph1", says=["g2", "groups", "one group"])
        refused("--problem", "ic64id14oc64kd3pd1", says=["ic64id14", "volumes", "one plane"])
        refused("--problem", "ic64ih14oc", says=["oc"])
        refused("--problem", PROBLEM, "--machine", "gpu", says=["gpu", "sw26010", "FILE.toml"])
        refused("--problem", PROBLEM, "--machine", "none.toml", says=["none.toml", "cannot be read"])
        refused("--problem", PROBLEM, "--pattern", "gload", "--single-buffer", says=["gload", "ldm"])
        refused("--problem", PROBLEM, "--machine", "here", "--pattern", "ldm", says=["--pattern", "sw26010"])
        refused("--problem", PROBLEM, "--machine", "here", "--issue", "simple", says=["--issue", "sw26010"])
        refused("--problem", PROBLEM, "--machine", "here", "--single-buffer", says=["--single-buffer", "sw26010"])
        refused("--problems", "none.txt", says=["none.txt", "check the path"])

    def test_chips_with_gaps_are_refused_with_file_field_and_value(self):
        sample = SAMPLE.read_text()

        def refused(old, new, *says):
            self.assertIn(old, sample)
            (self.folder / "bad.toml").write_text(sample.replace(old, new))
            self.fails("plan", "bandwidth", "--problem", PROBLEM, "--machine", "bad.toml", says=["bad.toml", *says])

        for field in ("ghz", "groups", "cores", "vector", "scratch_bytes", "multiply_adds", "reordered", "run_bytes",
                      "get_gb_per_s", "put_gb_per_s"):
            refused(f"\n{field} = ", "\n# ", f"{field}: is missing", "write it")
        for field, value in (("ghz", "1.45"), ("groups", "4"), ("cores", "64"), ("vector", "4"),
                             ("scratch_bytes", "65536"), ("gload_gb_per_s", "8"), ("published_gflops", "3020"),
                             ("simple", "26"), ("reordered", "17"), ("float", "25"), ("cast_slots", "2")):
            refused(f"\n{field} = {value}", f"\n{field} = -{value}", field, f"is -{value}", "write a")
        refused("[issue]", "[issues]", "issues")
        refused("[bandwidth]", "[[bandwidth]]", "bandwidth", "[bandwidth]")
        refused("ghz = 1.45", "ghz = 'fast'", "ghz", "is no number")
        refused("ghz = 1.45", "ghz = nan", "ghz", "is nan")
        refused("groups = 4", "groups = 1.5", "groups", "whole number")
        refused("groups = 4", "groups = 4\ncolour = 3", "colour", "is no field", "scratch_bytes")
        refused("[issue]", "[issue]\nslots = 3", "issue.slots", "is no field", "multiply_adds")
        refused("[bandwidth]", "[bandwidth]\nsize = 3", "bandwidth.size", "is no field", "run_bytes")
        refused("cores = 64", "cores = 60", "cores", "is 60", "square")
        refused("scratch_bytes = 65536", "scratch_bytes = 9007199254740993", "scratch_bytes", "9007199254740992")
        refused("reordered = 17", "reordered = 15", "reordered", "is 15", "16")
        refused("[4.31, 9.00, ", "[9.00, ", "get_gb_per_s", "has 9 values", "run_bytes has 10")
        refused(", 35.19]", "]", "put_gb_per_s", "has 9 values", "run_bytes has 10")
        refused("[32, 64, ", "[64, 32, ", "run_bytes[1]", "is 32", "sort")
        refused("[32, 64, ", "[32, 32, ", "run_bytes[1]", "is 32", "sort")
        refused("[2.56, ", "[-2.56, ", "put_gb_per_s[0]", "is -2.56")
        refused("run_bytes = [32, ", "run_bytes = ['a', ", "run_bytes[0]", "is no number")
        refused("run_bytes = [32, ", "run_bytes = 32 # ", "run_bytes", "is no list")
        refused("ghz = 1.45", "ghz = ", "line")
        (self.folder / "bad.toml").write_text("x = 1\n" * 4000)
        self.fails("plan", "bandwidth", "--problem", PROBLEM, "--machine", "bad.toml", says=["bad.toml", "bytes"])
        empty = sample[:sample.index("run_bytes")] + "run_bytes = []\nget_gb_per_s = []\nput_gb_per_s = []\n"
        (self.folder / "bad.toml").write_text(empty)
        self.fails("plan", "bandwidth", "--problem", PROBLEM, "--machine", "bad.toml",
                   says=["bad.toml", "run_bytes", "is empty", "at least one"])

    def test_what_a_chip_does_not_have_is_refused_when_it_is_needed(self):
        sample = SAMPLE.read_text()

        def refused(line, *arguments, says):
            self.assertIn(f"\n{line} = ", sample)
            (self.folder / "part.toml").write_text(sample.replace(f"\n{line} = ", "\n# "))
            self.one("--problem", PROBLEM, "--machine", "part.toml")
            self.fails("plan", "bandwidth", "--problem", PROBLEM, "--machine", "part.toml", *arguments,
                       says=["part.toml", f"{line} is missing", *says])

        refused("gload_gb_per_s", "--pattern", "gload", says=["ldm"])
        refused("simple", "--issue", "simple", says=["issue."])
        refused("float", "--type", "f32", "--issue", "float", says=["issue."])
        refused("cast_slots", "--type", "f32", says=["issue."])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
