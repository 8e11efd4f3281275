"""`kernelroof analyze` of recordings with several steps and several passes: their spread, and where none is known."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kernelroof.profile.cli import main

# Duration in ns of the one kernel of each forward, by pass: the prefill, then the decode steps.
PASSES = [(9000, [100, 110, 120, 130, 140, 150]), (9900, [101, 111, 121, 131, 141, 151])]
PID = 2**56 + 77 * 2**24
THREAD = PID + 101


def nsys_recording(path: Path, passes: list[tuple[int, list[int]]]) -> Path:
    """An nsys export of whole passes: kernel `gemm` once in each prefill and once in each decode step."""
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
            "CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);"
            "CREATE TABLE NVTX_EVENTS(start, end, eventType, text, textId, globalTid, domainId);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, "
            "shortName, demangledName, graphNodeId, gridX, gridY, gridZ, blockX, blockY, blockZ);"
            "INSERT INTO StringIds VALUES(1, 'gemm');"
        )
        number, at = 0, 1000

        def around(name: str, start: int, end: int) -> None:
            db.execute("INSERT INTO NVTX_EVENTS VALUES(?,?,59,?,NULL,?,0)", (start, end, name, THREAD))

        def forward(length: int) -> None:
            nonlocal number, at
            number += 1
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(?,?,?,?,1)", (at, at + 9, THREAD, number))
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(?,?,0,7,?,?,1,1,NULL,4,1,1,128,1,1)",
                (at + 50, at + 50 + length, number, PID),
            )
            at += 20_000

        for prefill, steps in passes:
            begun = at
            forward(prefill)
            around("prefill", begun - 10, at - 100)
            begun = at
            for k, length in enumerate(steps):
                start = at
                forward(length)
                around(f"step{k}", start - 5, at - 200)
            around("decode", begun - 10, at - 100)
    db.close()
    return path


def kineto_recording(path: Path, passes: list[tuple[int, list[int]]]) -> Path:
    """The same as a Kineto trace of a CPU run, whose op is aten::mm."""
    events: list[dict[str, Any]] = []
    at = 1000.0

    def event(kind: str, name: str, start: float, length: float) -> None:
        events.append({"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length})

    for prefill, steps in passes:
        event("user_annotation", "prefill", at, 100)
        event("cpu_op", "aten::mm", at + 1, prefill / 1000)
        at += 200
        event("user_annotation", "decode", at, 100 * len(steps))
        for k, length in enumerate(steps):
            event("user_annotation", f"step{k}", at + 1, 90)
            event("cpu_op", "aten::mm", at + 2, length / 1000)
            at += 100
        at += 100
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@pytest.fixture(params=[nsys_recording, kineto_recording])
def analysed(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(passes: list[tuple[int, list[int]]]) -> tuple[Path, str]:
        name = "t.sqlite" if request.param is nsys_recording else "t.json"
        assert main(["analyze", str(request.param(tmp_path / name, passes)), "--out", str(tmp_path / "out")]) == 0
        return tmp_path / "out", " ".join(capsys.readouterr().out.split())

    return run


def test_steps_and_passes(analysed: Any) -> None:
    out, said = analysed(PASSES)
    steps = pd.read_csv(out / "repeats.csv").sort_values(["recording", "phase", "step"])
    truth = [[k, p, s, t] for k, (first, rest) in enumerate(PASSES) for p, s, t in (
        *(("decode", s, t) for s, t in enumerate(rest)), ("prefill", 0, first))]  # fmt: skip
    assert steps[["recording", "phase", "step", "time_ns"]].to_numpy().tolist() == truth
    spread = pd.read_csv(out / "spread.csv").set_index(["phase", "scope"])
    prefill, decode = spread.loc[("prefill", "phase")], spread.loc[("decode", "phase")]
    assert (prefill["samples"], prefill["recordings"], prefill["step_median_ns"]) == (2, 2, 9450)
    assert prefill["noise_pct"] == pytest.approx(100 * 450 / 9450)
    assert (decode["samples"], decode["recordings"], decode["step_median_ns"]) == (12, 2, 125.5)
    assert decode["growth_pct"] == pytest.approx(100 * 50 / 125.5)
    assert decode["noise_pct"] == pytest.approx(100 * 0.5 / 125.5)
    assert "decode: its kernels were recorded in 12 forwards of 2 passes" in said


def test_one_prefill_is_one_sample(analysed: Any) -> None:
    out, said = analysed(PASSES[:1])
    spread = pd.read_csv(out / "spread.csv").set_index(["phase", "scope"])
    assert spread.loc[("prefill", "phase"), "samples"] == 1
    assert pd.isna(spread.loc[("prefill", "phase"), "noise_pct"])
    assert "one sample" in spread.loc[("prefill", "kernel"), "reason"]
    assert "prefill: its kernels were recorded in one forward only" in said
    assert spread.loc[("decode", "phase"), "samples"] == 6


def test_without_ranges_nothing_is_said_of_steps(tmp_path: Path) -> None:
    path = nsys_recording(tmp_path / "t.sqlite", PASSES)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM NVTX_EVENTS")
    db.close()
    assert main(["analyze", str(path), "--out", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out" / "spread.csv").exists()


def test_a_run_folder_stands_for_its_first_recording(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("trace.json.gz", "repeat_1.json.gz", "repeat_2.json.gz"):
        kineto_recording(folder / name, PASSES[:1])
    (folder / "placed_trace.json.gz").write_bytes(b"what `kernelroof trace` makes of a run is no recording")
    assert main(["analyze", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert len(pd.read_csv(tmp_path / "out" / "kernels.csv")) == 7
    for name in ("repeat_1.json.gz", "trace.json.gz"):
        (folder / name).unlink()
    assert main(["analyze", str(folder), "--out", str(tmp_path / "alone")]) == 0
