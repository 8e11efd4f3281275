"""The waterfall's terms: their sum is the measured time for any tables, and one cause moves its own term only."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.ops import TracedOp
from kernelroof.roofline.waterfall import TERMS, Clock, Roof, op_frame, phase_clock, terms, waterfall_table

SHEET, MEASURED = Roof(2e12, 2e11), Roof(1e12, 1e11)
MODULES = ("model.layers.0.mlp", "model.layers.0.self_attn", "model.layers.1.mlp", "lm_head", "model.norm")


def op(module, flops, weight, kind="matmul", act=0, step=0, phase="decode"):
    return TracedOp(phase, step, module, "aten::mm", 0, flops, flops, kind, weight, act, 0, 0, 0, "bfloat16", "", "")


def kernel(module, time, ideal, count=1, phase="decode", idle=0):
    row = {"phase": phase, "module": module, "time_ns": time, "ideal_ns": ideal, "count": count}
    return {**row, "idle_before_ns": idle}


def frame(rows):
    return pd.DataFrame(rows, columns=["phase", "module", "time_ns", "ideal_ns", "count", "idle_before_ns"]).astype(
        {"time_ns": "Int64", "ideal_ns": "Float64", "count": "Int64", "idle_before_ns": "Int64"}
    )


def wall(kernels, gap=0, overlap=0, recorded=0):
    """An account as wall.json has it: kernels and gaps make the bare time."""
    ops_ns = int((kernels["time_ns"] * kernels["count"]).sum())
    bare = ops_ns + gap - overlap
    return {"bare_ns": bare, "gap_ns": gap, "overlap_ns": overlap, "recorded_ns": bare + recorded}


OPS = st.builds(
    op,
    st.sampled_from(MODULES),
    st.integers(0, 10**9),
    st.integers(0, 10**8),
    st.sampled_from(["matmul", "attention", "elementwise", "none"]),
    st.integers(0, 10**7),
    st.integers(0, 3),
    st.sampled_from(["prefill", "decode"]),
)
ROWS = st.builds(
    kernel,
    st.sampled_from(MODULES),
    st.integers(0, 10**7),
    st.none() | st.floats(0, 1e7),
    st.integers(1, 5),
    st.sampled_from(["prefill", "decode"]),
    st.integers(0, 10**5),
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(OPS, max_size=25),
    st.lists(ROWS, max_size=25),
    st.integers(0, 10**7),
    st.integers(0, 10**6),
    st.integers(-(10**6), 10**6),
    st.booleans(),
    st.sampled_from([SHEET, None]),
)
def test_terms_add_up_to_the_measured_time(ops, rows, gap, overlap, recorded, scaled, sheet):
    kernels = frame(rows)
    parts = {phase: kernels[kernels["phase"] == phase] for phase in ("prefill", "decode")}
    walls = {phase: wall(part, gap, overlap, recorded) for phase, part in parts.items()}
    table = waterfall_table(ops, kernels, walls, sheet=sheet, measured=MEASURED, scaled=scaled)
    assert (table[list(TERMS)].sum(axis=1) == table["total_ns"]).all()
    for phase, part in parts.items():
        whole = table[(table["phase"] == phase) & (table["scope"] == "phase")].iloc[0]
        assert whole["total_ns"] == walls[phase]["bare_ns"]
        modules = table[(table["phase"] == phase) & (table["scope"] == "module")]
        lasted = ((part["time_ns"] + part["idle_before_ns"]) * part["count"]).groupby(part["module"]).sum()
        for row in modules.itertuples():
            assert row.total_ns == lasted.get(row.name, 0)


BASE = [op("a", 4 * 10**6, 10**5), op("a", 10**3, 10**6), op("b", 0, 0, "elementwise", 10**5)]
RAN = [kernel("a", 9_000, 5_000.0), kernel("a", 20_000, 12_000.0), kernel("b", 3_000, 1_500.0)]
CLOCK = {"gap_ns": 5_000, "overlap_ns": 400, "recorded_ns": 40_000, "bare_ns": 36_600}


def base(ops=BASE, rows=RAN, clock=CLOCK, sheet=SHEET, measured=MEASURED):
    return terms(op_frame(ops), frame(rows), sheet, measured, phase_clock(clock, scaled=False))


@pytest.mark.parametrize(
    ("changed", "moved"),
    [
        ({"rows": [kernel("a", 9_500, 5_000.0), *RAN[1:]]}, {"kernels_ns"}),
        ({"rows": [*RAN, kernel("c", 700, None)]}, {"unmatched_ns"}),
        ({"rows": [kernel("a", 9_000, 6_000.0), *RAN[1:]]}, {"traffic_ns", "kernels_ns"}),
        ({"clock": {**CLOCK, "gap_ns": 6_000, "bare_ns": 37_600, "recorded_ns": 41_000}}, {"idle_ns"}),
        ({"clock": {**CLOCK, "recorded_ns": 41_000}}, {"idle_ns", "dilation_ns"}),
        ({"clock": {**CLOCK, "overlap_ns": 500}}, {"overlap_ns"}),
        ({"measured": Roof(0.5e12, 1e11)}, {"roofs_ns", "traffic_ns"}),
        ({"ops": [*BASE[:2], op("b", 0, 0, "elementwise", 2 * 10**5)]}, {"left_out_ns", "roofs_ns", "traffic_ns"}),
    ],
)
def test_one_cause_moves_its_own_term(changed, moved):
    """A term next to the changed total moves against it: both are differences with that total."""
    before, after = base(), base(**changed)
    assert {name for name in TERMS if before[name] != after[name]} == moved


def test_by_hand():
    found = base()
    # Two products as one: 4.001e6 FLOP at 2e12 are 2000.5 ns, 1.1e6 B at 2e11 5500 ns.
    assert found["ideal_ns"] == 5_500
    # Apart: 2000 (compute) + 5000 (memory).
    assert found["one_after_another_ns"] == 7_000 - 5_500
    assert found["left_out_ns"] == 500
    assert found["roofs_ns"] == (4_000 + 10_000 + 1_000) - 7_500
    assert found["traffic_ns"] == 18_500 - 15_000
    assert found["kernels_ns"] == 32_000 - 18_500
    assert found["overlap_ns"] == -400
    assert found["idle_ns"] == 5_000 + 3_400
    assert found["dilation_ns"] == -3_400
    assert sum(found.values()) == 36_600


def test_without_a_datasheet_its_term_is_nothing():
    assert base(sheet=None)["roofs_ns"] == 0


def test_an_op_in_several_kernels_is_at_its_roof_once_and_no_kernel_of_no_op():
    """A product split into two kernels, neither with FLOPs of its own, against the same product in one kernel."""
    group = {"step": 0, "group": 7, "group_flops": 4 * 10**6, "group_bytes": 10**6}
    split = frame([kernel("a", 9_000, None), kernel("a", 4_000, None)]).assign(**group, flops=pd.NA)
    whole = frame([kernel("a", 13_000, 10_000.0)])  # 1 MB at 100 GB/s
    ops = op_frame([op("a", 4 * 10**6, 10**6)])
    found = terms(ops, split, None, MEASURED, Clock())
    assert found == terms(ops, whole, None, MEASURED, Clock())
    assert (found["traffic_ns"], found["kernels_ns"], found["unmatched_ns"]) == (0, 3_000, 0)


def test_what_prepares_an_op_does_not_do_its_work_again():
    group = {"step": 0, "group": 7, "group_flops": 4 * 10**6, "group_bytes": 10**6}
    rows = frame([kernel("a", 12_000, 10_000.0), kernel("a", 1_000, None)])
    rows = rows.assign(**group, flops=pd.array([4 * 10**6, None], dtype="Int64"))
    found = terms(op_frame([op("a", 4 * 10**6, 10**6)]), rows, None, MEASURED, Clock())
    assert (found["traffic_ns"], found["kernels_ns"], found["unmatched_ns"]) == (0, 2_000, 1_000)
