"""Shapes of kernels, the least work each must do, and the rough time that its tiling takes on a GPU.

The rough time has few terms, each with a cause: a floor, whole waves of tiles over the SMs, bytes through memory.
It leaves out what a kernel library decides; `efficiency.py` corrects it with what was measured.
"""

# Annotations are not postponed here: NamedTuple would compile each at import, half of the time that importing takes.

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
    first = context - queries + 1  # tokens that the first query sees without a window
    if window >= context:
        pairs, read = queries * (first + context) // 2, context
    else:
        growing = max(0, window - first + 1)  # queries that see no more tokens than the window
        pairs = growing * (first + window) // 2 + (queries - growing) * window
        read = min(context, window + queries - 1)
    moved = batch * dim * (2 * heads * queries * _OUT_BYTES + 2 * kv_heads * read * kv_bytes)
    return Work(4 * batch * heads * dim * pairs, moved)


class Rough(NamedTuple):
    """The rough time of a kernel, and where it stands on the three axes of its table."""

    seconds: float
    place: tuple[float, float, float]


def gemm_rough(shape: Gemm, work: Work, chip: Chip, terms: tuple[float, ...]) -> Rough:
    """Whole waves of the best tile, or bytes through memory, whichever lasts longer, over a floor.

    Stands at m, n and k.
    """
    overhead_us, memory, large, middle, small, split_us, narrow_us, narrow = terms
    m, n, k, _, quantised = shape
    sms, flop_s, byte_s = chip
    unit = 2 * k * sms / flop_s
    tall, wide = -(-m // 128), -(-n // 128)
    # Few tokens take narrower tiles: padding them to 64 rows would cost a GPU with little compute its bandwidth.
    height = 64 if m > 48 else -(-m // 16) * 16
    best = work.moved_bytes / (byte_s * memory)
    fastest = 1e9
    for tiles, tile_s in (
        (min(tall * -(-n // 256), -(-m // 256) * wide), 32768 * unit / large),
        (tall * wide, 16384 * unit / middle),
        (-(-m // height) * wide, height * 128 * unit / small),
    ):
        busy = -(-tiles // sms) * tile_s
        if 2 * tiles <= sms and k >= 2 * _SPLIT_LENGTH:
            parts = min(sms // tiles, k // _SPLIT_LENGTH)
            # Partial sums are written and read back in 32 bits, mostly through the cache.
            split = tile_s / parts + split_us * 1e-6 + parts * m * n * 4 / byte_s
            if split < busy:
                busy = split
        if busy < fastest:
            fastest = busy
    if fastest > best:
        best = fastest
    best += overhead_us * 1e-6
    if quantised:
        best += narrow_us * 1e-6 + m * k * 3 / (byte_s * narrow)
    return Rough(best, (m, n, k))


def prefill_rough(shape: Attention, work: Work, chip: Chip, terms: tuple[float, ...]) -> Rough:
    """All tiles spread over the SMs, or the longest tile alone, or bytes through memory, over a floor.

    Stands at queries, tiles per SM and heads per KV head.
    """
    overhead_us, memory, compute, tile_us, longest = terms
    batch, queries, context, heads, kv_heads, dim, _, window = shape
    sms, flop_s, byte_s = chip
    group = heads / kv_heads
    tiles = -(-queries * heads // (kv_heads * _TILE_ROWS)) * kv_heads * batch / sms
    mean = work.flops / (4 * batch * heads * dim * queries)
    seen = min(mean + _TILE_ROWS / (2 * group) + 64, context + 127)
    furthest = -(-min(window + _TILE_ROWS / group, context) // 128) * 128
    token_s = 4 * _TILE_ROWS * dim * sms / (flop_s * compute)
    spread = tiles * (seen * token_s + tile_us * 1e-6)
    alone = furthest * token_s * longest + tile_us * 1e-6
    seconds = overhead_us * 1e-6 + max(spread, alone, work.moved_bytes / (byte_s * memory))
    return Rough(seconds, (queries, tiles, group))


def decode_rough(shape: Attention, work: Work, chip: Chip, terms: tuple[float, ...]) -> Rough:
    """Bytes through memory, and a fixed cost for every wave of blocks, over a floor.

    Stands at context, blocks per SM and heads per KV head. One block holds the queries of up to 64 heads that
    share a KV head.
    """
    overhead_us, memory, wave_us = terms
    batch, _, context, heads, kv_heads, dim, _, _ = shape
    blocks = batch * kv_heads * -(-heads // (kv_heads * 64))
    fixed_us = overhead_us + -(-blocks // chip.sms) * wave_us * dim / 128
    seconds = fixed_us * 1e-6 + work.moved_bytes / (chip.byte_s * memory)
    return Rough(seconds, (context, blocks / chip.sms, heads / kv_heads))


class Kind(NamedTuple):
    """One kind of kernel: names of its terms and axes, and how a shape becomes work and rough time."""

    terms: tuple[str, ...]
    axes: tuple[str, str, str]
    work: Callable[..., Work]
    rough: Callable[..., Rough]


KINDS = {
    "gemm": Kind(
        ("overhead_us", "memory", "tile_large", "tile_middle", "tile_small", "split_us", "narrow_us", "narrow"),
        ("m", "n", "k"),
        gemm_work,
        gemm_rough,
    ),
    "prefill": Kind(
        ("overhead_us", "memory", "compute", "tile_us", "longest"),
        ("queries", "tiles_per_sm", "group"),
        attention_work,
        prefill_rough,
    ),
    "decode": Kind(
        ("overhead_us", "memory", "wave_us"),
        ("context", "blocks_per_sm", "group"),
        attention_work,
        decode_rough,
    ),
}
"""Shares (memory, compute, tile_*) are of the datasheet's peak."""
