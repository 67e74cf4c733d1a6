"""What the tables and figures of paper 000 share: running the command, text, and pictures."""
import json
import math
import pathlib
import subprocess
import sys
import textwrap
from typing import Any, NamedTuple, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import results_svg as svg  # noqa: E402

X, W, Y, DRAM, PAPER, OTHER = "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#999999", "#9467bd"


class Stack(NamedTuple):
    """A bar of several parts, each with a colour."""
    label: str
    parts: Sequence[tuple[str, float]]


class CommandFailed(Exception):
    pass


class Command:
    def __init__(self, binary: str):
        self.binary = binary

    def energy(self, *words: str) -> dict[str, Any]:
        return self.run("plan", "energy", *words)

    def run(self, *words: str) -> dict[str, Any]:
        """Returns the JSON object that a command prints, with the command."""
        return {"command": " ".join(["convolume", *words]), **json.loads(self.text(*words, "--json"))}

    def text(self, *words: str) -> str:
        """Returns what a command prints."""
        command = [self.binary, *words]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise CommandFailed(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr.strip()}")
        return result.stdout


def nest_choice(command: Command, problem: str, nest: str) -> str:
    """The choice text of `direct` with this forward nest. Nothing runs the nests of the other directions."""
    plan = command.run("plan", "explain", "--problem", problem, "--layout", "blocked", "--engine", "direct")
    others = plan["choice"].split()[2:4]
    return " ".join(["direct", "fwd=" + nest.replace(" ", "."), *others])


def code(text: str) -> str:
    """Code in a cell of a table."""
    return "`" + text.replace("|", "\\|") + "`"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def memory(report: dict[str, Any]) -> float:
    return report["memory_pj_per_mac"]


def operand(report: dict[str, Any], name: str) -> float:
    """pJ per multiply-add of the accesses of a tensor, those of the DRAM included."""
    return (report["energy_pj"][name] + report["dram_pj"][name]) / report["macs"]


def stacked_bars(title: str, label: str, stacks: Sequence[Stack], legend: Sequence[tuple[str, str]]) -> str:
    """Horizontal bars of parts, one below the other."""
    left, right, top, row = 200, 70, 50, 18
    width, height = 900, top + row * len(stacks) + 45
    most = 1.05 * max(sum(value for _, value in stack.parts) for stack in stacks)
    bottom = top + row * len(stacks)

    def x(value: float) -> float:
        return left + (width - left - right) * value / most

    parts = []
    for value in svg.ticks(most, 6):
        parts += [svg.line(x(value), top, x(value), bottom, svg.GRID),
                  svg.text(x(value), bottom + 16, f"{value:g}", "middle")]
    for i, stack in enumerate(stacks):
        at, y = 0.0, top + row * i
        for color, value in stack.parts:
            parts.append(f'<rect x="{svg.number(x(at))}" y="{svg.number(y + 3)}" '
                         f'width="{svg.number(x(at + value) - x(at))}" height="{row - 6}" fill="{color}"/>')
            at += value
        parts += [svg.text(left - 6, y + row - 5, stack.label, "end"),
                  svg.text(x(at) + 5, y + row - 5, f"{at:.3g}")]
    parts += [svg.line(left, top, left, bottom, svg.INK), svg.text(left, height - 8, label)]
    return svg.document(width, height, title, parts + svg.legend(left, 38, legend))


OPERANDS = [(X, "x (IB)"), (W, "w (KB)"), (Y, "y (OB)")]


def operand_stack(label: str, report: dict[str, Any], scale: float = 1) -> Stack:
    return Stack(label, [(color, scale * operand(report, name)) for color, name in ((X, "x"), (W, "w"), (Y, "y"))])


def at_least(value: float, required: float) -> str:
    return f"{value:.3f} (required: {required:g}{'' if value >= required else ', NOT reached'})"


def bullets(*sentences: str) -> str:
    """A list of the sentences that are not empty."""
    return wrapped("\n".join(f"- {sentence}" for sentence in sentences if sentence))


def wrapped(text: str) -> str:
    """Breaks paragraphs and list items at 100 columns. Tables stay."""
    blocks = []
    for block in text.strip().split("\n\n"):
        if block.startswith("|"):
            blocks.append(block)
            continue
        items: list[list[str]] = []
        for line in block.split("\n"):
            if line.startswith("- ") or not items:
                items.append([])
            items[-1].append(line.strip())
        blocks.append("\n".join(textwrap.fill(" ".join(item), width=100, break_long_words=False, break_on_hyphens=False,
                                              subsequent_indent="  " if item[0].startswith("- ") else "")
                                for item in items))
    return "\n\n".join(blocks) + "\n"
