"""What kind of file a path is, from its content: names and suffixes say nothing here.

Only the beginning of a binary file is read; a text is read until a table's header is found, since a
program's own output may come first. gzip of any kind is looked into.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from kernelroof.models.errors import ReportError
from kernelroof.parsers.csv_text import header_in
from kernelroof.parsers.nsys_errors import error_from_output, importer_missing
from kernelroof.parsers.nsys_reports import header_of, identify
from kernelroof.parsers.nsys_schema import open_recording

NCU_RAW = "ncu-raw"
NCU_DETAILS = "ncu-details"
NCU_LOG = "ncu-log"
NCU_REPORT = "ncu-rep"
NSYS_SQLITE = "nsys-sqlite"
NSYS_STATS = "nsys-stats"
NSYS_REPORT = "nsys-rep"
QDSTRM = "qdstrm"
PARQUET = "parquet"
KINETO = "kineto"

_READABLE = "ncu CSV or .ncu-rep, nsys .sqlite or stats CSV, or a torch.profiler trace (.json, .json.gz)"
_HEAD = 1 << 20
_TEXT_LIMIT = 1 << 28
_SQLITE = b"SQLite format 3\x00"
_MAGIC = ((b"NVR\x00", NCU_REPORT), (b"NVIDIA Tegra Profiler Report", NSYS_REPORT), (b"PAR1", PARQUET))
_STREAM = b"NVIDIA Nsight Systems Stream"
_ENCODINGS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


@dataclass(frozen=True)
class Detected:
    """What a file is.

    kind: one of the constants of this module. report: for `NSYS_STATS` the report's name, else "".
    gzipped: whether it has to be unpacked first.
    """

    path: Path
    kind: str
    report: str = ""
    gzipped: bool = False


def detect(path: str | Path) -> Detected:
    """Find out what a file is.

    Raises:
        ImporterMissingError: a folder that holds only a `.qdstrm`.
        NoReportDataError, ...: text in which nsys says why there is no table.
        ReportError: nothing that kernelroof reads; says what was seen.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise _folder(path)
        if path.exists() and not path.is_file():
            raise ReportError(f"{path} is a pipe or a device, no file", "Save what it gives to a file first.")
        with open(path, "rb") as file:
            gzipped = file.read(2) == b"\x1f\x8b"
        if gzipped:
            with gzip.open(path, "rb") as unpacked:
                return _detect(path, cast(BinaryIO, unpacked), gzipped)
        with open(path, "rb") as file:
            return _detect(path, file, gzipped)
    except FileNotFoundError as error:
        raise ReportError(f"{path} does not exist", "Check the name.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise ReportError(f"{path} can't be read ({error})", "Copy it again.") from error


def _folder(path: Path) -> ReportError:
    suffixes = {entry.suffix for entry in path.iterdir()}
    if ".qdstrm" in suffixes and not suffixes & {".nsys-rep", ".sqlite"}:
        return importer_missing(str(path))
    return ReportError(f"{path} is a folder", "Name the files in it.")


def _detect(path: Path, file: BinaryIO, gzipped: bool) -> Detected:
    head = file.read(_HEAD)
    if not head:
        raise ReportError(f"{path} is empty", "Record or export it again.")
    if head.startswith(_SQLITE):
        if not gzipped:
            with open_recording(path):
                pass
        return Detected(path, NSYS_SQLITE, gzipped=gzipped)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return Detected(path, kind, gzipped=gzipped)
    if _STREAM in head[:64]:
        return Detected(path, QDSTRM, gzipped=gzipped)
    encoding = next((name for mark, name in _ENCODINGS if head.startswith(mark)), "utf-8")
    if b"\x00" in head and encoding != "utf-16":
        raise ReportError(f"{path} is a binary file that begins with {head[:16]!r}", f"Name an {_READABLE}.")
    if head.lstrip()[:1] in (b"{", b"[") and _is_trace(head):
        return Detected(path, KINETO, gzipped=gzipped)
    file.seek(0)
    text = io.TextIOWrapper(file, encoding, "replace", newline=None)
    try:
        return Detected(path, *_table(path, text), gzipped)
    finally:
        text.detach()  # whoever opened the file closes it


def _is_trace(head: bytes) -> bool:
    """Whether this is the beginning of a trace of torch.profiler, or one in its format."""
    return re.search(rb'"(?:traceEvents|schemaVersion)"\s*:|"ph"\s*:\s*"', head) is not None


def _table(path: Path, lines: io.TextIOWrapper) -> tuple[str, str]:
    """Kind and report of the first table in a text."""
    first, is_log = "", False
    said: list[str] = []
    for line in _limited(lines):
        if "Kernel Name" in line and (kind := _ncu_header(line)):
            return kind, ""
        if report := identify(header_of(line)):
            return NSYS_STATS, report.names[0]
        is_log = is_log or line.startswith(("==PROF==", "==ERROR==", "==WARNING=="))
        first = first or line.strip()
        if len(said) < 1000:
            said.append(line)
    if is_log:
        return NCU_LOG, ""
    if problem := error_from_output("".join(said), str(path)):
        raise problem
    if first[:1] in ("{", "["):
        raise ReportError(f"{path} looks like JSON without traceEvents", f"Name an {_READABLE}.")
    raise ReportError(
        f"{path} is a text without a table of ncu or nsys; it begins with {first[:60]!r}", f"Name an {_READABLE}."
    )


def _limited(lines: io.TextIOWrapper) -> Iterator[str]:
    """The lines of the first part of a text; a line without end is cut."""
    read = 0
    while read < _TEXT_LIMIT and (line := lines.readline(_HEAD)):
        read += len(line)
        yield line


def _ncu_header(line: str) -> str:
    """The kind of ncu page that this line is the header of, or ""; noise may come before it."""
    found = header_in(line, ("ID", "Kernel Name"))
    if found is None:
        return ""
    return NCU_DETAILS if {"Metric Name", "Metric Value"} <= set(found.cells) else NCU_RAW
