"""Model types that are another one's code, that run it otherwise, or that are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
