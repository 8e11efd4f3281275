"""The profilers as programs: where they are, which version, and running one so that nothing is lost.

Output goes to a file while the program runs, so what was said survives a crash, a timeout and Ctrl-C.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kernelroof.profile.process_tree import MARK, new_mark, stop
from kernelroof.profile.tool_errors import INSTALL, ToolBroken, ToolMissing, ToolTimeout

VARIABLES = {"nsys": "KERNELROOF_NSYS", "ncu": "KERNELROOF_NCU"}
"""The environment variable that names each tool's program."""

_INSTALLED = {
    "nsys": (
        "/opt/nvidia/nsight-systems/*/bin/nsys",
        "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
        "/usr/local/cuda/bin/nsys",
        "/usr/local/cuda-*/bin/nsys",
        "/usr/lib/nsight-systems/bin/nsys",
        "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
    ),
    "ncu": (
        "/opt/nvidia/nsight-compute/*/ncu",
        "/usr/local/cuda/bin/ncu",
        "/usr/local/cuda-*/bin/ncu",
        "/usr/lib/nsight-compute/ncu",
    ),
}
_VERSION = re.compile(r"[Vv]ersion\s+(\d+(?:\.\d+)+)")
_POLL_S = 0.05
_VERSION_TIMEOUT_S = 60


class Tool(NamedTuple):
    """A profiler that answered.

    path: the program with all links resolved. version: whole numbers, such as (2024, 2, 0, 0).
    text: the line that it names its version with. found: the path as it was found, links unresolved
    (the importer of nsys lies beside one of the links); None: as `path`.
    """

    name: str
    path: Path
    version: tuple[int, ...]
    text: str
    found: Path | None = None


class ToolRun(NamedTuple):
    """How a run ended: the exit status (negative: the signal) and all that was printed."""

    returncode: int
    output: str


def find_tool(name: str, *, environ: Mapping[str, str] | None = None) -> Tool:
    """The profiler `name` ("nsys" or "ncu"): its variable first, then PATH, then the usual folders.

    Where several installed versions are found, the newest is taken.

    Raises:
        ToolMissing: not found, or the variable names no program; the hint says how to install it.
        ToolBroken: found, but it does not tell its version.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(VARIABLES[name])
    if named:
        path = shutil.which(named, path=environ.get("PATH"))
        if path is None:
            raise ToolMissing(f"{VARIABLES[name]} is {named}, which is no program", "Name the program itself.")
        return ask_version(name, Path(path))
    if on_path := shutil.which(name, path=environ.get("PATH", os.defpath)):
        return ask_version(name, Path(on_path))
    for candidate in _installed(name):
        try:
            return ask_version(name, candidate)
        except ToolBroken:
            continue
    raise ToolMissing(f"{name} is not installed: not on PATH and not in the usual folders", INSTALL[name])


def ask_version(name: str, path: Path) -> Tool:
    """The tool at `path`, by what it says of itself.

    Raises:
        ToolBroken: it does not start, or says no version.
    """
    real = path.resolve()
    try:
        stamp = real.stat().st_mtime_ns
    except OSError as error:
        raise ToolBroken(f"{path} can't be read ({error.strerror})", INSTALL[name]) from error
    text = _version_text(str(path), stamp)
    found = _VERSION.search(text)
    if found is None:
        said = text.strip().splitlines()
        raise ToolBroken(f"{path} does not tell its version ({said[-1] if said else 'no output'})", INSTALL[name])
    line = next(line.strip() for line in text.splitlines() if found[0] in line)
    return Tool(name, real, tuple(int(n) for n in found[1].split(".")), line, path)


def run_tool(
    command: Sequence[str | os.PathLike[str]],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
    cwd: Path | None = None,
) -> ToolRun:
    """Run a command in a session of its own, with LC_ALL=C; wait for it.

    On Ctrl-C and on a timeout the whole tree of processes is stopped: first asked (nsys and ncu then
    write what they have), then killed. Files and the log stay.

    Args:
        command: program and arguments.
        log: where standard output and error go, as they come; None for a temporary file.
        env: variables set besides the inherited ones.
        timeout: seconds.
        on_line: called with each line of output soon after it was printed.
        cwd: working directory.

    Raises:
        ToolBroken: it can't be started.
        ToolTimeout: stopped after `timeout` seconds.
        KeyboardInterrupt: after everything was stopped.
    """
    words = [os.fspath(word) for word in command]
    mark = new_mark()
    variables = {**os.environ, "LC_ALL": "C", **(env or {}), MARK: mark}
    with tempfile.TemporaryFile() if log is None else open(log, "w+b") as out:
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=variables,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolBroken(f"{words[0]} can't be started ({error.strerror})") from error
        lines = _Lines(out, on_line)
        try:
            while True:
                try:
                    process.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    lines.read()
                if timeout is not None and time.monotonic() - started > timeout:
                    raise ToolTimeout(
                        f"{Path(words[0]).name} was stopped after {timeout:g} s",
                        "Count or record less, or allow more time; what was recorded is kept.",
                    )
        except BaseException:
            stop(process, mark)
            raise
        lines.read(last=True)
        return ToolRun(process.returncode, lines.text())


def last_words(output: str) -> str:
    """The last line of an output that says something (progress bars and rulers left out); may be empty."""
    lines = [line.rpartition("\r")[2].strip() for line in output.splitlines()]
    said = [line for line in lines if re.search(r"[A-Za-z]", line) and not line.startswith("Use --help")]
    return said[-1].rstrip(".") if said else ""


class _Lines:
    """Output that grows in a file, handed on line by line."""

    def __init__(self, out: BinaryIO, on_line: Callable[[str], None] | None) -> None:
        self._file = out.fileno()
        self._on_line = on_line
        self._at = 0
        self._rest = b""

    def read(self, *, last: bool = False) -> None:
        if self._on_line is None:
            return
        while block := os.pread(self._file, 1 << 16, self._at):
            self._at += len(block)
            *whole, self._rest = (self._rest + block).split(b"\n")
            for line in whole:
                self._on_line(line.decode("utf-8", "replace").rstrip("\r"))
        if last and self._rest:
            self._on_line(self._rest.decode("utf-8", "replace"))

    def text(self) -> str:
        blocks, at = [], 0
        while block := os.pread(self._file, 1 << 20, at):
            blocks.append(block)
            at += len(block)
        return b"".join(blocks).decode("utf-8", "replace")


@functools.lru_cache(maxsize=32)
def _version_text(path: str, _stamp: int) -> str:
    """What a program prints for --version; asked once for each state of its file."""
    try:
        return run_tool([path, "--version"], timeout=_VERSION_TIMEOUT_S).output
    except ToolTimeout:
        return "no answer"


def _installed(name: str) -> list[Path]:
    """Programs in the usual folders, newest version first as far as their folders name one."""
    found: list[Path] = []
    for pattern in _INSTALLED[name]:
        found += Path("/").glob(pattern.lstrip("/"))
    return sorted((p for p in found if os.access(p, os.X_OK)), key=_folder_version, reverse=True)


def _folder_version(path: Path) -> tuple[int, ...]:
    numbers = re.search(r"(\d+(?:\.\d+)+)", str(path))
    return tuple(int(n) for n in numbers[1].split(".")) if numbers else ()
