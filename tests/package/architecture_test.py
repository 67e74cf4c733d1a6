#!/usr/bin/env python3
"""The architecture page is true: its picture is the one that tools/check_layers draws, and the files and functions that
it names exist.

    architecture_test.py SOURCE
"""
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop())
PICTURE, PAGE = "docs/architecture.svg", "docs/architecture.md"
ROOTS = ["include", "src", "allocator", "fft", "scheduler", "nets", "testing", "tools", "bench", "tests", "cmake"]
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".py", ".cmake", ".txt", ".toml", ".sh", ""}


def quoted(text):
    """The words in backticks outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def missing_files(root, text):
    """The names in backticks that look like a file or folder of the tree and are not there."""
    paths = {word for word in quoted(text) if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/|([\w.-]+/)+[\w-]+\.\w+", word)}
    return sorted(path for path in paths if not (root / path).exists())


def missing_names(words, text):
    """The functions and members in backticks, as "f()" or "A::b", of which a part is not among `words`."""
    names = set()
    for word in quoted(text):
        match = re.fullmatch(r"([\w:]+?)(\(\))?", word)
        if match and ("::" in word or match.group(2)):
            names.update(part for part in match.group(1).split("::") if part not in words | {"std"})
    return sorted(names)


class Architecture(unittest.TestCase):
    def test_picture_is_up_to_date(self):
        drawn = subprocess.run([sys.executable, SOURCE / "tools/check_layers", "--svg", "-", SOURCE],
                               capture_output=True, text=True, encoding="utf-8")
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        self.assertTrue(drawn.stdout == (SOURCE / PICTURE).read_text(encoding="utf-8"),
                        f"{PICTURE} is not up to date; draw it again with: tools/check_layers --svg {PICTURE}")

    def test_page_names_what_exists(self):
        page = SOURCE / PAGE
        text = page.read_text(encoding="utf-8")
        self.assertEqual(missing_files(SOURCE, text), [], f"{PAGE} names files that do not exist")
        words = set()
        for place in ROOTS:
            for file in (SOURCE / place).rglob("*"):
                if file.suffix in SUFFIXES and file.is_file() and "__pycache__" not in file.parts:
                    words.update(re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace")))
        self.assertEqual(missing_names(words, text), [], f"{PAGE} names functions that do not exist")

    def test_finds_what_is_missing(self):
        self.assertEqual(missing_files(SOURCE, "`src/core/` `src/gone.cpp` `gone/` `a b/c.cpp` `name.cpp`"),
                         ["gone/", "src/gone.cpp"])
        self.assertEqual(missing_names({"Plan", "make"}, "`Plan::make` `make()` `Plan::gone()` `gone`"), ["gone"])


if __name__ == "__main__":
    unittest.main()
