"""What the scripts of all papers share: results, Markdown tables, and their places in a page."""
import argparse
import datetime
import json
import os
import pathlib
import sys
from typing import Any, Callable, NamedTuple, Optional, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import results_data  # noqa: E402


class Result(NamedTuple):
    """What is written: all numbers, Markdown, a picture, and those numbers that were measured."""
    data: dict[str, Any]
    text: str
    picture: str
    measured: Optional[dict[str, Any]] = None


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, help="prefix of the files to write")
    parser.add_argument("--into", type=pathlib.Path, help="document to put the text into")
    parser.add_argument("--json", type=pathlib.Path, help="file for all numbers, also those that are only computed")


def write(result: Result, arguments: argparse.Namespace, paper: str, item: str, script: str) -> None:
    """Writes PREFIX.md and PREFIX.svg, and PREFIX.json if something was measured."""
    head = {"paper": paper, "item": item, "date": datetime.date.today().isoformat()}
    files = {"md": result.text, "svg": result.picture}
    if result.measured is not None:
        files["json"] = results_data.text({**head, **results_data.compact(result.measured)})
    for suffix, text in files.items():
        pathlib.Path(f"{arguments.out}.{suffix}").write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps({**head, **result.data}, indent=1) + "\n")
    if arguments.into:
        replace_block(arguments.into, script, item, result.text)


def with_picture(result: Result, arguments: argparse.Namespace, title: str) -> Result:
    """The result with a link to its picture before the text, so that a page has no link before there is a picture."""
    page = arguments.into if arguments.into else pathlib.Path(arguments.out)
    link = pathlib.Path(os.path.relpath(f"{arguments.out}.svg", page.parent)).as_posix()
    return result._replace(text=f"![{title}]({link})\n\n{result.text}")


def write_items(items: dict[str, Callable[[Any], Result]], page: Any, arguments: argparse.Namespace, paper: str,
                script: str) -> None:
    """Makes the item of --table or --figure from `page`, or with --all every item, each with a prefix of its own.
    Prints the sentences about required ratios, data["musts"]."""
    prefix, chosen = arguments.out, f"table {arguments.table}" if arguments.table else f"figure {arguments.figure}"
    for name, make in items.items():
        if not arguments.all and name != chosen:
            continue
        result = make(page)
        if arguments.all:
            arguments.out = f"{prefix}_{name.replace(' ', '_')}"
        write(with_picture(result, arguments, f"Paper {paper}, {name}"), arguments, paper, name, script)
        for sentence in result.data.get("musts", []):
            if sentence:
                print(f"{name}: {sentence}")


def named(machine: dict[str, Any]) -> dict[str, Any]:
    """What data files say of the machine."""
    return {key: machine[key] for key in ("processor", "row", "simd", "usable_processors")}


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
