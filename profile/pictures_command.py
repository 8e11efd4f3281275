"""`kernelroof pictures RUN`: the pictures of a finished run drawn again from its tables, without torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelroof.models.errors import OutputError, UsageError
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.picture_options import parse_formats
from kernelroof.profile.progress import progress


def run(args: argparse.Namespace) -> int:
    """Draw `args.run` again; see `profile.picture_options`."""
    formats = parse_formats(args.formats, "--formats")
    if args.top < 1:
        raise UsageError(f"--top is {args.top}", "Give a whole number of at least 1.")
    finished = FinishedRun(args.run)
    folder = Path(args.out) if args.out else finished.path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} can't be made ({error.strerror})", "Choose another --out.") from error
    with progress("drawing the rooflines"):
        from kernelroof.profile.pictures import draw_all, files_of, what_was_run

        what = what_was_run(finished.identity, str(finished.identity["model"]), finished.ceilings.name)
        names = draw_all(finished, folder, what, top=args.top, formats=formats)
    for name in files_of(names, formats):
        print(folder / name)
    return 0
