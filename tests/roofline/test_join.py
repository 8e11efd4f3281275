"""Joining launches with counters: who is whose, who stands for whom, and what stays unjoined."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.parsers.schema import COUNTERS, LAUNCHES, UNATTRIBUTED, conform
from kernelroof.roofline.join import Joined, counted_rows, join

NSYS_NAME = "void gemm<(int)4, float>(int, const float *)"
NCU_NAME = "void gemm<4, float>(int, float const*)"


def launches(*rows: dict[str, Any]) -> pd.DataFrame:
    base: dict[str, Any] = {
        "phase": UNATTRIBUTED, "step": None, "module": UNATTRIBUTED, "kernel": NSYS_NAME, "op": None, "thread": 1,
        "stream": 7, "device": "cuda:0", "time_ns": 1000, "launch_ns": 0, "grid": "4,1,1", "block": "128,1,1",
        "ranges": None, "shared_bytes": None, "time_source": "nsys",
    }  # fmt: skip
    filled = [{**base, "ordinal": i, "event": i, "start_ns": 2000 * i, **row} for i, row in enumerate(rows)]
    return conform(pd.DataFrame(filled), LAUNCHES, "launches")


def counters(*rows: dict[str, Any]) -> pd.DataFrame:
    base: dict[str, Any] = {c.name: None for c in COUNTERS}
    base |= {
        "kernel": NCU_NAME, "grid": "4,1,1", "block": "128,1,1", "time_ns": 1200, "dram_read_bytes": 100,
        "dram_write_bytes": 50, "dram_bytes": 150, "flops": 600, "flops_upper_bound": False,
    }  # fmt: skip
    frame = conform(pd.DataFrame([{**base, "ordinal": i, **row} for i, row in enumerate(rows)]), COUNTERS, "counters")
    return frame.assign(sm_pct_at_least=float("nan"))


def work(flops: int) -> dict[str, Any]:
    return {"flops": flops, "dram_read_bytes": flops, "dram_write_bytes": 0, "dram_bytes": flops}


def test_equal_counts_pair_in_order() -> None:
    got = join(launches({}, {}, {}), counters(work(10), work(20), work(30)))
    assert got.rows["flops"].tolist() == [10, 20, 30]
    assert got.rows["joined"].tolist() == ["ordinal"] * 3
    assert got.unjoined.empty


def test_the_two_clocks_stay_apart() -> None:
    row = join(launches({"time_ns": 1000}), counters({"time_ns": 1600})).rows.iloc[0]
    assert (row["timeline_ns"], row["ncu_time_ns"]) == (1000, 1600)
    assert row["duration_ratio"] == pytest.approx(1.6)
    assert "1.60 times" in row["caveat"]
    assert "time_ns" not in row.index


def test_a_ratio_within_one_and_a_half_is_no_flag() -> None:
    assert pd.isna(join(launches({"time_ns": 1000}), counters({"time_ns": 1500})).rows["caveat"].iloc[0])


def test_counted_ones_that_agree_stand_for_their_class() -> None:
    got = join(launches({}, {}, {}, {}), counters(work(1000), work(1040))).rows
    assert got["joined"].tolist() == ["class"] * 4
    assert set(got["flops"]) <= {1000, 1040}


def test_counted_ones_that_differ_do_not() -> None:
    got = join(launches({}, {}, {}), counters(work(1000), work(2000)))
    assert got.rows["joined"].isna().all()
    assert got.rows["flops"].isna().all()
    assert got.unjoined["launches"].tolist() == [3]
    assert "differ by 50 %" in got.unjoined["reason"].iloc[0]


def test_ranges_tell_launches_of_one_class_apart() -> None:
    timeline = launches({"ranges": "a"}, {"ranges": "b"}, {"ranges": "b"})
    got = join(timeline, counters({"range": "b", **work(2000)}, {"range": "a", **work(1000)})).rows
    assert got["flops"].tolist() == [1000, 2000, 2000]


def test_phases_and_modules_join_where_paths_differ_in_spelling() -> None:
    timeline = launches(
        {"phase": "prefill", "step": 0, "module": "mlp", "ranges": "outer/prefill/step0/mlp"},
        {"phase": "decode", "step": 1, "module": "mlp", "ranges": None},
    )
    counted = counters({"range": "decode/step1/mlp", **work(5)}, {"range": "prefill/step0/mlp", **work(9000)})
    assert join(timeline, counted).rows["flops"].tolist() == [9000, 5]


def test_another_grid_is_another_kernel() -> None:
    got = join(launches({"grid": "8,1,1"}), counters({}))
    assert got.rows["joined"].isna().all()
    assert sorted(got.unjoined["side"]) == ["counter", "launch"]


def test_a_report_that_gives_only_the_number_of_blocks() -> None:
    counted = counters({"grid": None, "block": None, "grid_blocks": 8, "block_threads": 128})
    got = join(launches({"grid": "2,4,1"}, {"grid": "2,2,1"}), counted).rows
    assert got["joined"].isna().tolist() == [False, True]


def test_names_without_a_signature() -> None:
    assert join(launches({}), counters({"kernel": "gemm"})).rows["joined"].tolist() == ["ordinal"]


def test_a_summary_without_a_grid_is_not_joined() -> None:
    timeline = launches({"grid": None, "block": None}).assign(count=pd.array([5], dtype="Int64"))
    got = join(timeline, counters({}))
    assert got.rows["joined"].isna().all()
    assert "no grid" in " ".join(got.unjoined["reason"])


def test_without_counters_every_launch_is_kept() -> None:
    got = join(launches({}, {}), None)
    assert len(got.rows) == 2
    assert got.rows["flops"].isna().all()
    assert got.rows["timeline_ns"].tolist() == [1000, 1000]


def test_a_lone_report_takes_phases_from_its_ranges() -> None:
    got = counted_rows(counters({"range": "decode/step3/model.layers.0.mlp"}, {"range": "somebody else's"}))
    assert got["phase"].tolist() == ["decode", UNATTRIBUTED]
    assert got["step"].tolist()[0] == 3
    assert got["module"].tolist()[0] == "model.layers.0.mlp"
    assert got["kind"].tolist() == ["mlp", "other"]
    assert got["timeline_ns"].isna().all()


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["1,1,1", "2,1,1", "3,1,1"]), max_size=12),
    st.lists(st.tuples(st.sampled_from(["1,1,1", "2,1,1", "9,1,1"]), st.integers(1, 3)), max_size=8),
)
def test_no_launch_is_lost_or_made_up(grids: list[str], counted: list[tuple[str, int]]) -> None:
    timeline = launches(*({"grid": g} for g in grids)) if grids else launches({})[:0]
    got: Joined = join(timeline, counters(*({"grid": g, **work(n)} for g, n in counted)) if counted else None)
    assert len(got.rows) == len(grids)
    assert got.rows["timeline_ns"].sum() == 1000 * len(grids)
    allowed = {g: {n for h, n in counted if h == g} for g in grids}
    for grid, flops in zip(got.rows["grid"], got.rows["flops"], strict=True):
        assert pd.isna(flops) or flops in allowed[grid]
    left = got.unjoined[got.unjoined["side"] == "launch"]["launches"].sum() if counted else 0
    assert left == (got.rows["joined"].isna().sum() if counted else 0)
