"""Recorded kernels and the calls of compiled graphs: nothing lost, nothing given to a call that did not launch it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.parsers.schema import ROOT_MODULE
from kernelroof.roofline import compiled_calls
from kernelroof.roofline.compiled_calls import (
    DIFFERS,
    EXTRA,
    NO_RECORD,
    Assigned,
    Call,
    calls_by_phase,
    common_module,
)


def assign(calls: list[Call], seen: list[str], *, ops_named: bool = False) -> Assigned:
    return compiled_calls.assign(calls, seen, ops_named=ops_named)


def fused(name: str) -> Call:
    return Call(name, False, "m")


def extern(op: str = "aten::mm") -> Call:
    return Call(op, True, "m")


def test_generated_kernels_by_name_and_library_kernels_between_them():
    calls = [fused("triton_a"), extern(), fused("triton_b"), extern(), extern()]
    found = assign(calls, ["triton_a", "nvjet", "triton_b", "gemm_x", "gemm_y"])
    assert found.calls == [(0,), (1,), (2,), (3,), (4,)]
    assert all(found.alone)


def test_two_kernels_of_one_call_are_a_group():
    found = assign([fused("triton_a"), extern()], ["triton_a", "gemm", "splitKreduce"])
    assert found.calls == [(0,), (1,), (1,)]
    assert found.alone == [True, False, False]


def test_three_kernels_of_two_calls_can_be_of_either():
    found = assign([extern(), extern()], ["gemm", "gemm", "splitKreduce"])
    assert found.calls == [(0, 1)] * 3
    assert not any(found.alone)


def test_a_copy_may_launch_no_kernel_so_as_many_kernels_as_calls_prove_nothing():
    found = assign([extern(), extern("aten::copy_")], ["gemm", "splitKreduce"])
    assert found.calls == [(0, 1)] * 2


def test_on_a_cpu_library_kernels_have_the_name_of_their_op():
    found = assign([extern(), fused("cpp_a"), extern()], ["aten::mm", "cpp_a", "aten::mm"], ops_named=True)
    assert found.calls == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    "seen",
    [
        ["triton_b", "triton_a"],  # another order
        ["triton_a"],  # one is missing
        ["triton_a", "triton_b", "triton_b"],  # one too many: an eager part, or another graph
    ],
)
def test_where_generated_kernels_differ_nothing_is_known(seen):
    found = assign([fused("triton_a"), fused("triton_b")], seen)
    assert found.calls == [()] * len(seen)
    assert set(found.why) == {DIFFERS}


def test_a_missing_op_on_a_cpu_is_no_group():
    found = assign([extern(), fused("cpp_a"), extern()], ["aten::mm", "cpp_a"], ops_named=True)
    assert found.calls == [(), ()]


def test_a_product_without_a_kernel_is_another_graph():
    found = assign([fused("a"), extern(), fused("b"), extern()], ["a", "b", "gemm"])
    assert found.calls == [()] * 3
    assert assign([fused("a"), extern("aten::copy_"), fused("b")], ["a", "b"]).calls == [(0,), (2,)]


def test_kernels_without_a_call_and_without_a_record():
    assert assign([fused("a"), fused("b")], ["a", "foreign", "b"]).calls == [(0,), (), (1,)]
    assert assign([fused("a"), fused("b")], ["a", "foreign", "b"]).why[1] == EXTRA
    assert assign([], ["a", "b"]) == ([(), ()], [False, False], [NO_RECORD, NO_RECORD])


@st.composite
def launched(draw: st.DrawFn) -> tuple[list[Call], list[str], list[int]]:
    """A graph's calls, the kernels that it launches, and by kernel the call that truly launched it."""
    kinds = draw(st.lists(st.sampled_from("fpc"), min_size=1, max_size=14))
    names = draw(st.lists(st.sampled_from(["t_x", "t_y", "t_z"]), min_size=len(kinds), max_size=len(kinds)))
    calls, seen, truth = [], [], []
    for position, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        if kind == "f":
            calls.append(fused(name))
            seen.append(name)
            truth.append(position)
            continue
        calls.append(extern() if kind == "p" else extern("aten::copy_"))
        count = draw(st.integers(1 if kind == "p" else 0, 3))
        seen += [draw(st.sampled_from(["gemm", "splitKreduce", "memory_kernel"])) for _ in range(count)]
        truth += [position] * count
    return calls, seen, truth


@given(launched())
def test_the_true_call_is_always_among_those_given(made):
    calls, seen, truth = made
    found = assign(calls, seen)
    assert len(found.calls) == len(found.alone) == len(found.why) == len(seen)
    for given_calls, alone, true in zip(found.calls, found.alone, truth, strict=True):
        assert true in given_calls
        # "alone" means that FLOPs of the call are this kernel's: no other kernel may be of that call.
        assert not alone or (given_calls == (true,) and truth.count(true) == 1)


@given(launched(), st.data())
def test_where_a_generated_kernel_is_missing_or_swapped_nothing_is_given(made, data):
    calls, seen, truth = made
    anchors = [k for k, t in enumerate(truth) if not calls[t].extern]
    if not anchors:
        return
    gone = data.draw(st.sampled_from(anchors))
    found = assign(calls, seen[:gone] + seen[gone + 1 :])
    assert all(c == () for c in found.calls)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "0", "1"]), min_size=1, max_size=4), min_size=1, max_size=4))
def test_the_common_module_is_the_longest_shared_path(paths):
    found = common_module(".".join(p) for p in paths)
    shared = [] if found == ROOT_MODULE else found.split(".")
    assert all(p[: len(shared)] == shared for p in paths)
    assert any(len(p) == len(shared) for p in paths) or len({p[len(shared)] for p in paths}) > 1


def test_the_root_is_around_everything():
    assert common_module(["model.layers.0", ROOT_MODULE]) == ROOT_MODULE
    assert common_module(["model.layers.10.mlp", "model.layers.1.mlp"]) == "model.layers"
    assert common_module([]) is None


def test_graphs_of_a_broken_forward_follow_each_other():
    one = {"kernel": "a", "extern": False, "module": "m", "modules": ["m"], "ops": []}
    graphs = [{"phase": "prefill", "calls": [one]}, {"phase": "decode", "calls": [one]}, {"phase": "decode", "calls": [
        {**one, "kernel": "aten::mm", "extern": True, "shapes": [[1, 2]], "read_bytes": 3, "write_bytes": 4}
    ]}]  # fmt: skip
    found = calls_by_phase({"graphs": graphs})
    assert [c.kernel for c in found["prefill"]] == ["a"]
    assert [c.kernel for c in found["decode"]] == ["a", "aten::mm"]
    assert found["decode"][1].shapes == ((1, 2),)
