"""Caches for models that transformers' own ones do not fit.

Most models take a `DynamicCache` or `StaticCache`. A few make a cache of a class of their own in their first
forward, hand it out with the result and want it back in the next (`OwnCache`). Some have none at all: they run
the whole sequence again for every token (`NoCache`), which is what their generation does.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

CACHE_NAMES = ("cache", "past_key_values")
"""Forward's argument for a cache of transformers: since 5.24, before."""
_OWN_NAMES = ("cache_params", "state", "mems", "past_buckets_states")
"""The argument, and the result's field, of models whose state is no such cache."""

_MAKE_THEIRS = ("BltForCausalLM",)
"""Models that wrap a cache they are given, and lose half of it unless they get the wrapper back."""


class OwnCache:
    """What the model handed out after its last forward, under the name it wants it back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: Any = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the next forward. (`use_mems` is XLNet's word for `use_cache`.)"""
        wanted: dict[str, Any] = {"use_mems": True} if self.name == "mems" else {"use_cache": True}
        return wanted if self.held is None else {**wanted, self.name: self.held}

    def keep(self, result: Any) -> None:
        self.held = result[self.name]


class NoCache:
    """The tokens so far: the model is given all of them in every forward."""

    def __init__(self) -> None:
        self.seen: torch.Tensor | None = None

    def extend(self, input_ids: torch.Tensor) -> torch.Tensor:
        """All tokens up to these."""
        self.seen = input_ids if self.seen is None else torch.cat([self.seen, input_ids], dim=1)
        return self.seen


def special_cache(model: torch.nn.Module) -> OwnCache | NoCache | None:
    """The cache of a model that takes none of transformers' own, or None if it takes one."""
    known = inspect.signature(type(model).forward).parameters
    usual = next((name for name in CACHE_NAMES if name in known), None)
    if usual is not None:
        # transformers knows which models do not take its caches, by name.
        takes = getattr(type(model), "_supports_default_dynamic_cache", lambda: True)()
        return None if takes and type(model).__name__ not in _MAKE_THEIRS else OwnCache(usual)
    own = next((name for name in _OWN_NAMES if name in known), None)
    return NoCache() if own is None else OwnCache(own)


def tensors_of(value: Any, name: str, seen: set[int] | None = None) -> list[tuple[str, torch.Tensor]]:
    """Tensors of two or more dimensions anywhere in a state (lists, dicts, objects), each with its path."""
    seen = set() if seen is None else seen
    if value is None or id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return [(name, value)] if value.dim() > 1 else []
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__"):
        items = vars(value).items()
    return [t for key, item in items for t in tensors_of(item, f"{name}.{key}", seen)]
