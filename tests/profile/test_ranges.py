from __future__ import annotations

import json
import sys
import types

import pytest
import torch
from kernelroof.models.errors import UsageError
from kernelroof.profile.ranges import Ranges, Sink, module_ranges, modules_with_ranges, nvtx_sink, profiler_sink
from torch import nn


class Log:
    """A sink that keeps every push, and fails on a pop that nothing opened."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.pushed: list[str] = []

    def sink(self) -> Sink:
        return Sink(self._push, self._pop)

    def _push(self, name: str) -> None:
        self.open.append(name)
        self.pushed.append("/".join(self.open))

    def _pop(self) -> None:
        self.open.pop()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.unused = nn.Linear(4, 4)
        self.fail = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.experts[1](self.proj(x))
        if self.fail:
            raise ValueError("broken layer")
        return x


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm = nn.LayerNorm(4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Top(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Body()
        self.lm_head = nn.Linear(4, 8)

    @property
    def base_model(self) -> nn.Module:
        return self.model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.model(ids))


IDS = torch.tensor([[1, 2]])


def test_module_depth_names_exactly_what_ran_nested() -> None:
    log, top = Log(), Top()
    with module_ranges(top, "module", (log.sink(),)) as ranges, ranges.phase("prefill"), ranges.step(0):
        top(IDS)
        with ranges.span("(sample)"):
            pass
    at = "prefill/step0"
    assert log.pushed == [
        "prefill",
        at,
        f"{at}/model",
        f"{at}/model/model.embed",
        *(
            f"{at}/model/model.layers.{i}{end}"
            for i in (0, 1)
            for end in ("", f"/model.layers.{i}.proj", f"/model.layers.{i}.experts.1")
        ),
        f"{at}/model/model.norm",
        f"{at}/lm_head",
        f"{at}/(sample)",
    ]
    assert log.open == []


def test_layer_depth_takes_layers_and_their_siblings() -> None:
    assert [n for n, _ in modules_with_ranges(Top(), "layer")] == [
        "model.embed",
        "model.layers.0",
        "model.layers.1",
        "model.norm",
        "lm_head",
    ]


def test_phase_depth_takes_no_module() -> None:
    log, top = Log(), Top()
    with module_ranges(top, "phase", (log.sink(),)) as ranges, ranges.phase("decode"), ranges.step(3):
        top(IDS)
    assert log.pushed == ["decode", "decode/step3"]


def test_unknown_depth_is_refused() -> None:
    with pytest.raises(UsageError, match="phase, layer, module"), module_ranges(Top(), "op", ()):
        pass


def test_hooks_are_removed_and_none_are_made_without_sinks() -> None:
    log, top = Log(), Top()
    with module_ranges(top, "module", ()):
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in top.modules())
    with module_ranges(top, "module", (log.sink(),)):
        assert top.model.norm._forward_hooks
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in top.modules())
    top(IDS)
    assert log.pushed == []


def test_an_exception_leaves_every_sink_balanced() -> None:
    first, second, top = Log(), Log(), Top()
    top.model.layers[1].fail = True
    sinks = (first.sink(), second.sink())
    with (
        pytest.raises(ValueError, match="broken layer"),
        module_ranges(top, "module", sinks) as ranges,
        ranges.phase("prefill"),
        ranges.step(0),
    ):
        top(IDS)
    assert "prefill/step0/model/model.layers.1" in first.pushed
    assert first.pushed == second.pushed
    assert first.open == second.open == []
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in top.modules())


def test_an_exception_that_a_module_swallows_does_not_shift_later_ranges() -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()
            self.after = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.layer(x)
            except ValueError:
                return x

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.careful = Careful()
            self.next = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.next(self.careful(x))

    log, pair = Log(), Pair()
    pair.careful.layer.fail = True
    with module_ranges(pair, "module", (log.sink(),)) as ranges, ranges.step(0):
        pair(torch.zeros(1, 4))
    assert "step0/careful/careful.layer" in log.pushed
    assert log.pushed[-1] == "step0/next"
    assert log.open == []


def test_without_sinks_the_same_calls_do_nothing() -> None:
    ranges = Ranges()
    with ranges.phase("prefill"), ranges.step(0), ranges.span("x"):
        assert ranges._open == []


def test_nvtx_sink_pushes_and_pops_in_the_default_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    made: list[str] = []

    class annotate:
        def __init__(self, message: str) -> None:
            self.message = message
            made.append(message)

        def __enter__(self) -> None:
            calls.append(f"+{self.message}")

        def __exit__(self, *_: object) -> None:
            calls.append(f"-{self.message}")

    fake = types.ModuleType("nvtx")
    fake.annotate = annotate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    ranges = Ranges((nvtx_sink(),))
    for k in (0, 1):
        with ranges.phase("decode"), ranges.step(k):
            pass
    assert calls == ["+decode", "+step0", "-step0", "-decode", "+decode", "+step1", "-step1", "-decode"]
    assert made == ["decode", "step0", "step1"]  # each name registered once


def test_the_installed_nvtx_has_what_the_sink_uses() -> None:
    sink = nvtx_sink()
    for name in ("prefill", "step0"):
        sink.push(name)
    sink.pop()
    sink.pop()
    with pytest.raises(IndexError):
        sink.pop()


@pytest.mark.parametrize("private", [True, False])
def test_profiler_sink_makes_user_annotations(private: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    if not private:
        monkeypatch.delattr(torch.autograd, "_record_function_with_args_enter")
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorder,
        Ranges((profiler_sink(),)).span("model.layers.0.proj"),
    ):
        torch.zeros(2)
    path = f"{tmp_path}/trace.json"
    recorder.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    found = [e["name"] for e in events if e.get("cat") == "user_annotation"]
    assert found == ["model.layers.0.proj"]
