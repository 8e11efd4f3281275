"""Phase, module and kernel tables, against sums worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.place import place
from kernelroof.roofline.summary import (
    estimate_points,
    kernel_table,
    kind_table,
    label_of,
    module_table,
    phase_summary,
    role_of,
    top_kernels,
)

# 1 TFLOP/s and 100 GB/s.
MACHINE = Ceilings("test", 1e12, 1e11, None, "float32", "measured", None, "")
WALL_NS = 10_000_000


def placed(*rows: tuple[str, str, str, int, int | None, int | None], **more: list[Any]) -> pd.DataFrame:
    """Rows of (module, kind, op, time_ns, flops, bytes read) in the phase decode."""
    columns = ("module", "kind", "kernel", "time_ns", "flops", "dram_read_bytes")
    frame = pd.DataFrame(list(rows), columns=columns).assign(
        phase="decode", step=0, dram_write_bytes=0, count=1, reason=None, **more
    )
    frame["op"] = frame["kernel"]
    names = ("time_ns", "flops", "dram_read_bytes", "dram_write_bytes", "count", "step")
    return place(frame.astype(dict.fromkeys(names, "Int64")), MACHINE)


def ops(*rows: tuple[str, str, str, int, int, int, int]) -> pd.DataFrame:
    """Rows of (module, op, flops_kind, flops, weights, activations read, KV read)."""
    columns = ("module", "op", "flops_kind", "flops", "weight_bytes", "act_read_bytes", "kv_read_bytes")
    frame = pd.DataFrame(list(rows), columns=columns)
    kinds = {"layers": "mlp", "lm_head": "head"}
    return frame.assign(
        phase="decode", count=1, act_write_bytes=0, kv_write_bytes=0, dtype="float32",
        kind=[kinds[m.split(".")[0].replace("model", "layers")] for m in frame["module"]],
    )  # fmt: skip


UP = "model.layers.{}.mlp.up_proj"
RUN = placed(
    (UP.format(0), "mlp", "aten::mm", 1_000_000, 40_000_000, 80_000_000),
    (UP.format(11), "mlp", "aten::mm", 3_000_000, 40_000_000, 80_000_000),
    (UP.format(0), "mlp", "aten::linear", 500_000, None, None),
    ("lm_head", "head", "aten::mm", 2_000_000, 100_000_000, 190_000_000),
    ("model.layers.0", "residual", "aten::view", 400, 0, 0),
)
OPS = ops(
    (UP.format(0), "aten::mm", "matmul", 40_000_000, 79_000_000, 1_000_000, 0),
    (UP.format(11), "aten::mm", "matmul", 40_000_000, 79_000_000, 1_000_000, 0),
    ("lm_head", "aten::mm", "matmul", 100_000_000, 150_000_000, 20_000_000, 20_000_000),
    ("lm_head", "aten::mul", "elementwise", 1_000, 0, 8_000, 0),
)


def test_roles_and_labels() -> None:
    assert role_of("model.layers.11.mlp.experts.3.up") == "model.layers.*.mlp.experts.*.up"
    assert role_of("(root)") == "(root)"
    assert label_of("model.layers.*.mlp.down_proj", "aten::mm") == "mlp.down_proj mm"
    assert label_of("model.layers.*.self_attn", "aten::cat") == "self_attn cat"
    assert label_of("lm_head", "aten::mm") == "lm_head mm"
    assert label_of("(sample)", "aten::argmax") == "(sample) argmax"
    assert label_of("model.layers.*", "aten::add") == "layers add"


def test_phase_summary_adds_up() -> None:
    model = (180_000_000, 328_000_000)
    got = phase_summary(RUN, "decode", wall_ns=WALL_NS, steps=2, ceilings=MACHINE, ops=OPS, model=model)
    assert got.kernel_ns == 6_500_400
    assert (got.launches, got.unplaced, got.unplaced_ns) == (5, 1, 500_000)
    assert (got.flops, got.bytes) == (180_000_000, 350_000_000)
    # Ideal: 0.8 + 0.8 + 1.9 ms; recoverable: 0.2 + 2.2 + 0.1 ms and the view.
    assert got.ideal_ns == pytest.approx(3_500_000)
    assert got.recoverable_ns == pytest.approx(2_500_400)
    # 3 ms of 6.5004 inefficient, 3 ms bound by memory: the earlier one of equals may win, never latency.
    assert got.bound in ("memory", "inefficient")
    assert got.bound_pct == pytest.approx(100 * 3_000_000 / 6_500_400)
    assert (got.top_role, got.top_recoverable_ns) == ("mlp.up_proj mm", pytest.approx(2_400_000))
    assert got.estimated is not None
    assert (got.estimated.flops, got.estimated.model_flops) == (180_001_000, 180_000_000)
    assert (got.estimated.bytes, got.estimated.weight_bytes) == (350_008_000, 308_000_000)
    assert got.estimated.kv_read_bytes == 20_000_000
    assert got.model == model
    assert got.model_ns == pytest.approx(3_280_000)
    assert got.mfu_pct == pytest.approx(100 * 180e6 / (0.01 * 1e12))
    assert got.mbu_pct == pytest.approx(100 * 328e6 / (0.01 * 1e11))


def test_without_estimate_utilisation_is_null() -> None:
    got = phase_summary(RUN, "decode", wall_ns=WALL_NS, steps=1, ceilings=MACHINE)
    assert (got.mfu_pct, got.mbu_pct, got.estimated, got.model_ns) == (None, None, None, None)


def test_phase_without_kernels() -> None:
    got = phase_summary(RUN, "prefill", wall_ns=WALL_NS, steps=1, ceilings=MACHINE, ops=OPS)
    assert (got.launches, got.kernel_ns, got.flops, got.bound) == (0, 0, None, "unknown")
    assert len(module_table(RUN, "prefill", wall_ns=WALL_NS, ceilings=MACHINE, ops=OPS)) == 0


def test_module_table_groups_layers_and_sorts_by_recoverable() -> None:
    got = module_table(RUN, "decode", wall_ns=WALL_NS, ceilings=MACHINE, ops=OPS)
    assert list(got["role"]) == ["model.layers.*.mlp.up_proj", "lm_head", "model.layers.*"]
    up, head, layer = (got.iloc[i] for i in range(3))
    assert (up["launches"], up["time_ns"], up["unplaced"]) == (3, 4_500_000, 1)
    assert up["share_pct"] == pytest.approx(45)
    assert up["kind"] == "mlp"
    assert up["recoverable_ns"] == pytest.approx(2_400_000)
    assert up["pct_of_roof"] == pytest.approx(100 * 1.6 / 4)
    assert (up["est_flops"], up["est_bytes"]) == (80_000_000, 160_000_000)
    assert up["est_ideal_ns"] == pytest.approx(1_600_000)
    assert (head["est_flops"], head["est_bytes"]) == (100_001_000, 190_008_000)
    assert pd.isna(layer["est_flops"])


def test_estimated_but_not_recorded_is_kept() -> None:
    got = module_table(RUN[RUN["module"] != "lm_head"], "decode", wall_ns=WALL_NS, ceilings=MACHINE, ops=OPS).set_index(
        "role"
    )
    head = got.loc["lm_head"]
    assert pd.isna(head["time_ns"])
    assert head["launches"] == 0
    assert head["kind"] == "head"
    assert head["bound"] == "unknown"
    assert "no kernel was recorded" in head["reason"]
    assert head["est_flops"] == 100_001_000


def test_kernel_table_separates_kernels_of_a_module() -> None:
    got = kernel_table(RUN, "decode", wall_ns=WALL_NS, ceilings=MACHINE, ops=OPS).set_index("label")
    assert got.loc["mlp.up_proj mm", "time_ns"] == 4_000_000
    assert got.loc["mlp.up_proj mm", "est_flops"] == 80_000_000
    assert got.loc["mlp.up_proj linear", "time_ns"] == 500_000
    assert pd.isna(got.loc["mlp.up_proj linear", "est_flops"])
    assert got["time_ns"].sum() == RUN["time_ns"].sum()
    # The estimate of the head's multiplication met no kernel.
    assert pd.isna(got.loc["lm_head mul", "time_ns"])


def test_above_the_roof_on_the_whole_has_a_reason() -> None:
    """Each launch has words of its own, and most of the time may be below 105 %: the row's figures say it."""
    run = placed(
        ("lm_head", "head", "aten::mm", 1_000_000, 100_000, 104_000_000),
        ("lm_head", "head", "aten::mm", 800_000, 100_000, 104_000_000),
    )
    for table in (kernel_table, module_table):
        [row] = table(run, "decode", wall_ns=WALL_NS, ceilings=MACHINE).to_dict("records")
        assert row["pct_of_roof"] == pytest.approx(100 * 2.08 / 1.8)
        assert row["bound"] == "memory"
        assert row["reason"].startswith("cache-resident: 116 GB/s is 116 % of the DRAM roof (100 GB/s)")
        assert row["reason"].endswith("or the roof was measured too low")


def test_same_label_gets_its_kind() -> None:
    run = placed(
        ("model.layers.0.self_attn", "cache", "aten::cat", 9, 0, 8),
        ("model.layers.0.self_attn", "rotary", "aten::cat", 8, 0, 8),
    )
    got = kernel_table(run, "decode", wall_ns=20, ceilings=MACHINE)
    assert set(got["label"]) == {"self_attn cat (cache)", "self_attn cat (rotary)"}
    assert [name for name, _ in top_kernels(run, "decode", 5)] == [
        "self_attn cat (cache)",
        "self_attn cat (rotary)",
    ]


def test_top_kernels_by_time() -> None:
    got = top_kernels(RUN, "decode", 2)
    assert [(name, len(rows)) for name, rows in got] == [("mlp.up_proj mm", 2), ("lm_head mm", 1)]
    assert list(got[0][1].columns)[: len(RUN.columns)] == list(RUN.columns)


def test_one_op_of_several_kernels_is_judged_as_one_launch() -> None:
    run = placed(
        ("lm_head", "head", "gemm", 600_000, None, None),
        ("lm_head", "head", "reduce", 400_000, None, None),
        group=[7, 7], group_flops=[40_000_000] * 2, group_bytes=[80_000_000] * 2,
    )  # fmt: skip
    head = module_table(run, "decode", wall_ns=WALL_NS, ceilings=MACHINE).iloc[0]
    assert (head["flops"], head["bytes"], head["time_ns"]) == (40_000_000, 80_000_000, 1_000_000)
    assert head["pct_of_roof"] == pytest.approx(80)
    kernels = kernel_table(run, "decode", wall_ns=WALL_NS, ceilings=MACHINE)
    assert kernels["flops"].isna().all()


def test_estimate_points_by_kind() -> None:
    got = estimate_points(OPS, "decode")
    assert got["phase"] == (180_001_000, 350_008_000)
    assert got["modules"] == {"mlp": (80_000_000, 160_000_000), "head": (100_001_000, 190_008_000)}


def test_a_kind_of_work_is_summed_over_modules_and_a_module_split_by_kind():
    attention = "model.layers.{}.self_attn"
    run = placed(
        (attention.format(0), "cache", "aten::cat", 5_000_000, 0, 1_000_000),
        (attention.format(1), "cache", "aten::cat", 3_000_000, 0, 1_000_000),
        (attention.format(0), "attention", "aten::sdpa", 2_000_000, 0, 1_000_000),
        ("lm_head", "head", "aten::mm", 2_500_000, 100_000_000, 190_000_000),
    )
    table = kind_table(run, "decode", wall_ns=WALL_NS, ceilings=MACHINE).set_index("kind")
    # 1 MB at 100 GB/s are 10 us.
    assert table["recoverable_ns"].to_dict() == {"cache": 7_980_000, "attention": 1_990_000, "head": 600_000}
    assert table.index.tolist() == ["cache", "attention", "head"]
    assert table["share_pct"].tolist() == pytest.approx([80, 20, 25])


def test_kernels_of_one_op_are_judged_together_in_their_kind():
    split = {"group": [7, 7], "group_flops": [40_000_000] * 2, "group_bytes": [80_000_000] * 2}
    rows = [(UP.format(0), "mlp", "gemm", 600_000, None, None), (UP.format(0), "mlp", "reduce", 400_000, None, None)]
    table = kind_table(placed(*rows, **split), "decode", wall_ns=WALL_NS, ceilings=MACHINE)
    assert table["recoverable_ns"].tolist() == [200_000]


def test_what_prepares_an_op_does_not_do_its_work_again():
    """A memset beside the kernel of its op: the op's work stands on both rows' group, and is counted once."""
    group = {"group": [7, 7], "group_flops": [40_000_000] * 2, "group_bytes": [80_000_000] * 2}
    rows = [
        (UP.format(0), "mlp", "gemm", 1_000_000, 40_000_000, 80_000_000),
        (UP.format(0), "mlp", "Memset", 2_000, None, None),
    ]
    table = module_table(placed(*rows, **group), "decode", wall_ns=WALL_NS, ceilings=MACHINE)
    assert table["flops"].tolist() == [40_000_000]
    assert table["recoverable_ns"].tolist() == [200_000]
    assert table["unplaced_ns"].tolist() == [2_000]
