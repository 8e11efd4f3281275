"""A timeline and a counting run meet only where their sequences agree."""

import pandas as pd
import pytest
from kernelroof.profile.sequences import pair, place_of
from kernelroof.profile.window import Window

A, B = "void at::native::gemm<(int)4>(float const*)", "softmax_kernel"
A_BY_NCU = "void gemm<4>(const float *)"


def launches(*rows):
    table = [
        {"phase": "decode", "step": s, "module": m, "kernel": k, "grid": g, "block": "128,1,1"} for s, m, k, g in rows
    ]
    return pd.DataFrame(table).astype({"step": "Int64"})


def counters(*rows):
    table = [{"range": r, "kernel": k, "grid": g, "block": "128, 1, 1"} for r, k, g in rows]
    return pd.DataFrame(table, columns=["range", "kernel", "grid", "block"]).astype("string")


def test_same_calls_in_any_order_are_paired():
    left = launches((0, "mlp", A, "4,1,1"), (0, "mlp", B, "1,1,1"), (1, "mlp", A, "4,1,1"))
    right = counters(
        ("decode/step1/mlp", A_BY_NCU, "4,1,1"), ("decode/step0/mlp", A_BY_NCU, "4, 1, 1"),
        ("decode/step0/mlp", B, "1,1,1"),
    )  # fmt: skip
    found = pair(left, right)
    assert list(zip(found.launch, found.counter, strict=True)) == [(0, 1), (1, 2), (2, 0)]
    assert found.unjoined == []


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ([("decode/step0/mlp", B, "4,1,1"), ("decode/step0/mlp", A, "4,1,1")], "launch 0 is"),
        ([("decode/step0/mlp", A, "4,1,1"), ("decode/step0/mlp", B, "8,1,1")], "launch 1 is"),
        ([("decode/step0/mlp", A, "4,1,1")], "2 launches on the timeline and 1 when counted"),
        ([("decode/step9/mlp", A, "4,1,1")], "nothing was counted"),
    ],
)
def test_calls_that_differ_are_listed_and_left_unjoined(right, words):
    left = launches((0, "mlp", A, "4,1,1"), (0, "mlp", B, "4,1,1"), (0, "norm", B, "2,1,1"))
    found = pair(left, counters(*right, ("decode/step0/norm", B, "2,1,1")))
    assert found.launch.tolist() == [2]
    assert len(found.unjoined) == 1
    assert words in found.unjoined[0]
    assert "decode step 0 mlp" in found.unjoined[0]


def test_without_ranges_the_whole_run_is_one_sequence():
    left = launches((0, "mlp", A, "4,1,1"), (0, "norm", B, "1,1,1"))
    assert pair(left, counters((pd.NA, A, "4,1,1"), (pd.NA, B, "1,1,1"))).launch.tolist() == [0, 1]
    found = pair(left, counters((pd.NA, B, "4,1,1"), (pd.NA, A, "1,1,1")))
    assert len(found.launch) == 0
    assert "whole run" in found.unjoined[0]


def test_an_unknown_grid_agrees_with_any():
    left = launches((0, "mlp", A, "4,1,1"))
    assert pair(left, counters(("decode/step0/mlp", A, pd.NA))).launch.tolist() == [0]


def test_nothing_counted():
    found = pair(launches((0, "mlp", A, "4,1,1")), counters())
    assert len(found.launch) == 0
    assert "nothing was counted" in found.unjoined[0]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("decode/step3/model.layers.0/model.layers.0.mlp", Window("decode", 3, "model.layers.0.mlp")),
        ("prefill/step0", Window("prefill", 0, "(root)")),
        ("main/decode/step1/(sample)", Window("decode", 1, "(sample)")),
        ("warmup/something", Window("(unattributed)", -1, "(unattributed)")),
    ],
)
def test_place_of(path, place):
    assert place_of(path) == place
