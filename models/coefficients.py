"""A model in given formats, boiled down to the few numbers that the estimate's formulas need.

This is the only place where layers are walked; all formulas after it are arithmetic on these sums,
so a million workloads of one model cost a million times a few operations, whatever its layers are.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from kernelroof.models.dtypes import BITS
from kernelroof.models.formats import Format
from kernelroof.models.layers import Attention, LayerGroup, Linear
from kernelroof.models.precision import Precision
from kernelroof.models.spec import ModelSpec

UNBOUNDED = 1 << 60
"""Stands for "no window": more tokens than any context, small enough for 64-bit arithmetic."""


class WindowGroup(NamedTuple):
    """All layers whose queries see the same number of tokens; sums over these layers."""

    window: int
    unmasked: int
    """1 where attention may skip what a causal mask hides; 0 where it is always handed an explicit mask."""
    pair_flops: int
    """Per query-key pair."""
    key_flops: int
    """Per key, whatever the number of queries: a latent cache's expansion."""
    scores: int
    """Heads: elements of the score matrices per query-key pair."""
    expanded: int
    """Elements per key that eager attention reads once K and V are expanded to all heads; 0 if that is not needed."""
    remade: int
    """Elements per key that are written and read again where K and V are made from a latent in every forward."""
    kept_bytes: int
    """What the cache grows by per token."""
    read_bytes: int
    """What is read of the cache per key."""


class ExpertGroup(NamedTuple):
    """Layers with the same number of routed experts."""

    experts: int
    used: int
    bytes_each: int
    """One expert of each of these layers."""


class Coefficients(NamedTuple):
    """Sums over a model's layers. Bytes are in the formats that were asked for."""

    parameters: int
    active_parameters: int
    """Parameters that one token meets: with top-k of the routed experts only."""
    matmul_parameters: int
    """Elements of all matrices that multiply, the head's too, whether tied or not; all experts."""
    weight_bytes: int
    table_bytes: int
    """The embedding table, 0 where it is tied: then it is the head."""
    always_bytes: int
    """Read in every forward: everything but the table and the routed experts."""
    token_flops: int
    quantised: tuple[tuple[str, int], ...]
    """The part of token_flops whose operands are both quantised, by their class (see kernelroof.models.formats)."""
    quantised_flops: int
    """The sum of these."""
    head_flops: int
    scan_flops: int
    token_io_bytes: int
    """Operands and results of products and attention per token."""
    head_io_bytes: int
    state_bytes: int
    """Recurrent state per sequence."""
    hidden_bytes: int
    inner_bytes: int
    logit_bytes: int
    peak_heads: int
    """Most heads of a layer: eager attention's scores are alive for one layer at a time."""
    score_bytes: int
    """Held per head and pair by eager attention: once as they are and twice in 32 bits where the model is narrower,
    twice where it is not; three times as they are where sinks join them, whose softmax stays in the run's format."""
    peak_projected_bytes: int
    """Queries and new keys and values of a layer, per token."""
    peak_expanded_bytes: int
    """Keys and values of a layer expanded to all heads, per key; 0 if that is not needed."""
    unit_bytes: int
    windows: tuple[WindowGroup, ...]
    """In order of their windows."""
    experts: tuple[ExpertGroup, ...]


@functools.lru_cache(maxsize=4096)
def coefficients(spec: ModelSpec, precision: Precision) -> Coefficients:
    """The numbers of `spec` with weights and cache held as `precision` says."""
    unit = BITS[precision.run] // 8
    linears = [(group, linear) for group in spec.groups for linear in group.linears]
    matrices = sum(g.layers * li.copies * li.elements for g, li in linears)
    matrices += sum(li.elements for li in spec.linears)
    idle = sum(g.layers * max(li.copies - li.used, 0) * (li.elements + li.bias * li.outputs) for g, li in linears)
    biases = sum(g.layers * li.copies * li.outputs for g, li in linears if li.bias)
    biases += sum(li.outputs for li in spec.linears if li.bias)
    wide = sum(g.layers * g.wide_vectors for g in spec.groups)
    vectors = sum(g.layers * g.vectors for g in spec.groups) + spec.vectors + biases
    table, head = spec.table, spec.head.elements
    untied = 0 if spec.tied else head
    head_bias = spec.head.outputs if spec.head.bias else 0
    outer, head_format = precision.table_format, precision.head_format
    stored = sum(outer.matrix_bytes(li.inputs, li.outputs) for li in spec.linears)
    unused = 0
    routed: dict[tuple[int, int], int] = {}
    for group in spec.groups:
        for linear in group.linears:
            size = _stored(group, linear, precision)
            stored += linear.copies * size
            size += group.layers * linear.outputs * unit if linear.bias else 0
            if linear.used == 0:
                unused += linear.copies * size
            elif linear.copies > 1 and not linear.dense:
                key = (linear.copies, linear.used)
                routed[key] = routed.get(key, 0) + size
    experts = tuple(ExpertGroup(e, k, size) for (e, k), size in sorted(routed.items()))
    gathered = outer.matrix_bytes(spec.gathered, 1)
    table_bytes = (0 if spec.tied else outer.matrix_bytes(table, 1)) + gathered
    head_bytes = head_format.matrix_bytes(spec.head.inputs, spec.head.outputs)
    # A tied head is the table, so it is held once, whichever of the two is asked.
    weight_bytes = stored + (vectors + head_bias) * unit + 4 * wide + head_bytes + table_bytes
    parameters = matrices + vectors + wide + head_bias + table + spec.gathered + untied
    classes = _quantised(spec, precision)
    return Coefficients(
        parameters=parameters,
        active_parameters=parameters - idle,
        matmul_parameters=matrices + head,
        weight_bytes=weight_bytes,
        table_bytes=table_bytes,
        always_bytes=weight_bytes - table_bytes - unused - sum(e.experts * e.bytes_each for e in experts),
        token_flops=2 * sum(g.layers * li.run * li.elements for g, li in linears if li.per == "token")
        + 2 * sum(li.elements for li in _outer(spec, "token"))
        + sum(g.layers * g.products for g in spec.groups),
        quantised=classes,
        quantised_flops=sum(flops for _, flops in classes),
        head_flops=2 * sum(li.elements for li in (spec.head, *_outer(spec, "logit"))),
        scan_flops=sum(g.layers * g.state.scan_flops for g in spec.groups if g.state),
        token_io_bytes=unit * (_linear_io(spec) + _attention_io(spec)),
        head_io_bytes=unit * sum(li.inputs + li.outputs for li in (spec.head, *_outer(spec, "logit"))),
        state_bytes=sum(g.layers * _state_bytes(g, precision) for g in spec.groups),
        hidden_bytes=spec.hidden * unit,
        inner_bytes=max(g.inner * unit + g.inner_wide * 4 for g in spec.groups),
        logit_bytes=spec.head.outputs * unit,
        peak_heads=max((g.attention.heads for g in spec.groups if g.attention), default=0),
        score_bytes=_score_bytes(spec, unit),
        peak_projected_bytes=max((_projected(g.attention) for g in spec.groups if g.attention), default=0) * unit,
        peak_expanded_bytes=max((_expanded(g.attention) for g in spec.groups if g.attention), default=0) * unit,
        unit_bytes=unit,
        windows=_windows(spec, precision),
        experts=experts,
    )


def formats_of(group: LayerGroup, linear: Linear, precision: Precision) -> list[tuple[int, Format]]:
    """How many layers of the group hold a matrix in which format."""
    if not precision.by_name:
        return [(group.layers, precision.of(linear.name))]
    return [(1, precision.of(f"layers.{i}.{linear.name}")) for i in group.indices]


def _stored(group: LayerGroup, linear: Linear, precision: Precision) -> int:
    """Bytes of one copy of a matrix in all layers of its group."""
    shape = linear.inputs, linear.outputs
    if linear.bits is not None:
        return group.layers * (linear.elements * linear.bits // 8)
    return sum(n * held.matrix_bytes(*shape) for n, held in formats_of(group, linear, precision))


def _quantised(spec: ModelSpec, precision: Precision) -> tuple[tuple[str, int], ...]:
    """FLOPs per token of products whose operands are both quantised, by class."""
    if not precision.computes:
        return ()
    classes: dict[str, int] = {}
    for group in spec.groups:
        for linear in group.linears:
            if linear.per != "token" or linear.bits is not None:
                continue
            for n, held in formats_of(group, linear, precision):
                if held.compute:
                    flops = 2 * n * linear.used * linear.elements
                    classes[held.compute] = classes.get(held.compute, 0) + flops
    return tuple(sorted(classes.items()))


def _linear_io(spec: ModelSpec) -> int:
    inside = sum(
        g.layers * li.run * (li.inputs + li.outputs) for g in spec.groups for li in g.linears if li.per == "token"
    )
    return inside + sum(li.inputs + li.outputs for li in _outer(spec, "token"))


def _outer(spec: ModelSpec, per: str) -> list[Linear]:
    """Matrices outside the layers that are applied per token, or per position with logits; without the head."""
    return [li for li in spec.linears if li.per == per]


def _attention_io(spec: ModelSpec) -> int:
    """Queries read and results written."""
    cores = ((g.layers, g.attention) for g in spec.groups if g.attention)
    return sum(count * core.heads * (core.head_dim + core.value_dim) for count, core in cores)


def _state_bytes(group: LayerGroup, precision: Precision) -> int:
    if group.state is None:
        return 0
    run = BITS[precision.run]
    bits = run if group.state.bits is None else group.state.bits
    return (group.state.elements * bits + group.state.conv_elements * run + 7) // 8


def _windows(spec: ModelSpec, precision: Precision) -> tuple[WindowGroup, ...]:
    found: dict[tuple[int, int], WindowGroup] = {}
    for group in spec.groups:
        core = group.attention
        if core is None:
            continue
        window = UNBOUNDED if core.window is None else core.window
        key = window, 1 - core.masked
        sums = found.get(key, WindowGroup(*key, 0, 0, 0, 0, 0, 0, 0))
        n = group.layers
        pair_flops = 2 * core.heads * (core.head_dim + core.value_dim) + core.more_flops
        found[key] = WindowGroup(
            *key,
            pair_flops=sums.pair_flops + n * pair_flops,
            key_flops=sums.key_flops + n * 2 * sum(li.elements for li in group.linears if li.per == "context"),
            scores=sums.scores + n * core.heads,
            expanded=sums.expanded + n * _expanded(core),
            remade=sums.remade + n * _remade(group, core),
            kept_bytes=sums.kept_bytes + n * cache_bytes(core, core.kept_width, precision.kv),
            read_bytes=sums.read_bytes + n * cache_bytes(core, core.read_width, precision.kv),
        )
    return tuple(found[key] for key in sorted(found))


def cache_bytes(core: Attention, width: int, kv: Format) -> int:
    """Bytes of one token in the cache: a key and a value per KV head, or one vector where it is kept otherwise."""
    if width == core.kv_heads * (core.head_dim + core.value_dim):
        return kv.matrix_bytes(core.head_dim, core.kv_heads) + kv.matrix_bytes(core.value_dim, core.kv_heads)
    return kv.matrix_bytes(width, 1) if width else 0


def _score_bytes(spec: ModelSpec, unit: int) -> int:
    if any(g.attention and g.attention.sinks for g in spec.groups):
        return 3 * unit
    return 8 + (unit if unit < 4 else 0)


def _projected(core: Attention) -> int:
    """Elements per token of an attention's queries and of its new keys and values."""
    return core.heads * core.head_dim + core.kept_width


def _expanded(core: Attention) -> int:
    return core.heads * (core.head_dim + core.value_dim) if core.kv_heads < core.heads else 0


def _remade(group: LayerGroup, core: Attention) -> int:
    made = sum(li.outputs for li in group.linears if li.per == "context")
    return made + core.heads * (core.head_dim + core.value_dim) if made else 0
