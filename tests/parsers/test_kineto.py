"""Kineto traces as tables, against hand-made traces, a plain walk over the JSON, and torch itself."""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.models.errors import ReportError
from kernelroof.parsers import json_stream, kineto_events
from kernelroof.parsers.kineto import Kineto, launches, read_kineto
from pandas.testing import assert_frame_equal

SHARED = Path(os.environ.get("KERNELROOF_SHARED", Path(__file__).parents[2].parent / "shared"))
CAPTURES = sorted((SHARED / "captures" / "kineto").glob("*.json.gz"))
BASE_US = 5133742633268.0


def event(cat: str, name: str, start_ns: int, dur_ns: int, tid: int = 7, **args: Any) -> dict[str, Any]:
    """An event in Kineto's key order; times in ns from BASE_US."""
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 4697, "tid": tid,
        "ts": BASE_US + start_ns / 1000, "dur": dur_ns / 1000, "args": args,
    }  # fmt: skip


def op(name: str, start_ns: int, dur_ns: int, external_id: int = 1, tid: int = 7, **args: Any) -> dict[str, Any]:
    return event("cpu_op", name, start_ns, dur_ns, tid, **args, **{"External id": external_id})


def user_range(name: str, start_ns: int, dur_ns: int, tid: int = 7) -> dict[str, Any]:
    return event("user_annotation", name, start_ns, dur_ns, tid, **{"External id": 0})


def call(correlation: int, start_ns: int, dur_ns: int = 10, tid: int = 7) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", start_ns, dur_ns, tid, correlation=correlation)


def kernel(name: str, correlation: int, start_ns: int, dur_ns: int, **args: Any) -> dict[str, Any]:
    fixed = {"device": 0, "stream": 7, "correlation": correlation, "grid": [2, 3, 1], "block": [128, 1, 1]}
    return event("kernel", name, start_ns, dur_ns, 0, **(fixed | args))


def write(folder: Path, events: list[Any], **top: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **top}), encoding="utf-8")
    return path


CPU = [
    {"ph": "M", "name": "process_name", "ts": BASE_US - 5, "pid": 4697, "tid": 0, "args": {"name": "python"}},
    user_range("prefill", 0, 10_000),
    user_range("step0", 100, 9_800),
    user_range("model.layers.0.mlp", 200, 5_000),
    op("aten::linear", 300, 1_000, 11),
    op("aten::t", 310, 90, 12),
    op("aten::mm", 500, 700, 13),
    op("aten::resolve_conj", 510, 7, 14),
    user_range("nccl:all_reduce", 2_000, 500),
    op("aten::add", 2_100, 50, 15),
    op("aten::mul", 6_000, 100, 16),
    user_range("(sample)", 9_000, 500),
    op("aten::argmax", 9_100, 200, 17),
    op("aten::empty", 9_950, 20, 18),
    op("aten::zeros", 20_000, 30, 19),
    user_range("decode", 30_000, 1_000),
    user_range("step3", 30_100, 800),
    op("aten::mm", 30_200, 100, 20),
    op("aten::other_thread", 350, 40, 21, tid=8),
]


def test_ops_get_parents_self_times_and_ranges(tmp_path: Path) -> None:
    ops = read_kineto(write(tmp_path, CPU)).ops.set_index("external_id")
    assert ops.loc[11, ["dur_ns", "self_ns", "children", "ranges_inside"]].tolist() == [1000, 210, 2, 0]
    assert ops.loc[13, ["dur_ns", "self_ns", "children"]].tolist() == [700, 693, 1]
    assert ops.loc[14, "parent"] == ops.loc[13, "event"] == 6
    assert ops.loc[[11, 16, 17, 20, 21], "parent"].isna().all()
    where = {i: (r.phase, r.step, r.module) for i, r in ops.iterrows() if r.phase != "(unattributed)"}
    mlp = ("prefill", 0, "model.layers.0.mlp")
    assert where == {
        11: mlp, 12: mlp, 13: mlp, 14: mlp, 15: mlp,  # a framework's own range is no module
        16: ("prefill", 0, "(root)"),
        17: ("prefill", 0, "(sample)"),
        18: ("prefill", 0, "(unattributed)"),
        20: ("decode", 3, "(root)"),
    }  # fmt: skip
    assert ops.loc[19, ["phase", "module"]].tolist() == ["(unattributed)"] * 2
    assert ops.loc[[19, 21], "step"].isna().all()


def test_ranges_know_their_level_and_path(tmp_path: Path) -> None:
    ranges = read_kineto(write(tmp_path, CPU)).ranges
    assert dict(zip(ranges["path"], ranges["level"], strict=True)) == {
        "prefill": "phase",
        "prefill/step0": "step",
        "prefill/step0/model.layers.0.mlp": "module",
        "prefill/step0/model.layers.0.mlp/nccl:all_reduce": "other",
        "prefill/step0/(sample)": "module",
        "decode": "phase",
        "decode/step3": "step",
    }
    assert ranges["module"].tolist()[:4] == ["(unattributed)", "(root)"] + ["model.layers.0.mlp"] * 2


def test_a_module_may_be_named_like_a_phase_or_step(tmp_path: Path) -> None:
    events = [
        user_range("ProfilerStep#3", 0, 900),
        user_range("decode", 10, 800),
        user_range("step1", 20, 700),
        user_range("decode", 30, 300),
        user_range("step7", 40, 200),
        op("aten::mm", 50, 10),
    ]
    found = read_kineto(write(tmp_path, events)).ops.iloc[0]
    assert (found.phase, found.step, found.module) == ("decode", 1, "step7")


def test_a_range_inside_an_op_is_counted_there(tmp_path: Path) -> None:
    events = [op("outer", 0, 1000, 1), user_range("inside", 10, 900), op("inner", 20, 100, 2)]
    kineto = read_kineto(write(tmp_path, events))
    assert kineto.ops["ranges_inside"].tolist() == [1, 0]
    assert kineto.ops["children"].tolist() == [1, 0]
    assert kineto.ops["self_ns"].tolist() == [900, 100]
    assert kineto.ranges["op_event"].tolist() == [0]


def write_times(folder: Path, times: list[tuple[str, str]]) -> Path:
    """A trace of ops whose ts and dur are written as given."""
    head = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": '
    events = [f'{head}{ts}, "dur": {dur}, "args": {{"External id": 5}}}}' for ts, dur in times]
    (folder / "times.json").write_text(f'{{"traceEvents": [{", ".join(events)}]}}')
    return folder / "times.json"


def test_times_are_exact_integers(tmp_path: Path) -> None:
    times = [("8796093022207.000", "0.001"), ("8796093022207.123", "3.007"), ("8796093022207.999", "1")]
    ops = read_kineto(write_times(tmp_path, times)).ops
    assert ops["start_ns"].tolist() == [0, 123, 999]
    assert ops["dur_ns"].tolist() == [1, 3007, 1000]


def test_times_since_1970_are_exact_too(tmp_path: Path) -> None:
    # The float nearest to 1767189312345678.901 is 26 ns off.
    times = [("1767189312345678.901", "0.4"), ("1767189312345679.002", "0.4"), ("1767189312345680", "0.4")]
    assert float(times[0][0]) * 1000 % 1000 != 901
    assert read_kineto(write_times(tmp_path, times)).ops["start_ns"].tolist() == [0, 101, 1099]


CUDA = [
    user_range("prefill", 1000, 300),
    user_range("step0", 1010, 280),
    op("aten::mm", 1090, 100, 31),
    call(11, 1100),
    user_range("decode", 1301, 300),
    user_range("step0", 1310, 280),
    op("aten::add", 1340, 100, 32),
    call(12, 1350),
    call(13, 1360, tid=9),
    # The first kernel runs while the decode range is open, and long after its own.
    kernel("gemm", 11, 1500, 7500),
    kernel("copyk", 12, 9000, 100, **{"External id": 32}),
    kernel("by_id", 99, 9200, 10, **{"External id": 31}),
    kernel("other_thread", 13, 9300, 10),
    kernel("nobody", 98, 9400, 10, grid=None),
    event("gpu_memset", "Memset (Device)", 9500, 5, 0, device=1, stream=3, correlation=12),
]


def test_kernels_belong_to_their_launching_call(tmp_path: Path) -> None:
    kernels = read_kineto(write(tmp_path, CUDA)).kernels.set_index("name")
    assert kernels.groupby("phase")["dur_ns"].sum().to_dict() == {
        "prefill": 7510, "decode": 105, "(unattributed)": 20,
    }  # fmt: skip
    assert kernels["op_event"].astype(object).where(kernels["op_event"].notna(), None).to_dict() == {
        "gemm": 2, "copyk": 6, "by_id": 2, "other_thread": None, "nobody": None, "Memset (Device)": 6,
    }  # fmt: skip
    assert kernels.loc["gemm", "launch_ns"] == 100
    assert kernels.index[kernels["launch_ns"].isna()].tolist() == ["by_id", "nobody"]
    assert kernels.loc["gemm", ["grid", "block", "device", "stream"]].tolist() == ["2,3,1", "128,1,1", "cuda:0", 7]
    assert kernels.loc["Memset (Device)", ["kind", "device", "stream"]].tolist() == ["memset", "cuda:1", 3]
    assert kernels.loc[["Memset (Device)", "nobody"], "grid"].isna().all()


def test_launches_of_a_gpu_are_kernels(tmp_path: Path) -> None:
    table = launches(read_kineto(write(tmp_path, CUDA)))
    assert table["kernel"].tolist()[:2] == ["gemm", "copyk"]
    assert table["op"].tolist()[:2] == ["aten::mm", "aten::add"]
    assert table["ordinal"].tolist() == [0, 0, 1, 0, 1, 1]
    assert int(table["time_ns"].sum()) == 7635


def test_launches_of_a_cpu_are_ops_with_self_time(tmp_path: Path) -> None:
    kineto = read_kineto(write(tmp_path, CPU))
    table = launches(kineto)
    assert len(table) == len(kineto.ops)
    assert int(table["time_ns"].sum()) == 1000 + 50 + 100 + 200 + 20 + 30 + 100 + 40
    assert table["start_ns"].is_monotonic_increasing
    assert set(table["device"]) == {"cpu"}


TRICKY = [
    *CUDA,
    op('quote " and \\ brace } {', 20_000, 5, 77, **{"Concrete Inputs": ["} }", "{", 'a"b']}),
    op("new\nline\tand Ω", 20_100, 5, 78, **{"Concrete Inputs": ["} },", ""]}),
    op("nested", 20_200, 5, 79, **{"Input Dims": [[1, 2], [3]], "More": {"External id": 1}}),
    {"ph": "X", "cat": "python_function", "name": "f", "pid": 1, "tid": 1, "ts": BASE_US, "dur": 1},
    {"ph": "s", "id": 3, "pid": 1, "tid": 1, "ts": BASE_US, "cat": "ac2g", "name": "ac2g"},
    {"name": "last", "cat": "cpu_op", "ph": "X", "dur": 1, "ts": BASE_US + 30, "tid": 7, "pid": 4697},
]


def _layouts() -> dict[str, str]:
    whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": TRICKY, "end": 12}
    last = {k: whole[k] for k in ("traceEvents", "deviceProperties", "end")}
    return {
        "default": json.dumps(whole),
        "compact": json.dumps(whole, separators=(",", ":")),
        "indented": json.dumps(whole, indent=2),
        "unicode": json.dumps(whole, ensure_ascii=False),
        "sorted": json.dumps(whole, sort_keys=True),
        "events first": json.dumps(last, indent=1),
        "bare array": json.dumps(TRICKY),
        "kineto": '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "GPU"}],\n  "traceEvents": [\n'
        + ",\n".join(_as_kineto(e) for e in TRICKY) + "\n  ],\n  \"end\": 1.5e3\n}",
    }  # fmt: skip


def _as_kineto(e: dict[str, Any]) -> str:
    if "args" not in e or e["ph"] != "X":
        return json.dumps(e)
    head = ", ".join(f"{json.dumps(k)}: {json.dumps(e[k])}" for k in ("ph", "cat", "name", "pid", "tid"))
    args = json.dumps(e["args"])[1:-1]
    times = f'"ts": {e["ts"]:.3f}, "dur": {e["dur"]:.3f}'
    return f'  {{\n    {head},\n    {times},\n    "args": {{\n      {args}\n    }}\n  }}'


@pytest.mark.parametrize("block", [1 << 22, 61])
@pytest.mark.parametrize("layout", _layouts())
def test_every_layout_of_the_same_json_gives_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, block: int
) -> None:
    expected = read_kineto(write(tmp_path, TRICKY))
    assert expected.ops["name"].tolist()[-4:] == [TRICKY[i]["name"] for i in (-6, -5, -4, -1)]
    assert expected.ops["external_id"].tolist()[-4:-1] == [77, 78, 79]
    monkeypatch.setattr(json_stream, "_BLOCK", block)
    path = tmp_path / "other.json"
    path.write_bytes(_layouts()[layout].encode())
    _assert_same(read_kineto(path), expected)
    path.write_bytes(b"\xef\xbb\xbf" + _layouts()[layout].encode())
    _assert_same(read_kineto(path), expected)
    path.write_bytes(gzip.compress(_layouts()[layout].encode()))
    _assert_same(read_kineto(path), expected)


def _assert_same(one: Kineto, other: Kineto) -> None:
    for table in ("ops", "kernels", "ranges"):
        assert_frame_equal(getattr(one, table), getattr(other, table))


TORCH_2_13 = """ {
    "schemaVersion": 1,
    "deviceProperties": [
    ],
      "with_stack": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
  {
    "ph": "X",
    "cat": "user_annotation",
    "name": "prefill",
    "pid": 4697,
    "tid": 4697,
    "ts": 5144380813820.124,
    "dur": 50.250
    ,
    "args": {
      "External id": 1,"Record function id": 0, "Ev Idx": 0
    }
  },
  {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 4697,
    "tid": 4697,
    "ts": 5144380813821.125,
    "dur": 7.001
    ,
    "args": {
      "External id": 2,"Record function id": 0, "Concrete Inputs": ["", "}, {"], "Input Dims": [[1, 8], [8, 8]]
    }
  },
  {
    "ph": "X",
    "cat": "python_function",
    "name": "nn.Module: Linear_0",
    "pid": 4697,
    "tid": 4697,
    "ts": 5144380813822.000,
    "dur": 1.000
    ,
    "args": {
      "Python parent id": null, "Python id": 1, "Ev Idx": 2
    }
  },
  {
    "name": "process_name",
    "ph": "M",
    "ts": 5144380813820.124,
    "pid": 4697,
    "tid": 0,
    "args": {
      "name": "python"
    }
  }
  ],"traceName": "t.json"
}
"""


def test_the_layout_of_torch_2_13_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(TORCH_2_13)
    op = read_kineto(tmp_path / "t.json").ops.iloc[0]
    assert (op["event"], op["name"], op["phase"], op["external_id"]) == (1, "aten::mm", "prefill", 2)
    assert (op["start_ns"], op["dur_ns"], op["thread"]) == (1001, 7001, 4697)


def _many(one: str) -> str:
    """A trace of 6,000 events, some of which are `one`: more than a block of the file."""
    events = [json.dumps(op("aten::mm", k, 1, k, **{"Input Dims": [[1, 2]] * 40})) for k in range(6000)]
    events[3::1000] = [one] * 6
    return f'{{"traceEvents": [{", ".join(events)}], "end": 1}}'


@pytest.mark.parametrize(
    "args",
    [
        '"bandwidth": NaN, "External id": 5',
        '"bandwidth": -Infinity, "External id": 5',
        '"Kernel": "a\tb", "External id": 5',
        '"Lone": "\\ud800", "External id": 5',
        '"Inner": [{"External id": 1}, {"External id": 2}], "External id": 5',
        '"Text": "{\\"External id\\": 1}, {", "External id": 5',
        '"External id": 5, "Text": "}, {}, {}], \\\\", "Long": "' + "}, {" * 5000 + '"',
    ],
)
def test_what_strict_json_forbids_or_boundaries_hide_in_changes_no_other_event(tmp_path: Path, args: str) -> None:
    head = '{"ph": "X", "cat": "cpu_op", "name": "odd", "pid": 1, "tid": 8, "ts": 5.5, "dur": 1, "args": '
    (tmp_path / "t.json").write_text(_many(f"{head}{{{args}}}}}"))
    ops = read_kineto(tmp_path / "t.json").ops.sort_values("event")
    odd = ops[ops["name"] == "odd"]
    assert odd["event"].tolist() == list(range(3, 6000, 1000))
    assert odd["external_id"].tolist() == [5] * 6
    assert ops["event"].tolist() == list(range(6000))
    rest = ops[ops["name"] != "odd"]
    assert (rest["external_id"] == rest["event"]).all()


def test_a_flaw_in_the_middle_of_a_long_file_is_named_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(_many('{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1}'))
    with pytest.raises(ReportError, match=r"traceEvents\[3\] has no dur"):
        read_kineto(tmp_path / "t.json")
    bad = op("a", 0, 1, 1 << 70)
    (tmp_path / "t.json").write_text(_many(json.dumps(bad)))
    with pytest.raises(ReportError, match=r"traceEvents\[3\] has a value of the wrong kind"):
        read_kineto(tmp_path / "t.json")


def test_device_properties_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, CUDA, deviceProperties=[{"id": 0, "name": "NVIDIA H100", "numSms": 132}])
    assert read_kineto(path).device_properties == [{"id": 0, "name": "NVIDIA H100", "numSms": 132}]


WHOLE = json.dumps({"traceEvents": CPU}, indent=1).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not JSON"),
        (b"==PROF== Connected to process 12\n", "is not JSON"),
        (b'"just a text"', "is not JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\x01", "is not JSON"),
        (b"{}", "no traceEvents"),
        (b'{"model_type": "llama", "hidden_size": 4096}', "no traceEvents"),
        (b'{"traceEvents": 3}', "no traceEvents"),
        (b'{"traceEvents": []}', "holds no op"),
        (b'{"traceEvents": [{"ph": "i", "name": "x", "ts": 1}]}', "holds no op"),
        (b'{"traceEvents": [1, 2]}', "is no event"),
        (b'{"traceEvents": [null, {}]}', "traceEvents[0] is no event"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "", "pid": 1, "tid": 1,"ts": {}, "dur": 1}]}', "kind"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1}]}', "has no dur"),
        (b"{traceEvents: []}", "not valid JSON"),
        (WHOLE[: len(WHOLE) // 2], "cut short"),
        (WHOLE[:-2], "cut short"),
        (b'{"traceEvents": [', "cut short"),
        (b'{"schemaVersion": 1, "tra', "cut short"),
        (gzip.compress(WHOLE)[:-9], "cut short"),
        (gzip.compress(WHOLE)[:200] + b"\xff" * 50 + gzip.compress(WHOLE)[250:], "gzip"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_trace_is_refused_with_a_remedy(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ReportError) as caught:
        read_kineto(path)
    assert says in caught.value.what
    assert caught.value.hint


DAMAGE = [b'"', b"{", b"}", b"[", b"9", b"-", b"\xff", b"null", b""]


@pytest.mark.parametrize("layout", ["kineto", "indented"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read_but_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, layout: str, data: st.DataObject
) -> None:
    content = bytearray(_layouts()[layout].encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.sampled_from(DAMAGE))
    path = tmp_path_factory.mktemp("d") / "x.json"
    path.write_bytes(content)
    try:
        kineto = read_kineto(path)
    except ReportError as refused:
        said = refused.what
    else:
        said = str(path)
        assert len(kineto.ops) + len(kineto.kernels) + len(kineto.ranges) > 0
    assert str(path) in said


def test_a_missing_file_is_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"nothing\.json"):
        read_kineto(tmp_path / "nothing.json")


def test_junk_inside_a_long_file_is_not_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_BLOCK", 256)
    monkeypatch.setattr(json_stream, "_LONGEST_ELEMENT", 1024)
    text = json.dumps({"traceEvents": CPU * 50}).replace('"args"', "args", 1)
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ReportError, match="not valid JSON"):
        read_kineto(tmp_path / "x.json")


@st.composite
def trees(draw: st.DrawFn, start: int = 0, depth: int = 0) -> tuple[int, list[Any]]:
    """A duration, and children as (start, duration, children) one after the other inside it."""
    at = start
    children = []
    for _ in range(draw(st.integers(0, 3)) if depth < 4 else 0):
        at += draw(st.integers(1, 9))
        length, below = draw(trees(at, depth + 1))
        children.append((at, length, below))
        at += length
    return at - start + draw(st.integers(1, 9)), children


@settings(max_examples=60, deadline=None)
@given(forest=st.lists(trees(), min_size=1, max_size=4))
def test_nesting_is_that_of_the_tree(tmp_path_factory: pytest.TempPathFactory, forest: list[Any]) -> None:
    events: list[Any] = []
    expected: dict[int, tuple[Any, int]] = {}

    def add(start: int, length: int, children: list[Any], parent: int | None, base: int) -> None:
        me = len(events)
        events.append(op(f"op{me}", base + start, length))
        expected[me] = (parent, length - sum(c[1] for c in children))
        for c in children:
            add(*c, me, base)

    base = 0
    for length, children in forest:
        add(0, length, children, None, base)
        base += length
    ops = read_kineto(write(tmp_path_factory.mktemp("t"), events)).ops
    parents = ops["parent"].astype(object).where(ops["parent"].notna(), None)
    assert dict(zip(ops["event"], zip(parents, ops["self_ns"], strict=True), strict=True)) == expected
    assert ops["self_ns"].sum() == base


@pytest.mark.skipif(not CAPTURES, reason="no captures beside the checkout")
@pytest.mark.parametrize("path", CAPTURES, ids=lambda p: p.name)
def test_captures_agree_with_a_plain_walk_over_the_json(path: Path) -> None:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kineto = read_kineto(path)
    cpu = {i: e for i, e in enumerate(events) if e.get("cat") == "cpu_op" and e["ph"] == "X"}
    gpu = {i: e for i, e in enumerate(events) if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")}
    assert len(kineto.ops) == len(cpu) > 4000
    assert len(kineto.kernels) == len(gpu) > 900
    assert sum(round(e["dur"] * 1000) for e in gpu.values()) == kineto.kernels["dur_ns"].sum()
    # Parents and self times by brute force: the shortest op around each one.
    own = {i: round(e["dur"] * 1000) for i, e in cpu.items()}
    parents: dict[int, int] = {}
    by_thread: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for i, e in cpu.items():
        by_thread[e["tid"]].append((_ns(e["ts"]), _ns(e["ts"]) + own[i], i))
    for members in by_thread.values():
        for start, end, i in members:
            around = [(b - a, -j, j) for a, b, j in members if a <= start < b and end <= b and j < i]
            if around:
                parents[i] = min(around)[2]
    for i, parent in parents.items():
        own[parent] -= round(cpu[i]["dur"] * 1000)
    ops = kineto.ops.set_index("event")
    assert {i: int(p) for i, p in ops["parent"].dropna().items()} == parents
    assert ops["self_ns"].to_dict() == own
    # Where both are known, the op around the launching call is the one torch named.
    named = kineto.kernels.dropna(subset=["external_id", "op_event", "launch_ns"])
    assert len(named) > 700
    outer = ops["external_id"].reindex(named["op_event"]).to_numpy() == named["external_id"].to_numpy()
    assert outer.mean() > 0.99


def _ns(ts: float) -> int:
    return int(ts) * 1000 + round((ts - int(ts)) * 1000)


def test_what_torch_records_today_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    weight = torch.ones(8, 8)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as recorded:
        for phase, steps in (("prefill", 1), ("decode", 2)):
            with record_function(phase):
                for k in range(steps):
                    with record_function(f"step{k}"), record_function("model.layers.0.mlp"):
                        torch.nn.functional.linear(weight, weight)
    recorded.export_chrome_trace(str(tmp_path / "t.json"))
    one_by_one: list[int] = []
    convert = kineto_events._Columns._convert
    monkeypatch.setattr(
        kineto_events._Columns,
        "_convert",
        lambda self, position, event: one_by_one.append(position) or convert(self, position, event),
    )
    kineto = read_kineto(tmp_path / "t.json")
    # The layout of the day takes the quick way, all but the last event, which none follows.
    assert len(one_by_one) == 1
    mm = kineto.ops[kineto.ops["name"] == "aten::mm"]
    assert list(zip(mm["phase"], mm["step"], mm["module"], strict=True)) == [
        ("prefill", 0, "model.layers.0.mlp"),
        ("decode", 0, "model.layers.0.mlp"),
        ("decode", 1, "model.layers.0.mlp"),
    ]
    by_name = {e.key: e.self_cpu_time_total for e in recorded.key_averages()}
    assert mm["self_ns"].sum() / 1000 == pytest.approx(by_name["aten::mm"], abs=0.01)


GPU = [op("aten::mm", 100, 50, 3), call(5, 110), kernel("gemm", 5, 500, 90)]


def test_launches_have_shared_memory(tmp_path: Path) -> None:
    known = [*GPU[:2], kernel("gemm", 5, 500, 90, **{"shared memory": 49152})]
    assert launches(read_kineto(write(tmp_path, known)))["shared_bytes"].tolist() == [49152]
    assert launches(read_kineto(write(tmp_path, GPU)))["shared_bytes"].isna().all()


def test_kernels_without_any_host_event(tmp_path: Path) -> None:
    row = launches(read_kineto(write(tmp_path, GPU[2:]))).iloc[0]
    assert (row["kernel"], row["time_ns"], row["phase"]) == ("gemm", 90, "(unattributed)")
    assert row[["thread", "launch_ns", "op"]].isna().all()


@pytest.mark.parametrize(("device", "name"), [(2_000_000_000, "cuda:2000000000"), (-3, "cuda")])
def test_any_device_number(tmp_path: Path, device: int, name: str) -> None:
    table = read_kineto(write(tmp_path, [*GPU[:2], kernel("gemm", 5, 500, 90, device=device)])).kernels
    assert table["device"].tolist() == [name]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 10**30, 1e17])
@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("which", [0, 2])
def test_impossible_times_are_refused(tmp_path: Path, value: float, field: str, which: int) -> None:
    events = [dict(each) for each in GPU]
    events[which][field] = value
    with pytest.raises(ReportError, match=rf"traceEvents\[{which}\] has a value of the wrong kind"):
        read_kineto(write(tmp_path, events))


@pytest.mark.parametrize("ts", ["1767189312345678.901", "-1e1000000", "4503599627370496"])
def test_impossible_times_are_refused_between_exact_ones(tmp_path: Path, ts: str) -> None:
    times = [("1767189312345678.901", "0.4"), (ts, "1099511627776.0"), ("1767189312345680", "0.4")]
    with pytest.raises(ReportError, match=r"traceEvents\[1\] has a value of the wrong kind"):
        read_kineto(write_times(tmp_path, times))


def test_names_and_numbers_that_no_table_can_hold(tmp_path: Path) -> None:
    steps = [user_range("decode", 0, 900), user_range("step" + "9" * 30, 10, 800)]
    table = read_kineto(write(tmp_path, [*steps, *GPU[:2], kernel("k\ud800", 5, 500, 90)])).kernels
    assert table["name"].tolist() == ["k?"]
    assert table["phase"].tolist() == ["decode"]
    assert table["step"].isna().all()
    threads = read_kineto(write(tmp_path, [op("aten::mm", 0, 5, tid=10**25)])).ops["thread"]
    assert (threads < 0).all()


@pytest.mark.parametrize(
    "inside",
    [
        '"x": ' + "[" * 100_000,
        '"traceEvents": [' + '{"a":' * 100_000,
        '"traceEvents": [{"a": ' + "1" * 5000 + "}]}",
        '"traceEvents": [{"a": ' + "[" * 5000 + "]" * 5000 + "}]}",
        '"traceEvents": [{"ph": "X", "ts": 1e9' + "9" * 30 + "}]}",
    ],
    ids=["lists", "objects", "digits", "lists with an end", "exponent"],
)
def test_nesting_and_numbers_without_end_are_no_trace(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text("{" + inside, encoding="utf-8")
    with pytest.raises(ReportError, match="not valid JSON"):
        read_kineto(path)
