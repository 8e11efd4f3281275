"""Tiers of storage against sums done by hand."""

import pytest
from kernelroof.models.coefficients import coefficients
from kernelroof.models.offload import (
    TIERS,
    cold_cache,
    contiguous_waste,
    offload,
    paging,
    stream_byte_s,
    streamed_bytes,
)
from kernelroof.models.precision import precision
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec

MOE = read_spec(
    {
        "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": False,
    },
    "moe",
)  # fmt: skip


def tier(name):
    return next(t for t in TIERS if t.name == name)


@pytest.mark.parametrize(("name", "expected"), [("host memory", 0.14), ("NVMe", 2.0), ("disk", 70.0)])
def test_14_gb_from_each_tier_on_its_own(name, expected):
    assert 14e9 / tier(name).byte_s == pytest.approx(expected)


def test_a_stream_is_as_fast_as_its_slowest_part():
    assert stream_byte_s(tier("host memory"), 32e9) == 32e9
    assert stream_byte_s(tier("NVMe"), 32e9) == 7e9


def test_offload_hides_behind_the_step_as_far_as_it_goes():
    hidden = offload(tier("host memory"), streamed=0.1e9, step_s=0.01, link_byte_s=32e9)
    assert (hidden.step_s, hidden.slowdown) == (0.01, 1)
    shown = offload(tier("host memory"), streamed=3.2e9, step_s=0.01, link_byte_s=32e9)
    assert shown.step_s == shown.stream_s == pytest.approx(0.1)
    assert shown.slowdown == pytest.approx(10)
    assert offload(tier("disk"), streamed=-5, step_s=0.01, link_byte_s=32e9).streamed_bytes == 0


@pytest.mark.parametrize(("tokens", "met"), [(1, 8), (2, 8 + 8 * 15 / 16), (100_000, 128)])
def test_of_experts_outside_the_gpu_a_step_streams_those_it_meets(tokens, met):
    model = coefficients(MOE, precision("bfloat16"))
    routed = sum(e.experts * e.bytes_each for e in model.experts)
    assert streamed_bytes(model, 10e9, tokens) == pytest.approx(10e9 * met / 128)
    # Once all experts are out, the rest of the weights is read by every step.
    assert streamed_bytes(model, routed + 1e9, tokens) == pytest.approx(routed * met / 128 + 1e9)
    assert streamed_bytes(model, -1.0, tokens) == 0


def test_a_dense_model_streams_all_of_it():
    model = coefficients(read_spec(load_config("llama-3-8b"), "llama-3-8b"), precision("bfloat16"))
    assert streamed_bytes(model, 3e9, 1) == 3e9


def test_prefetch_is_hidden_by_enough_steps():
    cold = cold_cache(tier("NVMe"), cache_bytes=1.05e9, prefill_s=0.2, step_s=0.04, link_byte_s=32e9)
    assert cold.fetch_s == pytest.approx(0.15)
    assert (cold.steps_ahead, cold.pays) == (4, True)
    assert not cold_cache(tier("disk"), cache_bytes=1.05e9, prefill_s=0.2, step_s=0.04, link_byte_s=32e9).pays


def test_half_a_block_is_wasted_per_sequence():
    pages = paging(16, tokens=1000, sequences=8, kv_bytes_per_token=131072)
    exact = sum(-length % 16 for length in range(992, 1008)) / 16
    assert pages.waste_tokens == exact == 7.5
    assert pages.waste_bytes == 7.5 * 8 * 131072
    assert pages.waste_share == 7.5 / 1007.5
    assert paging(1, tokens=1000, sequences=8, kv_bytes_per_token=1).waste_bytes == 0
    assert contiguous_waste(tokens=500, reserved=2048) == 1 - 500 / 2048
