"""The table of model types: what their code fixes. Everything else is read from the config's fields.

Sizes here were compared with the meta module of every row (`tests/models/test_architectures.py`).
Defaults are those of the config classes of transformers 5.24, and only where a config may leave the
field out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelroof.models.family import Family
from kernelroof.models.layer_types import (
    alternating,
    always,
    any_window,
    chosen,
    every,
    first_of,
    listed,
    periodic,
    qwen_moe_windows,
    qwen_windows,
    switched_window,
    unrotated,
)

_GPT = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
}
_BIASED = Family("attention_bias", "attention_bias", "mlp_bias")
_ATTENTION_BIAS = Family("attention_bias", "attention_bias")
_QWEN3 = Family("attention_bias", "attention_bias", qk_norm="head", pattern=qwen_windows)
_GPT2 = Family(
    True,
    True,
    True,
    fused_qkv=True,
    mlp="plain",
    norm=2,
    positions="max_position_embeddings",
    rotary=False,
    widen=4,
    aliases=_GPT,
)
_DEEPSEEK = Family("attention_bias", "attention_bias", router_bits=32, pattern=always("full_attention"))
_GLM4_MOE = _DEEPSEEK._replace(output_bias=False, qk_norm="head", qk_norm_if="use_qk_norm")
_SPARSE = _DEEPSEEK._replace(pattern=always("indexed_attention"))
_GEMMA2 = Family(
    "attention_bias",
    "attention_bias",
    norms=4,
    pattern=alternating("sliding_attention", "full_attention"),
    eager=True,
)
_GEMMA3 = _GEMMA2._replace(qk_norm="head", pattern=every("sliding_window_pattern", "sliding_attention", 6), eager=False)
_GEMMA4 = _GEMMA3._replace(mlp="beside_experts", defaults={"global_head_dim": 512})
_DELTA_HYBRID = Family(
    "attention_bias",
    "attention_bias",
    qk_norm="head",
    gate="doubled",
    pattern=every("full_attention_interval", "linear_attention", 4),
)
_GRANITE_SWA = Family(
    "attention_bias", "attention_bias", "mlp_bias", sinks="all", pattern=first_of(4, "sliding_attention"), eager=True
)
_MAMBA = Family(
    state_kind="mamba",
    mlp="none",
    norms=1,
    pattern=always("linear_attention"),
    aliases={"num_hidden_layers": "n_layer", "hidden_size": "d_model"},
)
_BART = Family(
    True,
    True,
    True,
    mlp="plain",
    norm=2,
    norms=3,
    positions="max_position_embeddings",
    rotary=False,
    last_norm=False,
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "decoder_attention_heads",
        "num_hidden_layers": "decoder_layers",
        "intermediate_size": "decoder_ffn_dim",
    },
    extras=("cross_attention",),
)

_BERT = Family(
    True,
    True,
    True,
    mlp="plain",
    norm=2,
    positions="max_position_embeddings",
    rotary=False,
    last_norm=False,
    head_bias=True,
    extras=("token_types", "embedding_norm", "bert_head"),
    needs="is_decoder",
)
_NORMED = ("cross_attention", "embedding_norm")

_FIRST_DENSE: Mapping[str, Any] = {"first_k_dense_replace": 1}

FAMILIES: dict[str, Family] = {
    # Dense, grouped-query attention
    "llama": _BIASED,
    "mistral": Family(),
    "ministral3": Family(),
    "qwen2": Family(True, pattern=qwen_windows),
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3._replace(pattern=always("full_attention")),
    "apertus": Family("attention_bias", "attention_bias", mlp="plain", mlp_vectors=2, qk_norm="head"),
    "apertus1p5_text": Family("attention_bias", "attention_bias", mlp="plain", mlp_vectors=2, qk_norm="head"),
    "arcee": _BIASED._replace(mlp="plain"),
    "cohere": Family("attention_bias", "attention_bias", norms=1, qk_norm="width", qk_norm_if="use_qk_norm"),
    "cohere2": Family(
        "attention_bias",
        "attention_bias",
        norms=1,
        pattern=every("sliding_window_pattern", "sliding_attention", 4),
    ),
    "cohere_compass_text": Family(
        "attention_bias",
        "attention_bias",
        norms=1,
        pattern=every("sliding_window_pattern", "sliding_attention", 1),
    ),
    "cwm": Family(pattern=first_of(4, "sliding_attention")),
    "diffllama": _ATTENTION_BIAS._replace(attention_kind="differential"),
    "ernie4_5": Family("use_bias", "use_bias", "use_bias"),
    "exaone": _BIASED,
    "exaone4": Family(qk_norm="head", pattern=every("sliding_window_pattern", "sliding_attention", 4)),
    "gemma": Family("attention_bias", "attention_bias"),
    "gemma2": _GEMMA2,
    "vaultgemma": _GEMMA2._replace(norms=2),
    "gemma3_text": _GEMMA3,
    "gemma4_text": _GEMMA4._replace(extras=("per_layer_inputs", "experts_beside")),
    "gemma4_unified_text": _GEMMA4,
    "gemma3n_text": _GEMMA3._replace(
        pattern=every(5, "sliding_attention"),
        extras=("per_layer_inputs", "alternating_updates"),
    ),
    "glm": Family("attention_bias", fused_mlp=True),
    "glm4": Family("attention_bias", fused_mlp=True, norms=4),
    "granite": _BIASED,
    "granite_swa": _GRANITE_SWA._replace(),
    "helium": Family("attention_bias", False, "mlp_bias"),
    "hunyuan_v1_dense": Family("attention_bias", "attention_bias", qk_norm="head"),
    "hyperclovax": _BIASED._replace(extras=("post_norms",)),
    "internlm3": Family("qkv_bias", "attention_bias", "mlp_bias"),
    "iquestcoder": _BIASED,
    "jais2": Family("attention_bias", "attention_bias", "mlp_bias", mlp="plain", norm=2),
    "mimo": Family(
        True,
        pattern=qwen_windows,
        note="model_type mimo is not part of transformers: read as qwen2 (biases of q, k, v), without its layers for "
        "the prediction of several tokens",
    ),
    "ministral": Family(pattern=any_window),
    "nanochat": Family("attention_bias", "attention_bias", mlp="plain", norm=0, last_norm=False),
    "nemotron": Family("attention_bias", "attention_bias", "mlp_bias", mlp="plain", norm=2),
    "modernbert-decoder": Family(
        "attention_bias",
        "attention_bias",
        "mlp_bias",
        fused_mlp=True,
        norm="norm_bias",
        head_bias="decoder_bias",
        pattern=first_of(3, "sliding_attention"),
        extras=("embedding_norm_scale", "head_transform", "first_norm_missing"),
    ),
    "olmo": Family("attention_bias", "attention_bias", norm=0, last_norm=False),
    "olmo2": Family("attention_bias", "attention_bias", qk_norm="width"),
    "olmo3": Family("attention_bias", "attention_bias", qk_norm="width", pattern=every(4, "sliding_attention")),
    "phi": Family(
        True, True, True, qk_norm="affine", qk_norm_if="qk_layernorm", mlp="plain", norms=1, norm=2, head_bias=True
    ),
    "phi3": Family(fused_qkv=True, fused_mlp=True),
    "phi4_multimodal": Family(fused_qkv=True, fused_mlp=True),
    "seed_oss": Family("attention_bias", "attention_out_bias", "mlp_bias"),
    "smollm3": _BIASED._replace(pattern=unrotated("sliding_attention")),
    "stablelm": Family("use_qkv_bias", norm=2),
    "starcoder2": Family("use_bias", "use_bias", "use_bias", mlp="plain", norm=2),
    "emu3_text_model": _BIASED,
    # Dense, before grouped-query attention
    "biogpt": Family(
        True,
        True,
        True,
        mlp="plain",
        norm=2,
        positions="max_position_embeddings",
        position_offset=2,
        rotary=False,
    ),
    "bitnet": Family("attention_bias", "attention_bias", extras=("inner_norms",)),
    "bloom": Family(
        True,
        True,
        True,
        fused_qkv=True,
        mlp="plain",
        norm=2,
        rotary=False,
        aliases={"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "hidden_size": "n_embed"},
        widen=4,
        extras=("embedding_norm",),
    ),
    "codegen": Family(
        False, False, True, fused_qkv=True, mlp="plain", norm=2, norms=1, head_bias=True, widen=4, aliases=_GPT
    ),
    "falcon": Family(
        "bias",
        "bias",
        "bias",
        fused_qkv=True,
        mlp="plain",
        norm=2,
        norms=1,
        widen=4,
        explicit_mask=True,
        extras=("falcon_norms",),
        aliases={
            "intermediate_size": "ffn_hidden_size",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
        },
    ),
    "gpt2": _GPT2,
    "gpt-sw3": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neox": Family(
        "attention_bias",
        "attention_bias",
        True,
        fused_qkv=True,
        mlp="plain",
        norm=2,
    ),
    "gpt_neox_japanese": Family(
        fused_qkv=True,
        mlp="plain",
        norm=2,
        widen="intermediate_multiple_size",
        extras=("last_bias_only",),
    ),
    "gpt_neo": Family(
        False,
        True,
        True,
        mlp="plain",
        norm=2,
        positions="max_position_embeddings",
        rotary=False,
        widen=4,
        pattern=always("full_attention"),
        aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    ),
    "gptj": Family(False, False, True, mlp="plain", norm=2, norms=1, head_bias=True, widen=4, aliases=_GPT),
    "mpt": Family(
        fused_qkv=True,
        mlp="plain",
        widen="expansion_ratio",
        rotary=False,
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
            "max_position_embeddings": "max_seq_len",
        },
    ),
    "opt": Family(
        "enable_bias",
        "enable_bias",
        "enable_bias",
        mlp="plain",
        norm=2,
        positions="max_position_embeddings",
        position_offset=2,
        rotary=False,
        aliases={"intermediate_size": "ffn_dim"},
        extras=("embedding_projection",),
    ),
    "persimmon": Family(
        True,
        True,
        True,
        fused_qkv=True,
        qk_norm="affine",
        qk_norm_if="qk_layernorm",
        mlp="plain",
        norm=2,
    ),
    "xglm": Family(
        True,
        True,
        True,
        mlp="plain",
        norm=2,
        rotary=False,
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "attention_heads",
            "num_hidden_layers": "num_layers",
            "intermediate_size": "ffn_dim",
        },
    ),
    # Decoders of encoder-decoders, which hold an attention over the encoder that a causal LM leaves idle
    "bart": _BART._replace(position_offset=2, extras=_NORMED),
    "blenderbot": _BART._replace(last_norm=True),
    "blenderbot-small": _BART._replace(extras=_NORMED),
    "marian": _BART._replace(aliases={**_BART.aliases, "vocab_size": "decoder_vocab_size"}),
    "mbart": _BART._replace(position_offset=2, last_norm=True, extras=_NORMED),
    "mvp": _BART._replace(position_offset=2, extras=_NORMED),
    "pegasus": _BART._replace(last_norm=True),
    "plbart": _BART._replace(position_offset=2, extras=_NORMED),
    "trocr": _BART._replace(position_offset=2, extras=_NORMED),
    "whisper": _BART._replace(
        positions="max_target_positions",
        last_norm=True,
        extras=("cross_attention", "unbiased_keys"),
        aliases={**_BART.aliases, "max_position_embeddings": "max_target_positions"},
    ),
    # Encoders that a config makes decoders
    "bert": _BERT,
    "camembert": _BERT,
    "data2vec-text": _BERT,
    "electra": _BERT._replace(extras=("token_types", "narrow_embedding", "bert_head")),
    "ernie": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    # Mixtures of experts
    "afmoe": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        gate="width",
        norms=4,
        wide_expert_vectors=1,
        pattern=every("global_attn_every_n_layers", "sliding_attention", 4),
    ),
    "aria_text": _BIASED,
    "beam": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        gate="width",
        norms=4,
        router_bits=32,
        pattern=every(6, "sliding_attention", last=True),
        extras=("head_scales",),
        defaults={"first_k_dense_replace": 3},
    ),
    "cohere2_moe": Family(
        "attention_bias",
        "attention_bias",
        norms=1,
        pattern=every("sliding_window_pattern", "sliding_attention", 4),
    ),
    "dbrx": Family(
        fused_qkv=True,
        norm=1,
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
            "max_position_embeddings": "max_seq_len",
            "num_key_value_heads": "attn_config.kv_n_heads",
            "intermediate_size": "ffn_config.ffn_hidden_size",
            "num_experts": "ffn_config.moe_num_experts",
            "moe_topk": "ffn_config.moe_top_k",
        },
    ),
    "dots1": Family("attention_bias", "attention_bias", qk_norm="head", router_bits=32, pattern=qwen_windows),
    "ernie4_5_moe": Family("use_bias", "use_bias", "use_bias", router_bits=32, wide_expert_vectors=1),
    "exaone_moe": Family(
        qk_norm="head", router_bits=32, pattern=every("sliding_window_pattern", "sliding_attention", 4)
    ),
    "flex_olmo": Family("attention_bias", "attention_bias", qk_norm="width"),
    "flint": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        sinks="all",
        sink_bits=32,
        router_bits=32,
        eager=True,
        pattern=listed,
        defaults={"mlp_only_layers": [0, 1]},
    ),
    "glm4_moe": Family(
        "attention_bias",
        False,
        qk_norm="head",
        qk_norm_if="use_qk_norm",
        router_bits=32,
        pattern=always("full_attention"),
    ),
    "gpt_oss": Family(
        "attention_bias",
        "attention_bias",
        sinks="all",
        router_bias=True,
        expert_bias=True,
        pattern=alternating("sliding_attention", "full_attention"),
        eager=True,
    ),
    "granitemoe": _ATTENTION_BIAS,
    "granitemoeshared": _ATTENTION_BIAS,
    "granitemoe_swa": _GRANITE_SWA._replace(mlp_bias=False),
    "hunyuan_v1_moe": Family("attention_bias", "attention_bias", qk_norm="head", defaults={"num_shared_experts": 1}),
    "hy_v3": Family(
        "attention_bias", "attention_bias", "mlp_bias", qk_norm="head", router_bits=32, defaults=_FIRST_DENSE
    ),
    "kolibri1": Family(qk_norm="head", norms=4, pattern=every(5, "sliding_attention")),
    "laguna": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        gate="heads",
        expert_vectors=1,
        defaults=_FIRST_DENSE,
        pattern=always("full_attention"),
    ),
    "llama4_text": Family(
        "attention_bias",
        "attention_bias",
        dense_experts=True,
        pattern=unrotated("chunked_attention"),
        defaults={"num_shared_experts": 1},
    ),
    "mellum": Family("attention_bias", "attention_bias", qk_norm="head", pattern=always("full_attention")),
    "mimo_v2_flash": Family(
        "attention_bias",
        False,
        router_bits=32,
        sinks="windowed",
        attention_kind="doubled_in_windows",
        eager=True,
        pattern=listed,
        defaults=_FIRST_DENSE,
    ),
    "minimax_m2": Family(qk_norm="width", pattern=always("full_attention")),
    "mixtral": Family(),
    "olmoe": Family("attention_bias", "attention_bias", qk_norm="width"),
    "phimoe": Family("attention_bias", "attention_bias", norm=2, head_bias="lm_head_bias"),
    "qwen2_moe": Family("qkv_bias", shared_gate=True, pattern=qwen_moe_windows),
    "qwen3_moe": Family("attention_bias", "attention_bias", qk_norm="head", pattern=switched_window),
    "qwen3_vl_moe_text": Family("attention_bias", "attention_bias", qk_norm="head", pattern=always("full_attention")),
    "sarvam_moe": Family(
        "attention_bias",
        False,
        qk_norm="head",
        qk_norm_if="use_qk_norm",
        router_bits=32,
        pattern=always("full_attention"),
    ),
    "solar_open": Family("attention_bias", False, router_bits=32, pattern=always("full_attention")),
    # Latent attention
    "axk1": _DEEPSEEK._replace(extras=("expert_norm",), defaults=_FIRST_DENSE),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _SPARSE,
    "glm4_moe_lite": _DEEPSEEK._replace(defaults=_FIRST_DENSE),
    "glm_moe_dsa": _SPARSE,
    "minicpm3": Family("attention_bias", "attention_bias", "mlp_bias"),
    "sarvam_mla": _DEEPSEEK,
    "youtu": Family("attention_bias", "attention_bias"),
    # States, and hybrids of states and attention
    "bailing_hybrid": Family(
        "attention_bias",
        "attention_bias",
        gate="heads",
        router_bits=32,
        state_kind="gated_kimi_delta",
        pattern=every("layer_group_size", "linear_attention", 6),
    ),
    "bamba": Family(
        "attention_bias",
        "attention_bias",
        "mlp_bias",
        pattern=chosen("attn_layer_indices", "linear_attention", "linear_attention"),
    ),
    "falcon_h1": Family("attention_bias", "attention_bias", "mlp_bias", pattern=always("hybrid")),
    "falcon_mamba": _MAMBA,
    "granitemoehybrid": Family("attention_bias", "attention_bias", pattern=always("linear_attention")),
    "jamba": Family(pattern=periodic, extras=("normed_scan",)),
    "kimi_linear": _DEEPSEEK._replace(pattern=listed, defaults=_FIRST_DENSE),
    "lara_mini": Family("attention_bias", "attention_bias", qk_norm="head", pattern=listed),
    "lfm2": Family(
        qk_norm="head", pattern=chosen("full_attn_idxs", "conv"), aliases={"intermediate_size": "block_ff_dim"}
    ),
    "lfm2_moe": Family(qk_norm="head", pattern=listed),
    "lfm3": Family(qk_norm="head", pattern=listed, extras=("sandwich_norms",)),
    "mamba": _MAMBA,
    "mamba2": _MAMBA._replace(state_kind="mamba2"),
    "minimax": Family(state_kind="lightning", pattern=alternating("full_attention", "linear_attention")),
    "nemotron_h": Family(
        "attention_bias", "attention_bias", "mlp_bias", mlp="plain", norms=1, router_bits=32, state_kind="mamba2"
    ),
    "olmo_hybrid": Family("attention_bias", "attention_bias", qk_norm="width", pattern=every(4, "linear_attention")),
    "qwen3_next": _DELTA_HYBRID._replace(shared_gate=True),
    "qwen3_5_text": _DELTA_HYBRID,
    "qwen3_5_moe_text": _DELTA_HYBRID._replace(shared_gate=True),
}

SAME_CODE = {
    "kimi_k2": "deepseek_v3",
    "gemma3_text_model": "gemma3_text",
}
"""Model types that published configs use for the code of another one."""

WRAPPERS: dict[str, Mapping[str, Any]] = {
    # The wrapper's forward makes a mask for blocks of image tokens, whether there are any or not.
    "gemma4_unified": {"explicit_mask": True},
}
"""Outer model types whose forward runs the decoder otherwise than its own causal LM does."""

_ENCODER = "an encoder, and its head and embeddings are no kind that is read here"
_MIXED = "what its layers keep is no kind of cache that is read here"
_STREAMS = "it mixes several residual streams by matrices that depend on the tokens"

REFUSED: dict[str, str] = {
    "axk2": "its norms hold matrices (gated_norm_rank)",
    "bert-generation": _ENCODER,
    "big_bird": _ENCODER,
    "bigbird_pegasus": "block-sparse attention over the encoder, and a head that is not tied as its config says",
    "blt": "it has three transformers, and the patches that they share depend on the bytes",
    "cpmant": "its attention adds a learned bias of positions and segments to the prompt",
    "ctrl": "its attention is not one of the kinds that are read here",
    "deepseek_v4": _MIXED,
    "doge": "its attention masks by a learned state",
    "dory": _STREAMS,
    "dots3_note_text": "latent attentions of different ranks",
    "gemma4_assistant": "it drafts from another model's cache",
    "gemma4_unified_assistant": "it drafts from another model's cache",
    "git": "its image tower is part of the decoder",
    "hrm_text": "it runs its layers several times per token",
    "hy_v4": _STREAMS,
    "inkling2_loop_text": _STREAMS,
    "inkling2_text": _MIXED,
    "inkling_text": _MIXED,
    "jetmoe": "its query matrices are experts",
    "longcat_flash": "some of its experts compute nothing, so that FLOPs depend on the tokens",
    "megatron-bert": _ENCODER,
    "minimax_m3_vl_text": _MIXED,
    "mllama_text_model": "some of its layers attend to the image only",
    "moshi": "it predicts several codebooks by a second transformer",
    "musicgen": "it predicts several codebooks",
    "musicgen_melody": "it predicts several codebooks",
    "openai-gpt": "transformers runs it without a cache",
    "prophetnet": "it predicts several tokens at once",
    "qwen4_exp_text": _MIXED,
    "recurrent_gemma": "it keeps its states in its modules, not in the cache",
    "reformer": "its attention hashes tokens into buckets",
    "rembert": _ENCODER,
    "roberta-prelayernorm": _ENCODER,
    "roc_bert": _ENCODER,
    "roformer": _ENCODER,
    "rwkv": _MIXED,
    "xlm": _ENCODER,
    "xlm-roberta-xl": _ENCODER,
    "xlnet": "its attention is bidirectional over permutations",
    "xlstm": _MIXED,
    "xmod": _ENCODER,
    "zamba": "its attention layers share weights",
    "zamba2": "its attention layers share weights",
    "zaya": _MIXED,
}
"""Model types that transformers 5.24 knows and the closed form refuses, with the reason."""
