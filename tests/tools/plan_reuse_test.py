#!/usr/bin/env python3
"""`convolume plan reuse`: what it prints, and what it refuses."""

import json
import sys
import unittest

from command import CliTest

M, N, K = 5, 7, 11
PRODUCT = f"mb{M}ic{K}ih1oc{N}oh1kh1"
LAYER = "mb2ic64ih28oc64oh28kh3ph1"
NEST = "n* k c y ky kx x | c16 x14 k32"
LEVELS = ("--caches", "32K,1M,32M", "--latency", "1,4,20,100", "--bandwidth", "200,100,30,10")


class PlanReuse(CliTest):
    def reuse(self, problem, nest, *arguments):
        return json.loads(self.run_cli("plan", "reuse", "--json", "--problem", problem, "--nest", nest, *arguments))

    def test_the_matrix_product_of_figure_4(self):
        report = self.reuse(PRODUCT, "n k | c", *LEVELS)
        dependences = {one["operand"]: one for one in report["dependences"]}
        self.assertEqual(len(report["dependences"]), 3)
        # d1 is carried by k of the paper (c), d2 by j (k) and d3 by i (n).
        self.assertEqual([(one["operand"], one["carried_by"]) for one in report["dependences"]],
                         [("x", "k"), ("w", "n"), ("y", "c")])
        d2 = dependences["x"]
        self.assertEqual((d2["source"], d2["first_target"], d2["last_target"]), ([0, 0, 0], [0, 1, 0], [0, N - 1, 0]))
        self.assertEqual(d2["ws_min"], 2 * K + 3)
        self.assertEqual(d2["ws_max"], N * K + N + 1)
        self.assertEqual(d2["ws_min_of"], {"x": K, "w": K + 1, "y": 2})
        self.assertEqual(dependences["y"]["ws_min"], 5)

    def test_working_sets_are_packed_and_priced(self):
        report = self.reuse(LAYER, NEST, *LEVELS)
        self.assertEqual([level["name"] for level in report["levels"]], ["l1", "l2", "l3", "mem"])
        self.assertEqual(report["levels"][1], {"name": "l2", "bytes": 1 << 20, "latency_ns": 4, "gb_per_s": 100})
        sets = dict.fromkeys(report["ws"], 0)
        for one in report["dependences"]:
            sets[one["ws_min_in"]] += 4 * one["ws_min"]
            if one["targets"] == "several":
                sets[one["ws_max_in"]] += 4 * one["ws_max"]
            else:
                self.assertEqual(one["ws_min"], one["ws_max"])
        self.assertEqual(sets, report["ws"])
        for level in report["levels"][:3]:
            self.assertLessEqual(report["ws"][level["name"]], level["bytes"])
        cost = sum(report["ws"][level["name"]] * level["latency_ns"] / level["gb_per_s"] for level in report["levels"])
        self.assertAlmostEqual(report["cost"] / cost, 1)
        self.assertEqual(report["cost"], report["direction_cost"])
        dearer = self.reuse(LAYER, NEST, *LEVELS[:5], "100,50,15,5")
        self.assertAlmostEqual(dearer["cost"] / report["cost"], 2)

    def test_levels_come_from_the_machine_row(self):
        report = self.reuse(LAYER, NEST)
        machine = json.loads(self.run_cli("machine", "--json"))
        values = {one["name"]: one["value"] for one in machine["values"]}
        self.assertEqual(report["levels_from"], machine["row"])
        self.assertEqual(report["levels"][0]["bytes"], machine["l1_bytes"])
        self.assertEqual(report["levels"][1]["bytes"], machine["usable_l2_bytes"])
        self.assertEqual(report["levels"][-1]["latency_ns"], values["memory_ns"])
        self.assertAlmostEqual(report["levels"][0]["latency_ns"], values["l1_cycles"] / values["ghz"])
        smaller = self.reuse(LAYER, NEST, "--caches", "16K,128K")
        self.assertEqual([level["bytes"] for level in smaller["levels"]], [16384, 131072, None])
        self.assertEqual(smaller["levels"][1]["latency_ns"], report["levels"][1]["latency_ns"])
        self.assertEqual(smaller["levels"][-1]["latency_ns"], values["memory_ns"])

    def test_a_nest_without_a_microkernel_gets_a_product_of_matrices(self):
        self.assertEqual(self.reuse(LAYER, "n k c y ky kx")["nest"], "n k c y ky kx | c16 x28 k16")
        self.assertEqual(self.reuse(LAYER, "n k c y ky kx x x14", "--block", "64")["nest"],
                         "n k c y ky kx x x14 | c16 x14 k64")
        self.assertEqual(self.reuse("ic3ih8oc4kh3ph1", "y ky kx", "--type", "f64")["nest"], "y ky kx | c3 x8 k4")
        self.assertEqual(self.reuse(LAYER, "n k c y ky kx", "--dir", "bwd_d")["nest"], "n k c y ky kx | k16 x28 c16")
        self.assertEqual(self.reuse(LAYER, "ky kx k c n y", "--dir", "bwd_w")["nest"], "ky kx k c n y | x28 c16 k16")
        self.assertEqual(self.reuse(LAYER, "FwFhX0Y0C0K0N0")["nest"], self.reuse(LAYER, "n k c y x | ky kx")["nest"])

    def test_z_phases_and_groups(self):
        volume = self.reuse("mb1ic16id8oc16kd3pd1", "kz z y ky kx c x | c16 x k16")
        self.assertIn(("x", "kz"), [(one["operand"], one["carried_by"]) for one in volume["dependences"]])
        nest = "n c y x | k16 ky kx"
        phases = [self.reuse("ic16ih8oc16kh3sh2ph1", nest, "--dir", "bwd_d", "--phase", phase) for phase in range(4)]
        self.assertEqual(phases[0]["phases"], 4)
        self.assertAlmostEqual(sum(one["cost"] for one in phases), phases[2]["direction_cost"])
        self.assertNotEqual(phases[0]["cost"], phases[3]["cost"])
        self.assertEqual(self.reuse("g4ic16ih8oc16kh3ph1", "n y x | k c ky kx")["groups"], 4)
        double, single = (self.reuse(LAYER, "n k c y ky kx | c x k", "--type", kind, *LEVELS)
                          for kind in ("f64", "f32"))
        self.assertEqual(double["dependences"][0]["ws_min"], single["dependences"][0]["ws_min"])
        self.assertEqual(sum(double["ws"].values()), 2 * sum(single["ws"].values()))

    def test_the_table(self):
        table = self.run_cli("plan", "reuse", "--problem", PRODUCT, "--nest", "n k | c", *LEVELS)
        for word in ("carried by", str(2 * K + 3), str(N * K + N + 1), "l1", "mem", "cost"):
            self.assertIn(word, table)
        self.assertIn("phase 1 of 4", self.run_cli("plan", "reuse", "--problem", "ic16ih8oc16kh3sh2ph1", "--nest",
                                                   "c y x | k16 ky kx", "--dir", "bwd_d", "--phase", "1"))

    def test_nonsense_is_refused_with_the_value_and_the_remedy(self):
        def refused(*arguments, says, problem=LAYER, nest=NEST):
            self.fails("plan", "reuse", "--problem", problem, "--nest", nest, *arguments, says=says)

        refused("--caches", "1M,32K", says=["cache 1 has 1048576 bytes and cache 2 has 32768", "caches that grow"])
        refused("--caches", "32K,32K", says=["caches that grow"])
        refused("--caches", "lots", says=["--caches 'lots'", "512M"])
        refused("--caches", "0,1M", says=["size of cache 1 = 0 bytes", "positive"])
        refused("--caches", "32K,1M", "--latency", "1,4", says=["--latency 1,4", "2 caches", "write 3 numbers"])
        refused("--bandwidth", "1,2,3,4,5,6", says=["--bandwidth 1,2,3,4,5,6", "the last one for memory"])
        refused("--caches", "1K,2K,4K,8K", says=["--caches has 4 sizes", "--latency and --bandwidth"])
        refused(*LEVELS[:2], "--latency", "1,0,20,100", says=["latency of cache 2 = 0 ns", "positive"])
        refused(*LEVELS[:2], "--bandwidth", "200,100,30,-10", says=["bandwidth of memory = -10 GB/s", "positive"])
        refused("--block", "16", says=["--block 16", "has a microkernel", "leave out"])
        refused("--block", "17", nest="n k c y ky kx", says=["--block 17", "use 16, 32 or 64"])
        refused("--block", "-16", nest="n k c y ky kx", says=["--block -16", "use 16, 32 or 64"])
        refused("--phase", "1", says=["--phase 1", "1 phase"])
        refused(nest="n k c y ky | x", says=["no loop covers 'kx'"])
        refused(nest="n k c q | x", says=["'q'"])
        refused(problem="g8ic8ih16oc8kh3ph1", says=["depthwise"])
        refused(problem="nonsense", says=["benchdnn"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
