"""Each architecture in a process of its own with a time limit, so that one that hangs or crashes is a row."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from kernelroof.models.architectures.catalog import Architecture
from kernelroof.models.architectures.survey import Row, failed, survey

TIMEOUT_S = 300.0


class _Running(NamedTuple):
    architecture: Architecture
    process: Any
    results: Connection
    started: float


def survey_all(
    wanted: Sequence[Architecture], *, jobs: int, timeout_s: float = TIMEOUT_S, done: Callable[[Row], None]
) -> list[Row]:
    """The rows in the order asked for; `done` is told each as it comes."""
    context = _context()
    waiting = list(reversed(wanted))
    running: list[_Running] = []
    rows: dict[str, Row] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(context, waiting.pop()))
            wait([r.results for r in running], timeout=1.0)
            for one in list(running):
                row = _finished(one, timeout_s)
                if row is not None:
                    running.remove(one)
                    rows[row.model_type] = row
                    done(row)
    finally:
        for one in running:
            one.process.kill()
            one.process.join()
    return [rows[a.model_type] for a in wanted]


def _context() -> Any:
    """Processes forked from one that has imported torch and transformers, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kernelroof.models.architectures.preload"])
    return context


def _start(context: Any, architecture: Architecture) -> _Running:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(architecture, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Running(architecture, process, ours, time.monotonic())


def _work(architecture: Architecture, results: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    try:
        row = survey(architecture)
    except Exception as error:
        row = failed(architecture, f"{type(error).__name__}: {error}", 0.0)
    results.send(row)


def _finished(one: _Running, timeout_s: float) -> Row | None:
    """The row of a process that has sent one, died or run out of time; None while it works."""
    seconds = time.monotonic() - one.started
    row = None
    if one.results.poll():
        try:
            row = one.results.recv()
        except EOFError:
            one.process.join()
            row = failed(one.architecture, f"its process ended with status {one.process.exitcode}", seconds)
    elif seconds > timeout_s:
        one.process.kill()
        row = failed(one.architecture, f"not traced within {timeout_s:.0f} s", seconds)
    if row is not None:
        one.process.join()
        one.results.close()
    return row
