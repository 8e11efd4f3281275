"""The traced estimate against the real module, the real cache, counting by hand and published figures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernelroof.models import hf
from kernelroof.models import trace as tracing
from kernelroof.models.errors import ConfigError, UsageError
from kernelroof.models.kinds import kind_of
from kernelroof.models.presets import load_config
from kernelroof.models.trace import Trace, TracedOp, summarise_ops, trace

HIDDEN, LAYERS, INNER, HEADS, KV_HEADS, HEAD, VOCAB = 64, 2, 96, 4, 2, 16, 128
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
QWEN = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True}
WINDOW = {**LLAMA, "model_type": "mistral", "sliding_window": 20}
BATCH, PROMPT, OUTPUT, SIZE = 2, 10, 3, 4
KV_TOKEN = 2 * KV_HEADS * HEAD * SIZE * BATCH  # bytes of one position of one layer


def traced(config: dict[str, Any] = LLAMA, **changes: Any) -> Trace:
    asked = {"batch": BATCH, "prompt": PROMPT, "output": OUTPUT, "dtype": "float32", **changes}
    return trace(config, **asked)


def pick(result: Trace, phase: str, step: int = 0, **wanted: Any) -> list[TracedOp]:
    found = [
        o
        for o in result.ops
        if (o.phase, o.step) == (phase, step) and all(getattr(o, k) == v for k, v in wanted.items())
    ]
    assert found, f"no op {wanted} in {phase} {step}"
    return found


@pytest.mark.parametrize("config", [LLAMA, QWEN], ids=["untied", "tied"])
def test_weight_bytes_are_the_real_modules(config: dict[str, Any]) -> None:
    """All parameters but the embedding table are read once in a step, of it the gathered rows alone."""
    model = hf.build_model(config, dtype="float32", attn="sdpa", device="cpu")
    whole = sum(p.numel() * p.element_size() for p in model.parameters())
    table = VOCAB * HIDDEN * SIZE
    buffers = sum(b.numel() * b.element_size() for n, b in model.named_buffers() if n.endswith("rotary_emb.inv_freq"))
    result = traced(config)
    assert result.parameter_bytes == whole
    assert result.parameters == sum(p.numel() for p in model.parameters())
    streamed = whole - (0 if config["tie_word_embeddings"] else table)  # a tied table is read as the head
    rows = BATCH * HIDDEN * SIZE
    for step in range(OUTPUT):
        assert sum(o.weight_bytes for o in pick(result, "decode", step)) == streamed + rows + buffers
    rows = BATCH * PROMPT * HIDDEN * SIZE
    assert sum(o.weight_bytes for o in pick(result, "prefill")) == streamed + rows + buffers


@pytest.mark.parametrize("kind", hf.CACHES)
@pytest.mark.parametrize("config", [LLAMA, QWEN, WINDOW], ids=["llama", "qwen2", "window"])
def test_cache_bytes_are_the_real_caches(config: dict[str, Any], kind: str) -> None:
    output = 14  # past the window of 20
    model = hf.build_model(config, dtype="bfloat16", attn="sdpa", device="cpu")
    cache = hf.make_cache(kind, model, max_length=PROMPT + output, batch=BATCH)
    logits = hf.run_prefill(model, cache, torch.zeros(BATCH, PROMPT, dtype=torch.int64), last_only=True)
    for _ in range(output):
        logits = hf.run_step(model, cache, hf.choose_token(logits))
    real = sum(t.numel() * t.element_size() for _name, t in hf.cache_tensors(cache))
    assert real > 0
    for steps in (None, [0], []):
        result = traced(config, dtype="bfloat16", cache=kind, output=output, steps=steps)
        assert result.cache_bytes == real


def test_dynamic_cache_is_read_and_written_again_in_every_step() -> None:
    result = traced()
    for step in range(OUTPUT):
        past = PROMPT + step
        copies = pick(result, "decode", step, role="cache", op="aten::cat")
        assert len(copies) == 2 * LAYERS
        assert sum(o.kv_read_bytes for o in copies) == LAYERS * past * KV_TOKEN
        assert sum(o.kv_write_bytes for o in copies) == LAYERS * (past + 1) * KV_TOKEN
        assert sum(o.act_read_bytes for o in copies) == LAYERS * KV_TOKEN
        assert sum(o.act_write_bytes for o in copies) == 0
        attention = pick(result, "decode", step, flops_kind="attention")
        assert sum(o.kv_read_bytes for o in attention) == LAYERS * (past + 1) * KV_TOKEN
        query = LAYERS * BATCH * HEADS * HEAD * SIZE
        assert sum(o.act_read_bytes for o in attention) == sum(o.act_write_bytes for o in attention) == query


def test_static_cache_stores_new_tokens_and_is_read_whole() -> None:
    result = traced(cache="static")
    length = PROMPT + OUTPUT
    for step in range(OUTPUT):
        stores = pick(result, "decode", step, op="aten::index_copy_")
        assert len(stores) == 2 * LAYERS
        assert sum(o.kv_write_bytes for o in stores) == LAYERS * KV_TOKEN
        assert sum(o.kv_read_bytes for o in stores) == 0
        assert sum(o.act_read_bytes for o in stores) == LAYERS * (KV_TOKEN + 2 * 8)  # and the position
        attention = pick(result, "decode", step, flops_kind="attention")
        assert sum(o.kv_read_bytes for o in attention) == LAYERS * length * KV_TOKEN
        assert sum(o.flops for o in attention) == LAYERS * BATCH * HEADS * length * 4 * HEAD
    # The prefill attends causally over the prompt alone.
    attention = pick(result, "prefill", flops_kind="attention")
    pairs = PROMPT * (PROMPT + 1) // 2
    assert sum(o.flops for o in attention) == LAYERS * BATCH * HEADS * pairs * 4 * HEAD
    assert sum(o.kv_read_bytes for o in attention) == LAYERS * PROMPT * KV_TOKEN


def test_eager_attention_reads_the_cache_unexpanded_and_computes_the_full_mask() -> None:
    result = traced(attn="eager")
    assert not [o for o in result.ops if o.flops_kind == "attention"]
    products = pick(result, "prefill", op="aten::bmm")
    assert sum(o.flops for o in products) == LAYERS * BATCH * HEADS * PROMPT * PROMPT * 4 * HEAD
    read = sum(o.kv_read_bytes for o in pick(result, "decode", 0) if o.role != "cache")
    assert read == LAYERS * (PROMPT + 1) * KV_TOKEN  # by the copies that expand the heads


@pytest.mark.parametrize(
    ("config", "attn", "kind"),
    [
        (LLAMA, "sdpa", "dynamic"),
        (QWEN, "sdpa", "static"),
        (LLAMA, "eager", "dynamic"),
        (WINDOW, "sdpa", "dynamic"),
        (WINDOW, "sdpa", "static"),
    ],
)
def test_interpolated_steps_are_the_walked_ones(
    config: dict[str, Any], attn: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many steps four are traced; a sliding window breaks the line, and then all are."""
    asked = {"attn": attn, "cache": kind, "output": 14}
    walks: list[int] = []
    walk = tracing._walk
    monkeypatch.setattr(tracing, "_walk", lambda job, steps: walks.append(len(steps)) or walk(job, steps))
    short = traced(config, **asked)
    assert walks == ([14] if config is WINDOW else [0])
    monkeypatch.setattr(tracing, "_ALL_STEPS", 100)
    long = traced(config, **asked)
    monkeypatch.setattr(tracing, "_ALL_STEPS", 8)
    assert {o.step for o in short.ops if o.phase == "decode"} == set(range(14))
    assert short == long
    last = traced(config, **asked, steps=[13])
    assert last.ops == tuple(o for o in long.ops if o.phase == "prefill" or o.step == 13)


def test_chosen_steps_are_those_of_the_whole() -> None:
    whole = traced(output=14)
    for steps in ([3], [0, 2], [1, 13], [0, 4, 5, 9, 10, 13]):
        some = traced(output=14, steps=steps)
        assert some.ops == tuple(o for o in whole.ops if o.phase == "prefill" or o.step in steps)
        assert some.cache_bytes == whole.cache_bytes
        assert some.module_io == {k: v for k, v in whole.module_io.items() if k[0] == "prefill" or k[1] in steps}


def test_prefill_alone() -> None:
    result = traced(output=0)
    assert {o.phase for o in result.ops} == {"prefill"}
    assert result.cache_bytes == LAYERS * PROMPT * KV_TOKEN


def test_compulsory_bytes_by_hand() -> None:
    io = traced().module_io
    x, kv = BATCH * HIDDEN * SIZE, KV_HEADS * HEAD
    weight = kv * HIDDEN * SIZE
    linear = io["decode", 1, "model.layers.1.self_attn.k_proj"]
    assert linear[3:] == (weight, x, BATCH * kv * SIZE, 0, 0)
    attention = io["decode", 1, "model.layers.0.self_attn"]
    past = PROMPT + 1
    weights = 2 * (HIDDEN + kv) * HIDDEN * SIZE
    angles = 2 * HEAD * SIZE  # cosines and sines of one position, shared by the batch
    assert attention[3:] == (weights, x + angles, x, past * KV_TOKEN, KV_TOKEN)
    mlp = io["prefill", 0, "model.layers.0.mlp"]
    assert mlp[3:] == (3 * HIDDEN * INNER * SIZE, PROMPT * x, PROMPT * x, 0, 0)
    whole = io["decode", 1, "(root)"]
    assert whole.kv_read_bytes == LAYERS * past * KV_TOKEN
    assert whole.kv_write_bytes == LAYERS * KV_TOKEN
    assert whole.act_read_bytes == BATCH * 8  # the tokens
    assert whole.act_write_bytes == BATCH * VOCAB * SIZE  # the logits


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", hf.CACHES)
def test_compulsory_bytes_are_a_lower_bound(attn: str, kind: str) -> None:
    result = traced(attn=attn, cache=kind)
    assert len(result.module_io) > 20
    for (phase, step, module), io in result.module_io.items():
        inside = [
            o
            for o in result.ops
            if (o.phase, o.step) == (phase, step)
            and (
                o.module == module or o.module.startswith(f"{module}.") or module == "(root)" != o.module != "(sample)"
            )
        ]
        assert inside, module
        for field in ("weight_bytes", "kv_read_bytes", "kv_write_bytes", "act_read_bytes", "act_write_bytes"):
            assert 0 <= getattr(io, field) <= sum(getattr(o, field) for o in inside), (module, field)


def test_roles_name_the_cache_the_rotary_embedding_and_the_choice() -> None:
    step = pick(traced(), "decode", 2)
    assert {o.module for o in step if o.role == "sample"} == {"(sample)"}
    assert [o.op for o in step if o.role == "sample" and o.flops] == ["aten::argmax"]
    assert step[-1].role == "sample"
    rotary = [o for o in step if o.role == "rotary" and o.write_bytes]
    assert len(rotary) == LAYERS * 2 * 5  # x*cos + cat(-x2, x1)*sin, for q and for k
    kinds = {kind_of(o.module, o.op, o.role) for o in step}
    assert kinds == {
        "embedding", "norm", "projection", "attention", "rotary", "cache", "mlp", "head", "residual",
        "sampling", "other",
    }  # fmt: skip


def test_head_positions() -> None:
    last, every = traced(), traced(head="all")
    assert (last.head, every.head) == ("last", "all")
    assert pick(last, "prefill", module="lm_head", op="aten::mm")[0].flops == 2 * BATCH * HIDDEN * VOCAB
    assert pick(every, "prefill", module="lm_head", op="aten::mm")[0].flops == 2 * BATCH * PROMPT * HIDDEN * VOCAB


def test_rows_add_up_to_the_ops() -> None:
    result = traced(output=12)
    rows = summarise_ops(result.ops)
    for phase in ("prefill", "decode"):
        for field in ("flops", "flops_full", "weight_bytes", "act_read_bytes", "act_write_bytes", "kv_read_bytes"):
            of_ops = sum(getattr(o, field) for o in result.ops if o.phase == phase)
            assert sum(getattr(r, field) for r in rows if r.phase == phase) == of_ops > 0
    (up,) = [r for r in rows if r.phase == "decode" and r.module == "model.layers.1.mlp.up_proj"]
    assert (up.op, up.count, up.kind, up.flops_kind, up.dtype) == ("aten::mm", 12, "mlp", "matmul", "float32")
    assert up.flops == 12 * 2 * BATCH * HIDDEN * INNER
    assert not [r for r in rows if r.op == "aten::view"]


def test_ordinals_number_the_ops_of_each_step() -> None:
    result = traced()
    for phase, step in (("prefill", 0), ("decode", 0), ("decode", 2)):
        ops = pick(result, phase, step)
        assert [o.ordinal for o in ops] == list(range(len(ops)))


def test_one_model_every_number() -> None:
    """Llama-3-8B, batch 1, prompt 1024, output 256, 16 bit: figures known beforehand."""
    result = trace(load_config("llama-3-8b"), batch=1, prompt=1024, output=256, dtype="bfloat16", steps=[0])
    assert result.parameters == 8_030_261_248
    assert result.parameter_bytes == 16_060_522_496
    assert result.cache_bytes == 167_772_160
    exact = [o for o in result.ops if o.flops_kind in ("matmul", "attention")]
    prefill = [o for o in exact if o.phase == "prefill"]
    step = [o for o in exact if o.phase == "decode"]
    assert sum(o.flops for o in prefill) == 14_569_848_176_640
    assert sum(o.flops_full for o in prefill) == 14_844_457_648_128
    assert sum(o.flops for o in step) == 15_546_712_064
    norms = sum(o.weight_bytes for o in result.ops if o.phase == "decode" and kind_of(o.module) == "norm")
    assert sum(o.weight_bytes for o in step) + norms == 15_009_849_344
    assert sum(o.weight_bytes + o.kv_read_bytes for o in step) + norms == 15_144_198_144


def test_flash_attention_is_traced_as_attention() -> None:
    flash, plain = traced(attn="flash_attention_2"), traced()
    assert flash.attn == "flash_attention_2"
    assert flash.ops == plain.ops


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"prompt": 0}, "prompt is 0"),
        ({"output": -1}, "output is -1"),
        ({"head": "first"}, "first"),
        ({"steps": [3]}, "steps"),
        ({"dtype": "int3"}, "int3"),
        ({"cache": "ring"}, "ring"),
    ],
)
def test_bad_workloads(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        traced(**changes)


def test_unknown_family() -> None:
    with pytest.raises(ConfigError, match="no-such"):
        traced({**LLAMA, "model_type": "no-such"})
