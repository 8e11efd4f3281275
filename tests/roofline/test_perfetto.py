"""Placed kernels as trace events: the rules of the format, checked on streams, threads and real recordings."""

import json
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.parsers.kineto import launches as launches_of
from kernelroof.parsers.kineto import read_kineto
from kernelroof.parsers.schema import KERNELS, LAUNCHES
from kernelroof.roofline.perfetto import trace_events
from kernelroof.roofline.trace_lanes import enclosing_ends, lanes

SHARED = os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared"
CAPTURES = Path(SHARED) / "captures" / "kineto"


def table(columns, rows):
    """Rows of a table of the schema, what they don't name null."""
    names = [c.name for c in columns]
    out = pd.DataFrame([{**dict.fromkeys(names), **row} for row in rows], columns=names)
    return out.astype({c.name: "string" if c.dtype == "str" else c.dtype for c in columns})


def launch(start, length, *, step=0, ordinal=0, module="model.layers.0.mlp", kernel="gemm", **more):
    keys = {"phase": "decode", "step": step, "module": module, "kernel": kernel, "ordinal": ordinal, "event": ordinal}
    return {**keys, "start_ns": start, "time_ns": length, "device": "cpu", "time_source": "torch", **more}


def kernel(*, step=0, ordinal=0, module="model.layers.0.mlp", kernel="gemm", **more):
    keys = {"phase": "decode", "step": step, "module": module, "kernel": kernel, "ordinal": ordinal}
    figures = {
        "recorded_ns": 1000,
        "time_ns": 800,
        "bound": "memory",
        "kind": "mlp",
        "count": 1,
        "time_source": "torch",
    }
    return {**keys, **figures, **more}


def check(events):
    """The rules: JSON without NaN, complete slices nested or apart, B and E matched, counters and tracks in order."""
    json.dumps(events, allow_nan=False)
    tracks = defaultdict(list)
    named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    counters = defaultdict(list)
    arrows = defaultdict(list)
    for event in events:
        assert event["pid"] == 1
        if event["ph"] in "XBE":
            assert event["tid"] in named
            tracks[event["tid"]].append(event)
        if event["ph"] == "C":
            counters[event["name"]].append(event["ts"])
            assert event["args"]
            assert all(v >= 0 for v in event["args"].values())
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    for events_of in tracks.values():
        opened, before = [], -1
        for event in events_of:
            at = round(event["ts"] * 1000)
            assert at >= before, "a track is in order"
            before = at
            if event["ph"] == "B":
                opened.append(event["name"])
            elif event["ph"] == "E":
                assert opened.pop() == event["name"]
            else:
                end = at + round(event["dur"] * 1000)
                while opened and opened[-1] <= at:
                    opened.pop()
                assert not opened or end <= opened[-1], "slices are nested or apart"
                opened.append(end)
        if any(e["ph"] == "B" for e in events_of):
            assert not opened
    for times in counters.values():
        assert times == sorted(times)
    starts = {(e["tid"], e["ts"]) for events_of in tracks.values() for e in events_of if e["ph"] == "X"}
    for pair in arrows.values():
        assert [e["ph"] for e in pair] == ["s", "f"]
        assert pair[0]["ts"] <= pair[1]["ts"]
        assert all((e["tid"], e["ts"]) in starts for e in pair), "an arrow begins and ends at a slice"
    return tracks


def names(events):
    return {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}


def test_a_stream_by_hand():
    rows = [
        launch(10_000, 2000, ordinal=0, stream=7, thread=1, launch_ns=1000, kernel="a"),
        launch(13_500, 500, ordinal=1, stream=7, thread=1, launch_ns=2000, kernel="b", module="model.layers.0.norm"),
        launch(14_000, 1000, ordinal=0, step=1, stream=7, thread=1, launch_ns=3000, kernel="a"),
    ]
    placed = [
        kernel(ordinal=0, kernel="a", flops=4_000_000, dram_read_bytes=60, dram_write_bytes=20,
               attained_flop_s=5e12, attained_byte_s=2e9, pct_of_roof=50.0, reason="why", flops_source="ncu"),
        kernel(ordinal=1, kernel="b", module="model.layers.0.norm", bound="unknown", reason="FLOPs are not known"),
    ]  # fmt: skip
    events = list(trace_events(table(LAUNCHES, rows), table(KERNELS, placed).assign(advice=["do it", None])))
    tracks = check(events)
    tid = names(events)
    slices = [(e["name"], e["ts"], e["dur"]) for e in tracks[tid["stream 7: kernels"]]]
    assert slices == [("a", 10.0, 2.0), ("b", 13.5, 0.5), ("a", 14.0, 1.0)]
    first, second, third = (e["args"] for e in tracks[tid["stream 7: kernels"]])
    assert first["work (FLOP)"] == 4_000_000
    assert first["reached (GB/s)"] == 2
    assert first["reached (GFLOP/s)"] == 5000
    assert first["time on the bare run's clock (µs)"] == 0.8
    assert first["what to do"] == "do it"
    assert first["source of the FLOPs"] == "ncu"
    # What is not known is left out, with the reason there; what has no row has no figures.
    assert "work (FLOP)" not in second
    assert second["reason"] == "FLOPs are not known"
    assert third == {"step": 1}
    gaps = [(e["ts"], e["dur"]) for e in tracks[tid["no kernel running"]]]
    assert gaps == [(12.0, 1.5)]
    steps = [(e["name"], e["ts"], e["dur"]) for e in tracks[tid["steps"]]]
    assert steps == [("decode 0", 10.0, 4.0), ("decode 1", 14.0, 1.0)]
    opened = [(e["ph"], e["name"], e["ts"]) for e in tracks[tid["stream 7: modules"]]]
    assert opened[:6] == [
        ("B", "model", 10.0), ("B", "layers.0", 10.0), ("B", "mlp", 10.0),
        ("E", "mlp", 12.0), ("B", "norm", 13.5), ("E", "norm", 14.0),
    ]  # fmt: skip
    counts = [(e["ts"], e["args"]["GB/s"]) for e in events if e["ph"] == "C"]
    assert counts == [(10.0, 2.0), (12.0, 0.0)]
    assert [e["ts"] for e in events if e["ph"] == "s"] == [1.0, 2.0, 3.0]
    assert [e["ts"] for e in events if e["ph"] == "f"] == [10.0, 13.5, 14.0]


def test_ops_of_a_thread_enclose_one_another():
    # linear: 2 µs of its own, 5 µs of mm and 1 µs of view inside; then an op that has no row.
    rows = [
        launch(0, 2000, ordinal=0, thread=5, kernel="linear", event=10),
        launch(1000, 1000, ordinal=1, thread=5, kernel="view", event=11),
        launch(2500, 5000, ordinal=2, thread=5, kernel="mm", event=12),
        launch(9000, 1000, ordinal=3, thread=5, kernel="lonely", event=13),
    ]
    placed = [kernel(ordinal=0, kernel="linear", op="linear", group=10, pct_of_roof=10.0)]
    events = list(trace_events(table(LAUNCHES, rows), table(KERNELS, placed)))
    tracks = check(events)
    found = {e["name"]: e for e in tracks[names(events)["thread 5: kernels"]]}
    assert {n: (e["ts"], e["dur"]) for n, e in found.items()} == {
        "linear": (0.0, 8.0), "view": (1.0, 1.0), "mm": (2.5, 5.0), "lonely": (9.0, 1.0)
    }  # fmt: skip
    assert found["linear"]["args"]["of its roof (%)"] == 10
    assert found["view"]["args"]["part of"] == "linear"
    assert "of its roof (%)" not in found["mm"]["args"]
    assert "part of" not in found["lonely"]["args"]


def test_of_ops_that_start_together_the_first_encloses_the_other():
    rows = [launch(0, 10, kernel="aten::linear"), launch(0, 50, ordinal=1, kernel="aten::mm")]
    found = table(LAUNCHES, [{**row, "thread": 1} for row in rows])
    slices = [e for e in trace_events(found, table(KERNELS, [kernel(group=0)])) if e["ph"] == "X" and e["tid"] == 11]
    assert [(e["name"], e["ts"], e["dur"]) for e in slices] == [("linear", 0.0, 0.06), ("mm", 0.0, 0.05)]


def test_kernels_of_a_stream_at_the_same_time_get_tracks_of_their_own():
    rows = [launch(s, 100, ordinal=i, stream=7) for i, s in enumerate((0, 50, 100, 160))]
    events = list(trace_events(table(LAUNCHES, rows), table(KERNELS, [])))
    tracks = check(events)
    tid = names(events)
    assert [e["ts"] for e in tracks[tid["stream 7: kernels"]]] == [0.0, 0.1]
    assert [e["ts"] for e in tracks[tid["stream 7 (2, at the same time): kernels"]]] == [0.05, 0.16]


def test_nothing_recorded_is_no_event():
    assert list(trace_events(table(LAUNCHES, []), table(KERNELS, []))) == []


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 3), st.sampled_from((None, 7, 9)),
            st.sampled_from(("model.layers.0.mlp", "model.layers.1", "model.norm", "(unattributed)", "(root)")),
        ),
        min_size=1, max_size=40,
    )
)  # fmt: skip
def test_any_recording_keeps_the_rules(rows):
    content = [
        launch(s, t, step=step, ordinal=i, stream=stream, thread=1, module=module,
               launch_ns=None if stream is None else max(0, s - 5000))
        for i, (s, t, step, stream, module) in enumerate(rows)
    ]  # fmt: skip
    placed = [
        kernel(step=r["step"], ordinal=r["ordinal"], module=r["module"], group=r["event"], pct_of_roof=20.0,
               attained_byte_s=1e9, attained_flop_s=1e9)
        for r in content
    ]  # fmt: skip
    launches = table(LAUNCHES, content)
    events = list(trace_events(launches, table(KERNELS, placed)))
    tracks = check(events)
    own = [tid for name, tid in names(events).items() if name.endswith(": kernels")]
    assert sum(len(tracks[tid]) for tid in own) == len(rows)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30))
def test_ends_by_brute_force(pairs):
    """Nanosecond by nanosecond: the op that opened last and has time left runs."""
    pairs = sorted(pairs, key=lambda p: (p[0], -p[1]))
    start, own = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    left, ends, stack, now, nxt = own.tolist(), [0] * len(pairs), [], 0, 0
    while nxt < len(pairs) or stack:
        while stack and left[stack[-1]] == 0:
            ends[stack.pop()] = now
        if nxt < len(pairs) and start[nxt] == now:
            stack.append(nxt)
            nxt += 1
            continue
        if stack:
            left[stack[-1]] -= 1
        now += 1
    found, outermost = enclosing_ends(start, own)
    assert found.tolist() == ends
    assert [bool(o) for o in outermost] == [
        not any(j < i and ends[j] > start[i] for j in range(i)) for i in range(len(pairs))
    ]


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the recordings are not here")
@pytest.mark.parametrize("name", ["h100_qwen1.5-0.5b-chat.json.gz", "b200_vllm_eager.json.gz"])
def test_real_recordings_keep_the_rules(name):
    launches = launches_of(read_kineto(CAPTURES / name))
    events = list(trace_events(launches, table(KERNELS, [])))
    check(events)
    assert sum(len(lane.launch) for lane in lanes(launches, table(KERNELS, []))) == len(launches)
    arrows = sum(e["ph"] == "s" for e in events)
    assert 0 < arrows <= launches["launch_ns"].notna().sum()
