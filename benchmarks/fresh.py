"""What the size benchmarks share: work in fresh processes, with its time and its peak memory."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

CLOCKS = """
import sys, time
def clocks():
    return time.perf_counter(), time.process_time()
def since(began):
    return [now - then for now, then in zip(clocks(), began)]
"""
"""Start of a script whose parts are timed: wall and CPU seconds; the latter hold on a busy machine, too."""


class Run(NamedTuple):
    """What a command printed, its wall and CPU seconds, and the most memory that it held."""

    output: str
    wall_s: float
    cpu_s: float
    peak_mb: float


def generated(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's answer, from a process of its own.

    Linux counts what a parent holds at the moment of a start to the child's peak, so the process that
    starts the commands to be measured must stay small.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def run(command: Sequence[str]) -> Run:
    """Run a command to its end.

    Raises:
        SystemExit: it failed; with the end of what it said.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, text=True)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise SystemExit(f"{command[0]} failed with {process.returncode}: {err.read()[-2000:]}")
        return Run(out.read(), wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def median(runs: Sequence[Run]) -> Run:
    """Median times and highest peak of runs of one command, and what the first one printed."""
    wall, cpu = (statistics.median(times) for times in ([r.wall_s for r in runs], [r.cpu_s for r in runs]))
    return Run(runs[0].output, wall, cpu, max(r.peak_mb for r in runs))


def seconds(runs: Sequence[Run], word: int) -> float:
    """Median of the seconds that a command prints as its word number `word`."""
    return statistics.median(float(r.output.split()[word]) for r in runs)
