"""Kineto's JSON, event by event, into plain columns.

`json.loads` on the whole file would build a dict per event, several times the file's size. Here one
event is read at a time, the few fields that matter go to typed arrays, and the event is forgotten.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from decimal import Decimal
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

# The start of an event as Kineto writes it, up to the brace of its arguments. Recorded shapes make the
# arguments most of a file, so an op's are not decoded. An event that looks different is decoded as JSON.
_HEAD = re.compile(
    r'[\s,]*\{\s*"ph": ?"X",\s*"cat": ?"(\w+)",\s*"name": ?"([^"\\]*)",\s*"pid": ?(\d+),\s*"tid": ?(\d+),'
    r'\s*"ts": ?(\d[\d.]*),\s*"dur": ?(\d[\d.]*),\s*"args": ?\{'
)
_EXTERNAL_ID = re.compile(r'\s*"External id": ?(\d+)')

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
        position = 0
        try:
            while self._add_next(stream, position):
                position += 1
        except (AttributeError, TypeError, ValueError, ArithmeticError):
            where = f"{stream.path}: traceEvents[{position}]"
            raise ReportError(f"{where} has a value of the wrong kind", _RECORD) from None

    def _add_next(self, stream: JsonStream, position: int) -> bool:
        """Step over one event, keeping what matters of it; False at the end of the array."""
        found = stream.flat_object(_HEAD)
        if found is None:
            if not stream.has_element():
                return False
            self._add_decoded(position, stream.element(), f"{stream.path}: traceEvents[{position}]")
            return True
        (category, name, pid, tid, start, dur), arguments = found
        code = _CODES.get(category)
        if code is not None:
            first = _EXTERNAL_ID.match(arguments) if code < CALL else None
            args = {"External id": int(first[1])} if first else stream.decode(f"{{{arguments}}}")
            self._add(position, code, name, (int(pid), int(tid)), self.number(start), self.number(dur), args)
        return True

    def _add_decoded(self, position: int, event: Any, where: str) -> None:
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
        self._add(position, code, name, thread, start, dur, event.get("args") or {})

    def _add(
        self,
        position: int,
        code: int,
        name: str,
        thread: tuple[object, object],
        start_us: Any,
        dur_us: Any,
        args: dict[str, Any],
    ) -> None:
        if not (-_LATEST_US < start_us < _LATEST_US and -_LONGEST_US < dur_us < _LONGEST_US):
            raise ValueError(start_us, dur_us)
        self.start_us.append(start_us)
        self.dur_us.append(dur_us)
        self.name.append(self.names[name])
        self.thread.append(self.threads[thread])
        self.category.append(code)
        self.external_id.append(args.get("External id", _NONE))
        if code >= CALL:
            self.launch_at.append(len(self.event))
            self.correlation.append(args.get("correlation", _NONE))
        if code >= KERNEL:
            self.device_at.append(len(self.event))
            self.device.append(args.get("device", _NONE))
            self.stream.append(args.get("stream", _NONE))
            self.grid.append(self.sizes[tuple(args.get("grid") or ())])
            self.block.append(self.sizes[tuple(args.get("block") or ())])
            self.shared_bytes.append(args.get("shared memory", _NONE))
        self.event.append(position)

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


def _to_ns(times_us: Any) -> Ints:
    """Times in µs (floats below 2**43, or exact decimals) to integer ns, exactly."""
    if isinstance(times_us, list):
        return np.array([round(Decimal(t) * 1000) for t in times_us], dtype=np.int64)
    values = np.asarray(times_us, dtype=np.float64)
    whole = np.floor(values)
    # Scaling the whole value would round a second time; the fraction alone is exact enough.
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
