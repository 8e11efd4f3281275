"""`kernelroof diff A B`: two runs compared, for people, for scripts, and as a gate."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelroof.models.errors import UsageError
from kernelroof.profile.compare_runs import Comparison, compare, passed, slower
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.progress import progress
from kernelroof.profile.runfolder import check_target, write_text

GATE_CLOSED = 3
"""Exit status where --fail-over found a phase slower."""


def run(args: argparse.Namespace) -> int:
    """Compare `args.a` with `args.b`; see `profile.run_options`."""
    limit = _limit(args.fail_over)
    if args.allow_drift and limit is None:
        raise UsageError("--allow-drift without --fail-over", "Give the gate's limit, such as --fail-over 5%.")
    if args.top < 1:
        raise UsageError(f"--top is {args.top}", "Give a whole number of at least 1.")
    target = check_target(Path(args.out)) if args.out else None
    with progress("comparing"):
        found = compare(FinishedRun(args.a), FinishedRun(args.b))
    if limit is not None and found.lost:
        raise UsageError(f"--fail-over on runs of which only one has {' and '.join(found.lost)}", "Run B as A was run.")
    if limit is not None and found.incomparable:
        raise UsageError(f"--fail-over on runs of other work ({found.incomparable[0]})", "Run B as A was run.")
    closed = slower(found, limit, allow_drift=args.allow_drift) if limit is not None else []
    if target is not None:
        write_text(target, _page(found))
    if args.json:
        print(json.dumps(record(found, closed), indent=2, allow_nan=False))
    else:
        from kernelroof.roofline.diff_text import diff_lines

        lines = diff_lines(
            found.names, found.phases, found.lines, found.terms, found.setup, found.warnings, found.roofs,
            same_work=not found.incomparable, top=args.top,
        )  # fmt: skip
        print("\n".join(lines))
        if args.out:
            print(f"\n{args.out}")
    if not args.json:  # the record has them
        for words in closed:
            print(f"FAIL: {words}")
        if limit is not None and not closed:
            print(passed(found, limit))
    return GATE_CLOSED if closed else 0


def record(found: Comparison, failed: Sequence[str] = ()) -> dict[str, Any]:
    """A comparison as JSON: times in ns per forward, missing null; `failed`: why the gate is closed."""
    from kernelroof.roofline.columns import figure

    def plain(row: Mapping[Any, Any]) -> dict[str, Any]:
        return {str(k): v if isinstance(v, (str, bool)) else figure(v) for k, v in row.items()}

    return {
        "a": found.names[0],
        "b": found.names[1],
        "setup": [d._asdict() for d in found.setup],
        "warnings": found.warnings,
        "incomparable": found.incomparable,
        "roofs_pct": figure(found.roofs_pct),
        "phases": {name: plain(change._asdict()) for name, change in found.phases.items()},
        "lines": [{**plain(row), "changed": bool(row["changed"])} for row in found.lines.to_dict("records")],
        "terms": [plain(row) for row in found.terms.to_dict("records")],
        "failed": list(failed),
    }  # fmt: skip


def _page(found: Comparison) -> str:
    from kernelroof.roofline.diff_data import diff_data
    from kernelroof.roofline.html import page

    data = diff_data(record(found), found.roofs)
    return page("diff", data, title=data["title"])


def _limit(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"--fail-over is {text!r}", "Give a percentage, such as 5%.")
    return value
