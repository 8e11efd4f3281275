"""Placing and summing, against figures worked out by hand."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.errors import ReportError
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.place import above_compute, aggregate, place, place_again

# 1 TFLOP/s and 100 GB/s: ridge 10 FLOP/B.
MACHINE = Ceilings("test", 1e12, 1e11, 4e11, "float32", "measured", None, "")


def rows(*launches: dict[str, Any]) -> pd.DataFrame:
    base = {"flops": None, "read": None, "write": 0, "time_ns": 1_000_000, "count": 1}
    frame = pd.DataFrame([{**base, **launch} for launch in launches])
    frame = frame.rename(columns={"read": "dram_read_bytes", "write": "dram_write_bytes"})
    return frame.astype(dict.fromkeys(("flops", "dram_read_bytes", "dram_write_bytes", "time_ns", "count"), "Int64"))


def one(ceilings: Ceilings = MACHINE, **launch: Any) -> pd.Series[Any]:
    return place(rows(launch), ceilings).iloc[0]


def test_memory_bound_kernel() -> None:
    # 80 MB in 1 ms = 80 GB/s of 100; 40 MFLOP: intensity 0.5, ideal 0.8 ms.
    got = one(flops=40_000_000, read=60_000_000, write=20_000_000, count=3)
    assert got["intensity"] == 0.5
    assert got["attained_byte_s"] == pytest.approx(80e9)
    assert got["attained_flop_s"] == pytest.approx(40e9)
    assert got["ideal_ns"] == pytest.approx(800_000)
    assert got["pct_of_roof"] == pytest.approx(80)
    assert got["recoverable_ns"] == pytest.approx(3 * 200_000)
    assert got["bound"] == "memory"
    assert pd.isna(got["reason"])


def test_compute_bound_kernel() -> None:
    # 900 MFLOP in 1 ms = 0.9 TFLOP/s of 1; 10 MB: intensity 90, above the ridge.
    got = one(flops=900_000_000, read=10_000_000)
    assert got["bound"] == "compute"
    assert got["pct_of_roof"] == pytest.approx(90)
    assert got["recoverable_ns"] == pytest.approx(100_000)


@pytest.mark.parametrize(
    ("launch", "bound", "words"),
    [
        ({"time_ns": 9_999}, "latency", "10 µs"),
        ({"time_ns": 10_000}, "inefficient", "long enough"),
        ({"time_ns": 1_000_000, "waves_per_sm": 0.5}, "latency", "wave"),
        ({"time_ns": 1_000_000, "waves_per_sm": 2.0}, "inefficient", "long enough"),
        ({"time_ns": 1_000_000, "waves_per_sm": None}, "inefficient", "long enough"),
    ],
)
def test_far_below_the_roof(launch: dict[str, Any], bound: str, words: str) -> None:
    # 1 kB: 10 ns at the roof.
    got = one(flops=100, read=1000, **launch)
    assert got["bound"] == bound
    assert words in got["reason"]


def test_sixty_percent_is_bound_by_the_roof() -> None:
    assert one(flops=1, read=60_000_000)["bound"] == "memory"
    assert one(flops=1, read=59_999_000)["bound"] == "inefficient"


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ({"flops": None, "read": 5}, "FLOPs not known"),
        ({"flops": 5, "read": None}, "bytes not known"),
        ({"flops": 5, "read": 5, "write": None}, "bytes not known"),
        ({"flops": None, "read": None}, "FLOPs and bytes not known"),
        ({"flops": None, "read": None, "reason": "wrapper: dispatch only"}, "wrapper: dispatch only"),
    ],
)
def test_missing_is_unknown_and_never_zero(launch: dict[str, Any], words: str) -> None:
    got = one(**launch)
    assert got["bound"] == "unknown"
    assert got["reason"] == words
    for column in ("intensity", "ideal_ns", "pct_of_roof", "recoverable_ns"):
        assert pd.isna(got[column]), column


def test_what_is_known_alone_still_gives_its_rate() -> None:
    got = one(flops=None, read=50_000_000)
    assert got["attained_byte_s"] == pytest.approx(50e9)
    assert pd.isna(got["attained_flop_s"])


def test_no_work_is_all_recoverable() -> None:
    got = one(flops=0, read=0, time_ns=700, count=4)
    assert (got["bound"], got["reason"]) == ("latency", "no work: dispatch only")
    assert got["recoverable_ns"] == 2800
    assert pd.isna(got["intensity"])


def test_flops_without_bytes_has_no_intensity() -> None:
    got = one(flops=800_000_000, read=0)
    assert pd.isna(got["intensity"])
    assert got["bound"] == "compute"
    assert got["pct_of_roof"] == pytest.approx(80)
    assert "0 bytes" in got["reason"]


def test_bytes_without_flops_is_judged_by_the_memory_roof() -> None:
    got = one(flops=0, read=90_000_000)
    assert got["intensity"] == 0
    assert got["bound"] == "memory"
    assert got["pct_of_roof"] == pytest.approx(90)


@pytest.mark.parametrize(
    ("ceilings", "read", "words"),
    [
        (MACHINE, 200_000_000, "within the cache bandwidth (400 GB/s)"),
        (MACHINE, 900_000_000, "above the cache bandwidth too (400 GB/s)"),
        (MACHINE._replace(cache_byte_s=None), 200_000_000, "cache bandwidth not known"),
    ],
)
def test_above_the_memory_roof_is_cache_resident(ceilings: Ceilings, read: int, words: str) -> None:
    got = one(ceilings, flops=1000, read=read)
    assert got["bound"] == "memory"
    assert got["recoverable_ns"] == 0
    assert got["reason"].startswith("cache-resident: ")
    assert f"{read // 1_000_000} % of the DRAM roof (100 GB/s)" in got["reason"]
    assert words in got["reason"]


def test_counted_bytes_above_the_memory_roof_are_inconsistent() -> None:
    got = one(flops=1000, read=200_000_000, bytes_source="ncu")
    assert got["bound"] == "unknown"
    assert got["reason"].startswith("inconsistent: ")
    assert pd.isna(got["recoverable_ns"])


def test_above_the_compute_roof_is_impossible() -> None:
    h100 = Ceilings("NVIDIA H100 80GB HBM3", 989e12, 3.35e12, None, "float16", "datasheet", None, "")
    assert h100.ridge == pytest.approx(295.2, abs=0.05)
    got = one(h100, flops=3650 * 10**9, read=10**9)
    assert got["pct_of_roof"] == pytest.approx(369.06, abs=0.01)
    assert got["bound"] == "unknown"
    assert got["reason"].startswith("impossible: 369 % of the compute peak")
    for check in ("dtype", "sparse", "over-counted FLOPs", "GPU"):
        assert check in got["reason"]
    assert pd.isna(got["recoverable_ns"])
    measured = one(MACHINE, flops=2 * 10**9, read=1000)
    assert "while its ceilings were measured" in measured["reason"]


def test_a_little_above_the_roof_is_noise() -> None:
    assert one(flops=1_040_000_000, read=1000)["bound"] == "compute"
    assert one(flops=0, read=104_000_000)["bound"] == "memory"


def test_one_block_cannot_fill_the_machine() -> None:
    got = one(flops=0, read=89_000_000, grid="1,1,1")
    assert got["bound"] == "unknown"
    assert "single block" in got["reason"]
    assert one(flops=0, read=89_000_000, grid="108,1,1")["bound"] == "memory"


def test_zero_duration_is_unknown_not_infinite() -> None:
    got = one(flops=100, read=100, time_ns=0)
    assert got["bound"] == "unknown"
    assert "0 ns" in got["reason"]
    assert pd.isna(got["attained_flop_s"])
    assert pd.isna(got["pct_of_roof"])


def test_reasons_are_kept_and_placing_twice_changes_nothing() -> None:
    launch = {"flops": 100, "read": 1000, "time_ns": 5000, "reason": "upper bound: packed halves"}
    once = place(rows(launch), MACHINE)
    assert once["reason"].iloc[0] == "upper bound: packed halves; under 60 % of its roof in under 10 µs"
    pd.testing.assert_frame_equal(place(once, MACHINE), once)


def test_input_is_untouched_and_empty_input_works() -> None:
    frame = rows({"flops": 1, "read": 1})
    before = frame.copy()
    place(frame, MACHINE)
    pd.testing.assert_frame_equal(frame, before)
    empty = place(frame.iloc[:0], MACHINE)
    assert len(empty) == 0
    assert "bound" in empty
    assert len(aggregate(empty.assign(key="a"), "key")) == 0


def test_missing_column_is_named() -> None:
    with pytest.raises(ReportError, match="dram_read_bytes"):
        place(rows({"flops": 1, "read": 1}).drop(columns="dram_read_bytes"), MACHINE)


FIVE = [(2 * 10**9, 10**6), (10**6, 10**9), (0, 4096), (1000, 0), (0, 0)]


@pytest.mark.parametrize(("n", "expected"), [(2, 2.001e9 / 1.001e9), (5, 2.001001e9 / 1.001004096e9)])
def test_sum_then_divide(n: int, expected: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        placed = place(rows(*({"flops": f, "read": b, "key": "all"} for f, b in FIVE[:n])), MACHINE)
        total = aggregate(placed, "key").iloc[0]
    assert total["intensity"] == pytest.approx(expected, rel=1e-12)
    assert total["flops"] == sum(f for f, _ in FIVE[:n])
    assert total["launches"] == n
    assert not np.isinf(placed["intensity"].to_numpy(dtype=float, na_value=np.nan)).any()


def test_unplaced_launches_are_counted_apart() -> None:
    frame = rows(
        {"flops": 10**7, "read": 8 * 10**7, "count": 2, "key": "a"},
        {"flops": None, "read": 10**9, "time_ns": 500, "count": 3, "key": "a"},
        {"flops": None, "read": None, "time_ns": 9, "key": "b"},
    )
    got = aggregate(place(frame, MACHINE), "key").set_index("key")
    a, b = got.loc["a"], got.loc["b"]
    assert (a["launches"], a["unplaced"], a["unplaced_ns"], a["time_ns"]) == (5, 3, 1500, 2_001_500)
    assert (a["flops"], a["bytes"]) == (2 * 10**7, 16 * 10**7)
    # Only the placed launches' time: 160 MB in 2 ms.
    assert a["attained_byte_s"] == pytest.approx(80e9)
    assert a["pct_of_roof"] == pytest.approx(80)
    assert a["bound"] == "memory"
    assert pd.isna(b["flops"])
    assert pd.isna(b["recoverable_ns"])
    assert b["bound"] == "unknown"


def test_verdict_of_a_group_is_that_of_most_of_its_time() -> None:
    frame = rows(
        {"flops": 1, "read": 1000, "time_ns": 5000, "count": 100, "key": "a"},
        {"flops": 1, "read": 90_000_000, "key": "a"},
    )
    assert aggregate(place(frame, MACHINE), ["key"])["bound"].iloc[0] == "memory"
    frame.loc[0, "count"] = 1000
    assert aggregate(place(frame, MACHINE), ["key"])["bound"].iloc[0] == "latency"


LAUNCH = st.fixed_dictionaries(
    {
        "flops": st.none() | st.integers(0, 10**13),
        "read": st.none() | st.integers(0, 10**10),
        "time_ns": st.integers(0, 10**9),
        "count": st.integers(1, 5),
        "key": st.sampled_from("ab"),
    }
)


@settings(deadline=None)  # a busy machine proves nothing
@given(st.lists(LAUNCH, min_size=1, max_size=12))
def test_invariants(launches: list[dict[str, Any]]) -> None:
    placed = place(rows(*launches), MACHINE)
    for (_, row), launch in zip(placed.iterrows(), launches, strict=True):
        known = launch["flops"] is not None and launch["read"] is not None
        assert pd.notna(row["ideal_ns"]) == known
        assert known or (row["bound"] == "unknown" and pd.notna(row["reason"]))
        if pd.notna(row["recoverable_ns"]):
            assert 0 <= row["recoverable_ns"] <= launch["time_ns"] * launch["count"]
        if pd.notna(row["pct_of_roof"]) and row["pct_of_roof"] > 105:
            assert pd.notna(row["reason"])
        if pd.notna(row["intensity"]) and row["intensity"] > 0 and launch["time_ns"]:
            roof = min(MACHINE.flop_s, MACHINE.byte_s * row["intensity"])
            assert row["pct_of_roof"] == pytest.approx(100 * row["attained_flop_s"] / roof)
    total = aggregate(placed, "key")
    assert total["launches"].sum() == sum(launch["count"] for launch in launches)
    assert total["time_ns"].sum() == sum(launch["count"] * launch["time_ns"] for launch in launches)
    known_flops = [r["flops"] * r["count"] for r in launches if None not in (r["flops"], r["read"])]
    assert total["flops"].fillna(0).sum() == sum(known_flops)


def test_above_compute_is_told_by_its_share_of_time():
    rows = pd.DataFrame({"time_ns": [1000, 1000], "count": [1, 10], "reason": ["impossible: 120 %", pd.NA]})
    assert above_compute(rows)
    assert not above_compute(rows.assign(count=[1, 1000]))
    assert not above_compute(rows.assign(reason=pd.NA))


def test_kernels_of_a_table_are_placed_again_as_if_for_the_first_time() -> None:
    """Under other roofs, with few waves known from what the table says of them only."""
    work = {"read": 10**6, "time_ns": 50_000}
    first = rows({**work, "flops": 10**6}, {**work, "flops": 10**6}, work)
    first["waves_per_sm"] = [0.5, 4.0, np.nan]
    high = MACHINE._replace(flop_s=2e12, byte_s=2e11)
    table = place(first, MACHINE).drop(columns="waves_per_sm")
    again, wanted = place_again(table, high), place(first, high)
    assert list(again.columns) == list(table.columns)
    for column in ("ideal_ns", "pct_of_roof", "recoverable_ns", "bound"):
        assert again[column].tolist()[:2] == wanted[column].tolist()[:2]
    assert again["bound"].tolist() == ["latency", "inefficient", "unknown"]
    assert again["pct_of_roof"].tolist()[:2] == [10.0, 10.0]
