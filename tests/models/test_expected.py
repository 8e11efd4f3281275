"""Expected times of phases against sums over single kernels, and what is not known against null."""

import pytest
from kernelroof.models.efficiency import expected_attention, expected_gemm
from kernelroof.models.estimate import costs, ideal_times, quantised_peak
from kernelroof.models.expected import EAGER_LAUNCHES, expected_phase, launches_per_step
from kernelroof.models.presets import load_config
from kernelroof.models.record import estimate_record
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload
from kernelroof.roofline.card import estimate_card

LLAMA = read_spec(load_config("llama-3-8b"), "llama-3-8b")
H100 = {"flop_s": 989.4e12, "byte_s": 3350e9}
MATRICES = [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (14336, 4096), (4096, 14336)]


@pytest.mark.parametrize(("phase", "rows"), [("prefill", 2 * 512), ("decode", 2)])
def test_a_phase_is_the_sum_of_its_kernels(phase, rows):
    load = make_workload(LLAMA, batch=2, prompt=512, output=4)
    products = [expected_gemm("h100-sxm", "bfloat16", rows, n, k) for n, k in MATRICES]
    queries, context = (512, 512) if phase == "prefill" else (1, 513)
    core = expected_attention("h100-sxm", phase, 2, queries, context, 32, 8, 128, "bfloat16", "bfloat16")
    head = expected_gemm("h100-sxm", "bfloat16", 2, 128256, 4096)
    found = expected_phase(LLAMA, load, "h100-sxm", phase, **H100)
    for field, value in (("seconds", found.seconds), ("low_s", found.low_s), ("high_s", found.high_s)):
        layer = sum(getattr(p, field) for p in (*products, core))
        assert value == pytest.approx(32 * layer + getattr(head, field))
    assert found.low_s < found.seconds < found.high_s
    assert found.ideal_s < found.seconds
    assert (found.measured_share, found.reasons) == (1, ())


def test_packed_weights_take_their_ideal_and_are_named():
    load = make_workload(LLAMA, weights_dtype="int4")
    found = expected_phase(LLAMA, load, "h100-sxm", "decode", **H100)
    assert 0 < found.measured_share < 0.5
    assert found.reasons == ("products with weights in int4 were not measured",)


def test_quantised_products_that_were_not_measured_take_their_own_peak():
    load = make_workload(LLAMA, batch=8, prompt=1024, weights_dtype="w8a8")
    slow = expected_phase(LLAMA, load, "h100-sxm", "prefill", **H100)
    fast = expected_phase(LLAMA, load, "h100-sxm", "prefill", **H100, quantised_peaks={"int8": 2 * H100["flop_s"]})
    assert fast.parts["products"].seconds == pytest.approx(slow.parts["products"].seconds / 2, rel=0.02)
    assert fast.parts["attention"] == slow.parts["attention"]


def test_layers_that_a_checkpoint_leaves_alone_are_measured_as_such():
    config = load_config("llama-3-8b")
    left = [f"model.layers.{i}.mlp" for i in range(0, 32, 2)]
    config["quantization_config"] = {"quant_method": "fp8", "modules_to_not_convert": left}
    spec = read_spec(config, "mixed")
    found = expected_phase(spec, make_workload(spec), "h100-sxm", "decode", **H100)
    all_fp8 = make_workload(LLAMA, weights_dtype="fp8")
    whole = [expected_phase(LLAMA, load, "h100-sxm", "decode", **H100) for load in (make_workload(LLAMA), all_fp8)]
    seconds = [t.parts["products"].seconds for t in (whole[1], found, whole[0])]
    assert seconds == sorted(seconds)
    # Halfway between, as far as the MLP goes.
    plain, packed = (
        sum(expected_gemm("h100-sxm", dtype, 1, n, k).seconds for n, k in MATRICES[4:]) for dtype in ("bfloat16", "fp8")
    )
    assert seconds[1] - seconds[0] == pytest.approx(16 * (plain - packed))


def test_parts_add_up_to_the_phase():
    found = expected_phase(LLAMA, make_workload(LLAMA), "a100-80gb", "decode", flop_s=312e12, byte_s=2039e9)
    assert set(found.parts) == {"products", "attention", "head"}
    assert sum(p.seconds for p in found.parts.values()) == pytest.approx(found.seconds)
    assert sum(p.ideal_s for p in found.parts.values()) == pytest.approx(found.ideal_s)


def test_a_band_is_given_only_where_most_was_measured():
    shown = {}
    for weights in ("bfloat16", "int4"):
        load = make_workload(LLAMA, weights_dtype=weights)
        shown[weights] = estimate_card(estimate_record(LLAMA, load, device="H100", gpu_key="h100-sxm", **H100))
    assert "at least" not in shown["bfloat16"].split("conventions")[0].split("host:")[0]
    assert "expected time" in shown["int4"]
    assert shown["int4"].count("at least") >= 1
    assert "rest on measurements" in shown["int4"]
    assert all(len(line) <= 110 for text in shown.values() for line in text.splitlines())


WINDOWED = read_spec(
    {
        "model_type": "gemma3_text", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 6,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000,
        "sliding_window": 512, "sliding_window_pattern": 3, "max_position_embeddings": 16384,
    },
    "windowed",
)  # fmt: skip
ROUTED = read_spec(
    {
        "model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
        "vocab_size": 32000, "max_position_embeddings": 16384, "tie_word_embeddings": False,
    },
    "routed",
)  # fmt: skip


@pytest.mark.parametrize("spec", [LLAMA, WINDOWED, ROUTED], ids=["dense", "windowed", "experts"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attn": "eager"},
        {"cache": "static", "output": 4000},
        {"mask": "full"},
        {"mask": "causal"},
        {"embedding": "streamed"},
        {"head": "all"},
        {"weights_dtype": "fp8"},
        {"weights_dtype": "fp8-block"},
        {"weights_dtype": "q4_k_m"},
        {"weights_dtype": "int4-g128"},
    ],
    ids=lambda o: " ".join(o) or "default",
)
def test_nothing_is_expected_faster_than_the_ideal_of_the_same_conventions(spec, options):
    peaks = {"fp8": 1979e12}
    load = make_workload(spec, **{"batch": 3, "prompt": 4096, "output": 8, **options})
    cost = costs(spec, load)
    ideal = ideal_times(cost, *H100.values(), quantised_flop_s=quantised_peak(cost.quantised, peaks, H100["flop_s"]))
    for phase, least in (("prefill", ideal.prefill_s), ("decode", ideal.first_step_s)):
        found = expected_phase(spec, load, "h100-sxm", phase, **H100, quantised_peaks=peaks)
        assert found.seconds >= found.ideal_s * (1 - 1e-9)
        assert found.ideal_s >= least * (1 - 1e-9)
        assert found.low_s >= least * (1 - 1e-9)


def test_attention_under_a_mask_is_not_taken_for_one_that_skips():
    explicit, skipping = (
        expected_phase(WINDOWED, make_workload(WINDOWED, prompt=4096, mask=mask), "h100-sxm", "prefill", **H100)
        for mask in ("auto", "causal")
    )
    assert any("explicit mask" in r for r in explicit.reasons)
    assert not any("explicit mask" in r for r in skipping.reasons)
    # A window that the prompt does not fill is none.
    short = expected_phase(WINDOWED, make_workload(WINDOWED, prompt=256), "h100-sxm", "prefill", **H100)
    assert not any("explicit mask" in r for r in short.reasons)


def test_what_is_not_measured_runs_at_the_peak_of_its_operands():
    load = make_workload(LLAMA, prompt=4096, weights_dtype="fp8-block")
    slow = expected_phase(LLAMA, load, "h100-sxm", "prefill", **H100)
    fast = expected_phase(LLAMA, load, "h100-sxm", "prefill", **H100, quantised_peaks={"fp8": 1979e12})
    layers = 2 * 4096 * 32 * sum(n * k for n, k in MATRICES)
    assert slow.seconds - fast.seconds == pytest.approx(layers / 989.4e12 - layers / 1979e12)


def test_a_static_cache_is_read_whole():
    loads = [make_workload(LLAMA, prompt=1024, output=o, cache="static") for o in (1, 4001)]
    times = [expected_phase(LLAMA, load, "h100-sxm", "decode", **H100) for load in loads]
    core = [expected_attention("h100-sxm", "decode", 1, 1, c, 32, 8, 128, "bfloat16", "bfloat16") for c in (1025, 5025)]
    assert times[1].seconds - times[0].seconds == pytest.approx(32 * (core[1].seconds - core[0].seconds))


def test_an_unmeasured_gpu_has_the_ideal_only():
    load = make_workload(LLAMA)
    assert expected_phase(LLAMA, load, "l4", "decode", flop_s=121e12, byte_s=300e9) is None
    record = estimate_record(LLAMA, load, device="L4", flop_s=121e12, byte_s=300e9, gpu_key="l4")
    assert record["decode"]["expected_ms"] is None
    assert record["expected"]["known"] is False
    assert "l4" in record["expected"]["reason"]


def test_the_record_holds_the_band():
    record = estimate_record(LLAMA, make_workload(LLAMA), device="H100", gpu_key="h100-sxm", **H100)
    decode = record["decode"]
    assert decode["ideal_ms"] < decode["expected_low_ms"] < decode["expected_ms"] < decode["expected_high_ms"]
    assert record["host"]["launches_per_step"] == launches_per_step(LLAMA) == 32 * 40 + 22


def test_launches_are_those_that_are_traced():
    from kernelroof.models.trace import trace

    config = load_config("tiny-llama")
    counts = []
    for layers in (1, 3):
        result = trace({**config, "num_hidden_layers": layers}, batch=1, prompt=16, output=1, dtype="bfloat16")
        steps = [op for op in result.ops if op.phase == "decode"]
        counts.append(sum(op.read_bytes + op.write_bytes > 0 for op in steps))
    assert (counts[1] - counts[0]) / 2 == EAGER_LAUNCHES["layer"]
    assert counts[0] == EAGER_LAUNCHES["layer"] + EAGER_LAUNCHES["besides"]
