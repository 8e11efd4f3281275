"""Recorded ops meet traced ops: nothing is lost, nothing counted twice, and the right ones meet."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.ops import TracedOp
from kernelroof.parsers.kineto import Kineto, read_kineto
from kernelroof.roofline.align import Forest, align
from kernelroof.roofline.match import Matched, match
from kernelroof.roofline.match_rows import HELPER, NO_OP, NO_WORK, NOT_TRACED, SHARED, WRAPPER

Node = tuple[str, list[Any]]
"""A recorded op: name and the ops inside it."""


def traced(module: str, op: str, *, step: int = 0, phase: str = "decode", flops: int = 10) -> TracedOp:
    moved = 0 if flops == 0 else 100
    return TracedOp(
        phase, step, module, op, 0, flops, flops, "matmul" if flops else "none",
        moved, 2 * moved, 3 * moved, 0, 0, "float32", "[2,2] [2,2]", "",
    )  # fmt: skip


def in_order(ops: Sequence[TracedOp]) -> list[TracedOp]:
    return [op._replace(ordinal=i) for i, op in enumerate(ops)]


class Recorder:
    """Writes a trace of nested ranges and ops; each event takes 1 us of its own before what it holds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 0

    def add(self, cat: str, name: str, inside: list[Any]) -> None:
        start = self.now
        self.now += 1
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "args": {}}
        self.events.append(event)
        for one in inside:
            self.add(*one)
        self.now += 1
        event["dur"] = self.now - start

    def read(self, folder: Path) -> Kineto:
        (folder / "t.json").write_text(json.dumps({"traceEvents": self.events}))
        return read_kineto(folder / "t.json")


def ranged(name: str, *inside: Any) -> tuple[str, str, list[Any]]:
    return "user_annotation", name, list(inside)


def op(name: str, *inside: Any) -> tuple[str, str, list[Any]]:
    return "cpu_op", name, list(inside)


def record(folder: Path, *steps: Sequence[Any], phase: str = "decode") -> Kineto:
    recorder = Recorder()
    recorder.add(*ranged(phase, *(ranged(f"step{k}", *inside) for k, inside in enumerate(steps))))
    return recorder.read(folder)


def facts(matched: Matched) -> list[tuple[str, str, Any, Any]]:
    rows = matched.rows
    reason = rows["reason"].astype(object).where(rows["reason"].notna(), None)
    flops = rows["flops"].astype(object).where(rows["flops"].notna(), None)
    return list(zip(rows["kernel"], rows["module"], flops, reason, strict=True))


LINEAR = op(
    "aten::linear",
    op("aten::t", op("aten::transpose", op("aten::as_strided"))),
    op("aten::matmul", op("aten::mm", op("aten::resolve_conj"))),
)


def test_wrappers_matches_and_views(tmp_path: Path) -> None:
    kineto = record(tmp_path, [ranged("m.q", LINEAR), op("aten::add")])
    ops = in_order(
        [traced("m.q", "aten::t", flops=0), traced("m.q", "aten::mm", flops=64), traced("(root)", "aten::add")]
    )
    matched = match(kineto, ops)
    assert facts(matched) == [
        ("aten::linear", "m.q", 0, WRAPPER),
        ("aten::t", "m.q", 0, NO_WORK),
        ("aten::matmul", "m.q", 0, WRAPPER),
        ("aten::mm", "m.q", 64, None),
        ("aten::add", "(root)", 10, None),
    ]
    assert matched.unmatched_traced == []
    rows = matched.rows.set_index("kernel")
    # 2 us of each op's own, and that of what runs inside a matched one.
    assert rows["recorded_ns"].to_dict() == {
        "aten::linear": 2000, "aten::t": 6000, "aten::matmul": 2000, "aten::mm": 4000, "aten::add": 2000,
    }  # fmt: skip
    assert rows.loc["aten::mm", ["dram_read_bytes", "dram_write_bytes", "shapes", "dtype"]].tolist() == [
        300, 300, "[2,2] [2,2]", "float32",
    ]  # fmt: skip
    assert rows.loc["aten::linear", ["dram_read_bytes", "dram_write_bytes"]].tolist() == [0, 0]
    assert rows["shapes"].isna()["aten::linear"]
    assert rows["ordinal"].tolist() == [0, 1, 2, 3, 4]


def test_a_helper_inside_a_matched_op_is_not_taken_for_a_later_op(tmp_path: Path) -> None:
    to_copy = op("aten::to", op("aten::_to_copy", op("aten::empty_strided"), op("aten::copy_")))
    kineto = record(tmp_path, [to_copy, op("aten::copy_")])
    ops = in_order([traced("(root)", "aten::_to_copy"), traced("(root)", "aten::copy_", flops=7)])
    assert facts(match(kineto, ops)) == [
        ("aten::to", "(root)", 0, WRAPPER),
        ("aten::_to_copy", "(root)", 10, None),
        ("aten::copy_", "(root)", 7, None),
    ]


def test_ops_that_only_return_their_input_are_known_to_do_nothing(tmp_path: Path) -> None:
    kineto = record(tmp_path, [op("aten::to"), op("aten::reshape"), op("vendor::to"), op("aten::mul")])
    assert facts(match(kineto, in_order([traced("(root)", "aten::mul")]))) == [
        ("aten::to", "(root)", 0, NO_WORK),
        ("aten::reshape", "(root)", 0, NO_WORK),
        ("vendor::to", "(root)", None, NO_OP),
        ("aten::mul", "(root)", 10, None),
    ]


def test_a_helper_inside_an_unknown_op_gives_way_to_the_op_itself(tmp_path: Path) -> None:
    kineto = record(tmp_path, [op("vendor::fused", op("aten::mul")), op("aten::mul")])
    matched = match(kineto, in_order([traced("(root)", "aten::mul")]))
    assert facts(matched) == [
        ("vendor::fused", "(root)", None, NO_OP),
        ("aten::mul", "(root)", None, NO_OP),
        ("aten::mul", "(root)", 10, None),
    ]


def test_work_is_matched_before_views(tmp_path: Path) -> None:
    kineto = record(tmp_path, [op("aten::mm"), op("aten::view"), op("aten::t")])
    views = [traced("(root)", "aten::view", flops=0), traced("(root)", "aten::t", flops=0)]
    ops = in_order([*views, traced("(root)", "aten::mm")])
    matched = match(kineto, ops)
    assert [f[2] for f in facts(matched)] == [10, None, None]
    assert [o.op for o in matched.unmatched_traced] == ["aten::view", "aten::t"]


def test_attention_is_one_op_with_all_inside(tmp_path: Path) -> None:
    inner = op("aten::_scaled_dot_product_flash_attention_for_cpu", op("aten::mul"), op("aten::empty"))
    kineto = record(tmp_path, [ranged("m.attn", op("aten::scaled_dot_product_attention", inner))])
    ops = in_order([traced("m.attn", "aten::scaled_dot_product_attention", flops=99)])
    assert facts(match(kineto, ops)) == [("aten::scaled_dot_product_attention", "m.attn", 99, None)]


@pytest.mark.parametrize("depth", ["module", "layer", "phase"])
def test_coarse_ranges_keep_the_finer_traced_module(tmp_path: Path, depth: str) -> None:
    def within(name: str, *inside: Any) -> list[Any]:
        keep = depth == "module" or (depth == "layer" and name == "layers.0")
        return [ranged(name, *inside)] if keep else list(inside)

    layer = [op("aten::neg"), *within("layers.0.q", LINEAR), *within("layers.0.k", LINEAR)]
    kineto = record(tmp_path, [*within("layers.0", *layer), *within("head", op("aten::mm"))])
    ops = in_order(
        [
            traced("layers.0", "aten::neg"), traced("layers.0.q", "aten::mm", flops=1),
            traced("layers.0.k", "aten::mm", flops=2), traced("head", "aten::mm", flops=3),
        ]
    )  # fmt: skip
    matched = match(kineto, ops)
    mm = matched.rows[matched.rows["kernel"] == "aten::mm"]
    assert dict(zip(mm["module"], mm["flops"], strict=True)) == {"layers.0.q": 1, "layers.0.k": 2, "head": 3}
    assert matched.unmatched_traced == []


def test_steps_and_phases_are_kept_apart(tmp_path: Path) -> None:
    kineto = record(tmp_path, [op("aten::mm")], [op("aten::mm")], [op("aten::mm")])
    ops = [traced("(root)", "aten::mm", step=0, flops=1), traced("(root)", "aten::mm", step=2, flops=3),
           traced("(root)", "aten::mm", phase="prefill", flops=4)]  # fmt: skip
    matched = match(kineto, ops)
    assert facts(matched) == [
        ("aten::mm", "(root)", 1, None),
        ("aten::mm", "(root)", None, NOT_TRACED),
        ("aten::mm", "(root)", 3, None),
    ]
    assert matched.unmatched_traced == [ops[2]]


def test_ops_outside_the_phases_are_no_rows(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.add(*op("aten::mm"))
    recorder.add(*ranged("decode", op("aten::ones"), ranged("step0", op("aten::mm"))))
    matched = match(recorder.read(tmp_path), [traced("(root)", "aten::mm")])
    assert facts(matched) == [("aten::ones", "(unattributed)", None, NOT_TRACED), ("aten::mm", "(root)", 10, None)]


def test_with_nothing_traced_every_op_is_a_row(tmp_path: Path) -> None:
    kineto = record(tmp_path, [LINEAR])
    matched = match(kineto, [])
    assert len(matched.rows) == 7
    assert matched.rows["flops"].isna().all()
    assert set(matched.rows["reason"]) == {NOT_TRACED}


NAMES = ["aten::mm", "aten::mul", "aten::copy_", "aten::view", "aten::linear"]
nodes: st.SearchStrategy[Any] = st.recursive(
    st.builds(op, st.sampled_from(NAMES)),
    lambda inner: st.builds(lambda n, inside: op(n, *inside), st.sampled_from(NAMES), st.lists(inner, max_size=3)),
    max_leaves=8,
)
scopes = st.dictionaries(st.sampled_from(["a", "a.b", "c"]), st.lists(nodes, max_size=4), max_size=3)
traces = st.lists(
    st.builds(
        lambda module, name, flops, step: traced(module, name, flops=flops, step=step),
        st.sampled_from(["a", "a.b", "a.b.c", "c", "(root)"]),
        st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 1),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(scopes, min_size=1, max_size=2), loose=st.lists(nodes, max_size=3), ops=traces)
def test_nothing_is_lost_or_matched_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], loose: list[Any], ops: list[TracedOp]
) -> None:
    ops = in_order(ops)
    inside = [[*(ranged(m, *forest) for m, forest in step.items()), *loose] for step in steps]
    kineto = record(tmp_path_factory.mktemp("m"), *inside)
    matched = match(kineto, ops)
    rows = matched.rows
    covered = kineto.ops["phase"] != "(unattributed)"
    assert rows["recorded_ns"].sum() == kineto.ops["self_ns"][covered].sum()
    assert rows["event"].is_unique
    hits = rows[rows["shapes"].notna()]
    assert len(hits) + len(matched.unmatched_traced) == len(ops)
    assert hits["flops"].sum() + sum(o.flops for o in matched.unmatched_traced) == sum(o.flops for o in ops)
    # A match has the op's own name, phase, step and module, and stands in no other match's subtree.
    left = sorted((o.step, o.module, o.op, o.flops) for o in ops)
    for lost in matched.unmatched_traced:
        left.remove((lost.step, lost.module, lost.op, lost.flops))
    assert sorted(zip(hits["step"], hits["module"], hits["kernel"], hits["flops"], strict=True)) == left
    above = dict(zip(kineto.ops["event"], kineto.ops["parent"].fillna(-1), strict=True))
    taken = set(hits["event"])
    for event in taken:
        parent = above[event]
        while parent >= 0:
            assert parent not in taken
            parent = above[parent]


@settings(max_examples=25, deadline=None)
@given(one=st.lists(nodes, max_size=4), other=st.lists(nodes, max_size=4), ops=traces)
def test_another_module_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, one: list[Any], other: list[Any], ops: list[TracedOp]
) -> None:
    ops = in_order([o for o in ops if o.step == 0])
    folder = tmp_path_factory.mktemp("m")

    def outcome(*order: Any) -> list[Any]:
        rows = match(record(folder, order), ops).rows
        rows = rows[rows["module"].str.startswith("a")]
        found = zip(facts(Matched(rows, [])), rows["recorded_ns"], strict=True)
        return sorted((*map(str, fact), ns) for fact, ns in found)

    first = outcome(ranged("a", *one), ranged("c", *other))
    assert outcome(ranged("c", *other), ranged("a", *one)) == first
    assert outcome(ranged("a", *one), ranged("c", op("aten::mm"), *other, op("aten::mul"))) == first


def _forest(roots: Sequence[Any]) -> Forest:
    names: list[str] = []
    sizes: list[int] = []
    depths: list[int] = []

    def walk(node: Any, depth: int) -> None:
        me = len(names)
        names.append(node[1])
        sizes.append(0)
        depths.append(depth)
        for child in node[2]:
            walk(child, depth + 1)
        sizes[me] = len(names) - me

    for root in roots:
        walk(root, 0)
    return Forest(tuple(names), tuple(sizes), tuple(depths))


def _score(forest: Forest, found: Sequence[int], work: Sequence[bool]) -> tuple[int, int, int]:
    hits = [(n, w) for n, w in zip(found, work, strict=True) if n >= 0]
    return sum(w for _, w in hits), len(hits), -sum(forest.depths[n] for n, _ in hits)


def _best_by_trying_all(forest: Forest, names: Sequence[str], work: Sequence[bool]) -> tuple[int, int, int]:
    @cache
    def best(i: int, j: int) -> tuple[int, int, int]:
        if i >= len(forest.names) or j == len(names):
            return 0, 0, 0
        options = [best(i + 1, j), best(i, j + 1)]
        if forest.names[i] == names[j]:
            w, n, d = best(i + forest.sizes[i], j + 1)
            options.append((w + work[j], n + 1, d - forest.depths[i]))
        return max(options)

    return best(0, 0)


@settings(max_examples=200, deadline=None)
@given(roots=st.lists(nodes, max_size=5), ops=st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=8))
def test_alignment_is_the_best_there_is(roots: list[Any], ops: list[tuple[str, bool]]) -> None:
    forest = _forest(roots)
    names, work = [o[0] for o in ops], [o[1] for o in ops]
    found = align(forest, names, work)
    hits = [(n, name) for n, name in zip(found, names, strict=True) if n >= 0]
    assert all(forest.names[n] == name for n, name in hits)
    assert all(a + forest.sizes[a] <= b for (a, _), (b, _) in itertools.pairwise(hits))
    assert _score(forest, found, work) == _best_by_trying_all(forest, names, work)


def test_a_long_sequence_with_one_odd_op_aligns() -> None:
    forest = _forest([*[LINEAR] * 300, op("aten::odd"), *[LINEAR] * 300])
    names = ["aten::mm"] * 300 + ["aten::missing"] + ["aten::mm"] * 300
    found = align(forest, names, [True] * 601)
    assert found[300] == -1
    assert [forest.names[n] for n in found if n >= 0] == ["aten::mm"] * 600


def gpu_record(folder: Path, ops: dict[str, list[tuple[str, str]]]) -> Kineto:
    """A CUDA recording: each op launches the given (category, kernel) pairs, 1 us each, 10 us later."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args})

    add("user_annotation", "decode", 0, 1000)
    add("user_annotation", "step0", 1, 998)
    at, correlation = 2.0, 0
    for name, kernels in ops.items():
        add("cpu_op", f"wrap_{name}", at, 50)
        add("cpu_op", name, at + 1, 48)
        for i, (cat, kernel) in enumerate(kernels):
            correlation += 1
            add("cuda_runtime", "cudaLaunchKernel", at + 2 + i, 0.5, correlation=correlation)
            add(cat, kernel, at + 10 + i, 1, device=0, stream=7, correlation=correlation)
        at += 60
    (folder / "t.json").write_text(json.dumps({"traceEvents": events}))
    return read_kineto(folder / "t.json")


def test_on_a_gpu_rows_are_kernels_and_work_goes_to_the_group(tmp_path: Path) -> None:
    kineto = gpu_record(
        tmp_path,
        {
            "aten::mm": [("kernel", "splitk"), ("kernel", "reduce")],
            "aten::addmm": [("gpu_memset", "Memset"), ("kernel", "gemm")],
            "aten::copy_": [("gpu_memcpy", "Memcpy DtoD")],
            "vendor::op": [("kernel", "vendor")],
            "aten::view": [],
        },
    )
    ops = in_order(
        [traced("m.q", "aten::mm", flops=5), traced("m.k", "aten::addmm", flops=6), traced("m", "aten::copy_", flops=7),
         traced("m", "aten::view", flops=0), traced("m", "aten::gone", flops=8), traced("m", "aten::relu", flops=9)]
    )  # fmt: skip
    matched = match(kineto, ops)
    assert facts(matched) == [
        ("splitk", "m.q", None, SHARED),
        ("reduce", "m.q", None, SHARED),
        ("Memset", "m.k", None, HELPER),
        ("gemm", "m.k", 6, None),
        ("Memcpy DtoD", "m", 7, None),
        ("vendor", "(root)", None, NO_OP),
    ]
    rows = matched.rows
    assert rows["group_flops"].fillna(-1).tolist() == [5, 5, 6, 6, 7, -1]
    assert rows["group_bytes"].fillna(-1).tolist() == [600] * 5 + [-1]
    assert rows["group"].nunique() == 4
    assert rows["op"].tolist() == ["aten::mm", "aten::mm", "aten::addmm", "aten::addmm", "aten::copy_", "vendor::op"]
    assert rows["recorded_ns"].tolist() == [1000] * 6
    assert [o.op for o in matched.unmatched_traced] == ["aten::gone", "aten::relu"]


def test_on_a_gpu_an_op_with_work_and_no_kernel_is_listed(tmp_path: Path) -> None:
    kineto = gpu_record(tmp_path, {"aten::mm": [], "aten::add": [("kernel", "add")]})
    matched = match(kineto, in_order([traced("(root)", "aten::mm"), traced("(root)", "aten::add")]))
    assert [o.op for o in matched.unmatched_traced] == ["aten::mm"]
    assert facts(matched) == [("add", "(root)", 10, None)]


@pytest.mark.parametrize("depth", ["phase", "layer", "module"])
def test_a_real_model_meets_its_trace(tmp_path: Path, depth: str) -> None:
    import torch
    from kernelroof.models import hf
    from kernelroof.models.trace import trace
    from kernelroof.profile.ranges import module_ranges, profiler_sink
    from torch.profiler import ProfilerActivity, profile

    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
    }  # fmt: skip
    sizes = {"batch": 2, "prompt": 8, "output": 2}
    model = hf.build_model(config, dtype="float32", attn="sdpa", device="cpu")
    cache_ = hf.make_cache("dynamic", model, max_length=10, batch=2)
    with (
        torch.no_grad(),
        profile(activities=[ProfilerActivity.CPU]) as recorded,
        module_ranges(model, depth, [profiler_sink()]) as ranges,
    ):
        with ranges.phase("prefill"), ranges.step(0):
            logits = hf.run_prefill(model, cache_, torch.zeros(2, 8, dtype=torch.long), last_only=True)
            with ranges.span("(sample)"):
                token = hf.choose_token(logits)
        with ranges.phase("decode"):
            for k in range(2):
                with ranges.step(k):
                    logits = hf.run_step(model, cache_, token)
                    with ranges.span("(sample)"):
                        token = hf.choose_token(logits)
    recorded.export_chrome_trace(str(tmp_path / "t.json"))
    kineto = read_kineto(tmp_path / "t.json")
    ops = trace(config, **sizes, dtype="float32").ops
    matched = match(kineto, ops)
    covered = kineto.ops["phase"] != "(unattributed)"
    assert matched.rows["recorded_ns"].sum() == kineto.ops["self_ns"][covered].sum()
    # Only views may run otherwise on the CPU than on the meta device.
    assert {o.op for o in matched.unmatched_traced if o.flops or o.read_bytes} == set()
    for kind in ("flops", "dram_read_bytes"):
        wanted = sum(o.flops if kind == "flops" else o.read_bytes for o in ops)
        assert matched.rows[kind].sum() == wanted > 0
    mm = matched.rows[matched.rows["kernel"] == "aten::mm"]
    assert mm["flops"].notna().all()
    assert {"model.layers.1.mlp.down_proj", "lm_head"} < set(mm["module"])
