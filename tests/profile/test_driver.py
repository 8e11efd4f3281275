from __future__ import annotations

import dataclasses
import gc
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kernelroof.models import hf
from kernelroof.models.errors import DriverError
from kernelroof.profile import driver, driver_spec, memory
from kernelroof.profile.driver import Session, prepare, run_pass
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.ranges import Ranges, Sink, module_ranges

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
SPEC = DriverSpec(CONFIG, batch=3, prompt=5, output=4, warmup=1, repeats=2)


@pytest.fixture(scope="module")
def session() -> Session:
    return prepare(SPEC)


@pytest.fixture
def quiet_gc() -> Any:
    yield
    gc.enable()


def test_spec_travels_as_json() -> None:
    spec = dataclasses.replace(SPEC, threads=2, weights="/somewhere")
    assert DriverSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"config": {}, "colour": 1}'])
def test_a_spec_that_makes_no_sense_is_a_driver_error(text: str) -> None:
    with pytest.raises(DriverError, match="spec"):
        DriverSpec.from_json(text)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_cache_bytes_are_those_of_keys_and_values(cache: str) -> None:
    session = prepare(dataclasses.replace(SPEC, cache=cache))
    times = run_pass(session, Ranges())
    # layers * (K, V) * batch * KV heads * (prompt + output) * head_dim * 4 bytes
    assert times.cache_bytes == 2 * 2 * 3 * 2 * (5 + 4) * 8 * 4
    assert len(times.step_ns) == 4
    assert times.prefill_ns > 0
    assert min(times.step_ns) > 0


def test_parameter_bytes_count_each_parameter_once(session: Session) -> None:
    h, f, v, kv = 32, 48, 97, 16
    per_layer = 2 * h * h + 2 * h * kv + 3 * h * f + 2 * h
    assert session.parameter_bytes == 4 * (2 * per_layer + 2 * v * h + h)
    tied = prepare(dataclasses.replace(SPEC, config={**CONFIG, "tie_word_embeddings": True}))
    assert tied.parameter_bytes == session.parameter_bytes - 4 * v * h


def test_each_step_feeds_on_the_token_before_it(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[torch.Tensor] = []
    step = hf.run_step

    def spy(model: Any, cache: Any, token: torch.Tensor) -> torch.Tensor:
        fed.append(token.clone())
        return step(model, cache, token)

    monkeypatch.setattr(hf, "run_step", spy)
    run_pass(session, Ranges())
    # Without a cache: the whole sequence again for every token.
    ids = session.input_ids
    for token in fed:
        with torch.no_grad():
            expected = session.model(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        assert torch.equal(token, expected)
        ids = torch.cat((ids, token), dim=1)
    assert len(fed) == 4


def test_the_prompt_is_drawn_from_the_seed(session: Session) -> None:
    assert session.input_ids.shape == (3, 5)
    assert torch.equal(session.input_ids, prepare(SPEC).input_ids)
    assert not torch.equal(session.input_ids, prepare(dataclasses.replace(SPEC, seed=1)).input_ids)


def test_ranges_of_a_pass_are_the_phases_steps_and_modules(session: Session) -> None:
    open_now: list[str] = []
    pushed: list[tuple[str, ...]] = []

    def push(name: str) -> None:
        open_now.append(name)
        pushed.append(tuple(open_now))

    with module_ranges(session.model, "module", (Sink(push, lambda: open_now.remove(open_now[-1])),)) as ranges:
        run_pass(session, ranges, steps=2)
    assert open_now == []
    assert [p[0] for p in pushed if len(p) == 1] == ["prefill", "decode"]
    assert [p for p in pushed if len(p) == 2] == [("prefill", "step0"), ("decode", "step0"), ("decode", "step1")]
    ran: set[str] = set()
    counts: list[Any] = []
    for name, module in session.model.named_modules():
        counts.append(module.register_forward_hook(lambda *_, name=name: ran.add(name)))
    run_pass(session, Ranges(), steps=1)
    for handle in counts:
        handle.remove()
    for phase, step in (("prefill", "step0"), ("decode", "step0"), ("decode", "step1")):
        inside = {p[-1] for p in pushed if p[:2] == (phase, step) and len(p) > 2}
        assert inside == (ran - {""}) | {"(sample)"}
    assert len(ran) > 20


def test_bare_record_has_every_pass_and_step(session: Session) -> None:
    record = json.loads(json.dumps(driver.measure_bare(session)))
    assert len(record["prefill_ns"]) == record["repeats"] == 2
    assert [len(steps) for steps in record["decode_step_ns"]] == [4, 4]
    assert record["parameter_bytes"] == session.parameter_bytes
    assert record["threads"] == torch.get_num_threads()
    assert record["device"] == "cpu"
    assert len(driver.measure_bare(session, repeats=1)["prefill_ns"]) == 1


def test_collection_is_off_in_measured_passes_only(
    session: Session, monkeypatch: pytest.MonkeyPatch, quiet_gc: None
) -> None:
    seen: list[tuple[int | None, bool]] = []
    real = driver.run_pass

    def spy(session: Session, ranges: Ranges, steps: int | None = None) -> Any:
        seen.append((steps, gc.isenabled()))
        return real(session, ranges, steps)

    monkeypatch.setattr(driver, "run_pass", spy)
    gc.enable()
    driver.measure_bare(session)
    assert seen == [(2, True), (None, False), (None, False)]  # warm-up, then measured
    assert gc.isenabled()
    gc.disable()
    with driver.no_collection():
        pass
    assert not gc.isenabled()


class OldModel(torch.nn.Module):
    """Takes and fills its cache under the names of transformers before 5.24."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = hf.build_model(CONFIG, dtype="float32", attn="sdpa", device="cpu")
        self.config = self.inner.config
        self.seen: list[set[str]] = []

    def forward(
        self, input_ids: Any, past_key_values: Any = None, use_cache: bool = False, num_logits_to_keep: int = 0
    ) -> Any:
        self.seen.append({"past_key_values"} if past_key_values is not None else set())
        named = {hf.cache_argument(self.inner): past_key_values}
        return self.inner(input_ids=input_ids, use_cache=use_cache, **named)


def test_models_with_the_old_argument_name_run(session: Session) -> None:
    model = OldModel().eval()
    assert "cache" not in inspect.signature(model.forward).parameters
    times = run_pass(session._replace(model=model), Ranges())
    assert model.seen == [{"past_key_values"}] * 5
    assert times.cache_bytes == run_pass(session, Ranges()).cache_bytes


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"prompt": 62, "output": 4}, "max_position_embeddings of 64"),
        ({"batch": 0}, "batch is 0"),
        ({"prompt": 0}, "prompt is 0"),
        ({"output": 0}, "output is 0"),
        ({"repeats": 0}, "repeats is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"head": "first"}, "head is 'first'"),
    ],
)
def test_senseless_sizes_are_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(DriverError, match=named):
        prepare(dataclasses.replace(SPEC, **change))


def test_the_last_position_is_allowed() -> None:
    session = prepare(dataclasses.replace(SPEC, batch=1, prompt=60, output=4))
    assert len(run_pass(session, Ranges()).step_ns) == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_without_cuda_is_refused() -> None:
    with pytest.raises(DriverError, match="sees no CUDA device"):
        prepare(dataclasses.replace(SPEC, device="cuda"))


def test_on_cuda_boundaries_are_events_and_one_wait_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.at = 0.0

        def record(self, stream: str) -> None:
            told.append(f"event on {stream}")
            self.at = float(len(told))

        def elapsed_time(self, other: Event) -> float:
            return (other.at - self.at) * 1.25  # ms

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "s7")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: told.append("wait"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: told.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: told.append("stop"))
    with driver._capture("cuda:0"):
        mark, durations = driver._boundaries("cuda:0")
        for _ in range(3):
            mark()
        assert durations() == [1_250_000, 1_250_000]
    assert told == ["wait", "start", "wait", *["event on s7"] * 3, "wait", "wait", "stop"]
    told.clear()
    with driver._capture("cpu"):
        pass
    assert told == []


def test_parameters_off_the_gpu_are_refused(session: Session) -> None:
    with pytest.raises(DriverError, match=r"not on the GPU, first model\.embed_tokens\.weight \(cpu\)"):
        driver.check_on_gpu(session.model)


def test_what_can_not_fit_is_refused_with_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, rest = memory.needed_bytes(SPEC)
    assert parameters == prepare(SPEC).parameter_bytes
    assert rest is not None
    assert rest > run_pass(prepare(SPEC), Ranges()).cache_bytes
    monkeypatch.setattr("kernelroof.profile.environment.available_memory_bytes", lambda: parameters + rest)
    prepare(SPEC)
    monkeypatch.setattr("kernelroof.profile.environment.available_memory_bytes", lambda: parameters + rest - 1)
    with pytest.raises(DriverError, match="GB of parameters"):
        prepare(SPEC)


def test_running_out_of_memory_says_what_was_needed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        return torch.empty(2**60)

    monkeypatch.setattr(hf, "run_prefill", fail)
    with pytest.raises(DriverError, match=r"out of memory on cpu: the run needs .* GB of parameters"):
        run_pass(session, Ranges())


def test_other_errors_keep_their_kind(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(hf, "run_prefill", fail)
    with pytest.raises(RuntimeError, match="mat1"):
        run_pass(session, Ranges())


def test_main_writes_the_times_of_a_spec(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    for mode, passes in (("bare", 2), ("ranges", 1)):
        out = tmp_path / f"{mode}.json"
        assert driver.main(["--spec", str(tmp_path / "spec.json"), "--mode", mode, "--out", str(out)]) == 0
        record = json.loads(out.read_text())
        assert record["mode"] == mode
        assert [len(s) for s in record["decode_step_ns"]] == [4] * passes


def test_main_takes_a_model_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    options = ["--prompt", "3", "--output", "2", "--repeats", "1", "--warmup", "0"]
    assert driver.main(["--model", str(tmp_path / "config.json"), *options]) == 0
    assert len(json.loads(capsys.readouterr().out)["decode_step_ns"][0]) == 2


@pytest.mark.parametrize(
    "extra", [["--spec", "nowhere.json"], ["--spec", "{spec}", "--batch", "2"], ["--model", "no-such-model"]]
)
def test_main_says_what_is_wrong_in_one_line(
    extra: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    assert driver.main([e.format(spec=tmp_path / "spec.json") for e in extra]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kernelroof driver: error:")
    assert error.count("\n") == 1


def test_every_spec_field_has_an_option() -> None:
    options = {a.dest for a in driver.build_parser()._actions}
    fields = {f.name for f in dataclasses.fields(driver_spec.DriverSpec)} - {"config"}
    assert fields <= options
