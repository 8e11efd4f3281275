"""What checkpoints say about their quantisation: every method, the modules left out, and what is refused."""

import json
import os
from pathlib import Path

import pytest
from kernelroof.models.coefficients import coefficients
from kernelroof.models.errors import ConfigError
from kernelroof.models.modules import globbed, listed, matching, targeted
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.quant_config import read_quantised
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import conventions, make_workload, precision_of

SHARED = Path(os.environ.get("KERNELROOF_SHARED", Path(__file__).parents[3] / "shared")) / "configs"
LLAMA = load_config("llama-3-8b")
K, N = 512, 384


def quantised(**fields):
    return read_quantised({"quantization_config": fields})


def spec_with(**fields):
    return read_spec({**LLAMA, "quantization_config": fields}, "quantised-llama")


def held_by(spec):
    return precision_of(spec, make_workload(spec))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}, "gptq-int4-g128"),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1}, "gptq-int3-channel"),
        ({"quant_method": "gptq_marlin", "bits": 8, "group_size": 64}, "gptq-int8-g64"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}, "awq-int4-g128"),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "awq-int4-g64"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "gptq-int4-g128"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-static"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8-channel"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb-int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": True}, "fp4-dq"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4-w4a16"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8-static"),
        ({"quant_algo": "NVFP4", "group_size": 16}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}, "int4-awq"),
        ({"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"}, "w8a8"),
        (
            {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
            "hqq-int4-g64",
        ),
        ({"quant_method": "quanto", "weights": "int8"}, "int8-channel"),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "int8-channel"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}, "int8-channel"),
        ({"quant_method": "eetq"}, "int8-channel"),
    ],
)
def test_methods_and_their_formats(fields, name):
    found = quantised(**fields)
    assert found.why == ""
    assert found.linear.name == name
    spec = spec_with(**fields)
    workload = make_workload(spec)
    assert workload.weights_dtype == name
    assert coefficients(spec, precision_of(spec, workload)).weight_bytes > 0
    assert name in conventions(spec, workload)["weights"]


# Bytes of the state dict of a [384, 512] linear in bf16 as compressed-tensors 0.20.1 compresses it by its own
# preset schemes, and what the two operands are then.
_INT = {"type": "int", "symmetric": True}
_DYNAMIC = {"dynamic": True}


@pytest.mark.parametrize(
    ("weights", "inputs", "form", "size", "compute"),
    [
        ({**_INT, "num_bits": 4, "strategy": "group", "group_size": 128}, None, "pack-quantized", 101_392, None),
        (
            {**_INT, "num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": False},
            None,
            "pack-quantized",
            102_160,
            None,
        ),
        ({**_INT, "num_bits": 3, "strategy": "group", "group_size": 128}, None, "pack-quantized", 76_816, None),
        ({**_INT, "num_bits": 8, "strategy": "group", "group_size": 128}, None, "pack-quantized", 199_696, None),
        (
            {**_INT, "num_bits": 8, "strategy": "channel"},
            {"num_bits": 8, "type": "int", **_DYNAMIC},
            "int-quantized",
            197_376,
            "int8",
        ),
        (
            {**_INT, "num_bits": 4, "strategy": "group", "group_size": 128},
            {"num_bits": 8, "type": "float", **_DYNAMIC},
            "int-quantized",
            199_680,
            "fp8",
        ),
        (
            {"type": "float", "num_bits": 8, "strategy": "tensor"},
            {"num_bits": 8, "type": "float", "dynamic": False},
            "float-quantized",
            196_612,
            "fp8",
        ),
        (
            {"type": "float", "num_bits": 8, "strategy": "channel"},
            {"num_bits": 8, "type": "float", **_DYNAMIC},
            "float-quantized",
            197_376,
            "fp8",
        ),
        (
            {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [128, 128]},
            {"num_bits": 8, "type": "float", **_DYNAMIC},
            "float-quantized",
            196_632,
            "fp8",
        ),
        (
            {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16},
            None,
            "nvfp4-pack-quantized",
            110_596,
            None,
        ),
        (
            {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16},
            {"num_bits": 4, "type": "float", "dynamic": "local"},
            "nvfp4-pack-quantized",
            110_600,
            "fp4",
        ),
        (
            {"type": "float", "num_bits": 4, "strategy": "group", "group_size": 32},
            None,
            "mxfp4-pack-quantized",
            104_448,
            None,
        ),
        (
            {"type": "float", "num_bits": 8, "strategy": "group", "group_size": 32},
            {"num_bits": 8, "type": "float", **_DYNAMIC},
            "mxfp8-quantized",
            202_752,
            "fp8",
        ),
    ],
)
def test_compressed_tensors_schemes(weights, inputs, form, size, compute):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    found = quantised(quant_method="compressed-tensors", format=form, ignore=["lm_head"], config_groups={"g": group})
    assert found.why == ""
    assert found.linear.matrix_bytes(K, N) == size
    assert found.linear.compute == compute
    assert not found.head
    spec = spec_with(quant_method="compressed-tensors", format=form, ignore=["lm_head"], config_groups={"g": group})
    assert held_by(spec).of("layers.1.mlp.up_proj").matrix_bytes(K, N) == size


def test_compressed_tensors_groups_by_target():
    four = {**_INT, "num_bits": 4, "strategy": "group", "group_size": 128}
    eight = {**_INT, "num_bits": 8, "strategy": "channel"}
    spec = spec_with(
        quant_method="compressed-tensors",
        format="pack-quantized",
        config_groups={
            "group_0": {"targets": ["re:.*mlp.*"], "weights": four},
            "group_1": {"targets": ["re:.*self_attn\\.(q|o)_proj$"], "weights": eight},
        },
        ignore=["re:.*layers\\.0\\..*", "model.layers.1.mlp.down_proj"],
        kv_cache_scheme={"type": "float", "num_bits": 8, "strategy": "tensor"},
    )
    held = held_by(spec)
    assert held.of("layers.2.mlp.down_proj").name == "int4-g128"
    assert held.of("layers.2.self_attn.q_proj").name == "int8-channel"
    assert held.of("layers.2.self_attn.k_proj").name == "bfloat16"
    assert held.of("layers.0.mlp.down_proj").name == "bfloat16"
    assert held.of("layers.1.mlp.down_proj").name == "bfloat16"
    assert held.kv.name == "fp8"
    assert held.head_format.name == "bfloat16"


def test_a_head_that_nothing_ignores_is_quantised():
    group = {"targets": ["Linear"], "weights": {**_INT, "num_bits": 8, "strategy": "channel"}}
    spec = spec_with(quant_method="compressed-tensors", format="int-quantized", config_groups={"g": group})
    assert held_by(spec).head_format.name == "int8-channel"
    assert held_by(spec_with(quant_method="gptq", bits=4, group_size=128, lm_head=True)).head_format.bits == 4


def test_gptq_dynamic_rules():
    spec = spec_with(
        quant_method="gptq",
        bits=4,
        group_size=128,
        dynamic={"-:.*\\.self_attn\\.k_proj": {}, "+:.*\\.mlp\\.down_proj": {"bits": 8, "group_size": 64}},
    )
    held = held_by(spec)
    assert held.of("layers.3.self_attn.k_proj").name == "bfloat16"
    assert held.of("layers.3.mlp.down_proj").name == "gptq-int8-g64"
    assert held.of("layers.3.mlp.up_proj").name == "gptq-int4-g128"


def test_mixed_precision_of_modelopt():
    spec = spec_with(
        quant_method="modelopt",
        quant_algo="MIXED_PRECISION",
        kv_cache_quant_algo="FP8",
        quantized_layers={
            "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
            "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"},
        },
    )
    workload = make_workload(spec)
    model = coefficients(spec, precision_of(spec, workload))
    assert dict(model.quantised) == {"fp4": 2 * 4096 * 14336, "fp8": 2 * 4096 * 4096}
    assert workload.kv_dtype == "fp8"


@pytest.mark.parametrize(
    ("modules", "inside", "outside"),
    [
        (listed(["gate"]), "layers.3.mlp.gate", "layers.3.mlp.gate_proj"),
        (listed(["model.layers.1"]), "layers.1.mlp.up_proj", "layers.11.mlp.up_proj"),
        (listed(["model.layers.*.self_attn"]), "layers.40.self_attn.q_proj", "layers.40.mlp.up_proj"),
        (listed(["self_attn"]), "layers.4.self_attn.q_proj", "layers.4.mlp.up_proj"),
        (listed(["language_model.model.layers.2.mlp"]), "layers.2.mlp.up_proj", "layers.2.self_attn.q_proj"),
        (globbed(["model.layers.0.*"]), "layers.0.mlp.up_proj", "layers.10.mlp.up_proj"),
        (globbed(["*.indexer*"]), "layers.0.self_attn.indexer.wk", "layers.0.self_attn.q_proj"),
        (globbed(["model.layers.0.self_attn.q_a_proj"]), "layers.0.self_attn.q_a_proj", "layers.1.self_attn.q_a_proj"),
        (targeted(["re:model.layers.[0-2]\\..*"]), "layers.2.mlp.up_proj", "layers.3.mlp.up_proj"),
        (targeted(["re:.*experts\\.\\d+\\..*"]), "layers.2.mlp.experts.up_proj", "layers.2.mlp.shared_experts.up_proj"),
        (matching([".*down_proj"]), "layers.2.mlp.down_proj", "layers.2.mlp.up_proj"),
    ],
)
def test_sets_of_modules(modules, inside, outside):
    assert modules.holds(inside)
    assert not modules.holds(outside)


@pytest.mark.parametrize(
    "fields",
    [
        {"quant_method": "aqlm"},
        {"quant_method": None},
        {"quant_method": "gptq"},
        {"quant_method": "gptq", "bits": 5},
        {"quant_method": "gptq", "bits": 4, "group_size": 0},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "int4"},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"], "weights": {}}}},
        {
            "quant_method": "compressed-tensors",
            "sparsity_config": {"format": "sparse-24-bitmask"},
            "config_groups": {"g": {}},
        },
        {
            "quant_method": "compressed-tensors",
            "ignore": ["re:("],
            "config_groups": {"g": {"weights": {"num_bits": 8, "strategy": "channel"}}},
        },
        {"quant_method": "modelopt", "quant_algo": "FP3"},
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP2"},
        {"quant_method": "hqq", "quant_config": {}},
        {"quant_method": "torchao", "quant_type": "autoquant"},
        {"quant_method": "quanto", "weights": "int2"},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "auto-round", "packing_format": "auto_round:llm_compressor"},
    ],
)
def test_what_is_not_read_names_the_method_and_the_way_out(fields):
    spec = spec_with(**fields)
    with pytest.raises(ConfigError, match="quantization_config") as caught:
        make_workload(spec)
    assert str(fields["quant_method"]) in str(caught.value)
    assert "--weights-dtype" in str(caught.value)
    assert make_workload(spec, weights_dtype="int4-g128").weights_dtype == "int4-g128"


def test_another_format_keeps_the_checkpoints_exceptions():
    spec = spec_with(quant_method="fp8", modules_to_not_convert=["model.layers.0.mlp.down_proj"])
    held = precision_of(spec, make_workload(spec, weights_dtype="int4"))
    assert held.of("layers.0.mlp.down_proj").name == "bfloat16"
    assert held.of("layers.1.mlp.down_proj").name == "int4"
    words = conventions(spec, make_workload(spec, weights_dtype="int4"))["weights"]
    assert "whose own format is fp8" in words


def test_hf_quant_config_beside_the_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    says = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(says))
    for path in (tmp_path, tmp_path / "config.json"):
        spec = read_spec(load_config(str(path)), "m")
        assert spec.quantised.method == "modelopt"
        assert make_workload(spec).weights_dtype == "fp8-static"


def real(name):
    path = SHARED / f"{name}_config.json"
    if not path.is_file():
        pytest.skip("the folder of real configs is not here")
    spec = read_spec(load_config(str(path)), display_name(str(path)))
    workload = make_workload(spec)
    return spec, workload, coefficients(spec, precision_of(spec, workload))


def test_qwen3_32b_fp8():
    _, workload, model = real("Qwen--Qwen3-32B-FP8")
    assert workload.weights_dtype == "fp8-block"
    matrices = 64 * (2 * 5120 * 8192 + 2 * 5120 * 1024 + 3 * 5120 * 25600)
    scales = 64 * (2 * 40 * 64 + 2 * 40 * 8 + 3 * 40 * 200)
    rest = model.parameters - matrices
    assert model.parameters == 32_762_123_264
    assert model.weight_bytes == matrices + 4 * scales + 2 * rest
    assert model.quantised == (("fp8", 2 * matrices),)


@pytest.mark.parametrize(
    ("name", "parameters", "stored"),
    [("gpt-oss-20b", 20_914_757_184, 13_761_264_768), ("gpt-oss-120b", 116_829_156_672, 65_248_815_744)],
)
def test_gpt_oss_quantises_experts_only(name, parameters, stored):
    """Bytes to the last one are those of the published tensors (total_size in the 20b's own index)."""
    _, workload, model = real(f"openai--{name}")
    assert workload.weights_dtype == "mxfp4-w4a16"
    assert (model.parameters, model.weight_bytes) == (parameters, stored)
    assert model.quantised == ()


def test_nvidia_fp8():
    spec, workload, model = real("nvidia--Llama-3.1-70B-Instruct-FP8")
    assert (workload.weights_dtype, workload.kv_dtype) == ("fp8-static", "fp8")
    matrices = model.matmul_parameters - spec.vocab * spec.hidden
    assert model.weight_bytes == matrices + 8 * 7 * 80 + 2 * (model.parameters - matrices)


def test_nvidia_nvfp4_leaves_attention_alone():
    spec, workload, model = real("nvidia--GLM-5-NVFP4")
    held = precision_of(spec, workload)
    assert (workload.weights_dtype, workload.kv_dtype) == ("nvfp4", "fp8")
    assert held.of("layers.40.self_attn.o_proj").name == "bfloat16"
    assert held.of("layers.40.self_attn.indexer.wk").name == "bfloat16"
    assert held.of("layers.40.mlp.experts.down_proj").name == "nvfp4"
    assert 0 < dict(model.quantised)["fp4"] < model.token_flops


def test_deepseek_v3_block_scales():
    _, workload, model = real("deepseek-ai--DeepSeek-V3")
    assert workload.weights_dtype == "fp8-block"
    assert model.parameters == 671_026_404_352
    assert 1.003 < model.weight_bytes / model.parameters < 1.004
