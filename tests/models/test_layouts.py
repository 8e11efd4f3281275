"""Caches and experts by hand: what other estimators get wrong, as small configs with exact answers."""

import pytest
from kernelroof.models import installed
from kernelroof.models.coefficients import coefficients
from kernelroof.models.describe import architecture, experts, layers_by_kind
from kernelroof.models.errors import ConfigError
from kernelroof.models.estimate import costs
from kernelroof.models.precision import precision
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload

LLAMA = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 65536,
    "tie_word_embeddings": False,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "head_dim": 128, "num_local_experts": 8, "num_experts_per_tok": 2}
LATENT = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
}


def numbers(config, **options):
    return coefficients(read_spec(config, **options), precision("bfloat16"))


def kept(config, **options):
    return sum(w.kept_bytes for w in numbers(config, **options).windows)


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "hidden", "heads", "per_token"),
    [
        (40, 8, 128, 5120, 32, 163_840),
        (24, 8, 64, 2880, 64, 49_152),
        (36, 8, 128, 2560, 32, 147_456),
    ],
)
def test_kv_per_token_goes_by_head_dim(layers, kv_heads, head_dim, hidden, heads, per_token):
    sizes = {"num_hidden_layers": layers, "num_key_value_heads": kv_heads, "head_dim": head_dim}
    assert kept({**LLAMA, **sizes, "hidden_size": hidden, "num_attention_heads": heads}) == per_token


def test_latent_cache_by_layout():
    assert kept(LATENT, latent=True) == 70_272
    assert kept(LATENT, latent=False) == 4_997_120
    both = numbers(LATENT, latent=True), numbers(LATENT, latent=False)
    assert both[0].parameters == both[1].parameters
    # Either way K and V of all heads are made from the latent: of every cached token, or of the new ones.
    assert both[1].token_flops - both[0].token_flops == sum(w.key_flops for w in both[0].windows) > 0


@pytest.mark.parametrize(
    ("version", "latent"),
    [("5.24.0", True), ("5.15.0", True), ("5.14.0", False), ("4.57.6", False), ("6.0.0.dev0", True), (None, True)],
)
def test_the_layout_follows_the_installed_transformers(monkeypatch, version, latent):
    monkeypatch.setattr(installed, "transformers_version", lambda: version)
    assert kept(LATENT) == (70_272 if latent else 4_997_120)
    (note,) = read_spec(LATENT).notes
    assert ("the latent" in note, version is None or version in note) == (latent, True)


def test_sparse_attention_keeps_a_key_of_its_indexer():
    sparse = {**LATENT, "model_type": "deepseek_v32", "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    assert kept(sparse, latent=True) == 61 * (512 + 64 + 128) * 2
    half = {**sparse, "model_type": "glm_moe_dsa", "indexer_types": ["full"] * 30 + ["shared"] * 31}
    assert kept(half, latent=True) == (61 * (512 + 64) + 30 * 128) * 2


def test_experts_held_met_and_read():
    spec = read_spec(MIXTRAL)
    model = coefficients(spec, precision("bfloat16"))
    assert model.parameters == 46_702_792_704
    assert model.active_parameters == 12_879_925_248
    assert experts(spec, 1)[0]["distinct"] == 2
    tied = numbers({**MIXTRAL, "tie_word_embeddings": True})
    assert model.parameters - tied.parameters == 131_072_000
    assert tied.token_flops + tied.head_flops == model.token_flops + model.head_flops


def test_experts_read_grow_with_the_batch():
    spec = read_spec(MIXTRAL)
    read = [costs(spec, make_workload(spec, batch=b)).first_step.weight_bytes for b in (1, 2, 4, 64, 512)]
    one = 3 * 4096 * 14336 * 2 * 32
    rest = read[0] - 2 * one
    assert read[1] == rest + one * (8 - 6 * 0.75)
    assert read == sorted(read)
    assert read[-1] == pytest.approx(rest + 8 * one)


def test_layers_of_one_model_may_differ():
    hybrid = {
        **LLAMA,
        "model_type": "qwen3_next",
        "num_hidden_layers": 48,
        "head_dim": 256,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "decoder_sparse_step": 1,
    }
    spec = read_spec(hybrid)
    assert layers_by_kind(spec) == {"linear attention": 36, "full attention": 12}
    assert architecture(spec).startswith("48 layers: 36 linear attention, 12 full attention; ")
    assert "MoE 128 experts, top-8; a shared expert" in architecture(spec)
    cost = costs(spec, make_workload(spec, batch=3, prompt=100, output=10))
    states = 36 * (32 * 128 * 128 * 4 + (2 * 16 + 32) * 128 * 4 * 2)
    assert cost.state_bytes_per_sequence == states
    assert cost.kv_bytes == 3 * (states + 110 * 12 * 2 * 8 * 256 * 2)


def test_dense_layers_among_experts():
    def routed(**fields):
        spec = read_spec({**MIXTRAL, "model_type": "qwen3_moe", **fields})
        found = [i for g in spec.groups for i in g.indices if any(li.copies > 1 for li in g.linears)]
        return sorted(found)

    assert routed(decoder_sparse_step=2) == list(range(1, 32, 2))
    assert routed(decoder_sparse_step=1, mlp_only_layers=[0, 5]) == [i for i in range(32) if i not in (0, 5)]
    assert routed(first_k_dense_replace=3) == list(range(3, 32))
    assert routed(first_k_dense_replace=1, moe_layer_freq=2) == list(range(2, 32, 2))
    assert routed(moe_layer_freq=[0] * 30 + [1, 1]) == [30, 31]
    assert routed(mlp_layer_types=["dense"] + ["sparse"] * 31) == list(range(1, 32))
    assert routed(moe_layers=[3, 4]) == [3, 4]
    assert routed(moe_layers_enum="3,4,31") == [3, 4, 31]
    assert routed(interleave_moe_layer_step=4) == list(range(3, 32, 4))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_local_experts", -1),
        ("num_experts_per_tok", 9),
        ("num_experts_per_tok", None),
        ("kv_lora_rank", "512"),
        ("qk_rope_head_dim", None),
        ("sliding_window", 0),
        ("mlp_layer_types", ["dense"]),
    ],
)
def test_a_senseless_layout_is_named(field, value):
    base = LATENT if field.startswith(("kv_", "qk_")) else MIXTRAL
    with pytest.raises(ConfigError, match=field):
        read_spec({**base, field: value})
