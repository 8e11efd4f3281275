"""Recordings of compiled runs: every ns kept, modules by the compiled graph, unknown work left unknown."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.ops import TracedOp
from kernelroof.parsers.kineto import Kineto, read_kineto
from kernelroof.parsers.nsys_sqlite import read_nsys
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.roofline.compiled_calls import DIFFERS
from kernelroof.roofline.compiled_match import NOT_SAME, coverage, match_compiled, match_compiled_nsys, reasons_lost
from kernelroof.roofline.match_rows import NO_OP, SHARED, WRAPPER
from kernelroof.roofline.nsys_rows import rows_of_nsys

Q, ATTN, NORM = "model.layers.0.attn.q", "model.layers.0.attn", "model.layers.0.norm"


def traced(module: str, op: str, kind: str = "matmul", *, step: int = 0, flops: int = 100, **more: Any) -> TracedOp:
    one = TracedOp("decode", step, module, op, 0, flops, flops, kind, 10, 0, 5, 0, 0, "float32", "[1,4] [4,4]", "")
    return one._replace(**more)


TRACED = [
    traced(NORM, "aten::mul", "elementwise", flops=4),
    traced(Q, "aten::mm", flops=64),
    traced(ATTN, "aten::scaled_dot_product_attention", "attention", flops=32, shapes="[1,2,1,4] [1,1,9,4] [1,1,9,4]"),
    traced("lm_head", "aten::mm", flops=128),
    traced("(sample)", "aten::argmax", "elementwise", flops=7),
]


def call(kernel: str, module: str | None, *, extern: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "extern": extern,
        "module": module,
        "modules": [module] if module else [],
        "ops": [],
        **more,
    }


def product(module: str) -> dict[str, Any]:
    return call("aten::mm", module, extern=True, shapes=[[1, 4], [4, 4]], read_bytes=80, write_bytes=16)


FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
ATTENTION = call(
    FLASH, ATTN, extern=True, shapes=[[1, 2, 1, 4], [1, 2, 9, 4], [1, 2, 9, 4]], read_bytes=300, write_bytes=32
)
CALLS = [call("cpp_fused_mul_0", NORM), product(Q), ATTENTION, product("lm_head")]


def compiled(calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"graphs": [{"phase": "decode", "calls": list(calls)}]}


def cpu_recording(folder: Path, names: Sequence[str], *, extra: Sequence[str] = ()) -> Kineto:
    """One decode step: dispatch, the compiled region with these ops (each with a helper inside), the token choice."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}})

    width = 10 * (len(names) + len(extra)) + 100
    add("user_annotation", "decode", 0, width)
    add("user_annotation", "step0", 1, width - 2)
    add("cpu_op", "TorchDynamo Cache Lookup", 2, 5)
    add("cpu_op", "Torch-Compiled Region: 0/1", 10, 10 * len(names) + 2)
    for i, name in enumerate(names):
        add("cpu_op", name, 11 + 10 * i, 9)
        add("cpu_op", "aten::empty", 12 + 10 * i, 2)
    at = 20 + 10 * len(names)
    for i, name in enumerate(extra):
        add("cpu_op", name, at + 10 * i, 4)
    at += 10 * len(extra)
    add("user_annotation", "(sample)", at, 20)
    add("cpu_op", "aten::argmax", at + 2, 6)
    (folder / "t.json").write_text(json.dumps({"traceEvents": events}))
    return read_kineto(folder / "t.json")


NAMES = ["graph_1_cpp_fused_mul_0", "aten::mm", FLASH, "aten::mm"]


def by_kernel(rows: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {str(r["kernel"]): r for r in rows.to_dict("records")}


def test_each_kernel_gets_the_module_of_its_call_and_only_products_get_work(tmp_path: Path) -> None:
    matched = match_compiled(cpu_recording(tmp_path, NAMES), TRACED, compiled(CALLS))
    rows = matched.rows[matched.rows["kernel"] != "aten::empty"]
    assert list(zip(rows["kernel"], rows["module"], strict=True)) == [
        ("TorchDynamo Cache Lookup", "(root)"), ("Torch-Compiled Region: 0/1", "(root)"),
        ("graph_1_cpp_fused_mul_0", NORM), ("aten::mm", Q), (FLASH, ATTN), ("aten::mm", "lm_head"),
        ("aten::argmax", "(sample)"),
    ]  # fmt: skip
    assert rows["flops"].isna().tolist() == [False, False, True, False, False, False, False]
    assert rows["flops"].dropna().tolist() == [0, 0, 64, 32, 128, 7]
    # Bytes of library kernels are those of the operands that compiled code hands over.
    assert rows["dram_read_bytes"].tolist()[3:5] == [80, 300]
    found = by_kernel(rows)
    assert "not known" in found["graph_1_cpp_fused_mul_0"]["reason"]
    assert found["Torch-Compiled Region: 0/1"]["reason"] == WRAPPER
    # The norm runs inside the generated kernel: it is not lost.
    assert matched.unmatched_traced == []


def test_what_runs_inside_a_generated_kernel_belongs_to_its_module(tmp_path: Path) -> None:
    rows = match_compiled(cpu_recording(tmp_path, NAMES), TRACED, compiled(CALLS)).rows
    assert rows[rows["kernel"] == "aten::empty"]["module"].tolist() == [NORM]


@pytest.mark.parametrize("calls", [[*CALLS, call("cpp_fused_add_9", NORM)], CALLS[:-1], CALLS[::-1], []])
def test_where_the_graph_is_another_one_kernels_stay_with_the_phase(calls, tmp_path: Path) -> None:
    matched = match_compiled(cpu_recording(tmp_path, NAMES), TRACED, compiled(calls))
    rows = matched.rows[matched.rows["kernel"].isin(NAMES)]
    seen = {c["kernel"] for c in calls} | {"graph_1_cpp_fused_mul_0"}
    unknown = rows[rows["kernel"].isin(seen)]
    assert set(unknown["module"]) == {UNATTRIBUTED}
    assert unknown["flops"].isna().all()
    assert set(unknown["phase"]) == {"decode"}
    assert {op.flops_kind for op in matched.unmatched_traced} >= {"matmul", "attention"}
    timed = matched.rows.assign(time_ns=matched.rows["recorded_ns"])
    assert coverage(timed, "decode")["phase_ns"] > 0
    assert any(DIFFERS in line or NO_OP in line or "inductor" in line for line in reasons_lost(timed, "decode"))


def test_attention_over_another_length_or_under_another_mask_has_no_flops(tmp_path: Path) -> None:
    longer = {**ATTENTION, "shapes": [[1, 2, 1, 4], [1, 2, 12, 4], [1, 2, 12, 4]]}
    masked = {**ATTENTION, "shapes": [*ATTENTION["shapes"], [1, 1, 1, 9]]}
    causal = [op._replace(flops_full=64) if op.flops_kind == "attention" else op for op in TRACED]
    for attention, ops in ((longer, TRACED), (masked, causal)):
        matched = match_compiled(
            cpu_recording(tmp_path, NAMES), ops, compiled([CALLS[0], CALLS[1], attention, CALLS[3]])
        )
        row = by_kernel(matched.rows)[FLASH]
        assert pd.isna(row["flops"])
        assert row["reason"] == NOT_SAME


def test_two_products_of_one_module_have_no_work_of_their_own(tmp_path: Path) -> None:
    """Which of the two is which can't be told by module and op."""
    calls = [product("m"), product("m")]
    ops = [traced("m", "aten::mm", flops=1), traced("m", "aten::mm", flops=2)]
    matched = match_compiled(cpu_recording(tmp_path, ["aten::mm", "aten::mm"]), ops, compiled(calls))
    rows = matched.rows[matched.rows["kernel"] == "aten::mm"]
    assert set(rows["module"]) == {"m"}
    assert rows["flops"].isna().all()
    assert matched.unmatched_traced == ops


def test_coverage_is_all_of_the_time(tmp_path: Path) -> None:
    kineto = cpu_recording(tmp_path, NAMES, extra=["aten::eager_part"])
    rows = match_compiled(kineto, TRACED, compiled(CALLS)).rows
    timed = rows.assign(time_ns=rows["recorded_ns"])
    found = coverage(timed, "decode")
    assert sum(found.values()) == rows["recorded_ns"].sum()
    assert found["phase_ns"] == 4000  # what ran eagerly beside the compiled code
    assert found["dispatch_ns"] == 5000 + 6000  # the look-up, and the region without what is inside
    assert reasons_lost(timed, "decode") == [f"1 kernels, 0.004 ms: {NO_OP}"]


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*NAMES, "cpp_fused_add_9", "aten::add"]), max_size=8), st.permutations(CALLS))
def test_no_ns_is_lost_or_doubled(tmp_path_factory, names: list[str], calls: list[dict[str, Any]]) -> None:
    kineto = cpu_recording(tmp_path_factory.mktemp("t"), names)
    rows = match_compiled(kineto, TRACED, compiled(calls)).rows
    assert rows["recorded_ns"].sum() == kineto.ops["self_ns"].sum()
    assert rows["event"].is_unique
    # Modules come from the graph only, and only if it is the one that ran.
    plain = [n.removeprefix("graph_1_") for n in names]
    generated = rows[rows["kernel"].str.contains("cpp_")]
    if [c["kernel"] for c in calls] != [n for n in plain if n != "aten::add"]:
        assert set(generated["module"]) <= {UNATTRIBUTED}


def gpu_recording(folder: Path, kernels: Sequence[tuple[str, str]]) -> Kineto:
    """One decode step whose kernels all come from one cudaGraphLaunch, and a token choice."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args})

    add("user_annotation", "decode", 0, 1000)
    add("user_annotation", "step0", 1, 998)
    add("cpu_op", "Torch-Compiled Region: 0/1", 2, 20)
    add("cuda_runtime", "cudaGraphLaunch", 3, 5, correlation=1)
    for i, (cat, kernel) in enumerate(kernels):
        add(cat, kernel, 2000 + 10 * i, 4, device=0, stream=7, correlation=1)
    add("user_annotation", "(sample)", 30, 20)
    add("cpu_op", "aten::argmax", 31, 15)
    add("cuda_runtime", "cudaLaunchKernel", 32, 2, correlation=2)
    add("kernel", "reduce_kernel", 5000, 3, device=0, stream=7, correlation=2)
    (folder / "t.json").write_text(json.dumps({"traceEvents": events}))
    return read_kineto(folder / "t.json")


TRITON = [
    call("triton_poi_fused_mul_0", NORM),
    product(Q),
    ATTENTION,
    call("triton_poi_fused_add_1", ATTN),
    product("lm_head"),
]


def test_kernels_of_a_graph_replay_are_told_apart_by_their_names(tmp_path: Path) -> None:
    kineto = gpu_recording(
        tmp_path,
        [("kernel", "triton_poi_fused_mul_0"), ("kernel", "nvjet_tst"), ("kernel", "flash_fwd"),
         ("gpu_memcpy", "Memcpy DtoD"), ("kernel", "triton_poi_fused_add_1"), ("kernel", "gemm"),
         ("kernel", "splitKreduce")],
    )  # fmt: skip
    matched = match_compiled(kineto, TRACED, compiled(TRITON))
    found = by_kernel(matched.rows)
    assert {name: row["module"] for name, row in found.items()} == {
        "triton_poi_fused_mul_0": NORM, "nvjet_tst": Q, "flash_fwd": ATTN, "Memcpy DtoD": "(root)",
        "triton_poi_fused_add_1": ATTN, "gemm": "lm_head", "splitKreduce": "lm_head", "reduce_kernel": "(sample)",
    }  # fmt: skip
    assert (found["nvjet_tst"]["flops"], found["flash_fwd"]["flops"]) == (64, 32)
    split = matched.rows[matched.rows["kernel"].isin(["gemm", "splitKreduce"])]
    assert split["flops"].isna().all()
    assert set(split["reason"]) == {SHARED}
    assert split["group_flops"].tolist() == [128, 128]
    assert split["group"].nunique() == 1
    assert matched.unmatched_traced == []


def test_kernels_between_anchors_that_may_be_of_two_calls_get_the_module_around_both(tmp_path: Path) -> None:
    calls = [call("triton_a", NORM), product("l.mlp.gate"), product("l.mlp.up"), call("triton_b", "l.mlp")]
    kineto = gpu_recording(tmp_path, [("kernel", n) for n in ("triton_a", "gemm", "splitKreduce", "gemm", "triton_b")])
    ops = [traced("l.mlp.gate", "aten::mm"), traced("l.mlp.up", "aten::mm")]
    matched = match_compiled(kineto, ops, compiled(calls))
    between = matched.rows[matched.rows["kernel"].isin(["gemm", "splitKreduce"])]
    assert set(between["module"]) == {"l.mlp"}
    assert between["flops"].isna().all()
    assert matched.unmatched_traced == ops


def nsys_with_graph(path: Path, names: Sequence[str]) -> Path:
    """An export of nsys with --cuda-graph-trace=node: kernels of one cudaGraphLaunch, by the real schema."""
    strings = {
        n: i for i, n in enumerate([*names, "reduce_kernel", "cudaGraphLaunch_v10000", "cudaLaunchKernel_v7000"])
    }
    gid = 5 << 24
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, n) for n, i in strings.items()])
        db.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        db.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId)")
        for name, start, end in (("decode", 0, 900), ("step0", 10, 800), ("(sample)", 200, 300)):
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,59,?,NULL,?,0)", (start, end, name, gid | 1))
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId)")
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (20,40,?,1,?)", (gid | 1, strings["cudaGraphLaunch_v10000"])
        )
        db.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (210,220,?,2,?)",
            (gid | 1, strings["cudaLaunchKernel_v7000"]),
        )
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, "
            "demangledName, shortName, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, "
            "dynamicSharedMemory, graphNodeId)"
        )
        rows = [(1000 + 10 * i, 1005 + 10 * i, 1, n, 100 + i) for i, n in enumerate(names)]
        for start, end, correlation, name, node in [*rows, (3000, 3004, 2, "reduce_kernel", None)]:
            db.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,0,7,?,?,?,?,1,1,1,32,1,1,0,0,?)",
                (start, end, correlation, gid, strings[name], strings[name], node),
            )
    db.close()
    return path


@pytest.mark.parametrize("same", [True, False])
def test_nsys_graph_nodes_go_by_the_step_of_their_launch_and_the_compiled_graph(same: bool, tmp_path: Path) -> None:
    names = ["triton_poi_fused_mul_0", "nvjet_tst", "flash_fwd", "triton_poi_fused_add_1", "gemm"]
    nsys = read_nsys(nsys_with_graph(tmp_path / "t.sqlite", names))
    sample = [op for op in TRACED if op.module == "(sample)"]
    base = rows_of_nsys(nsys, sample)
    launched = dict(zip(nsys.work["event"].tolist(), nsys.work["launch_ns"].tolist(), strict=True))
    matched = match_compiled_nsys(base, TRACED, launched, compiled(TRITON if same else TRITON[::-1]))
    rows = matched.rows
    assert rows["recorded_ns"].sum() == 5 * 5 + 4
    assert set(rows["step"]) == {0}
    found = by_kernel(rows)
    assert (found["reduce_kernel"]["module"], found["reduce_kernel"]["flops"]) == ("(sample)", 7)
    modules = [found[n]["module"] for n in names]
    if same:
        assert modules == [NORM, Q, ATTN, ATTN, "lm_head"]
        assert [found[n]["flops"] for n in ("nvjet_tst", "flash_fwd", "gemm")] == [64, 32, 128]
        assert pd.isna(found["triton_poi_fused_mul_0"]["flops"])
        assert matched.unmatched_traced == []
    else:
        assert set(modules) == {UNATTRIBUTED}
        assert len(matched.unmatched_traced) == 4
