"""One forward of any mix of sequences: chunks of prompts, decode steps, drafted tokens to verify.

The estimate of `kernelroof.models.estimate` knows a prefill and decode steps of equal sequences; servers
mix them. Attention is counted causally, under windows too, and every weight and key is read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernelroof.models.coefficients import Coefficients
from kernelroof.models.estimate import distinct_experts


class Part(NamedTuple):
    """`sequences` sequences that each add `new` tokens to `past` cached ones."""

    new: int
    past: int
    sequences: int = 1


class Forward(NamedTuple):
    """What one forward must compute and move."""

    flops: float
    bytes: float
    tokens: int
    quantised_flops: float = 0

    def compute_s(self, flop_s: float, quantised_flop_s: float | None = None) -> float:
        """Time of computing at a peak (FLOP/s), quantised products at their own."""
        apart = self.quantised_flops * (flop_s / quantised_flop_s - 1) if quantised_flop_s else 0
        return (self.flops + apart) / flop_s

    def ideal_s(self, flop_s: float, byte_s: float, quantised_flop_s: float | None = None) -> float:
        """Shortest time at a compute peak (FLOP/s) and a bandwidth (B/s)."""
        return max(self.compute_s(flop_s, quantised_flop_s), self.bytes / byte_s)


def forward_cost(model: Coefficients, parts: Iterable[Part], logits_each: int = 1) -> Forward:
    """Cost of one forward.

    logits_each: positions per sequence whose logits are computed (the last one; all drafted ones when
    they are verified).
    """
    parts = tuple(parts)
    tokens = sum(p.new * p.sequences for p in parts)
    sequences = sum(p.sequences for p in parts)
    flops = tokens * (model.token_flops + model.scan_flops) + sequences * logits_each * model.head_flops
    moved = float(model.always_bytes + sequences * model.state_bytes)
    for experts in model.experts:
        moved += distinct_experts(experts.experts, experts.used, tokens) * experts.bytes_each
    for group in model.windows:
        for part in parts:
            seen = min(part.past, group.window - 1) + part.new
            flops += part.sequences * (
                group.pair_flops * _pairs(part.new, part.past, group.window) + group.key_flops * seen
            )
            moved += part.sequences * group.read_bytes * seen
    return Forward(flops, moved, tokens, tokens * model.quantised_flops)


def _pairs(new: int, past: int, window: int) -> int:
    """Sum over i = 1..new of min(past + i, window)."""
    rising = min(max(window - past, 0), new)
    return rising * past + rising * (rising + 1) // 2 + (new - rising) * window
