"""Stopping a profiler and everything that it started, also what left its session.

nsys starts its agent and the profiled program in sessions of their own, and the agent is adopted by
process 1, so neither the process group nor the tree of parents reaches them. They inherit a variable.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path

MARK = "KERNELROOF_STARTED_BY"
"""Every process under a profiler that we started has this variable."""

_PROFILER = re.compile(r"nsight|/(?:nsys|ncu|QdstrmImporter)[^/]*$", re.I)
_GRACE_S = 20.0
_SHORT_S = 3.0


def new_mark() -> str:
    """A value of `MARK` for one run."""
    return f"{os.getpid()}-{uuid.uuid4().hex}"


def marked(mark: str) -> list[int]:
    """Ids of the living processes that carry the mark, this one excepted; none where there is no /proc."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # gone, or another user's
    return [pid for pid in found if pid != os.getpid()]


def stop(process: subprocess.Popen[bytes], mark: str, grace: float = _GRACE_S) -> None:
    """Stop a process that leads its own session, and all that it started.

    The profiled program is ended first, so that the profiler ends by itself and writes what it has, for
    which it has `grace` seconds; then it is interrupted, and after the same time everything is killed.
    A second Ctrl-C meanwhile kills at once.
    """
    try:
        programs = [pid for pid in marked(mark) if pid != process.pid and not _is_profiler(pid)]
        for pid in programs:
            _signal(pid, signal.SIGTERM)
        if not programs or not _gone(process, grace):
            _signal_group(process.pid, signal.SIGINT)
            _gone(process, grace)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        # What is killed may just have started another.
        for _ in range(5):
            left = marked(mark)
            if not left:
                break
            for pid in left:
                _signal(pid, signal.SIGKILL)
            time.sleep(0.02)
        _gone(process, _SHORT_S)


def _is_profiler(pid: int) -> bool:
    """Whether a process is a part of nsys or ncu."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return True
    return bool(_PROFILER.search(program))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _gone(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
