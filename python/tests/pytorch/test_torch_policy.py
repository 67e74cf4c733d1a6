"""Policies: who computes a layer, the report about it, and what is kept."""
import os
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

import torch.utils.checkpoint  # noqa: E402
from torch import nn  # noqa: E402

import convolume  # noqa: E402
import convolume.torch as ours  # noqa: E402
from convolume.torch import _policy, _problem, _torch_cost, _tuned  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    """Forgets decisions, and has a wisdom store of its own."""
    monkeypatch.setenv("CONVOLUME_WISDOM", str(tmp_path / "wisdom"))
    monkeypatch.setattr(_policy, "decisions", type(_policy.decisions)(plans=True))


def small_and_large():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv3d(1, 16, 1), nn.Conv3d(16, 16, 5, padding=2, groups=16))


def problem(x, w, want=(), dtype=torch.float32, stride=1, groups=1):
    geometry = _problem.geometry_of(torch.empty(w), stride, [one // 2 for one in w[2:]], 1, groups)
    return _problem.Problem(torch.Size(x), torch.Size(w), dtype, 0, geometry, want, False)


@pytest.mark.parametrize(("arguments", "text"), [({"policy": "quickest"}, "fastest.*tuned.*always.*'quickest'"),
                                                 ({"memory_budget": -1}, "memory_budget.*-1")])
def test_wrong_options_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        ours.replace_conv3d(small_and_large(), **arguments)


def test_the_fastest_policy_takes_large_layers_and_leaves_tiny_ones():
    model = small_and_large()
    report = ours.replace_conv3d(model)
    assert [(row.replaced, row.reason) for row in report.rows] == [(True, "decided at its first call")] * 2
    plain = small_and_large()
    torch.testing.assert_close(model(torch.ones(1, 1, 1, 1, 1)), plain(torch.ones(1, 1, 1, 1, 1)))
    x = torch.randn(1, 1, 24, 24, 24)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
    rows = {(row.name, row.x_shape[2]): row for row in report.rows}
    assert not rows["0", 1].replaced and "expected to be no faster" in rows["0", 1].reason
    assert rows["1", 24].replaced and rows["1", 24].reason == "expected to be faster"
    for row in rows.values():
        assert row.training and row.ours_ms > 0 and row.torch_ms > 0
    assert rows["1", 24].ours_ms < rows["1", 24].torch_ms
    assert "1x16x24x24x24" in str(report) and " ms" in str(report)
    with torch.no_grad():
        model(x)
    assert any(not row.training for row in report.rows) and "inference" in str(report)
    ours.restore_conv3d(model)
    assert [(row.replaced, row.reason) for row in report.rows] == [(False, "it was restored")] * 2


@pytest.mark.parametrize(("flags", "faster"), [(("avx512bw",), 1), (("avx512bw", "avx512_bf16"), 1.6),
                                               (("avx512bw", "avx512_bf16", "amx_bf16"), 7)])
def test_autocast_is_compared_with_the_narrow_type(monkeypatch, flags, faster):
    monkeypatch.setattr(_torch_cost, "_processor_flags", lambda: frozenset(flags))
    floats = problem((1, 64, 32, 32, 32), (64, 64, 3, 3, 3), ("dx", "dw"))
    narrow = floats._replace(narrow=torch.bfloat16)
    y_shape = (1, 64, 30, 30, 30)
    assert _torch_cost.uses_onednn(narrow)
    ratio = _torch_cost.seconds_of_torch(floats, y_shape) / _torch_cost.seconds_of_torch(narrow, y_shape)
    assert 0.7 * faster < ratio <= 1.1 * faster
    assert 0 == _torch_cost.seconds_to_convert(floats, y_shape) < _torch_cost.seconds_to_convert(narrow, y_shape)
    monkeypatch.setattr(_torch_cost, "_processor_flags", frozenset)
    assert not _torch_cost.uses_onednn(narrow)


@pytest.mark.parametrize("policy", ["fastest", "tuned"])
def test_decisions_under_autocast_are_their_own(monkeypatch, policy):
    layer = nn.Conv3d(8, 8, 3)
    x = torch.randn(1, 8, 12, 12, 12)
    report = ours.replace_conv3d(layer, policy=policy)
    with torch.no_grad():
        layer(x)
        with torch.autocast("cpu"):
            assert layer(x).dtype == layer(x.bfloat16()).dtype == torch.bfloat16
        layer(x)
    assert len(_policy.decisions) == 2
    assert [row.autocast for row in report.rows] == [None, torch.bfloat16]
    assert all(row.ours_ms > 0 and row.torch_ms > 0 for row in report.rows)
    assert "1x8x12x12x12, inference, bfloat16  " in str(report)
    # What is left in one type is not left in another one.
    monkeypatch.setattr(_policy, "decisions", type(_policy.decisions)(plans=True))
    monkeypatch.setattr(_torch_cost, "seconds_of_torch", lambda one, *_: 0 if one.narrow else 1e9)
    layer = nn.Conv3d(8, 8, 3)
    ours.replace_conv3d(layer)
    calls = []
    monkeypatch.setattr(ours._convolution, "run_forward", lambda *_: calls.append(1) or torch.zeros(1))  # noqa: SLF001
    with torch.no_grad():
        with torch.autocast("cpu"):
            layer(x)
        assert calls == []
        layer(x)
    assert calls == [1]


def test_what_is_left_to_pytorch_has_its_bits(monkeypatch):
    layer = nn.Conv3d(2, 3, 1)
    x = torch.randn(1, 2, 3, 3, 3)
    wanted = layer(x)
    ours.replace_conv3d(layer)
    assert torch.equal(layer(x), wanted)
    monkeypatch.setattr(_policy._torch_cost, "seconds_of_torch", lambda *_: 1e9)  # noqa: SLF001
    monkeypatch.setattr(nn.functional, "conv3d", None)
    ours.replace_conv3d(layer)
    x = torch.randn(1, 2, 4, 3, 3)
    assert layer(x).shape == (1, 3, 4, 3, 3)


def test_decisions_do_not_depend_on_threads_or_runs():
    def decided(threads):
        torch.set_num_threads(threads)
        _policy.decisions = type(_policy.decisions)(plans=True)
        found = [_policy.decide(problem((2, c, e, e, e), (c, c, 3, 3, 3), want), _problem.Options("fastest"))
                 for c in (1, 8, 32) for e in (1, 6, 20) for want in ((), ("dx", "dw"))]
        return [(one.plan is None, one.ours, one.theirs) for one in found]

    before = torch.get_num_threads()
    try:
        assert decided(1) == decided(2) == decided(2)
    finally:
        torch.set_num_threads(before)


def test_plans_are_made_once_per_shape_and_hits_are_counted():
    layer = nn.Conv3d(4, 4, 3, padding=1)
    ours.replace_conv3d(layer, policy="always")
    x = torch.randn(1, 4, 7, 8, 9)
    layer(x)
    before = convolume.statistics()
    for _ in range(5):
        layer(x)
    after = convolume.statistics()
    assert after["plans"] == before["plans"] and after["plan_hits"] >= before["plan_hits"] + 5
    for extent in range(1, 300):
        with torch.no_grad():
            layer(torch.zeros(1, 4, 1, 1, extent))
    assert len(_policy.decisions) == 256


def test_shapes_of_a_bias_and_of_weights_are_part_of_the_problem():
    layer = nn.Conv3d(4, 4, 3)
    ours.replace_conv3d(layer, policy="always")
    x = torch.randn(1, 4, 5, 5, 5)
    layer(x)
    layer.bias = nn.Parameter(torch.zeros(5))
    with pytest.raises(RuntimeError, match="bias"):
        layer(x)


def test_the_tuned_policy_measures_once_and_remembers(monkeypatch):
    options, one = _problem.Options("tuned"), problem((1, 8, 6, 6, 6), (8, 8, 3, 3, 3), ("dx", "dw"))
    decision = _policy.decide(one, options)
    assert 0 < decision.ours < 10 and 0 < decision.theirs < 10 and "measured to be" in decision.reason
    with open(os.environ["CONVOLUME_WISDOM"]) as file:
        text = file.read()
    assert text.count("torch ") == 1 and f"threads:{torch.get_num_threads()}" in text
    monkeypatch.setattr(_tuned, "_measured", None)  # a second measurement would fail
    plan = _policy._plan_of(one, options)  # noqa: SLF001
    for ours_seconds, theirs_seconds in ((1.0, 2.0), (2.0, 1.0)):
        convolume._core.store_wisdom(_tuned._key(one, options, plan), f"{ours_seconds} {theirs_seconds}")  # noqa: SLF001
        _policy.decisions = type(_policy.decisions)(plans=True)
        decision = _policy.decide(one, options)
        assert (decision.plan is not None) == (ours_seconds < theirs_seconds)
        assert (decision.ours, decision.theirs) == (ours_seconds, theirs_seconds)


@pytest.mark.parametrize("case", ["transposed", "same", "unbatched", "channels_last", "double", "autocast"])
def test_the_tuned_policy_measures_every_kind(case):
    torch.manual_seed(1)
    layer = nn.ConvTranspose3d(4, 4, 2, stride=2) if case == "transposed" else nn.Conv3d(4, 4, 2, padding="same")
    x = torch.randn(*(() if case == "unbatched" else (1,)), 4, 5, 5, 5)
    if case == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last_3d)
    if case == "double":
        layer, x = layer.double(), x.double()
    with torch.autocast("cpu", enabled=case == "autocast"):
        wanted = layer(x)
        report = ours.replace_conv3d(layer, policy="tuned")
        allowed = 0.02 if case == "autocast" else 1e-4
        torch.testing.assert_close(layer(x), wanted, rtol=allowed, atol=allowed)
        assert layer(x).stride() == wanted.stride() and "measured" in report.rows[0].reason
    with torch.inference_mode():
        layer(x)
    assert layer.weight.grad is None


def test_the_tuned_policy_measures_unseen_by_checkpoints():
    layer = nn.Conv3d(4, 4, 3)
    ours.replace_conv3d(layer, policy="tuned")
    x = torch.randn(1, 4, 5, 5, 5, requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad is not None


def test_one_thread_measures_and_all_use_it(monkeypatch):
    calls, measured = [], _tuned._measured  # noqa: SLF001
    monkeypatch.setattr(_tuned, "_measured", lambda *arguments: calls.append(1) or measured(*arguments))
    one, found = problem((1, 4, 5, 5, 5), (4, 4, 3, 3, 3)), []
    workers = [threading.Thread(target=lambda: found.append(_policy.decide(one, _problem.Options("tuned"))))
               for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(calls) == 1 and len(found) == 4 and len({id(decision) for decision in found}) == 1


def test_a_decision_depends_on_the_problem_and_not_on_what_was_before():
    layer = nn.Conv3d(1, 1, 1)
    report = ours.replace_conv3d(layer)
    x = torch.randn(1, 1, 16, 16, 16)
    layer(x)
    assert not report.rows[0].replaced
    layer.weight = nn.Parameter(torch.randn(1, 1, 7, 7, 7))
    layer(x)
    assert report.rows[-1].replaced


@pytest.mark.parametrize("kind", ["unwritable", "folder", "other file"])
def test_a_wisdom_store_that_cannot_be_used_stops_nothing(monkeypatch, tmp_path, kind):
    (tmp_path / "other").write_text("recipes\n")
    monkeypatch.setenv("CONVOLUME_WISDOM", {"unwritable": "/proc/none/wisdom", "folder": str(tmp_path),
                                            "other file": str(tmp_path / "other")}[kind])
    layer = nn.Conv3d(4, 4, 3)
    ours.replace_conv3d(layer, policy="tuned")
    assert layer(torch.randn(1, 4, 5, 5, 5)).shape == (1, 4, 3, 3, 3)


def test_a_pickle_keeps_the_policy():
    layer = nn.Conv3d(4, 4, 1)
    ours.replace_conv3d(layer, policy="always", memory_budget=7)
    loaded = pickle.loads(pickle.dumps(layer))
    assert loaded._convolume.options == _problem.Options("always", 7)  # noqa: SLF001
    assert "_convolume" not in loaded.state_dict()


@pytest.mark.parametrize(("x", "w", "dtype", "groups"), [
    ((1, 4, 8, 8, 8), (4, 4, 3, 3, 3), torch.float32, 1),
    ((2, 4, 8, 8, 8), (4, 4, 3, 3, 3), torch.float32, 1),
    ((1, 64, 20, 20, 20), (4, 64, 3, 3, 3), torch.float32, 1),
    ((1, 4, 8, 8, 8), (4, 4, 5, 5, 5), torch.float32, 1),
    ((1, 4, 8, 8, 8), (4, 1, 3, 3, 3), torch.float32, 4),
    ((1, 4, 8, 8, 8), (4, 4, 1, 1, 1), torch.float32, 1),
    ((2, 4, 8, 8, 8), (4, 4, 3, 3, 3), torch.float64, 1),
])
def test_the_model_knows_when_pytorch_uses_onednn(x, w, dtype, groups):
    if not torch.__version__.startswith("2.13.") or torch.get_num_threads() < 2:
        pytest.skip("the rule is that of PyTorch 2.13 with several threads")
    for narrow in (None, torch.bfloat16, torch.float16) if dtype is torch.float32 else (None,):
        with (torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
              torch.autocast("cpu", dtype=narrow, enabled=narrow is not None)):
            nn.functional.conv3d(torch.randn(x, dtype=dtype), torch.randn(w, dtype=dtype), padding=1, groups=groups)
        names = {event.key for event in profile.key_averages()}
        one = problem(x, w, (), dtype, 1, groups)._replace(narrow=narrow)
        assert ("aten::mkldnn_convolution" in names) == _torch_cost.uses_onednn(one)
