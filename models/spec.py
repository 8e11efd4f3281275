"""What a model is made of, read from a Hugging Face config without torch or transformers.

The reader goes by the config's fields; `kernelroof.models.families` holds what only code says. What it
does not know (an unknown kind of layer or cache, a missing field) is an error that names the field,
never a generic guess.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from kernelroof.models import installed
from kernelroof.models.errors import ConfigError, NoClosedFormError
from kernelroof.models.extra_kinds import outside
from kernelroof.models.families import FAMILIES
from kernelroof.models.family import Family
from kernelroof.models.fields import Fields, shortened
from kernelroof.models.layer_reader import layer_groups, norm_elements
from kernelroof.models.layer_types import layer_count
from kernelroof.models.layers import Attention, LayerGroup, Linear
from kernelroof.models.model_types import REFUSED, SAME_CODE, WRAPPERS
from kernelroof.models.quantised import Quantised, quantised
from kernelroof.models.towers import Tower, read_tower
from kernelroof.models.unknown import generic_family


class ModelSpec(NamedTuple):
    """A decoder: its layers in groups that are alike, the embedding table and the head. Sizes are element counts.

    `tied` means that the head multiplies by the embedding table, so its parameters are held once.
    `vectors` are parameters outside the layers that multiply nothing (the last norm), `linears` matrices
    outside the layers other than the head, and `gathered` further tables of which only rows are read
    (learned positions, embeddings per layer). `eager` means that transformers runs this model with eager
    attention only. `tower` is what a wrapper holds beside the decoder, which decoding text does not
    touch. `notes` say what was assumed. `max_positions` is None where nothing limits the context.
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
    max_positions: int | None
    dtype: str
    quantised: Quantised | None
    linears: tuple[Linear, ...] = ()
    gathered: int = 0
    eager: bool = False
    tower: Tower | None = None
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # Specs are keys of a cache on the estimate's fast path; equal ones agree in these.
        return hash((self.name, self.model_type, self.hidden, self.vocab, self.max_positions))

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


_WRAPPED = ("text_config", "llm_config", "language_config")
_POSITIONS = ("max_position_embeddings", "model_max_length", "context_length", "seq_length", "max_seq_len", "n_ctx")


_DEEPEST = 8
"""Wrappers within wrappers that are followed; real ones have two."""


def text_config(config: Mapping[str, Any], depth: int = 1) -> Mapping[str, Any]:
    """Return the part of a config that describes the language model.

    Wrappers (vision-language models) keep it under `text_config`; what the wrapper says about
    dtype, tying and quantisation applies where the inner part is silent.
    """
    inner = next((config[k] for k in _WRAPPED if isinstance(config.get(k), Mapping)), None)
    if inner is None:
        return config
    if isinstance(inner.get("text_config"), Mapping):
        if depth == _DEEPEST:
            raise ConfigError(f"text_config is nested more than {_DEEPEST} times", "Give the inner config.")
        inner = text_config(inner, depth + 1)
    outer = {
        k: config[k]
        for k in ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config")
        if config.get(k) is not None
    }
    merged = {**outer, **{k: v for k, v in inner.items() if v is not None or k not in outer}}
    if "tie_word_embeddings" in outer:
        # The head is the wrapper's, so its word on tying counts.
        merged["tie_word_embeddings"] = outer["tie_word_embeddings"]
    return merged


def read_spec(config: Mapping[str, Any], name: str = "model", *, latent: bool | None = None) -> ModelSpec:
    """Read a model spec from the content of a `config.json`.

    Args:
        config: the content of a config.json.
        name: the model's name, for messages and records.
        latent: whether the cache of a latent attention holds the latent (True) or expanded heads; None:
            as the installed transformers does.

    Raises:
        ConfigError: unknown family, missing or senseless field; the message names the field.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"{name}: the config is not a JSON object", "Give the config.json of a Hugging Face model.")
    text = text_config(config)
    model_type = text.get("model_type")
    for given in (config.get("model_type"), model_type):
        if given is not None and not isinstance(given, str):
            raise ConfigError(f"{name}: model_type is {shortened(given)}, not a name", "Correct it in the config.")
    if config.get("model_type") in REFUSED:
        model_type = config["model_type"]
    family, notes = _family(text, model_type, name)
    if text is not config and str(config.get("model_type")) in WRAPPERS:
        family = family._replace(**WRAPPERS[str(config.get("model_type"))])
    fields = Fields(text, name, family.aliases, {**defaults_of(model_type), **family.defaults})
    if family.needs and not fields.flag(family.needs):
        raise ConfigError(
            f"{name}: {family.needs} is not true, so that this {model_type} is an encoder, which keeps no cache",
            "Give the config of a decoder.",
        )
    has_latent = fields.has("kv_lora_rank")
    # Asking for the version takes as long as the whole estimate, so only what depends on it asks.
    version = installed.transformers_version() if has_latent and latent is None else None
    latent = installed.keeps_latent(version) if latent is None else latent
    if has_latent:
        notes = (*notes, installed.latent_note(latent, version))
    if family.dense_experts:
        notes = (*notes, "transformers multiplies every token by every expert of this model, and counts so here")
    layers = layer_count(fields)
    hidden, vocab = fields.size("hidden_size"), fields.size("vocab_size")
    groups = layer_groups(fields, family, layers, latent)
    if family.eager and any(g.attention for g in groups):
        notes = (*notes, "transformers runs this model with eager attention only: --attn eager is what really runs")
    rest = outside(fields, layers, family)
    norm = norm_elements(fields, family)
    width = fields.size("word_embed_proj_dim", "embedding_size", default=hidden)
    positions = fields.size(family.positions) + family.position_offset if family.positions else 0
    return ModelSpec(
        name=name,
        model_type=str(model_type),
        groups=groups,
        hidden=hidden,
        vocab=vocab,
        table=vocab * width,
        head=Linear("lm_head", width, vocab, fields.rule(family.head_bias)),
        tied=fields.flag("tie_word_embeddings"),
        vectors=family.last_norm * norm * hidden + rest.vectors,
        max_positions=_max_positions(fields, family, groups),
        dtype=fields.dtype(),
        quantised=quantised(text),
        linears=rest.linears,
        gathered=positions * width + rest.gathered,
        eager=family.eager,
        tower=read_tower(config, text, name),
        notes=notes,
    )


def _family(text: Mapping[str, Any], model_type: Any, name: str) -> tuple[Family, tuple[str, ...]]:
    """The row of the table for a model type, and what was assumed in choosing it."""
    if not isinstance(model_type, str):
        raise ConfigError(f"{name}: the config has no model_type", 'Name the family, e.g. "model_type": "llama".')
    same = SAME_CODE.get(model_type)
    if same is not None:
        return FAMILIES[same], (f"model_type {model_type} is read as {same}, whose code it names or shares",)
    if model_type in FAMILIES:
        note = FAMILIES[model_type].note
        return FAMILIES[model_type], ((note,) if note else ())
    if model_type in REFUSED:
        raise NoClosedFormError(
            f"{name}: no closed form for model_type {model_type!r}: {REFUSED[model_type]}",
            "`kernelroof estimate --traced` runs the module itself on the meta device.",
        )
    return generic_family(text, model_type, name)


@functools.cache
def _all_defaults() -> dict[str, dict[str, Any]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "config_defaults.json")
    with open(path, encoding="utf-8") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found


def defaults_of(model_type: Any) -> Mapping[str, Any]:
    """What transformers 5.24 puts where a config of a known type leaves a field out (`scripts/config_defaults.py`)."""
    return _all_defaults().get(SAME_CODE.get(model_type, model_type), {})


def _max_positions(fields: Fields, family: Family, groups: tuple[LayerGroup, ...]) -> int | None:
    """The longest context; None where positions are not encoded (states, attention biased by distance)."""
    if any(fields.has(f) for f in _POSITIONS):
        return fields.size(*_POSITIONS)
    if family.rotary and any(g.attention for g in groups):
        fields.size("max_position_embeddings")
    return None
