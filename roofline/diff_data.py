"""The data of diff.html: a comparison's record with roofs, words and colours; drawn by `web/diff.js`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelroof.roofline import palette
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.diff_noise import PhaseChange
from kernelroof.roofline.diff_text import phase_line, roofs_line
from kernelroof.roofline.report_data import roofs_of
from kernelroof.roofline.waterfall import WORDS


def diff_data(record: Mapping[str, Any], roofs: Sequence[Ceilings]) -> dict[str, Any]:
    """The data object of diff.html.

    Args:
        record: `kernelroof diff --json`.
        roofs: the ceilings of A and of B.
    """
    phases = {
        name: {**change, "sentence": phase_line(name, PhaseChange(**change), same_work=not record["incomparable"])}
        for name, change in record["phases"].items()
    }
    return {
        **record,
        "title": f"{record['a']} against {record['b']}",
        "phases": phases,
        "words": {**WORDS, "total_ns": "bare wall time"},
        "roofs": [roofs_of(r) for r in roofs],
        "roofs_line": roofs_line(roofs),
        "colours": palette.page_colours(),
    }
