"""One writer at a time: a lock file that names its owner, and that a dead owner does not keep."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from kernelroof.models.errors import OutputError

LOCK = "run.lock"


def take_lock(lock: Path) -> None:
    """Create the lock file, or take it over from a process that is no more.

    It is written beside and linked into place, so that nobody ever reads half of it.

    Raises:
        OutputError: a living process has it, or the folder can't be written.
    """
    mine = lock.with_name(f".part-{os.getpid()}-{lock.name}")
    owner = {"pid": os.getpid(), "started": _started(os.getpid()), "host": socket.gethostname(), "since": time.ctime()}
    try:
        mine.write_text(json.dumps(owner), encoding="utf-8")
        for _ in range(2):
            try:
                os.link(mine, lock)
                return
            except FileExistsError:
                if holder := _holder(lock):
                    raise OutputError(
                        f"{lock.parent} is in use by {holder}", f"Wait for it; if it is no more, delete {lock}."
                    ) from None
                lock.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"the run folder {lock.parent} can't be written ({error.strerror or error})", "Choose another --out."
        ) from error
    finally:
        mine.unlink(missing_ok=True)
    raise OutputError(f"{lock} can't be taken", "Another run keeps taking it; choose another --out.")


def _holder(lock: Path) -> str | None:
    """Words for the living process that holds the lock; None if it is stale or unreadable."""
    try:
        owner: Any = json.loads(lock.read_text(encoding="utf-8"))
        pid, host = int(owner["pid"]), owner.get("host")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    if host not in (None, socket.gethostname()):
        return f"process {pid} on {host}"
    if pid <= 0 or not _alive(pid) or owner.get("started") not in (None, _started(pid)):
        return None
    return f"process {pid}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> str | None:
    """When a process began, in clock ticks since boot: pids come back, this with the pid does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[19]
