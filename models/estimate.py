"""The model-level estimate in closed form: weights, KV cache, FLOPs, traffic, bounds, ideal times.

`costs_of` and `ideal_times` are plain arithmetic on numbers, so that the same formulas serve one
estimate (ints) and a sweep (numpy arrays); whoever calls them with arrays passes `Arithmetic` of
numpy. Everything counts one device.

Formulas: a product [m,k] x [k,n] is 2mnk FLOP. Attention is 2 * heads * (width of keys + width of
values) FLOP per query-key pair and layer (scores and weighted sum). A model's sums are made in
`kernelroof.models.coefficients`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kernelroof.models.coefficients import Coefficients, WindowGroup, coefficients
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload, precision_of

Number = Any
"""An int, a float, or a numpy array of them."""


class PhaseCost(NamedTuple):
    """What one phase (prefill, one decode step, or all decode steps) must compute and move.

    flops are matrix products and attention, quantised_flops those of them whose operands are both
    quantised, so that another peak may apply; scan_flops those of recurrences (state-space models,
    linear attention), counted as one pass over the state per token.

    bytes = weight_bytes + kv_read_bytes is what no implementation can avoid from DRAM; the other
    byte fields depend on how it is implemented. kv_read_bytes holds recurrent states too. Of routed
    experts those that are met are read: `distinct_experts`. activation_bytes are the operands and
    results of matrix products and attention (q and output), each moved once; elementwise work is not
    in it. cache_copy_bytes is what the cache moves besides the new tokens: a dynamic one reads and
    writes all earlier ones in each step, a static one is filled with zeros at its first use, and its
    windows are rolled once they are full.
    """

    flops: Number
    quantised_flops: Number
    scan_flops: Number
    bytes: Number
    weight_bytes: Number
    kv_read_bytes: Number
    kv_write_bytes: Number
    activation_bytes: Number
    cache_copy_bytes: Number

    @property
    def executed_bytes(self) -> Number:
        """All of them: what the implementation moves, elementwise work left out."""
        return self.bytes + self.kv_write_bytes + self.activation_bytes + self.cache_copy_bytes


class Stretch(NamedTuple):
    """Consecutive decode steps over which FLOPs and bytes grow by the same amount per step."""

    steps: Number
    flops_per_step: Number
    bytes_per_step: Number


class Costs(NamedTuple):
    """Sizes and phase costs of one model under one workload."""

    parameters: Number
    active_parameters: Number
    matmul_parameters: Number
    weight_bytes: Number
    kv_bytes_per_token: Number
    """While no window is full; recurrent states do not grow."""
    state_bytes_per_sequence: Number
    kv_bytes: Number
    peak_activation_bytes: Number
    total_bytes: Number
    prefill: PhaseCost
    first_step: PhaseCost
    decode: PhaseCost
    stretches: tuple[Stretch, ...]
    quantised: tuple[tuple[str, int], ...] = ()
    """FLOPs per token of quantised products, by class."""


class Arithmetic(NamedTuple):
    """The three functions that differ between numbers and arrays of them."""

    maximum: Callable[[Number, Number], Number]
    minimum: Callable[[Number, Number], Number]
    where: Callable[[Number, Number, Number], Number]


def _choose(condition: bool, yes: Number, no: Number) -> Number:
    return yes if condition else no


SCALAR = Arithmetic(max, min, _choose)


class Flags(NamedTuple):
    """The conventions as numbers: a flag multiplies what it switches on.

    causal: attention skips what its mask hides; exact: also under a sliding window, where what runs
    computes all pairs as soon as the prompt is longer than the window.
    """

    causal: Number
    exact: Number
    last: Number
    streamed_table: Number
    dynamic: Number
    static: Number
    eager: Number


def flags_of(workload: Workload) -> Flags:
    """The conventions of a workload."""
    return Flags(
        causal=1 * (workload.mask == "causal" or (workload.mask == "auto" and workload.attn != "eager")),
        exact=1 * (workload.mask == "causal"),
        last=1 * (workload.head == "last"),
        streamed_table=1 * (workload.embedding == "streamed"),
        dynamic=1 * (workload.cache == "dynamic"),
        static=1 * (workload.cache == "static"),
        eager=1 * (workload.attn == "eager"),
    )


def costs(spec: ModelSpec, workload: Workload) -> Costs:
    """Everything about a workload that does not depend on the device."""
    return costs_of(
        coefficients(spec, precision_of(spec, workload)),
        workload.batch,
        workload.prompt,
        workload.output,
        flags_of(workload),
        workload.overhead,
    )


def distinct_experts(experts: Number, used: Number, tokens: Number) -> Number:
    """Experts that at least one of `tokens` tokens meets, expected under uniform independent routing.

    E - (E - k) * (1 - k/E)^(tokens - 1); one token meets exactly its k.
    """
    return experts - (experts - used) * (1 - used / experts) ** (tokens - 1)


class Reach(NamedTuple):
    """What the attention of one sequence's prefill computes and reads, in one layer."""

    keys: Number
    pairs: Number
    """Query-key pairs that are computed."""
    explicit: Number
    """1 where it is handed a mask, with which nothing is skipped but by the exact convention."""


def prefill_reach(
    window: Number, unmasked: Number, prompt: Number, output: Number, flags: Flags, arithmetic: Arithmetic = SCALAR
) -> Reach:
    """Keys and pairs by the conventions of `flags`; `window` and `unmasked` as in `WindowGroup`.

    A window no longer than what the cache holds after it needs an explicit mask, with which all pairs are
    computed. With one, or eager, all that a static cache holds is attended to; else its prompt's part.
    """
    maximum, minimum, _where = arithmetic
    # A prompt of one token attends like a decode step.
    single = 1 * (prompt == 1)
    causal = flags.causal * (1 - flags.static * single)
    spans = prompt + flags.static * output
    explicit = maximum(1 - unmasked, 1 * (window <= spans))
    whole = flags.static * maximum(maximum(flags.eager, single), explicit)
    keys = prompt + whole * maximum(minimum(window, spans) - prompt, 0)
    wide = minimum(window, prompt)
    hidden = wide * (wide + 1) // 2 + (prompt - wide) * wide
    skips = causal * maximum(flags.exact, 1 - explicit)
    return Reach(keys, skips * hidden + (1 - skips) * prompt * keys, explicit)


def costs_of(
    model: Coefficients,
    batch: Number,
    prompt: Number,
    output: Number,
    flags: Flags,
    overhead: Number = 0.10,
    arithmetic: Arithmetic = SCALAR,
) -> Costs:
    """The formulas, branch-free in every argument but the model; see `kernelroof.models.sweep`."""
    maximum, minimum, _where = arithmetic
    _causal, _exact, last, streamed_table, dynamic, static, eager = flags
    unit = model.unit_bytes
    capacity = prompt + output
    tokens = batch * prompt
    logits = batch * (last + (1 - last) * prompt)

    def streamed(tokens: Number) -> Number:
        size = model.always_bytes + streamed_table * model.table_bytes
        for group in model.experts:
            size = size + distinct_experts(group.experts, group.used, tokens) * group.bytes_each
        return size

    def core_io(group: WindowGroup, pairs: Number, keys: Number) -> Number:
        """What attention moves besides queries, results and the cache.

        Eager attention's products also write and read the scores, and read K and V expanded to all heads;
        those of a latent cache are written and read whole.
        """
        return unit * (eager * (2 * group.scores * pairs + group.expanded * keys) + group.remade * keys)

    stretches, began = [], 0
    kept = per_token = written = mask = let_go = 0
    keys = prompt
    pair_flops = prefill_kv = prefill_io = 0
    first_flops = first_kv = first_io = first_copies = 0
    all_flops = all_kv = all_io = all_copies = 0
    growing_flops = sum(g.pair_flops + g.key_flops for g in model.windows) * batch * (1 - static)
    growing_bytes = sum(g.read_bytes for g in model.windows) * batch * (1 - static)
    for group in model.windows:
        window = group.window
        keys, each, explicit = prefill_reach(window, group.unmasked, prompt, output, flags, arithmetic)
        pairs = batch * each
        pair_flops = pair_flops + group.pair_flops * pairs + group.key_flops * batch * keys
        prefill_kv = prefill_kv + batch * keys * group.read_bytes
        mask = maximum(mask, (1 - eager) * explicit * prompt * keys)
        let_go = let_go + dynamic * batch * group.kept_bytes * maximum(prompt - window + 1, 0)
        prefill_io = prefill_io + core_io(group, batch * prompt * keys, batch * keys)
        # Decode. Step k (from 0) sees min(prompt + k + 1, window) keys, under a static cache all that it holds.
        rising = minimum(maximum(window - prompt, 0), output)
        held = minimum(window, capacity)
        seen = static * held + (1 - static) * minimum(window, prompt + 1)
        risen = rising * (prompt + 1) + rising * (rising - 1) // 2 + (output - rising) * held
        all_seen = static * output * held + (1 - static) * risen
        flops_each, read_each = (group.pair_flops + group.key_flops) * batch, group.read_bytes * batch
        first_flops, all_flops = first_flops + flops_each * seen, all_flops + flops_each * all_seen
        first_kv, all_kv = first_kv + read_each * seen, all_kv + read_each * all_seen
        first_io = first_io + core_io(group, batch * seen, batch * seen)
        all_io = all_io + core_io(group, batch * all_seen, batch * all_seen)
        copied_each = dynamic * 2 * batch * group.kept_bytes
        first_copies = first_copies + copied_each * (minimum(window, prompt + 1) - 1)
        all_copies = all_copies + copied_each * (risen - output)
        # A static window that is full is rolled in each step: all of it read and written, the new token among it.
        rolled_each = static * batch * group.kept_bytes * (2 * held - 1)
        first_copies = first_copies + rolled_each * (prompt >= held)
        all_copies = all_copies + rolled_each * (output - minimum(maximum(held - prompt, 0), output))
        written = written + batch * group.kept_bytes * (static * minimum(prompt, held) + (1 - static) * prompt)
        # What the cache holds at the end: a windowed one keeps what the next token will see besides itself.
        stays = minimum(window - 1 * (window <= capacity) * (1 - static), capacity)
        kept, per_token = kept + group.kept_bytes * stays, per_token + group.kept_bytes
        # The step that sees a full window is the last to be larger than the one before it.
        grows = minimum(maximum(window - prompt - 1, 0), output)
        stretches.append(Stretch(grows - began, growing_flops, growing_bytes))
        growing_flops = growing_flops - flops_each * (1 - static)
        growing_bytes = growing_bytes - read_each * (1 - static)
        began = grows
    stretches.append(Stretch(output - began, 0, 0))

    state = batch * model.state_bytes
    prefill_weights, step_weights = streamed(tokens), streamed(batch)
    prefill = PhaseCost(
        flops=model.token_flops * tokens + model.head_flops * logits + pair_flops,
        quantised_flops=model.quantised_flops * tokens,
        scan_flops=model.scan_flops * tokens,
        bytes=prefill_weights + prefill_kv,
        weight_bytes=prefill_weights,
        kv_read_bytes=prefill_kv,
        kv_write_bytes=written + state,
        activation_bytes=tokens * model.token_io_bytes + logits * model.head_io_bytes + prefill_io,
        cache_copy_bytes=static * batch * kept,
    )

    def steps(n: Number, flops: Number, kv: Number, io: Number, copies: Number) -> PhaseCost:
        """`n` decode steps with these sums over what depends on their contexts."""
        kv = kv + n * state
        return PhaseCost(
            flops=n * batch * (model.token_flops + model.head_flops) + flops,
            quantised_flops=n * batch * model.quantised_flops,
            scan_flops=n * batch * model.scan_flops,
            bytes=n * step_weights + kv,
            weight_bytes=n * step_weights,
            kv_read_bytes=kv,
            kv_write_bytes=n * (batch * per_token + state),
            activation_bytes=n * batch * (model.token_io_bytes + model.head_io_bytes) + io,
            cache_copy_bytes=copies,
        )

    kv_bytes = batch * kept + state
    # The widest moment: the layer's input, its residual and normed copies beside what is inside (experts and
    # recurrences as transformers' own PyTorch code runs them); or the logits; or eager attention's scores
    # (`score_bytes`) with queries, new keys and values, and all of them expanded. Beside it an explicit mask of one
    # byte per pair, and what a dynamic cache seems to have let go of: its windows are slices, which keep the whole
    # prompt alive until the next step. Not in it: scores of latent attention where values are narrower than keys
    # and a CPU runs it, which knows no fused kernel for that.
    scores = eager * (
        model.peak_heads * batch * prompt * keys * model.score_bytes
        + tokens * model.peak_projected_bytes
        + batch * keys * model.peak_expanded_bytes
    )
    # Attention hands its weights on with its results, so they are alive beside the MLP too.
    weights = eager * model.peak_heads * batch * prompt * keys * unit
    peak = maximum(
        tokens * 4 * model.hidden_bytes + maximum(tokens * model.inner_bytes + weights, scores),
        tokens * 2 * model.hidden_bytes + logits * model.logit_bytes,
    )
    peak = peak + mask + let_go
    return Costs(
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        matmul_parameters=model.matmul_parameters,
        weight_bytes=model.weight_bytes,
        kv_bytes_per_token=per_token,
        state_bytes_per_sequence=model.state_bytes,
        kv_bytes=kv_bytes,
        peak_activation_bytes=peak,
        total_bytes=(model.weight_bytes + kv_bytes + peak) * (1 + overhead),
        prefill=prefill,
        first_step=steps(1, first_flops, first_kv, first_io, first_copies),
        decode=steps(output, all_flops, all_kv, all_io, all_copies),
        stretches=tuple(stretches),
        quantised=model.quantised,
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


def quantised_peak(classes: tuple[tuple[str, int], ...], peaks: Mapping[str, float], flop_s: float) -> float:
    """The peak of all quantised products together (FLOP/s): the mean over their classes, weighted by time.

    classes: FLOPs by class, as in `Coefficients.quantised` and `Costs.quantised`.
    peaks: dense peak by class; a class without one computes at `flop_s`.
    """
    if all(peaks.get(kind, flop_s) == flop_s for kind, _ in classes):
        return flop_s
    return sum(flops for _, flops in classes) / sum(flops / peaks.get(kind, flop_s) for kind, flops in classes)


def compute_time(phase: PhaseCost, flop_s: Number, quantised_flop_s: Number = None) -> Number:
    """Seconds that the phase's FLOPs take: those of quantised products at their own peak, the others at `flop_s`."""
    flops = phase.flops + phase.scan_flops
    if quantised_flop_s is not None:
        flops = flops + phase.quantised_flops * (flop_s / quantised_flop_s - 1)
    return flops / flop_s


def ideal_times(
    cost: Costs,
    flop_s: Number,
    byte_s: Number,
    arithmetic: Arithmetic = SCALAR,
    quantised_flop_s: Number = None,
) -> IdealTimes:
    """Ideal times at a compute peak (FLOP/s) and a memory bandwidth (B/s).

    quantised_flop_s: peak of the quantised products; None: that of all others.
    """
    maximum = arithmetic.maximum
    compute = compute_time(cost.first_step, flop_s, quantised_flop_s)
    memory = cost.first_step.bytes / byte_s
    first = maximum(compute, memory)
    total: Number = 0.0
    for stretch in cost.stretches:
        compute_d, memory_d = stretch.flops_per_step / flop_s, stretch.bytes_per_step / byte_s
        total = total + _sum_of_greater(stretch.steps, compute, compute_d, memory, memory_d, arithmetic)
        compute, memory = compute + stretch.steps * compute_d, memory + stretch.steps * memory_d
    prefill = maximum(compute_time(cost.prefill, flop_s, quantised_flop_s), cost.prefill.bytes / byte_s)
    return IdealTimes(prefill_s=prefill, first_step_s=first, decode_s=total)


def _sum_of_greater(
    steps: Number, a: Number, a_step: Number, b: Number, b_step: Number, arithmetic: Arithmetic
) -> Number:
    """Sum over k < steps of max(a + k * a_step, b + k * b_step).

    Two arithmetic series that meet at the step where the larger of the two changes.
    """
    maximum, minimum, where = arithmetic
    gap, gap_step = a - b, a_step - b_step
    last_gap = gap + gap_step * maximum(steps - 1, 0)
    crosses = gap * last_gap < 0
    # `early`: how many first steps keep the sign of step 0.
    early = where(crosses, minimum(1 + abs(gap) / where(crosses, abs(gap_step), 1.0) // 1, steps), steps)

    def series(start: Number, slope: Number, first: Number, last: Number) -> Number:
        return (last - first) * (start + slope * (first + last - 1) / 2)

    a_first = where(gap == 0, last_gap >= 0, gap > 0)
    a_then_b = series(a, a_step, 0, early) + series(b, b_step, early, steps)
    b_then_a = series(b, b_step, 0, early) + series(a, a_step, early, steps)
    return where(a_first, a_then_b, b_then_a)
