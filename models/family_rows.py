"""Rows that dense and sparse model types of the table have in common."""

from __future__ import annotations

from kernelroof.models.family import Family
from kernelroof.models.layer_types import first_of

BIASED = Family("attention_bias", "attention_bias", "mlp_bias")
ATTENTION_BIAS = Family("attention_bias", "attention_bias")
GRANITE_SWA = Family(
    "attention_bias", "attention_bias", "mlp_bias", sinks="all", pattern=first_of(4, "sliding_attention"), eager=True
)
