"""Rows of a measured sweep against figures computed by hand; its words, its lines, its picture."""

import struct
from itertools import pairwise

import pandas as pd
import pytest
from kernelroof.roofline import plot_sweep as plots
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.plot_sweep import log_ticks, plot_sweep, x_ticks
from kernelroof.roofline.summary import PhaseSummary
from kernelroof.roofline.sweep_doubts import doubt_lines, roofs_line
from kernelroof.roofline.sweep_points import (
    COLUMNS,
    Expectation,
    SweepRoofs,
    Timing,
    axis_of,
    findings,
    point_row,
    sweep_roofs,
    timing,
)
from kernelroof.roofline.sweep_text import sweep_lines

CEILINGS = Ceilings("a machine", 1e12, 1e11, None, "float32", "measured", None, "")
"""1 TFLOP/s and 100 GB/s: the ridge is at 10 FLOP/B."""
ROOFS = SweepRoofs(CEILINGS, "measured, the highest of 2 points", [])
UNKNOWN = Expectation(None, "not known: a CPU")
SPREAD = "bare repeats spread from 1 ms to 2 ms: a busy machine?"
BUSY = "the machine was busy when the run began: load average 4.71 on 2 cores"


def summary(phase="decode", steps=4, wall_ns=8e6, model=(2_000_000, 400_000_000)):
    return PhaseSummary(
        phase=phase, steps=steps, wall_ns=wall_ns, kernel_ns=6e6, overlap_ns=0.0, launches=40, unplaced=0,
        unplaced_ns=0.0, flops=3_000_000, bytes=500_000_000, intensity=0.006, ideal_ns=4.5e6, recoverable_ns=1.5e6,
        bound="memory", bound_pct=90.0, estimated=None, model=model, model_ns=4e6, mfu_pct=0.025, mbu_pct=50.0,
        top_role="mlp.down_proj mm", top_recoverable_ns=0.5e6,
    )  # fmt: skip


def row(
    batch=8, prompt=128, wall_ns=8e6, doubts=(), own=CEILINGS, roofs=ROOFS, expected=UNKNOWN, repeats=3, some=None,
    **changes,
):  # fmt: skip
    wall = {"bare_min_ns": 1.05 * wall_ns, "bare_max_ns": 1.2 * wall_ns, "gap_ns": 2e6, "doubts": list(doubts)}
    identity = {"batch": batch, "prompt": prompt, "output": 4}
    bare = Timing(repeats, 0.9 * wall_ns, 1.4 * wall_ns)
    made = some or summary(wall_ns=wall_ns, **changes)
    sources = {"timeline": "torch", "counters": "traced"}
    return point_row(identity, made, wall, 4096, roofs, own, sources, bare=bare, expected=expected)


def test_a_row_by_hand():
    made = row()
    assert tuple(made) == COLUMNS
    expected = {
        "wall_ms": 2.0,  # 8 ms in 4 steps
        "wall_low_ms": 1.8,
        "wall_high_ms": 2.8,
        "repeat_low_ms": 2.1,
        "repeat_high_ms": 2.4,
        "tokens_per_s": 4000.0,  # 8 sequences in 2 ms
        "ideal_ms": 1.0,  # 400 MB at 100 GB/s are 4 ms, in 4 steps
        "ideal_tokens_per_s": 8000.0,
        "pct_of_ideal": 50.0,
        "kernels_ms": 1.5,
        "gaps_ms": 0.5,
        "recoverable_ms": 0.375,
        "intensity": 0.005,
        "ridge_flop_per_byte": 10.0,
        "pct_of_roof": 75.0,
        "mfu_pct": 0.025,  # 2 MFLOP in 8 ms are 250 MFLOP/s
        "mbu_pct": 50.0,
        "top_recoverable_ms": 0.125,
        "roof_flop_s": 1e12,
        "roof_byte_s": 1e11,
    }
    assert {name: made[name] for name in expected} == pytest.approx(expected)
    assert (made["model_bound"], made["kernels_bound"], made["doubts"]) == ("memory", "memory", None)
    assert (made["own_roofs"], made["expected_ms"], made["expected_note"]) == (None, None, "not known: a CPU")


def test_a_share_of_the_roof_is_of_the_kernels_that_have_one():
    some = summary()._replace(unplaced=10, unplaced_ns=1e6)
    assert row(some=some)["pct_of_roof"] == pytest.approx(90.0)
    none = summary()._replace(unplaced=40, unplaced_ns=6e6, ideal_ns=0.0)
    assert row(some=none)["pct_of_roof"] is None


def test_tokens_of_a_prefill_are_those_of_the_prompt():
    made = row(phase="prefill", steps=1, model=(8_000_000_000, 80_000_000))
    assert made["tokens_per_s"] == pytest.approx(8 * 128 / 8e-3)
    assert made["model_bound"] == "compute"
    assert made["ideal_ms"] == pytest.approx(8.0)


def test_without_a_model_there_is_no_ideal():
    made = row(model=None)
    names = ("ideal_ms", "ideal_tokens_per_s", "pct_of_ideal", "intensity", "model_bound")
    assert [made[name] for name in names] == [None] * 5
    assert sweep_lines(pd.DataFrame([made, {**made, "batch": 16}]), [])


def test_the_range_of_a_time_holds_it():
    """Each repeat has one slow step of its own: no whole repeat is as fast as the medians of the steps."""
    bare = {"prefill_ns": [5, 3, 9], "decode_step_ns": [[90, 10, 12], [10, 90, 11], [12, 11, 90]]}
    assert timing(bare, "prefill") == Timing(3, 3, 9)
    found = timing(bare, "decode")
    assert found == Timing(3, 10 + 10 + 11, 90 + 90 + 90)
    medians, repeats = 12 + 11 + 12, [sum(steps) for steps in bare["decode_step_ns"]]
    assert medians < min(repeats)
    assert found.low_ns <= medians <= found.high_ns


def test_of_one_repeat_no_spread_is_known():
    made = row(repeats=1)
    assert [made[name] for name in ("wall_low_ms", "wall_high_ms", "repeat_low_ms", "repeat_high_ms")] == [None] * 4
    assert any(" – " in line for line in sweep_lines(pd.DataFrame([made, row(16, repeats=1)]), []))


def test_the_roofs_of_a_sweep_are_the_highest_of_all_rounds():
    low = CEILINGS._replace(flop_s=0.4e12, byte_s=1.05e11)
    found = sweep_roofs([[low, low], [CEILINGS, CEILINGS._replace(flop_s=0.95e12)]])
    assert (found.ceilings.flop_s, found.ceilings.byte_s, found.doubts) == (1e12, 1.05e11, [])
    assert found.words == "measured, the highest of 2 points"
    assert sweep_roofs([[low, low], [CEILINGS]]).doubts[0].startswith("ROOFS NOT CONFIRMED: no two of 3 rounds")


def test_a_row_says_which_roofs_it_is_at_and_its_own_where_they_are_apart():
    assert row(own=CEILINGS._replace(flop_s=0.95e12))["own_roofs"] is None
    made = row(own=CEILINGS._replace(flop_s=0.4e12))
    assert made["own_roofs"] == "own roofs: 400 GFLOP/s where the sweep has 1.00 TFLOP/s"
    assert (made["own_flop_s"], made["roof_flop_s"]) == (0.4e12, 1e12)
    table = pd.DataFrame([made, row(16)])
    at = "a machine: roofs 1.00 TFLOP/s float32, DRAM 100 GB/s, ridge 10.0 FLOP/B (measured, the highest of 2 points)"
    assert roofs_line(table) == at
    said = sweep_lines(table, [])
    assert at in " ".join(" ".join(said).split())
    assert "! batch 8, prompt 128: own roofs: 400 GFLOP/s where the sweep has 1.00 TFLOP/s" in said
    assert "own roofs more than 10 % lower (batch 8)" in findings(table)[0]


def test_whether_the_roofs_are_confirmed_is_the_sweeps_matter():
    """A point's own rounds may not agree where those of all points do, and the other way round."""
    alone = "ROOFS NOT CONFIRMED: no two of 4 rounds agree"
    assert row(doubts=[alone, BUSY])["doubts"] == BUSY
    together = "ROOFS NOT CONFIRMED: no two of 6 rounds agree"
    assert row(doubts=[BUSY], roofs=ROOFS._replace(doubts=[together]))["doubts"] == f"{BUSY} | {together}"


def test_a_time_below_its_ideal_is_a_doubt():
    assert row(wall_ns=3e6)["doubts"].startswith("FASTER THAN ITS IDEAL: 133 %;")
    assert row(wall_ns=3.95e6)["doubts"] is None


def table(**changes):
    """Decode turns compute-bound at batch 32: 4 GFLOP to 400 MB a phase is the ridge."""
    points = ((1, 8e6, 125_000_000), (8, 10e6, 1_000_000_000), (32, 20e6, 4_000_000_000))
    return pd.DataFrame(
        [row(b, p, w * p / 128, model=(f, 400_000_000), **changes) for p in (128, 512) for b, w, f in points]
    )


def test_what_the_curves_say():
    said = findings(table())
    assert len(said) == 2
    assert said[0] == (
        "decode, prompt 128: from batch 1 to 32 12.8 times the tokens/s (the model alone: 32.0 times); by the model "
        "compute-bound from batch 32; 50 % of the ideal at first, 20 % at last; at last the kernel role with most to "
        "recover is mlp.down_proj mm"
    )


def test_doubts_stand_beside_table_and_conclusion():
    made = pd.DataFrame([row(1, doubts=[BUSY]), row(4, doubts=[SPREAD, BUSY])])
    assert findings(made)[0].endswith(
        "; DOUBTFUL: the machine was busy when the run began (all), bare repeats spread (batch 4)"
    )
    said = sweep_lines(made, [])
    assert {"! the machine was busy when the run began (all)", "! bare repeats spread (batch 4)"} <= set(said)
    assert sum(line.endswith("!") for line in said) == 2
    assert not any("!" in line or "DOUBTFUL" in line for line in sweep_lines(table(), []))


def test_doubts_under_the_curves_name_their_points():
    made = pd.DataFrame([row(1, doubts=[BUSY]), row(4, doubts=[SPREAD, BUSY])])
    assert doubt_lines(made, "batch") == [
        "the machine was busy when the run began – every point",
        "bare repeats spread – decode: batch 4",
    ]
    made = pd.concat([made, pd.DataFrame([row(1, 512), row(4, 512, doubts=[SPREAD])])])
    where = "decode, prompt 128: batch 4; decode, prompt 512: batch 4"
    assert doubt_lines(made, "batch")[1] == f"bare repeats spread – {where}"
    assert "! bare repeats spread (batch x prompt 4 x 128, 4 x 512)" in sweep_lines(made, [])


@pytest.mark.parametrize(("prompts", "batches", "axis"), [((1,), (1, 2), "batch"), ((1, 2), (1,), "prompt")])
def test_the_curves_run_along_what_differs(prompts, batches, axis):
    assert axis_of(pd.DataFrame([row(b, p) for p in prompts for b in batches])) == axis


@pytest.mark.parametrize("expected", [UNKNOWN, Expectation(1234.5, "kernels of vLLM")])
def test_the_table_fits_a_terminal(expected):
    made = pd.DataFrame([row(b, 131072, 4e9 * b, doubts=[SPREAD], expected=expected) for b in (64, 256)])
    for found in (table(), made):
        lines = sweep_lines(found, [("batch 64, prompt 512", "out of memory " * 20)])
        assert max(map(len, lines)) <= 100
        assert any(line.startswith("FAILED batch 64, prompt 512: out of memory") for line in lines)


def test_expected_times_stand_beside_the_ideal_ones():
    known = pd.DataFrame([row(b, expected=Expectation(1.5, "kernels of vLLM")) for b in (8, 16)])
    assert known["expected_tokens_per_s"].tolist() == pytest.approx([8 / 1.5e-3, 16 / 1.5e-3])
    said = sweep_lines(known, [])
    assert any("expected" in line.split() and "ideal" in line.split() for line in said)
    assert sum("1.50 ms" in line for line in said) == 2
    assert "expected: kernels of vLLM" in said
    unknown = sweep_lines(table(), [])
    assert "expected: not known: a CPU" in unknown
    assert not any("expected" in line.split() for line in unknown)


@pytest.mark.parametrize("low", [0.003, 0.97, 1.0, 3.3, 95.0, 7777.0])
@pytest.mark.parametrize("span", [1.16, 1.5, 3, 12, 150, 2e4, 1e9])
def test_a_logarithmic_axis_has_three_labels_whatever_its_range(low, span):
    ticks = log_ticks(low, low * span)
    assert 3 <= len(ticks) <= 9
    assert ticks == sorted(set(ticks))
    assert low <= ticks[0] < ticks[-1] <= low * span
    labels = [plots._tick(t) for t in ticks]
    assert len(set(labels)) == len(ticks)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1, 4], [1, 2, 4]),
        ([1, 2], [1, 2, 3]),
        ([64], [32, 64, 128]),
        ([1], [1, 2, 3]),
        ([100, 101], [100, 101, 102]),
        ([1, 2, 4, 8], [1, 2, 4, 8]),
        ([128, 512], [128, 256, 512]),
    ],
)
def test_points_are_ticks_and_there_are_three(values, ticks):
    assert x_ticks(values) == ticks


def made_up(batches, prompts, **changes):
    rows = []
    for phase, steps in (("decode", 4), ("prefill", 1)):
        for p in prompts:
            for b in batches:
                work = int(2e8 * b * (p if phase == "prefill" else 1)), 400_000_000 + 1000 * b * p
                took = 3e6 * (4 + b) * (p / 64 if phase == "prefill" else 1)
                rows.append(row(b, p, took, phase=phase, steps=steps, model=work, **changes))
    return pd.DataFrame(rows)


def drawn(monkeypatch, made):
    """The figure of a table, not saved."""
    kept = []
    monkeypatch.setattr(plots, "save_png", lambda figure, *_: kept.append(figure))
    plot_sweep(made, "sweep.png", title="a model: measured beside the estimate")
    kept[0].canvas.draw()
    return kept[0]


GRIDS = [((1, 4), (64, 512)), ((1, 2, 4, 8, 16), (64,)), ((4,), (16, 64, 100, 128, 1024)), ((1, 8, 32), (1, 128, 512))]


@pytest.mark.parametrize(("batches", "prompts"), GRIDS)
def test_every_axis_has_three_labels_and_no_text_leaves_the_picture_or_another(monkeypatch, batches, prompts):
    figure = drawn(monkeypatch, made_up(batches, prompts, doubts=[SPREAD], expected=Expectation(0.9, "kernels")))
    renderer = figure.canvas.get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    titles = []
    for axes in figure.axes:
        assert sum(1 for label in axes.get_xticklabels() if label.get_text()) >= 3
        assert sum(1 for label in axes.get_yticklabels() if label.get_text()) >= 3
        titles.append(axes._left_title.get_window_extent(renderer))
    legends = [legend.get_window_extent(renderer) for legend in figure.legends]
    for box in (*titles, *legends, *(t.get_window_extent(renderer) for t in figure.texts)):
        assert 0 <= box.x0 < box.x1 <= width - 20
        assert 0 <= box.y0 < box.y1 <= height
    for left, right in pairwise(titles):
        assert left.x1 < right.x0 or right.y1 < left.y0
    below = min(t.get_window_extent(renderer).y0 for t in figure.texts[1:2])
    assert all(box.y1 < below for box in (*titles, *legends))


def test_the_picture_names_machine_roofs_and_doubts(monkeypatch):
    figure = drawn(monkeypatch, made_up((1, 4), (64,), doubts=[SPREAD]))
    words = "\n".join(t.get_text() for t in figure.texts)
    assert "a machine: roofs 1.00 TFLOP/s float32, DRAM 100 GB/s" in words
    assert "bare repeats spread – every point" in words
    rings = [line for line in figure.axes[0].lines if line.get_markersize() == 11 and len(line.get_xdata())]
    assert len(rings) == 1
    quiet = drawn(monkeypatch, made_up((1, 4), (64,)))
    assert not any(line.get_markersize() == 11 and len(line.get_xdata()) for line in quiet.axes[0].lines)


def test_expected_times_are_a_curve_of_their_own(monkeypatch):
    without = drawn(monkeypatch, made_up((1, 4), (64,)))
    having = drawn(monkeypatch, made_up((1, 4), (64,), expected=Expectation(1.5, "kernels")))
    for panel in (0, 1):
        dotted = [sum(a.get_linestyle() == ":" for a in f.axes[panel].lines) for f in (without, having)]
        assert dotted == [0, 1]
        assert "dotted: expected" in having.axes[panel]._left_title.get_text()
        assert "expected" not in without.axes[panel]._left_title.get_text()
    assert list(having.axes[1].lines[2].get_ydata()) == [1.5, 1.5]


def test_the_picture_is_a_picture(tmp_path):
    path = plot_sweep(table(), tmp_path / "sweep.png", title="a model")
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width > 900
    assert height > 600


def test_the_picture_comes_in_each_format(tmp_path):
    plot_sweep(table(), tmp_path / "sweep.png", title="a", formats=("svg", "pdf"))
    assert (tmp_path / "sweep.svg").read_text().startswith("<?xml")
    assert (tmp_path / "sweep.pdf").read_bytes().startswith(b"%PDF")
    assert not (tmp_path / "sweep.png").exists()


def test_a_sweep_without_a_model_is_drawn_too(monkeypatch):
    figure = drawn(monkeypatch, pd.DataFrame([row(b, model=None) for b in (1, 4)]))
    assert [t.get_text() for t in figure.axes[2].texts] == []
