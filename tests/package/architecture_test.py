#!/usr/bin/env python3
"""The architecture picture is the one that tools/check_layers draws.

    architecture_test.py SOURCE
"""
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop())
PICTURE = "docs/architecture.svg"


class Architecture(unittest.TestCase):
    def test_picture_is_up_to_date(self):
        drawn = subprocess.run([sys.executable, SOURCE / "tools/check_layers", "--svg", "-", SOURCE],
                               capture_output=True, text=True, encoding="utf-8")
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        self.assertTrue(drawn.stdout == (SOURCE / PICTURE).read_text(encoding="utf-8"),
                        f"{PICTURE} is not up to date; draw it again with: tools/check_layers --svg {PICTURE}")


if __name__ == "__main__":
    unittest.main()
