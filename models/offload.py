"""Weights and cache outside the GPU's memory: what each tier of storage costs per token.

A tier's bandwidth is what a stream from it to the GPU gets at most: the slower of the tier itself and of
the link that it passes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kernelroof.models.coefficients import Coefficients
from kernelroof.models.estimate import distinct_experts


class Tier(NamedTuple):
    """A place to keep bytes."""

    name: str
    byte_s: float
    """Of the tier itself, in B/s."""
    via_link: bool
    """Whether its bytes cross the GPU's host link."""
    note: str


TIERS = (
    Tier("host memory", 100e9, True, "two channels of DDR5-6400: 102 GB/s; a server's eight to twelve give 300 to 600"),
    Tier("NVMe", 7e9, True, "sequential reads of a PCIe 4.0 x4 drive"),
    Tier("disk", 0.2e9, True, "sequential reads of a hard disk"),
)
"""Typical figures; every command that uses them takes the user's own."""


def stream_byte_s(tier: Tier, link_byte_s: float) -> float:
    """What a stream from the tier gets: B/s."""
    return min(tier.byte_s, link_byte_s) if tier.via_link else tier.byte_s


def streamed_bytes(model: Coefficients, excess_bytes: float, tokens: int) -> float:
    """What a forward of `tokens` tokens reads of weights outside the GPU, `excess_bytes` of them.

    Routed experts go out first: of them only those are read that a token meets.
    """
    held = sum(e.experts * e.bytes_each for e in model.experts)
    read = sum(distinct_experts(e.experts, e.used, tokens) * e.bytes_each for e in model.experts)
    routed = min(max(excess_bytes, 0.0), held)
    return max(excess_bytes, 0.0) - routed + (routed * read / held if held else 0.0)


class Offload(NamedTuple):
    """Weights that do not fit, streamed from a tier in every forward that reads them."""

    tier: str
    streamed_bytes: float
    stream_s: float
    step_s: float
    """A decode step with the stream hidden behind everything else, as far as it goes."""
    slowdown: float
    """Over the same step with all weights in the GPU's memory."""


def offload(tier: Tier, *, streamed: float, step_s: float, link_byte_s: float) -> Offload:
    """A decode step of `step_s` seconds when `streamed` bytes of its weights come from `tier` each time."""
    stream_s = max(streamed, 0.0) / stream_byte_s(tier, link_byte_s)
    total = max(step_s, stream_s)
    return Offload(tier.name, max(streamed, 0.0), stream_s, total, total / step_s)


class ColdCache(NamedTuple):
    """A conversation's cache kept in a tier while it rests."""

    tier: str
    cache_bytes: float
    fetch_s: float
    recompute_s: float
    """A prefill of the same tokens instead."""
    steps_ahead: int
    """Decode steps of the running batch that hide the fetch if it begins that early."""
    pays: bool
    """Whether fetching is faster than computing again."""


def cold_cache(tier: Tier, *, cache_bytes: float, prefill_s: float, step_s: float, link_byte_s: float) -> ColdCache:
    """Fetching a resting cache against computing it again, and how early a prefetch must begin."""
    fetch_s = cache_bytes / stream_byte_s(tier, link_byte_s)
    return ColdCache(tier.name, cache_bytes, fetch_s, prefill_s, math.ceil(fetch_s / step_s), fetch_s < prefill_s)


class Paging(NamedTuple):
    """A cache in blocks of a fixed number of tokens."""

    block_tokens: int
    waste_tokens: float
    """Expected empty places in a sequence's last block: (block - 1) / 2 for lengths that end anywhere."""
    waste_share: float
    """Of all places that are allocated."""
    waste_bytes: float
    """Over all sequences."""


def paging(block_tokens: int, *, tokens: int, sequences: int, kv_bytes_per_token: float) -> Paging:
    """Waste of a paged cache whose sequences hold `tokens` tokens on average."""
    waste = (block_tokens - 1) / 2
    return Paging(block_tokens, waste, waste / (tokens + waste), waste * sequences * kv_bytes_per_token)


def contiguous_waste(*, tokens: int, reserved: int) -> float:
    """Share left empty of a cache that is reserved for `reserved` tokens per sequence and holds `tokens`."""
    return 1 - tokens / reserved
