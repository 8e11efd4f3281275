"""The closed form against figures worked out by hand for named conventions, and against brute force."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.coefficients import coefficients
from kernelroof.models.estimate import costs, costs_of, flags_of, ideal_times
from kernelroof.models.presets import load_config, preset_names
from kernelroof.models.record import estimate_record
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload, precision_of

A100_80GB = {"flop_s": 312e12, "byte_s": 2039e9, "memory_bytes": 80 * 10**9}


def spec_of(name):
    return read_spec(load_config(name), name)


@pytest.fixture(scope="module")
def llama():
    return spec_of("llama-3-8b")


def test_llama_3_8b_sizes(llama):
    cost = costs(llama, make_workload(llama, prompt=1024, output=256))
    assert cost.parameters == 8_030_261_248
    assert cost.weight_bytes == 16_060_522_496
    assert cost.prefill.weight_bytes == cost.first_step.weight_bytes == 15_009_849_344
    assert cost.kv_bytes_per_token == 131_072
    assert cost.kv_bytes == 167_772_160


@pytest.mark.parametrize(
    ("mask", "head", "flops"),
    [
        ("full", "all", 15_919_296_282_624),
        ("full", "last", 14_844_457_648_128),
        ("causal", "last", 14_569_848_176_640),
        ("auto", "last", 14_569_848_176_640),
    ],
)
def test_llama_3_8b_prefill_flops_per_convention(llama, mask, head, flops):
    assert costs(llama, make_workload(llama, prompt=1024, output=256, mask=mask, head=head)).prefill.flops == flops


def test_half_square_is_the_exact_causal_count_less_its_diagonal(llama):
    exact = costs(llama, make_workload(llama, prompt=1024, output=256)).prefill.flops
    diagonal = 4 * llama.layers * llama.heads * llama.head_dim * 1024 // 2
    assert exact - diagonal == 14_569_579_741_184


def test_llama_3_8b_first_decode_step(llama):
    step = costs(llama, make_workload(llama, prompt=1024, output=256)).first_step
    assert step.flops == 15_546_712_064
    assert step.bytes == 15_144_198_144
    assert step.kv_write_bytes == 131_072
    assert step.cache_copy_bytes == 2 * 1024 * 131_072


def test_llama_3_8b_on_a100(llama):
    record = estimate_record(llama, make_workload(llama, prompt=1024, output=256), device="A100 80GB", **A100_80GB)
    assert record["prefill"]["ideal_ms"] == pytest.approx(46.698, abs=1e-3)
    assert record["decode"]["ideal_ms"] == pytest.approx(7.4273, abs=1e-4)
    assert record["decode"]["intensity"] == pytest.approx(1.027, abs=5e-4)
    assert record["tokens_per_s"] == pytest.approx(134.6, abs=0.05)
    assert (record["prefill"]["bound"], record["decode"]["bound"]) == ("compute", "memory")
    assert record["ridge_flop_per_byte"] == pytest.approx(153.0, abs=0.05)
    assert record["fits"] is True


def test_llama_3_8b_batch_32(llama):
    cost = costs(llama, make_workload(llama, batch=32, prompt=1024, output=256))
    assert cost.kv_bytes == 5_368_709_120
    # 1024 tokens of context: the step after 1023 prompt tokens.
    at_1024 = costs(llama, make_workload(llama, batch=32, prompt=1023, output=257)).first_step
    assert at_1024.bytes == 19_304_816_640
    assert at_1024.flops / at_1024.bytes == pytest.approx(25.77, abs=5e-3)
    assert 32 / (at_1024.bytes / 2039e9) == pytest.approx(3380, abs=1)


def test_qwen_2_5_7b_int4():
    spec = spec_of("qwen2.5-7b")
    cost = costs(spec, make_workload(spec, weights_dtype="int4"))
    table = head = spec.vocab * spec.hidden
    linear = cost.matmul_parameters - head
    assert cost.parameters == 7_615_616_512
    assert linear // 2 == 3_262_644_224
    assert (table + head) * 2 == 2_179_989_504
    assert cost.weight_bytes == 3_262_644_224 + 2_179_989_504 + 2 * (cost.parameters - linear - table - head)


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "hidden", "heads", "per_token"),
    [
        (40, 8, 128, 5120, 32, 163_840),
        (24, 8, 64, 2880, 64, 49_152),
        (36, 8, 128, 2560, 32, 147_456),
    ],
)
def test_kv_per_token_uses_the_explicit_head_dim(layers, kv_heads, head_dim, hidden, heads, per_token):
    config = {
        **load_config("llama-3-8b"),
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_size": hidden,
        "num_attention_heads": heads,
    }
    spec = read_spec(config)
    assert costs(spec, make_workload(spec)).kv_bytes_per_token == per_token


def test_background_kv_figures():
    llama_2, qwen = spec_of("llama-2-7b"), spec_of("qwen2.5-7b")
    assert costs(llama_2, make_workload(llama_2)).kv_bytes_per_token == 524_288
    assert costs(qwen, make_workload(qwen)).kv_bytes_per_token == 57_344


def test_tying_changes_parameters_but_not_flops():
    config = load_config("llama-2-7b")
    untied, tied = (read_spec({**config, "tie_word_embeddings": t}) for t in (False, True))
    a, b = costs(untied, make_workload(untied)), costs(tied, make_workload(tied))
    assert a.parameters - b.parameters == 32000 * 4096
    assert a.prefill.flops == b.prefill.flops
    assert a.first_step.bytes == b.first_step.bytes, "the head is streamed either way, the table in neither"


def test_streamed_table_adds_the_table_once(llama):
    gathered = costs(llama, make_workload(llama)).first_step.bytes
    streamed = costs(llama, make_workload(llama, embedding="streamed")).first_step.bytes
    assert streamed - gathered == 128256 * 4096 * 2


def test_static_cache_attends_over_its_whole_length(llama):
    cost = costs(llama, make_workload(llama, prompt=100, output=28, cache="static"))
    per_pair = 4 * 32 * 32 * 128
    dynamic = costs(llama, make_workload(llama, prompt=100, output=28, cache="ideal"))
    assert cost.first_step.flops - dynamic.first_step.flops == per_pair * (128 - 101)
    assert cost.first_step.kv_read_bytes == 128 * 131_072
    assert cost.prefill.flops == dynamic.prefill.flops
    full = costs(llama, make_workload(llama, prompt=100, output=28, cache="static", attn="eager"))
    assert full.prefill.flops - cost.prefill.flops == per_pair * (100 * 128 - 100 * 101 // 2)
    assert cost.first_step.cache_copy_bytes == 0


def test_decode_is_the_sum_of_its_steps(llama):
    whole = costs(llama, make_workload(llama, batch=3, prompt=50, output=9)).decode
    steps = [costs(llama, make_workload(llama, batch=3, prompt=50 + k, output=1)).first_step for k in range(9)]
    for field in whole._fields:
        assert getattr(whole, field) == sum(getattr(s, field) for s in steps), field


def test_overhead_is_explicit(llama):
    none = costs(llama, make_workload(llama, overhead=0.0))
    assert none.total_bytes == none.weight_bytes + none.kv_bytes + none.peak_activation_bytes
    assert costs(llama, make_workload(llama, overhead=0.2)).total_bytes == pytest.approx(1.2 * none.total_bytes)


def test_without_a_device_there_are_no_times(llama):
    record = estimate_record(llama, make_workload(llama))
    assert record["fits"] is None
    assert record["ridge_flop_per_byte"] is None
    assert record["decode"]["ideal_ms"] is None
    assert record["decode"]["bound"] is None
    assert record["decode"]["total_ideal_ms"] is None


@settings(max_examples=200, deadline=None)
@given(
    preset=st.sampled_from(preset_names()),
    batch=st.integers(1, 4096),
    prompt=st.integers(1, 3000),
    output=st.integers(1, 40),
    flop_s=st.floats(1e9, 1e15),
    byte_s=st.floats(1e9, 1e13),
    cache=st.sampled_from(["dynamic", "static", "ideal"]),
)
def test_ideal_decode_equals_the_sum_over_steps(preset, batch, prompt, output, flop_s, byte_s, cache):
    """Also where the bound changes from memory to compute, or back, in the middle of the output."""
    spec = spec_of(preset)
    cost = costs(spec, make_workload(spec, batch=batch, prompt=prompt, output=output, cache=cache))
    slope = 0 if cache == "static" else batch
    expected = sum(
        max(
            (cost.first_step.flops + 4 * spec.layers * spec.heads * spec.head_dim * slope * k) / flop_s,
            (cost.first_step.bytes + cost.kv_bytes_per_token * slope * k) / byte_s,
        )
        for k in range(output)
    )
    assert ideal_times(cost, flop_s, byte_s).decode_s == pytest.approx(expected, rel=1e-9)


def test_ideal_decode_where_the_bound_changes():
    """A case that certainly crosses: peaks chosen so that step 20 of 40 is on the ridge."""
    spec = spec_of("llama-2-7b")
    cost = costs(spec, make_workload(spec, batch=64, prompt=500, output=40))
    pair = 4 * spec.layers * spec.heads * spec.head_dim * 64
    flops = [cost.first_step.flops + pair * k for k in range(40)]
    moved = [cost.first_step.bytes + cost.kv_bytes_per_token * 64 * k for k in range(40)]
    byte_s = 1e12
    flop_s = byte_s * flops[20] / moved[20]
    compute_bound = [f / flop_s >= m / byte_s for f, m in zip(flops, moved, strict=True)]
    assert len(set(compute_bound)) == 2
    expected = sum(max(f / flop_s, m / byte_s) for f, m in zip(flops, moved, strict=True))
    assert ideal_times(cost, flop_s, byte_s).decode_s == pytest.approx(expected, rel=1e-12)


def test_costs_of_is_what_costs_calls(llama):
    workload = make_workload(llama, batch=2, prompt=10, output=3)
    model = coefficients(llama, precision_of(llama, workload))
    assert costs_of(model, 2, 10, 3, flags_of(workload)) == costs(llama, workload)
