"""Configs that no model has: each is refused by name in one line, or read rightly; nothing else is raised."""

import json
from contextlib import suppress

import pytest
from kernelroof.models.errors import ConfigError, KernelroofError, UsageError
from kernelroof.models.fields import MOST, shortened
from kernelroof.models.modules import matching, targeted
from kernelroof.models.presets import load_config
from kernelroof.models.record import estimate_record
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload

VALUES = [None, -1, 0, 7, 10**18, 10**400, 1.5, float("nan"), True, "", "x", [], [None], [[1]], {}, {"a": 1}]
HYBRID = {"hybrid_override_pattern": None, "layer_types": None, "moe_layer_freq": None, "model_type": "llama"}


def changed(**fields):
    return {**load_config("tiny-llama"), **fields}


@pytest.mark.parametrize("field", [*load_config("tiny-llama"), *HYBRID, "quantization_config", "text_config"])
def test_every_field_with_every_odd_value(field):
    for value in VALUES:
        with suppress(KernelroofError):
            spec = read_spec(changed(**{field: value}))
            load = make_workload(spec, prompt=16, output=4)
            record = estimate_record(spec, load, flop_s=1e14, byte_s=1e12, gpu_key="h100-sxm")
            json.dumps(record, allow_nan=False)
            assert record["parameters"] > 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_size": MOST + 1}, "hidden_size"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ({"num_hidden_layers": 2, "layer_types": [[], []]}, "layer_types"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"num_local_experts": 4, "num_experts_per_tok": 2, "moe_layer_freq": ["x"] * 99}, "moe_layer_freq"),
    ],
)
def test_the_message_names_the_field(fields, named):
    with pytest.raises(ConfigError, match=named):
        read_spec(changed(**fields))


def test_wrappers_are_followed_some_levels_deep():
    config = load_config("tiny-llama")
    assert read_spec({"text_config": {"text_config": config}}).hidden == config["hidden_size"]
    for _ in range(20):
        config = {"text_config": config}
    with pytest.raises(ConfigError, match="nested"):
        read_spec(config)


@pytest.mark.parametrize(
    "given",
    [
        {"quant_method": "fp8", "weight_block_size": [0, 0]},
        {"quant_method": "fp8", "weight_block_size": [128, -128]},
        {"quant_method": "fp8", "weight_block_size": [1.5, 2]},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": -16},
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 0}}},
        {"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": -1}},
        {"quant_method": "x" * 10_000},
    ],
)
def test_block_sizes_that_are_none(given):
    with pytest.raises(ConfigError) as caught:
        make_workload(read_spec(changed(quantization_config=given)))
    assert "--weights-dtype" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_regexes_that_would_clash_in_one_pattern():
    found = matching([r"(?i).*MLP.*", r"(?P<n>y)", r"(?P<n>z)", r"(.)\1"])
    assert found.holds("layers.0.mlp.up_proj")
    assert not found.holds("layers.0.self_attn.q_proj")
    assert targeted(["re:(?i).*LM_HEAD", "re:x(y)"]).holds("lm_head")


@pytest.mark.parametrize("size", [0, -1, MOST + 1, 10**60])
@pytest.mark.parametrize("option", ["batch", "prompt", "output"])
def test_sizes_of_a_workload(option, size):
    with pytest.raises(UsageError, match=f"--{option}"):
        make_workload(read_spec(changed(max_position_embeddings=MOST)), **{option: size})


@pytest.mark.parametrize("name", ["int4-g00", "hqq-int4-g00", "gptq-int4-g0"])
def test_groups_of_nothing(name):
    with pytest.raises(UsageError, match="weights-dtype"):
        make_workload(read_spec(load_config("tiny-llama")), weights_dtype=name)


def test_too_large_a_file_is_no_config(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(ConfigError, match="too large"):
        load_config(str(path))


def test_values_are_shown_short():
    assert len(shortened([10**9] * 1000)) == 60


def test_what_was_not_measured_is_expected_no_faster_than_its_ideal():
    """Eager attention computes all pairs of a long prompt; the measured kernels skip half of them."""
    spec = read_spec({**load_config("llama-3-8b"), "max_position_embeddings": 200_000})
    load = make_workload(spec, prompt=150_000, output=1, attn="eager")
    record = estimate_record(spec, load, flop_s=989e12, byte_s=3.35e12, gpu_key="h100-sxm")
    assert record["prefill"]["expected_ms"] >= record["prefill"]["ideal_ms"]
    assert "eager attention was not measured" in record["expected"]["not_measured"]
    assert record["decode"]["expected_ms"] >= record["decode"]["ideal_ms"]


def test_an_expected_time_below_the_ideal_is_withheld(monkeypatch):
    from kernelroof.models import expected

    def too_fast(*args, **options):
        return expected.PhaseTime(1e-9, 1e-9, 1e-9, 1e-9, 1.0, False, (), {})

    monkeypatch.setattr(expected, "expected_phase", too_fast)
    spec = read_spec(load_config("llama-3-8b"))
    record = estimate_record(spec, make_workload(spec), flop_s=989e12, byte_s=3.35e12, gpu_key="h100-sxm")
    assert record["prefill"]["expected_ms"] is None
    assert "skip" in record["expected"]["withheld"][0]


def test_matrices_that_are_listed_one_by_one_are_bounded():
    config = {**load_config("tiny-llama"), "model_type": "gemma3n_text", "altup_num_inputs": MOST}
    with pytest.raises(ConfigError, match="altup_num_inputs"):
        read_spec(config)
