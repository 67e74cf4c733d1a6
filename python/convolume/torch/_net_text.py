"""The text of a net: its tables, and the nodes that a generator stands for."""
from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import _core

Extent = tuple[int, int, int]

_OVERRIDE = "#convolume --set "  # begins the lines that --set has added to the text of a net
_TABLES = ("input", "generator", "loss", "optimizer", "training")
_ACTIVATIONS = ("none", "relu", "leaky_relu", "sigmoid", "tanh", "softsign")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Table:
    """A table of a net. `place` names it in errors. finish() refuses keys that nobody has read."""

    def __init__(self, values: dict[str, Any], place: str) -> None:
        self._values, self.place = values, place
        self._known: set[str] = set()

    def fail(self, message: str) -> NoReturn:
        raise _core.ConfigError(f"{self.place}: {message}")

    def has(self, key: str) -> bool:
        self._known.add(key)
        return key in self._values

    def _value(self, key: str, default: Any) -> Any:
        if not self.has(key) and default is None:
            self.fail(f"'{key}' is missing")
        return self._values.get(key, default)

    def text(self, key: str, default: str | None = None, choices: Sequence[str] = ()) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            self.fail(f"{key} is {value!r}; it must be a text in quotes")
        if choices and value not in choices:
            self.fail(f"{key} '{value}' is unknown here; use one of: {', '.join(choices)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._value(key, ())
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names):
            self.fail(f"{key} is {value!r}; it must be a text or a list of texts")
        return tuple(names)

    def integer(self, key: str, least: int, default: int | None = None, most: int = 2**63) -> int:
        value = self._value(key, default)
        if not _is_integer(value) or not least <= value <= most:
            above = f" and at most {most}" if most < 2**63 else ""
            self.fail(f"{key} is {value!r}; it must be an integer of at least {least}{above}")
        return int(value)

    def number(self, key: str, least: float, most: float, default: float) -> float:
        value = self._value(key, default)
        if not (_is_integer(value) or isinstance(value, float)) or not least <= value <= most:
            self.fail(f"{key} is {value!r}; it must be a number from {least} to {most}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            self.fail(f"{key} is {value!r}; it must be true or false")
        return value

    def extent(self, key: str, least: int, default: Extent | None = None) -> Extent:
        value = self._value(key, default)
        three = (value,) * 3 if _is_integer(value) else value
        if not isinstance(three, (list, tuple)) or len(three) != 3 or not all(map(_is_integer, three)):
            self.fail(f"{key} is {value!r}; it must be an integer or [z, y, x]")
        if min(three) < least:
            self.fail(f"{key} is {value!r}; its numbers must be at least {least}")
        return three[0], three[1], three[2]

    def table(self, key: str) -> Table:
        value = self._values.get(key, {}) if self.has(key) else {}
        if not isinstance(value, dict):
            self.fail(f"{key} is {value!r}; it must be a table")
        return Table(value, f"{self.place}: [{key}]")

    def tables(self, key: str) -> list[Table]:
        value = self._values.get(key, []) if self.has(key) else []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.fail(f"{key} is {value!r}; it must be a list of tables, [[{key}]]")
        return [Table(one, f"{self.place}: [[{key}]]") for one in value]

    def finish(self) -> None:
        for key in self._values:
            if key not in self._known:
                self.fail(f"the key '{key}' is not known here; known are {', '.join(sorted(self._known))}")


def _reader() -> Any:
    """Returns the module that reads TOML."""
    for name in ("tomllib", "tomli"):  # Python 3.10 does not have the first
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            pass
    raise ImportError("this Python has no module tomllib, which reads nets; run `pip install tomli`")


def _parsed(text: str, place: str) -> dict[str, Any]:
    reader = _reader()
    try:
        return reader.loads(text)  # type: ignore[no-any-return]
    except reader.TOMLDecodeError as error:
        raise _core.ConfigError(f"{place}: this is not TOML: {error}") from None


def read_tables(text: str, overrides: Sequence[str], place: str) -> dict[str, Any]:
    """Returns the tables of a text, in which overrides replace values: first those that the text holds."""
    values = _parsed(text, place)
    marked = [line.removeprefix(_OVERRIDE) for line in text.split("\n")[1:] if line.startswith(_OVERRIDE)]
    for entry in (*marked, *overrides):
        match = re.fullmatch(r"([^.=\n]+)\.([^=\n]+)=([^\n]*)", entry)
        table = values.setdefault(match[1], {}) if match is not None and match[1] in _TABLES else None
        if match is None or not isinstance(table, dict):
            raise _core.ConfigError(f"{place}: --set {entry}: write it as table.key=value, for example "
                                    f"generator.width=8; tables are {', '.join(_TABLES)}")
        table[match[2]] = _parsed(f"value = {match[3]}", f"{place}: --set {entry}")["value"]
    return values


def read_activation(table: Table, default: str) -> tuple[str, float]:
    """Returns the kind of an activation, and its slope."""
    return table.text("activation", default, _ACTIVATIONS), table.number("slope", 1e-6, 1, 0.01)


# Generators: the nodes that they stand for, as tables.

_Nodes = list[dict[str, Any]]
_MOST_LAYERS = 1000


def _width_depth(table: Table) -> _Nodes:
    width, depth = table.integer("width", 1), table.integer("depth", 1, most=_MOST_LAYERS)
    kernel = table.extent("kernel", 1)
    channels = table.integer("out_channels", 1, 1)
    kind, slope = read_activation(table, "relu")
    nodes: _Nodes = [{"name": f"conv{layer}", "type": "conv", "out_channels": width, "kernel": kernel,
                      "activation": kind, "slope": slope} for layer in range(1, depth)]
    return [*nodes, {"name": "logits", "type": "conv", "out_channels": channels, "kernel": kernel}]


def _extents(table: Table, key: str, default: Extent) -> list[Extent]:
    found = []
    for entry in table.tables(key):
        found.append(entry.extent("size", 1))
        entry.finish()
    return found or [default]


class _Unet:
    """The generator `unet`: levels of convolutions with skip connections."""

    def __init__(self, table: Table) -> None:
        self.width, self.depth = table.integer("width", 1), table.integer("depth", 1, 3, most=8)
        self.convs, self.channels = table.integer("convs", 1, 2, _MOST_LAYERS), table.integer("out_channels", 1, 1)
        self.kernels, self.pools = _extents(table, "kernel", (3, 3, 3)), _extents(table, "pool", (2, 2, 2))
        self.norm = table.text("norm", "none", ("none", "group", "instance", "layer"))
        self.groups = table.integer("groups", 1, 8)
        self.nearest = table.text("upsampling", "transposed_conv", ("transposed_conv", "nearest")) == "nearest"
        self.residual = table.boolean("residual", False)
        self.dropout = table.number("dropout", 0, 0.999, 0)
        self.kind, self.slope = read_activation(table, "relu")
        self.nodes: _Nodes = []

    def add(self, name: str, kind: str, inputs: list[str], **keys: Any) -> str:
        self.nodes.append({"name": name, "type": kind, "from": inputs, **keys})
        return name

    def build(self) -> _Nodes:
        skips, at = [], "input"
        for level in range(self.depth):
            at = self.block(f"down{level}", at, level)
            if level + 1 < self.depth:
                skips.append(at)
                at = self.add(f"pool{level}", "max_pool", [at], window=self.pool(level))
        if self.dropout > 0:
            at = self.add("dropout", "dropout", [at], rate=self.dropout)
        for level in reversed(range(self.depth - 1)):
            at = self.add(f"skip{level}", "concat", [skips[level], self.upwards(at, level)])
            at = self.block(f"up{level}", at, level)
        self.add("logits", "conv", [at], out_channels=self.channels, kernel=1)
        return self.nodes

    def pool(self, level: int) -> Extent:
        return self.pools[min(level, len(self.pools) - 1)]

    def normalised(self, name: str, at: str, width: int) -> str:
        if self.norm == "none":
            return at
        groups = {"instance": width, "layer": 1, "group": min(self.groups, width)}[self.norm]
        at = self.add(f"{name}_norm", "group_norm", [at], groups=groups if width % groups == 0 else 1)
        return self.add(f"{name}_act", "activation", [at], activation=self.kind, slope=self.slope)

    def block(self, name: str, at: str, level: int) -> str:
        fused = {"activation": self.kind, "slope": self.slope} if self.norm == "none" else {}
        kernel, width, first = self.kernels[min(level, len(self.kernels) - 1)], self.width << level, ""
        for i in range(self.convs):
            conv = f"{name}_conv{i}"
            at = self.add(conv, "conv", [at], out_channels=width, kernel=kernel, padding="same", **fused)
            at = self.normalised(conv, at, width)
            first = first or at
        return self.add(f"{name}_residual", "add", [first, at]) if self.residual and self.convs > 1 else at

    def upwards(self, at: str, level: int) -> str:
        factor, name, width = self.pool(level), f"upsample{level}", self.width << level
        if not self.nearest:
            return self.add(name, "transposed_conv", [at], out_channels=width, kernel=factor, stride=factor)
        at = self.add(name, "upsample", [at], factor=factor)
        return self.add(f"{name}_conv", "conv", [at], out_channels=width, kernel=1, activation=self.kind,
                        slope=self.slope)


def generated(table: Table) -> _Nodes:
    kind = table.text("type", None, ("width_depth", "unet"))
    nodes = _width_depth(table) if kind == "width_depth" else _Unet(table).build()
    table.finish()
    return nodes
