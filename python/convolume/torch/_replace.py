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
from . import _convolution, _policy
from ._convolution import Call
from ._policy import Decision
from ._problem import Options, Problem, checked_options

Where = Callable[[str, nn.Module], bool]


class Row(NamedTuple):
    """What became of a layer, for one shape of its input, with or without gradients, and one type of autocast."""

    name: str
    layer: str  # Conv3d or ConvTranspose3d, with its channels and its kernel
    replaced: bool
    reason: str
    x_shape: tuple[int, ...] | None = None  # None until its first call
    training: bool = False  # whether gradients were wanted
    autocast: torch.dtype | None = None  # the type of autocast, if it was on
    ours_ms: float | None = None  # of a call with its gradients, expected or measured; None if nothing was compared
    torch_ms: float | None = None


class Report:
    """The convolutions of a model. str() makes a table.

    A policy decides when it sees the shape of an input, so `rows` says more after the first pass.
    """

    def __init__(self, layers: list[tuple[str, str, str, weakref.ref[nn.Module]]]) -> None:
        self._layers = layers  # name, text, reason against it, layer

    @property
    def rows(self) -> list[Row]:
        """A row for each layer and kind of its calls, in the order of the model."""
        return [row for name, text, against, layer in self._layers for row in _rows(name, text, against, layer())]

    def __str__(self) -> str:
        rows = self.rows
        cells = [("layer", "convolution", "input", "", "ours", "PyTorch", "reason")]
        for row in rows:
            pass_ = "" if row.x_shape is None or row.training else ", inference"
            pass_ += "" if row.autocast is None else f", {str(row.autocast).removeprefix('torch.')}"
            cells.append((row.name, row.layer, "x".join(map(str, row.x_shape or ())) + pass_,
                          "replaced" if row.replaced else "kept", _milliseconds(row.ours_ms),
                          _milliseconds(row.torch_ms), row.reason))
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} ms"


def _rows(name: str, text: str, against: str, layer: nn.Module | None) -> list[Row]:
    state = None if layer is None else _state(layer)
    if state is None or not isinstance(layer, _Replaced):
        return [Row(name, text, False, against or "it was restored")]
    if not state.seen:
        return [Row(name, text, True, "decided at its first call")]
    return [Row(name, text, one.plan is not None, one.reason, shape, training, narrow, _in_ms(one.ours),
                _in_ms(one.theirs)) for (shape, training, narrow), one in state.seen.items()]


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


class _State:
    """What a replaced layer has besides: its options, the decisions for its inputs, and its promise."""

    def __init__(self, options: Options) -> None:
        self.options = options
        # By shape, whether gradients were wanted, and the type of autocast.
        self.seen: dict[tuple[tuple[int, ...], bool, torch.dtype | None], Decision] = {}
        self.frozen: _Frozen | None = None
        self._left: set[object] = set()  # what _call_of() returned for calls that were left to PyTorch
        self._last: tuple[Problem | None, int, Decision | None] = (None, 0, None)

    def __reduce__(self) -> Any:
        return _State, (self.options,)

    def is_left(self, call: object) -> bool:
        """Returns whether such a call was left to PyTorch before."""
        return call in self._left

    def leave(self, call: object) -> None:
        if call is not None:
            if len(self._left) >= Kept.MOST:
                self._left.clear()
            self._left.add(call)

    def decide(self, problem: Problem) -> Decision:
        """Returns who computes a problem, and remembers it for the report."""
        last, threads, decision = self._last
        if decision is not None and problem == last and threads == _policy.threads_for(self.options):
            _policy.decisions.hit()
            return decision
        decision = _policy.decide(problem, self.options)
        self._last = problem, _policy.threads_for(self.options), decision
        while len(self.seen) >= Kept.MOST:
            self.seen.pop(next(iter(self.seen)), None)
        self.seen[tuple(problem.x_shape), bool(problem.want), problem.narrow] = decision
        return decision


class _Frozen:
    """The prepared weights of a layer whose weights do not change, by plan."""

    def __init__(self, weights: int | None) -> None:
        self.weights: Kept[_core.PreparedWeights] = Kept()
        self.hash = weights


_checks_weights = os.environ.get("CONVOLUME_CHECK_WEIGHTS") == "1"
# The name of the state among the attributes of a layer. Copies and pickles have the options of it only.
_STATE = "_convolume"


def _state(layer: nn.Module) -> _State | None:
    return layer.__dict__.get(_STATE)


def _hash(w: Tensor) -> int:
    return hash(w.detach().contiguous().numpy().tobytes())


def _prepared(layer: nn.Module, frozen: _Frozen, plan: _core.Plan, w: Tensor) -> _core.PreparedWeights:
    if _checks_weights and frozen.hash != _hash(w):
        raise _core.StaleCache(f"the weights of a frozen layer ({_text(layer)}) have changed; freeze the model again")
    found = frozen.weights.get(plan)
    if found is None:
        found = plan.prepare(w.detach().numpy(), torch.get_num_threads())
        frozen.weights.add(plan, found)
    return found


def _convolve(state: _State, layer: nn.Module, call: Call) -> Tensor | None:
    """Convolves for a layer: with prepared weights if it is frozen and no gradient is wanted. None: PyTorch has to."""
    x, w, bias, geometry, dtype = call
    problem = _convolution.problem_of(x, w, bias, geometry, dtype)
    plan = state.decide(problem).plan
    if plan is None:
        return None
    if state.frozen is not None and dtype is None and not _convolution.wants_gradients(x, w, bias):
        return _convolution.convolve(plan, problem, x, _prepared(layer, state.frozen, plan, w), bias)
    return _convolution.convolve(plan, problem, x, w, bias, dtype)


class _Replaced:
    """A convolution that was replaced. Classes of layers inherit from it first."""

    original: type[nn.Module]

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Classes are made when layers are replaced, so a pickle names the class that was replaced.
        if nn.utils.parametrize.is_parametrized(self):  # type: ignore[arg-type]
            return super().__reduce_ex__(protocol)  # PyTorch says how such a layer can be stored
        return _new_layer, (self.original,), self.__dict__


def _call_of(layer: Any, x: Tensor, w: Tensor, bias: Tensor | None) -> object:
    """Returns what a decision depends on, as far as it may change between calls of a layer; None if x is no tensor.

    PyTorch 2.4 cannot compile this, so there is none in torch.compile either.
    """
    if type(x) is not Tensor or torch.compiler.is_compiling():
        return None
    return (x.shape, x.stride(), x.dtype, x.requires_grad, w.shape, w.requires_grad,
            None if bias is None else bias.shape, layer.stride, layer.padding, layer.dilation, layer.groups,
            torch.is_grad_enabled(), torch.get_num_threads(),
            torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))


class _Conv3d(_Replaced):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        layer: Any = self
        state: _State | None = self.__dict__.get(_STATE)
        if state is None:  # it was restored while it was parametrized
            return super()._conv_forward(input, weight, bias)  # type: ignore[misc,no-any-return]
        call = _call_of(self, input, weight, bias)
        if state.is_left(call):  # in small layers the checks below would take long
            return super()._conv_forward(input, weight, bias)  # type: ignore[misc,no-any-return]
        pads = layer.padding_mode != "zeros"
        found = _convolution.call_of_conv3d(input, weight, bias, layer.stride, 0 if pads else layer.padding,
                                            layer.dilation, layer.groups)
        y = None
        if found is not None:
            if pads:
                # The same names of padding as those of torch.nn.functional.pad.
                around = layer._reversed_padding_repeated_twice  # noqa: SLF001
                found = found._replace(x=nn.functional.pad(found.x, around, mode=layer.padding_mode))
            y = _convolve(state, layer, found)
            if y is None:
                state.leave(call)
        return super()._conv_forward(input, weight, bias) if y is None else y  # type: ignore[misc,no-any-return]


class _ConvTranspose3d(_Replaced):
    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        layer: Any = self
        state: _State | None = self.__dict__.get(_STATE)
        if state is None or layer.padding_mode != "zeros":
            return super().forward(input, output_size)  # type: ignore[misc,no-any-return]
        weight, bias = layer.weight, layer.bias  # once, because a parametrization computes them
        more = layer._output_padding(input, output_size, layer.stride, layer.padding,  # noqa: SLF001
                                     layer.kernel_size, 3, layer.dilation)
        call = _call_of(self, input, weight, bias) if output_size is None else None
        y = None
        if not state.is_left(call):
            found = _convolution.call_of_conv_transpose3d(input, weight, bias, layer.stride, layer.padding, more,
                                                          layer.groups, layer.dilation)
            if found is not None:
                y = _convolve(state, layer, found)
                if y is None:
                    state.leave(call)
        if y is None:
            return nn.functional.conv_transpose3d(input, weight, bias, layer.stride, layer.padding, more, layer.groups,
                                                  layer.dilation)
        return y


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


def _change_class(layer: nn.Module, change: Callable[[type[nn.Module]], type[nn.Module]]) -> None:
    """Gives a layer another class. PyTorch makes a class for each parametrized layer, which then has another base."""
    kind = type(layer)
    if nn.utils.parametrize.is_parametrized(layer) and kind.__name__.startswith("Parametrized"):
        kind.__bases__ = (change(kind.__bases__[0]),)
    else:
        layer.__class__ = change(kind)


def _original_of(kind: type[nn.Module]) -> type[nn.Module]:
    return kind.original if kind in _classes.values() else kind  # type: ignore[attr-defined,no-any-return]


def _reason_against(layer: nn.Module) -> str:
    """Returns why a layer is kept, or an empty text."""
    kind = type(layer)
    if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        return "its shape is not known yet; run a pass first"
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
    return [(name, layer) for name, layer in model.named_modules()
            if isinstance(layer, (nn.Conv3d, nn.ConvTranspose3d))]


def replace_conv3d(model: nn.Module, where: Where | None = None, policy: str = "fastest",
                   memory_budget: int | None = 0) -> Report:
    """Makes the Conv3d and ConvTranspose3d layers of a model use the package, and returns what became of each.

    Only the class of a layer changes: modules, parameters, hooks and state_dict stay. `where(name, layer)` chooses
    layers. `policy` says which calls of them the package computes, and PyTorch the others: "fastest", those that are
    expected to be faster by models that read neither the clock nor the number of threads; "tuned", those that were
    measured to be faster, once for each problem and number of threads; "always", all that are served. `memory_budget`
    limits the bytes of spectra that a layer keeps from forward to backward; None means no limit. Spectra save up to a
    twentieth of a training step and take a fifth to a third of its memory. Replacing again changes the options. A model
    that is pickled while it is replaced needs this package when it is loaded.

    Raises ValueError for other policies, and for a negative budget.
    """
    options = checked_options(policy, memory_budget)
    layers = []
    for name, layer in _layers(model):
        against, text = "", _text(layer)
        if where is not None and not where(name, layer):
            against = "where() left it out"
        elif not isinstance(layer, _Replaced):
            against = _reason_against(layer)
            if not against:
                _change_class(layer, _class_for)
        if not against:
            layer.__dict__[_STATE] = _State(options)
        layers.append((name, text, against, weakref.ref(layer)))
    return Report(layers)


def restore_conv3d(model: nn.Module) -> None:
    """Undoes replace_conv3d() and freeze()."""
    for _, layer in _layers(model):
        layer.__dict__.pop(_STATE, None)
        _change_class(layer, _original_of)


def freeze(model: nn.Module) -> None:
    """Promises that the weights of replaced layers will not change, so that they are prepared once for each shape.

    It counts for passes without gradients. With CONVOLUME_CHECK_WEIGHTS=1 in the environment, a changed weight raises
    StaleCache. restore_conv3d(), or freeze() again, ends the promise.
    """
    for _, layer in _layers(model):
        state = _state(layer)
        if state is not None:
            weight: Any = layer.weight
            state.frozen = _Frozen(_hash(weight) if _checks_weights else None)
