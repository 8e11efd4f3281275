"""Windows: what really runs (explicit masks, caches that keep less) equals the trace; the exact count by hand."""

import functools

import pytest
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.spec import read_spec
from kernelroof.models.trace import trace
from kernelroof.models.workload import make_workload

SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "max_position_embeddings": 512,
    "sliding_window": 5,
    "tie_word_embeddings": True,
}
CONFIGS = {
    "all windowed": {**SMALL, "model_type": "mistral"},
    "two of three": {**SMALL, "model_type": "gemma3_text", "sliding_window_pattern": 3},
}
BATCH, OUTPUT = 2, 4


@functools.cache
def traced(name, prompt, attn, cache):
    return trace(CONFIGS[name], batch=BATCH, prompt=prompt, output=OUTPUT, dtype="bfloat16", attn=attn, cache=cache)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("prompt", [1, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("name", CONFIGS)
def test_what_runs(name, prompt, attn, cache):
    spec = read_spec(CONFIGS[name])
    load = make_workload(spec, batch=BATCH, prompt=prompt, output=OUTPUT, dtype="bfloat16", attn=attn, cache=cache)
    cost, result = costs(spec, load), traced(name, prompt, attn, cache)
    assert result.cache_bytes == cost.kv_bytes
    phases = {
        "prefill": [op for op in result.ops if op.phase == "prefill"],
        "first_step": [op for op in result.ops if op.phase == "decode" and op.step == 0],
        "decode": [op for op in result.ops if op.phase == "decode"],
    }
    for phase, ops in phases.items():
        closed = getattr(cost, phase)
        assert sum(op.flops for op in ops if op.flops_kind in ("matmul", "attention")) == closed.flops, phase
        updates = [op for op in ops if op.role == "cache"]
        moved = sum(op.kv_read_bytes + op.kv_write_bytes for op in updates)
        assert moved == closed.kv_write_bytes + closed.cache_copy_bytes, phase
        attention = [op for op in ops if op.flops_kind == "attention"]
        if attn == "sdpa" and phase != "prefill":
            assert sum(op.kv_read_bytes for op in attention) == closed.kv_read_bytes, phase


@pytest.mark.parametrize(("prompt", "pairs"), [(3, 1 + 2 + 3), (5, 15), (9, 1 + 2 + 3 + 4 + 5 * 5)])
def test_the_exact_count_skips_what_a_window_hides(prompt, pairs):
    spec = read_spec(CONFIGS["all windowed"])
    options = {"batch": 1, "prompt": prompt, "output": 1, "dtype": "bfloat16"}
    exact = costs(spec, make_workload(spec, mask="causal", **options)).prefill.flops
    full = costs(spec, make_workload(spec, mask="full", **options)).prefill.flops
    per_pair = 3 * 4 * 4 * 16  # layers, FLOP per pair and element, heads, head_dim
    assert full - exact == per_pair * (prompt * prompt - pairs)


def test_a_window_bounds_the_cache():
    spec = read_spec({**CONFIGS["two of three"], "sliding_window": 100})
    cost = costs(spec, make_workload(spec, batch=1, prompt=300, output=100, dtype="bfloat16"))
    per_layer = 2 * 2 * 16 * 2
    assert cost.kv_bytes == per_layer * (400 + 2 * 99)
    assert cost.first_step.kv_read_bytes == per_layer * (301 + 2 * 100)


def test_decode_is_the_sum_of_its_steps_when_a_window_fills_on_the_way():
    """Each step by itself, against the closed sum: the step after the window is full is no larger than it."""
    config = {
        "model_type": "gemma3_text", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 512, "sliding_window": 32,
        "sliding_window_pattern": 2, "max_position_embeddings": 4096,
    }  # fmt: skip
    spec = read_spec(config, "filling")
    for prompt in (29, 30, 31, 32, 33):
        load = make_workload(spec, batch=40, prompt=prompt, output=6, dtype="bfloat16")
        steps = (costs(spec, load._replace(prompt=prompt + k, output=1)) for k in range(6))
        total = sum(ideal_times(step, 1e15, 1e12).first_step_s for step in steps)
        assert ideal_times(costs(spec, load), 1e15, 1e12).decode_s == pytest.approx(total, rel=1e-12)
