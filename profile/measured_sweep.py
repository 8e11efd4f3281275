"""`profile --batch 1,8,32 --prompt 128,512`: one run folder of many runs, and the curves through them.

Each point is an ordinary run in `points/`, made by the same pipeline and resumed by itself; sweep.csv, sweep.png and
the table on the terminal are made of the finished ones. A point that fails is said, and the others go on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import KernelroofError, OutputError
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.pipeline import Job, run_job
from kernelroof.profile.runfolder import RUN, RunFolder, whole_file, write_json
from kernelroof.roofline.units import counted, seconds

if TYPE_CHECKING:
    import pandas as pd

TABLE, PICTURE = "sweep.csv", "sweep"
"""The table, and the picture without the ending of its format."""
STORY = "story.txt"
"""In each point's folder: what `profile` says of it on a terminal."""
POINT_FAILED = 4
"""Exit status where some points failed."""


class Point(NamedTuple):
    """One combination of the lists."""

    batch: int
    prompt: int

    @property
    def folder(self) -> str:
        return f"points/batch{self.batch}_prompt{self.prompt}"

    @property
    def words(self) -> str:
        return f"batch {self.batch}, prompt {self.prompt}"


def points_of(batches: Sequence[int], prompts: Sequence[int]) -> list[Point]:
    """Every combination, those with least work first."""
    points = [Point(batch, prompt) for batch in batches for prompt in prompts]
    return sorted(points, key=lambda p: (p.batch * p.prompt, p.batch))


def run_sweep(
    points: Sequence[Point],
    job_of: Callable[[Point], Job],
    out: Path,
    name: str,
    *,
    overwrite: bool = False,
    formats: Sequence[str] = ("png",),
) -> int:
    """Run every point into `out`, then write the table and the curves; returns the exit status.

    Args:
        job_of: the job of a point; its errors are that point's.
        name: the model.

    Raises:
        OutputError: the folder can't be used, or no point at all could be measured (with the first one's error).
    """
    identity = {"command": "measured sweep", "model": name}
    print(
        f"{counted(len(points), 'point')}, one after the other: {'; '.join(p.words for p in points)}", file=sys.stderr
    )
    failed: list[tuple[Point, KernelroofError]] = []
    done: list[Point] = []
    began = time.monotonic()
    with RunFolder(out, identity, files=(TABLE, f"{PICTURE}.*"), overwrite=overwrite) as folder:
        write_json(folder.file(RUN), {"status": "running", "identity": identity})
        for number, point in enumerate(points, start=1):
            left = _left(time.monotonic() - began, number - 1, len(points))
            print(f"\npoint {number}/{len(points)}: {point.words}{left}", file=sys.stderr)
            try:
                _measure(point, job_of, out, overwrite)
                done.append(point)
            except KernelroofError as error:
                failed.append((point, error))
                print(f"point failed: {error}", file=sys.stderr)
        found = _finished(out, done, [p for p, _ in failed])
        for words, why in found.left_out.items():
            print(f"left out of the table: {words}: {why}", file=sys.stderr)
        status = {
            "status": "complete" if done and found.runs else "failed",
            "identity": identity,
            "points": [{"point": p.words, "folder": p.folder} for p in found.runs],
            "failed": [{"point": p.words, "error": e.what, "hint": e.hint} for p, e in failed],
            "left_out": [{"point": words, "why": why} for words, why in found.left_out.items()],
        }
        write_json(folder.file(RUN), status)
        if not done:
            raise OutputError(f"no point could be measured; the first: {failed[0][1].what}", failed[0][1].hint)
        if not found.runs:
            words, why = next(iter(found.left_out.items()))
            raise OutputError(f"no measured point can be read; the first: {words}: {why}", "Choose another --out.")
        table = sweep_table(list(found.runs.values()))
        _write(folder, table, name, formats)
    from kernelroof.roofline.sweep_text import sweep_lines

    print("\n".join(sweep_lines(table, [(p.words, str(e)) for p, e in failed])))
    print(f"\nrun folder: {out}\n  {TABLE}, {', '.join(f'{PICTURE}.{f}' for f in formats)}: the table, the curves")
    print("  points/*: a run folder each, with its report.html")
    return POINT_FAILED if failed or any(p not in found.runs for p in done) else 0


def sweep_table(runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """sweep.csv: one row per point and phase, all under the highest roofs of all points."""
    import pandas as pd
    from kernelroof.profile.sweep_expected import expected_of
    from kernelroof.roofline.sweep_points import COLUMNS, point_row, sweep_roofs, timing

    roofs = sweep_roofs([run.roof_rounds for run in runs])
    rows = [
        point_row(
            run.identity,
            run.summary(phase, roofs.ceilings),
            run.walls[phase],
            int(run.estimate["kv_bytes"]),
            roofs,
            run.ceilings,
            run.sources,
            bare=timing(run.bare, phase),
            expected=expected_of(run, phase),
        )
        for run in runs
        for phase in run.walls
    ]
    ordered = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values(["phase", "prompt", "batch"])
    table: pd.DataFrame = ordered.reset_index(drop=True)
    return table


class _Found(NamedTuple):
    """What a sweep's folder holds."""

    runs: dict[Point, FinishedRun]
    """the points of the table, those with least work first"""
    left_out: dict[str, str]
    """other points, and why they can't stand beside them"""


def _finished(out: Path, done: Sequence[Point], failed: Sequence[Point]) -> _Found:
    """Every point in the folder that is whole and was measured as those of this command, also what an earlier one asked
    for; `failed` are told elsewhere."""
    runs: dict[Point, FinishedRun] = {}
    left_out: dict[str, str] = {}
    wanted = _settings(FinishedRun(out / done[0].folder)) if done else None
    for path in sorted(out.glob(f"points/*/{RUN}")):
        if path.parent in [out / p.folder for p in failed]:
            continue
        try:
            run = FinishedRun(path.parent)
            point = Point(int(run.identity["batch"]), int(run.identity["prompt"]))
            if other := _differing(_settings(run), wanted):
                left_out[point.words] = f"measured with another {', '.join(other)}"
                continue
            run.read()
            runs[point] = run
        except KernelroofError as error:
            left_out[path.parent.name] = error.what
    ordered = sorted(runs, key=lambda p: (p.batch * p.prompt, p.batch))
    return _Found({point: runs[point] for point in ordered}, left_out)


def _differing(mine: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> list[str]:
    return [] if wanted is None else sorted(k for k in {*mine, *wanted} if mine.get(k) != wanted.get(k))


def _settings(run: FinishedRun) -> dict[str, Any]:
    """What must be the same in all points for one table: all but the batch and the prompt."""
    apart = {k: v for k, v in run.identity.items() if k not in ("batch", "prompt", "driver", "machine")}
    return {**apart, **run.identity["driver"], **run.identity["machine"]}


def _measure(point: Point, job_of: Callable[[Point], Job], out: Path, overwrite: bool) -> None:
    folder = out / point.folder
    job = job_of(point)
    story = folder.parent / f".{folder.name}.story"
    story.parent.mkdir(parents=True, exist_ok=True)
    with (
        whole_file(story) as temporary,
        temporary.open("w", encoding="utf-8", errors="replace") as file,
        redirect_stdout(file),
    ):
        run_job(job, folder, overwrite=overwrite, resume=out)
    story.replace(folder / STORY)


def _write(folder: RunFolder, table: pd.DataFrame, name: str, formats: Sequence[str]) -> None:
    from kernelroof.roofline.plot_sweep import plot_sweep
    from kernelroof.roofline.tables import write_csv

    with whole_file(folder.file(TABLE)) as temporary:
        write_csv(table, temporary)
    title = f"{name}: measured beside the estimate"
    plot_sweep(table, folder.file(f"{PICTURE}.png"), title=title, formats=formats)


def _left(spent_s: float, done: int, points: int) -> str:
    if not done:
        return ""
    return f"; about {seconds(spent_s / done * (points - done), 2)} to go, later points take longer"
