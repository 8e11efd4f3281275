"""Tiers of storage against sums done by hand."""

import pytest
from kernelroof.models.coefficients import coefficients
from kernelroof.models.offload import (
    TIERS,
    cold_cache,
    contiguous_waste,
    offload,
    paging,
    read_of_spilled,
    stream_byte_s,
)
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload, precision_of


def tier(name):
    return next(t for t in TIERS if t.name == name)


@pytest.mark.parametrize(("name", "expected"), [("host memory", 0.14), ("NVMe", 2.0), ("disk", 70.0)])
def test_14_gb_from_each_tier_on_its_own(name, expected):
    assert 14e9 / tier(name).byte_s == pytest.approx(expected)


def test_a_stream_is_as_fast_as_its_slowest_part():
    assert stream_byte_s(tier("host memory"), 32e9) == 32e9
    assert stream_byte_s(tier("NVMe"), 32e9) == 7e9


def test_offload_hides_behind_the_step_as_far_as_it_goes():
    hidden = offload(tier("host memory"), excess_bytes=0.1e9, step_s=0.01, link_byte_s=32e9)
    assert (hidden.step_s, hidden.slowdown) == (0.01, 1)
    shown = offload(tier("host memory"), excess_bytes=3.2e9, step_s=0.01, link_byte_s=32e9)
    assert shown.step_s == shown.stream_s == pytest.approx(0.1)
    assert shown.slowdown == pytest.approx(10)
    assert offload(tier("disk"), excess_bytes=-5, step_s=0.01, link_byte_s=32e9).streamed_bytes == 0


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


def test_experts_that_are_not_met_stay_where_they_are():
    """Routed experts go first; of eight, one token meets two, and many tokens all."""
    spec = read_spec(
        {
            "model_type": "mixtral", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
            "num_attention_heads": 8, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
            "vocab_size": 512, "tie_word_embeddings": False, "max_position_embeddings": 4096,
        },
        "routed",
    )  # fmt: skip
    model = coefficients(spec, precision_of(spec, make_workload(spec)))
    routed = 2 * 8 * 3 * 128 * 256 * 2 if spec.dtype != "float32" else 2 * 8 * 3 * 128 * 256 * 4
    assert read_of_spilled(model, routed / 2, 1) == pytest.approx(routed / 2 * 2 / 8)
    assert read_of_spilled(model, routed / 2, 10**6) == pytest.approx(routed / 2)
    assert read_of_spilled(model, routed + 1000, 1) == pytest.approx(1000 + routed / 4)
    dense = read_spec(load_config("llama-3-8b"), "dense")
    assert read_of_spilled(coefficients(dense, precision_of(dense, make_workload(dense))), 12345, 1) == 12345
