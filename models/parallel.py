"""One model on several GPUs: what each holds, computes and sends, under tensor and pipeline parallelism.

Tensor parallelism (tp) divides every matrix and every head among the GPUs, experts and the embedding table
too; each part of a layer that ends in a divided matrix (attention, recurrence, MLP) ends with one all-reduce
of the activations, and so does the table. What belongs to all heads or is small is held whole by every GPU:
latent caches and the projections into them, routers, indexers, norms, matrices outside the layers. Pipeline
parallelism (pp) divides the layers; each boundary hands the activations on, and as many batches as stages are
in flight, whose caches all have to be held. A ring all-reduce of n bytes sends
2 (tp - 1) / tp * n from each GPU (Thakur, Rabenseifner, Gropp, 2005), an all-gather (tp - 1) / tp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernelroof.models.capacity import largest
from kernelroof.models.dtypes import BITS
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import Costs, PhaseCost, compute_time, costs, quantised_peak
from kernelroof.models.layers import Attention, LayerGroup, Linear
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload

COLLECTIVE_S = 8e-6
"""Assumed start-up time of one collective or hand-over among GPUs of one machine: NCCL's small all-reduces
take 5 to 15 microseconds over NVLink."""


class Split(NamedTuple):
    """The fullest GPU of a tp x pp split, and times at given peaks."""

    tp: int
    pp: int
    weight_bytes: int
    kv_bytes: float
    """Of all batches in flight: one per pipeline stage."""
    total_bytes: float
    sent_bytes_per_step: float
    """By one GPU in a decode step."""
    sent_bytes_prefill: float
    collectives_per_step: int
    step_comm_s: float
    prefill_comm_s: float
    step_s: float
    """Latency of a decode step: all stages one after the other, and the communication, none of it hidden."""
    prefill_s: float
    tokens_per_s: float
    """With enough batches in flight to keep all stages busy (pp > 1)."""


def split(
    spec: ModelSpec,
    workload: Workload,
    *,
    tp: int,
    pp: int,
    flop_s: float,
    byte_s: float,
    link_byte_s: float,
    executed: bool = False,
    quantised_peaks: Mapping[str, float] | None = None,
) -> Split:
    """Estimate a split of `spec` over tp * pp GPUs.

    Args:
        flop_s, byte_s: peaks of one GPU (FLOP/s, B/s).
        quantised_peaks: peaks (FLOP/s) of products of quantised operands, by class.
        link_byte_s: what one GPU can send to the others, one direction (B/s).
        executed: count all bytes that the estimate knows (`PhaseCost.executed_bytes`), not only those that must move.

    Raises:
        UsageError: more pipeline stages than layers, or heads that do not divide.
    """
    if pp > spec.layers:
        raise UsageError(f"{pp} pipeline stages for {spec.layers} layers", "Give at most one stage per layer.")
    stages = _stages(spec, pp)
    times, sizes = [], []
    for stage in stages:
        cost = costs(_shard(stage, tp), workload)
        apart = quantised_peak(cost.quantised, quantised_peaks or {}, flop_s)
        prefill, step = (_phase_s(phase, flop_s, byte_s, executed, apart) for phase in (cost.prefill, cost.first_step))
        times.append((prefill, step))
        sizes.append((_in_flight(cost, pp, workload.overhead), cost.weight_bytes, pp * cost.kv_bytes))
    total, weights, kv = max(sizes)
    unit = BITS[workload.dtype] // 8
    # In each stage, that of the table at its beginning.
    each = [(_reduces(stage) + (stage.table > 0)) * (tp > 1) for stage in stages]
    reduces = sum(each)
    gathers = 1 if tp > 1 else 0
    hands = pp - 1

    def sent(tokens: int, logits: int) -> float:
        """By the GPU that sends most: every stage's all-reduces, and the logits of the last."""
        activations = tokens * spec.hidden * unit
        per_stage = max(each) * 2 * (tp - 1) / tp * activations
        return per_stage + (hands > 0) * activations + (tp - 1) / tp * logits * spec.vocab * unit

    def comm_s(tokens: int, logits: int) -> float:
        activations = tokens * spec.hidden * unit
        moved = reduces * 2 * (tp - 1) / tp * activations + hands * activations
        moved += gathers * (tp - 1) / tp * logits * spec.vocab * unit
        return moved / link_byte_s + (reduces + gathers + hands) * COLLECTIVE_S

    batch, prompt = workload.batch, workload.prompt
    logits = batch * (prompt if workload.head == "all" else 1)
    step_comm, prefill_comm = comm_s(batch, batch), comm_s(batch * prompt, logits)
    step_s = sum(step for _, step in times) + step_comm
    slowest = max(step for _, step in times) + step_comm / pp
    return Split(
        tp=tp,
        pp=pp,
        weight_bytes=weights,
        kv_bytes=kv,
        total_bytes=total,
        sent_bytes_per_step=sent(batch, batch),
        sent_bytes_prefill=sent(batch * prompt, logits),
        collectives_per_step=reduces + gathers + hands,
        step_comm_s=step_comm,
        prefill_comm_s=prefill_comm,
        step_s=step_s,
        prefill_s=sum(prefill for prefill, _ in times) + prefill_comm,
        tokens_per_s=batch / slowest,
    )


def largest_split_batch(spec: ModelSpec, workload: Workload, *, tp: int, pp: int, memory_bytes: float) -> int:
    """Sequences per batch that fit every GPU of a tp x pp split; 0 if not even one does."""
    shards = [_shard(stage, tp) for stage in _stages(spec, pp)]

    def fits(batch: int) -> bool:
        load = workload._replace(batch=batch)
        return all(_in_flight(costs(s, load), pp, workload.overhead) <= memory_bytes for s in shards)

    return largest(fits)


def _in_flight(cost: Costs, pp: int, overhead: float) -> float:
    """Bytes of one GPU of a stage: with a batch in every stage, each stage keeps the caches of all of them."""
    return float(cost.total_bytes + (pp - 1) * cost.kv_bytes * (1 + overhead))


_HALVES = frozenset({"self_attn", "encoder_attn", "linear_attn", "mamba", "conv", "mlp", "experts"})
"""First parts of names of matrices whose last one is divided along its inputs, so that its results must be summed."""


def _reduces(spec: ModelSpec) -> int:
    """All-reduces of the layers in one forward: one for each part that ends in a divided matrix."""
    return sum(g.layers * len(_HALVES & {li.name.split(".")[0] for li in g.linears if li.run}) for g in spec.groups)


def _phase_s(phase: PhaseCost, flop_s: float, byte_s: float, executed: bool, apart: float) -> float:
    moved = phase.executed_bytes if executed else phase.bytes
    return float(max(compute_time(phase, flop_s, apart), moved / byte_s))


def _stages(spec: ModelSpec, pp: int) -> list[ModelSpec]:
    """The model cut into `pp` runs of layers as equal as can be.

    The first has the tables and the matrices outside the layers, the last the head and what works on logits.
    """
    if pp == 1:
        return [spec]
    bounds = [round(i * spec.layers / pp) for i in range(pp + 1)]
    stages = []
    for i in range(pp):
        kept = range(bounds[i], bounds[i + 1])
        groups = []
        for group in spec.groups:
            indices = tuple(x for x in group.indices if x in kept)
            if indices:
                groups.append(group._replace(indices=indices))
        first, last = i == 0, i == pp - 1
        # A tied table is held twice: where tokens come in, and where logits are made.
        head = spec.head if last else Linear("(none)", 0, 0)
        stages.append(
            spec._replace(
                groups=tuple(groups),
                table=spec.table if first else 0,
                head=head,
                vectors=spec.vectors * last,
                tied=False,
                gathered=spec.gathered * first,
                linears=tuple(li for li in spec.linears if (last if li.per == "logit" else first)),
            )
        )
    return stages


def _shard(spec: ModelSpec, tp: int) -> ModelSpec:
    """What one of `tp` GPUs holds of a stage."""
    if tp == 1:
        return spec
    groups = tuple(_shard_group(g, spec.hidden, tp, spec.name) for g in spec.groups)
    head = spec.head._replace(outputs=-(-spec.head.outputs // tp))
    return spec._replace(groups=groups, table=-(-spec.table // tp), head=head)


def _shard_group(group: LayerGroup, hidden: int, tp: int, name: str) -> LayerGroup:
    core = group.attention
    linears = tuple(_shard_linear(li, hidden, tp, core) for li in group.linears)
    state = group.state
    if state is not None:
        state = state._replace(
            elements=-(-state.elements // tp),
            conv_elements=-(-state.conv_elements // tp),
            scan_flops=-(-state.scan_flops // tp),
        )
    if core is not None:
        if core.heads % tp:
            raise UsageError(f"{name}: {core.heads} heads do not divide among {tp} GPUs", "Choose another --tp.")
        kv_heads = -(-core.kv_heads // tp)
        # A latent cache belongs to all heads at once, so every GPU keeps all of it.
        divides = core.kept_width in (0, core.kv_heads * (core.head_dim + core.value_dim))
        held, of = (kv_heads, core.kv_heads) if divides else (1, 1)
        indexed = any(".indexer." in li.name for li in group.linears)  # an indexer is not divided
        core = core._replace(
            heads=core.heads // tp,
            kv_heads=kv_heads,
            kept_width=core.kept_width * held // of,
            read_width=core.read_width * held // of,
            more_flops=core.more_flops if indexed else -(-core.more_flops // tp),
        )
    return group._replace(
        linears=linears, attention=core, state=state, inner=-(-group.inner // tp), inner_wide=-(-group.inner_wide // tp)
    )


_WHOLE = frozenset({"gate", "router", "kv_a_proj_with_mqa", "wq_b", "wk", "weights_proj"})
"""Last parts of names of matrices that every GPU holds whole, besides all `_a_proj`: routers, indexers, and
projections into a latent."""
_FROM_LATENT = frozenset({"q_b_proj", "kv_b_proj", "f_b_proj", "g_b_proj", "dt_proj"})
"""Those that lead from a latent to heads: their outputs are divided, though their input is not the hidden state."""


def _shard_linear(linear: Linear, hidden: int, tp: int, core: Attention | None) -> Linear:
    last = linear.name.rsplit(".", 1)[-1]
    if last in _WHOLE or last.endswith("_a_proj") or ".indexer." in linear.name:
        return linear
    # Fewer K and V heads than GPUs: each head is held by several.
    keyed = tp if core is None else min(tp, core.kv_heads)
    if last == "qkv_proj" and core is not None:
        queries = core.heads * core.head_dim
        return linear._replace(outputs=-(-queries // tp) - (queries - linear.outputs) // keyed)
    ways = keyed if last in ("k_proj", "v_proj") else tp
    if linear.inputs == hidden or last in _FROM_LATENT:
        return linear._replace(outputs=-(-linear.outputs // ways))
    return linear._replace(inputs=-(-linear.inputs // ways))
