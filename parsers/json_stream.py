"""Decode one JSON value at a time from a text file that is never held in memory as a whole."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from kernelroof.models.errors import ReportError

_BLOCK = 1 << 20
# An element of an array that is not complete within this many characters is broken, not long.
_LONGEST_ELEMENT = 1 << 24
_SPACE = re.compile(r"[ \t\r\n]*")
# Where one object of an array may end and the next begin; a text or an inner array can hold the same.
_BETWEEN = re.compile(r"\}[ \t\r\n]*,[ \t\r\n]*\{")
# A boundary is looked for in so many characters before the end of the window.
_TAIL = 1 << 14
# After a piece that can't be decoded at once, so many elements are decoded one by one.
_ONE_BY_ONE = 1 << 12

T = TypeVar("T")
Scanner = Callable[[str, int], tuple[Any, int]]


def _scanner(number: Callable[[str], Any]) -> Scanner:
    """Python's own decoder for the value at a position of a text; also says where the value ends."""
    # Names of C++ kernels may hold control characters, which strict JSON forbids.
    decoder: Any = json.JSONDecoder(strict=False, parse_float=number)
    scan: Scanner = decoder.scan_once
    return scan


_SCAN = _scanner(float)
_SCAN_EXACTLY = _scanner(Decimal)


class JsonStream:
    """A sliding window over a stream of UTF-8, and a position in it where the next value starts."""

    def __init__(self, read: Callable[[int], bytes], path: Path) -> None:
        self.path = path
        self._read = read
        self._text = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._window = ""
        self._at = 0
        self._ended = False

    def peek(self) -> str:
        """The next character that is not white space, or "" at the end of the file."""
        while True:
            space = _SPACE.match(self._window, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._window):
                return self._window[self._at]
            if not self._read_on():
                return ""

    def skip(self, char: str) -> bool:
        """Step over `char` if it comes next."""
        if self.peek() != char:
            return False
        self._at += 1
        return True

    def elements(self, decode: Callable[[str], list[T]], convert: Callable[[int, Any], T]) -> Iterator[list[T]]:
        """All elements of the array whose "[" was just skipped, many at a time.

        Args:
            decode: from the JSON of an array to its elements; a ValueError or RecursionError where it can't.
            convert: the same for one element as Python's own decoder reads it (fractions as Decimal), given its
                position too. It gets what `decode` refuses, so errors are raised here.
        """
        position = 0
        more = self._has_element()
        while more:
            found = self._piece(decode)
            if found:
                more = self._has_element()
            else:
                while more and len(found) < _ONE_BY_ONE:
                    found.append(convert(position + len(found), self.value(_LONGEST_ELEMENT, _SCAN_EXACTLY)))
                    more = self._has_element()
            position += len(found)
            yield found

    def _piece(self, decode: Callable[[str], list[T]]) -> list[T]:
        """Step over as many elements as the window holds and decode them at once; none where that fails."""
        if len(self._window) - self._at < _BLOCK:
            self._read_on()
        cut = self._last_boundary()
        # Only at a real boundary does the bracket close the array: inside a text it is part of the text, and
        # in an inner array it leaves the outer one open. So success proves the boundary.
        with suppress(ValueError, RecursionError):
            found = decode(f"[{self._window[self._at : cut]}]")
            self._at = max(self._at, cut)
            return found
        return []

    def _last_boundary(self) -> int:
        """Where the last object in the window ends that another one seems to follow; 0 where none does."""
        for start in (max(self._at, len(self._window) - _TAIL), self._at):
            if found := deque(_BETWEEN.finditer(self._window, start), maxlen=1):
                return found[0].start() + 1
        return 0

    def value(self, longest: int | None = None, scan: Scanner = _SCAN) -> Any:
        """Decode the value that comes next, reading on while it is incomplete.

        Raises:
            ReportError: the file ends inside the value, or the value is no JSON.
        """
        self.peek()
        while True:
            try:
                found, end = scan(self._window, self._at)
            except (StopIteration, json.JSONDecodeError) as error:
                if longest is not None and len(self._window) - self._at > longest:
                    raise self._invalid() from None
                if not self._read_on():
                    raise (_cut_short(self.path) if self._at_end(error) else self._invalid()) from None
                continue
            except (RecursionError, ValueError, ArithmeticError):  # nested too deep, or a number too long
                raise self._invalid() from None
            # A number that touches the end of the window may go on in the next block.
            if end < len(self._window) or not self._read_on():
                self._at += end - self._at if end <= len(self._window) else 0
                return found

    def object_keys(self) -> Iterator[str]:
        """The keys of the object whose "{" was just skipped; take each one's value before the next."""
        while not self.skip("}"):
            key = self.value()
            if not isinstance(key, str) or not self.skip(":"):
                raise self.broken()
            yield key
            if not self.skip(",") and self.peek() != "}":
                raise self.broken()

    def _has_element(self) -> bool:
        """Step to the next element of an array; where there is none, over the array's end."""
        self.skip(",")
        return not self.skip("]")

    def broken(self) -> ReportError:
        """The error that fits where the wrong character comes next, or none."""
        return self._invalid() if self.peek() else _cut_short(self.path)

    def _invalid(self) -> ReportError:
        return ReportError(f"{self.path} is not valid JSON", "Export the trace again.")

    def _at_end(self, error: StopIteration | json.JSONDecodeError) -> bool:
        """Whether a value could not be decoded because the file ends: no more than a literal is left."""
        if isinstance(error, json.JSONDecodeError):
            return error.msg.startswith("Unterminated") or len(self._window) - error.pos < len("false")
        return len(self._window) - int(error.value) < len("false")

    def _read_on(self) -> bool:
        """Put one more block behind the window, dropping what was consumed; False at the end."""
        if self._ended:
            return False
        block = self._read(_BLOCK)
        if block:
            self._window = self._window[self._at :] + self._text.decode(block)
            self._at = 0
        self._ended = not block
        return bool(block)


@contextmanager
def open_json(path: Path) -> Iterator[JsonStream]:
    """Open a JSON file, plain or gzip (told apart by content).

    Raises:
        ReportError: the file can't be opened or read, or its gzip is damaged or cut short.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            yield JsonStream(gzip.GzipFile(fileobj=raw).read if packed else raw.read, path)
    except EOFError:
        raise _cut_short(path) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ReportError(f"{path} is a damaged gzip file ({error})", "Copy it again.") from None
    except OSError as error:
        raise ReportError(f"{path} can't be read: {error.strerror or error}", "Check the path.") from None


def _cut_short(path: Path) -> ReportError:
    return ReportError(
        f"{path} is cut short: it ends in the middle",
        "Copy it again, or record it again and let the export finish.",
    )
