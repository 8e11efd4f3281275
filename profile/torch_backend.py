"""The torch.profiler backend: one pass recorded under ranges, and what recording it costs."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from kernelroof.models.errors import OutputError
from kernelroof.profile.driver import Session, no_collection, run_pass, times_record, warm_up
from kernelroof.profile.ranges import module_ranges, profiler_sink
from kernelroof.profile.runfolder import whole_file
from torch.profiler import ProfilerActivity, profile

# What event_costs runs: 30 events and 2 ranges per weight matrix read, as in a Llama decode step, over
# more bytes than caches hold.
_CHUNKS = 16
_CHUNK_BYTES = 6_000_000
_MODULES = 64
_VIEWS = 15
_BUDGET_S = 0.5


def record(session: Session, out: Path, depth: str, *, warm: bool = False) -> dict[str, Any]:
    """Record one pass under torch.profiler with ranges; write its Chrome trace, gzip-compressed, to `out`.

    A short pass is recorded and thrown away first: what the profiler sets up on first use would
    otherwise dilate the recorded prefill. Garbage collection is off during the recorded pass.

    Args:
        warm: the model ran, and the profiler recorded, in this process a moment ago: nothing is run before.

    Returns:
        the recorded pass's times in the shape of `driver.measure_bare` (dilated by the profiler and
        the ranges), and `depth`.

    Raises:
        OutputError: `out` can't be written.
        DriverError: out of memory.
    """
    device = session.spec.device
    if not warm:
        warm_up(session)
    with quiet_kineto(), module_ranges(session.model, depth, (profiler_sink(),)) as ranges:
        if not warm:
            with _profiler(device):
                run_pass(session, ranges, min(2, session.spec.output))
        with no_collection(), _profiler(device) as recorder:
            times = run_pass(session, ranges)
        recorder.add_metadata_json("kernelroof", json.dumps({"depth": depth, "device": device}))
        export(recorder, out)
    return {**times_record(session, [times]), "depth": depth}


def export(recorder: profile, out: Path) -> None:
    """Write a profile's Chrome trace to `out` as gzip, under that name only when it is whole."""
    with tempfile.TemporaryDirectory(prefix="kernelroof-") as folder, whole_file(out) as temporary:
        plain = Path(folder) / "trace.json"
        recorder.export_chrome_trace(str(plain))
        if not _is_whole(plain):  # torch fails in silence where there is no space
            raise OutputError(
                f"torch.profiler could not write its whole trace into {folder}",
                "Free some space there, or set TMPDIR to another folder.",
            )
        # Level 1: a trace is repetitive, and the default level takes five times as long for 20 % less.
        with plain.open("rb") as source, gzip.open(temporary, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)


def _is_whole(trace: Path) -> bool:
    """Whether a JSON file is there and ends as an object ends."""
    if not trace.is_file():
        return False
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def event_costs() -> dict[str, float]:
    """What torch.profiler adds to the wall time per recorded op and per module range, in ns.

    Measured as a model feels it: between two events that matter, weights stream through the caches
    and push out the code and data of the profiler and of the hooks, so each sample first reads a few
    megabytes and then times a pair of modules with a few views each. (In a tight loop a range seems
    to cost less than half as much.) `op_ns`: under the profiler minus without. `range_ns`: with
    hooks and ranges minus without, both under the profiler. Lowest deciles of alternating rounds,
    which leave out preempted samples; takes under a second. Values can be negative on a busy machine.
    """
    stream = torch.ones(_CHUNKS, _CHUNK_BYTES // 4)
    operand = torch.zeros(4)
    model = torch.nn.ModuleList(_Views() for _ in range(_MODULES))
    bare: list[int] = []
    recorded: list[int] = []
    ranged: list[int] = []
    with quiet_kineto(), torch.no_grad(), no_collection():
        deadline = time.monotonic() + _BUDGET_S
        while not ranged or time.monotonic() < deadline:
            bare += _samples(model, stream, operand)
            with _profiler("cpu"):
                recorded += _samples(model, stream, operand)
                with module_ranges(model, "module", (profiler_sink(),)):
                    ranged += _samples(model, stream, operand)
    without, seen, named = (statistics.quantiles(sample, n=10)[0] for sample in (bare, recorded, ranged))
    return {"op_ns": (seen - without) / (2 * _VIEWS), "range_ns": (named - seen) / 2}


@contextmanager
def quiet_kineto() -> Iterator[None]:
    """Keep Kineto's log lines off standard error inside the block, unless the user set their level.

    Kineto reads the level when a process first uses the profiler.
    """
    name = "KINETO_LOG_LEVEL"
    if name in os.environ:
        yield
        return
    os.environ[name] = "99"
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _profiler(device: str) -> profile:
    activities = [ProfilerActivity.CPU]
    if device.startswith("cuda"):
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities)


def _samples(model: torch.nn.ModuleList, stream: torch.Tensor, operand: torch.Tensor) -> list[int]:
    """Nanoseconds of calling two modules after a chunk of `stream` was read, once per chunk."""
    found = []
    for i, chunk in enumerate(stream):
        chunk.sum()
        first, second = model[2 * i % _MODULES], model[(2 * i + 1) % _MODULES]
        start = time.perf_counter_ns()
        first(operand)
        second(operand)
        found.append(time.perf_counter_ns() - start)
    return found


class _Views(torch.nn.Module):
    """A module whose ops cost as little as ops can."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(_VIEWS):
            x.view(2, 2)
        return x
