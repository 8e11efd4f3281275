"""`kernelroof estimate` by tracing: asked for with --traced, or where there is no closed form."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from kernelroof.models.dtypes import RUN_DTYPES, canonical
from kernelroof.models.errors import ConfigError, UsageError
from kernelroof.models.presets import display_name
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import check_sizes

_DEFAULTS = {
    "weights_dtype": None,
    "kv_dtype": None,
    "mask": "auto",
    "embedding": "gathered",
    "overhead": 0.10,
    "quantised_tflops": None,
    "calibrate": None,
}
"""What a trace can't vary: it runs the model as transformers does, in one format."""


def run_traced(args: argparse.Namespace, config: Mapping[str, Any], why: str = "") -> int:
    """Print the traced estimate; `why` is said first, where the closed form could not answer.

    Raises:
        UsageError: an option that only the closed form knows.
    """
    for option, default in _DEFAULTS.items():
        if getattr(args, option) != default:
            raise UsageError(
                f"a traced estimate has no --{option.replace('_', '-')}" + (f" ({why})" if why else ""),
                "Leave it out: the model is traced as transformers runs it, in one format.",
            )
    if args.cache == "ideal":
        raise UsageError("no model runs with an ideal cache", "Choose --cache dynamic or static.")
    check_sizes(args.batch, args.prompt, args.output, _positions(config), display_name(args.model))
    dtype = canonical(args.dtype, "--dtype", RUN_DTYPES) if args.dtype else _own_dtype(config)
    from kernelroof.profile.estimate_command import given_from

    ceilings = given_from(args, dtype)
    if ceilings is None and args.gpu is not None:
        from kernelroof.roofline.gpus import ceilings_for, find_gpu

        ceilings = ceilings_for(find_gpu(args.gpu), dtype)
    if why:
        print(f"{why}; traced instead (loads torch and transformers)", file=sys.stderr)
    from kernelroof.models.traced_record import traced_record

    record = traced_record(
        config,
        display_name(args.model),
        batch=args.batch,
        prompt=args.prompt,
        output=args.output,
        dtype=dtype,
        attn=args.attn,
        cache=args.cache,
        head=args.head,
        flop_s=ceilings.flop_s if ceilings else None,
        byte_s=ceilings.byte_s if ceilings else None,
    )
    record["device"] = (
        None if ceilings is None else {"name": ceilings.name, "origin": f"{ceilings.origin}: {ceilings.note}"}
    )
    if args.json:
        import json

        print(json.dumps(record, indent=2, allow_nan=False))
        return 0
    from kernelroof.roofline.traced_card import traced_card

    print(traced_card(record))
    return 0


def _positions(config: Mapping[str, Any]) -> int | None:
    """The longest context, where the closed form can tell."""
    try:
        return read_spec(config).max_positions
    except ConfigError:
        return None


def _own_dtype(config: Mapping[str, Any]) -> str:
    inner = config.get("text_config")
    places = (inner, config) if isinstance(inner, Mapping) else (config,)
    named = next((place[f] for place in places for f in ("dtype", "torch_dtype") if place.get(f)), "bfloat16")
    return canonical(str(named), "the config's dtype", RUN_DTYPES)
