"""Vertical bars that the figures of several papers share."""
import math
import pathlib
import sys
from typing import NamedTuple, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import results_svg as svg  # noqa: E402


class Series(NamedTuple):
    name: str
    color: str
    values: Sequence[float]


def grouped_bars(title: str, label: str, groups: Sequence[str], series: Sequence[Series], logarithmic: bool) -> str:
    """Vertical bars, one group per layer. Logarithmic axes begin at 1."""
    left, right, top, bottom, width, height = 50, 20, 60, 50, 900, 360
    most = 1.1 * max(max(one.values) for one in series)

    def y(value: float) -> float:
        share = math.log(max(value, 1)) / math.log(most) if logarithmic else value / most
        return height - bottom - (height - top - bottom) * share

    parts = []
    for value in [v for v in svg.log_ticks(1, most) if v >= 1] if logarithmic else svg.ticks(most, 5):
        parts += [svg.line(left, y(value), width - right, y(value), svg.GRID),
                  svg.text(left - 6, y(value) + 4, f"{value:g}", "end")]
    group = (width - left - right) / len(groups)
    bar = 0.8 * group / len(series)
    for i, name in enumerate(groups):
        for k, one in enumerate(series):
            x = left + group * (i + 0.1) + bar * k
            parts.append(f'<rect x="{svg.number(x)}" y="{svg.number(y(one.values[i]))}" width="{svg.number(bar)}" '
                         f'height="{svg.number(height - bottom - y(one.values[i]))}" fill="{one.color}"/>')
        parts.append(svg.text(left + group * (i + 0.5), height - bottom + 16, name, "middle"))
    parts += [svg.line(left, height - bottom, width - right, height - bottom, svg.INK), svg.text(left, 34, label)]
    parts += svg.legend(left, height - 10, [(one.color, one.name) for one in series])
    return svg.document(width, height, title, parts)
