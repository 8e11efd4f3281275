"""Whether a profiler failed because no space was left: it says so badly or not at all."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from kernelroof.profile.tool_errors import DiskFullError

_SAID = re.compile(
    r"no space left on device|disk quota exceeded|not enough (?:free )?(?:disk )?space|ENOSPC|disk (?:is )?full", re.I
)
_LEAST = 1 << 20


def check_disk(output: str, folders: Iterable[Path]) -> None:
    """Raise DiskFullError if the output says so, or if a folder has less than 1 MiB left.

    Args:
        output: what the failed tool printed.
        folders: where it writes, besides the folder for temporary files.
    """
    places = [*folders, Path(tempfile.gettempdir())]
    full = [place for place in places if free_bytes(place) < _LEAST]
    if full or _SAID.search(output):
        where = str(full[0]) if full else str(places[0])
        raise DiskFullError(
            f"no space is left in {where}",
            "Free some space, choose another --out, or point TMPDIR to a larger disk; what was recorded is kept.",
        )


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write there; 0 where the folder can't be asked."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
