"""Chunked prefill: what a long prompt does to the decode steps that wait behind it."""

from __future__ import annotations

from typing import NamedTuple

from kernelroof.models.coefficients import Coefficients
from kernelroof.models.errors import UsageError
from kernelroof.models.forward import Part, forward_cost

MOST_CHUNKS = 100_000
"""Each takes some microseconds to estimate."""


class Chunking(NamedTuple):
    """A prompt computed in chunks, each in one forward with a decode step of all running requests."""

    chunk: int
    """Tokens per chunk; the prompt's length where it is not chunked."""
    forwards: int
    longest_stall_s: float
    """Longest forward: the longest time between two tokens of a running request."""
    prefill_s: float
    """Until the prompt is through, decode steps included: its time to first token."""
    decode_step_s: float
    """A decode step with no prompt beside it."""


def chunked_prefill(
    model: Coefficients,
    *,
    prompt: int,
    chunk: int,
    running: int,
    context: int,
    flop_s: float,
    byte_s: float,
    quantised_flop_s: float | None = None,
) -> Chunking:
    """Ideal times of a prompt of `prompt` tokens, `chunk` at a time, beside `running` requests at `context` tokens.

    Raises:
        UsageError: more chunks than can be computed one by one.
    """
    if prompt > MOST_CHUNKS * chunk:
        raise UsageError(
            f"a prompt of {prompt:,} tokens has more than {MOST_CHUNKS:,} chunks of {chunk:,}", "Ask for larger chunks."
        )
    decode = (Part(1, context - 1, running),) if running else ()
    times = []
    for past in range(0, prompt, chunk):
        new = min(chunk, prompt - past)
        times.append(forward_cost(model, (Part(new, past), *decode)).ideal_s(flop_s, byte_s, quantised_flop_s))
    step = forward_cost(model, decode).ideal_s(flop_s, byte_s, quantised_flop_s) if decode else 0.0
    return Chunking(chunk, len(times), max(times), sum(times), step)
