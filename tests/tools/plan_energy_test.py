#!/usr/bin/env python3
"""`convolume plan energy` and `convolume plan system`: what they print, and what they refuse."""

import json
import sys
import unittest

from command import CliTest

CONV4 = "FwFhX0(8)Y0(8)C0(16)K0(16)C1(128)K1(256)X1(56)Y1(56)"
LEVELS = """
[[level]]
name = "L1"
bytes = 4096
[[level]]
name = "L2"
bytes = 262144
pj_per_word = 9.5
shared = true
[[level]]
name = "DRAM"
"""


class PlanEnergy(CliTest):
    def energy(self, *arguments):
        return json.loads(self.run_cli("plan", "energy", "--json", *arguments))

    def test_a_nest_of_the_paper_has_the_energy_of_its_buffers(self):
        report = self.energy("--layer", "conv4", "--nest", CONV4, "--datapath", "1,1", "--latches", "counted")
        for key in ("string", "loops", "energy_pj", "pj_per_mac", "levels", "sram_bytes", "area_mm2", "seconds",
                    "assumptions"):
            self.assertIn(key, report)
        self.assertEqual(set(report["energy_pj"]), {"x", "w", "y", "dram", "mac", "broadcast", "shuffle", "total"})
        self.assertEqual(report["string"], CONV4)
        by_name = {level["name"]: level for level in report["levels"]}
        self.assertEqual(by_name["IB1"]["x"], 10035200)
        self.assertEqual(by_name["IB0"]["x"], 160563200)
        self.assertEqual((by_name["IB0"]["bytes"], by_name["IB1"]["bytes"]), (3200, 25600))
        self.assertIsNone(by_name["DRAM"]["bytes"])
        parts = [value for key, value in report["energy_pj"].items() if key != "total"]
        self.assertAlmostEqual(report["energy_pj"]["total"] / sum(parts), 1)
        self.assertAlmostEqual(report["pj_per_mac"], report["energy_pj"]["total"] / 924844032)
        table2 = self.energy("--layer", "conv4", "--nest", CONV4, "--datapath", "1,1", "--counts", "table2")
        self.assertEqual({level["name"]: level["x"] for level in table2["levels"]}["IB0"], 250880000)

    def test_searches_find_nests_that_cost_what_they_say(self):
        best = {}
        for search in ("exhaustive", "iterative"):
            found = self.energy("--layer", "conv5", "--search", search, "--levels", "2", "--top", "3", "--seeds", "16")
            self.assertEqual(len(found["top"]), 3)
            self.assertGreater(found["strings_tried"], 100)
            again = self.energy("--layer", "conv5", "--nest", found["loops"])
            self.assertAlmostEqual(again["pj_per_mac"], found["pj_per_mac"], places=9)
            best[search] = found
        self.assertTrue(best["exhaustive"]["proven"])
        self.assertLessEqual(best["exhaustive"]["pj_per_mac"], best["iterative"]["pj_per_mac"] * 1.000001)
        self.assertLessEqual(best["iterative"]["memory_pj_per_mac"], 1.08 * best["exhaustive"]["memory_pj_per_mac"])

    def test_a_volume_and_a_planar_layer_are_the_same_with_one_plane(self):
        dims = self.energy("--dims", "28,28,256,512,3,3", "--nest", "y x k c | ky kx")
        layer = self.energy("--layer", "conv5", "--nest", "y x k c | ky kx")
        self.assertEqual(dims["energy_pj"], layer["energy_pj"])
        volume = self.energy("--problem", "ic32id16oc32kd3pd1", "--seeds", "8", "--levels", "2", "--top", "1")
        self.assertIn("Z", volume["string"])
        self.assertEqual(volume["macs"], 32 * 32 * 16**3 * 27)

    def test_a_hierarchy_comes_from_a_file(self):
        (self.folder / "mine.toml").write_text(LEVELS)
        report = self.energy("--layer", "conv5", "--hierarchy", "mine.toml", "--seeds", "8", "--top", "1")
        self.assertEqual([level["name"] for level in report["levels"]], ["L1", "L2", "DRAM"])
        self.assertEqual(report["levels"][1]["pj_per_word"], {"x": 9.5, "w": 9.5, "y": 9.5})
        for level in report["levels"][:2]:
            self.assertLessEqual(2 * sum(level["words"].values()), level["bytes"])

    def test_cores_share_one_memory(self):
        report = self.energy("--layer", "conv1", "--search", "exhaustive", "--levels", "2", "--cores", "1,2,4,8",
                             "--split", "xy")
        totals = [core["energy_pj"]["total"] for core in report["cores"]]
        self.assertEqual(sorted(totals, reverse=True), totals)
        memory = report["energy_pj"]["total"] - report["energy_pj"]["mac"]
        self.assertAlmostEqual(totals[0] / memory, 1)
        fixed = self.energy("--layer", "conv5", "--hierarchy", "x86", "--seeds", "4", "--cores", "4", "--split", "k")
        self.assertGreater(fixed["cores"][0]["energy_pj"]["broadcast"], 0)

    def test_a_system_serves_several_layers(self):
        system = json.loads(self.run_cli("plan", "system", "--json", "--layers", "conv4,conv5", "--problem",
                                         "ic32id8oc32kd3pd1", "--limit", "256K", "--levels", "2", "--seeds", "8",
                                         "--top", "2"))
        self.assertEqual(len(system["alone"]), 3)
        for one in system["systems"]:
            self.assertLessEqual(one["sram_bytes"], 256 * 1024)
            self.assertEqual(len(one["layers"]), 3)
        text = self.run_cli("plan", "system", "--layers", "conv5", "--area", "2", "--levels", "2", "--seeds", "4")
        self.assertIn("system 1", text)

    def test_the_table_shows_memories_and_assumptions(self):
        text = self.run_cli("plan", "energy", "--layer", "conv5", "--seeds", "8", "--limit", "64K")
        for part in ("blocking", "DRAM", "multiply-adds", "pJ/MAC", "no. 2", "does not publish"):
            self.assertIn(part, text)
        text = self.run_cli("plan", "energy", "--layer", "pool", "--seeds", "4")
        self.assertIn("no weights", text)

    def test_nonsense_is_refused_with_the_remedy(self):
        def refused(*arguments, says):
            self.fails("plan", "energy", *arguments, says=says)

        refused(says=["--layer", "--dims"])
        refused("--layer", "conv9", says=["conv9", "conv5"])
        refused("--layer", "conv1", "--dims", "1,1,1,1,1,1", says=["one layer"])
        refused("--dims", "8,8,16", says=["--dims", "X,Y,C,K,Fw,Fh"])
        refused("--dims", "8,8,0,16,3,3", says=["C is 0"])
        refused("--layer", "conv4", "--nest", "x", "--search", "iterative", says=["exclude"])
        refused("--layer", "conv4", "--nest", "k c y x x9 | ky kx", says=["9", "multiple"])
        refused("--layer", "conv4", "--datapath", "16", says=["--datapath '16'"])
        refused("--layer", "conv4", "--limit", "big", says=["--limit 'big'"])
        refused("--layer", "conv4", "--limit", "0", says=["--limit"])
        refused("--layer", "conv4", "--limit", "1M", "--hierarchy", "x86", says=["free"])
        refused("--layer", "conv4", "--levels", "9", says=["levels is 9"])
        refused("--layer", "conv4", "--mac-pj=-1", says=["-1"])
        refused("--layer", "conv4", "--register-pj=-1", says=["register"])
        refused("--layer", "conv4", "--batch=-3", says=["--batch"])
        refused("--layer", "conv4", "--hierarchy", "gpu", says=["gpu", "diannao"])
        refused("--layer", "conv4", "--hierarchy", "none.toml", says=["none.toml", "cannot be read"])
        refused("--layer", "conv4", "--cores", "3", "--split", "k", says=["3 cores"])
        refused("--problem", "g8ic8id5oc8kd3", says=["group"])
        self.fails("plan", "system", "--limit", "1M", says="layer")
        self.fails("plan", "system", "--layers", "conv5", says="limit")
        self.fails("plan", "system", "--layers", "conv5", "--area", "0.1", says="--area")

    def test_layers_with_nothing_to_block_and_axes_that_are_too_long(self):
        self.run_cli("plan", "energy", "--dims", "1,1,16,16,1,1", "--levels", "3", "--seeds", "4", "--search", "iterative")
        self.run_cli("plan", "system", "--problem", "ic16id1ih1iw1oc16kd1kh1kw1", "--limit", "1K", "--levels", "3", "--seeds", "2")
        self.fails("plan", "energy", "--problem", "ic16iw100000000007oc16kw1", "--levels", "2", says=["100000000007", "at most"])

    def test_hierarchies_with_gaps_are_refused_with_the_field(self):
        def refused(text, *says):
            (self.folder / "bad.toml").write_text(text)
            self.fails("plan", "energy", "--layer", "conv5", "--hierarchy", "bad.toml", says=["bad.toml", *says])

        refused("", "cannot be read")
        refused("levels = 3", "levels", "[[level]]")
        refused("[[level", "line 1")
        refused("[[level]]\nname = 'a'\n[[level]]\nname = 'b'\n", "bytes", "missing")
        refused("[[level]]\nname = 'a'\nbytes = 0\n[[level]]\nname = 'b'\n", "bytes", "is 0")
        refused("[[level]]\nname = 'a'\nbytes = -4\n[[level]]\nname = 'b'\n", "bytes", "is -4")
        refused("[[level]]\nname = 'a'\nbytes = 'x'\n[[level]]\nname = 'b'\n", "bytes", "type")
        refused("[[level]]\nname = 'a'\nbytes = 5\n", "bytes", "DRAM")
        refused("[[level]]\nname = 'a'\nbytes = 9\n[[level]]\nname = 'b'\nbytes = 8\n[[level]]\nname = 'c'\n", "rise")
        refused("[[level]]\nname = 'a'\nbytes = 9\nsize = 3\n[[level]]\nname = 'c'\n", "size", "no field")
        refused("[[level]]\nname = 'a'\nbytes = 9\npj_per_word = 0\n[[level]]\nname = 'c'\n", "pj_per_word")
        refused("[[level]]\nbytes = 9\n[[level]]\nname = 'c'\n", "name", "missing")
        refused("x = 1\n" * 4000, "bytes")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
