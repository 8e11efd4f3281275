"""Kineto's JSON, event by event, into plain columns.

`json.loads` on the whole file would build a dict per event, several times the file's size. Here some
thousand events are read at a time, the few fields that matter go to typed arrays, and they are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
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
_LARGEST = 1 << 63
# Further from the clock's zero, or longer, than any recording: 140 years, 13 days.
_LATEST_US, _LONGEST_US = 1 << 52, 1 << 40
_RECORD = "Record it again with torch.profiler and export_chrome_trace."
_NONE = -1
_OTHER = 255  # what is in no category that is kept


class _Args(msgspec.Struct, gc=False, frozen=True):
    """What is read of an event's arguments; recorded shapes, most of a file, are passed over undecoded."""

    external_id: int = msgspec.field(name="External id", default=_NONE)
    correlation: int = _NONE
    device: int = _NONE
    stream: int = _NONE
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    shared_bytes: int = msgspec.field(name="shared memory", default=_NONE)


_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False):
    """What is read of an event. All have a phase (`ph`); only those with a duration need have the rest."""

    ph: str = ""
    cat: str = ""
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: _Args = _NO_ARGS


class _ExactEvent(_Event):
    """The same where a float can't hold the times."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


_fast = msgspec.json.Decoder(list[_Event]).decode
_exact = msgspec.json.Decoder(list[_ExactEvent]).decode
_PASSED_BY = _Event()

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
    try:
        return _read(_Columns(path, _fast))
    except _TooLongSinceError:
        return _read(_Columns(path, _exact))


class _TooLongSinceError(Exception):
    """Times since 1970 instead of since the file's `baseTimeNanoseconds`: a float can't hold the ns."""


def _read(columns: _Columns) -> Events:
    path = columns.path
    devices: list[dict[str, Any]] = []
    seen = False
    with open_json(path) as stream:
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
    if not columns.blocks:
        raise ReportError(f"{path} holds no op, range or kernel of torch.profiler", _RECORD)
    return columns.finish(devices)


class _Codes(dict[Any, int]):
    """A dict that gives every new key the next integer, so that equal values are stored once."""

    def __missing__(self, key: Any) -> int:
        code = len(self)
        self[key] = code
        return code


class _Columns:
    """The kept events while a file is read: blocks of columns, in the order of the columns of `Events`."""

    def __init__(self, path: Path, decode: Callable[[str], list[Any]]) -> None:
        self.path = path
        self.blocks: list[list[Ints]] = []
        self.names, self.threads, self.sizes = _Codes(), _Codes(), _Codes()
        self._decode = decode

    def add_all(self, stream: JsonStream) -> None:
        """Keep what the tables need of all events."""
        position = 0
        for events in stream.elements(self._decode, self._convert):
            self._add(position, events)
            position += len(events)

    def _convert(self, position: int, event: Any) -> _Event:
        if not isinstance(event, dict):
            raise ReportError(f"{self.path}: traceEvents[{position}] is no event", _RECORD)
        if event.get("ph") != "X" or event.get("cat") not in _CODES:
            return _PASSED_BY
        if not event.get("args", True):
            del event["args"]
        try:
            return msgspec.convert(event, _ExactEvent)
        except ValueError:
            raise self._wrong(position) from None

    def _add(self, position: int, events: Sequence[_Event]) -> None:
        """Keep what the tables need; the first of these events stands at `position` in the file.

        Everything else (Python frames, flow arrows) passes by.
        """
        codes = bytes([_CODES.get(e.cat, _OTHER) if e.ph == "X" else _OTHER for e in events])
        category = np.frombuffer(codes, dtype=np.uint8).astype(np.int64)
        places = np.flatnonzero(category != _OTHER)
        kept = [events[k] for k in places.tolist()]
        if not kept:
            return
        category = category[places]
        calls, device = (np.flatnonzero(category >= first) for first in (CALL, KERNEL))
        args = [kept[k].args for k in calls.tolist()]
        work = [kept[k].args for k in device.tolist()]

        def spread(rows: Ints, values: list[int]) -> Ints:
            column = np.full(len(kept), _NONE, dtype=np.int64)
            column[rows] = _integers(values)
            return column

        try:
            block = [
                places + position,
                category,
                _integers([self.names[e.name] for e in kept]),
                _integers([self.threads[e.pid, e.tid] for e in kept]),
                _to_ns([e.ts for e in kept], _LATEST_US),
                _to_ns([e.dur for e in kept], _LONGEST_US),
                _integers([e.args.external_id for e in kept]),
                spread(calls, [a.correlation for a in args]),
                spread(device, [a.device for a in work]),
                spread(device, [a.stream for a in work]),
                spread(device, [self.sizes[a.grid or ()] for a in work]),
                spread(device, [self.sizes[a.block or ()] for a in work]),
                spread(device, [a.shared_bytes for a in work]),
            ]
            whole = None not in self.names and all(None not in thread for thread in self.threads)
        except (TypeError, ValueError, ArithmeticError):
            whole = False
        if not whole:
            found = ((place, _flaw(e)) for place, e in zip(places.tolist(), kept, strict=True))
            raise self._wrong(*next((position + place, flaw) for place, flaw in found if flaw))
        self.blocks.append(block)

    def _wrong(self, position: int, flaw: str = "has a value of the wrong kind") -> ReportError:
        return ReportError(f"{self.path}: traceEvents[{position}] {flaw}", _RECORD)

    def finish(self, devices: list[dict[str, Any]]) -> Events:
        """The columns as arrays; times relative to the first event."""
        columns: list[Any] = [np.concatenate(parts) for parts in zip(*self.blocks, strict=True)]
        # JSON can spell half a surrogate pair, which no text can hold.
        names = [name.encode("utf-8", "replace").decode() for name in self.names]
        sizes = [",".join(map(str, size)) for size in self.sizes]
        columns += [names, list(self.threads), sizes, devices]
        events = Events(*columns)
        return events._replace(
            start_ns=events.start_ns - events.start_ns.min(),
            # A recording that stops inside an op may give it a negative duration: it has none.
            dur_ns=np.maximum(events.dur_ns, 0),
        )


def _flaw(event: _Event) -> str:
    """What is wrong with an event that could not be kept; "" for nothing."""
    for field in ("pid", "tid", "name", "ts", "dur"):
        if getattr(event, field) is None:
            return f"has no {field}"
    args = event.args
    numbers = (args.external_id, args.correlation, args.device, args.stream, args.shared_bytes)
    fits = (
        abs(float(event.ts or 0)) < _LATEST_US
        and abs(float(event.dur or 0)) < _LONGEST_US
        and all(abs(n) < _LARGEST for n in numbers)
    )
    return "" if fits else "has a value of the wrong kind"


def _integers(values: list[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64, count=len(values))


def _to_ns(times_us: list[Any], limit_us: int) -> Ints:
    """Times in µs (floats below 2**43, or exact decimals) to integer ns, exactly.

    Raises:
        _TooLongSinceError: there are larger floats.
        TypeError, ValueError, ArithmeticError: there is no time (None), or one is no number or not below the limit.
    """
    values = np.fromiter(times_us, dtype=np.float64, count=len(times_us))
    if not (np.abs(values) < limit_us).all():
        raise ValueError("no time")
    if isinstance(times_us[0], Decimal):
        return _integers([round(t * 1000) for t in times_us])
    if (np.abs(values) >= _FLOAT_LIMIT_US).any():
        raise _TooLongSinceError
    whole = np.floor(values)
    # Scaling the whole value would round a second time; the fraction alone is exact enough.
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
