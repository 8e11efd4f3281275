"""`profile --batch 1,8,32 --prompt 128,512`: one run folder of many runs, and the curves through them.

Each point is an ordinary run in `points/`, made by the same pipeline and resumed by itself; sweep.csv, sweep.png and
the table on the terminal are made of the finished ones. A point that fails is said, and the others go on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernelroof.models.errors import KernelroofError, OutputError
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.pipeline import Job, run_job
from kernelroof.profile.runfolder import RUN, RunFolder, read_json, whole_file, write_json
from kernelroof.roofline.ceilings import highest
from kernelroof.roofline.units import counted, seconds

if TYPE_CHECKING:
    import pandas as pd

TABLE, PICTURE = "sweep.csv", "sweep.png"
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
    points: Sequence[Point], job_of: Callable[[Point], Job], out: Path, name: str, *, overwrite: bool = False
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
    with RunFolder(out, identity, files=(TABLE, PICTURE), overwrite=overwrite) as folder:
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
        record = [{"point": p.words, "folder": p.folder} for p in done]
        lost = [{"point": p.words, "error": e.what, "hint": e.hint} for p, e in failed]
        status = {"status": "complete" if done else "failed", "identity": identity, "points": record, "failed": lost}
        write_json(folder.file(RUN), status)
        if not done:
            raise OutputError(f"no point could be measured; the first: {failed[0][1].what}", failed[0][1].hint)
        table = sweep_table(_finished(out))
        _write(folder, table, name)
    from kernelroof.roofline.sweep_text import sweep_lines

    print("\n".join(sweep_lines(table, [(p.words, str(e)) for p, e in failed])))
    print(f"\nrun folder: {out}\n  {TABLE}, {PICTURE}: the table, the curves")
    print("  points/*: a run folder each, with its report.html")
    return POINT_FAILED if failed else 0


def sweep_table(runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """sweep.csv: one row per point and phase."""
    import pandas as pd
    from kernelroof.roofline.sweep_points import COLUMNS, point_row

    roofs = highest([run.ceilings for run in runs])
    rows = [
        point_row(
            run.identity,
            run.phase(phase).summary,
            run.walls[phase],
            int(run.estimate["kv_bytes"]),
            roofs,
            run.sources,
        )
        for run in runs
        for phase in run.walls
    ]
    ordered = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values(["phase", "prompt", "batch"])
    table: pd.DataFrame = ordered.reset_index(drop=True)
    return table


def _finished(out: Path) -> list[FinishedRun]:
    """Every point in the folder that is whole, also those that an earlier command asked for."""
    complete = [p.parent for p in sorted(out.glob(f"points/*/{RUN}")) if read_json(p).get("status") == "complete"]
    return [FinishedRun(path) for path in complete]


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


def _write(folder: RunFolder, table: pd.DataFrame, name: str) -> None:
    from kernelroof.roofline.plot_sweep import plot_sweep
    from kernelroof.roofline.tables import write_csv

    with whole_file(folder.file(TABLE)) as temporary:
        write_csv(table, temporary)
    spread = "bars: bare repeats, lowest to highest; dashed: the closed-form estimate at the highest roofs measured"
    plot_sweep(table, folder.file(PICTURE), title=f"{name}: measured beside the estimate", subtitle=spread)


def _left(spent_s: float, done: int, points: int) -> str:
    if not done:
        return ""
    return f"; about {seconds(spent_s / done * (points - done), 2)} to go, later points take longer"
