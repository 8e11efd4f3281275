"""Quantised products at a peak of their own: by hand, in words, as arrays, and where the GPU has none."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.coefficients import coefficients
from kernelroof.models.estimate import costs, flags_of, ideal_times, quantised_peak
from kernelroof.models.levers import Device, state_of
from kernelroof.models.presets import load_config
from kernelroof.models.record import estimate_record
from kernelroof.models.spec import read_spec
from kernelroof.models.sweep import Points, estimate_points
from kernelroof.models.workload import make_workload, precision_of
from kernelroof.profile.cli import main
from kernelroof.roofline.gpus import find_gpu, list_gpus, quantised_peaks

LLAMA = read_spec(load_config("llama-3-8b"), "llama-3-8b")
H100 = {"flop_s": 989.4e12, "byte_s": 3350e9}
LINEARS = 2 * 6_979_321_856
"""FLOPs per token of the layers' matrices."""


def record_of(peaks, **options):
    return estimate_record(LLAMA, make_workload(LLAMA, **options), device="a GPU", quantised_peaks=peaks, **H100)


def test_the_quantised_part_is_that_of_the_layers_linears():
    cost = costs(LLAMA, make_workload(LLAMA, weights_dtype="fp8", prompt=1024, output=7))
    assert cost.prefill.quantised_flops == 1024 * LINEARS
    assert cost.first_step.quantised_flops == LINEARS
    assert cost.decode.quantised_flops == 7 * LINEARS
    assert cost.quantised == (("fp8", LINEARS),)


def test_prefill_by_hand():
    record = record_of({"fp8": 1979e12, "int8": 5e15}, weights_dtype="fp8", prompt=1024)
    flops, quantised = 14_569_848_176_640, 1024 * LINEARS
    expected = quantised / 1979e12 + (flops - quantised) / 989.4e12
    assert record["prefill"]["flops"] == flops
    assert record["ttft_ms"] == record["prefill"]["ideal_ms"] == pytest.approx(1e3 * expected, rel=1e-12)
    assert record["device"]["quantised_peaks"] == {"fp8": 1979e12}
    words = record["conventions"]["compute"]
    assert "products of quantised linears at 1979 TFLOP/s (FP8), attention and head at 989.4 (bfloat16)" in words


@pytest.mark.parametrize("name", ["int4", "int4-g128", "gptq", "awq", "nf4", "int8", "w8a16", "q4_k_m", "fp8-w8a16"])
def test_weight_only_formats_compute_in_the_run_format(name):
    everything = {"fp8": 1e16, "int8": 1e16, "fp4": 1e16}
    record = record_of(everything, weights_dtype=name)
    plain = record_of({}, weights_dtype="bfloat16")
    assert record["prefill"]["ideal_ms"] == plain["prefill"]["ideal_ms"]
    assert "weight-only" in record["conventions"]["compute"]
    assert record["device"]["quantised_peaks"] == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fp8", "fp8"), ("fp8-block", "fp8"), ("w8a8", "int8"), ("llm.int8", "int8"), ("nvfp4", "fp4"), ("mxfp4", "fp4")],
)
def test_classes_of_formats(name, kind):
    record = record_of({kind: 2e15}, weights_dtype=name)
    assert record["ttft_ms"] < record_of({}, weights_dtype=name)["ttft_ms"]
    assert kind.upper() in record["conventions"]["compute"]


def test_a_gpu_without_the_peak_computes_in_the_run_format_and_says_so():
    record = record_of({"int8": 624e12}, weights_dtype="fp8")
    assert record["ttft_ms"] == record_of({}, weights_dtype="bfloat16")["ttft_ms"]
    assert "no FP8 peak known" in record["conventions"]["compute"]


def test_fp4_peaks_are_blackwells_only():
    for gpu in list_gpus():
        assert ("fp4" in quantised_peaks(gpu)) <= (gpu.cc.split(".")[0] in ("10", "12")), gpu.key
    assert quantised_peaks(find_gpu("b200"))["fp4"] == 9000e12
    assert quantised_peaks(find_gpu("a100-80gb-sxm")) == {"int8": 624e12}
    assert quantised_peaks(find_gpu("h100-sxm")) == {"fp8": 1979e12, "int8": 1979e12}


def test_the_joint_peak_of_two_classes():
    assert quantised_peak((("fp4", 3), ("fp8", 1)), {"fp4": 4.0, "fp8": 2.0}, 1.0) == 4 / (3 / 4 + 1 / 2)
    assert quantised_peak((("fp4", 3), ("fp8", 1)), {"fp8": 2.0}, 1.0) == 4 / (3 / 1 + 1 / 2)
    assert quantised_peak((), {"fp8": 2.0}, 7.0) == 7.0


@settings(max_examples=100, deadline=None)
@given(
    batch=st.integers(1, 512),
    prompt=st.integers(1, 4000),
    output=st.integers(1, 50),
    flop_s=st.floats(1e10, 1e16),
    byte_s=st.floats(1e10, 1e13),
)
def test_equal_peaks_give_the_old_numbers_exactly(batch, prompt, output, flop_s, byte_s):
    cost = costs(LLAMA, make_workload(LLAMA, batch=batch, prompt=prompt, output=output, weights_dtype="w8a8"))
    assert ideal_times(cost, flop_s, byte_s, quantised_flop_s=flop_s) == ideal_times(cost, flop_s, byte_s)


def test_arrays_equal_single_estimates():
    rng = np.random.default_rng(11)
    loads = [make_workload(LLAMA, weights_dtype=w, kv_dtype=kv) for w, kv in (("fp8", "fp8"), ("gptq", "int8"))]
    models = [coefficients(LLAMA, precision_of(LLAMA, load)) for load in loads]
    n = 50
    flop_s = rng.uniform(1e13, 1e15, n)
    points = Points(
        model=rng.integers(0, 2, n),
        batch=rng.integers(1, 300, n),
        prompt=rng.integers(1, 3000, n),
        output=rng.integers(1, 500, n),
        flop_s=flop_s,
        byte_s=rng.uniform(1e11, 8e12, n),
        quantised_flop_s=flop_s * rng.uniform(1, 4, n),
    )
    cost, times = estimate_points(models, points, flags_of(loads[0]))
    for i in range(n):
        sizes = {f: int(getattr(points, f)[i]) for f in ("batch", "prompt", "output")}
        one = costs(LLAMA, loads[points.model[i]]._replace(**sizes))
        single = ideal_times(one, flop_s[i], points.byte_s[i], quantised_flop_s=points.quantised_flop_s[i])
        assert cost.prefill.quantised_flops[i] == one.prefill.quantised_flops
        assert cost.kv_bytes[i] == one.kv_bytes
        for field in times._fields:
            assert getattr(times, field)[i] == pytest.approx(getattr(single, field), rel=1e-12)


def test_levers_use_the_peak_too():
    load = make_workload(LLAMA, weights_dtype="fp8", prompt=4000)
    without = Device("h100", 989.4e12, 3350e9, 80 * 10**9, 450e9, 60e9)
    within = without._replace(quantised=(("fp8", 1979e12),))
    assert state_of(LLAMA, load, within).prefill_s < state_of(LLAMA, load, without).prefill_s


@pytest.mark.parametrize(
    ("kv", "per_token"),
    [
        ("bfloat16", 131_072),
        ("fp8", 65_536),
        ("fp8-head", 65_536 + 32 * 16 * 4),
        ("int8", 65_536 + 32 * 16 * 2),
        ("int8-asym", 65_536 + 32 * 16 * 4),
        ("int4", 32_768 + 32 * 16 * 2),
        ("nvfp4", 32_768 + 32 * 16 * 8),
        ("q8_0", 131_072 // 2 * 34 // 32),
    ],
)
def test_scales_of_the_cache_are_counted(kv, per_token):
    """32 layers, 8 heads of 128, keys and values."""
    record = record_of({}, kv_dtype=kv)
    assert record["kv_bytes_per_token"] == per_token
    assert record["conventions"]["kv"].startswith(kv)


def test_a_latent_cache_has_one_scale_per_token():
    config = {
        **load_config("llama-3-8b"),
        "model_type": "deepseek_v3",
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "num_key_value_heads": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 512,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "head_dim": 64,
    }
    spec = read_spec(config, "latent", latent=True)
    assert costs(spec, make_workload(spec, kv_dtype="int8")).kv_bytes_per_token == 32 * (576 + 2)


def test_own_figures_of_quantised_products(capsys):
    own = ["--peak-tflops", "100", "--bandwidth-gbs", "1000", "--json"]
    times = []
    for more in ([], ["--quantised-tflops", "200"]):
        assert main(["estimate", "llama-3-8b", "--weights-dtype", "w8a8", *own, *more]) == 0
        times.append(json.loads(capsys.readouterr().out)["ttft_ms"])
    assert times[1] < times[0]
    assert main(["estimate", "llama-3-8b", "--quantised-tflops", "200"]) == 2
    assert "--peak-tflops" in capsys.readouterr().err
    assert main(["estimate", "llama-3-8b", *own, "--quantised-tflops", "-1"]) == 2


def test_int4_alone_stays_bits_alone_and_says_so():
    spec = read_spec(load_config("qwen2.5-7b"), "qwen2.5-7b")
    record = estimate_record(spec, make_workload(spec, weights_dtype="int4"))
    assert "4 bits before scales and zeros" in record["conventions"]["weights"]
    grouped = estimate_record(spec, make_workload(spec, weights_dtype="int4-g128"))
    assert grouped["weight_bytes"] - record["weight_bytes"] == 2 * (3_262_644_224 * 2 // 128)
