"""NVTX ranges as Nsight Compute's CSV gives them: a stack of quoted ranges in one cell.

A cell looks like `97844  "<default domain>:warmup:none:none:none:none:none:none"`: the thread (push/pop) or
the range's number (start/end), then one quoted range for each level, outermost first. Inside the quotes are
the domain, the range's name (which may itself hold colons), and six fields on payload, colour and message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kernelroof.parsers.nsys_paths import PHASES

DEFAULT_DOMAIN = "<default domain>"
SEPARATOR = "/"
"""Between the levels of a range path."""

_RANGE = re.compile(r'"((?:[^"]|"")*)"')
_TAIL_FIELDS = 6


class CellRange(NamedTuple):
    """One open range of a cell."""

    domain: str
    name: str


def is_push_pop_header(header: str) -> bool:
    """Whether a column holds the push/pop ranges of the launching thread."""
    return "Push/Pop_Range" in header


def is_start_end_header(header: str) -> bool:
    """Whether a column holds the start/end ranges of the process."""
    return "Start/Stop_Range" in header


def parse_cell(cell: str) -> tuple[CellRange, ...]:
    """The open ranges of one cell, outermost first; empty where none was open."""
    out = []
    for found in _RANGE.finditer(cell):
        domain, name = _split(found[1].replace('""', '"'))
        out.append(CellRange(domain, name))
    return tuple(out)


def _split(text: str) -> tuple[str, str]:
    """Domain and name. The six last fields hold no colon, unless the message does: it repeats the name."""
    if text.startswith(DEFAULT_DOMAIN):
        domain, rest = DEFAULT_DOMAIN, text[len(DEFAULT_DOMAIN) + 1 :]
    else:
        domain, _, rest = text.partition(":")
    fields = rest.split(":")
    kinds = ("none", "ASCII", "UNICODE", "REGISTERED")
    for size in range(1, len(fields) - _TAIL_FIELDS + 2):
        name, tail = ":".join(fields[:size]), fields[size:]
        if len(tail) < _TAIL_FIELDS or tail[4] not in kinds:
            continue
        message = ":".join(tail[5:])
        if message == name or (tail[4] == "none" and message == "none"):
            return domain, name
    keep = max(1, len(fields) - _TAIL_FIELDS)
    return domain, ":".join(fields[:keep])


def range_path(cell: str) -> str | None:
    """The names of a cell's ranges joined by a slash, outermost first; None where no range was open."""
    return path_of(parse_cell(cell))


def path_of(ranges: Sequence[CellRange]) -> str | None:
    """The names of open ranges joined by a slash, outermost first; None where there is none.

    A domain's ranges are listed together, so the order between domains is not that of nesting. Inside a phase
    only the default domain's count: a library's range there (`ncclAllReduce`) is no module of the model.
    """
    own = [r.name for r in ranges if r.domain == DEFAULT_DOMAIN]
    names = own if set(own) & set(PHASES) else [r.name for r in ranges]
    return SEPARATOR.join(names) if names else None
