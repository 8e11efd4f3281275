"""Recorded times on the bare run's clock: sums are exact, and the profiler's cost comes off where it fell."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.errors import ReportError
from kernelroof.parsers.kineto import Kineto, read_kineto
from kernelroof.roofline.match import match
from kernelroof.roofline.waiting import OpGaps
from kernelroof.roofline.wall import reconcile

FREE = {"op_ns": 0.0, "range_ns": 0.0}
Node = tuple[str, str, int, list[Any]]
"""Category, name, own time in ns (spent before what is inside), events inside."""


def op(name: str, own_ns: int, *inside: Node) -> Node:
    return "cpu_op", name, own_ns, list(inside)


def ranged(name: str, own_ns: int, *inside: Node) -> Node:
    return "user_annotation", name, own_ns, list(inside)


def record(folder: Path, *phases: Node, op_ns: int = 0, range_ns: int = 0) -> Kineto:
    """A recording in which each event adds a cost to what contains it, just before itself."""
    events: list[dict[str, Any]] = []
    now = 0

    def add(node: Node, first: bool) -> None:
        nonlocal now
        cat, name, own, inside = node
        now += 0 if first else op_ns if cat == "cpu_op" else range_ns
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": now / 1000, "args": {}}
        events.append(event)
        start = now
        now += own
        for one in inside:
            add(one, False)
        event["dur"] = (now - start) / 1000

    for phase in phases:
        add(phase, True)
        now += 5000
    (folder / "t.json").write_text(json.dumps({"traceEvents": events}))
    return read_kineto(folder / "t.json")


def bare_of(kineto: Kineto, factor: float = 1.0) -> dict[str, Any]:
    """A bare run that took as long as this recording, or a multiple of it."""
    ranges = kineto.ranges[kineto.ranges["level"] == "phase"]
    length = {n: max(1, round(d * factor)) for n, d in zip(ranges["name"], ranges["dur_ns"], strict=True)}
    return {
        "prefill_ns": [length["prefill"]] if "prefill" in length else [],
        "decode_step_ns": [[length["decode"]]] if "decode" in length else [],
    }


def times(rows: pd.DataFrame) -> dict[str, int]:
    return {k: int(t) for k, t in zip(rows["kernel"], rows["time_ns"], strict=True)}


SIMPLE = ranged("prefill", 100, ranged("step0", 50, op("outer", 300, op("inner", 500)), op("other", 50)))


def test_nothing_changes_without_cost_and_dilation(tmp_path: Path) -> None:
    kineto = record(tmp_path, SIMPLE)
    rows, walls = reconcile(match(kineto, []).rows, kineto, bare_of(kineto), FREE)
    wall = walls["prefill"]
    assert wall.factor == 1.0
    assert rows["time_ns"].tolist() == rows["recorded_ns"].tolist() == [300, 500, 50]
    assert (wall.bare_ns, wall.recorded_ns, wall.dilation_ns, wall.charged_ns) == (1000, 1000, 0, 0)
    assert (wall.ops_ns, wall.gap_ns, wall.overlap_ns, wall.coverage_pct) == (850, 150, 0, 85.0)
    assert rows["idle_before_ns"].tolist() == [150, 0, 0]
    assert json.loads(json.dumps(wall.to_dict()))["gap_ns"] == 150


def test_costs_come_off_the_container(tmp_path: Path) -> None:
    node = ranged("prefill", 0, ranged("step0", 1000, op("outer", 300, op("inner", 500)), op("other", 50)))
    kineto = record(tmp_path, node, op_ns=20, range_ns=70)
    rows = match(kineto, []).rows
    assert rows["recorded_ns"].tolist() == [320, 500, 50]
    bare = {"prefill_ns": [1850], "decode_step_ns": []}
    rows, walls = reconcile(rows, kineto, bare, {"op_ns": 20.0, "range_ns": 70.0})
    assert times(rows) == {"outer": 300, "inner": 500, "other": 50}
    wall = walls["prefill"]
    # One op inside an op; two ops and the step's range in the gap; the phase's own range is outside.
    assert (wall.charged_ns, wall.gap_ns, wall.factor) == (20 + 40 + 70, 1000, 1.0)
    assert wall.dilation_ns == 130


def test_a_range_inside_an_op_is_charged_to_the_op(tmp_path: Path) -> None:
    kineto = record(tmp_path, ranged("prefill", 100, op("outer", 300, ranged("note", 10))), range_ns=70)
    rows, _ = reconcile(match(kineto, []).rows, kineto, bare_of(kineto, 410 / 480), FREE | {"range_ns": 70.0})
    assert times(rows) == {"outer": 310}


def test_a_folded_row_is_charged_for_all_events_inside_it(tmp_path: Path) -> None:
    from kernelroof.models.ops import TracedOp

    folded = op("aten::mm", 1000, op("a", 10, op("b", 10)), op("c", 10))
    kineto = record(tmp_path, ranged("prefill", 100, ranged("step0", 0, folded)), op_ns=50)
    mm = TracedOp("prefill", 0, "(root)", "aten::mm", 0, 1, 1, "matmul", 1, 1, 1, 0, 0, "float32", "", "")
    matched = match(kineto, [mm]).rows
    assert matched["recorded_ns"].tolist() == [1180]
    rows, walls = reconcile(matched, kineto, {"prefill_ns": [1130]}, FREE | {"op_ns": 50.0})
    assert times(rows) == {"aten::mm": 1030}
    assert walls["prefill"].charged_ns == 200


def test_containers_stop_at_zero(tmp_path: Path) -> None:
    kineto = record(tmp_path, SIMPLE)
    # A bare run that took what the innermost ops took: all else was the profiler's.
    bare = {"prefill_ns": [1000 - 300 - 150], "decode_step_ns": []}
    rows, walls = reconcile(match(kineto, []).rows, kineto, bare, {"op_ns": 1e6, "range_ns": 1e6})
    assert times(rows)["outer"] == 0
    assert walls["prefill"].gap_ns == 0
    assert walls["prefill"].ops_ns == 550
    assert walls["prefill"].charged_ns == 300 + 150
    assert walls["prefill"].factor == 1.0


def test_no_more_is_charged_than_the_recording_was_slower(tmp_path: Path) -> None:
    kineto = record(tmp_path, SIMPLE)
    rows, walls = reconcile(match(kineto, []).rows, kineto, bare_of(kineto), {"op_ns": 1e6, "range_ns": 1e6})
    assert walls["prefill"].charged_ns == 0
    assert rows["time_ns"].tolist() == rows["recorded_ns"].tolist()


def test_negative_costs_are_taken_as_none(tmp_path: Path) -> None:
    kineto = record(tmp_path, SIMPLE)
    rows, _ = reconcile(match(kineto, []).rows, kineto, bare_of(kineto), {"op_ns": -5.0, "range_ns": -1.0})
    assert rows["time_ns"].tolist() == rows["recorded_ns"].tolist()


def test_decode_is_the_sum_of_the_medians_of_its_steps(tmp_path: Path) -> None:
    steps = [ranged(f"step{k}", 10, op("mm", 90)) for k in range(3)]
    kineto = record(tmp_path, ranged("decode", 0, *steps))
    bare = {"prefill_ns": [], "decode_step_ns": [[100, 110, 500], [90, 130, 120], [300, 120, 140]]}
    rows, walls = reconcile(match(kineto, []).rows, kineto, bare, FREE)
    wall = walls["decode"]
    assert wall.step_ns == (100, 120, 140)
    assert (wall.bare_ns, wall.bare_min_ns, wall.bare_max_ns, wall.repeats) == (360, 340, 710, 3)
    assert int(rows["time_ns"].sum()) + wall.gap_ns == 360
    assert wall.to_dict()["step_ns"] == [100, 120, 140]


def test_phases_are_scaled_each_by_itself(tmp_path: Path) -> None:
    kineto = record(tmp_path, ranged("prefill", 0, op("a", 100)), ranged("decode", 0, ranged("step0", 0, op("b", 100))))
    rows, walls = reconcile(
        match(kineto, []).rows, kineto, {"prefill_ns": [50, 50, 51], "decode_step_ns": [[10]]}, FREE
    )
    assert times(rows) == {"a": 50, "b": 10}
    assert walls["prefill"].factor == 0.5
    assert walls["decode"].factor == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("bare", "says"),
    [
        ({"prefill_ns": [5]}, "the recording has decode and prefill, the bare run prefill"),
        ({"prefill_ns": [5], "decode_step_ns": [[1, 2]]}, "1 decode steps, the bare run 2"),
        ({"prefill_ns": [5], "decode_step_ns": [[1], [1, 2]]}, "differ in their number"),
        ({"prefill_ns": [0], "decode_step_ns": [[1]]}, "took 0 ns"),
    ],
)
def test_runs_that_do_not_fit_are_refused(tmp_path: Path, bare: dict[str, Any], says: str) -> None:
    kineto = record(tmp_path, SIMPLE, ranged("decode", 0, ranged("step0", 0, op("b", 100))))
    with pytest.raises(ReportError, match=says) as caught:
        reconcile(match(kineto, []).rows, kineto, bare, FREE)
    assert caught.value.hint


nodes: st.SearchStrategy[Node] = st.recursive(
    st.builds(op, st.sampled_from("ab"), st.integers(0, 10_000)),
    lambda inner: st.builds(
        lambda make, own, inside: make("x", own, *inside),
        st.sampled_from([op, ranged]), st.integers(0, 10_000), st.lists(inner, max_size=3),
    ),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    forest=st.lists(nodes, max_size=6),
    own=st.integers(1, 1000),
    bare_ns=st.integers(1, 10**12),
    op_ns=st.floats(0, 5000),
    range_ns=st.floats(0, 5000),
)
def test_sums_are_exact_whatever_comes(
    tmp_path_factory: pytest.TempPathFactory,
    forest: list[Node], own: int, bare_ns: int, op_ns: float, range_ns: float,
) -> None:  # fmt: skip
    kineto = record(tmp_path_factory.mktemp("w"), ranged("prefill", own, ranged("step0", 0, *forest)))
    matched = match(kineto, []).rows
    rows, walls = reconcile(matched, kineto, {"prefill_ns": [bare_ns]}, {"op_ns": op_ns, "range_ns": range_ns})
    wall = walls["prefill"]
    assert int(rows["time_ns"].sum()) == wall.ops_ns
    assert wall.ops_ns + wall.gap_ns == wall.bare_ns == bare_ns
    assert wall.gap_ns >= 0
    assert not len(rows) or int(rows["time_ns"].min()) >= 0
    assert 0 <= wall.charged_ns <= wall.recorded_ns
    assert wall.dilation_ns == wall.recorded_ns - bare_ns
    assert rows.drop(columns=["time_ns", "idle_before_ns"]).equals(matched)
    assert not len(rows) or int(rows["idle_before_ns"].min()) >= 0
    assert int(rows["idle_before_ns"].sum()) <= wall.gap_ns
    assert 0 <= wall.coverage_pct <= 100


@pytest.mark.parametrize("op_ns", [0, 500, 2000])
def test_the_cost_of_events_does_not_move_big_ops(tmp_path: Path, op_ns: int) -> None:
    draw = random.Random(3)
    layers = []
    for _ in range(50):
        small = [op("small", draw.randint(2_000, 9_000), op("view", 1_000)) for _ in range(6)]
        big = op("linear", 3_000, op("big", draw.randint(500_000, 2_000_000), op("conj", 300)))
        layers.append(ranged("layers.0", 8_000, *small, big))
    node = ranged("prefill", 20_000, ranged("step0", 5_000, *layers))
    truth = record(tmp_path, node)
    seen = record(tmp_path, node, op_ns=op_ns, range_ns=4 * op_ns)
    costs = {"op_ns": float(op_ns), "range_ns": 4.0 * op_ns}
    wanted, _ = reconcile(match(truth, []).rows, truth, bare_of(truth), FREE)
    got, walls = reconcile(match(seen, []).rows, seen, bare_of(truth), costs)
    big = wanted["kernel"] == "big"
    assert big.sum() == 50
    change = got["time_ns"][big].astype(float) / wanted["time_ns"][big].astype(float)
    assert change.between(0.99, 1.01).all()
    assert walls["prefill"].dilation_ns == op_ns * 50 * 15 + 4 * op_ns * 51
    # The measured costs may be off: half of them leaves the big ops within 1 % as well.
    half, _ = reconcile(match(seen, []).rows, seen, bare_of(truth), {k: v / 2 for k, v in costs.items()})
    scaled, _ = reconcile(match(seen, []).rows, seen, bare_of(truth), FREE)
    error = {n: (t["time_ns"][big] - wanted["time_ns"][big]).abs().sum() for n, t in (("half", half), ("none", scaled))}
    assert error["half"] <= error["none"]


def gpu_record(folder: Path, kernels: list[tuple[float, float, float]]) -> Kineto:
    """Kernels as (launch, start, duration) in us; prefill launches at 0 to 100, decode at 100 to 200."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args})

    for k, phase in enumerate(("prefill", "decode")):
        add("user_annotation", phase, 100 * k, 100)
        add("user_annotation", "step0", 100 * k, 100)
    for c, (launch, start, dur) in enumerate(kernels):
        add("cuda_runtime", "cudaLaunchKernel", launch, 1, correlation=c + 1)
        add("kernel", f"k{c}", start, dur, device=0, stream=7, correlation=c + 1)
    (folder / "t.json").write_text(json.dumps({"traceEvents": events}))
    return read_kineto(folder / "t.json")


def test_on_a_gpu_durations_stay_and_the_account_adds_up(tmp_path: Path) -> None:
    kineto = gpu_record(tmp_path, [(10, 20, 100), (12, 80, 60), (14, 200, 10), (110, 300, 50)])
    bare = {"prefill_ns": [180_000], "decode_step_ns": [[70_000]]}
    rows, walls = reconcile(match(kineto, []).rows, kineto, bare, {"op_ns": 1e3, "range_ns": 1e3})
    assert rows["time_ns"].tolist() == rows["recorded_ns"].tolist()
    wall = walls["prefill"]
    assert (wall.ops_ns, wall.overlap_ns, wall.gap_ns) == (170_000, 40_000, 50_000)
    assert wall.ops_ns + wall.gap_ns - wall.overlap_ns == wall.bare_ns
    assert (wall.factor, wall.charged_ns, wall.recorded_ns) == (1.0, 0, 210_000)
    assert wall.coverage_pct == pytest.approx(100 * 130 / 180)
    # The device comes to the decode's work when that of the prefill is done, at 210.
    assert (walls["decode"].recorded_ns, walls["decode"].gap_ns) == (140_000, 20_000)


@settings(max_examples=40, deadline=None)
@given(
    kernels=st.lists(st.tuples(st.integers(0, 198), st.integers(0, 500), st.integers(0, 300)), min_size=1, max_size=12),
    bare=st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)),
)
def test_on_a_gpu_sums_are_exact_too(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[Any], bare: tuple[int, int]
) -> None:
    kineto = gpu_record(tmp_path_factory.mktemp("g"), kernels)
    matched = match(kineto, []).rows
    assert len(matched) == len(kernels)
    rows, walls = reconcile(matched, kineto, {"prefill_ns": [bare[0]], "decode_step_ns": [[bare[1]]]}, FREE)
    for phase, wall in walls.items():
        mine = [(s, s + d) for launch, s, d in kernels if (launch < 100) == (phase == "prefill")]
        busy = len({us for s, e in mine for us in range(s, e)}) * 1000
        assert wall.ops_ns - wall.overlap_ns == busy
        assert wall.ops_ns + wall.gap_ns - wall.overlap_ns == wall.bare_ns
        assert int(rows["time_ns"][rows["phase"] == phase].sum()) == wall.ops_ns


def test_idle_time_is_of_the_op_after_it(tmp_path: Path) -> None:
    """Python before the first op of a module is the module's; what comes after the last op is nobody's."""
    module = ranged("model.mlp", 40, op("one", 100, op("inside", 5)))
    kineto = record(tmp_path, ranged("prefill", 3, ranged("step0", 10, module, op("two", 50), ranged("end", 7))))
    rows, walls = reconcile(match(kineto, []).rows, kineto, {"prefill_ns": [215]}, FREE)
    idle = dict(zip(rows["kernel"], rows["idle_before_ns"], strict=True))
    assert idle == {"one": 3 + 10 + 40, "inside": 0, "two": 0}
    assert walls["prefill"].gap_ns == 3 + 10 + 40 + 7


def test_idle_time_comes_to_the_bare_clock(tmp_path: Path) -> None:
    step = ranged("step0", 0, ranged("a", 300, op("one", 5)), ranged("b", 100, op("two", 5)), ranged("end", 100))
    kineto = record(tmp_path, ranged("prefill", 0, step))
    rows, _ = reconcile(match(kineto, []).rows, kineto, {"prefill_ns": [51]}, FREE)
    assert rows["idle_before_ns"].tolist() == [30, 10]


def test_what_recording_added_to_idle_time_comes_off_where_it_fell(tmp_path: Path) -> None:
    """Two ranges and an op before "one", one range and an op before "two"."""
    step = ranged("step0", 0, ranged("a", 300, op("one", 5)), ranged("b", 100, op("two", 5)))
    kineto = record(tmp_path, ranged("prefill", 0, step), op_ns=20, range_ns=70)
    gaps = OpGaps(kineto, "prefill", {"op_ns": 20.0, "range_ns": 70.0})
    assert gaps.cost_ns == 2 * 20 + 3 * 70
    assert gaps.before(kineto.ops["event"], 400, 1.0).tolist() == [300, 100]
    assert gaps.before(kineto.ops["event"], 650, 0.0).tolist() == [460, 190]


def test_passes_of_a_phase_do_not_wait_for_one_another(tmp_path: Path) -> None:
    one = ranged("prefill", 30, op("one", 10))
    gaps = OpGaps(kineto := record(tmp_path, one, one), "prefill", FREE)
    assert gaps.before(kineto.ops["event"], 60, 0.0).tolist() == [30, 30]
