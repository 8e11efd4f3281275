"""Decode one JSON value at a time from a text file that is never held in memory as a whole."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kernelroof.models.errors import ReportError

_BLOCK = 1 << 22
# Most elements are shorter; with less than this left, the window is filled up before more are looked for.
_ELEMENT = 1 << 16
# An element of an array that is not complete within this many characters is broken, not long.
_LONGEST_ELEMENT = 4 * _BLOCK
_SPACE = re.compile(r"[ \t\r\n]*")


class JsonStream:
    """A sliding window over a text stream, and a position in it where the next value starts."""

    def __init__(self, stream: IO[str], path: Path, parse_float: Callable[[str], Any]) -> None:
        self.path = path
        self._stream = stream
        self._window = ""
        self._at = 0
        self._ended = False
        # Names of C++ kernels may hold control characters, which strict JSON forbids.
        decoder: Any = json.JSONDecoder(strict=False, parse_float=parse_float)
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once

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

    def run_of(self, element: re.Pattern[str], plain: int, flat: int) -> list[tuple[str, ...]]:
        """Step over the elements that come next for as long as each of them is wholly there and matches.

        Args:
            element: an element up to its end, with whatever may stand before it; white space and commas too.
            plain: number of the group that may hold no escape.
            flat: number of the group that may hold no brace and no escape, and must close every quote that
                it opens. Only then is a brace behind it none inside a string.

        Returns:
            The groups of each; "" for one that took no part. None come where the next element does not match.
        """
        if len(self._window) - self._at < _ELEMENT:
            self._read_on()
        out = []
        match, window, at = element.match, self._window, self._at
        while (found := match(window, at)) is not None:
            groups = found.groups("")
            text = groups[flat]
            if "{" in text or "\\" in text or "\\" in groups[plain] or text.count('"') % 2:
                break
            out.append(groups)
            at = found.end()
        self._at = at
        return out

    def value(self, longest: int | None = None) -> Any:
        """Decode the value that comes next, reading on while it is incomplete.

        Raises:
            ReportError: the file ends inside the value, or the value is no JSON.
        """
        self.peek()
        while True:
            try:
                found, end = self._scan(self._window, self._at)
            except RecursionError:
                raise self._invalid() from None
            except (StopIteration, json.JSONDecodeError) as error:
                if longest is not None and len(self._window) - self._at > longest:
                    raise self._invalid() from None
                if not self._read_on():
                    raise (_cut_short(self.path) if self._at_end(error) else self._invalid()) from None
                continue
            # A number that touches the end of the window may go on in the next block.
            if end < len(self._window) or not self._read_on():
                self._at += end - self._at if end <= len(self._window) else 0
                return found

    def decode(self, text: str) -> Any:
        """Decode a value that was cut out of the stream."""
        try:
            return self._scan(text, 0)[0]
        except (StopIteration, json.JSONDecodeError, RecursionError):
            raise self.broken() from None

    def object_keys(self) -> Iterator[str]:
        """The keys of the object whose "{" was just skipped; take each one's value before the next."""
        while not self.skip("}"):
            key = self.value()
            if not isinstance(key, str) or not self.skip(":"):
                raise self.broken()
            yield key
            if not self.skip(",") and self.peek() != "}":
                raise self.broken()

    def has_element(self) -> bool:
        """Step to the next element of an array; where there is none, over the array's end."""
        self.skip(",")
        return not self.skip("]")

    def element(self) -> Any:
        """Decode the element that comes next, giving up on one that is absurdly long."""
        return self.value(_LONGEST_ELEMENT)

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
        block = "" if self._ended else self._stream.read(_BLOCK)
        self._ended = not block
        if block:
            self._window = self._window[self._at :] + block
            self._at = 0
        return bool(block)


@contextmanager
def open_json(path: Path, parse_float: Callable[[str], Any] = float) -> Iterator[JsonStream]:
    """Open a JSON file, plain or gzip (told apart by content).

    Raises:
        ReportError: the file can't be opened or read, or its gzip is damaged or cut short.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with io.TextIOWrapper(
                gzip.GzipFile(fileobj=raw) if packed else raw, encoding="utf-8-sig", errors="replace"
            ) as text:
                yield JsonStream(text, path, parse_float)
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
