#!/usr/bin/env python3
"""The architecture page is true: its picture is the one that tools/check_layers draws, the files and functions that it
names exist, and where a page names a file and a function together, the file has the function.

    architecture_test.py SOURCE
"""
import pathlib
import re
import subprocess
import sys
import tempfile
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


NAME, FILE = r"`(?:\w+::)*\w+(?:\(\))?`", r"`(?:[\w.-]+/)+[\w-]+(?:\.\w+)+`"
NAMES = rf"{NAME}(?:(?:, and |, or |, | and | or ){NAME})*"


def names_in_files(text):
    """(name, files that a page names with it), where the text says "`f()` in `FILE`", "`A` (`FILE`)" or "`FILE`: add it
    to `f()`.", or a row of a table has functions in one cell and files in another."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    line = re.sub(r"\s+", " ", text)
    found = [(name, [file]) for names, file in re.findall(rf"({NAMES})(?: is| are)? (?:in |of |\()({FILE})", line)
             for name in re.findall(NAME, names)]
    for file, rest in re.findall(rf"({FILE}): ((?:[^.`]|`[^`]*`)*)\.", line):
        if not re.search(FILE, rest):
            found += [(name, [file]) for name in re.findall(NAME, rest) if "(" in name or "::" in name]
    for row in re.findall(r"^\|(.*)\|$", text, re.M):
        cells = [cell.strip() for cell in row.split("|")]
        files = [file for cell in cells if re.fullmatch(rf"{FILE}(?:, {FILE})*", cell)
                 for file in re.findall(FILE, cell)]
        if files:
            found += [(name, files) for cell in cells if re.fullmatch(NAMES, cell) for name in re.findall(NAME, cell)]
    return [(name.strip("`"), [file.strip("`") for file in files]) for name, files in found]


def misplaced_names(root, text):
    """"name: files" for each name of names_in_files() that occurs in none of its files."""
    wrong = []
    for name, files in names_in_files(text):
        words = {word for file in files if (root / file).is_file()
                 for word in re.findall(r"\w+", (root / file).read_text(encoding="utf-8", errors="replace"))}
        if name.removesuffix("()").split("::")[-1] not in words:
            wrong.append(f"{name}: {', '.join(files)}")
    return sorted(set(wrong))


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

    def test_files_have_the_functions_that_pages_name_with_them(self):
        self.assertGreater(len(names_in_files((SOURCE / PAGE).read_text(encoding="utf-8"))), 50)
        pages = [*SOURCE.glob("*.md"), *(SOURCE / "src").glob("*.md"), *(SOURCE / "docs").glob("*.md"),
                 *(SOURCE / "docs/performance").glob("*.md")]
        for page in pages:
            wrong = misplaced_names(SOURCE, page.read_text(encoding="utf-8"))
            self.assertEqual(wrong, [], f"{page} names functions that are not in the file that it names")

    def test_finds_what_is_misplaced(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            (root / "src/a.cpp").write_text("struct A { void run(); };\nvoid start();\n")
            for text in ("`gone()` in `src/a.cpp`", "`A::gone()` or `start()` in `src/a.cpp`", "`run()` in `src/b.cpp`",
                         "`Gone` (`src/a.cpp`)", "`src/a.cpp`: add it\nto `gone()`.",
                         "| x | `gone()`, `run()` | `src/a.cpp` |"):
                self.assertEqual(len(misplaced_names(root, text)), 1, text)
            for text in ("`A::run()` and\n`start` in `src/a.cpp`", "`gone()` calls `run()`",
                         "`src/a.cpp`: add it to `run()`. `gone()` does not need it.",
                         "| `run()` | `src/gone.cpp`, `src/a.cpp` |"):
                self.assertEqual(misplaced_names(root, text), [], text)

    def test_finds_what_is_missing(self):
        self.assertEqual(missing_files(SOURCE, "`src/core/` `src/gone.cpp` `gone/` `a b/c.cpp` `name.cpp`"),
                         ["gone/", "src/gone.cpp"])
        self.assertEqual(missing_names({"Plan", "make"}, "`Plan::make` `make()` `Plan::gone()` `gone`"), ["gone"])


if __name__ == "__main__":
    unittest.main()
