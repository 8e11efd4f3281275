"""The model-level estimate in closed form: weights, KV cache, FLOPs, traffic, bounds, ideal times.

`costs` and `ideal_times` are plain arithmetic on numbers, so that the same formulas serve one
estimate (ints) and a sweep (numpy arrays); whoever calls them with arrays passes `maximum` and
`where` of numpy. Everything counts one device and dense models (see `kernelroof.models.spec`).

Formulas: a product [m,k] x [k,n] is 2mnk FLOP. Attention is 4 * heads * head_dim FLOP per
query-key pair and layer (scores and weighted sum). KV per token is 2 * layers * kv_heads * head_dim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kernelroof.models.dtypes import BITS
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload, effective_mask

Number = Any
"""An int, a float, or a numpy array of them."""


class PhaseCost(NamedTuple):
    """What one phase (prefill, one decode step, or all decode steps) must compute and move.

    bytes = weight_bytes + kv_read_bytes is what no implementation can avoid from DRAM; the other
    byte fields depend on how it is implemented. activation_bytes are the operands and results of
    matrix products and attention (q and output), each moved once; elementwise work is not in it.
    cache_copy_bytes is what the cache moves besides the new tokens: a dynamic one reads and writes
    all earlier ones in each step, a static one is filled with zeros at its first use.
    """

    flops: Number
    bytes: Number
    weight_bytes: Number
    kv_read_bytes: Number
    kv_write_bytes: Number
    activation_bytes: Number
    cache_copy_bytes: Number


class Costs(NamedTuple):
    """Sizes and phase costs of one model under one workload."""

    parameters: Number
    matmul_parameters: Number
    weight_bytes: Number
    kv_bytes_per_token: Number
    kv_bytes: Number
    peak_activation_bytes: Number
    total_bytes: Number
    prefill: PhaseCost
    first_step: PhaseCost
    decode: PhaseCost


class Parameters(NamedTuple):
    """Parameter counts by the way they are stored and used."""

    linear: Number  # weights of the layers' linears: what weight quantisation packs
    vector: Number  # norms and biases
    table: Number  # the embedding table
    head: Number  # the output matrix, 0 if tied


def parameters(spec: ModelSpec) -> Parameters:
    """Count parameters from a spec; their sum is the model's parameter count (tied counted once)."""
    q_width = spec.heads * spec.head_dim
    kv_width = spec.kv_heads * spec.head_dim
    linear = spec.hidden * (2 * q_width + 2 * kv_width) + 3 * spec.hidden * spec.intermediate
    vector = (
        2 * spec.hidden
        + spec.qkv_bias * (q_width + 2 * kv_width)
        + spec.output_bias * spec.hidden
        + spec.mlp_bias * (2 * spec.intermediate + spec.hidden)
        + spec.qk_norm * 2 * spec.head_dim
    )
    table = spec.vocab * spec.hidden
    return Parameters(spec.layers * linear, spec.layers * vector + spec.hidden, table, (1 - spec.tied) * table)


def costs(spec: ModelSpec, workload: Workload) -> Costs:
    """Everything about a workload that does not depend on the device, in integers."""
    return costs_of(
        spec,
        workload.batch,
        workload.prompt,
        workload.output,
        BITS[workload.dtype],
        BITS[workload.weights_dtype],
        BITS[workload.kv_dtype],
        effective_mask(workload) == "causal",
        workload.head == "last",
        workload.embedding == "streamed",
        workload.cache == "dynamic",
        workload.cache == "static",
        workload.attn == "eager",
        workload.overhead,
        max,
    )


def costs_of(
    spec: ModelSpec,
    batch: Number,
    prompt: Number,
    output: Number,
    run_bits: Number,
    weight_bits: Number,
    kv_bits: Number,
    causal: Number,
    last: Number,
    streamed_table: Number,
    dynamic: Number,
    static: Number,
    eager: Number,
    overhead: Number,
    maximum: Callable[[Number, Number], Number],
) -> Costs:
    """The formulas, branch-free in every argument: a flag multiplies what it switches on.

    Sizes in `spec` may be arrays too; see `kernelroof.models.sweep`.
    """
    count = parameters(spec)
    q_width = spec.heads * spec.head_dim
    kv_width = spec.kv_heads * spec.head_dim
    layers, hidden, wide, vocab = spec.layers, spec.hidden, spec.intermediate, spec.vocab
    unit = run_bits // 8

    weight_bytes = (count.linear * weight_bits + 7) // 8 + (count.vector + count.table + count.head) * unit
    # A tied table is streamed as the head whether or not its rows are gathered.
    untied = 1 - spec.tied
    streamed = weight_bytes - untied * (1 - streamed_table) * count.table * unit
    kv_per_token = (2 * layers * kv_width * kv_bits + 7) // 8
    capacity = prompt + output

    matmul = count.linear + count.table  # the head multiplies whether tied or not; the embedding never does
    pair_flops = 4 * layers * q_width
    # Operands and results of the products and of attention per token, without the head.
    token_io = layers * (7 * hidden + 4 * q_width + 2 * kv_width + 3 * wide) * unit
    head_io = (hidden + vocab) * unit

    def eager_io(pairs: Number, keys: Number) -> Number:
        """Eager attention's products also write and read the scores, and read K and V expanded to all heads."""
        expanded = (spec.kv_heads < spec.heads) * 2 * keys * q_width
        return eager * layers * (2 * spec.heads * pairs + expanded) * unit

    tokens = batch * prompt
    logits = batch * (last + (1 - last) * prompt)
    # In prefill sdpa and flash attention are handed the prompt's part of a static cache, eager all of it; a
    # prompt of one token attends like a decode step.
    single = 1 * (prompt == 1)
    keys = prompt + static * maximum(1 * eager, single) * output
    causal = causal * (1 - static * single)
    pairs = batch * (causal * (prompt * (prompt + 1) // 2) + (1 - causal) * prompt * keys)
    prefill_kv = batch * keys * kv_per_token
    prefill = PhaseCost(
        flops=2 * (count.linear * tokens + count.table * logits) + pair_flops * pairs,
        bytes=streamed + prefill_kv,
        weight_bytes=streamed,
        kv_read_bytes=prefill_kv,
        kv_write_bytes=tokens * kv_per_token,
        activation_bytes=tokens * token_io + logits * head_io + eager_io(batch * prompt * keys, batch * keys),
        cache_copy_bytes=static * batch * capacity * kv_per_token,
    )

    def steps(n: Number, contexts: Number, pasts: Number) -> PhaseCost:
        """`n` decode steps whose contexts sum to `contexts` and whose past lengths to `pasts`."""
        kv_read = batch * contexts * kv_per_token
        return PhaseCost(
            flops=n * 2 * matmul * batch + pair_flops * batch * contexts,
            bytes=n * streamed + kv_read,
            weight_bytes=n * streamed,
            kv_read_bytes=kv_read,
            kv_write_bytes=n * batch * kv_per_token,
            activation_bytes=n * batch * (token_io + head_io) + eager_io(batch * contexts, batch * contexts),
            cache_copy_bytes=dynamic * 2 * batch * pasts * kv_per_token,
        )

    triangle = output * (output - 1) // 2
    growing = output * (prompt + 1) + triangle
    first = steps(1, static * capacity + (1 - static) * (prompt + 1), prompt)
    decode = steps(output, static * output * capacity + (1 - static) * growing, output * prompt + triangle)

    kv_bytes = batch * capacity * kv_per_token
    # The widest moment: the layer's input, its residual and normed copies beside gate, up and their product; or
    # the logits; or eager attention's scores, which a 16-bit model also holds twice in 32 bits for softmax.
    scores = eager * spec.heads * batch * prompt * keys * (8 + (unit < 4) * unit)
    peak = maximum(
        tokens * 4 * hidden * unit + maximum(tokens * 3 * wide * unit, scores),
        (tokens * 2 * hidden + logits * vocab) * unit,
    )
    return Costs(
        parameters=count.linear + count.vector + count.table + count.head,
        matmul_parameters=matmul,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_per_token,
        kv_bytes=kv_bytes,
        peak_activation_bytes=peak,
        total_bytes=(weight_bytes + kv_bytes + peak) * (1 + overhead),
        prefill=prefill,
        first_step=first,
        decode=decode,
    )


class IdealTimes(NamedTuple):
    """Roofline times in seconds: no kernel can be faster at these peaks.

    prefill_s: max(FLOPs / peak, bytes / bandwidth) of the phase (time to first token).
    first_step_s: the same for the first decode step (time per output token).
    decode_s: the sum of the steps' own maxima over the output.
    """

    prefill_s: Number
    first_step_s: Number
    decode_s: Number


def _greater_of(a: float, b: float) -> float:
    return a if a > b else b


def _choose(condition: bool, yes: Number, no: Number) -> Number:
    return yes if condition else no


def ideal_times(
    cost: Costs,
    output: Number,
    flop_s: Number,
    byte_s: Number,
    maximum: Callable[[Number, Number], Number] = _greater_of,
    where: Callable[[Number, Number, Number], Number] = _choose,
) -> IdealTimes:
    """Ideal times at a compute peak (FLOP/s) and a memory bandwidth (B/s).

    FLOPs and bytes of step k are linear in k, so the sum of max(compute, memory) over the steps is
    two arithmetic series that meet at the step where the larger of the two changes.
    """
    prefill = maximum(cost.prefill.flops / flop_s, cost.prefill.bytes / byte_s)
    compute_0 = cost.first_step.flops / flop_s
    memory_0 = cost.first_step.bytes / byte_s
    steps_1 = maximum(output - 1, 1)
    # Slopes per step, from sum = n * first + slope * n(n-1)/2.
    triangle = maximum(output * (output - 1) / 2, 1)
    compute_d = (cost.decode.flops / flop_s - output * compute_0) / triangle
    memory_d = (cost.decode.bytes / byte_s - output * memory_0) / triangle
    gap_0 = compute_0 - memory_0
    gap_d = compute_d - memory_d
    gap_last = gap_0 + gap_d * (output - 1)
    crosses = gap_0 * gap_last < 0
    # `early`: how many first steps keep the sign of step 0.
    early = where(crosses, 1 + (abs(gap_0) / where(crosses, abs(gap_0 - gap_last), 1.0) * steps_1) // 1, output)
    early = where(early > output, output, early)

    def series(start: Number, slope: Number, first: Number, last: Number) -> Number:
        return (last - first) * (start + slope * (first + last - 1) / 2)

    compute_then_memory = series(compute_0, compute_d, 0, early) + series(memory_0, memory_d, early, output)
    memory_then_compute = series(memory_0, memory_d, 0, early) + series(compute_0, compute_d, early, output)
    starts_compute = where(gap_0 == 0, gap_last >= 0, gap_0 > 0)
    return IdealTimes(
        prefill_s=prefill,
        first_step_s=maximum(compute_0, memory_0),
        decode_s=where(starts_compute, compute_then_memory, memory_then_compute),
    )
