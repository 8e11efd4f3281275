"""`kernelroof trace`: the placed kernels of a finished run as a trace for the Perfetto UI."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.progress import progress
from kernelroof.profile.runfolder import check_target, whole_file

PLACED = "placed_trace.json.gz"
_ERRORS = "backslashreplace"
"""Names of folders need not be text: what can't be encoded becomes an escape of JSON."""


def run(args: argparse.Namespace) -> int:
    """Write the trace of `args.run`; see `profile.run_options`."""
    target = Path(args.out) if args.out else Path(args.run) / PLACED
    file = check_target(target)
    finished = FinishedRun(args.run)
    with progress("writing the trace"):
        write_placed(finished, file)
    print(f"{target}: open it at https://ui.perfetto.dev (it stays on this machine), or in chrome://tracing")
    return 0


def write_placed(run: FinishedRun, target: Path) -> None:
    """The trace of a run; packed where the name ends in .gz."""
    import pandas as pd
    from kernelroof.roofline.perfetto import NOTES, trace_events
    from kernelroof.roofline.spread import KERNEL
    from kernelroof.roofline.summary import with_roles

    keys = ["phase", *KERNEL]
    said = pd.concat([run.phase(name).kernels[[*KERNEL, "advice"]].assign(phase=name) for name in run.walls])
    rows = with_roles(run.kernels).astype(dict.fromkeys(keys, "string"))
    rows["op"] = rows["op"].fillna(rows["kernel"])
    kernels = rows.merge(said.astype(dict.fromkeys(keys, "string")), on=keys, how="left", validate="m:1")
    notes = {"made by": "kernelroof", "run": run.path.name, "roofs": run.ceilings.note or run.ceilings.name, **NOTES}
    write_events(target, trace_events(run.launches, kernels), notes)


def write_events(target: Path, events: Iterable[dict[str, Any]], notes: dict[str, str]) -> None:
    """Events as a JSON file, one a line, written as they come; under its name only when it is whole."""
    with whole_file(target) as temporary, ExitStack() as stack:
        if target.suffix == ".gz":
            file: IO[str] = stack.enter_context(gzip.open(temporary, "wt", 4, "utf-8", _ERRORS))
        else:
            file = stack.enter_context(temporary.open("w", encoding="utf-8", errors=_ERRORS))
        encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
        file.write(f'{{"displayTimeUnit":"ns","otherData":{encode(notes)},"traceEvents":[\n')
        before = ""
        for event in events:
            file.write(before + encode(event))
            before = ",\n"
        file.write("\n]}\n")
