"""Model types that transformers and the table do not know, read by their fields where all of these are understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelroof.models.errors import ConfigError
from kernelroof.models.families import FAMILIES
from kernelroof.models.family import Family

_BLOCKS = Family()
_NEEDED = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "max_position_embeddings")

_UNREAD = (
    "cross_attention_layers",
    "compress_rates",
    "hc_mult",
    "laurel_rank",
    "altup_num_inputs",
    "num_kv_shared_layers",
    "attention_types",
    "attn_config",
    "ssm_cfg",
    "time_mix_extra_dim",
    "zero_expert_num",
    "kv_channels",
    "conv_kernel_size",
    "index_block_size",
    "sparse_attention_config",
    "sparse_config",
    "lightning_attention",
    "linear_attn_config",
    "is_encoder_decoder",
)
"""Fields that mean weights or a cache which the readers here do not know."""


def generic_family(text: Mapping[str, Any], model_type: str, name: str) -> tuple[Family, tuple[str, ...]]:
    """A row for a model type that is in no table, with the assumptions it makes.

    Raises:
        ConfigError: a field that is needed is missing, or one is there that would be ignored.
    """
    missing = [f for f in _NEEDED if text.get(f) is None]
    if missing:
        raise ConfigError(
            f"{name}: no closed form for model_type {model_type!r}, and its config lacks {', '.join(missing)} to be "
            "read by its fields",
            f"Known: {', '.join(sorted(FAMILIES))}.",
        )
    unread = [f for f in _UNREAD if text.get(f)]
    if unread:
        raise ConfigError(
            f"{name}: no closed form for model_type {model_type!r}: {', '.join(unread)} means weights or a cache that "
            "it does not know",
            f"Known: {', '.join(sorted(FAMILIES))}.",
        )
    if text.get("block_configs"):
        return _BLOCKS, (
            f"model_type {model_type} is not part of transformers: read by block_configs, without biases, with a norm "
            "before each half that a block has",
        )
    family = Family(
        "attention_bias",
        "attention_bias",
        "mlp_bias",
        qk_norm="head",
        qk_norm_if="use_qk_norm",
        defaults={"use_sliding_window": True} if text.get("layer_types") else {},
    )
    return family, (
        f"model_type {model_type} is in no table: read by its fields, assuming two norms per layer, a gated MLP, "
        f"{'norms of queries and keys' if text.get('use_qk_norm') else 'no norms of queries and keys'}, biases only "
        "where attention_bias or mlp_bias ask for them, and no layers beyond num_hidden_layers",
    )
