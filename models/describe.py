"""What a model is made of, in words and in a few numbers, for the card and the record."""

from __future__ import annotations

from typing import Any

from kernelroof.models.estimate import Costs, distinct_experts
from kernelroof.models.layers import LayerGroup
from kernelroof.models.spec import ModelSpec


def layers_by_kind(spec: ModelSpec) -> dict[str, int]:
    """Number of layers of every kind, in the order in which the kinds first appear."""
    counts: dict[str, int] = {}
    for group in spec.groups:
        counts[kind_of_layer(group)] = counts.get(kind_of_layer(group), 0) + group.layers
    return counts


def kind_of_layer(group: LayerGroup) -> str:
    """The kind of a group's layers, with the window that its attention has."""
    window = group.attention.window if group.attention else None
    return group.label if window is None else f"{group.label} (window {window:,})"


def experts(spec: ModelSpec, tokens: int) -> list[dict[str, Any]]:
    """Routed experts by kind of layer: how many there are, meet a token, and are met by `tokens` tokens.

    `distinct` is expected under uniform independent routing, per layer; exact for one token.
    """
    found: dict[tuple[int, int, bool], int] = {}
    for group in spec.groups:
        routed = next((li for li in group.linears if li.copies > 1), None)
        if routed is not None:
            key = routed.copies, routed.used, routed.dense
            found[key] = found.get(key, 0) + group.layers
    return [
        {
            "layers": layers,
            "experts": count,
            "per_token": used,
            "distinct": float(count if dense else distinct_experts(count, used, tokens)),
        }
        for (count, used, dense), layers in found.items()
    ]


def architecture(spec: ModelSpec) -> str:
    """One line such as "48 layers: 36 linear attention, 12 full attention; MoE 128 experts, top-8"."""
    kinds = layers_by_kind(spec)
    if len(kinds) == 1:
        words = [f"{spec.layers} layers, {next(iter(kinds))}"]
    else:
        words = [f"{spec.layers} layers: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items())]
    core = spec.attention
    if core is not None:
        heads = f"{core.heads} heads" if core.kv_heads == core.heads else f"{core.heads} heads on {core.kv_heads} KV"
        words.append(f"{heads} of {core.head_dim}")
    for kind in experts(spec, 1):
        where = "" if kind["layers"] == spec.layers else f" in {kind['layers']} layers"
        words.append(f"MoE {kind['experts']} experts, top-{kind['per_token']}{where}")
    if any("shared_expert" in li.name for g in spec.groups for li in g.linears):
        words.append("a shared expert")
    words.append("head tied to the embedding" if spec.tied else "untied head")
    return "; ".join(words)


def conventions_of_kinds(spec: ModelSpec) -> dict[str, str]:
    """Conventions that only models with experts, states or windows need."""
    words = {}
    if experts(spec, 1):
        words["experts"] = (
            "those that at least one token meets are read, as expected under uniform independent routing; one token "
            "meets exactly its top-k. Traced ops, and with them the waterfall and the bytes of kernels, take the most "
            "even routing: as many experts as tokens times k can meet"
        )
    if any(group.state for group in spec.groups):
        words["states"] = (
            "read and written once per step; recurrences count one pass over the state per token (decay, update, "
            "read) and their convolution, not the chunked products of a kernel"
        )
    if any(group.attention and group.attention.window for group in spec.groups):
        words["windows"] = (
            "a prompt of a window or more is masked explicitly, so that all its pairs are computed; --mask causal "
            "counts what the window leaves"
        )
    return words


def tower_record(spec: ModelSpec, unit_bytes: int) -> dict[str, Any] | None:
    """What a wrapper holds beside the decoder; null sizes where its kind is not known, with the reason."""
    if spec.tower is None:
        return None
    count = spec.tower.parameters
    return {
        "kind": spec.tower.kind,
        "parameters": count,
        "weight_bytes": None if count is None else count * unit_bytes,
        "reason": spec.tower.reason or None,
    }


def kv_without_windows(cost: Costs, batch: int, tokens: int) -> int:
    """What the cache would hold at the end if no layer had a window, states included."""
    return int(batch * (cost.kv_bytes_per_token * tokens + cost.state_bytes_per_sequence))
