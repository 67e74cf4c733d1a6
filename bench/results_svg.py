"""Draws the plots of bench/results.py as SVG text: small, light, the same bytes for the same data."""
import math
from typing import Iterable, NamedTuple, Sequence
from xml.sax.saxutils import escape

INK, GRID, MARK = "#333333", "#dddddd", "#888888"
COLORS = {"smooth": "#1f77b4", "prime": "#d62728", "other": "#999999", "forward": "#1f77b4", "training": "#ff7f0e",
          "weight gradient": "#2ca02c"}


class Point(NamedTuple):
    """A ratio over a length, with its quartiles and the class of the length."""
    n: int
    ratio: float
    low: float
    high: float
    kind: str


class Bar(NamedTuple):
    """A ratio of one problem in one pass, with its quartiles."""
    label: str
    kind: str
    ratio: float
    low: float
    high: float


def number(value: float) -> str:
    """A coordinate: one decimal is less than a pixel."""
    return f"{value:.1f}"


def text(x: float, y: float, what: str, anchor: str = "start", color: str = INK) -> str:
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" fill="{color}">{escape(what)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, color: str, more: str = "") -> str:
    return (f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
            f'stroke="{color}"{more}/>')


def document(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A whole file, on white, so that it also reads on a dark page."""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="12">')
    body = [f"<title>{escape(title)}</title>", f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            text(width / 2, 18, title, "middle"), *parts]
    return "\n".join([head, *body, "</svg>"]) + "\n"


def round_step(span: float, ticks: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives about so many ticks."""
    if span <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / ticks))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power * ticks >= span)


def ratio_over_n(title: str, label: str, points: Sequence[Point], mean: float) -> str:
    """Points with quartiles over N, the line of equal speed and the line of the geometric mean."""
    left, right, top, bottom, width, height = 50, 20, 50, 40, 900, 380
    most_n, most = max(p.n for p in points), 1.05 * max(max(p.ratio, p.high) for p in points)

    def x(n: float) -> float:
        return left + (width - left - right) * n / most_n

    def y(ratio: float) -> float:
        return height - bottom - (height - top - bottom) * ratio / most

    parts = []
    for value in ticks(most, 6):
        parts += [line(left, y(value), width - right, y(value), GRID),
                  text(left - 6, y(value) + 4, f"{value:g}", "end")]
    for value in ticks(most_n, 10):
        parts += [line(x(value), y(0), x(value), y(0) + 4, INK), text(x(value), y(0) + 17, f"{value:g}", "middle")]
    parts += [line(left, y(1), width - right, y(1), INK), line(left, y(mean), width - right, y(mean), MARK,
                                                               ' stroke-dasharray="5 4"')]
    for p in points:
        color = COLORS[p.kind]
        parts.append(line(x(p.n), y(p.low), x(p.n), y(p.high), color, ' stroke-opacity="0.4"'))
        parts.append(f'<circle cx="{number(x(p.n))}" cy="{number(y(p.ratio))}" r="3" fill="{color}"/>')
    parts += legend(left, 36, [(COLORS["smooth"], "prime factors up to 13"), (COLORS["prime"], "primes from 17"),
                               (COLORS["other"], "other N"), (MARK, f"geometric mean {mean:.2f}"),
                               (INK, "equal speed")])
    parts += [text(left, height - 6, label), text(width - right, height - 6, "N", "end")]
    return document(width, height, title, parts)


def ticks(most: float, count: int) -> list[float]:
    step = round_step(most, count)
    return [i * step for i in range(int(most / step) + 1)]


def legend(x: float, y: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Coloured squares with their names, in one row."""
    parts = []
    for color, name in entries:
        parts += [f'<rect x="{number(x)}" y="{number(y - 9)}" width="10" height="10" fill="{color}"/>',
                  text(x + 15, y, name)]
        x += 15 + 7 * len(name) + 20
    return parts


def ratio_bars(title: str, label: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars on a logarithmic axis that begins at the line of equal speed: losses point to the left."""
    left, right, top, row = 230, 60, 50, 18
    width, height = 900, top + row * len(bars) + 45
    low = min(0.5, 0.9 * min(bar.low for bar in bars))
    high = max(2.0, 1.2 * max(max(bar.ratio, bar.high) for bar in bars))
    scale = (width - left - right) / math.log(high / low)

    def x(ratio: float) -> float:
        return left + scale * math.log(ratio / low)

    bottom = top + row * len(bars)
    parts = []
    for value in log_ticks(low, high):
        parts += [line(x(value), top, x(value), bottom, GRID), text(x(value), bottom + 16, f"{value:g}", "middle")]
    for i, bar in enumerate(bars):
        y = top + row * i
        begin, end = sorted((x(1), x(bar.ratio)))
        parts += [f'<rect x="{number(begin)}" y="{number(y + 3)}" width="{number(max(end - begin, 1))}" '
                  f'height="{row - 6}" fill="{COLORS[bar.kind]}"/>',
                  line(x(bar.low), y + row / 2, x(bar.high), y + row / 2, INK),
                  text(left - 6, y + row - 5, bar.label, "end"),
                  text(max(end, x(bar.high)) + 5, y + row - 5, f"{bar.ratio:.3g}")]
    kinds = list(dict.fromkeys(bar.kind for bar in bars))
    parts += [line(x(1), top, x(1), bottom, INK), text(left, height - 8, label)]
    return document(width, height, title, parts + legend(left, 38, [(COLORS[kind], kind) for kind in kinds]))


def log_ticks(low: float, high: float) -> list[float]:
    values = [factor * 10.0 ** power for power in range(-3, 6) for factor in (1, 2, 5)]
    return [value for value in values if low <= value <= high]
