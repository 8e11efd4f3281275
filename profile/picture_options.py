"""Options on pictures: their file formats, and the command that draws a finished run again."""

from __future__ import annotations

import argparse
from typing import Any

from kernelroof.models.errors import UsageError
from kernelroof.profile.decision_options import new_command

FORMATS = ("png", "svg", "pdf")
_EPILOG = """examples:
  kernelroof pictures runs/tiny-llama-cpu --formats svg,pdf
  kernelroof pictures runs/tiny-llama-cpu --formats pdf --top 3 --out figures

Nothing is run again. All rooflines of phases share their axes, and all of kernels theirs. The same tables give the
same bytes. PDF embeds its fonts; SVG has its text as outlines."""


def add_picture_formats(parser: argparse.ArgumentParser) -> None:
    """Add --picture-formats to a command that draws."""
    parser.add_argument(
        "--picture-formats", default="png", metavar="LIST", help="of png, svg, pdf, with commas (default: png)"
    )


def add_pictures(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `kernelroof pictures` to the parser."""
    parser = new_command(
        commands,
        "pictures",
        "draw the pictures of a finished run again: PNG, SVG, PDF",
        "Draw the rooflines of a finished run of `kernelroof profile` again, from its tables.",
        _EPILOG,
    )
    parser.add_argument("run", metavar="RUN", help="a run folder of `kernelroof profile`")
    parser.add_argument("--formats", default="png", metavar="LIST", help="of png, svg, pdf, with commas (default: png)")
    parser.add_argument("--top", type=int, default=8, metavar="N", help="kernels drawn per phase (default: 8)")
    parser.add_argument("--out", metavar="DIR", help="folder for the pictures (default: RUN)")


def parse_formats(words: str, option: str = "--picture-formats") -> tuple[str, ...]:
    """The formats of a list such as "svg,pdf", each once, in its order.

    Raises:
        UsageError: none, or an unknown one.
    """
    found = tuple(dict.fromkeys(word.strip().lower() for word in words.split(",")))
    unknown = [name for name in found if name not in FORMATS]
    if unknown:
        raise UsageError(f"{option} has {unknown[0]!r}", f"Give some of {', '.join(FORMATS)}, with commas between.")
    return found
