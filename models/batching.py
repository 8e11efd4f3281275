"""Static against continuous batching: how many of the batch's slots do useful work, and how long it all takes."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kernelroof.models.errors import UsageError

MOST_SLOTS = 1_000_000
"""Requests, and places in a schedule's stretches, that are followed; more would take minutes."""

MOST_TIMED = 200_000
"""The same where each stretch's steps are timed too, request by request."""


_SHOWN = 12
"""So many lengths are printed."""


class Stretch(NamedTuple):
    """Consecutive decode steps with the same requests in the batch."""

    steps: int
    running: tuple[tuple[int, int], ...]
    """(request, tokens that it had generated before the stretch); requests that are through are in it
    too where their slot is still computed."""


class Schedule(NamedTuple):
    """What a policy does with a list of output lengths."""

    policy: str
    batch: int
    useful: int
    """Tokens that were asked for."""
    steps: int
    stretches: tuple[Stretch, ...]

    @property
    def utilisation(self) -> float:
        """Tokens that were asked for, over slots times steps."""
        return self.useful / (self.batch * self.steps)


def repeated(lengths: Sequence[int], requests: int) -> list[int]:
    """Output lengths of `requests` requests: the given ones again and again.

    Raises:
        UsageError: more than can be followed.
    """
    if requests > MOST_SLOTS:
        raise UsageError(f"{requests:,} requests are too many", f"Ask for {MOST_SLOTS:,} at most.")
    return list(itertools.islice(itertools.cycle(lengths), requests))


def length_words(lengths: Sequence[int]) -> str:
    """Output lengths for print, the first few where there are many."""
    return ", ".join(map(str, lengths[:_SHOWN])) + (", ..." if len(lengths) > _SHOWN else "")


def static_batches(lengths: Sequence[int], batch: int) -> Schedule:
    """Requests in order of arrival, `batch` at a time; all slots run until the batch's longest is through."""
    stretches = []
    for first in range(0, len(lengths), batch):
        chosen = range(first, min(first + batch, len(lengths)))
        stretches.append(Stretch(max(lengths[i] for i in chosen), tuple((i, 0) for i in chosen)))
    return Schedule("static", batch, sum(lengths), sum(s.steps for s in stretches), tuple(stretches))


def continuous_batches(lengths: Sequence[int], batch: int) -> Schedule:
    """A request that is through leaves after its step, and the next one in order takes its slot at once.

    Raises:
        UsageError: so many requests on so many slots that they can't be followed.
    """
    stretches, places = [], 0
    running: list[tuple[int, int, int]] = []
    """(step in which it ends, request, step in which it began)"""
    waiting, now = 0, 0
    while running or waiting < len(lengths):
        while waiting < len(lengths) and len(running) < batch:
            heapq.heappush(running, (now + lengths[waiting], waiting, now))
            waiting += 1
        places += len(running)
        if places > MOST_SLOTS:
            raise UsageError(
                f"{len(lengths):,} requests on {batch:,} slots are too many to follow", "Ask for fewer of either."
            )
        end = running[0][0]
        stretches.append(Stretch(end - now, tuple(sorted((i, now - began) for _, i, began in running))))
        now = end
        while running and running[0][0] == now:
            heapq.heappop(running)
    return Schedule("continuous", batch, sum(lengths), now, tuple(stretches))


def decode_seconds(schedule: Schedule, prompt: int, step_s: Callable[[Sequence[int]], float]) -> float:
    """Time of all decode steps, where `step_s` gives the time of one step by the contexts in its batch.

    Every request has a prompt of `prompt` tokens. Within a stretch every context grows by one per step, and
    so times grow along a line, but for a bend where the bound changes or a window fills: the first and the
    last step are averaged.

    Raises:
        UsageError: more requests and stretches than can be timed one by one.
    """
    total = 0.0
    if sum(1 + len(stretch.running) for stretch in schedule.stretches) > MOST_TIMED:
        raise UsageError(
            f"{schedule.policy} batching changes {len(schedule.stretches):,} times here, too often to time every step",
            "Ask for fewer requests, or leave out the MODEL.",
        )
    for stretch in schedule.stretches:
        first, last = (step_s([prompt + done + k + 1 for _, done in stretch.running]) for k in (0, stretch.steps - 1))
        total += stretch.steps * (first + last) / 2
    return total
