"""Kernels of nsys and traced ops: who gets whose work, and that none of it is lost or doubled."""

from types import SimpleNamespace

import pandas as pd
import pytest
from kernelroof.models.errors import ReportError
from kernelroof.models.ops import TracedOp
from kernelroof.roofline.match_rows import COLUMNS, NO_OP, NOT_TRACED, SHARED
from kernelroof.roofline.nsys_rows import COPY, MODULE_GROUP, rows_of_nsys

GEMM, NORM, SPLIT = "cutlass_gemm", "elementwise_kernel", "cublasLt::splitKreduce_kernel"


def op(module, name, kind, *, step=0, ordinal=0, flops=100, read=10, write=5, phase="decode"):
    return TracedOp(phase, step, module, name, ordinal, flops, flops, kind, read, 0, write, 0, 0, "bfloat16", "[1]", "")


def recording(*rows):
    """A recording of (module, kernel) or (module, kernel, kind) in one decode step."""
    table = []
    for number, row in enumerate(rows):
        module, kernel, kind = (*row, "kernel")[:3]
        table.append(
            {"phase": "decode", "step": 0, "module": module, "kind": kind, "name": kernel, "event": number + 1,
             "thread": 1, "device": "cuda:0", "stream": 7, "start_ns": 100 * number, "time_ns": 50,
             "launch_ns": 10 * number}
        )  # fmt: skip
    return SimpleNamespace(work=pd.DataFrame(table).astype({"step": "Int64"}))


def test_one_op_one_kernel():
    rows, lost = rows_of_nsys(recording(("lm_head", GEMM)), [op("lm_head", "aten::mm", "matmul")])
    assert list(rows.columns) == list(COLUMNS)
    one = rows.iloc[0]
    assert (one["flops"], one["dram_read_bytes"], one["dram_write_bytes"], one["op"]) == (100, 10, 5, "aten::mm")
    assert one["flops_source"] == "traced"
    assert pd.isna(one["reason"])
    assert not lost


def test_one_op_several_kernels_are_a_group():
    rows, _ = rows_of_nsys(recording(("lm_head", GEMM), ("lm_head", SPLIT)), [op("lm_head", "aten::mm", "matmul")])
    assert rows["flops"].isna().all()
    assert set(rows["reason"]) == {SHARED}
    assert set(rows["group_flops"]) == {100}
    assert set(rows["group_bytes"]) == {15}
    assert rows["group"].nunique() == 1


def test_as_many_ops_as_kernels_go_in_order():
    ops = [op("attn", "aten::mul", "elementwise", flops=1), op("attn", "aten::mm", "matmul", ordinal=1, flops=2)]
    rows, _ = rows_of_nsys(recording(("attn", NORM), ("attn", GEMM)), ops)
    assert rows["flops"].tolist() == [1, 2]
    assert rows["op"].tolist() == ["aten::mul", "aten::mm"]


def test_a_product_on_a_kernel_that_is_none_is_not_believed():
    ops = [op("attn", "aten::mm", "matmul"), op("attn", "aten::mul", "elementwise", ordinal=1, flops=1)]
    rows, _ = rows_of_nsys(recording(("attn", NORM), ("attn", GEMM)), ops)
    assert rows["flops"].isna().all()
    assert set(rows["reason"]) == {MODULE_GROUP}
    assert set(rows["group_flops"]) == {101}


def test_several_ops_in_one_kernel_are_added_up():
    ops = [op("norm", "aten::mul", "elementwise", ordinal=k, flops=k + 1) for k in range(3)]
    rows, _ = rows_of_nsys(recording(("norm", NORM)), ops)
    assert rows["flops"].tolist() == [6]
    assert rows["dram_read_bytes"].tolist() == [30]
    assert pd.isna(rows["op"].iloc[0])


def test_kernels_without_ops_and_ops_without_kernels():
    ops = [op("norm", "aten::mul", "elementwise"), op("x", "aten::mm", "matmul", phase="prefill")]
    rows, lost = rows_of_nsys(recording(("norm", NORM), ("other", NORM)), ops)
    other = rows[rows["module"] == "other"].iloc[0]
    assert (other["reason"], pd.isna(other["flops"])) == (NO_OP, True)
    assert [o.module for o in lost] == ["x"]
    untraced, _ = rows_of_nsys(recording(("norm", NORM)), [])
    assert untraced["reason"].tolist() == [NOT_TRACED]


def test_a_copy_beside_kernels_carries_no_work_and_no_kernels_id():
    rows, _ = rows_of_nsys(
        recording(("lm_head", GEMM), ("lm_head", "[CUDA memcpy]", "memcpy")), [op("lm_head", "aten::mm", "matmul")]
    )
    copy = rows[rows["kernel"] == "[CUDA memcpy]"].iloc[0]
    assert copy["reason"] == COPY
    assert copy["event"] < 0
    assert rows["flops"].sum() == 100


def test_an_op_goes_to_the_nearest_recorded_module_above_its_own():
    rows, lost = rows_of_nsys(recording(("model.layers.0", GEMM)), [op("model.layers.0.mlp.up", "aten::mm", "matmul")])
    assert rows["flops"].tolist() == [100]
    assert rows["module"].tolist() == ["model.layers.0.mlp.up"]
    assert not lost


def test_ops_without_work_need_no_kernel():
    view = op("lm_head", "aten::view", "none", flops=0, read=0, write=0)
    rows, lost = rows_of_nsys(recording(("lm_head", GEMM)), [view, op("lm_head", "aten::mm", "matmul", ordinal=1)])
    assert rows["op"].tolist() == ["aten::mm"]
    assert not lost


def test_phases_must_be_those_of_the_bare_run():
    from kernelroof.roofline.nsys_rows import walls_of_nsys

    rows, _ = rows_of_nsys(recording(("lm_head", GEMM)), [])
    with pytest.raises(ReportError, match="the recording has decode, the bare run decode and prefill"):
        walls_of_nsys(rows, None, {"prefill_ns": [10], "decode_step_ns": [[10]]})
