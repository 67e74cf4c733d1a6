# mypy: disable-error-code="import-not-found", disallow-subclassing-any=False, warn-unused-ignores=False
"""Which convolutions the package computes, and by which plan."""
from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import torch

from .. import _core
from .._convolution import ConvPlan
from .._kept import Kept
from . import _torch_cost
from ._problem import Options, Problem

# What is left to PyTorch: no engine serves it, or it cannot be, which PyTorch says in its own words.
_REFUSALS = (_core.Unsupported, _core.InvalidArgument, _core.ShapeMismatch)
_TYPES = {torch.float32: "float32", torch.float64: "float64"}

# Seconds of a call, and of its backward pass, beside the plan; and what a plan takes over its estimate.
_CALL, _BACKWARD_CALL, _PLAN_SHARE = 60e-6, 230e-6, 1.15
# A convolution is ours if it is expected to be at least so many times as fast.
_MARGIN = 1.1


@dataclass(frozen=True, eq=False)
class Decision:
    """Who computes a convolution."""

    plan: _core.Plan | None  # None: PyTorch
    reason: str
    ours: float | None = None  # seconds of a call with its gradients, expected or measured
    theirs: float | None = None


decisions: Kept[Decision] = Kept(plans=True)
_deciding = threading.RLock()  # one decision at a time: measurements would disturb each other


def _renew_lock() -> None:
    global _deciding
    _deciding = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def threads_for(options: Options) -> int:
    """Returns the threads for which a decision is valid: measured times depend on them. 0 means any number."""
    return torch.get_num_threads() if options.policy == "tuned" else 0


def decide(problem: Problem, options: Options) -> Decision:
    """Returns who computes a convolution. Decisions are kept. Thread-safe."""
    key = (problem, options, threads_for(options))
    found = decisions.get(key)
    if found is None:
        with _deciding:
            found = decisions.get(key)
            if found is None:
                found = _decided(problem, options)
                decisions.add(key, found)
    return found


def _plan_of(problem: Problem, options: Options) -> _core.Plan:
    """Returns a plan that reads and writes channel blocks where they lie, if an engine can."""
    blocked = problem.x_blocked, _torch_cost.writes_block(problem)
    if any(blocked):
        try:
            return _planned(problem, options, blocked)
        except _REFUSALS:
            pass
    return _planned(problem, options, (False, False))


def _planned(problem: Problem, options: Options, blocked: tuple[bool, bool]) -> _core.Plan:
    g = problem.geometry
    # In the budget of a plan, 0 means no limit.
    budget = 0 if options.memory_budget is None else max(options.memory_budget, 1)
    plan = ConvPlan(tuple(problem.x_shape), tuple(problem.w_shape), dtype=_TYPES[problem.dtype], stride=g.stride,
                    padding=g.padding, dilation=g.dilation, groups=g.groups, bias=problem.bias > 0,
                    transposed=g.transposed, output_padding=g.output_padding, want=problem.want, memory_budget=budget,
                    _blocked=blocked)
    return plan._plan  # noqa: SLF001


def _decided(problem: Problem, options: Options) -> Decision:
    try:
        plan = _plan_of(problem, options)
    except _REFUSALS as error:
        return Decision(None, f"not served: {error}")
    if problem.bias not in (0, plan.y_shape[1]):
        return Decision(None, f"not served: bias has {problem.bias} values for {plan.y_shape[1]} channels")
    if options.policy == "tuned":
        from ._tuned import measured_seconds
        ours, theirs, how = *measured_seconds(problem, options, plan), "measured"
        faster = ours < theirs
    else:
        ours, theirs, how = _expected(problem, plan), _torch_cost.seconds_of_torch(problem, plan.y_shape), "expected"
        faster = ours * _MARGIN < theirs
    if options.policy == "always":
        return Decision(plan, "always", ours, theirs)
    if faster:
        return Decision(plan, f"{how} to be faster", ours, theirs)
    return Decision(None, f"{how} to be {'no' if theirs <= ours else 'hardly'} faster", ours, theirs)


def _expected(problem: Problem, plan: _core.Plan) -> float:
    seconds: float = plan.seconds / _core.machine_rates()["cores"] * _PLAN_SHARE
    seconds += _torch_cost.seconds_to_convert(problem, plan.y_shape)
    return seconds + _CALL + (_BACKWARD_CALL if problem.want else 0)
