"""Rows of a measured sweep against figures computed by hand; its words, its lines, its picture."""

import struct

import pandas as pd
import pytest
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.plot_sweep import plot_sweep
from kernelroof.roofline.summary import PhaseSummary
from kernelroof.roofline.sweep_points import COLUMNS, axis_of, findings, point_row
from kernelroof.roofline.sweep_text import sweep_lines

ROOFS = Ceilings("a machine", 1e12, 1e11, None, "float32", "measured", None, "")
"""1 TFLOP/s and 100 GB/s: the ridge is at 10 FLOP/B."""


def summary(phase="decode", steps=4, wall_ns=8e6, model=(2_000_000, 400_000_000)):
    return PhaseSummary(
        phase=phase, steps=steps, wall_ns=wall_ns, kernel_ns=6e6, overlap_ns=0.0, launches=40, unplaced=0,
        unplaced_ns=0.0, flops=3_000_000, bytes=500_000_000, intensity=0.006, ideal_ns=4.5e6, recoverable_ns=1.5e6,
        bound="memory", bound_pct=90.0, estimated=None, model=model, model_ns=4e6, mfu_pct=0.1, mbu_pct=50.0,
        top_role="mlp.down_proj mm", top_recoverable_ns=0.5e6,
    )  # fmt: skip


def row(batch=8, prompt=128, wall_ns=8e6, **changes):
    wall = {"bare_min_ns": 0.95 * wall_ns, "bare_max_ns": 1.2 * wall_ns, "gap_ns": 2e6, "doubts": []}
    identity = {"batch": batch, "prompt": prompt, "output": 4}
    sources = {"timeline": "torch", "counters": "traced"}
    return point_row(identity, summary(wall_ns=wall_ns, **changes), wall, 4096, ROOFS, sources)


def test_a_row_by_hand():
    made = row()
    assert tuple(made) == COLUMNS
    expected = {
        "wall_ms": 2.0,  # 8 ms in 4 steps
        "wall_low_ms": 1.9,
        "wall_high_ms": 2.4,
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
    }
    assert {name: made[name] for name in expected} == pytest.approx(expected)
    assert (made["model_bound"], made["kernels_bound"], made["doubts"]) == ("memory", "memory", None)


def test_a_share_of_the_roof_is_of_the_kernels_that_have_one():
    wall = {"bare_min_ns": 8e6, "bare_max_ns": 8e6, "gap_ns": 2e6, "doubts": []}
    identity = {"batch": 1, "prompt": 8, "output": 4}
    some = summary()._replace(unplaced=10, unplaced_ns=1e6)
    assert point_row(identity, some, wall, 0, ROOFS, {})["pct_of_roof"] == pytest.approx(90.0)
    none = summary()._replace(unplaced=40, unplaced_ns=6e6, ideal_ns=0.0)
    assert point_row(identity, none, wall, 0, ROOFS, {})["pct_of_roof"] is None


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


def table():
    """Decode turns compute-bound at batch 32: 4 GFLOP to 400 MB a phase is the ridge."""
    points = ((1, 8e6, 125_000_000), (8, 10e6, 1_000_000_000), (32, 20e6, 4_000_000_000))
    return pd.DataFrame([row(b, p, w * p / 128, model=(f, 400_000_000)) for p in (128, 512) for b, w, f in points])


def test_what_the_curves_say():
    said = findings(table())
    assert len(said) == 2
    assert said[0] == (
        "decode, prompt 128: from batch 1 to 32 12.8 times the tokens/s (the model alone: 32.0 times); by the model "
        "compute-bound from batch 32; 50 % of the ideal at first, 20 % at last; at last the kernel role with most to "
        "recover is mlp.down_proj mm"
    )


@pytest.mark.parametrize(("prompts", "batches", "axis"), [((1,), (1, 2), "batch"), ((1, 2), (1,), "prompt")])
def test_the_curves_run_along_what_differs(prompts, batches, axis):
    assert axis_of(pd.DataFrame([row(b, p) for p in prompts for b in batches])) == axis


def test_the_table_fits_a_terminal():
    lines = sweep_lines(table(), [("batch 64, prompt 512", "out of memory " * 20)])
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("FAILED batch 64, prompt 512: out of memory") for line in lines)


def test_the_picture_is_a_picture(tmp_path):
    path = plot_sweep(table(), tmp_path / "sweep.png", title="a model", subtitle="made up")
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width > 900
    assert height > 600


def test_the_picture_comes_in_each_format(tmp_path):
    plot_sweep(table(), tmp_path / "sweep.png", title="a", subtitle="b", formats=("svg", "pdf"))
    assert (tmp_path / "sweep.svg").read_text().startswith("<?xml")
    assert (tmp_path / "sweep.pdf").read_bytes().startswith(b"%PDF")
    assert not (tmp_path / "sweep.png").exists()
