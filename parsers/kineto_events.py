"""Kineto's JSON, event by event, into plain columns.

`json.loads` on the whole file would build a dict per event, several times the file's size. Here some
thousand events are read at a time, the few fields that matter go to typed arrays, and they are forgotten.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
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
_RECORD = "Record it again with torch.profiler and export_chrome_trace."
_NONE = -1


class _Args(msgspec.Struct, gc=False, frozen=True):
    """What is read of an event's arguments; recorded shapes, most of a file, are passed over undecoded."""

    external_id: int = msgspec.field(name="External id", default=_NONE)
    correlation: int = _NONE
    device: int = _NONE
    stream: int = _NONE
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None


class _Event(msgspec.Struct, gc=False):
    """What is read of an event. All have a phase (`ph`); only those with a duration need have the rest."""

    ph: str = ""
    cat: str = ""
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: _Args | None = None


class _ExactEvent(_Event):
    """The same where a float can't hold the times."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


_NO_ARGS = _Args()
_Decoder = msgspec.json.Decoder[list[_Event]] | msgspec.json.Decoder[list[_ExactEvent]]
_FAST = msgspec.json.Decoder(list[_Event])
_EXACT = msgspec.json.Decoder(list[_ExactEvent])
_PASSED_BY = _Event()

Ints = npt.NDArray[np.int64]


class Events(NamedTuple):
    """The kept events (host ops, ranges and launch calls; device kernels and copies), in file order.

    All arrays have one entry per kept event. `event` is the position in the file's `traceEvents`;
    times are integer ns from the earliest kept event; -1 stands for absent in `external_id`,
    `correlation`, `device`, `stream`, `grid` and `block`; `name`, `thread`, `grid` and `block` are
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
    names: list[str]
    threads: list[tuple[object, object]]
    sizes: list[str]
    device_properties: list[dict[str, Any]]


def read_events(path: Path) -> Events:
    """Read a Kineto trace.

    Raises:
        ReportError: not readable, not JSON, cut short, or JSON that is no Kineto trace.
    """
    columns = _Columns(path)
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
    if not columns.event:
        raise ReportError(f"{path} holds no op, range or kernel of torch.profiler", _RECORD)
    return columns.finish(devices)


class _Codes(dict[Any, int]):
    """A dict that gives every new key the next integer, so that equal values are stored once."""

    def __missing__(self, key: Any) -> int:
        code = len(self)
        self[key] = code
        return code


class _Columns:
    """Typed arrays that grow by one entry per kept event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.event = array("q")
        self.category = array("b")
        self.name = array("i")
        self.thread = array("i")
        self.start_ns = array("q")
        self.dur_ns = array("q")
        self.external_id = array("q")
        # The rest is kept for launch calls and device work only, from these positions among the kept on.
        self.launch_at, self.correlation = array("q"), array("q")
        self.device_at, self.device, self.stream = array("q"), array("q"), array("q")
        self.grid, self.block = array("q"), array("q")
        self.names = _Codes()
        self.threads = _Codes()
        self.sizes = _Codes()
        self._decoder: _Decoder = _FAST

    def add_all(self, stream: JsonStream) -> None:
        """Keep what the tables need of all events."""
        position = 0
        for events in stream.elements(self._decode, self._convert):
            self._add(position, events)
            position += len(events)

    def _decode(self, text: str) -> Sequence[_Event]:
        events = self._decoder.decode(text)
        if self._decoder is _FAST and (_floats([e.ts for e in events]) >= _FLOAT_LIMIT_US).any():
            # Times since 1970 instead of since the file's `baseTimeNanoseconds`: a float can't hold the ns.
            self._decoder = _EXACT
            events = _EXACT.decode(text)
        return events

    def _convert(self, position: int, event: Any) -> _Event:
        if not isinstance(event, dict):
            raise ReportError(f"{self.path}: traceEvents[{position}] is no event", _RECORD)
        if event.get("ph") != "X" or event.get("cat") not in _CODES:
            return _PASSED_BY
        try:
            return msgspec.convert(event, _ExactEvent)
        except ValueError:
            raise self._wrong(position) from None

    def _add(self, position: int, events: Sequence[_Event]) -> None:
        """Keep what the tables need, column by column; the first of these events stands at `position` in the file.

        Everything else (Python frames, flow arrows) passes by.
        """
        places = [k for k, e in enumerate(events, position) if e.ph == "X" and e.cat in _CODES]
        kept = [events[k - position] for k in places]
        first = len(self.event)
        codes = [_CODES[e.cat] for e in kept]
        args = [e.args or _NO_ARGS for e in kept]
        try:
            self.start_ns.frombytes(_to_ns([e.ts for e in kept]).tobytes())
            self.dur_ns.frombytes(_to_ns([e.dur for e in kept]).tobytes())
            self.external_id.extend([a.external_id for a in args])
            self.event.extend(places)
            self.category.extend(codes)
            self.name.extend([self.names[e.name] for e in kept])
            self.thread.extend([self.threads[e.pid, e.tid] for e in kept])
            launched = [k for k, code in enumerate(codes) if code >= CALL]
            self.launch_at.extend([first + k for k in launched])
            self.correlation.extend([args[k].correlation for k in launched])
            device = [k for k in launched if codes[k] >= KERNEL]
            self.device_at.extend([first + k for k in device])
            self.device.extend([args[k].device for k in device])
            self.stream.extend([args[k].stream for k in device])
            self.grid.extend([self.sizes[args[k].grid or ()] for k in device])
            self.block.extend([self.sizes[args[k].block or ()] for k in device])
            whole = None not in self.names and all(None not in thread for thread in self.threads)
        except (TypeError, ValueError, ArithmeticError):
            whole = False
        if not whole:
            raise self._wrong(*next((p, f) for p, e in zip(places, kept, strict=True) if (f := _flaw(e))))

    def _wrong(self, position: int, flaw: str = "has a value of the wrong kind") -> ReportError:
        return ReportError(f"{self.path}: traceEvents[{position}] {flaw}", _RECORD)

    def finish(self, devices: list[dict[str, Any]]) -> Events:
        """The columns as arrays; times relative to the first event."""
        start_ns = np.asarray(self.start_ns, dtype=np.int64)

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
            np.maximum(np.asarray(self.dur_ns, dtype=np.int64), 0),
            np.asarray(self.external_id, dtype=np.int64),
            spread(self.launch_at, self.correlation),
            spread(self.device_at, self.device),
            spread(self.device_at, self.stream),
            spread(self.device_at, self.grid),
            spread(self.device_at, self.block),
            names=list(self.names),
            threads=list(self.threads),
            sizes=[",".join(map(str, size)) for size in self.sizes],
            device_properties=devices,
        )


def _flaw(event: _Event) -> str:
    """What is wrong with an event that could not be kept; "" for nothing."""
    for field in ("pid", "tid", "name", "ts", "dur"):
        if getattr(event, field) is None:
            return f"has no {field}"
    args = event.args or _NO_ARGS
    times = (float(t or 0) * 1000 for t in (event.ts, event.dur))
    numbers = (*times, args.external_id, args.correlation, args.device, args.stream)
    return "" if all(abs(n) < _LARGEST for n in numbers) else "has a value of the wrong kind"


def _floats(numbers: list[Any]) -> npt.NDArray[np.float64]:
    return np.array(numbers, dtype=np.float64)  # None becomes NaN


def _to_ns(times_us: list[Any]) -> Ints:
    """Times in µs (floats below 2**43, or exact decimals) to integer ns, exactly.

    Raises:
        TypeError, ValueError, ArithmeticError: there is none, or one is no time.
    """
    if times_us and isinstance(times_us[0], Decimal):
        return np.array([round(t * 1000) for t in times_us], dtype=np.int64)
    values = _floats(times_us)
    if not (np.abs(values) < _FLOAT_LIMIT_US).all():
        raise ValueError("no time")
    whole = np.floor(values)
    # Scaling the whole value would round a second time; the fraction alone is exact enough.
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
