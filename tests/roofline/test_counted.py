"""Placing counted kernels on each clock by itself, and what is done where figures are missing."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kernelroof.parsers.schema import ANALYZED, COUNTERS, KERNELS, conform
from kernelroof.roofline import share_card as share_card_module
from kernelroof.roofline import time_card as time_card_module
from kernelroof.roofline.counted import SM_FLOOR, Roofs, place_counted, with_floor
from kernelroof.roofline.counted_text import print_kernels
from kernelroof.roofline.gpus import find_gpu
from kernelroof.roofline.join import counted_rows, join
from kernelroof.roofline.kernel_groups import kernels_of, on_clock
from kernelroof.roofline.plot_counted import Estimate, counted_roofline
from kernelroof.roofline.report_ceilings import ReportCeilings, Roof, sheet_ceilings
from kernelroof.roofline.share_card import share_card
from kernelroof.roofline.text import new_console
from kernelroof.roofline.time_card import time_card

AT = "SM at 1.00 GHz"
REPORT = ReportCeilings(
    "test GPU",
    {"DRAM": Roof(1e12, "report", ""), "L2": Roof(4e12, "report", AT), "L1": Roof(1.6e13, "report", AT)},
    {"fp32": Roof(1e13, "report", AT), "tensor:bf16->fp32": Roof(1e14, "report", AT)},
    {"tensor:bf16->fp32": 1000.0}, 100, 1e9, (),
)  # fmt: skip
BASE: dict[str, Any] = {
    **{c.name: None for c in COUNTERS},
    "kernel": "silu_kernel(float*)", "grid": "800,1,1", "block": "128,1,1", "time_ns": 1_000_000,
    "dram_read_bytes": 500_000_000, "dram_write_bytes": 300_000_000, "dram_bytes": 800_000_000,
    "l2_bytes": 1_000_000_000, "l1_bytes": 2_000_000_000, "flops": 1_600_000_000,
    "flops_by_type": '{"fp32": 1600000000}', "flops_upper_bound": False, "waves_per_sm": 8.0, "sm_clock_hz": 1e9,
}  # fmt: skip


def counters(*rows: dict[str, Any]) -> pd.DataFrame:
    filled = [{**BASE, "ordinal": i, **row} for i, row in enumerate(rows)]
    return conform(pd.DataFrame(filled), COUNTERS, "counters").assign(sm_pct_at_least=float("nan"))


def placed(*rows: dict[str, Any], roofs: ReportCeilings | None = REPORT) -> pd.DataFrame:
    return place_counted(counted_rows(counters(*rows)), Roofs(roofs, None))


def timeline(**row: Any) -> pd.DataFrame:
    base: dict[str, Any] = {
        "phase": "decode", "step": 0, "module": "model.layers.0.mlp", "kernel": BASE["kernel"], "op": None,
        "device": "cuda:0", "time_ns": 500_000, "start_ns": 0, "grid": BASE["grid"], "block": BASE["block"],
        "ranges": None, "time_source": "nsys",
    }  # fmt: skip
    frame = pd.DataFrame([{**base, **row}])
    return frame.astype({"step": "Int64", "time_ns": "Int64", "start_ns": "Int64"})


def test_the_columns_of_kernels_come_first_and_stay_in_place() -> None:
    assert [c.name for c in ANALYZED][: len(KERNELS)] == [c.name for c in KERNELS]


def test_inside_ncu_by_hand() -> None:
    row = placed({}).iloc[0]
    assert row["clock"] == "ncu"
    assert row["bound"] == row["ncu_bound"] == "memory"
    assert row["pct_of_roof"] == pytest.approx(80)  # 800 MB in 1 ms of 1 TB/s
    assert row["ncu_dram_roof_pct"] == pytest.approx(80)
    assert row["ncu_l2_roof_pct"] == pytest.approx(25)
    assert row["intensity"] == 2.0
    assert (row["intensity_l2"], row["intensity_l1"]) == (1.6, 0.8)
    assert pd.isna(row["hierarchy"])
    assert row["recoverable_ns"] == pytest.approx(200_000)
    assert row["roof_type"] == "fp32"
    assert (row["cure"], row["flops_source"]) == ("fusion", "ncu")
    assert pd.isna(row["timeline_pct_of_roof"])
    assert pd.isna(row["timeline_bound"])


def test_a_kernel_is_held_to_the_roof_of_its_own_type() -> None:
    # 8e9 FLOP in 1 ms: 80 % of the fp32 roof, 8 % of the tensor one.
    work = {"flops": 8 * 10**9, "flops_by_type": '{"fp32": 8000000000}'}
    row = placed({**work, "dram_read_bytes": 1, "dram_write_bytes": 0, "dram_bytes": 1}).iloc[0]
    assert row["pct_of_roof"] == pytest.approx(80)
    assert row["bound"] == "compute"


def test_clocks_never_mix() -> None:
    """Twice as fast on the timeline, twice the roofs: each share is of its own clock."""
    sheet = sheet_ceilings(find_gpu("a100-80gb"), None)
    joined = join(timeline(), counters({}))
    row = place_counted(joined.rows, Roofs(REPORT, sheet)).iloc[0]
    assert row["clock"] == "timeline"
    assert row["time_ns"] == row["timeline_ns"] == 500_000
    assert row["ncu_pct_of_roof"] == pytest.approx(80)
    assert row["timeline_pct_of_roof"] == pytest.approx(100 * 800e6 / 500e-6 / 2039e9)
    assert row["pct_of_roof"] == row["timeline_pct_of_roof"]
    assert row["duration_ratio"] == 2.0
    assert "on the timeline" in row["verdict"]


def test_without_roofs_for_the_timeline_its_share_is_null_and_ncus_stands() -> None:
    joined = join(timeline(), counters({}))
    row = place_counted(joined.rows, Roofs(REPORT, sheet_ceilings(None, None))).iloc[0]
    assert pd.isna(row["timeline_pct_of_roof"])
    assert row["bound"] == "unknown"
    assert "--gpu" in row["reason"]
    assert row["ncu_pct_of_roof"] == pytest.approx(80)
    assert "inside ncu" in row["verdict"]


def test_missing_bytes_are_not_no_bytes() -> None:
    missing = {"dram_read_bytes": None, "dram_write_bytes": None, "dram_bytes": None}
    row = placed({**missing, "reasons": '{"dram_bytes": "dram__bytes.sum not in the report"}'}).iloc[0]
    assert pd.isna(row["intensity"])
    assert pd.isna(row["pct_of_roof"])
    assert row["bound"] == "unknown"
    assert "dram__bytes.sum not in the report" in row["reason"]
    assert row["cure"] is pd.NA
    assert row["verdict"].startswith("not judged")


def test_only_the_sum_of_bytes() -> None:
    row = placed({"dram_read_bytes": None, "dram_write_bytes": None}).iloc[0]
    assert row["intensity"] == 2.0
    assert row["pct_of_roof"] == pytest.approx(80)
    assert pd.isna(row["dram_read_bytes"])


def test_percentages_alone_give_a_bound_and_no_point() -> None:
    nothing = dict.fromkeys(("flops", "flops_by_type", "dram_read_bytes", "dram_write_bytes", "dram_bytes"))
    got = placed(
        {**nothing, "dram_pct": 90.0, "sm_pct": 12.0},
        {**nothing, "dram_pct": 12.0, "sm_pct": 90.0},
        {**nothing, "dram_pct": 12.0, "sm_pct": 20.0},
        {**nothing, "dram_pct": 12.0, "sm_pct": None},
    )
    assert got["bound"].tolist() == ["memory", "compute", "inefficient", "unknown"]
    assert got["intensity"].isna().all()
    assert got["recoverable_ns"].isna().all()
    assert got["reason"].str.startswith("bound from the report's percentages").tolist() == [True] * 3 + [False]


def test_silent_tensor_pipe_is_unknown_not_memory_bound() -> None:
    why = '{"flops": "the tensor pipe was active, but every collected tensor-op counter is silent"}'
    row = placed({"flops": None, "flops_by_type": None, "reasons": why, "tensor_pct": 30.0}).iloc[0]
    assert row["bound"] == "unknown"
    assert "tensor pipe was active" in row["reason"]


def test_above_the_peak_is_impossible() -> None:
    # 3650 TFLOP/s of a dense 989.4
    flops = 3_650_000_000_000
    types = f'{{"tensor:bf16->fp32": {flops}}}'
    sheet = sheet_ceilings(find_gpu("h100-sxm"), None)
    row = placed({"flops": flops, "flops_by_type": types}, roofs=sheet).iloc[0]
    assert row["pct_of_roof"] == pytest.approx(368.9, abs=0.1)
    assert row["bound"] == "unknown"
    assert pd.isna(row["recoverable_ns"])
    assert row["verdict"].startswith("impossible: 369 %")
    assert "sparse" in row["verdict"]


def test_one_block_at_89_percent_of_dram_is_inconsistent() -> None:
    row = placed({"grid": "1,1,1", "dram_pct": 89.0}).iloc[0]
    assert row["verdict"].startswith("inconsistent")
    assert pd.isna(row["cure"])


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({"l2_bytes": 500_000_000, "l1_bytes": 500_000_000}, "for reads alone the order holds"),
        ({"l2_bytes": 100_000_000, "l1_bytes": 500_000_000}, "more bytes left DRAM"),
        ({"l2_bytes": 1_000_000_000, "l1_bytes": 10}, "AI_L1 1"),
        ({"l2_bytes": 800_000_000, "l1_bytes": 800_000_000}, None),
        ({"l2_bytes": None, "l1_bytes": None}, None),
    ],
)
def test_the_order_of_intensities(levels: dict[str, Any], words: str | None) -> None:
    said = placed(levels)["hierarchy"].iloc[0]
    assert pd.isna(said) if words is None else words in said


def test_upper_bounds_and_unwritten_bytes_are_said() -> None:
    row = placed({"flops_upper_bound": True, "dram_write_bytes": 0}).iloc[0]
    assert "at most" in row["caveat"]
    assert "0 B written" in row["caveat"]


def test_sums_then_ratios_and_what_has_no_point(tmp_path: Path) -> None:
    work = [(2 * 10**9, 10**6), (10**6, 10**9), (0, 4096), (1000, 0), (0, 0)]
    rows = [
        {"kernel": f"k{i}", "flops": f, "flops_by_type": f'{{"fp32": {f}}}', "dram_read_bytes": b,
         "dram_write_bytes": 0, "dram_bytes": b, "l2_bytes": None, "l1_bytes": None}
        for i, (f, b) in enumerate(work)
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = placed(*rows)
        same = on_clock(table, "ncu").assign(kernel="all")
        assert kernels_of(same.head(2))["intensity"].iloc[0] == pytest.approx(1.9990, abs=5e-5)
        assert kernels_of(same)["intensity"].iloc[0] == pytest.approx(1.99899, abs=1e-5)
        picture = counted_roofline(
            kernels_of(on_clock(table, "ncu")), REPORT, tmp_path / "x.png", title="t", subtitle="s"
        )
    assert sorted(picture.plotted["kernel"]) == ["k0", "k1"]
    assert picture.listed.set_index("kernel")["why"].to_dict() == {
        "k2": "no FLOPs: bytes only", "k3": "no bytes: FLOPs only", "k4": "no FLOPs, no bytes"
    }  # fmt: skip
    assert picture.path.read_bytes().startswith(b"\x89PNG")


def test_the_picture_draws_every_roof_with_its_origin_and_clock(tmp_path: Path) -> None:
    got = counted_roofline(
        kernels_of(on_clock(placed({}, {"kernel": "other"}), "ncu")), REPORT, tmp_path / "x.png", title="t",
        subtitle="s", types=["fp32"], estimates=[Estimate("prefill", 1e12, 1e10), Estimate("decode step", 1e9, 1e9)],
    )  # fmt: skip
    assert got.roofs == (
        "DRAM 1.000 TB/s (report)", "L2 4.000 TB/s (report)", "L1 16.00 TB/s (report)",
        "bf16 tensor 100.0 TFLOP/s, dense (report, SM at 1.00 GHz)",
        "fp32 10.00 TFLOP/s, dense (report, SM at 1.00 GHz)",
    )  # fmt: skip


def test_a_share_that_was_not_counted_is_drawn_as_at_least(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("flops", "flops_by_type", "dram_read_bytes", "dram_write_bytes", "dram_bytes"))
    counted = counters(
        {**nothing}, {**nothing, "kernel": "b", "sm_pct": 20.0}, {**nothing, "kernel": "c", "dram_pct": 5.0}
    )
    floored = with_floor(counted.drop(columns="sm_pct_at_least"), pd.DataFrame({SM_FLOOR: [57.0, 58.0, float("nan")]}))
    assert floored["sm_pct_at_least"].isna().tolist() == [False, True, True]
    table = place_counted(counted_rows(floored), Roofs(REPORT, None))
    card = share_card(kernels_of(on_clock(table, "ncu")), tmp_path / "c.png", title="t", subtitle="s", why="w")
    assert (card.both, card.one, card.none) == (0, 3, 0)


def test_a_timeline_without_counters_shows_its_times(tmp_path: Path) -> None:
    joined = join(timeline(), None)
    table = place_counted(joined.rows, Roofs(None, sheet_ceilings(None, None)))
    assert table["verdict"].tolist() == ["not judged: not counted"]
    kernels = kernels_of(on_clock(table, "timeline"))
    assert kernels["time_ns"].tolist() == [500_000]
    assert time_card(kernels, tmp_path / "t.png", title="t", subtitle="s", why="w").exists()


def gemv(flag: int, other: int) -> str:
    return f"std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool){flag}, (int){other}>(T13)"


def test_equal_short_names_are_set_apart() -> None:
    names = [gemv(0, 6), gemv(0, 7), gemv(1, 7), "silu_kernel(float*)", "silu_kernel(float *, int)"]
    kernels = kernels_of(on_clock(placed(*({"kernel": name, "grid": None} for name in names)), "ncu"))
    found = kernels.set_index("kernel")["label"].to_dict()
    assert [found[n].partition(" ")[2] for n in names[:3]] == ["(0,6)", "(0,7)", "(1,7)"]
    assert [found[n] for n in names[3:]] == ["silu_kernel (1)", "silu_kernel (2)"], "of different length: a number"


def test_the_sentence_of_a_kernel_is_of_a_typical_launch() -> None:
    slow = {"time_ns": 4_000_000, "kernel": "same"}
    rows = [{"kernel": "same", "time_ns": t} for t in (1_300_000, 1_000_000, 850_000)]
    alike = kernels_of(on_clock(placed(*rows), "ncu")).iloc[0]
    assert alike["verdict"].startswith("memory-bound, 80 % of the DRAM roof"), "the mean is 76 %, the longest has 62 %"
    assert "of its time" not in alike["verdict"]
    mixed = kernels_of(on_clock(placed(*rows, slow), "ncu")).iloc[0]
    assert mixed["verdict"].startswith("inefficient, 20 %")
    assert mixed["verdict"].endswith("(so for 56 % of its time)")


def test_launches_without_a_bound_are_alike_only_for_one_cause() -> None:
    """Bytes beyond the roof are inconsistent; FLOPs that nobody counted are not."""
    same = {"kernel": "same"}
    silent = {**same, "flops": None, "flops_by_type": None, "reasons": '{"flops": "silent"}'}
    beyond = {**same, "dram_read_bytes": 5_000_000_000, "dram_bytes": 5_300_000_000}
    found = kernels_of(on_clock(placed(silent, silent, beyond), "ncu")).iloc[0]
    assert found["bound"] == "unknown"
    assert found["verdict"].startswith("not judged: FLOPs: silent")
    assert found["verdict"].endswith("(so for 67 % of its time)")
    alone = kernels_of(on_clock(placed(silent, beyond, {**beyond, "dram_bytes": 5_400_000_000}), "ncu")).iloc[0]
    assert alone["verdict"].startswith("inconsistent")
    assert alone["verdict"].endswith("(so for 67 % of its time)")


class Caught:
    """The figure that a card would have written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.figure: Any = None
        monkeypatch.setattr(module, "save_png", self)

    def __call__(self, figure: Any, path: Any, formats: Any = ()) -> Path:
        self.figure = figure
        return Path(path)

    def texts(self) -> list[str]:
        from matplotlib.text import Text

        return [t.get_text() for t in self.figure.findobj(Text)]


def test_words_behind_bars_end_within_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = timeline(op="vllm::unified_attention_with_output")
    kernels = kernels_of(
        on_clock(place_counted(join(rows, None).rows, Roofs(None, sheet_ceilings(None, None))), "timeline")
    )
    caught = Caught(monkeypatch, time_card_module)
    time_card(kernels, "t.png", title="t", subtitle="s", why="w")
    (axes,) = caught.figure.axes
    words = next(t for t in axes.texts if "launch" in t.get_text())
    renderer = caught.figure.canvas.get_renderer()
    assert words.get_window_extent(renderer).x1 <= axes.get_window_extent(renderer).x1 + 1
    assert "vllm::unified_attenti…ith_output" in words.get_text()


def test_a_card_without_times_says_that_areas_are_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = kernels_of(on_clock(placed({}), "ncu"))
    caught = Caught(monkeypatch, share_card_module)
    share_card(kernels.assign(time_ns=float("nan")), "c.png", title="t", subtitle="s", why="w")
    assert {"bound, share of the launches", "area: share of the launches"} <= set(caught.texts())
    share_card(kernels, "c.png", title="t", subtitle="s", why="w")
    assert {"bound, share of the time", "area: share of the time"} <= set(caught.texts())


@pytest.mark.parametrize("whole", [None, 20.0])
def test_at_least_is_explained_where_it_stands(whole: float | None) -> None:
    rows = counters({"sm_pct": whole}).assign(sm_pct_at_least=57.0)
    kernels = kernels_of(on_clock(place_counted(counted_rows(rows), Roofs(REPORT, None)), "ncu"))
    out = io.StringIO()
    print_kernels(new_console(out, width=100), kernels, 8, "ncu")
    assert ("≥57.0" in out.getvalue()) == ("≥: at least this" in out.getvalue()) == (whole is None)
    assert "1 different kernel, 1 execution," in out.getvalue()


def test_the_source_of_a_roof_is_said_once() -> None:
    assert Roof(1.0, "datasheet", "datasheet").source == "datasheet"
    assert Roof(1.0, "datasheet", "boost clock").source == "datasheet (boost clock)"


def test_what_is_impossible_on_the_timeline_is_said_though_ncu_has_a_bound() -> None:
    sheet = sheet_ceilings(find_gpu("a100-80gb"), None)
    row = place_counted(join(timeline(time_ns=200_000), counters({})).rows, Roofs(REPORT, sheet)).iloc[0]
    assert row["ncu_bound"] == "memory"
    assert row["timeline_bound"] == "unknown"
    assert row["verdict"].startswith(
        "inconsistent: counted DRAM bytes at 4.00 TB/s are 196 % of the DRAM roof (2.04 TB/s"
    )
    assert pd.isna(row["cure"])


def test_what_is_above_the_compute_roof_is_told_by_that_roof() -> None:
    # 1.6e9 FLOP in 20 µs are 410 % of 19.5 TFLOP/s; the bytes are further still above their roof.
    sheet = sheet_ceilings(find_gpu("a100-80gb"), None)
    row = place_counted(join(timeline(time_ns=20_000), counters({})).rows, Roofs(REPORT, sheet)).iloc[0]
    assert row["verdict"].startswith("impossible: 410 % of the compute peak (80.0 TFLOP/s of 19.5 TFLOP/s fp32,")
