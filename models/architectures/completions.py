"""What default configs lack before a model can be built and run as a causal LM, and why; nothing else is changed."""

from __future__ import annotations

from typing import Any, NamedTuple


class Completion(NamedTuple):
    """Fields given to the config class beside its defaults, and why it takes them."""

    fields: dict[str, Any]
    why: str


_HEAD_DIM = "head_dim has no default"
_HYBRID = "by default no layer attends, and the cache needs one that does"

COMPLETIONS: dict[str, Completion] = {
    "bamba": Completion({"attn_layer_indices": [2]}, _HYBRID),
    "blenderbot": Completion(
        {"encoder_layers": 24}, "the decoder's cache has as many layers as the encoder, which is not built, says"
    ),
    "blt": Completion(
        {"num_hidden_layers": 25, "patching_mode": "byte"},
        "the cache asks for the number of global layers; where patches end depends on computed entropies, so every "
        "byte is one",
    ),
    "cohere_compass_text": Completion(
        {
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": 10000.0}
                for kind in ("full_attention", "sliding_attention")
            }
        },
        "rope_parameters is empty by default, and every kind of layer looks its own up",
    ),
    "dbrx": Completion(
        {"attn_config": {"rope_theta": 500000.0, "clip_qkv": 8.0}}, "attn_config has no rope_theta and no clip_qkv"
    ),
    "deepseek_v2": Completion(
        {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
        "num_experts_per_tok has no default; grouped products need rows of a multiple of 16 bytes, 1407 is none",
    ),
    "dots1": Completion(
        {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
        "the numbers of experts have no default",
    ),
    "gemma4_assistant": Completion(
        {
            "text_config": {
                "model_type": "gemma4_text",
                "hidden_size_per_layer_input": 0,
                "vocab_size_per_layer_input": 0,
                "num_kv_shared_layers": 30,
            }
        },
        "the assistant refuses the per-layer inputs and the own keys and values that its text_config has by default",
    ),
    "granitemoehybrid": Completion(
        {"layer_types": ["linear_attention"] * 5 + ["full_attention"], "num_hidden_layers": 6}, _HYBRID
    ),
    "hunyuan_v1_dense": Completion({"head_dim": 128}, _HEAD_DIM),
    "hunyuan_v1_moe": Completion({"head_dim": 128}, _HEAD_DIM),
    "lfm2_moe": Completion(
        {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8}, "layer_types has no default"
    ),
    "ministral": Completion({"head_dim": 128}, _HEAD_DIM),
    "nemotron": Completion({"num_key_value_heads": 8}, "num_key_value_heads has no default"),
    "qwen4_exp_text": Completion(
        {
            "indexer_n_heads": 4,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 256,
            "indexer_budget": 2048,
            "indexer_compress_ratio": 4,
        },
        "the indexer of the layers that have one by default has no sizes",
    ),
    "xmod": Completion(
        {"default_language": "en_XX"}, "no language is chosen by default, and each has its own adapters"
    ),
}
COMPLETIONS["qwen4_exp"] = Completion(
    {"text_config": COMPLETIONS["qwen4_exp_text"].fields}, COMPLETIONS["qwen4_exp_text"].why
)
AS_DECODER = "is_decoder: an encoder by default"


def complete(model_type: str) -> tuple[dict[str, Any], str]:
    """The default config of a family as a `config.json` would hold it, completed, and what was completed.

    Raises:
        ConfigError: the family's config class refuses its own defaults.
    """
    from kernelroof.models import hf

    known = COMPLETIONS.get(model_type)
    fields = dict(known.fields) if known is not None else {}
    notes = [f"{', '.join(fields)}: {known.why}"] if known is not None else []
    plain = hf.config_object({"model_type": model_type, **fields}).to_dict()
    # Encoders of the BERT kind attend to both sides and keep no cache, unless they are told to be decoders.
    if plain.get("is_decoder") is False:
        plain = hf.config_object({"model_type": model_type, **fields, "is_decoder": True}).to_dict()
        notes.append(AS_DECODER)
    return {**plain, "model_type": model_type}, "; ".join(notes)
