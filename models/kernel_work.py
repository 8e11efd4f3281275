"""Shapes of kernels, the least work each must do, and the rough time that its tiling takes on a GPU.

The rough time has few terms, each with a cause: a floor, whole waves of tiles over the SMs, bytes through memory.
It leaves out what a kernel library decides; `efficiency.py` corrects it with what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_OUT_BYTES = 2
"""Results, queries and activations are 16 bits wide whatever the operands are."""

_TILE_ROWS = 128
"""Rows of queries that one block of an attention kernel holds."""

_SPLIT_LENGTH = 256
"""The least length of k that is worth a block of its own."""


class Chip(NamedTuple):
    """What a kernel meets on a GPU, at the peak of its dtype."""

    sms: int
    flop_s: float
    byte_s: float


class Gemm(NamedTuple):
    """A product of m x k activations and k x n weights."""

    m: int
    n: int
    k: int
    element_bytes: int
    quantised: bool
    """activations arrive in 16 bits and are narrowed first, as part of the layer"""


class Attention(NamedTuple):
    """Causal attention of the last `queries` tokens of each sequence to its whole context."""

    batch: int
    queries: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_bytes: int
    window: int
    """tokens that a query sees at most; at least `context` when there is no window"""


class Work(NamedTuple):
    """The least that must be done: every operand read once, every result written once, FMA = 2 FLOP."""

    flops: int
    moved_bytes: int


def gemm_work(shape: Gemm) -> Work:
    """Return FLOPs and bytes of a matrix product."""
    m, n, k, size, _ = shape
    return Work(2 * m * n * k, (m * k + k * n) * size + m * n * _OUT_BYTES)


def attention_work(shape: Attention) -> Work:
    """Return FLOPs and bytes of attention; the mask and the window cap what is computed and read."""
    batch, queries, context, heads, kv_heads, dim, kv_bytes, window = shape
    read = min(context, window + queries - 1)
    moved = batch * dim * (2 * heads * queries * _OUT_BYTES + 2 * kv_heads * read * kv_bytes)
    return Work(4 * batch * heads * dim * _pairs(shape), moved)


def _pairs(shape: Attention) -> int:
    """How many query-key pairs one head of one sequence computes."""
    first = shape.context - shape.queries + 1
    growing = max(0, min(shape.context, shape.window) - first + 1)
    """queries that see fewer tokens than the window"""
    return growing * (2 * first + growing - 1) // 2 + (shape.queries - growing) * min(shape.window, shape.context)


def gemm_seconds(shape: Gemm, chip: Chip, terms: tuple[float, ...]) -> float:
    """Whole waves of the best tile, or bytes through memory, whichever lasts longer, over a floor."""
    overhead_us, memory, large, middle, small, split_us, narrow_us, narrow = terms
    m, n, k, size, quantised = shape
    sms, flop_s, byte_s = chip
    unit = 2 * k * sms / flop_s
    best = 1e9
    for rows, columns, share in ((128, 256, large), (256, 128, large), (128, 128, middle), (64, 128, small)):
        tiles = -(-m // rows) * -(-n // columns)
        tile_s = rows * columns * unit / share
        busy = -(-tiles // sms) * tile_s
        if 2 * tiles <= sms and k >= 2 * _SPLIT_LENGTH:
            parts = min(sms // tiles, k // _SPLIT_LENGTH)
            # Partial sums are written and read back in 32 bits, mostly through the cache.
            busy = min(busy, tile_s / parts + split_us * 1e-6 + parts * m * n * 4 / byte_s)
        if busy < best:
            best = busy
    moved = (m * k + k * n) * size + m * n * _OUT_BYTES
    kernel = max(best, moved / (byte_s * memory)) + overhead_us * 1e-6
    if not quantised:
        return kernel
    return kernel + narrow_us * 1e-6 + m * k * 3 / (byte_s * narrow)


def prefill_seconds(shape: Attention, chip: Chip, terms: tuple[float, ...]) -> float:
    """All tiles spread over the SMs, or the longest tile alone, or bytes through memory, over a floor."""
    overhead_us, memory, compute, tile_us, longest = terms
    batch, queries, context, heads, kv_heads, dim, _, window = shape
    group = heads / kv_heads
    tiles = -(-queries * heads // (kv_heads * _TILE_ROWS)) * kv_heads * batch
    seen = min(_pairs(shape) / queries + _TILE_ROWS / (2 * group) + 64, context + 127)
    furthest = -(-min(window + _TILE_ROWS / group, context) // 128) * 128
    token_s = 4 * _TILE_ROWS * dim * chip.sms / (chip.flop_s * compute)
    spread = tiles / chip.sms * (seen * token_s + tile_us * 1e-6)
    alone = furthest * token_s * longest + tile_us * 1e-6
    moved = attention_work(shape).moved_bytes / (chip.byte_s * memory)
    return overhead_us * 1e-6 + max(spread, alone, moved)


def decode_seconds(shape: Attention, chip: Chip, terms: tuple[float, ...]) -> float:
    """Bytes through memory, and a fixed cost for every wave of blocks, over a floor."""
    overhead_us, memory, wave_us = terms
    waves = -(-_decode_blocks(shape) // chip.sms)
    moved = attention_work(shape).moved_bytes / (chip.byte_s * memory)
    return (overhead_us + waves * wave_us * shape.head_dim / 128) * 1e-6 + moved


def _decode_blocks(shape: Attention) -> int:
    """One block holds the queries of all heads that share a KV head, up to 64."""
    return shape.batch * shape.kv_heads * -(-shape.heads // (shape.kv_heads * 64))


def gemm_place(shape: Gemm, chip: Chip) -> tuple[float, ...]:
    """Where a product stands in its table."""
    return shape[:3]


def prefill_place(shape: Attention, chip: Chip) -> tuple[float, ...]:
    """Where a prefill stands in its table: queries, tiles per SM, heads per KV head."""
    tiles = -(-shape.queries * shape.heads // (shape.kv_heads * _TILE_ROWS)) * shape.kv_heads * shape.batch
    return shape.queries, tiles / chip.sms, shape.heads / shape.kv_heads


def decode_place(shape: Attention, chip: Chip) -> tuple[float, ...]:
    """Where a decode step stands in its table: context, blocks per SM, heads per KV head."""
    return shape.context, _decode_blocks(shape) / chip.sms, shape.heads / shape.kv_heads


class Kind(NamedTuple):
    """One kind of kernel: names of its terms and axes, and how a shape becomes work, place and rough time."""

    terms: tuple[str, ...]
    axes: tuple[str, str, str]
    work: Callable[..., Work]
    place: Callable[..., tuple[float, ...]]
    seconds: Callable[..., float]


KINDS = {
    "gemm": Kind(
        ("overhead_us", "memory", "tile_large", "tile_middle", "tile_small", "split_us", "narrow_us", "narrow"),
        ("m", "n", "k"),
        gemm_work,
        gemm_place,
        gemm_seconds,
    ),
    "prefill": Kind(
        ("overhead_us", "memory", "compute", "tile_us", "longest"),
        ("queries", "tiles_per_sm", "group"),
        attention_work,
        prefill_place,
        prefill_seconds,
    ),
    "decode": Kind(
        ("overhead_us", "memory", "wave_us"),
        ("context", "blocks_per_sm", "group"),
        attention_work,
        decode_place,
        decode_seconds,
    ),
}
"""Shares (memory, compute, tile_*) are of the datasheet's peak."""
