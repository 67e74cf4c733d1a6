# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""Nets of Convolume as modules of PyTorch: those of checkpoints with their parameters, and those of TOML files."""
from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import _core
from ._net_text import Extent, Table, generated, read_activation, read_tables

Path = str | os.PathLike[str]
Place = tuple[float, float, float]
Activate = Callable[[Tensor], Tensor]

_CHECKPOINT = "convolume checkpoint 1"
_LARGEST_HEADER = 64 << 20
_ONE: Extent = (1, 1, 1)
_ZERO: Extent = (0, 0, 0)


# Where the voxels of a node lie.


class _Shape(NamedTuple):
    """The channels of a node. Along Z, Y, X: its voxels if the net reads its training patch, and the centre of its first
    voxel and the distance of its voxels, in voxels of the net's input."""

    channels: int
    extent: Extent
    origin: Place = (0.0, 0.0, 0.0)
    jump: Place = (1.0, 1.0, 1.0)

    def windowed(self, span: Extent, stride: Extent, before: Extent, after: Extent) -> _Shape:
        """Returns the shape that windows of `span` voxels make of this one. `before` and `after` are the padding."""
        origin = _place(o + ((s - 1) / 2 - b) * j for o, j, s, b in zip(self.origin, self.jump, span, before))
        extent = _extent((e + b + a - s) // step + 1 for e, b, a, s, step
                         in zip(self.extent, before, after, span, stride))
        return _Shape(self.channels, extent, origin, _place(j * s for j, s in zip(self.jump, stride)))

    def spread(self, span: Extent, stride: Extent, before: Extent, more: Extent = _ZERO) -> _Shape:
        """Returns the shape that a transposed convolution makes of this one. `more` is the output padding."""
        jump = _place(j / s for j, s in zip(self.jump, stride))
        extent = _extent((e - 1) * step + s - 2 * b + m for e, step, s, b, m
                         in zip(self.extent, stride, span, before, more))
        return _Shape(self.channels, extent, _place(o - ((s - 1) / 2 - b) * j for o, j, s, b
                                                    in zip(self.origin, jump, span, before)), jump)


def _place(numbers: Iterable[float]) -> Place:
    z, y, x = numbers
    return z, y, x


def _extent(numbers: Iterable[int]) -> Extent:
    z, y, x = numbers
    return z, y, x


def _span(kernel: Extent, dilation: Extent) -> Extent:
    z, y, x = ((k - 1) * d + 1 for k, d in zip(kernel, dilation))
    return z, y, x


# The modules that PyTorch does not have.


class _Norm(nn.Module):
    """Group norm, with the names of the parameters in a checkpoint."""

    def __init__(self, groups: int, channels: int, epsilon: float) -> None:
        super().__init__()
        self.groups, self.epsilon = groups, epsilon
        self.gamma, self.beta = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.groups, self.gamma, self.beta, self.epsilon)

    def extra_repr(self) -> str:
        return f"{self.groups}, {len(self.gamma)}, epsilon={self.epsilon}"


class _Upsample(nn.Module):
    """Repeats each voxel."""

    def __init__(self, factor: Extent) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        # nn.Upsample takes the reciprocal of a factor, which is inexact.
        (n, c, *extent), (fz, fy, fx) = x.shape, self.factor
        z, y, x_ = extent
        wide = x.reshape(n, c, z, 1, y, 1, x_, 1).expand(-1, -1, -1, fz, -1, fy, -1, fx)
        return wide.reshape(n, c, z * fz, y * fy, x_ * fx)

    def extra_repr(self) -> str:
        return f"{self.factor}"


class _Crop(nn.Module):
    """Leaves out voxels at the faces."""

    def __init__(self, before: Extent, after: Extent) -> None:
        super().__init__()
        self.before, self.after = before, after

    def forward(self, x: Tensor) -> Tensor:
        z, y, x_ = (slice(first, size - last) for first, size, last in zip(self.before, x.shape[2:], self.after))
        return x[:, :, z, y, x_]

    def extra_repr(self) -> str:
        return f"{self.before}, {self.after}"


class _Join(nn.Module):
    """Concatenates or adds the common part of its inputs. `first` has the first common voxel of each."""

    def __init__(self, kind: str, first: Sequence[Extent]) -> None:
        super().__init__()
        self.kind, self.first = kind, tuple(first)

    def _parts(self, inputs: Sequence[Tensor]) -> Iterator[Tensor]:
        common = [min(x.shape[2 + axis] - first[axis] for x, first in zip(inputs, self.first)) for axis in range(3)]
        if min(common) < 1:
            extents = ", ".join(str(tuple(x.shape[2:])) for x in inputs)
            raise _core.ShapeMismatch(f"{self.kind}: inputs of {extents} voxels have no voxel in common; use a larger "
                                      "input for the net")
        for x, first in zip(inputs, self.first):
            for axis in range(3):
                if x.shape[2 + axis] != common[axis]:
                    x = x.narrow(2 + axis, first[axis], common[axis])
            yield x

    def forward(self, *inputs: Tensor) -> Tensor:
        parts = list(self._parts(inputs))
        return torch.cat(parts, 1) if self.kind == "concat" else sum(parts[1:], parts[0])

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.first}"


# Each kind of node: a function that reads its keys and returns its module, its activation and its shape.


class _Built(NamedTuple):
    module: nn.Module
    shape: _Shape
    activate: Activate | None = None  # applied to what the module returns


def _activate(kind: str, slope: float) -> Activate | None:
    if kind == "leaky_relu":
        return functools.partial(F.leaky_relu, negative_slope=slope)
    found: dict[str, Activate | None] = {"none": None, "relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
                                         "softsign": F.softsign}
    return found[kind]


def _padding(table: Table, transposed: bool, stride: Extent) -> Extent | None:
    """Returns the padding on both sides, or None for the one that keeps the extents."""
    if not table.has("padding"):
        return _ZERO
    try:
        padding = table.text("padding")
    except _core.ConfigError:
        return table.extent("padding", 0)
    if padding == "same" and not transposed and stride == _ONE:
        return None
    if padding != "valid":
        table.fail(f"padding '{padding}' cannot be used here; use \"valid\", \"same\" (stride 1, not transposed) or "
                   "[z, y, x]")
    return _ZERO


def _kernel(table: Table, x: _Shape, transposed: bool) -> Extent:
    """Returns the kernel. "all" is the extent of the input."""
    try:
        text = table.text("kernel")
    except _core.ConfigError:
        return table.extent("kernel", 1)
    if text != "all" or transposed:
        table.fail(f"kernel '{text}' cannot be used here; use [z, y, x], one number, or \"all\" (not transposed)")
    for key in ("stride", "dilation"):
        if table.extent(key, 1, _ONE) != _ONE:
            table.fail(f"kernel = \"all\" meets its input at one place; leave '{key}' out")
    if _padding(table, transposed, _ONE) != _ZERO:
        table.fail("kernel = \"all\" meets its input at one place; leave 'padding' out")
    if min(x.extent) < 1:
        table.fail(f"its input has the extent {x.extent} at input.patch; use a larger patch")
    return x.extent


def _convolution(table: Table, inputs: Sequence[_Shape], transposed: bool = False) -> _Built:
    x = inputs[0]
    channels, groups = table.integer("out_channels", 1), table.integer("groups", 1, 1)
    kernel, stride = _kernel(table, x, transposed), table.extent("stride", 1, _ONE)
    dilation, bias = table.extent("dilation", 1, _ONE), table.boolean("bias", True)
    padding = _padding(table, transposed, stride)
    activate = _activate(*read_activation(table, "none"))
    span = _span(kernel, dilation)
    y = x._replace(channels=channels)
    module: nn.Module
    try:
        if transposed:
            more = table.extent("output_padding", 0, _ZERO)
            sides = padding or _ZERO
            module = nn.ConvTranspose3d(x.channels, channels, kernel, stride, sides, more, groups, bias, dilation)
            return _Built(module, y.spread(span, stride, sides, more), activate)
        module = nn.Conv3d(x.channels, channels, kernel, stride, "same" if padding is None else padding, dilation,
                           groups, bias)
    except (ValueError, RuntimeError) as error:
        table.fail(f"{error}; there are {x.channels} input channels")
    before = _extent((s - 1) // 2 for s in span) if padding is None else padding
    after = _extent(s - 1 - b for s, b in zip(span, before)) if padding is None else padding
    return _Built(module, y.windowed(span, stride, before, after), activate)


def _transposed_convolution(table: Table, inputs: Sequence[_Shape]) -> _Built:
    return _convolution(table, inputs, transposed=True)


def _activation(table: Table, inputs: Sequence[_Shape]) -> _Built:
    kind, slope = read_activation(table, "relu")
    modules = {"none": nn.Identity, "relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh,
               "softsign": nn.Softsign}
    return _Built(nn.LeakyReLU(slope) if kind == "leaky_relu" else modules[kind](), inputs[0])


def _max_pool(table: Table, inputs: Sequence[_Shape]) -> _Built:
    window = table.extent("window", 1, (2, 2, 2))
    stride, dilation = table.extent("stride", 1, window), table.extent("dilation", 1, _ONE)
    shape = inputs[0].windowed(_span(window, dilation), stride, _ZERO, _ZERO)
    return _Built(nn.MaxPool3d(window, stride, 0, dilation), shape)


def _upsample(table: Table, inputs: Sequence[_Shape]) -> _Built:
    factor = table.extent("factor", 1, (2, 2, 2))
    return _Built(_Upsample(factor), inputs[0].spread(factor, factor, _ZERO))


def _join(table: Table, inputs: Sequence[_Shape], kind: str) -> _Built:
    x = inputs[0]
    if any(one.jump != x.jump for one in inputs):
        table.fail(f"its inputs have voxels of different size, {' and '.join(str(one.jump) for one in inputs)} of the "
                   "input's; pool or upsample one of them")
    if kind == "add" and any(one.channels != x.channels for one in inputs):
        table.fail(f"it adds {' and '.join(str(one.channels) for one in inputs)} channels; they must be equal")
    origin = _place(max(one.origin[axis] for one in inputs) for axis in range(3))
    first = []
    for one in inputs:
        z, y, x_ = (math.floor((origin[axis] - one.origin[axis]) / x.jump[axis]) for axis in range(3))
        first.append((z, y, x_))
    channels = sum(one.channels for one in inputs) if kind == "concat" else x.channels
    extent = _extent(min(one.extent[axis] - begin[axis] for one, begin in zip(inputs, first)) for axis in range(3))
    return _Built(_Join(kind, first), _Shape(channels, extent, origin, x.jump))


def _concat(table: Table, inputs: Sequence[_Shape]) -> _Built:
    return _join(table, inputs, "concat")


def _add(table: Table, inputs: Sequence[_Shape]) -> _Built:
    return _join(table, inputs, "add")


def _crop(table: Table, inputs: Sequence[_Shape]) -> _Built:
    before, after = table.extent("before", 0, _ZERO), table.extent("after", 0, _ZERO)
    z, y, x = (o + b * j for o, b, j in zip(inputs[0].origin, before, inputs[0].jump))
    extent = _extent(e - b - a for e, b, a in zip(inputs[0].extent, before, after))
    return _Built(_Crop(before, after), inputs[0]._replace(extent=extent, origin=(z, y, x)))


def _dropout(table: Table, inputs: Sequence[_Shape]) -> _Built:
    return _Built(nn.Dropout(table.number("rate", 0, 0.999, 0.5)), inputs[0])


def _norm(table: Table, inputs: Sequence[_Shape], groups: int | None = None) -> _Built:
    channels, epsilon = inputs[0].channels, table.number("epsilon", 1e-12, 1, 1e-5)
    number = table.integer("groups", 1) if groups is None else groups or channels
    if channels % number != 0:
        table.fail(f"{number} groups do not divide {channels} channels; use a divisor")
    return _Built(_Norm(number, channels, epsilon), inputs[0])


def _instance_norm(table: Table, inputs: Sequence[_Shape]) -> _Built:
    return _norm(table, inputs, 0)


def _layer_norm(table: Table, inputs: Sequence[_Shape]) -> _Built:
    return _norm(table, inputs, 1)


_JOINS: dict[str, Callable[[Table, Sequence[_Shape]], _Built]] = {"concat": _concat, "add": _add}
_KINDS: dict[str, Callable[[Table, Sequence[_Shape]], _Built]] = {
    "conv": _convolution, "transposed_conv": _transposed_convolution, "activation": _activation, "max_pool": _max_pool,
    "upsample": _upsample, **_JOINS, "crop": _crop, "dropout": _dropout, "group_norm": _norm,
    "instance_norm": _instance_norm, "layer_norm": _layer_norm}


# The net.


class _Step(NamedTuple):
    """How a node is computed: by its module, from these nodes. `last` are those that no later node reads."""

    name: str
    inputs: tuple[str, ...]
    last: tuple[str, ...]
    activate: Activate | None


class Net(nn.Module):
    """A net of Convolume. net() and net_from_toml() make it.

    Parameters have the names of a checkpoint: `NODE.weight` and `NODE.bias` of convolutions, `NODE.gamma` and
    `NODE.beta` of norms. `title` is the name of the net, `in_channels` the channels of its input, `patch` the voxels
    (Z, Y, X) of its training, and `loss` the kind of its loss.
    """

    def __init__(self, text: str, place: str, overrides: Sequence[str] = ()) -> None:
        super().__init__()
        root = Table(read_tables(text, overrides, place), place)
        self.title = root.text("name")
        entry = root.table("input")
        self.in_channels, self.patch = entry.integer("channels", 1, 1), entry.extent("patch", 1)
        entry.finish()
        # These tables are for `convolume train`.
        self.loss = root.table("loss").text("kind", "binary_cross_entropy", _LOSSES)
        root.table("optimizer"), root.table("training")
        if root.has("generator") == root.has("node"):
            root.fail("give either [[node]] tables or one [generator]")
        if root.has("generator"):
            nodes = [Table(one, place) for one in generated(root.table("generator"))]
        else:
            nodes = root.tables("node")
        root.finish()
        steps, modules = self._build(nodes, place)
        self._steps = self._with_last(steps, place)
        # Not add_module(), which refuses names that a module has as attributes, for example "type".
        self._modules.update(modules)

    def _build(self, nodes: list[Table], place: str) -> tuple[list[_Step], dict[str, nn.Module]]:
        shapes, before = {"input": _Shape(self.in_channels, self.patch)}, "input"
        steps: list[_Step] = []
        modules: dict[str, nn.Module] = {}
        for table in nodes:
            name = table.text("name")
            table.place = f"{place}: node '{name}'"
            if not name or set(name) & set("./ \n\t") or name in shapes:
                table.fail("its name cannot be used, or is used twice; use letters, digits, _ and -")
            inputs = table.texts("from") or (before,)
            missing = [one for one in inputs if one not in shapes]
            if missing:
                table.fail(f"from: '{missing[0]}' is not a node above it; name one of them")
            kind = table.text("type", None, tuple(_KINDS))
            if (kind in _JOINS) != (len(inputs) > 1):
                table.fail(f"it has {len(inputs)} inputs; concat and add take two or more, all others one")
            built = _KINDS[kind](table, [shapes[one] for one in inputs])
            table.finish()
            modules[name], shapes[name] = built.module, built.shape
            steps.append(_Step(name, inputs, (), built.activate))
            before = name
        return steps, modules

    @staticmethod
    def _with_last(steps: list[_Step], place: str) -> tuple[_Step, ...]:
        last = {name: i for i, step in enumerate(steps) for name in step.inputs}
        unread = [step.name for step in steps[:-1] if step.name not in last]
        if not steps:
            raise _core.ConfigError(f"{place}: the net has no nodes; write [[node]] tables")
        if unread:
            raise _core.ConfigError(f"{place}: node '{unread[0]}': no other node reads it; the last node is the "
                                    "output")
        return tuple(step._replace(last=tuple(name for name in dict.fromkeys(step.inputs) if last[name] == i))
                     for i, step in enumerate(steps))

    def train(self, mode: bool = True) -> Net:
        """Turns dropout on, or off. Returns the net."""
        for module in self.children():
            module.train(mode)
        self.__dict__["training"] = mode  # a node may have this name
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output node: logits, before the sigmoid or the softmax of the loss.

        x is (N, C, Z, Y, X), of any extent that the net can read. The result is (N, C', Z', Y', X'). It has fewer
        voxels if convolutions are valid.
        """
        if x.dim() != 5 or x.shape[1] != self.in_channels:
            raise _core.ShapeMismatch(f"x has the shape {tuple(x.shape)}; it must be (N, {self.in_channels}, Z, Y, X)")
        values = {"input": x}
        for step in self._steps:
            module: Any = self._modules[step.name]
            y = module(*[values[name] for name in step.inputs])
            if step.activate is not None:
                y = step.activate(y)
            for name in step.last:
                del values[name]
            values[step.name] = y
        return y  # type: ignore[no-any-return]

    def probabilities(self, x: Tensor) -> Tensor:
        """Returns what `convolume infer` writes: the sigmoid or the softmax of forward(x), by the net's loss.

        With the loss "square" it is forward(x).
        """
        y = self(x)
        if self.loss == "square":
            return y  # type: ignore[no-any-return]
        return torch.softmax(y, 1) if self.loss == "softmax_cross_entropy" else torch.sigmoid(y)


_LOSSES = ("binary_cross_entropy", "softmax_cross_entropy", "square", "dice")


# Checkpoints: safetensors, which are the length of a header, the header in JSON, and the data.


def _no_checkpoint(path: str, found: str) -> NoReturn:
    raise _core.FormatError(f"{path}: {found}; name a checkpoint of `convolume train`, "
                            "RUN/checkpoints/last.safetensors")


def _header(path: str) -> tuple[dict[str, Any], int]:
    """Returns the header of a file, and where its data begin."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_LARGEST_HEADER, os.path.getsize(path) - 8):
                _no_checkpoint(path, "this is not a file in the format safetensors")
            text = file.read(length)
    except OSError as error:
        raise _core.IoError(f"{path}: it cannot be read: {error.strerror}") from None
    try:
        header = json.loads(text)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        _no_checkpoint(path, "this is not a file in the format safetensors")
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != _CHECKPOINT:
        _no_checkpoint(path, f"its metadata do not say '{_CHECKPOINT}'")
    return header, 8 + length


def _parameters(path: str, header: dict[str, Any], begin: int, net: Net) -> dict[str, Tensor]:
    """Returns the parameters of a checkpoint that has been checked."""
    found: dict[str, Tensor] = {}
    wanted = net.state_dict()
    for name in header:
        if name not in wanted and name != "__metadata__" and not name.startswith(("moment1/", "moment2/")):
            raise _core.FormatError(f"{path}: the tensor '{name}' belongs to no node; restore a copy of the file")
    for name, parameter in wanted.items():
        entry, shape = header.get(name), list(parameter.shape)
        # A tensor that is one line of channels is stored with one axis.
        stored = [shape[1]] if len(shape) == 5 and shape[0] == 1 and shape[2:] == [1, 1, 1] else shape
        if entry is None or entry["dtype"] != "F32" or entry["shape"] != stored:
            raise _core.FormatError(f"{path}: the tensor '{name}' is missing, or is not {stored} numbers of type F32; "
                                    "restore a copy")
        values = np.fromfile(path, "<f4", math.prod(stored), offset=begin + entry["data_offsets"][0])
        found[name] = torch.from_numpy(values.astype("f4", copy=False).reshape(shape))
    return found


def net(checkpoint: Path) -> Net:
    """Returns the net of a checkpoint of `convolume train` as a module, with its parameters, in evaluation mode.

    Its input is (N, C, Z, Y, X) in float32, with the intensities that the training saw (the key `normalise` of the
    data set). Its output is logits; probabilities(x) returns what `convolume infer` writes. Both differ from the
    library's by rounding only. Parameters are contiguous float32 on the CPU, and have the names of the checkpoint.
    train() turns dropout on, and the net can be trained further.

    Raises IoError if the file cannot be read, FormatError if it is damaged or no checkpoint, and ConfigError if a node
    of the net is of a kind that is not known here.
    """
    path = os.fspath(checkpoint)
    header, begin = _header(path)
    _core.describe(path, [], None, 1)  # compares the digest
    with torch.device("meta"):  # no numbers are drawn for parameters that the file has
        made = Net(header["__metadata__"]["net"], f"{path} (net)")
    made.load_state_dict(_parameters(path, header, begin, made), assign=True)
    return made.eval()


def net_from_toml(file: Path, overrides: Sequence[str] = ()) -> Net:
    """Returns the net of a TOML file as a module, with PyTorch's initial parameters, in training mode.

    `overrides` are "table.key=value", as those of `convolume train --set`. See net() for input and output.

    Raises IoError if the file cannot be read, and ConfigError that names the node, the key and the value if its text is
    not that of a net.
    """
    path = os.fspath(file)
    try:
        with open(path, encoding="utf-8") as opened:
            text = opened.read()
    except UnicodeDecodeError:
        raise _core.ConfigError(f"{path}: this is not text in UTF-8; name the TOML file of a net") from None
    except OSError as error:
        raise _core.IoError(f"{path}: it cannot be read: {error.strerror}; name the TOML file of a net") from None
    return Net(text, path, overrides)
