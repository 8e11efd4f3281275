"""The expected time of a phase: every product and attention by measured kernels of its kind, size and GPU.

`kernelroof.models.efficiency` knows single kernels; here a model's layers are laid out into them, as Hugging
Face runs them (one product per matrix). What was not measured (packed weights, routed experts in one fused
kernel, recurrences) takes its ideal time, and the share that rests on measurements is said. Elementwise
kernels are not in it, nor is the host: see `launches_per_step`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernelroof.models.coefficients import cache_bytes, formats_of
from kernelroof.models.dtypes import BITS
from kernelroof.models.efficiency import Expected, NotLearned, expected_attention, expected_gemm
from kernelroof.models.estimate import distinct_experts
from kernelroof.models.formats import Format
from kernelroof.models.layers import Linear
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload, precision_of

EAGER_LAUNCHES = {"layer": 40, "besides": 22}
"""Kernels of one forward of eager Llama in transformers 5.24, traced: per layer 7 products, 1 attention and 32 of
norms, rotary embedding, cache, activation and residuals; besides them embedding, mask, last norm, head, sampling."""


_MEASURED_FORMATS = {"fp8": "fp8", "fp8-static": "fp8", "fp8-channel": "fp8"}
"""Formats whose products were measured as such, and the name of their measurements. Those of block-scaled fp8 are
left out: none took less than 60 microseconds, which is the host's time and not the kernels'."""


class PartTime(NamedTuple):
    """What one kind of kernel adds to a phase: expected seconds, and those at its own roofs."""

    seconds: float
    ideal_s: float


class PhaseTime(NamedTuple):
    """Expected time of one phase on the device, and of the same kernels at their roofs; seconds."""

    seconds: float
    low_s: float
    high_s: float
    ideal_s: float
    """Sum of the kernels' own ideal times: kernels do not overlap, so it is at least the phase's ideal."""
    measured_share: float
    """Of the expected time that rests on measured kernels."""
    transferred: bool
    """Some of it was measured on another GPU of the same architecture."""
    reasons: tuple[str, ...]
    """Why the rest has its ideal time."""
    parts: Mapping[str, PartTime]
    """By kind of kernel: why it takes longer than the ideal."""


class _Kernel(NamedTuple):
    """`number` alike kernels: what to expect of one, and its work for where nothing is known."""

    kind: str
    number: float
    expected: Expected | NotLearned
    flops: float
    bytes: float
    compute: str | None = None
    """Class of quantised operands, see `kernelroof.models.formats`."""


def expected_phase(
    spec: ModelSpec,
    workload: Workload,
    gpu_key: str,
    phase: str,
    *,
    flop_s: float,
    byte_s: float,
    context: int = 0,
    quantised_peaks: Mapping[str, float] | None = None,
) -> PhaseTime | None:
    """What to expect of a prefill, or of a decode step.

    Args:
        phase: "prefill" or "decode".
        flop_s, byte_s: the GPU's peaks, for what was not measured.
        context: tokens that a decode step sees, its own among them; 0: prompt + 1.
        quantised_peaks: peaks (FLOP/s) of products of quantised operands, by class.

    Returns None where nothing of it was measured on this GPU or one of its architecture.
    """
    seen = context or workload.prompt + 1
    seconds = low = high = ideal = measured = 0.0
    transferred, reasons = False, []
    parts: dict[str, PartTime] = {}
    for kernel in _kernels(spec, workload, gpu_key, phase, seen):
        peak = (quantised_peaks or {}).get(kernel.compute or "", flop_s)
        floor = max(kernel.flops / peak, kernel.bytes / byte_s)
        if isinstance(kernel.expected, NotLearned):
            time = Expected(floor, floor, floor, floor, transferred=False, extrapolated=False)
            if kernel.expected.reason not in reasons:
                reasons.append(kernel.expected.reason)
        else:
            time = kernel.expected
            measured += kernel.number * time.seconds
        seconds += kernel.number * time.seconds
        low += kernel.number * time.low_s
        high += kernel.number * time.high_s
        ideal += kernel.number * time.ideal_s
        transferred |= time.transferred
        so_far = parts.get(kernel.kind, PartTime(0, 0))
        parts[kernel.kind] = PartTime(
            so_far.seconds + kernel.number * time.seconds, so_far.ideal_s + kernel.number * time.ideal_s
        )
    if not measured:
        return None
    return PhaseTime(seconds, low, high, ideal, measured / seconds, transferred, tuple(reasons), parts)


def launches_per_step(spec: ModelSpec) -> int:
    """Kernels that eager Hugging Face launches in one forward, about: as many per layer as Llama's."""
    return EAGER_LAUNCHES["layer"] * spec.layers + EAGER_LAUNCHES["besides"]


def _kernels(spec: ModelSpec, workload: Workload, gpu_key: str, phase: str, seen: int) -> Iterator[_Kernel]:
    prefill = phase == "prefill"
    queries = workload.prompt if prefill else 1
    tokens = workload.batch * queries
    logits = workload.batch * (workload.prompt if prefill and workload.head == "all" else 1)
    formats = precision_of(spec, workload)
    unit = BITS[workload.dtype] // 8
    for group in spec.groups:
        for linear in group.linears:
            if not linear.run:
                continue
            rows = {
                "token": tokens,
                "logit": logits,
                "context": workload.batch * (workload.prompt if prefill else seen),
            }
            counts: Counter[Format] = Counter()
            for layers, held in formats_of(group, linear, formats):
                counts[held] += layers
            for held, layers in counts.items():
                yield _product(linear, layers, rows[linear.per], gpu_key, held, workload.dtype)
        core = group.attention
        if core is not None:
            context = workload.prompt if prefill else seen
            visible = context if core.window is None else min(context, core.window)
            pairs = visible if not prefill else (workload.prompt + 1) / 2
            kept = visible * cache_bytes(core, core.read_width, formats.kv)
            moved = workload.batch * (queries * core.heads * (core.head_dim + core.value_dim) * unit + kept)
            known: Expected | NotLearned
            if core.head_dim == core.value_dim and core.read_width == 2 * core.kv_heads * core.head_dim:
                known = expected_attention(
                    gpu_key,
                    phase,
                    workload.batch,
                    queries,
                    context,
                    core.heads,
                    core.kv_heads,
                    core.head_dim,
                    workload.dtype,
                    workload.kv_dtype,
                    core.window,
                )
            else:
                known = NotLearned("attention over a latent or shared cache was not measured", None)
            per_pair = 2 * core.heads * (core.head_dim + core.value_dim) + core.more_flops
            yield _Kernel("attention", group.layers, known, workload.batch * per_pair * queries * pairs, moved)
        if group.state is not None:
            state = workload.batch * 2 * group.state.elements * (group.state.bits or 8 * unit) / 8
            known = NotLearned("recurrences were not measured", None)
            yield _Kernel("recurrences", group.layers, known, tokens * group.state.scan_flops, state)
    head = spec.head
    yield _product(head, 1, logits, gpu_key, formats.head_format, workload.dtype)._replace(kind="head")


def _product(linear: Linear, layers: int, rows: int, gpu_key: str, held: Format, run: str) -> _Kernel:
    """A matrix's product in all layers of its group; routed experts share the rows among those that are met."""
    count: float = layers
    unit = BITS[run] // 8
    if linear.copies > 1:
        met = linear.copies if linear.dense else distinct_experts(linear.copies, linear.used, rows)
        rows = max(1, round(rows * linear.run / met))
        count = layers * met
    known: Expected | NotLearned
    if linear.copies > 1:
        known = NotLearned("routed experts were not measured", None)
    elif held.name == run:
        known = expected_gemm(gpu_key, run, rows, linear.outputs, linear.inputs)
    elif held.name in _MEASURED_FORMATS:
        known = expected_gemm(gpu_key, _MEASURED_FORMATS[held.name], rows, linear.outputs, linear.inputs)
    else:
        known = NotLearned(f"products with weights in {held.name} were not measured", None)
    # As in the estimate: what is applied to the whole cache again is not counted as a quantised product.
    compute = held.compute if linear.per == "token" and linear.bits is None else None
    kind = "routed experts" if linear.copies > 1 else "products"
    stored = held.matrix_bytes(linear.inputs, linear.outputs)
    moved = stored + rows * (linear.inputs + linear.outputs) * unit
    return _Kernel(kind, count, known, 2 * rows * linear.elements, moved, compute)
