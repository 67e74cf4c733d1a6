"""What the scripts of all papers share: results, Markdown tables, and their places in a page."""
import pathlib
import sys
from typing import Any, NamedTuple, Sequence


class Result(NamedTuple):
    """What is written: numbers, Markdown and a picture."""
    data: dict[str, Any]
    text: str
    picture: str


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def replace_block(document: pathlib.Path, script: str, name: str, text: str) -> None:
    """Replaces what stands between the comments of a table or figure of a script."""
    begin, end = f"<!-- {script} {name} -->\n", "<!-- end -->"
    page = document.read_text()
    if begin not in page:
        sys.exit(f"{document}: the line {begin.strip()} is missing; add it, and {end} behind it")
    before, rest = page.split(begin, 1)
    if end not in rest:
        sys.exit(f"{document}: {end} is missing behind {begin.strip()}")
    document.write_text(before + begin + "\n" + text + "\n" + end + rest.split(end, 1)[1])
