"""Bytes of every format, worked out by hand from the published layouts, and against ggml's own table."""

import math

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.models.formats import CACHE, WEIGHTS, cache_format, weight_format
from kernelroof.models.precision import precision

K, N = 4096, 14336
"""Inputs and outputs of a down projection of Llama-3-8B's, the other way round."""


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("float32", 4 * K * N),
        ("bf16", 2 * K * N),
        ("int4", K * N // 2),
        ("int8", K * N),
        ("fp8", K * N + 4),
        ("fp8-static", K * N + 8),
        ("fp8-channel", K * N + 4 * N),
        ("fp8-block", K * N + 4 * 32 * 112),
        ("w8a16", K * N + 2 * N),
        ("w8a8", K * N + 2 * N),
        ("llm.int8", K * N + 4 * N),
        ("int4-g128", K * N // 2 + 2 * 32 * N),
        ("int4-g64", K * N // 2 + 2 * 64 * N),
        ("int4-g32", K * N // 2 + 2 * 128 * N),
        ("int4-channel", K * N // 2 + 2 * N),
        ("int4-g128-asym", K * N // 2 + 2 * 32 * N + 32 * N // 2),
        ("gptq", K * N // 2 + 2 * 32 * N + 32 * N // 2 + 4 * K),
        ("gptq-int3-g128", 3 * K * N // 8 + 2 * 32 * N + 32 * N * 3 // 8 + 4 * K),
        ("gptq-int8-channel", K * N + 2 * N + N + 4 * K),
        ("awq", K * N // 2 + 2 * 32 * N + 32 * N // 2),
        ("awq-int4-g64", K * N // 2 + 2 * 64 * N + 64 * N // 2),
        ("mxfp4", K * N // 2 + K * N // 32),
        ("nvfp4", K * N // 2 + K * N // 16 + 4),
        ("mxfp8", K * N + K * N // 32),
        ("nf4", K * N // 2 + 4 * K * N // 64),
        ("fp4", K * N // 2 + 4 * K * N // 64),
        ("nf4-dq", K * N // 2 + K * N // 64 + 4 * K * N // 64 // 256 + 4),
        ("hqq", K * N // 2 + 4 * K * N // 64),
        ("q4_0", K * N // 32 * 18),
        ("Q4_K", K * N // 256 * 144),
        ("gguf:q6_k", K * N // 256 * 210),
        ("bpw:4.85", math.ceil(K * N * 4.85 / 8)),
        ("gguf:4.85", math.ceil(K * N * 4.85 / 8)),
        ("q4_k_m", math.ceil(K * N * 4.8944 / 8)),
    ],
)
def test_bytes_of_a_matrix(name, size):
    assert weight_format(name).matrix_bytes(K, N) == size


def test_gptq_layer_of_512_by_512():
    """qweight [64, 512] int32, scales [4, 512] fp16, qzeros [4, 64] int32, g_idx [512] int32."""
    buffers = 64 * 512 * 4 + 4 * 512 * 2 + 4 * 64 * 4 + 512 * 4
    assert weight_format("gptq-int4-g128").matrix_bytes(512, 512) == buffers == 138_240


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("q4_0", 4.5),
        ("q4_1", 5.0),
        ("q5_0", 5.5),
        ("q8_0", 8.5),
        ("q2_k", 2.625),
        ("q3_k", 3.4375),
        ("q4_k", 4.5),
        ("q5_k", 5.5),
        ("q6_k", 6.5625),
    ],
)
def test_bits_per_weight_of_blocks(name, bits):
    assert 8 * weight_format(name).matrix_bytes(K, N) / (K * N) == bits


def test_blocks_are_those_of_the_gguf_package():
    constants = pytest.importorskip("gguf.constants")
    sizes = {kind.name.lower(): size for kind, size in constants.GGML_QUANT_SIZES.items()}
    blocks = [f for f in WEIGHTS.values() if f.source == "ggml"]
    assert len(blocks) > 15
    for form in blocks:
        assert (form.elements, form.bits) == (sizes[form.name][0], 8 * sizes[form.name][1]), form.name


def test_blocks_that_inputs_do_not_fill_take_another_format():
    """Qwen2.5-0.5B is 896 wide, three and a half blocks of 256: llama.cpp then writes Q5_0 for Q4_K."""
    assert weight_format("q4_k").matrix_bytes(896, 128) == weight_format("q5_0").matrix_bytes(896, 128)
    assert weight_format("q6_k").matrix_bytes(896, 128) == weight_format("q8_0").matrix_bytes(896, 128)


def test_groups_and_blocks_are_rounded_up():
    assert weight_format("int4-g128").matrix_bytes(200, 10) == 200 * 10 // 2 + 2 * 2 * 10
    assert weight_format("fp8-block").matrix_bytes(576, 130) == 576 * 130 + 4 * 5 * 2
    assert weight_format("nf4").matrix_bytes(10, 7) == 35 + 4 * 2


@pytest.mark.parametrize("name", list(WEIGHTS))
def test_every_name_of_the_table_names_itself(name):
    for spelling in (name, name.upper(), name.replace("_", "-"), name.replace("-", "_")):
        assert weight_format(spelling).name == name
    assert weight_format(name).words()


@pytest.mark.parametrize("name", ["int4-g96", "int3-g128", "gptq-int2-g64", "awq-int8-channel", "hqq-int4-g64"])
def test_members_of_families_name_themselves(name):
    assert weight_format(name).name == name


@pytest.mark.parametrize("name", ["int3", "int5-g128", "int4-g0", "q9_k", "bpw:", "bpw:0", "bpw:nan", "gguf:-3", ""])
def test_unknown_weights_are_refused(name):
    with pytest.raises(UsageError):
        weight_format(name)


def test_a_refusal_names_the_closest():
    with pytest.raises(UsageError, match="nvfp4"):
        weight_format("nvpf4")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("bf16", 2 * 8 * 128),
        ("fp8", 8 * 128),
        ("fp8-head", 8 * 128 + 8 * 4),
        ("int8", 8 * 128 + 8 * 2),
        ("int8-asym", 8 * 128 + 8 * 4),
        ("int4", 8 * 64 + 8 * 2),
        ("nvfp4", 8 * 64 + 8 * 8),
        ("q8_0", 8 * 4 * 34),
    ],
)
def test_bytes_of_one_token_keys(name, size):
    """8 heads of 128: scales are per token and head."""
    assert cache_format(name).matrix_bytes(128, 8) == size


@pytest.mark.parametrize("name", ["gptq", "wide", "q4_k_m", "bpw:4"])
def test_unknown_caches_are_refused(name):
    with pytest.raises(UsageError, match="--kv-dtype"):
        cache_format(name)


def test_plain_names_of_weights_and_cache_are_shared():
    assert {"float32", "bfloat16", "float16", "fp8", "int8", "int4"} <= set(WEIGHTS) & set(CACHE)


def test_a_files_average_holds_table_and_head_too():
    held = precision("bfloat16", "q4_k_m")
    assert held.table_format.name == held.head_format.name == held.of("mlp.up_proj").name == "q4_k_m"
    assert precision("bfloat16", "q4_k").table_format.name == "bfloat16"


def test_routers_stay_in_the_run_format():
    held = precision("bfloat16", "int4")
    for router in ("mlp.gate", "mlp.router", "mlp.shared_expert_gate", "block_sparse_moe.gate"):
        assert held.of(router).name == "bfloat16"
    assert held.of("mlp.gate_proj").name == "int4"
