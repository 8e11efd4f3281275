"""What of an installed transformers matters to the estimate, without importing it."""

from __future__ import annotations

import functools
import re

LATENT_CACHE_SINCE = (5, 15)
"""From this release on transformers keeps the latent of multi-head latent attention in its cache.

Read off the sources of the releases: 5.14.0 caches expanded keys and values of all heads (DeepSeek V2
and V3, MiniCPM3, Youtu, GLM-4 lite), 5.15.0 and later the latent and the rotated key."""


@functools.cache
def transformers_version() -> str | None:
    """Version of the installed transformers, from its metadata; None without."""
    from importlib import metadata

    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        return None


def keeps_latent(version: str | None) -> bool:
    """Whether that transformers caches the latent; the newest is assumed where none is installed."""
    if version is None:
        return True
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= LATENT_CACHE_SINCE


def latent_note(latent: bool, version: str | None) -> str:
    """Which layout of the latent cache is counted, and why."""
    held = "the latent and the rotated key per token" if latent else "expanded keys and values of all heads"
    why = f"as the installed transformers {version} does" if version else "as transformers 5.15 and later do"
    again = "; all keys and values are made of it anew in every forward, which engines avoid: see `kernelroof advise`"
    return f"latent attention caches {held}, {why}{again if latent else ''}"
