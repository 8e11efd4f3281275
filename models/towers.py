"""The part of a wrapper that is not the decoder: a vision or audio tower, by its config's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Tower(NamedTuple):
    """What a wrapper holds beside the decoder. `parameters` is None where its kind is not known; `reason` says why."""

    kind: str
    parameters: int | None
    reason: str


def read_tower(config: Mapping[str, Any], name: str) -> Tower | None:
    """The towers of a wrapper's config; None without any."""
    found = [k for k in ("vision_config", "audio_config") if isinstance(config.get(k), Mapping)]
    if not found:
        return None
    kinds = ", ".join(str(config[k].get("model_type", k.removesuffix("_config"))) for k in found)
    return Tower(kinds, None, f"its kind ({kinds}) has no closed form")
