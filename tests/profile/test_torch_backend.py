from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kernelroof.models.errors import OutputError
from kernelroof.profile import torch_backend
from kernelroof.profile.driver import prepare, run_pass
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.ranges import Sink, module_ranges

SPEC = DriverSpec(
    {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 97,
        "max_position_embeddings": 64,
    },
    prompt=5,
    output=3,
)


@pytest.mark.parametrize("depth", ["phase", "layer", "module"])
def test_the_trace_holds_every_range_once_and_the_ops(depth: str, tmp_path: Path) -> None:
    session = prepare(SPEC)
    expected: Counter[str] = Counter()
    with module_ranges(session.model, depth, (Sink(lambda n: expected.update([n]), lambda: None),)) as ranges:
        run_pass(session, ranges)
    times = torch_backend.record(session, tmp_path / "trace.json.gz", depth)
    events = _events(tmp_path / "trace.json.gz")
    found = Counter(e["name"] for e in events if e.get("cat") == "user_annotation")
    assert found == expected
    assert found["step0"] == 2
    assert found["(sample)"] == 4
    ops = Counter(e["name"] for e in events if e.get("cat") == "cpu_op")
    # 7 projections per layer and the head, in the prefill and 3 steps; a token choice in each.
    assert ops["aten::mm"] == (2 * 7 + 1) * 4
    assert ops["aten::argmax"] == 4
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json.gz"]
    assert len(times["decode_step_ns"][0]) == 3
    assert times["depth"] == depth


def test_ranges_of_the_trace_nest_as_the_modules_do(tmp_path: Path) -> None:
    torch_backend.record(prepare(SPEC), tmp_path / "trace.json.gz", "module")
    marks = [e for e in _events(tmp_path / "trace.json.gz") if e.get("cat") == "user_annotation"]

    def inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
        return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]

    layers = [e for e in marks if e["name"] == "model.layers.1"]
    projections = [e for e in marks if e["name"] == "model.layers.1.self_attn.q_proj"]
    assert len(layers) == len(projections) == 4
    assert all(inside(p, layer) for p, layer in zip(projections, layers, strict=True))
    decode = next(e for e in marks if e["name"] == "decode")
    assert [inside(layer, decode) for layer in layers] == [False, True, True, True]


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written"):
        torch_backend.record(prepare(SPEC), tmp_path / "nowhere" / "trace.json.gz", "phase")


def test_event_costs_has_a_figure_per_op_and_per_range() -> None:
    costs = torch_backend.event_costs()
    assert set(costs) == {"op_ns", "range_ns"}
    assert all(isinstance(v, float) for v in costs.values())


def test_kineto_says_nothing_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    code = (
        "import sys; from pathlib import Path\n"
        "from kernelroof.profile.driver import prepare\n"
        "from kernelroof.profile.driver_spec import DriverSpec\n"
        "from kernelroof.profile.torch_backend import record\n"
        "spec = DriverSpec.from_json(Path(sys.argv[1]).read_text())\n"
        "record(prepare(spec), Path(sys.argv[2]), 'phase')\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "spec.json"), str(tmp_path / "t.json.gz")],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert (tmp_path / "t.json.gz").exists()


def test_a_level_that_the_user_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "1")
    with torch_backend.quiet_kineto():
        assert os.environ["KINETO_LOG_LEVEL"] == "1"
    monkeypatch.delenv("KINETO_LOG_LEVEL")
    with torch_backend.quiet_kineto():
        assert os.environ["KINETO_LOG_LEVEL"] == "99"
    assert "KINETO_LOG_LEVEL" not in os.environ


def _events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    assert isinstance(events, list)
    return events


MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 32,
    "moe_intermediate_size": 16,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 97,
    "max_position_embeddings": 64,
}
HYBRID = {
    **{k: v for k, v in MOE.items() if "expert" not in k and k != "moe_intermediate_size"},
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
MLA = {
    "model_type": "deepseek_v3",
    "hidden_size": 32,
    "moe_intermediate_size": 16,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "vocab_size": 97,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
WINDOW = {**SPEC.config, "model_type": "gemma3_text", "head_dim": 8, "sliding_window": 4, "pad_token_id": 0}


@pytest.mark.parametrize("config", [MOE, HYBRID, MLA, WINDOW], ids=lambda c: str(c["model_type"]))
def test_recorded_ops_are_the_traced_ones(config: dict[str, Any], tmp_path: Path) -> None:
    """Experts, scans, latent attention and windows: every traced op is found in a real run, and every product's row."""
    from kernelroof.models.trace import trace
    from kernelroof.parsers.kineto import read_kineto
    from kernelroof.roofline.match import match

    spec = DriverSpec(config, prompt=6, output=2)
    times = torch_backend.record(prepare(spec), tmp_path / "trace.json.gz", "module")
    traced = trace(config, batch=1, prompt=6, output=2, dtype=spec.dtype)
    matched = match(read_kineto(tmp_path / "trace.json.gz"), traced.ops)
    assert not [o for o in matched.unmatched_traced if o.flops or o.read_bytes or o.write_bytes]
    assert int(matched.rows["flops"].sum()) == sum(o.flops for o in traced.ops)
    assert traced.cache_bytes == times["cache_bytes"]
    assert traced.parameter_bytes == times["parameter_bytes"]
