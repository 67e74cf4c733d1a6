"""The form of the data files of bench/results.py and bench/papers: one line per row, no line longer than LINE.

A list of objects, which benchmarks call a report's rows, becomes a table:

    {"same": {"layout": "blocked"}, "columns": ["name", "ratio"], "rows": [["a", 1.5], ["b", 2.25]]}

`same` holds what all rows have in common. null in a row means that the row has no such value. Numbers have DIGITS
significant digits. Times of single rounds are not kept; medians and quartiles are.
"""
import json
import re
from typing import Any, Iterable

Json = dict[str, Any]

LINE = 400
DIGITS = 7  # with 6, some of the pages' three digits would change
# Parts of a report that follow from its rows.
DERIVED_PARTS = {"geomean", "geomean_by", "geomean_fft_volume", "musts", "worse"}
# Values of a row that follow from its other values, or that no page and no reader needs.
DERIVED_VALUES = re.compile(r"what|voxels_per_second|(.*_)?gflops|transform(s(_.*)?|_share)|.*_high_s")


class FormError(Exception):
    """Content that cannot be written or read in this form; the text says why."""


def is_rows(value: Any) -> bool:
    """True for a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def is_table(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"same", "columns", "rows"}


def rounded(value: Any) -> Any:
    """The value with DIGITS significant digits in each number that is not whole."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


def table(rows: list[Json]) -> Json:
    """The table of some rows."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if not DERIVED_VALUES.fullmatch(key)]
    keys = [key for key in keys if any(row.get(key) is not None for row in rows)]
    same = {key: rows[0][key] for key in keys
            if len(rows) > 1 and all(key in row and row[key] == rows[0][key] for row in rows)}
    columns = [key for key in keys if key not in same]
    return {"same": same, "columns": columns, "rows": [[row.get(key) for key in columns] for row in rows]}


def rows_of(found: Json) -> list[Json]:
    """The rows of a table, without the values that are null."""
    columns, rows = found["columns"], found["rows"]
    if any(len(row) != len(columns) for row in rows):
        raise FormError(f"a row has not {len(columns)} values, as the columns say")
    return [{**found["same"], **{key: value for key, value in zip(columns, row) if value is not None}} for row in rows]


def compact(value: Json) -> Json:
    """The report with a table for each list of objects, without what follows from the rows."""
    kept = {key: item for key, item in value.items() if key not in DERIVED_PARTS and item not in ([], {})}
    return {key: table(item) if is_rows(item) else item for key, item in kept.items()}


def expanded(value: Json) -> Json:
    """The report with lists of objects in the place of tables. Raises FormError if a list of objects is in it."""
    old = next((key for key, item in value.items() if is_rows(item)), None)
    if old:
        raise FormError(f"\"{old}\" is a list of objects, not a table with columns and rows")
    return {key: rows_of(item) if is_table(item) else item for key, item in value.items()}


def spread(value: Any) -> bool:
    """True if the value takes several lines: it is a list of lists or objects, or holds one."""
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    holds_items = [isinstance(item, (dict, list)) for item in items]
    return any(map(spread, items)) or (isinstance(value, list) and bool(items) and all(holds_items))


def one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def filled(items: list[str]) -> Iterable[str]:
    """The items, as many in each line as LINE allows."""
    line = items[0]
    for item in items[1:]:
        if len(line) + len(item) + 1 > LINE:
            yield line
            line = item
        else:
            line += " " + item
    yield line


def lines(value: Any, begin: str = "", end: str = "") -> Iterable[str]:
    """The lines of a value as JSON. What is longer than a line is divided at its outermost commas."""
    line = begin + one_line(value) + end
    if len(line) <= LINE and not spread(value):
        yield line
    elif isinstance(value, (dict, list)) and value:
        named = isinstance(value, dict)
        pairs = value.items() if named else ((None, item) for item in value)
        items = [(f"{one_line(key)}: " if named else "", item) for key, item in pairs]
        ends = [","] * (len(items) - 1) + [""]
        yield begin + ("{" if named else "[")
        if spread(value) or any(len(name) + len(one_line(item)) >= LINE for name, item in items):
            for (name, item), comma in zip(items, ends):
                yield from lines(item, name, comma)
        else:
            yield from filled([name + one_line(item) + comma for (name, item), comma in zip(items, ends)])
        yield ("}" if named else "]") + end
    else:
        yield line


def text(content: Json) -> str:
    """The text of a file. Raises FormError if a value does not fit into a line."""
    found = list(lines(rounded(content)))
    longest = max(found, key=len)
    if len(longest) > LINE:
        raise FormError(f"a line would have {len(longest)} characters, more than {LINE}: {longest[:60]} ...")
    return "\n".join(found) + "\n"
