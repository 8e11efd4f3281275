"""Attribution and time sums against plain loops over every pair, on random small recordings."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernelroof.parsers.intervals import before, merge, union_lengths
from kernelroof.parsers.nsys_attribution import NO_END, RangeTable, cover, cover_of_ranges
from kernelroof.parsers.nsys_sqlite import read_nsys
from kernelroof.parsers.nsys_windows import path_sums, step_windows

TIMES = st.integers(0, 30)
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def covers(table, row, thread, time):
    same = table.thread[row] >> 24 == thread >> 24 if table.process_wide[row] else table.thread[row] == thread
    return bool(same and table.start[row] <= time < table.end[row])


def around(table, thread, time):
    rows = [row for row in range(len(table.start)) if covers(table, row, thread, time)]
    return sorted(rows, key=lambda row: (table.start[row], -int(table.end[row]), row))


@st.composite
def tables(draw):
    size = draw(st.integers(0, 12))
    ends = st.one_of(TIMES, st.just(NO_END))
    ids = st.integers(1, 2)
    numbers = [(draw(TIMES), draw(ends), (draw(ids) << 24) + draw(ids)) for _ in range(size)]
    columns = [np.array([row[i] for row in numbers], np.int64) for i in range(3)]
    return RangeTable(*columns, np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool))


@settings(max_examples=150, **SLOW)
@given(tables(), st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), TIMES), max_size=12))
def test_cover_is_every_range_around_the_point(table, points):
    thread = np.array([(pid << 24) + tid for pid, tid, _ in points], np.int64)
    time = np.array([t for *_, t in points], np.int64)
    found = cover(thread, time, table)
    for point, group in enumerate(found.group):
        rows = found.ranges[found.offsets[group] : found.offsets[group + 1]]
        assert list(rows) == around(table, thread[point], time[point])


@settings(max_examples=150, **SLOW)
@given(tables())
def test_cover_of_a_range_ends_with_itself(table):
    found = cover_of_ranges(table)
    stretched = table._replace(end=np.maximum(table.end, table.start + 1))
    for row in range(len(table.start)):
        rows = list(found.ranges[found.offsets[row] : found.offsets[row + 1]])
        everything = around(stretched, table.thread[row], table.start[row])
        assert rows == everything[: everything.index(row) + 1]


RANGE = st.tuples(
    st.sampled_from(["prefill", "decode", "step0", "step1", "model.a", "other name"]),
    TIMES,
    st.one_of(TIMES, st.none()),
    st.sampled_from([59, 59, 60]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.booleans(),
)
CALL = st.tuples(TIMES, st.integers(1, 2), st.integers(1, 2))
KERNEL = st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 8), st.integers(1, 2), st.integers(0, 1))


def build(file, ranges, calls, kernels):
    for name, start, end, kind, pid, tid, by_id in ranges:
        file.range(name, start, end, kind=kind, pid=pid, tid=tid, by_id=by_id)
    for correlation, (start, pid, tid) in enumerate(calls):
        file.call(start, correlation, end=start + 3, pid=pid, tid=tid)
    for start, time, correlation, pid, device in kernels:
        file.kernel(start, start + time, correlation, pid=pid, deviceId=device)
    return read_nsys(file.write())


@settings(max_examples=60, **SLOW)
@given(st.lists(RANGE, max_size=8), st.lists(CALL, max_size=8), st.lists(KERNEL, min_size=1, max_size=8))
def test_recording_is_attributed_as_by_hand(nsys_file, ranges, calls, kernels):
    nsys = build(nsys_file(), ranges, calls, kernels)
    for row, (_, time, correlation, pid, _) in enumerate(kernels):
        got = nsys.work.iloc[row]
        call = calls[correlation] if correlation < len(calls) and calls[correlation][1] == pid else None
        inside = []
        if call:
            at, _, tid = call
            for order, (name, start, end, kind, owner, thread, _) in enumerate(ranges):
                stop = 10**9 if end is None else end
                if owner == pid and (kind == 60 or thread == tid) and start <= at < stop:
                    inside.append((start, -stop, order, name))
        names = [name for *_, name in sorted(inside)]
        assert got["time_ns"] == time
        assert pd.isna(got["launch_ns"]) == (call is None)
        assert ("" if pd.isna(got["ranges"]) else got["ranges"]) == "/".join(names)
        phase = next((i for i, name in enumerate(names) if name in ("prefill", "decode")), None)
        assert got["phase"] == ("(unattributed)" if phase is None else names[phase])
        tail = [] if phase is None else names[phase + 1 :]
        step = next((i for i, name in enumerate(tail) if name.startswith("step")), None)
        assert ("" if pd.isna(got["step"]) else f"step{got['step']}") == ("" if step is None else tail[step])
        dotted = [n for n in tail[0 if step is None else step + 1 :] if " " not in n]
        inner = dotted[-1] if dotted else "(root)"
        assert got["module"] == ("(unattributed)" if phase is None else inner)


@settings(max_examples=40, **SLOW)
@given(st.lists(RANGE, max_size=6), st.lists(CALL, max_size=6), st.lists(KERNEL, min_size=1, max_size=8))
def test_sums_per_path_as_by_hand(nsys_file, ranges, calls, kernels):
    nsys = build(nsys_file(), ranges, calls, kernels)
    sums = path_sums(nsys).set_index(["process", "device", "path"])
    work = nsys.work
    for (process, device, path), row in sums.iterrows():
        names = work["ranges"].fillna("")
        under = (names == path) | names.str.startswith(f"{path}/") if path else names == names
        members = work[under & (work["process"] == process) & (work["device"] == device)]
        ticks = set()
        for start, time in zip(members["start_ns"], members["time_ns"], strict=True):
            ticks |= set(range(start, start + time))
        assert (row["kernels"], row["sum_ns"], row["busy_ns"]) == (len(members), members["time_ns"].sum(), len(ticks))
        assert row["overlap_ns"] == row["sum_ns"] - row["busy_ns"]
        assert row["launches"] == members["correlation"].nunique()


INTERVALS = st.lists(st.tuples(TIMES, st.integers(0, 10)), max_size=10)


@given(INTERVALS, st.lists(st.integers(-5, 60), max_size=5), st.integers(1, 3))
def test_interval_lengths_as_by_counting_ticks(pairs, times, groups):
    start = np.array([s for s, _ in pairs], np.int64)
    end = np.array([s + n for s, n in pairs], np.int64)
    ticks = [tick for s, n in pairs for tick in range(s, s + n)]
    union = merge(start, end)
    assert (union.end - union.start).sum() == len(set(ticks))
    assert (union.start[1:] > union.end[:-1]).all()
    wanted = [sum(tick < t for tick in ticks) for t in times]
    assert before(start, end, np.array(times, np.int64)).tolist() == wanted
    group = np.arange(len(pairs)) % groups
    lengths = union_lengths(group, start, end, groups)
    for g in range(groups):
        own = {t for (s, n), owner in zip(pairs, group, strict=True) if owner == g for t in range(s, s + n)}
        assert lengths[g] == len(own)


# Windows of steps.


def test_windows_tile_and_idle_time_has_causes(nsys_file):
    file = nsys_file().range("prefill", 0, 100).range("step0", 0, 100)
    file.range("decode", 100, 900).range("step0", 110, 200).range("step1", 200, 900)
    file.launch(10, 1, 50, 300)
    file.launch(120, 2, 320, 400).launch(130, 3, 380, 500, streamId=8)
    file.call(210, 4, end=510, name="cudaStreamSynchronize_v3020")
    file.launch(600, 5, 640, 700).call(710, 6).copy(750, 760, 6)
    windows = step_windows(read_nsys(file.write()))
    names = ["phase", "step", "start_ns", "end_ns", "kernels", "sum_ns", "busy_ns", "overlap_ns"]
    assert windows[names].values.tolist() == [
        ["prefill", 0, 0, 300, 1, 250, 250, 0],
        ["decode", 0, 300, 500, 2, 200, 180, 20],
        ["decode", 1, 500, 700, 1, 60, 60, 0],
    ]
    idle = ["idle_ns", "launch_wait_ns", "latency_ns", "sync_ns", "unknown_ns"]
    assert windows[idle].values.tolist() == [[50, 10, 40, 0, 0], [20, 0, 20, 0, 0], [140, 90, 40, 10, 0]]


def test_a_window_begins_when_earlier_work_ends(nsys_file):
    file = nsys_file().launch(5, 1, 10, 150).range("prefill", 100, 200).launch(110, 2, 150, 180)
    window = step_windows(read_nsys(file.write())).iloc[0]
    assert (window["start_ns"], window["end_ns"], window["idle_ns"]) == (145, 175, 0)
    assert pd.isna(window["step"])


def test_work_whose_launch_is_unknown_leaves_idle_time_unexplained(nsys_file):
    file = nsys_file().range("prefill", 0, 100).launch(10, 1, 20, 30).kernel(50, 60, 99).launch(40, 2, 60, 70)
    window = step_windows(read_nsys(file.write())).iloc[0]
    assert (window["idle_ns"], window["unknown_ns"], window["launch_wait_ns"], window["latency_ns"]) == (40, 20, 10, 10)


def test_repeated_passes_are_separate_windows(nsys_file):
    file = nsys_file()
    for number in range(3):
        base = 1000 * number
        file.range("prefill", base, base + 100).range("step0", base, base + 90)
        file.launch(base + 10, number, base + 200, base + 250)
    windows = step_windows(read_nsys(file.write()))
    assert windows["end_ns"].tolist() == [250, 1250, 2250]
    assert windows["start_ns"].tolist() == [0, 250, 1250]


@settings(max_examples=60, **SLOW)
@given(st.lists(RANGE, max_size=6), st.lists(CALL, max_size=8), st.lists(KERNEL, min_size=1, max_size=8))
def test_windows_always_add_up(nsys_file, ranges, calls, kernels):
    file = nsys_file().call(4, 100, end=9, pid=1, tid=1, name="cudaDeviceSynchronize_v3020")
    windows = step_windows(build(file, [("prefill", 0, 12, 60, 1, 1, False), *ranges], calls, kernels))
    parts = windows[["launch_wait_ns", "latency_ns", "sync_ns", "unknown_ns"]]
    assert (parts.sum(axis=1) == windows["idle_ns"]).all()
    assert (parts >= 0).to_numpy().all()
    assert (windows["busy_ns"] + windows["idle_ns"] == windows["length_ns"]).all()
    assert (windows[["length_ns", "overlap_ns", "busy_ns"]] >= 0).to_numpy().all()
    for _, own in windows.groupby(["process", "device"]):
        assert own["start_ns"].tolist()[1:] == own["end_ns"].tolist()[:-1]


def test_no_phases_no_windows(nsys_file):
    windows = step_windows(read_nsys(nsys_file().range("Loop", 0, 100).launch(1, 1, 2, 3).write()))
    assert windows.empty
    assert "latency_ns" in windows.columns


@pytest.mark.parametrize("size", [0, 1])
def test_recordings_without_kernels_give_empty_sums(nsys_file, size):
    file = nsys_file().range("prefill", 0, 100)
    if size:
        file.call(10, 1).copy(50, 60, 1)
    nsys = read_nsys(file.write(), need_kernels=False)
    assert len(nsys.launches) == 0
    assert path_sums(nsys)["sum_ns"].sum() == 20 * size
    assert len(step_windows(nsys)) == size
