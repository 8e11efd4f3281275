"""The part of a wrapper that is not the decoder: a vision or audio tower, by its config's fields.

To add a kind, add a function with `@_kind(model_type, …)` that returns its parameters, the projection
into the decoder's width included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kernelroof.models.errors import ConfigError
from kernelroof.models.fields import Fields


class Tower(NamedTuple):
    """What a wrapper holds beside the decoder. `parameters` is None where it is not known; `reason` says why."""

    kind: str
    parameters: int | None
    reason: str = ""


Reader = Callable[[Fields, int], int]
_READERS: dict[str, Reader] = {}
_CONFIGS = ("vision_config", "audio_config", "vq_config", "audio_encoder_config")


def _kind(*model_types: str) -> Callable[[Reader], Reader]:
    def register(reader: Reader) -> Reader:
        _READERS.update(dict.fromkeys(model_types, reader))
        return reader

    return register


def read_tower(config: Mapping[str, Any], text: Mapping[str, Any], name: str) -> Tower | None:
    """The towers of a wrapper's config; None where the config is a decoder's alone."""
    found = [k for k in _CONFIGS if isinstance(config.get(k), Mapping)]
    if not found:
        if text is config:
            return None
        kind = str(config.get("model_type"))
        if kind in _OUTER:
            return Tower(kind, _OUTER[kind](Fields(config, name), Fields(text, name).size("hidden_size")))
        return Tower(kind, None, "the config has no vision_config or audio_config")
    kinds = [str(config[k].get("model_type") or k.removesuffix("_config")) for k in found]
    total = 0
    for field, kind in zip(found, kinds, strict=True):
        reader = _READERS.get(kind)
        if reader is None:
            return Tower(", ".join(kinds), None, f"no closed form for a tower of model_type {kind}")
        try:
            total += reader(Fields(config[field], f"{name}, {field}"), Fields(text, name).size("hidden_size"))
        except ConfigError as error:
            return Tower(", ".join(kinds), None, error.what)
    return Tower(", ".join(kinds), total)


def _blocks(layers: int, width: int, inner: int) -> int:
    """Transformer blocks with biases, two layer norms with biases, a plain MLP."""
    attention = 4 * width * width + 4 * width
    return layers * (attention + 2 * width * inner + inner + width + 4 * width)


@_kind("qwen3_vl", "qwen3_5", "qwen3_5_moe", "qwen3_vl_moe", "qwen3_5_vision", "qwen3_5_moe_vision")
def _qwen3(fields: Fields, _text_width: int) -> int:
    """Patches of several frames, learned positions, blocks, a merger and one more for each deep-stacked layer."""
    width, inner = fields.size("hidden_size"), fields.size("intermediate_size")
    patch = fields.size("in_channels", default=3) * fields.size("temporal_patch_size") * fields.size("patch_size") ** 2
    merged = width * fields.size("spatial_merge_size") ** 2
    merger = merged * merged + merged + merged * fields.size("out_hidden_size") + fields.size("out_hidden_size")
    stacked = len(fields.numbers("deepstack_visual_indexes"))
    return (
        width * patch
        + width
        + fields.size("num_position_embeddings") * width
        + _blocks(fields.size("depth"), width, inner)
        + merger
        + 2 * width
        + stacked * (merger + 2 * merged)
    )


@_kind("gemma4_vision")
def _gemma4(fields: Fields, text_width: int) -> int:
    """Two tables of positions, gated blocks with four norms, one matrix into the decoder."""
    width, inner, head = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("head_dim")
    queries = fields.size("num_attention_heads") * head
    keys = fields.size("num_key_value_heads", "num_attention_heads") * head
    layer = 2 * width * (queries + keys) + 2 * head + 3 * width * inner + 4 * width
    return (
        2 * fields.size("position_embedding_size") * width
        + 3 * fields.size("patch_size") ** 2 * width
        + fields.size("num_hidden_layers") * layer
        + width * text_width
    )


@_kind("llama4_vision_model")
def _llama4(fields: Fields, text_width: int) -> int:
    """A class token, learned positions, blocks, an adapter on shuffled pixels, one matrix into the decoder."""
    width, inner, patch = fields.size("hidden_size"), fields.size("intermediate_size"), fields.size("patch_size")
    tokens = (fields.size("image_size") // patch) ** 2 + 1
    projected = fields.size("projector_output_dim")
    return (
        (1 + tokens) * width
        + fields.size("num_channels", default=3) * patch**2 * width
        + 4 * width
        + _blocks(fields.size("num_hidden_layers"), width, inner)
        + inner * fields.size("projector_input_dim")
        + projected * projected
        + fields.size("vision_output_dim") * text_width
    )


def _fuyu(fields: Fields, text_width: int) -> int:
    """No tower: patches go through one matrix into the decoder."""
    return text_width * (fields.size("num_channels") * fields.size("patch_size") ** 2 + 1)


_OUTER: dict[str, Reader] = {"fuyu": _fuyu}
"""Wrappers that describe what they add in their own fields."""
