"""What a model is made of, read from a Hugging Face config without torch or transformers.

Only families whose weights are known to the last tensor are read here; anything else is an error
that names `model_type`, never a generic guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kernelroof.models.errors import ConfigError
from kernelroof.models.layers import Attention, LayerGroup, Linear, attention
from kernelroof.models.quantised import Quantised, quantised


class ModelSpec(NamedTuple):
    """A decoder: its layers in groups that are alike, the embedding table and the head. Sizes are element counts.

    `tied` means that the head multiplies by the embedding table, so its parameters are held once.
    `vectors` are parameters outside the layers that multiply nothing (the last norm).
    """

    name: str
    model_type: str
    groups: tuple[LayerGroup, ...]
    hidden: int
    vocab: int
    table: int
    head: Linear
    tied: bool
    vectors: int
    max_positions: int
    dtype: str
    quantised: Quantised | None

    @property
    def layers(self) -> int:
        return sum(g.layers for g in self.groups)

    @property
    def attention(self) -> Attention | None:
        """The attention that sees most: a full one before a windowed one; None without any."""
        cores = [g.attention for g in self.groups if g.attention]
        return next((c for c in cores if c.window is None), cores[0] if cores else None)

    @property
    def heads(self) -> int:
        return self.attention.heads if self.attention else 0

    @property
    def kv_heads(self) -> int:
        return self.attention.kv_heads if self.attention else 0

    @property
    def head_dim(self) -> int:
        return self.attention.head_dim if self.attention else 0


class _Family(NamedTuple):
    """What a model type fixes in code and its config does not say."""

    qkv_bias: str | bool  # a bool, or the config field that decides
    output_bias: str | bool
    mlp_bias: str | bool
    qk_norm: bool


_FAMILIES: dict[str, _Family] = {
    "llama": _Family("attention_bias", "attention_bias", "mlp_bias", False),
    "mistral": _Family(False, False, False, False),
    "qwen2": _Family(True, False, False, False),
    "qwen3": _Family("attention_bias", "attention_bias", False, True),
    "qwen3_vl_text": _Family("attention_bias", "attention_bias", False, True),
}

_DTYPES = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "half": "float16",
}


def known_families() -> tuple[str, ...]:
    """Model types that the closed form knows."""
    return tuple(sorted(_FAMILIES))


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a config that describes the language model.

    Wrappers (vision-language models) keep it under `text_config`; what the wrapper says about
    dtype, tying and quantisation applies where the inner part is silent.
    """
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return config
    outer = {
        k: config[k] for k in ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config") if k in config
    }
    return {**outer, **inner}


def read_spec(config: Mapping[str, Any], name: str = "model") -> ModelSpec:
    """Read a model spec from the content of a `config.json`.

    Raises:
        ConfigError: unknown family, missing or senseless field; the message names the field.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"{name}: the config is not a JSON object", "Give the config.json of a Hugging Face model.")
    text = text_config(config)
    model_type = text.get("model_type")
    family = _FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise ConfigError(
            f"{name}: no closed form for model_type {model_type!r}",
            f"Known: {', '.join(known_families())}.",
        )
    hidden = _size(text, "hidden_size", name)
    heads = _size(text, "num_attention_heads", name)
    kv_heads = _size(text, "num_key_value_heads", name) if text.get("num_key_value_heads") is not None else heads
    if heads % kv_heads:
        raise ConfigError(
            f"{name}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}",
            "Correct one of the two in the config.",
        )
    if text.get("head_dim") is not None:
        head_dim = _size(text, "head_dim", name)
    elif hidden % heads:
        raise ConfigError(
            f"{name}: hidden_size {hidden} is not a multiple of num_attention_heads {heads} and head_dim is absent",
            "Add head_dim to the config.",
        )
    else:
        head_dim = hidden // heads
    if head_dim % 2:
        raise ConfigError(
            f"{name}: head_dim is {head_dim}, and rotary positions turn its elements in pairs",
            "Give an even head_dim (hidden_size / num_attention_heads where it is absent).",
        )
    layers = _size(text, "num_hidden_layers", name)
    wide = _size(text, "intermediate_size", name)
    vocab = _size(text, "vocab_size", name)
    mlp_bias = _decide(family.mlp_bias, text, name)
    group = LayerGroup(
        indices=tuple(range(layers)),
        linears=(
            *_projections(
                hidden,
                heads * head_dim,
                kv_heads * head_dim,
                _decide(family.qkv_bias, text, name),
                _decide(family.output_bias, text, name),
            ),
            Linear("mlp.gate_proj", hidden, wide, mlp_bias),
            Linear("mlp.up_proj", hidden, wide, mlp_bias),
            Linear("mlp.down_proj", wide, hidden, mlp_bias),
        ),
        vectors=2 * hidden + family.qk_norm * 2 * head_dim,
        attention=attention(heads, kv_heads, head_dim, window=_window(text, name)),
        state=None,
        inner=3 * wide,
    )
    return ModelSpec(
        name=name,
        model_type=str(model_type),
        groups=(group,),
        hidden=hidden,
        vocab=vocab,
        table=vocab * hidden,
        head=Linear("lm_head", hidden, vocab),
        tied=_flag(text, "tie_word_embeddings", name),
        vectors=hidden,
        max_positions=_size(text, "max_position_embeddings", name),
        dtype=_dtype(text, name),
        quantised=quantised(text),
    )


def _projections(hidden: int, q_width: int, kv_width: int, bias: bool, output_bias: bool) -> tuple[Linear, ...]:
    """The four projections of ordinary attention."""
    return (
        Linear("self_attn.q_proj", hidden, q_width, bias),
        Linear("self_attn.k_proj", hidden, kv_width, bias),
        Linear("self_attn.v_proj", hidden, kv_width, bias),
        Linear("self_attn.o_proj", q_width, hidden, output_bias),
    )


def _size(config: Mapping[str, Any], field: str, name: str) -> int:
    value = config.get(field)
    if value is None:
        raise ConfigError(f"{name}: the config has no {field}", "Add it, or give the model's own config.json.")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{name}: {field} is {value!r}, not a whole number of at least 1", "Correct it in the config."
        )
    return value


def _flag(config: Mapping[str, Any], field: str, name: str) -> bool:
    value = config.get(field, False)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: {field} is {value!r}, not true or false", "Correct it in the config.")
    return value


def _decide(rule: str | bool, config: Mapping[str, Any], name: str) -> bool:
    return rule if isinstance(rule, bool) else _flag(config, rule, name)


def _dtype(config: Mapping[str, Any], name: str) -> str:
    value = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    known = _DTYPES.get(str(value).removeprefix("torch."))
    if known is None:
        raise ConfigError(
            f"{name}: torch_dtype {value!r} is not one of {', '.join(sorted(set(_DTYPES.values())))}",
            "Correct it in the config.",
        )
    return known


def _window(config: Mapping[str, Any], name: str) -> int | None:
    """The attention window, where the config switches one on."""
    if config.get("use_sliding_window") is False or config.get("sliding_window") is None:
        return None
    return _size(config, "sliding_window", name)
