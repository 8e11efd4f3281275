"""`kernelroof batching`: static against continuous batching, and what chunked prefill does to the others."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from kernelroof.models.batching import (
    Schedule,
    continuous_batches,
    decode_seconds,
    length_words,
    repeated,
    static_batches,
)
from kernelroof.models.chunked import Chunking, chunked_prefill
from kernelroof.models.coefficients import Coefficients, coefficients
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import quantised_peak
from kernelroof.models.forward import Part, forward_cost
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.spec import ModelSpec, read_spec
from kernelroof.models.workload import check_size, precision_of
from kernelroof.profile.estimate_command import device_from, quantised_peaks_from, workload_from
from kernelroof.profile.option_checks import own_figures
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed, seconds

_LONG_PROMPT = 8192


def run(args: argparse.Namespace) -> int:
    """Print both policies for the given requests, and chunk sizes; see `decision_options` for the options."""
    lengths: list[int] = args.lengths
    slots = len(lengths) if args.slots is None else args.slots
    requests = 16 * len(lengths) if args.requests is None else args.requests
    for option, value in (("--slots", slots), ("--requests", requests), ("--long-prompt", args.long_prompt)):
        if value is not None:
            check_size(option, value)
    many = repeated(lengths, requests)
    rounds = {"once": _both(lengths, slots)}
    if requests != len(lengths):
        rounds["queue"] = _both(many, slots)
    if args.model is None:
        if any(given is not None for given in (args.gpu, *own_figures(args).values())):
            raise UsageError("a GPU without a model gives no times", "Name the MODEL too.")
        return _answer(args, lengths, slots, rounds, None, [])
    spec = read_spec(load_config(args.model), display_name(args.model))
    workload = workload_from(args, spec)
    ceilings = device_from(args, workload)
    if ceilings is None:
        raise UsageError("times need a device", "Add --gpu NAME (see `kernelroof gpus`).")
    long_prompt = _long_prompt(args.long_prompt, spec)
    if spec.max_positions is not None and workload.prompt + max(lengths) > spec.max_positions:
        raise UsageError(
            f"--prompt {workload.prompt} + {max(lengths)} of --lengths are more tokens than the {spec.max_positions} "
            f"positions of {spec.name}",
            "Ask for fewer tokens.",
        )
    model = coefficients(spec, precision_of(spec, workload))
    clock = _Clock(model, workload.prompt, ceilings, quantised_peaks_from(args))
    chunks = [
        chunked_prefill(
            model,
            prompt=long_prompt,
            chunk=chunk,
            running=slots,
            context=workload.prompt + max(1, round(sum(lengths) / len(lengths) / 2)),
            flop_s=ceilings.flop_s,
            byte_s=ceilings.byte_s,
            quantised_flop_s=clock.apart,
        )
        for chunk in (*sorted({c for c in args.chunks if c < long_prompt}), long_prompt)
    ]
    return _answer(args, lengths, slots, rounds, clock, chunks)


def _long_prompt(given: int | None, spec: ModelSpec) -> int:
    """The prompt that is chunked: as given, else the usual one as far as the model has positions.

    Raises:
        UsageError: more than that.
    """
    limit = spec.max_positions
    if given is None:
        return _LONG_PROMPT if limit is None else min(_LONG_PROMPT, limit)
    if limit is not None and given > limit:
        raise UsageError(
            f"--long-prompt is {given}, and {spec.name} has max_position_embeddings {limit}", "Ask for fewer tokens."
        )
    return given


class _Clock:
    """Ideal time of decode steps of one model on one device."""

    def __init__(self, model: Coefficients, prompt: int, ceilings: Ceilings, peaks: Mapping[str, float]) -> None:
        self.model, self.prompt, self.ceilings = model, prompt, ceilings
        self.apart = quantised_peak(model.quantised, peaks, ceilings.flop_s)

    def step_s(self, contexts: Sequence[int]) -> float:
        forward = forward_cost(self.model, [Part(1, context - 1) for context in contexts])
        return forward.ideal_s(self.ceilings.flop_s, self.ceilings.byte_s, self.apart)

    def seconds(self, schedule: Schedule) -> float:
        return decode_seconds(schedule, self.prompt, self.step_s)


def _both(lengths: Sequence[int], slots: int) -> list[Schedule]:
    return [static_batches(lengths, slots), continuous_batches(lengths, slots)]


def _answer(
    args: argparse.Namespace,
    lengths: list[int],
    slots: int,
    rounds: dict[str, list[Schedule]],
    clock: _Clock | None,
    chunks: list[Chunking],
) -> int:
    rows = [
        {
            "requests": len(lengths) if name == "once" else args.requests or 16 * len(lengths),
            "policy": schedule.policy,
            "steps": schedule.steps,
            "slot_steps": slots * schedule.steps,
            "tokens": schedule.useful,
            "utilisation": schedule.utilisation,
            "decode_s": None if clock is None else clock.seconds(schedule),
        }
        for name, schedules in rounds.items()
        for schedule in schedules
    ]
    if args.json:
        import json

        found = {"lengths": lengths, "slots": slots, "policies": rows, "chunks": [c._asdict() for c in chunks]}
        print(json.dumps(found, indent=2, allow_nan=False))
        return 0
    print(f"{len(lengths)} requests of {length_words(lengths)} output tokens, {slots} slots")
    print(_policy_table(rows))
    print(
        "utilisation: tokens asked for, over slots x steps. static: a batch runs until its longest request is "
        "through;\ncontinuous: whoever is through leaves, and the next one takes its slot."
    )
    if clock is not None:
        device = clock.ceilings.name
        print(f"decode: ideal on {device}, every prompt {clock.prompt} tokens, prefill not in it")
        print(f"\na prompt of {chunks[-1].chunk} tokens beside {slots} running requests, ideal on {device}")
        print(_chunk_table(chunks))
        print(
            "longest stall: the longest time between two tokens of a running request. Each chunk re-reads the "
            "weights\nand all keys before it; one decode step runs along with every chunk."
        )
    return 0


def _policy_table(rows: list[dict[str, Any]]) -> str:
    timed = rows[0]["decode_s"] is not None
    header = ["requests", "policy", "steps", "slots x steps", "tokens", "utilisation"]
    header += ["decode", "tokens/s"] if timed else []
    body = []
    for r in rows:
        cells = [
            f"{r['requests']:,}",
            r["policy"],
            f"{r['steps']:,}",
            f"{r['slot_steps']:,}",
            f"{r['tokens']:,}",
            f"{100 * r['utilisation']:.2f} %",
        ]
        if timed:
            cells += [seconds(r["decode_s"]), fixed(r["tokens"] / r["decode_s"])]
        body.append(cells)
    return text_table(header, body, left=(1,))


def _chunk_table(chunks: list[Chunking]) -> str:
    header = ["chunk", "forwards", "longest stall", "a decode step alone", "first token of the prompt"]
    return text_table(
        header,
        [
            [
                f"{c.chunk:,}" if c.forwards > 1 else "whole",
                f"{c.forwards:,}",
                seconds(c.longest_stall_s),
                seconds(c.decode_step_s),
                seconds(c.prefill_s),
            ]
            for c in chunks
        ],
    )
