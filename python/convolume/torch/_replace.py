# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""Makes the convolutions of a model use the package, in place, and undoes it."""
from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import _core
from .._kept import Kept
from . import _convolution
from ._convolution import Geometry, Options

Where = Callable[[str, nn.Module], bool]


class Row(NamedTuple):
    """What became of a layer."""

    name: str
    layer: str  # Conv3d or ConvTranspose3d, with its channels and its kernel
    replaced: bool
    reason: str


class Report(NamedTuple):
    """The convolutions of a model. str() makes a table."""

    rows: list[Row]

    def __str__(self) -> str:
        cells = [("layer", "convolution", "", "reason")]
        cells += [(row.name, row.layer, "replaced" if row.replaced else "kept", row.reason) for row in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(4)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


class _Frozen:
    """The prepared weights of a layer whose weights do not change, by shape of its input."""

    def __init__(self, weights: int | None) -> None:
        self.plans: Kept[tuple[_core.Plan, _core.PreparedWeights]] = Kept()
        self.hash = weights


# Not attributes of the layers, because a copy of a layer has other weights.
_frozen: weakref.WeakKeyDictionary[nn.Module, _Frozen] = weakref.WeakKeyDictionary()
_options: weakref.WeakKeyDictionary[nn.Module, Options] = weakref.WeakKeyDictionary()
_checks_weights = os.environ.get("CONVOLUME_CHECK_WEIGHTS") == "1"


def _hash(w: Tensor) -> int:
    return hash(w.detach().contiguous().numpy().tobytes())


def _by_prepared(layer: nn.Module, frozen: _Frozen, x: Tensor, w: Tensor, bias: Tensor | None,
                 geometry: Geometry) -> Tensor:
    if _checks_weights and frozen.hash != _hash(w):
        raise _core.StaleCache(f"the weights of a frozen layer ({_text(layer)}) have changed; freeze the model again")
    key = (x.shape, x.dtype, geometry)
    found = frozen.plans.get(key)
    if found is None:
        plan = _convolution._plan_for(x, w, bias is not None, geometry, (), Options())  # noqa: SLF001
        found = plan, plan.prepare(w.detach().numpy(), torch.get_num_threads())
        frozen.plans.add(key, found)
    return _convolution.run_forward(found[0], x, found[1], bias)


def _convolve(layer: nn.Module, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Convolves for a layer: with prepared weights if it is frozen and no gradient is wanted."""
    frozen = _frozen.get(layer)
    wants = torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)
    if frozen is None or wants or torch.is_autocast_enabled("cpu"):
        x, w, bias, dtype = _convolution._autocast(x, w, bias)  # noqa: SLF001
        return _convolution.compute(x, w, bias, geometry, dtype, _options.get(layer, Options()))
    try:
        return _by_prepared(layer, frozen, x, w, bias, geometry)
    except _convolution.REFUSALS:
        return _convolution.compute(x, w, bias, geometry, None, Options())


class _Replaced:
    """A convolution that was replaced. Classes of layers inherit from it first."""

    original: type[nn.Module]

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Classes are made when layers are replaced, so a pickle names the class that was replaced.
        return _new_layer, (self.original,), self.__dict__


class _Conv3d(_Replaced):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        layer: Any = self
        x, w, b, _ = _convolution._autocast(input, weight, bias)  # noqa: SLF001
        if layer.padding_mode == "zeros" and _convolution.serves(x, w, b):
            geometry = _convolution.geometry_of(w, layer.stride, layer.padding, layer.dilation, layer.groups)
            if geometry is not None:
                return _convolve(layer, input, weight, bias, geometry)
        if layer.padding_mode == "zeros" or not _convolution.serves(x, w, b):
            return super()._conv_forward(input, weight, bias)  # type: ignore[misc,no-any-return]
        # The same names of padding as those of torch.nn.functional.pad.
        around = nn.functional.pad(input, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)  # noqa: SLF001
        geometry = _convolution.geometry_of(w, layer.stride, 0, layer.dilation, layer.groups)
        assert geometry is not None
        return _convolve(layer, around, weight, bias, geometry)


class _ConvTranspose3d(_Replaced):
    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        layer: Any = self
        x, w, b, _ = _convolution._autocast(input, layer.weight, layer.bias)  # noqa: SLF001
        if layer.padding_mode != "zeros" or not _convolution.serves(x, w, b):
            return super().forward(input, output_size)  # type: ignore[misc,no-any-return]
        more = layer._output_padding(input, output_size, layer.stride, layer.padding, layer.kernel_size, 3,  # noqa: SLF001
                                     layer.dilation)
        geometry = _convolution.geometry_of(w, layer.stride, layer.padding, layer.dilation, layer.groups, True, more)
        assert geometry is not None
        return _convolve(layer, input, layer.weight, layer.bias, geometry)


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def _class_for(original: type[nn.Module]) -> type[nn.Module]:
    """Returns the class of a replaced layer of this class."""
    found = _classes.get(original)
    if found is None:
        base = _ConvTranspose3d if issubclass(original, nn.ConvTranspose3d) else _Conv3d
        # torch.fx traces into layers whose class is not in a module of torch.nn. So it sees an ordinary conv3d.
        found = type(original.__name__, (base, original), {"original": original, "__module__": __name__,
                                                           "__qualname__": original.__qualname__})
        _classes[original] = found
    return found


def _new_layer(original: type[nn.Module]) -> nn.Module:
    made: Any = _class_for(original)
    return made.__new__(made)  # type: ignore[no-any-return]


def _reason_against(layer: nn.Module) -> str:
    """Returns why a layer is kept, or an empty text."""
    kind = type(layer)
    if isinstance(layer, nn.ConvTranspose3d):
        return "" if kind.forward is nn.ConvTranspose3d.forward else f"{kind.__name__} has its own forward()"
    own = any(getattr(kind, name) is not getattr(nn.Conv3d, name) for name in ("forward", "_conv_forward"))
    return f"{kind.__name__} has its own forward()" if own else ""


def _text(layer: Any) -> str:
    kernel = "x".join(str(one) for one in layer.kernel_size)
    groups = f", {layer.groups} groups" if layer.groups > 1 else ""
    name = "ConvTranspose3d" if isinstance(layer, nn.ConvTranspose3d) else "Conv3d"
    return f"{name} {layer.in_channels} to {layer.out_channels}, {kernel}{groups}"


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Returns the convolutions of a model, each once, with the first of its names."""
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, (nn.Conv3d, nn.ConvTranspose3d))]


def replace_conv3d(model: nn.Module, where: Where | None = None, *, memory_budget: int | None = None) -> Report:
    """Makes the Conv3d and ConvTranspose3d layers of a model use the package, and returns what became of each.

    Only the class of a layer changes: modules, parameters, hooks and state_dict stay. `where(name, layer)` chooses
    layers. `memory_budget` limits the bytes of spectra that a layer keeps from forward to backward. Replacing twice is
    the same as once. A model that is pickled while it is replaced needs this package when it is loaded.
    """
    rows = []
    for name, layer in _layers(model):
        reason = ""
        if isinstance(layer, _Replaced):
            reason = "it was replaced before"
        elif where is not None and not where(name, layer):
            rows.append(Row(name, _text(layer), False, "where() left it out"))
            continue
        elif against := _reason_against(layer):
            rows.append(Row(name, _text(layer), False, against))
            continue
        else:
            layer.__class__ = _class_for(type(layer))
        _options[layer] = Options(memory_budget=memory_budget)
        rows.append(Row(name, _text(layer), True, reason))
    return Report(rows)


def restore_conv3d(model: nn.Module) -> None:
    """Undoes replace_conv3d() and freeze()."""
    for _, layer in _layers(model):
        _frozen.pop(layer, None)
        _options.pop(layer, None)
        if type(layer) in _classes.values():
            layer.__class__ = type(layer).original  # type: ignore[attr-defined]


def freeze(model: nn.Module) -> None:
    """Promises that the weights of replaced layers will not change, so that they are prepared once for each shape.

    It counts for passes without gradients. With CONVOLUME_CHECK_WEIGHTS=1 in the environment, a changed weight raises
    StaleCache. restore_conv3d(), or freeze() again, ends the promise.
    """
    for _, layer in _layers(model):
        if isinstance(layer, _Replaced):
            weight: Any = layer.weight  # type: ignore[attr-defined]
            _frozen[layer] = _Frozen(_hash(weight) if _checks_weights else None)
