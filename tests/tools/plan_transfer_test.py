#!/usr/bin/env python3
"""`convolume plan transfer`: what it prints, and what it refuses."""

import json
import pathlib
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from command import CONVOLUME, CliTest

SOURCE = pathlib.Path(__file__).resolve().parents[2]

SMALL = "ic4ih16oc8kh3ph1"
TABLE_1 = [88, 98, 98, 86, 85, 88, 76, 86, 90, 91]


class PlanTransfer(CliTest):
    def transfer(self, *arguments):
        return json.loads(self.run_cli("plan", "transfer", "--json", *arguments))

    def test_json_has_all_keys_and_costs_follow_from_counts(self):
        plans = self.transfer("--problem", SMALL, "--capacity", "4K", "--cost", "100,10,1", "--pick", "all")
        self.assertEqual(set(plans), {"order", "footprint", "counts", "capacity_bytes", "element_bytes", "price",
                                      "layers", "total"})
        self.assertEqual((plans["order"], plans["footprint"], plans["capacity_bytes"]), ("zyxck", "halo", 4096))
        layer = plans["layers"][0]
        self.assertEqual(set(layer), {"name", "problem", "tiles", "naive_tiles", "picks", "best", "naive", "fullest",
                                      "ratio"})
        self.assertEqual([pick["pick"] for pick in layer["picks"]], ["best", "naive", "fullest"])
        for pick in layer["picks"]:
            self.assertEqual(set(pick), {"pick", "tile", "calls", "jumps", "words", "cost", "usage", "feasible",
                                         "exact"})
            self.assertTrue(pick["feasible"])
            for operand in "xwy":
                self.assertEqual(pick["cost"][operand], 100 * pick["calls"][operand] + 10 * pick["jumps"][operand] +
                                 pick["words"][operand])
            self.assertEqual(pick["cost"]["total"], sum(pick["cost"][operand] for operand in "xwy"))
            summary = layer[pick["pick"]]
            self.assertEqual((summary["tile"], summary["total"], summary["usage"]),
                             (pick["tile"], pick["cost"]["total"], pick["usage"]))
        best, naive, fullest = (layer[pick] for pick in ("best", "naive", "fullest"))
        self.assertLess(best["total"], naive["total"])
        self.assertGreaterEqual(fullest["usage"], best["usage"])
        self.assertGreaterEqual(naive["usage"], 0.8)
        self.assertEqual(layer["ratio"], naive["total"] / best["total"])
        self.assertEqual(plans["total"]["ratio"], layer["ratio"])

    def test_flownet_s_is_built_in_and_has_the_usage_of_table_1(self):
        plans = self.transfer("--layer", "flownet_s")
        self.assertEqual([layer["name"] for layer in plans["layers"]],
                         ["conv_1", "conv_2", "conv_3", "conv_3.1", "conv_4", "conv_4.1", "conv_5", "conv_5.1",
                          "conv_6", "conv_6.1"])
        deviation = [abs(100 * layer["best"]["usage"] - paper) for layer, paper in zip(plans["layers"], TABLE_1)]
        self.assertLessEqual(sum(deviation) / len(deviation), 3)
        self.assertTrue(4 <= plans["total"]["ratio"] <= 7)
        self.assertIn("fit", plans["price"]["source"])
        one = self.transfer("--layer", "flownet_s.conv_3.1")
        self.assertEqual(one["layers"], plans["layers"][3:4])

    def test_the_constraint_of_the_paper_takes_no_halo(self):
        halo = self.transfer("--layer", "flownet_s.conv_2")
        paper = self.transfer("--layer", "flownet_s.conv_2", "--footprint", "paper")
        self.assertGreater(paper["layers"][0]["tiles"], halo["layers"][0]["tiles"])
        self.assertLessEqual(paper["layers"][0]["best"]["total"], halo["layers"][0]["best"]["total"])

    def test_problems_come_from_a_file_with_names_and_comments(self):
        (self.folder / "problems.txt").write_text(f'# two\n{SMALL}n"flat"\n\n  mb2ic4id8oc8kd3pd1  # deep\n')
        plans = self.transfer("--problems", "problems.txt", "--capacity", "4K")
        self.assertEqual([layer["name"] for layer in plans["layers"]][0], "flat")
        self.assertEqual(len(plans["layers"]), 2)
        self.assertGreater(plans["layers"][1]["best"]["tile"]["z"], 0)
        alone = self.transfer("--problem", "mb2ic4id8oc8kd3pd1", "--capacity", "4K")
        self.assertEqual(plans["layers"][1]["best"], alone["layers"][0]["best"])

    def test_orders_and_elements(self):
        listing = self.transfer("--problem", SMALL, "--capacity", "4K", "--order", "yxck")
        self.assertEqual(listing["layers"][0]["best"],
                         self.transfer("--problem", SMALL, "--capacity", "4K")["layers"][0]["best"])
        other = self.transfer("--problem", SMALL, "--capacity", "4K", "--order", "kcyx")
        self.assertNotEqual(other["layers"][0]["best"]["total"], listing["layers"][0]["best"]["total"])
        wide = self.transfer("--problem", SMALL, "--capacity", "8K", "--element", "8")
        self.assertEqual(wide["layers"][0]["best"], listing["layers"][0]["best"])

    def test_exact_counts_find_tiles_that_are_cheaper_by_them(self):
        arguments = ("--problem", "ic8id24oc8kd3pd1", "--capacity", "64K", "--cost", "1,1000,1")
        by_equations, by_counts = self.transfer(*arguments), self.transfer(*arguments, "--counts", "exact")
        one, other = (plans["layers"][0]["picks"][0] for plans in (by_equations, by_counts))
        self.assertEqual(by_counts["counts"], "exact")
        self.assertEqual(by_counts["layers"][0]["best"]["total"], other["exact"]["cost"]["total"])
        self.assertLess(other["exact"]["cost"]["total"], one["exact"]["cost"]["total"])
        self.assertGreater(other["cost"]["total"], one["cost"]["total"])
        self.fails("plan", "transfer", "--problem", "g8ic8ih16oc8kh3ph1", "--counts", "exact", says=["depthwise"])

    def test_a_run_moves_the_tiles_with_their_halo(self):
        plans = self.transfer("--problem", SMALL, "--capacity", "4K", "--cost", "memory", "--pick", "all", "--run")
        self.assertEqual(plans["price"]["unit"], "s")
        self.assertIn("machine row", plans["price"]["source"])
        for pick in plans["layers"][0]["picks"]:
            measured = pick["measured"]
            self.assertEqual(set(measured), {"seconds", "transfer_s", "words", "passes"})
            self.assertGreaterEqual(measured["passes"], 3)
            self.assertTrue(0 < measured["transfer_s"])
            self.assertEqual(measured["words"],
                             pick["exact"]["words"]["x"] + pick["words"]["w"] + pick["words"]["y"])

    def test_prices_of_files_are_measured(self):
        plans = self.transfer("--problem", SMALL, "--capacity", "64K", "--cost", f"file:{self.folder}")
        price = plans["price"]
        self.assertIn("measured, file in", price["source"])
        for part in ("start", "jump", "element"):
            self.assertGreater(price[part], 0)
        self.assertLess(price["element"], 1e-6)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["data.toml", "net.toml"])

    def test_the_table_shows_the_tiles(self):
        table = self.run_cli("plan", "transfer", "--layer", "flownet_s", "--pick", "all")
        for word in ("conv_6.1", "naive", "fullest", "usage", "256 KiB in two halves", "fit to Table 1"):
            self.assertIn(word, table)

    def test_a_convolution_that_fits_has_no_naive_tile(self):
        layer = self.transfer("--problem", SMALL, "--capacity", "1M", "--pick", "all")["layers"][0]
        self.assertEqual((layer["naive"], layer["ratio"]), (None, None))
        self.fails("plan", "transfer", "--problem", SMALL, "--capacity", "1M", "--pick", "naive",
                   says=["80 %", "--capacity"])

    def test_depthwise_convolutions_have_no_exact_counts(self):
        pick = self.transfer("--problem", "g8ic8ih16oc8kh3ph1", "--capacity", "1K")["layers"][0]["picks"][0]
        self.assertIsNone(pick["exact"])
        self.assertGreater(pick["cost"]["total"], 0)

    def test_the_script_of_the_paper_writes_table_1(self):
        page = self.folder / "page.md"
        page.write_text("before\n<!-- cecconi.py table 1 -->\nold\n<!-- end -->\nbehind\n")
        command = [sys.executable, SOURCE / "bench/papers/cecconi.py", "--table", "1", "--out", self.folder / "table",
                   "--convolume", CONVOLUME, "--into", page, "--json", self.folder / "numbers.json"]
        subprocess.run(command, check=True, timeout=120)
        self.assertFalse((self.folder / "table.json").exists())  # nothing was measured
        data = json.loads((self.folder / "numbers.json").read_text())
        self.assertLessEqual(data["mean_deviation"], 3)
        self.assertGreater(min(data["fullest_over_best"]), 1.5)
        text = (self.folder / "table.md").read_text()
        self.assertIn(f"{data['mean_deviation']:.2f} points", text)
        self.assertEqual(page.read_text(), f"before\n<!-- cecconi.py table 1 -->\n\n{text}\n<!-- end -->\nbehind\n")
        xml.etree.ElementTree.parse(self.folder / "table.svg")

    def test_the_file_of_the_layers_has_the_built_in_layers(self):
        built_in = self.transfer("--layer", "flownet_s")
        self.assertEqual(self.transfer("--problems", SOURCE / "bench/papers/flownet_s.txt"), built_in)

    def test_nonsense_is_refused_with_the_value_and_the_remedy(self):
        def refused(*arguments, says, problem=("--problem", SMALL)):
            self.fails("plan", "transfer", *problem, *arguments, says=says)

        refused("--capacity", "100", says=["capacity_bytes = 100", "use at least 160"])
        refused("--capacity", "lots", says=["--capacity 'lots'", "512M"])
        refused("--cost", "0,20,1", says=["start (C) = 0", "positive"])
        refused("--cost", "5000,-20,1", says=["jump (p) = -20", "positive"])
        refused("--cost", "5000,20,0", says=["element (t) = 0", "positive"])
        refused("--cost", "5000,20", says=["--cost '5000,20'", "5000,20,1"])
        refused("--cost", "5000,20,nan", says=["element (t) = nan"])
        refused("--cost", "file:/no/such/folder", says=["/no/such/folder"])
        refused("--cost", "file:.", "--run", says=["--run", "--cost memory"])
        refused("--order", "yxcq", says=["order 'yxcq'", "'q' is no loop"])
        refused("--order", "yxc", says=["no loop covers", "'k'"])
        refused("--element", "0", says=["element_bytes = 0"])
        refused(problem=("--problem", "nonsense"), says=["benchdnn"])
        refused(problem=("--layer", "flownet_s.conv_7"), says=["flownet_s.conv_7", "flownet_s.conv_6.1"])
        refused(problem=("--problems", "missing.txt"), says=["missing.txt", "path"])
        (self.folder / "bad.txt").write_text(f"{SMALL}\nic4junk\n")
        refused(problem=("--problems", "bad.txt"), says=["bad.txt:2"])
        (self.folder / "empty.txt").write_text("# nothing\n")
        refused(problem=("--problems", "empty.txt"), says=["contains no problem"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
