"""Every link of every Markdown file of the tree leads to a file, and to a heading if it names one.

    markdown_links_test.py SOURCE
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop())
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")
# A decision record that a text names, as "ADR 23".
RECORD = re.compile(r"\bADR (\d+)\b")


def anchors(text):
    """Names that headings get, as GitHub makes them."""
    names, seen = set(), {}
    for heading in re.findall(r"^#+\s+(.*?)\s*#*$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def broken_links(root, files):
    """"file: what is wrong" for each link that leads nowhere."""
    wrong = []
    for file in files:
        text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.M | re.S)
        place = file.relative_to(root).as_posix()
        for first, second in LINK.findall(text):
            link = first or second
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file
            if not target.exists():
                wrong.append(f"{place}: {link}: there is no such file")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
                wrong.append(f"{place}: {link}: there is no such heading")
        records = {int(record.name[:4]) for record in (root / "docs/adr").glob("[0-9]*.md")}
        for number in RECORD.findall(text):
            if int(number) not in records:
                wrong.append(f"{place}: ADR {number}: there is no such record")
    return wrong


def markdown_files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [root / name for name in listed.stdout.splitlines() if (root / name).is_file()]
    return [file for file in root.rglob("*.md") if "build" not in file.relative_to(root).parts[0]]


class Links(unittest.TestCase):
    def test_all_lead_somewhere(self):
        files = markdown_files(SOURCE)
        self.assertGreater(len(files), 10)
        self.assertEqual(broken_links(SOURCE, files), [])

    def test_broken_ones_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs/adr").mkdir(parents=True)
            (root / "docs/adr/0001-one.md").write_text("# One thing\n")
            page = root / "docs/page.md"
            page.write_text("# Page\n[good](adr/0001-one.md#one-thing) [self](#page) ADR 1 [out](https://example.org)\n"
                            "```\n[code](nowhere.md)\n```\n")
            self.assertEqual(broken_links(root, [page]), [])
            page.write_text("[a](gone.md) [b](adr/0001-one.md#two) ![c](gone.svg) ADR 2\n")
            self.assertEqual(len(broken_links(root, [page])), 4)


if __name__ == "__main__":
    unittest.main()
