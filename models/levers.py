"""What a change would bring, for one model, workload and GPU: every lever as the estimate computes it.

A state's times take all bytes that the estimate knows (weights, KV read and written, cache copies, operands
and results of products and attention) at the given peaks, so that a lever that removes copies or score
matrices shows. Elementwise kernels, launches and efficiency are not in it: gains are upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kernelroof.models.batching import continuous_batches, length_words, repeated, static_batches
from kernelroof.models.capacity import largest_batch
from kernelroof.models.chunked import chunked_prefill
from kernelroof.models.coefficients import Coefficients, coefficients
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import Costs, PhaseCost, compute_time, costs, quantised_peak
from kernelroof.models.forward import Part, forward_cost
from kernelroof.models.latent import absorbed
from kernelroof.models.offload import TIERS, offload, streamed_bytes
from kernelroof.models.parallel import split
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload, precision_of


class Device(NamedTuple):
    """Peaks of one GPU (FLOP/s, B/s, bytes) and of its links, one direction (B/s)."""

    name: str
    flop_s: float
    byte_s: float
    memory_bytes: int
    peer_byte_s: float
    host_byte_s: float
    quantised: tuple[tuple[str, float], ...] = ()
    """Peaks of products of quantised operands, by class."""

    def apart(self, of: Costs | Coefficients) -> float:
        """The peak of the quantised products of a model (FLOP/s)."""
        return quantised_peak(of.quantised, dict(self.quantised), self.flop_s)


class Assumed(NamedTuple):
    """What the estimate can't know: stated with every lever that uses it."""

    lengths: tuple[int, ...] = (200, 100, 30, 80)
    """Output lengths of requests, for continuous batching."""
    drafted: int = 4
    acceptance: float = 0.7
    """Probability that a drafted token is right, each by itself."""
    draft_step_s: float = 0.0
    """Time to draft one token; 0 for drafts looked up in the text."""
    draft_prefill_s: float = 0.0
    """A draft model reads the prompt too."""
    draft_bytes: float = 0.0
    """What a draft model holds beside the model: weights, cache, overhead."""
    shared_prompt: float = 0.5
    """Share of the prompt whose cache is already there."""
    chunk: int = 512


class State(NamedTuple):
    """What a user sees of a configuration."""

    prefill_s: float
    step_s: float
    """Time per output token of each sequence."""
    tokens_per_s: float
    """Of all GPUs together."""
    total_bytes: float
    """On the fullest GPU."""
    gpus: int
    fits: bool


class Lever(NamedTuple):
    """One change: its state, why it helps and what it runs into. `after` is None where it does not apply.

    against: the state that the gain is over, where it is not the present one.
    """

    name: str
    setting: str
    after: State | None
    reason: str
    limit: str
    against: State | None = None

    def gain(self, before: State, goal: str) -> float | None:
        """How many times better for a goal; None where the lever does not apply."""
        return None if self.after is None else gain(self.against or before, self.after, goal)


def state_of(spec: ModelSpec, workload: Workload, device: Device) -> State:
    """The state of a workload on one GPU."""
    return _state(costs(spec, workload), workload.batch, device)


def gain(before: State, after: State, goal: str) -> float:
    """How many times better `after` is: > 1 is better."""
    if goal == "throughput":
        return after.tokens_per_s / before.tokens_per_s
    if goal == "ttft":
        return before.prefill_s / after.prefill_s
    if goal == "memory":
        return before.total_bytes / after.total_bytes
    return before.step_s / after.step_s


def levers(
    spec: ModelSpec, workload: Workload, device: Device, others: Sequence[Device], assumed: Assumed
) -> list[Lever]:
    """Every lever, in a fixed order; see `best_first`."""
    before = state_of(spec, workload, device)
    found: list[Lever] = []
    for make in _LEVERS:
        found += make(spec, workload, device, before, assumed)
    for other in others:
        after = state_of(spec, workload, other)
        reason = (
            f"bandwidth {other.byte_s / device.byte_s:.2f} x, compute {other.flop_s / device.flop_s:.2f} x, "
            f"memory {other.memory_bytes / device.memory_bytes:.2f} x"
        )
        limit = "a token passes through one GPU's bandwidth and peak only; price is not in it"
        found.append(Lever("another GPU", other.name, after, reason, limit))
    return found


def best_first(found: Sequence[Lever], before: State, goal: str) -> list[Lever]:
    """Levers that apply, largest gain first; what turns from not fitting to fitting leads; the rest after them."""

    def key(lever: Lever) -> tuple[int, float]:
        better = lever.gain(before, goal)
        if lever.after is None or better is None:
            return (2, 0.0)
        rescued = lever.after.fits and not before.fits
        return (0 if rescued else 1, -better)

    return sorted(found, key=key)


def _phase_s(cost: Costs, phase: PhaseCost, device: Device) -> float:
    compute = compute_time(phase, device.flop_s, device.apart(cost))
    return float(max(compute, phase.executed_bytes / device.byte_s))


def _state(cost: Costs, batch: int, device: Device) -> State:
    step = _phase_s(cost, cost.first_step, device)
    total = float(cost.total_bytes)
    return State(_phase_s(cost, cost.prefill, device), step, batch / step, total, 1, total <= device.memory_bytes)


def _bound(cost: Costs, device: Device) -> str:
    """What bounds the first decode step."""
    phase = cost.first_step
    compute = compute_time(phase, device.flop_s, device.apart(cost))
    return "compute" if compute >= phase.executed_bytes / device.byte_s else "memory"


_PARTS = (
    ("weight_bytes", "weights"),
    ("kv_read_bytes", "KV read"),
    ("kv_write_bytes", "KV written"),
    ("cache_copy_bytes", "cache copies"),
    ("activation_bytes", "activations"),
)


def _what_shrinks(before: PhaseCost, after: PhaseCost) -> str:
    """The byte terms of a decode step that shrink by more than a hundredth of it, or the one that shrinks most."""
    saved = {part: getattr(before, part[0]) - getattr(after, part[0]) for part in _PARTS}
    shrinking = sorted((p for p in _PARTS if saved[p] > 0.01 * before.executed_bytes), key=lambda p: -saved[p])
    terms = [
        f"{words} {_gb(getattr(before, field))} -> {_gb(getattr(after, field))}"
        for field, words in shrinking or [max(_PARTS, key=lambda p: saved[p])]
    ]
    return f"{', '.join(terms)} of {_gb(before.executed_bytes)} moved per step"


def _what_is_left(cost: Costs, device: Device) -> str:
    """What bounds a decode step now."""
    phase = cost.first_step
    if _bound(cost, device) == "compute":
        return "the step is then compute-bound: fewer bytes no longer help"
    field, words = max(_PARTS, key=lambda part: getattr(phase, part[0]))
    return f"then {words} are {100 * getattr(phase, field) / phase.executed_bytes:.0f} % of the step's bytes"


def _gb(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.2f} MB"


_SAME = 0.97
"""A format that leaves more than this share of the bytes is no other format: fp8 per tensor after fp8 per block."""


def _formats(
    spec: ModelSpec, workload: Workload, device: Device, field: str, name: str, formats: Sequence[str], note: str
) -> list[Lever]:
    before, held = costs(spec, workload), "weight_bytes" if field == "weights_dtype" else "kv_bytes"
    found = []
    for dtype in formats:
        change: dict[str, Any] = {field: dtype}
        cost = costs(spec, workload._replace(**change))
        if getattr(cost, held) > _SAME * getattr(before, held):
            continue
        found.append(
            Lever(
                name,
                dtype,
                _state(cost, workload.batch, device),
                _what_shrinks(before.first_step, cost.first_step),
                f"{_what_is_left(cost, device)}; {note}",
            )
        )
    return found or [Lever(name, "", None, f"already {getattr(workload, field)}", "")]


def _weights(spec: ModelSpec, workload: Workload, device: Device, _before: State, _assumed: Assumed) -> list[Lever]:
    note = "a gain in prefill only where the GPU has a peak for it; check accuracy"
    return _formats(spec, workload, device, "weights_dtype", "weight quantisation", ("fp8", "int4-g128"), note)


def _kv(spec: ModelSpec, workload: Workload, device: Device, _before: State, _assumed: Assumed) -> list[Lever]:
    note = "check accuracy at long contexts"
    return _formats(spec, workload, device, "kv_dtype", "KV quantisation", ("fp8", "int4"), note)


def _batch(spec: ModelSpec, workload: Workload, device: Device, before: State, _assumed: Assumed) -> list[Lever]:
    most = largest_batch(spec, workload, device.memory_bytes)
    if most <= workload.batch:
        return [Lever("larger batch", "", None, f"no more than {most} fit", "memory")]
    found = []
    for batch in dict.fromkeys((min(most, 8 * workload.batch), most)):
        cost = costs(spec, workload._replace(batch=batch))
        after = _state(cost, batch, device)
        share = cost.first_step.kv_read_bytes / cost.first_step.bytes
        found.append(
            Lever(
                "larger batch",
                f"{batch:,}",
                after,
                f"weights are read once for {batch:,} sequences instead of {workload.batch:,}",
                f"{most:,} fit; {_bound(cost, device)}-bound, KV is {100 * share:.0f} % of what must move; "
                f"each token takes {after.step_s / before.step_s:.2f} x as long",
            )
        )
    return found


def _continuous(spec: ModelSpec, workload: Workload, device: Device, before: State, assumed: Assumed) -> list[Lever]:
    if workload.batch == 1:
        return [Lever("continuous batching", "", None, "a batch of one has no idle slots", "raise the batch first")]
    try:
        rounds = 16 * workload.batch // len(assumed.lengths) + 1
        lengths = repeated(assumed.lengths, rounds * len(assumed.lengths))
        fixed, joined = static_batches(lengths, workload.batch), continuous_batches(lengths, workload.batch)
    except UsageError as error:
        return [Lever("continuous batching", "", None, error.what, "")]
    # "Now" counts every slot as useful, which no policy exceeds: the gain is over a static batch of the same lengths.
    static, after = (before._replace(tokens_per_s=before.tokens_per_s * b.utilisation) for b in (fixed, joined))
    return [
        Lever(
            "continuous batching",
            f"{workload.batch:,} slots",
            after,
            f"useful slots {100 * fixed.utilisation:.1f} -> {100 * joined.utilisation:.1f} % "
            f"(outputs of {length_words(assumed.lengths)} tokens, assumed): {static.tokens_per_s:.0f} -> "
            f"{after.tokens_per_s:.0f} tokens/s, the gain is over the former",
            "needs requests waiting; prefills then come between decode steps",
            static,
        )
    ]


def _tensor(spec: ModelSpec, workload: Workload, device: Device, _before: State, _assumed: Assumed) -> list[Lever]:
    found = []
    for tp, pp in ((2, 1), (4, 1), (8, 1), (1, 2)):
        name = "tensor parallel" if tp > 1 else "pipeline parallel"
        try:
            part = split(
                spec,
                workload,
                tp=tp,
                pp=pp,
                flop_s=device.flop_s,
                byte_s=device.byte_s,
                link_byte_s=device.peer_byte_s,
                executed=True,
                quantised_peaks=dict(device.quantised),
            )
        except UsageError as error:
            found.append(Lever(name, f"{tp * pp} GPUs", None, error.what, ""))
            continue
        fits = part.total_bytes <= device.memory_bytes
        after = State(part.prefill_s, part.step_s, part.tokens_per_s, part.total_bytes, tp * pp, fits)
        if tp > 1:
            reason = f"each GPU holds {_gb(part.weight_bytes)} of weights and {_gb(part.kv_bytes)} of KV at most"
        else:
            reason = (
                f"each GPU holds {_gb(part.total_bytes)}, the caches of both batches among it, which are in flight to "
                "keep both GPUs busy"
            )
        limit = (
            f"{part.collectives_per_step} collectives per step: {1e6 * part.step_comm_s:.0f} us of "
            f"{1e6 * part.step_s:.0f} us; {part.tokens_per_s / tp:.0f} tokens/s per GPU"
        )
        found.append(Lever(name, f"{tp * pp} GPUs", after, reason, limit if tp > 1 else "one token is no faster"))
    return found


def _fused(spec: ModelSpec, workload: Workload, device: Device, _before: State, _assumed: Assumed) -> list[Lever]:
    if workload.attn != "eager":
        slow = state_of(spec, workload._replace(attn="eager"), device)
        now = state_of(spec, workload, device)
        why = f"in use; eager attention's prefill would take {slow.prefill_s / now.prefill_s:.2f} x as long"
        return [Lever("fused attention", workload.attn, None, why, "")]
    cost, old = costs(spec, workload._replace(attn="sdpa")), costs(spec, workload)
    reason = (
        f"no score matrices: prefill moves {_gb(old.prefill.executed_bytes)} -> "
        f"{_gb(cost.prefill.executed_bytes)}, and skips what the mask hides"
    )
    return [Lever("fused attention", "sdpa", _state(cost, workload.batch, device), reason, "decode gains little")]


def _latent(spec: ModelSpec, workload: Workload, device: Device, before: State, _assumed: Assumed) -> list[Lever]:
    other = absorbed(spec)
    if other is None:
        return []
    cost, old = costs(other, workload), costs(spec, workload)
    step = _state(cost, workload.batch, device)
    return [
        Lever(
            "absorbed latents",
            "decode",
            # Prompts are still expanded: there absorbing costs more FLOPs than it saves.
            before._replace(step_s=step.step_s, tokens_per_s=step.tokens_per_s),
            f"engines attend to the latent cache itself, Hugging Face makes all keys and values anew in each step: "
            f"{_what_shrinks(old.first_step, cost.first_step)}",
            f"{_what_is_left(cost, device)}; needs an engine that does it (vLLM, SGLang, TensorRT-LLM)",
        )
    ]


def _cache(spec: ModelSpec, workload: Workload, device: Device, _before: State, _assumed: Assumed) -> list[Lever]:
    if workload.cache == "ideal":
        return [Lever("paged cache", "", None, "nothing is copied already", "")]
    cost, old = costs(spec, workload._replace(cache="ideal")), costs(spec, workload)
    return [
        Lever(
            "paged cache",
            "in place",
            _state(cost, workload.batch, device),
            _what_shrinks(old.first_step, cost.first_step),
            f"{_what_is_left(cost, device)}; half a block per sequence stays empty",
        )
    ]


def _offload(spec: ModelSpec, workload: Workload, device: Device, before: State, _assumed: Assumed) -> list[Lever]:
    excess = before.total_bytes - device.memory_bytes
    if excess <= 0:
        return [Lever("offload", "", None, "everything fits", "")]
    weights = costs(spec, workload).weight_bytes
    if excess > weights:
        return [Lever("offload", "", None, f"{_gb(excess)} do not fit, more than the weights", "")]
    model, link = coefficients(spec, precision_of(spec, workload)), device.host_byte_s
    each, all_at_once = (streamed_bytes(model, excess, n) for n in (workload.batch, workload.batch * workload.prompt))
    spilled = offload(TIERS[0], streamed=each, step_s=before.step_s, link_byte_s=link)
    prompt = offload(TIERS[0], streamed=all_at_once, step_s=before.prefill_s, link_byte_s=link)
    step = spilled.step_s
    after = State(prompt.step_s, step, workload.batch / step, float(device.memory_bytes), 1, True)
    reason = f"{_gb(excess)} of weights stay in host memory, and {_gb(each)} of them are streamed in every step"
    if each < excess:
        reason += " (routed experts, those that a token meets)"
    limit = f"the host link: {spilled.slowdown:.1f} x the time of a step with all weights on the GPU"
    return [Lever("offload", "host memory", after, reason, limit)]


def _speculative(spec: ModelSpec, workload: Workload, device: Device, before: State, assumed: Assumed) -> list[Lever]:
    k, a = assumed.drafted, assumed.acceptance
    tokens = float(k + 1) if a == 1 else (1 - a ** (k + 1)) / (1 - a)
    model = coefficients(spec, precision_of(spec, workload))
    verify = forward_cost(model, [Part(k + 1, workload.prompt, workload.batch)], k + 1)
    plain = forward_cost(model, [Part(1, workload.prompt, workload.batch)])
    besides = costs(spec, workload).first_step
    # What is written and moved for each token is so for every drafted one; copies of the cache are made once.
    drafted = k * (besides.kv_write_bytes + workload.batch * (model.token_io_bytes + model.head_io_bytes))
    copied = besides.executed_bytes - besides.bytes + drafted
    verify_s = max(verify.compute_s(device.flop_s, device.apart(model)), (verify.bytes + copied) / device.byte_s)
    step = (verify_s + k * assumed.draft_step_s) / tokens
    extra = verify.flops / plain.flops
    after = before._replace(
        step_s=step,
        tokens_per_s=workload.batch / step,
        prefill_s=before.prefill_s + assumed.draft_prefill_s,
        total_bytes=before.total_bytes + assumed.draft_bytes,
    )
    return [
        Lever(
            "speculative decoding",
            f"{k} drafted",
            after._replace(fits=after.total_bytes <= device.memory_bytes),
            f"{tokens:.2f} tokens per pass over the weights (each draft right with {a:g}, assumed)",
            f"{extra:.1f} x the FLOPs per pass: no gain once decode is compute-bound; drafting costs "
            f"{1e3 * k * assumed.draft_step_s:.2f} ms per pass",
        )
    ]


def _prefix(spec: ModelSpec, workload: Workload, device: Device, before: State, assumed: Assumed) -> list[Lever]:
    past = int(assumed.shared_prompt * workload.prompt)
    if past == 0 or past == workload.prompt:
        return [Lever("prefix caching", "", None, "no part of the prompt is shared", "")]
    model = coefficients(spec, precision_of(spec, workload))
    rest = forward_cost(model, [Part(workload.prompt - past, past, workload.batch)])
    cost = costs(spec, workload)
    peaks = device.flop_s, device.byte_s, device.apart(model)
    shrunk = _phase_s(cost, cost.prefill, device) * rest.ideal_s(*peaks)
    whole = forward_cost(model, [Part(workload.prompt, 0, workload.batch)]).ideal_s(*peaks)
    capacity = workload.prompt + workload.output
    # A window ends with the sequence's own tokens: what it has left of the shared ones can be shared.
    shared = sum(g.kept_bytes * max(0, past - max(0, capacity - g.window)) for g in model.windows)
    saved = (workload.batch - 1) * shared * (1 + workload.overhead)
    after = before._replace(prefill_s=shrunk / whole, total_bytes=before.total_bytes - saved)
    return [
        Lever(
            "prefix caching",
            f"{100 * assumed.shared_prompt:g} % shared",
            after._replace(fits=after.total_bytes <= device.memory_bytes),
            f"{past:,} of {workload.prompt:,} prompt tokens (assumed) are not computed again, and held once",
            "decode is no faster; every sequence still reads the whole cache"
            + ("; recurrent states must have been kept at that very place" if model.state_bytes else ""),
        )
    ]


def _chunked(spec: ModelSpec, workload: Workload, device: Device, before: State, assumed: Assumed) -> list[Lever]:
    if assumed.chunk >= workload.prompt:
        return [Lever("chunked prefill", "", None, f"the prompt is no longer than a chunk of {assumed.chunk}", "")]
    model = coefficients(spec, precision_of(spec, workload))

    def of(chunk: int) -> tuple[float, float]:
        found = chunked_prefill(
            model,
            prompt=workload.prompt,
            chunk=chunk,
            running=workload.batch,
            context=workload.prompt + 1,
            flop_s=device.flop_s,
            byte_s=device.byte_s,
            quantised_flop_s=device.apart(model),
        )
        return found.longest_stall_s, found.prefill_s

    (stall, whole), (short, all_chunks) = of(workload.prompt), of(assumed.chunk)
    return [
        Lever(
            "chunked prefill",
            f"{assumed.chunk} tokens",
            before._replace(prefill_s=before.prefill_s * all_chunks / whole),
            f"the longest wait of a running request behind a prompt: {1e3 * stall:.2f} -> {1e3 * short:.2f} ms",
            "evens out latency; each chunk reads the weights and all keys before it again",
        )
    ]


_Make = Callable[[ModelSpec, Workload, Device, State, Assumed], list[Lever]]
_LEVERS: tuple[_Make, ...] = (
    _weights,
    _kv,
    _batch,
    _continuous,
    _tensor,
    _fused,
    _latent,
    _cache,
    _offload,
    _speculative,
    _prefix,
    _chunked,
)
