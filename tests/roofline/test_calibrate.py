"""Factors of a made-up run with known answers, and their use on other ops."""

import pandas as pd
import pytest
from kernelroof.models.errors import ReportError
from kernelroof.models.ops import TracedOp
from kernelroof.roofline.calibrate import calibration, predict

IDENTITY = {"model": "toy", "dtype": "float32"}
CEILINGS = {"name": "box", "flop_s": 1e12, "byte_s": 1e11}


def row(phase, module, kind, time_ns, flops, moved, kernel="aten::mm", count=1):
    ideal = max(flops / 1e12, moved / 1e11) * 1e9
    return {
        "phase": phase, "module": module, "kind": kind, "kernel": kernel, "count": count, "time_ns": time_ns,
        "ideal_ns": ideal, "flops": flops, "dram_read_bytes": moved, "dram_write_bytes": 0,
    }  # fmt: skip


def wall(bare, spread=0):
    return {"bare_ns": bare, "bare_min_ns": bare - spread, "bare_max_ns": bare + spread}


def op(phase, module, flops, moved, step=0):
    return TracedOp(phase, step, module, "aten::mm", 0, flops, flops, "matmul", moved, 0, 0, 0, 0, "float32", "", "")


def run(*rows, prefill=10_000, decode=10_000, spread=0):
    walls = {"prefill": wall(prefill, spread), "decode": wall(decode, spread)}
    return calibration(IDENTITY, CEILINGS, walls, pd.DataFrame(rows))


MLP = "model.layers.0.mlp.gate_proj"
OWN = [
    row("prefill", MLP, "mlp", 4000, 2_000_000, 1000),
    row("prefill", "lm_head", "head", 1000, 500, 50_000),
    row("decode", MLP, "mlp", 3000, 1000, 100_000, count=2),
]


def test_the_run_itself_is_predicted_exactly():
    found = run(*OWN)
    prefill = predict(found, [op("prefill", MLP, 2_000_000, 1000), op("prefill", "lm_head", 500, 50_000)], "prefill")
    assert prefill.wall_ns == pytest.approx(10_000)
    assert (prefill.kernels_ns, prefill.gaps_ns) == (5000, 5000)
    decode = predict(found, [op("decode", MLP, 1000, 100_000)] * 2, "decode")
    assert decode.wall_ns == pytest.approx(10_000)
    assert (prefill.error, prefill.unknown_share) == (0, 0)


def test_work_scales_by_the_factor_of_its_kind_and_roof():
    found = run(*OWN)
    assert found.groups["prefill", "mlp", "compute"].factor == 2
    assert found.groups["decode", "mlp", "memory"].factor == 3
    three_times = predict(found, [op("prefill", MLP, 6_000_000, 1000)], "prefill")
    assert three_times.kernels_ns == 2 * 6000
    tiny = predict(found, [op("prefill", MLP, 10, 1)], "prefill")
    assert 1000 <= tiny.kernels_ns < 4000, "start-up does not shrink with the work, but is not a large kernel's time"
    assert (three_times.outside_share, tiny.outside_share) == (1, 1)
    half = predict(found, [op("prefill", MLP, 1_000_000, 1000)], "prefill")
    assert (half.kernels_ns, half.outside_share) == (2000, 0)


def test_a_larger_batch_takes_the_other_phases_factor_for_its_products():
    """Products of a decode step become compute-bound: the prefill's of that kind are nearer than a mean of all."""
    cache = row("decode", "model.layers.0.self_attn", "cache", 50_000, 0, 10_000, kernel="aten::cat")
    found = run(*OWN, cache, decode=100_000)
    many = predict(found, [op("decode", MLP, 20_000_000, 100_000)], "decode")
    assert many.kernels_ns == 2 * 20_000
    assert many.unknown_share == 1
    # With no such kind anywhere: the kernels of the phase under that roof.
    norm = predict(found, [op("prefill", "model.norm", 0, 100_000)], "prefill")
    assert norm.kernels_ns == pytest.approx(1000 / 500 * 1000)


def test_a_kind_that_the_run_did_not_have_takes_the_phases_factor_and_is_said():
    found = run(*OWN)
    norm = predict(found, [op("prefill", "model.norm", 1, 10_000_000)], "prefill")
    assert norm.unknown_share == 1
    assert norm.kernels_ns == pytest.approx(found.roofs["prefill", "memory"].factor * norm.ideal_ns)


def test_unlike_roles_of_one_kind_and_unsteady_repeats_are_the_error():
    up = "model.layers.0.mlp.up_proj"
    rows = [row("decode", MLP, "mlp", 2000, 1, 100_000), row("decode", up, "mlp", 4000, 1, 100_000)]
    found = run(*OWN[:2], *rows, decode=10_000)
    assert found.error["decode"] == pytest.approx(2000 / 10_000)
    assert run(*OWN, spread=1000).error["decode"] == pytest.approx(0.1)


def test_a_run_without_roofs_teaches_nothing():
    with pytest.raises(ReportError, match="no kernel"):
        run(row("prefill", MLP, "mlp", 0, 10, 10))
    with pytest.raises(ReportError, match="no decode"):
        predict(run(*OWN[:2]), [], "decode")
