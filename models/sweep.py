"""Many estimates at once, as numpy arrays, with the very formulas of the single estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from kernelroof.models.estimate import Costs, IdealTimes, costs_of, ideal_times
from kernelroof.models.spec import ModelSpec

_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate", "vocab")
_FLAGS = ("tied", "qkv_bias", "output_bias", "mlp_bias", "qk_norm")


class Points(NamedTuple):
    """One estimate per element; all arrays broadcast against each other.

    `model` indexes the specs given to `estimate_points`. Sizes are tokens and sequences, formats
    are bits per element, `flop_s` and `byte_s` are the device's peaks in FLOP/s and B/s.
    """

    model: Any
    batch: Any
    prompt: Any
    output: Any
    run_bits: Any
    weight_bits: Any
    kv_bits: Any
    flop_s: Any
    byte_s: Any


def estimate_points(
    specs: Sequence[ModelSpec],
    points: Points,
    *,
    last: bool = True,
    streamed_table: bool = False,
    cache: str = "dynamic",
    attn: str = "sdpa",
    overhead: float = 0.10,
) -> tuple[Costs, IdealTimes]:
    """Estimate every point; each field of the results is an array.

    Counts are int64: exact up to 9.2e18, which a prefill of 10^5 tokens at batch 10^4 on a model of
    10^12 parameters stays under.
    """
    index = np.asarray(points.model)
    columns: dict[str, Any] = {
        f: np.array([getattr(s, f) for s in specs], dtype=np.int64)[index] for f in (*_SIZES, *_FLAGS)
    }
    spec = specs[0]._replace(**columns)
    cost = costs_of(
        spec,
        batch=points.batch,
        prompt=points.prompt,
        output=points.output,
        run_bits=points.run_bits,
        weight_bits=points.weight_bits,
        kv_bits=points.kv_bits,
        causal=int(attn != "eager"),
        last=int(last),
        streamed_table=int(streamed_table),
        dynamic=int(cache == "dynamic"),
        static=int(cache == "static"),
        eager=int(attn == "eager"),
        overhead=overhead,
        maximum=np.maximum,
    )
    return cost, ideal_times(cost, points.output, points.flop_s, points.byte_s, np.maximum, np.where)
