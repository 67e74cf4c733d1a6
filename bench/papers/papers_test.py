"""Tests the scripts that measure: one item each, on a small layer, and how they continue."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

CONVOLUME = sys.argv.pop(1)
HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import polyscientist  # noqa: E402
import swdnn  # noqa: E402


class PaperScript(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.record = self.folder / "record.jsonl"
        self.page = self.folder / "page.md"

    def run_script(self, script, *words, check=True):
        command = [sys.executable, HERE / script, *words, "--convolume", CONVOLUME, "--record", self.record]
        return subprocess.run(command, check=check, timeout=300, capture_output=True, text=True)


class Pages(unittest.TestCase):
    def test_the_page_has_a_place_for_each_item(self):
        page = (HERE.parent.parent / "docs/papers.md").read_text()
        for script, items in (("swdnn.py", swdnn.ITEMS), ("polyscientist.py", polyscientist.items())):
            places = re.findall(rf"^<!-- {re.escape(script)} (.*) -->$", page, re.MULTILINE)
            self.assertEqual(sorted(places), sorted(items))


class PolyScientist(PaperScript):
    def setUp(self):
        super().setUp()
        (self.folder / "alexnet.txt").write_text('# left out: another\nmb1ic32ih10oc32oh10kh3ph1n"small layer"\n')
        self.page.write_text("before\n<!-- polyscientist.py figure 19 -->\n<!-- end -->\nbehind\n")
        self.words = ("--figure", "19", "--lists", self.folder, "--variants", "6", "--rounds", "1", "--into", self.page,
                      "--out", self.folder / "bars", "--json", self.folder / "numbers.json")

    def test_an_item_measures_and_continues(self):
        self.run_script("polyscientist.py", *self.words)
        (row,) = json.loads((self.folder / "numbers.json").read_text())["layers"]
        self.assertEqual((row["layer"], row["problem"], row["variants"]),
                         (1, "mb2ic32ih10oc32oh10kh3ph1", 6))
        for who in ("c_loops", "default", "reuse", "seconds", "best", "automatic", "onednn"):
            self.assertGreater(row[f"{who}_low_s"], 0)
        text = self.page.read_text()
        self.assertIn("![Paper 004, figure 19](bars.svg)", text)
        self.assertRegex(text, r"\| 1 \| small layer \|")
        xml.etree.ElementTree.parse(self.folder / "bars.svg")
        # The second run has nothing to measure: a line that was cut off is measured again.
        lines = self.record.read_text()
        self.assertEqual(self.run_script("polyscientist.py", *self.words).stderr, "")
        self.assertEqual(self.record.read_text(), lines)
        self.record.write_text(lines[:-20])
        self.assertIn("1 of 1 layers", self.run_script("polyscientist.py", *self.words).stderr)

    def test_a_record_of_other_options_is_refused(self):
        self.record.write_text(json.dumps({"script": "polyscientist.py", "threads": 64}) + "\n")
        refused = self.run_script("polyscientist.py", *self.words, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, re.escape(str(self.record)) + ".*but this run has.*use another file")

    def test_a_file_that_is_no_record_is_kept(self):
        self.record.write_text("notes without a line break")
        refused = self.run_script("polyscientist.py", *self.words, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, "is no record of measurements; use another file")
        self.assertEqual(self.record.read_text(), "notes without a line break")


class SwDnn(PaperScript):
    def test_an_item_measures_and_continues(self):
        layers = self.folder / "layers.txt"
        layers.write_text('mb1ic16ih8oc16oh8kh3ph1n"small layer"\n')
        self.page.write_text("<!-- swdnn.py figure 9 -->\n<!-- end -->\n")
        words = ("--figure", "9", "--layers", layers, "--rounds", "1", "--max-seconds", "0.1", "--into", self.page,
                 "--out", self.folder / "types")
        self.run_script("swdnn.py", *words)
        lines = self.record.read_text()
        self.assertEqual([list(json.loads(line))[0] for line in lines.splitlines()[1:]],
                         [f"training mb8ic16ih8oc16oh8kh3ph1 {precision}" for precision in ("float", "double")])
        self.assertIn("| small layer |", self.page.read_text())
        self.assertEqual(json.loads((self.folder / "types.json").read_text())["paper"], "003")
        self.assertEqual(self.run_script("swdnn.py", *words).stderr, "")
        self.assertEqual(self.record.read_text(), lines)

    def test_the_list_has_the_problems_of_the_model(self):
        lines = (HERE.parent / "problems/swdnn.txt").read_text().splitlines()
        command = [CONVOLUME, "plan", "bandwidth", "--test-sets", "--machine", "sw26010", "--json"]
        model = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        names = [case["name"] for case in model["cases"]]
        self.assertEqual(len(names), 51)
        self.assertEqual([line.split('n"')[0] for line in lines if line and not line.startswith("#")],
                         list(dict.fromkeys(names)))


if __name__ == "__main__":
    unittest.main()
