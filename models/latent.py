"""Latent attention as inference engines decode with it: its expansion absorbed into queries and results.

K = L U and V = L W for a latent L: then q K^T = (q U^T) L^T and p V = (p L) W, so that queries meet the
latents themselves, and no head's keys or values are made. The two products take the FLOPs of the expansion
of one token (per query), whatever the context; scores and sums are as wide as the latent.
"""

from __future__ import annotations

from kernelroof.models.layers import LayerGroup
from kernelroof.models.spec import ModelSpec


def absorbed(spec: ModelSpec) -> ModelSpec | None:
    """The model with every latent attention absorbed; None where none expands its cache in each forward."""
    groups = tuple(_absorbed(group) for group in spec.groups)
    return None if groups == spec.groups else spec._replace(groups=groups)


def _absorbed(group: LayerGroup) -> LayerGroup:
    core = group.attention
    expansion = next((li for li in group.linears if li.per == "context"), None)
    if core is None or expansion is None:
        return group
    rank = expansion.inputs
    rotated = core.head_dim + core.value_dim - expansion.outputs // core.heads
    return group._replace(
        linears=tuple(li._replace(per="token") if li is expansion else li for li in group.linears),
        attention=core._replace(kv_heads=1, head_dim=rank + rotated, value_dim=rank),
    )
