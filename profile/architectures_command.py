"""`kernelroof architectures`: which causal LMs are traced here, and where the closed form agrees."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from importlib.metadata import version
from pathlib import Path

from kernelroof.models.errors import OutputError, UsageError


def run(args: argparse.Namespace) -> int:
    """Survey the architectures that `--only` names; see `profile.cli` for the options."""
    from kernelroof.models.architectures.catalog import architectures
    from kernelroof.models.architectures.survey import Row
    from kernelroof.models.architectures.table import csv_text, markdown, totals
    from kernelroof.models.architectures.workers import survey_all

    out = None if args.out is None else Path(args.out)
    if out is not None and out.suffix not in (".md", ".csv"):
        raise UsageError(f"--out {args.out} ends in neither .md nor .csv", "Name a file of one of the two kinds.")
    if out is not None and not out.parent.is_dir():
        raise OutputError(f"the folder of --out {args.out} does not exist", "Make it first.")
    for option, value in (("--jobs", args.jobs), ("--timeout", args.timeout)):
        # nan fails the comparison too.
        if value is not None and not 1 <= value <= 1e6:
            raise UsageError(f"{option} is {value}", "Give a number from 1 to a million.")
    if not args.only:
        raise UsageError("--only is empty", "Give a model_type, a part of one, or a pattern.")
    wanted = architectures(args.only)
    if not wanted:
        raise UsageError(f"no architecture matches {args.only!r}", "Give a model_type, a part of one, or a pattern.")
    count = 0

    def done(row: Row) -> None:
        nonlocal count
        count += 1
        print(f"[{count}/{len(wanted)}] {_line(row)}", file=sys.stderr, flush=True)

    rows = survey_all(wanted, jobs=args.jobs or os.cpu_count() or 1, timeout_s=args.timeout, done=done)
    for line in totals(rows):
        print(line)
    if out is not None:
        versions = (
            f"transformers {version('transformers')}, torch {version('torch')}, Python {platform.python_version()}"
        )
        again = ["kernelroof", "architectures", *([] if args.only == "*" else ["--only", args.only]), "--out", args.out]
        text = (
            csv_text(rows)
            if out.suffix == ".csv"
            else markdown(rows, versions=versions, command=shlex.join(again), date=time.strftime("%Y-%m-%d"))
        )
        out.write_text(text, encoding="utf-8")
        print(f"written: {out}")
    return 0


def _line(row: object) -> str:
    """One row in a line, for progress."""
    from kernelroof.models.architectures.survey import Row

    assert isinstance(row, Row)
    if not row.traced:
        return f"{row.model_type}: not traced: {row.why_not_traced}"
    form = "no closed form"
    if row.closed_form:
        form = "closed form equal" if row.equal else f"closed form differs: {row.differences}"
    return f"{row.model_type}: traced in {row.seconds:.1f} s, {form}"
