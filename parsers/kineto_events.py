"""Kineto's JSON, event by event, into plain columns.

`json.loads` on the whole file would build a dict per event, several times the file's size. Here one
event is read at a time, the few fields that matter go to typed arrays, and the event is forgotten.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from kernelroof.models.errors import ReportError
from kernelroof.parsers.json_stream import JsonStream, open_json

OP, RANGE, CALL, KERNEL, MEMCPY, MEMSET = range(6)
_CODES = {
    "cpu_op": OP,
    "user_annotation": RANGE,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "gpu_memset": MEMSET,
}
# Below this, the float nearest to a time in µs with three decimals is closer to it than to any other.
_FLOAT_LIMIT_US = float(1 << 43)
# Further from the clock's zero, or longer, than any recording: 140 years, 13 days.
_LATEST_US, _LONGEST_US = 1 << 52, 1 << 40
_RECORD = "Record it again with torch.profiler and export_chrome_trace."
_NONE = -1

# An event as Kineto writes it: what has a duration, or a flow arrow, which matches without any group. Recorded
# shapes make the arguments most of a file, so an op's are not decoded. What looks different is decoded as JSON.
_EVENT = re.compile(
    r'[\s,]*\{\s*"ph": ?(?:"X",\s*"cat": ?"(\w+)",\s*"name": ?"([^"]*)",\s*"pid": ?(\d+),\s*"tid": ?(\d+),'
    r'\s*"ts": ?(\d+(?:\.\d+)?),\s*"dur": ?(\d+(?:\.\d+)?)\s*,'
    r'\s*"args": ?\{\s*(?:"External id": ?(\d+)(?=[,\s}]))?([^}]*)\}'
    r'|"[stf]",\s*"id": ?\d+,\s*"pid": ?\d+,\s*"tid": ?\d+,\s*"ts": ?[\d.]+,'
    r'\s*"cat": ?"\w+",\s*"name": ?"\w+"(?:,\s*"bp": ?"\w")?)\s*\}'
)
_NAME, _ARGUMENTS = 1, 7
_BETWEEN = ", \t\r\n"
_LAUNCH = re.compile(r',?\s*"cbid": ?\d+,\s*"correlation": ?(\d+)\s*')
_NUMBERS = r'(?:,\s*"[\w .%]+": ?[\d.]+)*'
_SIZE = r"\[\s*(\d+,\s*\d+,\s*\d+)\s*\]"
_GEOMETRY = re.compile(
    r',?\s*"queued": ?\d+,\s*"device": ?(\d+),\s*"context": ?\d+,\s*"stream": ?(\d+),\s*"correlation": ?(\d+)'
    rf'{_NUMBERS},\s*"grid": ?{_SIZE},\s*"block": ?{_SIZE}{_NUMBERS}\s*'
)

Ints = npt.NDArray[np.int64]


class Events(NamedTuple):
    """The kept events (host ops, ranges and launch calls; device kernels and copies), in file order.

    All arrays have one entry per kept event. `event` is the position in the file's `traceEvents`;
    times are integer ns from the earliest kept event; -1 stands for absent in `external_id`,
    `correlation`, `device`, `stream`, `grid`, `block` and `shared_bytes`; `name`, `thread`, `grid` and `block` are
    positions in `names`, `threads` (process, thread) and `sizes` ("x,y,z").
    """

    event: Ints
    category: Ints
    name: Ints
    thread: Ints
    start_ns: Ints
    dur_ns: Ints
    external_id: Ints
    correlation: Ints
    device: Ints
    stream: Ints
    grid: Ints
    block: Ints
    shared_bytes: Ints
    names: list[str]
    threads: list[tuple[object, object]]
    sizes: list[str]
    device_properties: list[dict[str, Any]]


def read_events(path: Path) -> Events:
    """Read a Kineto trace.

    Raises:
        ReportError: not readable, not JSON, cut short, or JSON that is no Kineto trace.
    """
    columns, devices = _read(path, float)
    if max(columns.start_us) >= _FLOAT_LIMIT_US:
        # Times since 1970 instead of since the file's `baseTimeNanoseconds`: a float can't hold the ns.
        columns, devices = _read(path, Decimal)
    return columns.finish(devices)


def _read(path: Path, number: Callable[[str], Any]) -> tuple[_Columns, list[dict[str, Any]]]:
    columns = _Columns(number)
    devices: list[dict[str, Any]] = []
    seen = False
    with open_json(path, number) as stream:
        if stream.skip("["):  # the bare array that Chrome's format allows too
            seen = True
            columns.add_all(stream)
        elif stream.skip("{"):
            for key in stream.object_keys():
                if key == "traceEvents" and stream.skip("["):
                    seen = True
                    columns.add_all(stream)
                elif key == "deviceProperties":
                    found = stream.value()
                    devices = [d for d in found if isinstance(d, dict)] if isinstance(found, list) else []
                else:
                    stream.value()
        else:
            raise ReportError(f"{path} is not JSON", "Give a Kineto trace (.json or .json.gz).")
    if not seen:
        raise ReportError(f"{path} is JSON but no trace: it has no traceEvents", _RECORD)
    if not columns.event:
        raise ReportError(f"{path} holds no op, range or kernel of torch.profiler", _RECORD)
    return columns, devices


class _Codes(dict[Any, int]):
    """A dict that gives every new key the next integer, so that equal values are stored once."""

    def __missing__(self, key: Any) -> int:
        code = len(self)
        self[key] = code
        return code


class _Columns:
    """Typed arrays that grow by one entry per kept event; `number` turns a time's text into µs."""

    def __init__(self, number: Callable[[str], Any]) -> None:
        self.number = number
        self.position = 0  # of the next event in the file
        self.event = array("q")
        self.category = array("b")
        self.name = array("i")
        self.thread = array("i")
        self.start_us: Any = array("d") if number is float else []
        self.dur_us: Any = array("d") if number is float else []
        self.external_id = array("q")
        # The rest is kept for launch calls and device work only, from these positions among the kept on.
        self.launch_at, self.correlation = array("q"), array("q")
        self.device_at, self.device, self.stream = array("q"), array("q"), array("q")
        self.grid, self.block, self.shared_bytes = array("q"), array("q"), array("q")
        self.names = _Codes()
        self.threads = _Codes()
        self.sizes = _Codes()

    def add_all(self, stream: JsonStream) -> None:
        """Keep what the tables need; everything else (Python frames, flow arrows) passes by."""
        try:
            while True:
                if rows := stream.run_of(_EVENT, _NAME, _ARGUMENTS):
                    self._add_run(stream, rows)
                    continue
                if not stream.has_element():
                    return
                self._add_decoded(stream.element(), f"{stream.path}: traceEvents[{self.position}]")
                self.position += 1
        except (AttributeError, TypeError, ValueError, ArithmeticError):
            where = f"{stream.path}: traceEvents[{self.position}]"
            raise ReportError(f"{where} has a value of the wrong kind", _RECORD) from None

    def _add_run(self, stream: JsonStream, rows: list[tuple[str, ...]]) -> None:
        """Keep what matters of the groups of `_EVENT`, column by column."""
        first, at = self.position, len(self.event)
        kept = [(first + k, *row) for k, row in enumerate(rows) if row[0] in _CODES]
        if kept:
            places, categories, names, pids, tids, starts, durs, ids, arguments = zip(*kept, strict=True)
            codes = [_CODES[category] for category in categories]
            self.event.extend(places)
            self.category.extend(codes)
            self.name.extend([self.names[name] for name in names])
            threads = list(zip(pids, tids, strict=True))
            known = {pair: self.threads[int(pair[0]), int(pair[1])] for pair in dict.fromkeys(threads)}
            self.thread.extend([known[pair] for pair in threads])
            self.start_us.extend(map(self.number, starts))
            self.dur_us.extend(map(self.number, durs))
            self.external_id.extend([int(number or _NONE) for number in ids])
            for k, code in enumerate(codes):
                if code >= CALL or not ids[k]:
                    self.position = places[k]
                    self._add_arguments(at + k, code, arguments[k], stream)
        self.position = first + len(rows)

    def _add_arguments(self, at: int, code: int, text: str, stream: JsonStream) -> None:
        """Keep what matters of the arguments of the event kept at `at`, without its external id if that stood first."""
        if code == CALL and (found := _LAUNCH.fullmatch(text)):
            self.launch_at.append(at)
            self.correlation.append(int(found[1]))
        elif code == KERNEL and (found := _GEOMETRY.fullmatch(text)):
            device, queue, correlation, grid, block = found.groups()
            self.launch_at.append(at)
            self.correlation.append(int(correlation))
            self.device_at.append(at)
            self.device.append(int(device))
            self.stream.append(int(queue))
            self.grid.append(self.sizes[_size(grid)])
            self.block.append(self.sizes[_size(block)])
        else:
            args = stream.decode(f"{{{text.lstrip(_BETWEEN)}}}")
            self.external_id[at] = args.get("External id", self.external_id[at])
            self._add_launch(at, code, args)

    def _add_decoded(self, event: Any, where: str) -> None:
        if not isinstance(event, dict):
            raise ReportError(f"{where} is no event", _RECORD)
        code = _CODES.get(event.get("cat", ""))
        if code is None or event.get("ph") != "X":
            return
        try:
            thread = event["pid"], event["tid"]
            name, start, dur = str(event["name"]), event["ts"], event["dur"]
        except KeyError as error:
            raise ReportError(f"{where} has no {error.args[0]}", _RECORD) from None
        args = event.get("args") or {}
        at = len(self.event)
        if not (-_LATEST_US < start < _LATEST_US and -_LONGEST_US < dur < _LONGEST_US):
            raise ValueError(start, dur)
        self.start_us.append(start)
        self.dur_us.append(dur)
        self.name.append(self.names[name])
        self.thread.append(self.threads[thread])
        self.category.append(code)
        self.external_id.append(args.get("External id", _NONE))
        self._add_launch(at, code, args)
        self.event.append(self.position)

    def _add_launch(self, at: int, code: int, args: dict[str, Any]) -> None:
        """What launch calls and device work have besides."""
        if code >= CALL:
            self.launch_at.append(at)
            self.correlation.append(args.get("correlation", _NONE))
        if code >= KERNEL:
            self.device_at.append(at)
            self.device.append(args.get("device", _NONE))
            self.stream.append(args.get("stream", _NONE))
            self.grid.append(self.sizes[tuple(args.get("grid") or ())])
            self.block.append(self.sizes[tuple(args.get("block") or ())])
            self.shared_bytes.append(args.get("shared memory", _NONE))

    def finish(self, devices: list[dict[str, Any]]) -> Events:
        """The columns as arrays; times relative to the first event."""
        start_ns = _to_ns(self.start_us)

        def spread(places: array[int], values: array[int]) -> Ints:
            column = np.full(len(self.event), _NONE, dtype=np.int64)
            column[np.asarray(places, dtype=np.int64)] = values
            return column

        return Events(
            np.asarray(self.event, dtype=np.int64),
            np.asarray(self.category, dtype=np.int64),
            np.asarray(self.name, dtype=np.int64),
            np.asarray(self.thread, dtype=np.int64),
            start_ns - start_ns.min(),
            # A recording that stops inside an op may give it a negative duration: it has none.
            np.maximum(_to_ns(self.dur_us), 0),
            np.asarray(self.external_id, dtype=np.int64),
            spread(self.launch_at, self.correlation),
            spread(self.device_at, self.device),
            spread(self.device_at, self.stream),
            spread(self.device_at, self.grid),
            spread(self.device_at, self.block),
            spread(self.device_at, self.shared_bytes),
            # JSON can spell half a surrogate pair, which no text can hold.
            names=[name.encode("utf-8", "replace").decode() for name in self.names],
            threads=list(self.threads),
            sizes=[",".join(map(str, size)) for size in self.sizes],
            device_properties=devices,
        )


@lru_cache(maxsize=4096)
def _size(text: str) -> tuple[int, ...]:
    """A printed grid or block."""
    return tuple(map(int, text.split(",")))


def _to_ns(times_us: Any) -> Ints:
    """Times in µs (floats below 2**43, or exact decimals) to integer ns, exactly."""
    if isinstance(times_us, list):
        return np.array([round(Decimal(t) * 1000) for t in times_us], dtype=np.int64)
    values = np.asarray(times_us, dtype=np.float64)
    whole = np.floor(values)
    # Scaling the whole value would round a second time; the fraction alone is exact enough.
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
