"""The expected time of a phase: every product and attention by measured kernels of its kind, size and GPU.

`kernelroof.models.efficiency` knows single kernels; here a model's layers are laid out into them, as Hugging
Face runs them (one product per matrix, attention by the workload's conventions). What was not measured (packed
weights, routed experts in one fused kernel, recurrences, attention under an explicit mask) takes its ideal time,
and the share that rests on measurements is said. Elementwise kernels are not in it, nor is the host: see
`launches_per_step`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernelroof.models.coefficients import UNBOUNDED, cache_bytes, coefficients, formats_of
from kernelroof.models.dtypes import BITS
from kernelroof.models.efficiency import Expected, NotLearned, expected_attention, expected_gemm
from kernelroof.models.estimate import Flags, distinct_experts, flags_of, prefill_reach
from kernelroof.models.formats import PLAIN, Format
from kernelroof.models.layers import Attention, Linear
from kernelroof.models.precision import Precision
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
        context: tokens that a decode step sees, its own among them; 0: prompt + 1, or all of a static cache.
        quantised_peaks: peaks (FLOP/s) of products of quantised operands, by class, for what was not measured.

    Returns None where nothing of it was measured on this GPU or one of its architecture.
    """
    seen = context or workload.prompt + (workload.output if workload.cache == "static" else 1)
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
    tokens = workload.batch * (workload.prompt if prefill else 1)
    logits = workload.batch * (workload.prompt if prefill and workload.head == "all" else 1)
    rows = {"token": tokens, "logit": logits, "context": workload.batch * (workload.prompt if prefill else seen)}
    formats = precision_of(spec, workload)
    unit = BITS[workload.dtype] // 8
    run = _Run(gpu_key, workload.dtype, unit)
    for group in spec.groups:
        for linear in group.linears:
            if not linear.run:
                continue
            for layers, held in formats_of(group, linear, formats):
                yield _product(linear, layers, rows[linear.per], held, run)
        if group.attention is not None:
            yield _attention(group.attention, group.layers, workload, gpu_key, seen, formats, prefill)
        if group.state is not None:
            elements, bits = group.state.elements, group.state.bits or 8 * unit
            state = workload.batch * 2 * (elements * bits / 8 + group.state.conv_elements * unit)
            known = NotLearned("recurrences were not measured", None)
            yield _Kernel("recurrences", group.layers, known, tokens * group.state.scan_flops, state)
        if group.products:
            known = NotLearned("products between activations were not measured", None)
            yield _Kernel("products", group.layers, known, tokens * group.products, 0)
    for linear in spec.linears:
        yield _product(linear, 1, rows[linear.per], formats.table_format, run)
    yield _product(spec.head, 1, logits, formats.head_format, run)._replace(kind="head")
    if workload.embedding == "streamed":
        table = coefficients(spec, formats).table_bytes
        yield _Kernel("embedding", 1, NotLearned("streaming the embedding table was not measured", None), 0, table)


class _Run(NamedTuple):
    """Where and in which format products run."""

    gpu_key: str
    dtype: str
    unit: int


def _attention(
    core: Attention, layers: int, workload: Workload, gpu_key: str, seen: int, formats: Precision, prefill: bool
) -> _Kernel:
    """The cores of `layers` layers, with the keys and pairs that the workload's conventions count."""
    unit, batch = BITS[workload.dtype] // 8, workload.batch
    known: Expected | NotLearned
    if prefill:
        window = UNBOUNDED if core.window is None else core.window
        reach = prefill_reach(window, 1 - core.masked, workload.prompt, workload.output, flags_of(workload))
        queries, context, keys, pairs = workload.prompt, workload.prompt, reach.keys, reach.pairs
        skipping = prefill_reach(window, 1, workload.prompt, 0, _CAUSAL)
        # One query has nothing to skip, whatever the mask.
        as_measured = pairs == skipping.pairs and keys == context
    else:
        queries, context = 1, seen
        keys = pairs = seen if core.window is None else min(seen, core.window)
        as_measured = True
    if workload.attn == "eager":
        known = NotLearned("eager attention was not measured", None)
    elif core.head_dim != core.value_dim or core.read_width != 2 * core.kv_heads * core.head_dim or core.more_flops:
        known = NotLearned("attention over a latent or shared cache was not measured", None)
    elif not as_measured:
        known = NotLearned(
            "attention under an explicit mask was not measured (--mask causal counts kernels that skip what it hides)",
            None,
        )
    else:
        known = expected_attention(
            gpu_key,
            "prefill" if prefill else "decode",
            batch,
            queries,
            context,
            core.heads,
            core.kv_heads,
            core.head_dim,
            workload.dtype,
            workload.kv_dtype,
            core.window,
        )
    kept = keys * cache_bytes(core, core.read_width, formats.kv)
    moved = batch * (queries * core.heads * (core.head_dim + core.value_dim) * unit + kept)
    each = 2 * core.heads * (core.head_dim + core.value_dim) + core.more_flops
    return _Kernel("attention", layers, known, batch * each * pairs, moved)


_CAUSAL = Flags(causal=1, exact=1, last=1, streamed_table=0, dynamic=0, static=0, eager=0)
"""The conventions of the kernels that were measured."""


def _product(linear: Linear, layers: int, rows: int, held: Format, run: _Run) -> _Kernel:
    """A matrix's product in `layers` layers; routed experts share the rows among those that are met."""
    if linear.bits is not None:
        held = Format(f"{linear.bits} bits", linear.bits)
    stored = held.matrix_bytes(linear.inputs, linear.outputs)
    count, share = float(layers), float(rows)
    known: Expected | NotLearned
    if linear.copies > 1:
        met = linear.copies if linear.dense else distinct_experts(linear.copies, linear.used, rows)
        count, share = layers * met, rows * linear.run / met
        known = NotLearned("routed experts were not measured", None)
    elif held == PLAIN[run.dtype]:
        known = expected_gemm(run.gpu_key, run.dtype, rows, linear.outputs, linear.inputs)
    elif held.name in _MEASURED_FORMATS:
        known = expected_gemm(run.gpu_key, _MEASURED_FORMATS[held.name], rows, linear.outputs, linear.inputs)
    else:
        known = NotLearned(f"products with weights in {held.name} were not measured", None)
    moved = stored + share * (linear.inputs + linear.outputs) * run.unit
    # The expansion of a latent cache counts as attention, in the run's own format, as in the estimate.
    compute = held.compute if linear.per == "token" else None
    kind = "routed experts" if linear.copies > 1 else "products"
    return _Kernel(kind, count, known, 2 * share * linear.elements, moved, compute)
