"""One forward as boxes on a timeline: where each lies, what it is, and that nothing is lost or drawn twice."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.roofline.step_timeline import median_step, step_timeline

WHOLE = ("step", "ordinal", "event", "thread", "stream", "start_ns", "time_ns", "count", "group")


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    return frame.astype({name: "Int64" for name in WHOLE if name in frame})


def launch(start: int | None, time: int, **more: Any) -> dict[str, Any]:
    """A kernel on stream 7 of the decode's step 0."""
    found = {"phase": "decode", "step": 0, "ordinal": 0, "kernel": "gemm", "event": 0, "thread": 1, "stream": 7}
    return {**found, "device": "cuda:0", "start_ns": start, "time_ns": time, **more}


def op(start: int, own: int, event: int, **more: Any) -> dict[str, Any]:
    """A CPU's op of thread 1, of which only the start and its own time are recorded."""
    return launch(start, own, event=event, stream=None, device="cpu", **more)


def placed(**more: Any) -> dict[str, Any]:
    found = {"phase": "decode", "step": 0, "ordinal": 0, "kernel": "gemm", "time_ns": 10, "count": 1, "group": None}
    return {**found, **more}


def boxes(found: dict[str, Any] | None) -> list[tuple[int, int, int, str]]:
    assert found is not None
    columns = (found[name] for name in ("start_ns", "time_ns", "row", "lane"))
    return sorted(zip(*columns, strict=True))


def test_the_median_step_is_the_one_whose_kernels_took_the_middle_time() -> None:
    rows = [placed(step=step, time_ns=time) for step, time in enumerate((50, 10, 30, 20, 40))]
    assert median_step(table(rows), "decode") == 2
    # A row of several launches counts as often; of an even number it is the lower one of the middle.
    assert median_step(table([placed(step=0, time_ns=9, count=3), placed(step=1, time_ns=20)]), "decode") == 1
    assert median_step(table([*rows, placed(step=5, time_ns=60)]), "decode") == 2


def test_idle_time_counts_for_the_median_step() -> None:
    """Step 1 has the middle of the kernels' times, and waits longer than the others take."""
    rows = [placed(step=n, time_ns=10 + n) for n in range(3)]
    kernels = table(rows).assign(idle_before_ns=[0, 500, 0])
    assert (median_step(table(rows), "decode"), median_step(kernels, "decode")) == (1, 2)


def test_a_phase_without_steps_has_no_median_step() -> None:
    assert median_step(table([placed(step=None)]), "decode") is None
    assert median_step(table([placed()]), "prefill") is None


def test_a_devices_launches_are_drawn_as_recorded() -> None:
    launches = table(
        [
            launch(1000, 50),
            launch(1020, 100, ordinal=1, kernel="copyk", stream=9),
            launch(1060, 10, ordinal=2, kernel="stray"),
            launch(5000, 10, step=1),
            launch(900, 10, phase="prefill"),
        ]
    )
    kernels = table([placed(ordinal=1, kernel="copyk"), placed(), placed(step=1)])
    found = step_timeline(launches, kernels, "decode", 0)
    assert boxes(found) == [(0, 50, 1, "stream 7"), (20, 100, 0, "stream 9"), (60, 10, -1, "stream 7")]
    assert found is not None
    assert (found["step"], found["length_ns"], found["notes"]) == (0, 120, [])


def test_several_devices_are_told_apart() -> None:
    launches = table([launch(0, 5), launch(2, 5, ordinal=1, device="cuda:1")])
    lanes = [box[3] for box in boxes(step_timeline(launches, table([placed()]), "decode", 0))]
    assert lanes == ["cuda:0 stream 7", "cuda:1 stream 7"]


def test_an_op_is_drawn_around_those_inside_it() -> None:
    """linear 100-200 holds mm 120-180; then add 230-250, after a gap; mm has a row of its own with what is inside."""
    launches = table(
        [
            op(100, 40, 3, kernel="linear"),
            op(120, 50, 4, kernel="mm"),
            op(130, 10, 5, kernel="empty"),
            op(230, 20, 6, kernel="add"),
        ]
    )
    kernels = table([placed(kernel="add", group=6), placed(kernel="linear", group=3), placed(kernel="mm", group=4)])
    found = step_timeline(launches, kernels, "decode", 0)
    assert boxes(found) == [
        (0, 20, 1, "thread 1"),
        (20, 10, 2, "thread 1"),
        (30, 10, 2, "thread 1"),
        (40, 40, 2, "thread 1"),
        (80, 20, 1, "thread 1"),
        (130, 20, 0, "thread 1"),
    ]
    assert found is not None
    assert found["length_ns"] == 150
    assert found["notes"] == ["Times are as recorded, with the profiler's own cost in them."]


def test_threads_have_lanes_of_their_own() -> None:
    launches = table([op(0, 10, 0), op(5, 10, 1, thread=2)])
    found = step_timeline(launches, table([placed(group=0), placed(group=1)]), "decode", 0)
    assert boxes(found) == [(0, 10, 0, "thread 1"), (5, 10, 1, "thread 2")]


@pytest.mark.parametrize("start", [None, 0])
def test_nothing_is_drawn_where_nothing_is_known(start: int | None) -> None:
    phase = "decode" if start is None else "prefill"
    assert step_timeline(table([launch(start, 5)]), table([placed()]), phase, 0) is None


def test_a_phase_whose_steps_are_not_known_is_drawn_whole() -> None:
    launches = table([launch(10, 5, step=None), launch(20, 5, step=None, ordinal=1)])
    kernels = table([placed(step=None), placed(step=None, ordinal=1)])
    found = step_timeline(launches, kernels, "decode")
    assert boxes(found) == [(0, 5, 0, "stream 7"), (10, 5, 1, "stream 7")]
    assert found is not None
    assert found["step"] is None


class Made:
    """Nested ops with known stretches: an op is a list of waits (its own time) and of ops inside it."""

    def __init__(self) -> None:
        self.now = 0
        self.ops: list[list[int]] = []
        self.stretches: list[tuple[int, int, int]] = []

    def run(self, tree: list[Any]) -> None:
        number = len(self.ops)
        self.ops.append([self.now, 0])
        for part in tree:
            if isinstance(part, list):
                self.run(part)
                continue
            if part:
                self.stretches.append((self.now, part, number))
            self.now += part
            self.ops[number][1] += part


TREES = st.recursive(
    st.lists(st.integers(0, 5), max_size=1),
    lambda inner: st.lists(st.integers(0, 5) | inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.integers(0, 4), TREES), min_size=1, max_size=5))
def test_boxes_are_the_stretches_in_which_an_op_itself_ran(forest: list[tuple[int, list[Any]]]) -> None:
    made = Made()
    for gap, tree in forest:
        made.now += gap
        made.run(tree)
    launches = table([op(start, own, event) for event, (start, own) in enumerate(made.ops)])
    kernels = table([placed(group=event) for event in range(len(made.ops))])
    if not made.stretches:
        return
    found = step_timeline(launches, kernels, "decode", 0)
    first = made.ops[0][0]
    ran = _joined([(start + first, length, row) for start, length, row, _ in boxes(found)])
    assert ran == _joined(sorted(made.stretches))


def _joined(stretches: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Neighbouring stretches of one op as one."""
    out: list[tuple[int, int, int]] = []
    for start, length, row in stretches:
        if out and out[-1][2] == row and sum(out[-1][:2]) == start:
            out[-1] = (out[-1][0], out[-1][1] + length, row)
        else:
            out.append((start, length, row))
    return out
