"""Finding CSV tables inside the log of a profiled program.

A capture is often the program's whole output: lines before the table, between its rows and after it, on
the same line as a row or a header, a BOM, CRLF, UTF-16 from PowerShell, gzip, two reports in one file.
Tables are found by what their header must name, rows by their shape; all the rest is kept as noise.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from kernelroof.parsers.ncu_errors import NoTableError

_QUOTE, _NEWLINE, _COMMA, _RETURN = 34, 10, 44, 13
_LOOKAHEAD = 200
_RAGGED = 5
_PART = 1 << 17


@dataclass(frozen=True)
class TextTable:
    """One table: its header cells, its rows as clean CSV bytes (no header), and where the header stood."""

    header: tuple[str, ...]
    body: bytes
    line: int
    dropped: int = 0


@dataclass(frozen=True)
class TextTables:
    """All tables of a file, in order, and everything else in it as text."""

    tables: tuple[TextTable, ...]
    noise: str


class HeaderCells(NamedTuple):
    """Where on its line a header begins, and its cells."""

    offset: int
    cells: tuple[str, ...]


def read_bytes(source: Path) -> bytes:
    """A file's bytes as UTF-8 without BOM; gzip is unpacked, UTF-16 (PowerShell) is recoded.

    Raises:
        NoTableError: there is no such file, it can't be read, or it is a broken gzip.
    """
    try:
        return normalise(source.read_bytes())
    except OSError as error:
        raise NoTableError(f"{source} can't be read ({error})", "Check the path.") from error


def normalise(data: bytes) -> bytes:
    """Unpack gzip, drop a BOM, recode UTF-16 to UTF-8."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise NoTableError(f"The gzip file is damaged ({error})", "Copy it again.") from error
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(encoding, "replace").encode()
    return data.removeprefix(codecs.BOM_UTF8)


def find_tables(data: bytes, required: tuple[str, ...]) -> TextTables:
    """Every table whose header has all the `required` cells.

    Args:
        data: UTF-8 text.
        required: header cells that mark the kind of table, the row number first: ("ID", "Kernel Name").
    """
    headers = list(_headers(data, required))
    if not headers:
        return TextTables((), data.decode("utf-8", "replace"))
    noise = [data[: headers[0].start]]
    tables = []
    for this, after in zip(headers, [*headers[1:], None], strict=True):
        stop = len(data) if after is None else after.start
        region = data[this.stop : stop]
        id_at = this.cells.index(required[0])
        shape = _Shape(len(this.cells), _RAGGED if "Metric Name" in this.cells else 0, id_at)
        kept = _quoted_rows(region, shape) if this.quoted else _plain_rows(region, shape)
        tables.append(TextTable(this.cells, kept.body, data.count(b"\n", 0, this.start) + 1, kept.dropped))
        noise.append(kept.noise)
    return TextTables(tuple(tables), b"\n".join(n for n in noise if n).decode("utf-8", "replace"))


@dataclass(frozen=True)
class _Header:
    cells: tuple[str, ...]
    start: int
    stop: int
    quoted: bool


@dataclass(frozen=True)
class _Shape:
    """What a row looks like: cells in the header, how many may be missing at its end, where the ID is."""

    width: int
    ragged: int
    id_at: int

    def fits(self, cells: list[str]) -> bool:
        if not max(self.width - self.ragged, self.id_at + 1, 3) <= len(cells) <= self.width + 1:
            return False
        number = cells[self.id_at].replace(",", "").strip()
        return not number or number.isdigit()


@dataclass(frozen=True)
class _Kept:
    body: bytes
    noise: bytes
    dropped: int = 0


def _headers(data: bytes, required: tuple[str, ...]) -> Iterator[_Header]:
    """Header lines, wherever on their line they begin."""
    mark, at = required[-1].encode(), 0
    while (at := data.find(mark, at)) >= 0:
        begin = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[begin:end].decode("utf-8", "replace").rstrip("\r")
        if found := header_in(line, required):
            start = begin + len(line[: found.offset].encode())
            yield _Header(found.cells, start, min(end + 1, len(data)), line[found.offset] == '"')
        at = end


def header_in(line: str, required: tuple[str, ...]) -> HeaderCells | None:
    """The header that a line holds, if it has all `required` cells, in whatever order and after whatever noise."""
    for offset in _cell_starts(line):
        cells = _cells(line[offset:].rstrip())
        if set(required) <= set(cells):
            return HeaderCells(offset, tuple(c.strip() for c in cells))
    return None


def _cell_starts(line: str) -> Iterator[int]:
    """Places where a header may begin: the line's start, then each quote (noise may precede it)."""
    if line:
        yield 0
    yield from (m.start() for m in islice(re.finditer('"', line), _LOOKAHEAD) if m.start())


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _quoted_rows(data: bytes, shape: _Shape) -> _Kept:
    """Rows of a table whose every cell is quoted, as ncu writes it."""
    if not data:
        return _Kept(b"", b"")
    buffer = np.frombuffer(data, dtype=np.uint8)
    newlines = np.concatenate([begin + np.flatnonzero(part == _NEWLINE) for begin, part in _parts(buffer)])
    starts = np.concatenate(([0], newlines + 1))
    stops = np.concatenate((newlines, [len(data)]))
    if starts[-1] == len(data):
        starts, stops = starts[:-1], stops[:-1]
    good = _well_formed(data, buffer, starts, stops, shape)
    if good.all() and shape.fits(_cells(data[starts[-1] : stops[-1]].decode("utf-8", "replace").rstrip("\r"))):
        return _Kept(data, b"")
    pieces: list[bytes] = []
    noise: list[bytes] = []
    dropped = done = 0
    count = len(starts)
    for bad in np.flatnonzero(~good):
        if bad < done:
            continue
        if bad > done:
            pieces.append(data[starts[done] : stops[bad - 1]])
        done = int(bad) + 1
        line = data[starts[bad] : stops[bad]].rstrip(b"\r")
        if line[:1] == b'"' and line.count(b'"') % 2:
            lines = min(count - int(bad), _LOOKAHEAD)
            joined, used = _joined([data[starts[bad + k] : stops[bad + k]] for k in range(lines)], shape)
            if used:
                pieces.append(joined)
                done = int(bad) + used
                continue
        row, rest, cut = _repaired(line, shape)
        pieces.extend([row] if row else [])
        noise.extend([rest] if rest.strip() else [])
        dropped += cut
    if done < count:
        pieces.append(data[starts[done] : stops[count - 1]])
        if not shape.fits(_cells(data[starts[count - 1] : stops[count - 1]].decode("utf-8", "replace").rstrip("\r"))):
            pieces[-1] = data[starts[done] : starts[count - 1]]
            noise.append(data[starts[count - 1] : stops[count - 1]])
            dropped += 1
    return _Kept(b"\n".join(p for p in pieces if p), b"\n".join(noise), dropped)


def _parts(buffer: npt.NDArray[np.uint8]) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
    """A buffer in parts small enough for what is made of one to stay in the processor's cache."""
    for begin in range(0, len(buffer), _PART):
        yield begin, buffer[begin : begin + _PART]


def _well_formed(
    data: bytes,
    buffer: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    shape: _Shape,
) -> npt.NDArray[np.bool_]:
    """Lines that begin with a quote, end with a quote or a comma, close every quote, and have enough of them."""
    full = stops > starts
    first = buffer[np.minimum(starts, len(buffer) - 1)]
    last = buffer[stops - 1]
    last = np.where((last == _RETURN) & (stops - 2 >= starts), buffer[stops - 2], last)
    good: npt.NDArray[np.bool_] = full & (first == _QUOTE) & ((last == _QUOTE) | (last == _COMMA))
    marks = sum(np.count_nonzero(part == _QUOTE) for _, part in _parts(buffer))
    if not good.all() or marks != 2 * shape.width * len(starts):
        # Not the plain case, where every line has two quotes for each cell: count them line by line.
        quotes = np.diff(np.searchsorted(np.flatnonzero(buffer == _QUOTE), np.append(starts, len(buffer))))
        good &= (quotes % 2 == 0) & (quotes >= 2 * max(shape.width - shape.ragged, 3))
    at = data.find(b"==")
    while at >= 0:
        if data[at - 1 : at] == b'"':
            good[int(np.searchsorted(starts, at, side="right")) - 1] = False
        at = data.find(b"==", at + 2)
    return good


def _joined(lines: list[bytes], shape: _Shape) -> tuple[bytes, int]:
    """A row whose cell holds line breaks, and how many lines it took; nothing where it never closes."""
    quotes = 0
    for used, line in enumerate(lines, start=1):
        quotes += line.count(b'"')
        if used > 1 and shape.fits(_cells(line.decode("utf-8", "replace").rstrip("\r"))):
            return b"", 0
        if quotes % 2 == 0:
            joined = b"\n".join(lines[:used])
            cells = next(csv.reader(StringIO(joined.decode("utf-8", "replace"), newline="")), [])
            return (joined, used) if shape.fits(cells) else (b"", 0)
    return b"", 0


def _repaired(line: bytes, shape: _Shape) -> tuple[bytes, bytes, int]:
    """The row inside a noisy line, the noise, and 1 where a cut-off row had to be dropped."""
    text = line.decode("utf-8", "replace")
    ends = (len(text), text.rfind('"==') + 1, text.rfind('"') + 1)
    for found in islice(re.finditer('"', text), _LOOKAHEAD):
        for end in ends:
            if end > found.start() and shape.fits(_cells(text[found.start() : end])):
                row = text[found.start() : end]
                return row.encode(), (text[: found.start()] + text[end:]).encode(), 0
    return b"", line, int(text.startswith('"') and text[1 : text.find('"', 1)].isdigit())


def _plain_rows(data: bytes, shape: _Shape) -> _Kept:
    """Rows of a table that another program wrote again, quoting only where it must."""
    rows: list[bytes] = []
    noise: list[bytes] = []
    for line in data.splitlines():
        good = shape.fits(_cells(line.decode("utf-8", "replace")))
        (rows if good else noise).append(line)
    return _Kept(b"\n".join(rows), b"\n".join(n for n in noise if n.strip()))
