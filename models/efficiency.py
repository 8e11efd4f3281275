"""The expected time of one kernel on a GPU: what well-tuned kernels took when they were measured, not the ideal.

Learned from latencies of vLLM's kernels (`efficiency.csv` names the source) on A100, H100 and H200 SXM. Those are
times on the device, back to back: without host time, launches or gaps. Eager Hugging Face is slower; what the host
adds is a term of its own (`host_floor.py`). Rows in fp8 and fp8_block are linear layers as a server runs them, with
the narrowing of the activations.

A GPU of the same architecture that nobody measured borrows the corrections under its own peaks and is marked
`transferred`, with the wider band that was seen between two measured GPUs. Any other gets a reason, not a guess.
"""

# Annotations are not postponed here: NamedTuple would compile each at import, half of the time that importing takes.

from typing import NamedTuple

from kernelroof.models.efficiency_table import EfficiencyTable, kind_of, shipped_table
from kernelroof.models.errors import UsageError
from kernelroof.models.kernel_work import KINDS, Attention, Gemm

STATEMENT = (
    "expected times are those of vLLM's kernels on the device, without host time: eager Hugging Face is slower, "
    "and the host's floor is a term of its own"
)

_BYTES = {"bfloat16": 2, "fp8": 1, "fp8_block": 1}
_SAME_AS = {"float16": "bfloat16"}
"""Same width, same peak, same kernels up to the type: half precision was not measured on its own."""
_PEAKS = {"fp8": "fp8", "fp8_block": "fp8"}
"""Narrow formats, whose activations are narrowed first, and the peak that they run at."""


class Expected(NamedTuple):
    """What to expect of a kernel. `low_s` to `high_s` holds about 80 % of measured kernels like it."""

    seconds: float
    low_s: float
    high_s: float
    ideal_s: float
    transferred: bool
    """learned on another GPU of the same architecture"""
    extrapolated: bool
    """outside the measured sizes: the correction of the nearest measured size was taken"""

    @property
    def efficiency(self) -> float:
        """Ideal over expected time."""
        return self.ideal_s / self.seconds


class NotLearned(NamedTuple):
    """Why there is no expectation; the ideal time where the GPU and dtype are known to the table."""

    reason: str
    ideal_s: float | None


def expected_gemm(
    gpu_key: str, dtype: str, m: int, n: int, k: int, table: EfficiencyTable | None = None
) -> Expected | NotLearned:
    """Return what to expect of a product of m x k activations and k x n weights.

    Args:
        gpu_key: key of the GPU table, such as `h100-sxm`.
        dtype: bfloat16, float16, fp8 (one scale per row) or fp8_block (one per block).
        table: another table than the shipped one.

    Raises:
        UsageError: a size below 1.
    """
    if m < 1 or n < 1 or k < 1:
        raise UsageError(f"a product of {m} x {k} and {k} x {n} has no size", "Give sizes of at least 1.")
    dtype = _SAME_AS.get(dtype, dtype)
    shape = Gemm(m, n, k, _BYTES.get(dtype, 2), dtype in _PEAKS)
    return expected(table or shipped_table(), gpu_key, f"gemm {dtype}", shape, dtype)


def expected_attention(
    gpu_key: str,
    phase: str,
    batch: int,
    queries: int,
    context: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: str,
    kv_dtype: str,
    window: int | None = None,
    table: EfficiencyTable | None = None,
) -> Expected | NotLearned:
    """Return what to expect of causal attention of one layer.

    Args:
        phase: prefill or decode (one query per sequence).
        queries: new tokens per sequence.
        context: tokens attended to, the new ones included.
        window: tokens that a query sees at most, itself included; None without a sliding window.

    Raises:
        UsageError: sizes that make no attention.
    """
    if min(batch, queries, kv_heads, head_dim) < 1 or context < queries or heads < kv_heads or heads % kv_heads:
        raise UsageError(
            f"no attention has batch {batch}, {queries} queries, context {context}, {heads} heads, "
            f"{kv_heads} KV heads, head size {head_dim}",
            "Give sizes of at least 1, a context that includes the queries, and heads in whole groups.",
        )
    if phase not in ("prefill", "decode"):
        raise UsageError(f"unknown phase {phase!r}", "Use prefill or decode.")
    dtype, kv_dtype = _SAME_AS.get(dtype, dtype), _SAME_AS.get(kv_dtype, kv_dtype)
    # A window that covers the context is none: kernels drop it, too.
    windowed = window is not None and 0 < window < context
    seen = window if window is not None and windowed else context
    shape = Attention(batch, queries, context, heads, kv_heads, head_dim, _BYTES.get(kv_dtype, 2), seen)
    name = attention_table(phase, head_dim, kv_dtype, windowed)
    if dtype != "bfloat16":
        return NotLearned(f"attention in {dtype} was not measured", None)
    if phase == "decode" and queries > 1:
        return NotLearned("decode with several queries per sequence was not measured", None)
    return expected(table or shipped_table(), gpu_key, name, shape, dtype)


def attention_table(phase: str, head_dim: int, kv_dtype: str, windowed: bool) -> str:
    """Name of the table of one kind of attention."""
    return f"{phase} d{head_dim} kv-{kv_dtype} {'window' if windowed else 'full'}"


def expected(
    table: EfficiencyTable, gpu_key: str, name: str, shape: Gemm | Attention, dtype: str
) -> Expected | NotLearned:
    """Return what to expect of a shape by the corrections called `name`; `dtype` is what it computes in."""
    gpu = table.gpus.get(gpu_key)
    if gpu is None:
        return NotLearned(f"no kernel was measured on {gpu_key} or another GPU of its architecture", None)
    chip = gpu.chips.get(_PEAKS.get(dtype, dtype))
    if chip is None:
        return NotLearned(f"{gpu_key} has no peak for {dtype}", None)
    kind_name = kind_of(name)
    kind = KINDS[kind_name]
    work = kind.work(shape)
    ideal = max(work.flops / chip.flop_s, work.moved_bytes / chip.byte_s)
    found = table.corrections.get((gpu.like, name))
    if found is None:
        return NotLearned(f"{name} was not measured on {gpu.like}", ideal)
    rough, place = kind.rough(shape, work, chip, found.terms)
    factor, extrapolated = found.factor(place)
    seconds = rough * factor
    # What fits the last-level cache may be read from there, faster than memory delivers; nothing else may.
    least = 0.0 if work.moved_bytes <= gpu.l2_bytes else ideal
    if seconds < least:
        seconds = least
    low, high = found.band(place[0], seconds)
    transferred = gpu.like != gpu_key
    if transferred:
        lowest, highest = table.transfer[name]
        low, high = min(low, lowest), max(high, highest)
    if found.windows and isinstance(shape, Attention):
        extrapolated = extrapolated or shape.window not in found.windows
    if isinstance(shape, Attention) and kind_name == "prefill" and shape.queries != shape.context:
        extrapolated = True
    return Expected(seconds, max(seconds * low, least), max(seconds * high, least), ideal, transferred, extrapolated)
