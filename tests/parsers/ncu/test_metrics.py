"""From named metrics to counters: bytes, FLOPs, ceilings, and what is not known."""

import json

import pandas as pd
import pytest
from kernelroof.parsers.ncu import read_ncu
from kernelroof.parsers.ncu_metrics import counters, reasons_of
from kernelroof.parsers.ncu_page import IDENTITY, NcuPage

FADD = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
OPS = "sm__ops_path_tensor_{}.sum"
TIME = {"gpu__time_duration.sum": ("ns", 1000)}


def only(texts, metrics, **more):
    units = {name: cell if isinstance(cell, tuple) else ("", cell) for name, cell in metrics.items()}
    return read_ncu(texts.raw({**TIME, **units}, **more)).counters.iloc[0]


def inst(**counts):
    return {FADD.format(op): ("inst", count) for op, count in counts.items()}


def test_fma_counts_two(texts):
    row = only(texts, inst(fadd=10, fmul=20, ffma=1000))
    assert row["flops"] == 2030
    assert not row["flops_upper_bound"]
    assert "tensor pipe not observed" in reasons_of(row)["flops"]


def test_half_is_packed_and_an_upper_bound(texts):
    row = only(texts, inst(hadd=10, hmul=20, hfma=1000))
    assert row["flops"] == 4060
    assert row["flops_upper_bound"]


def test_families_together_and_by_type(texts):
    row = only(texts, inst(fadd=1, fmul=2, ffma=3, dadd=4, dmul=5, dfma=6, hadd=0, hmul=0, hfma=0))
    assert json.loads(row["flops_by_type"]) == {"fp32": 9, "fp64": 21, "fp16": 0}
    assert row["flops"] == 30


def test_family_without_its_fma_is_left_out(texts):
    row = only(texts, inst(fadd=10, fmul=20))
    assert row.isna()["flops"]
    row = only(texts, {**inst(fadd=1, fmul=1, ffma=1, dadd=5)})
    assert row["flops"] == 4
    assert "dmul" in reasons_of(row)["flops"]


def test_rates_times_cycles(texts):
    metrics = {
        FADD.format("ffma").replace(".sum", ".sum.per_cycle_elapsed"): ("inst/cycle", 10),
        "smsp__cycles_elapsed.avg": ("cycle", 500),
    }
    assert only(texts, metrics)["flops"] == 10000


@pytest.mark.parametrize(
    ("metrics", "cc", "flops"),
    [
        ({"src_fp8": 137438953472}, "9.0", 137438953472),
        ({"src_fp8_dst_fp32": 137438953472}, "8.9", 137438953472),
        ({"src_bf16_dst_fp32": 7, "src_bf16_dst_fp32_sparsity_off": 7, "src_bf16_dst_fp32_sparsity_on": 0}, "8.0", 7),
        ({"src_bf16_dst_fp32_sparsity_off": 7, "src_bf16_dst_fp32_sparsity_on": 1}, "8.0", 8),
        ({"src_bf16_dst_fp32": 7, "op_hgmma_src_bf16_dst_fp32": 7}, "9.0", 7),
        ({"op_hgmma_src_bf16_dst_fp32": 7, "op_hmma_src_bf16_dst_fp32": 2}, "9.0", 9),
        ({"op_hgmma_src_bf16_dst_fp32_sparsity_off": 7, "op_hgmma_src_bf16_dst_fp32_sparsity_on": 1,
          "op_hgmma_src_bf16_dst_fp32": 8, "op_hmma_src_bf16_dst_fp32": 2}, "9.0", 10),
        ({"op_hgmma_src_fp16": 7, "op_hmma_src_fp16": 5, "op_hmma_src_fp16_dst_fp16": 2,
          "op_hmma_src_fp16_dst_fp32": 3}, "9.0", 12),
        ({"op_hgmma_src_fp16": 7, "op_hmma_src_fp16_dst_fp16": 2, "op_hmma_src_fp16_dst_fp32": 3}, "9.0", 12),
        ({"src_int8": 20, "op_igmma_src_int8": 15, "op_imma_src_int8": 5}, "9.0", 20),
        ({"src_fp16_dst_fp16": 3, "src_fp16_dst_fp32": 4}, "7.0", 7),
        ({"src_fp16_bf16_tf32_dst_fp32": 4, "src_int8": 1}, "7.5", 5),
        ({"src_bf16_dst_fp32": "n/a", "src_bf16_dst_fp32_sparsity_off": 7, "src_bf16_dst_fp32_sparsity_on": 0},
         "8.6", 7),
    ],
)  # fmt: skip
def test_tensor_ops_never_count_two_levels(texts, metrics, cc, flops):
    row = only(texts, {OPS.format(name): count for name, count in metrics.items()}, cc=cc)
    assert row["flops"] == flops


def test_sub_partition_counters_only_where_the_whole_is_absent(texts):
    metrics = {OPS.format("src_fp64"): 5, OPS.format("src_fp64").replace("sm__", "smsp__"): 5}
    assert only(texts, metrics)["flops"] == 5
    del metrics[OPS.format("src_fp64")]
    assert only(texts, metrics)["flops"] == 5


@pytest.mark.parametrize("ops", [{}, {OPS.format("src_bf16_dst_fp32"): 0}])
@pytest.mark.parametrize("pipe", ["sm__pipe_tensor_cycles_active.sum", "sm__inst_executed_pipe_tensor.sum"])
def test_silent_tensor_pipe_is_unknown(texts, ops, pipe):
    row = only(texts, {**inst(fadd=0, fmul=0, ffma=5), **ops, pipe: 12345}, cc="9.0")
    assert row.isna()["flops"]
    assert "tensor pipe was active" in reasons_of(row)["flops"]


def test_packed_half_instructions_explain_an_active_tensor_pipe(texts):
    """HFMA2 runs on the tensor pipe of A100 and H100: 6400 thread instructions are 200 of a warp, 100 cycles."""
    known = {**inst(fadd=0, fmul=0, ffma=5, hfma=6400), OPS.format("src_bf16_dst_fp32"): 0}
    explained = {"sm__pipe_tensor_cycles_active.sum": 100, "sm__inst_executed_pipe_tensor.sum": 200}
    row = only(texts, {**known, **explained})
    assert row["flops"] == 10 + 4 * 6400
    beyond = only(texts, {**known, "sm__pipe_tensor_cycles_active.sum": 300})
    assert beyond.isna()["flops"]


def test_zero_with_counters_missing_is_not_zero(texts):
    row = only(texts, {OPS.format("src_bf16_dst_fp32"): 0})
    assert row.isna()["flops"]
    everything = {**inst(fadd=0, fmul=0, ffma=0, dadd=0, dmul=0, dfma=0, hadd=0, hmul=0, hfma=0)}
    assert only(texts, {**everything, "sm__pipe_tensor_cycles_active.sum": 0})["flops"] == 0


@pytest.mark.parametrize(
    ("name", "column"),
    [("dram__throughput.avg.pct_of_peak_sustained_elapsed", "dram_pct"),
     ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram_pct"),
     ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm_pct")],
)  # fmt: skip
def test_renamed_counter_keeps_its_name(texts, name, column):
    row = only(texts, {name: ("%", "61.5")})
    assert row[column] == 61.5
    assert json.loads(row["sources"])[column] == name


def test_bytes_by_any_name(texts):
    assert only(texts, {"dram__bytes_op_read.sum": ("byte", 5)})["dram_read_bytes"] == 5
    assert only(texts, {"dram__sectors_read.sum": ("sector", 5)})["dram_read_bytes"] == 160
    row = only(texts, {"dram__bytes.sum.per_second": ("Gbyte/s", 3)})
    assert row["dram_bytes"] == 3000
    assert row.isna()[["dram_read_bytes", "dram_write_bytes"]].all()
    assert json.loads(row["sources"])["dram_bytes"] == "dram__bytes.sum.per_second x time"


@pytest.mark.parametrize(
    ("cc", "counter"),
    [("7.0", "l1tex__lsu_writeback_active"), ("7.5", "l1tex__lsu_writeback_active_mem_lg"),
     ("8.9", "l1tex__lsu_writeback_active_mem_lg"), ("9.0", "l1tex__lsu_writeback_active_mem_lgds")],
)  # fmt: skip
def test_cache_bytes_by_capability(texts, cc, counter):
    names = [f"l1tex__lsu_writeback_active{end}" for end in ("", "_mem_lg", "_mem_lgds")]
    metrics = {f"{name}.sum": ("cycle", 1 if name == counter else 999) for name in names}
    metrics["lts__lts2xbar_cycles_active.sum"] = ("cycle", 10)
    metrics["lts__t_sectors.sum"] = ("sector", 777)
    row = only(texts, metrics, cc=cc)
    assert row[["l1_bytes", "l2_bytes"]].tolist() == [128, 320]


def test_l1_of_an_unknown_capability_is_null(texts):
    row = only(texts, {"l1tex__lsu_writeback_active_mem_lg.sum": ("cycle", 1)}, cc="12.0")
    assert row.isna()["l1_bytes"]
    assert "capability" in reasons_of(row)["l1_bytes"]


def peaks(row, column="peak_flop_per_sm_cycle"):
    return json.loads(row[column]) if isinstance(row[column], str) else {}


def test_dense_peak_not_sparse(texts):
    plain, dense = (
        "sm__ops_path_tensor_src_bf16_dst_fp32",
        "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off",
    )
    clock = {"launch__sm_count": ("SM", 100), "sm__cycles_elapsed.avg.per_second": ("Ghz", 1)}
    metrics = {f"{plain}.avg.peak_sustained": ("1/cycle", 8192), f"{dense}.avg.peak_sustained": ("1/cycle", 4096),
               f"{dense.replace('hgmma', 'hmma')}.avg.peak_sustained": ("1/cycle", "2730.67"), **clock}  # fmt: skip
    row = only(texts, metrics, cc="9.0")
    assert peaks(row) == {"tensor:bf16->fp32": 4096}
    assert peaks(row, "peak_flop_s") == {"tensor:bf16->fp32": 4096 * 100 * 10**9}
    alone = {f"{plain}.avg.peak_sustained": ("1/cycle", 8192), **clock}
    assert peaks(only(texts, alone, cc="9.0")) == {}
    assert peaks(only(texts, alone, cc="7.0")) == {"tensor:bf16->fp32": 8192}


def test_bandwidth_peak(texts):
    metrics = {"dram__bytes.sum.peak_sustained": ("byte/cycle", 1280),
               "dram__cycles_elapsed.avg.per_second": ("cycle/nsecond", "1.2149")}  # fmt: skip
    assert only(texts, metrics)["peak_dram_byte_s"] == pytest.approx(1280 * 1.2149e9, rel=1e-12)


@pytest.mark.parametrize(
    ("collected", "flops"),
    [
        ({"src_fp8_sparsity_off": 5, "op_hgmma_src_fp8": 40, "op_hmma_src_fp8": 2}, 42),
        ({"src_fp8_sparsity_off": 5, "src_fp8_sparsity_on": 37, "op_hgmma_src_fp8": 40}, 42),
        ({"src_fp8_sparsity_off": 5, "op_hgmma_src_fp8_sparsity_off": 4}, 5),
        ({"op_hgmma_src_fp8_sparsity_on": 1, "op_hmma_src_fp8": 2, "src_fp8": 3}, 3),
        ({"op_hgmma_src_fp8_sparsity_off": 4, "op_hgmma_src_fp8": 9, "op_hmma_src_fp8_sparsity_off": 2}, 11),
    ],
)
def test_a_level_of_which_only_a_part_was_collected_gives_way_to_a_whole_one(texts, collected, flops):
    row = only(texts, {f"sm__ops_path_tensor_{name}.sum": count for name, count in collected.items()}, cc="9.0")
    assert row["flops"] == flops
    part = "dense or sparse only" in reasons_of(row)["flops"]
    assert part == (flops in (5, 11))


@pytest.mark.parametrize("value", ["-5", "1e308", "9" * 40, "9223372036854775807", "9223372036854775808"])
@pytest.mark.parametrize(
    ("metric", "unit", "column"),
    [
        ("gpu__time_duration.sum", "ns", "time_ns"),
        ("dram__bytes_read.sum", "byte", "dram_read_bytes"),
        (FADD.format("ffma"), "inst", "flops"),
        ("launch__registers_per_thread", "register/thread", "registers"),
        ("launch__sm_count", "", "sm_count"),
    ],
)
def test_an_impossible_value_is_null(texts, metric, unit, column, value):
    row = only(texts, {metric: (unit, value)})
    assert row.isna()[column]
    if column in ("time_ns", "dram_read_bytes"):
        assert "impossible value" in reasons_of(row)[column]


@pytest.mark.parametrize("value", ["1e300", "0", "1e-320"])
def test_an_impossible_peak_is_none(texts, value):
    metrics = {
        "dram__bytes.sum.peak_sustained": ("byte/cycle", value),
        "dram__cycles_elapsed.avg.per_second": ("hz", value),
    }
    assert only(texts, metrics).isna()["peak_dram_byte_s"]


def test_a_fraction_of_a_register_is_none(texts):
    assert only(texts, {"launch__registers_per_thread": ("register/thread", "0.4")}).isna()["registers"]
    assert only(texts, {FADD.format("ffma"): ("inst", "0.5")})["flops"] == 1


def test_a_launch_without_any_metric():
    identity = pd.DataFrame({"kernel": ["k"]}).reindex(columns=[*IDENTITY.values(), "range", "open_ranges"])
    nothing = pd.DataFrame(index=identity.index)
    row = counters(NcuPage("report", identity, nothing, nothing, {})).iloc[0]
    assert row["kernel"] == "k"
    assert row.isna()["time_ns"]


@pytest.mark.parametrize(("way", "other"), [("read", "write"), ("write", "read")])
def test_the_sum_of_both_ways_lacks_the_one_that_was_not_counted(texts, way, other):
    row = only(texts, {f"dram__bytes_{way}.sum": ("byte", 4096)})
    assert row[f"dram_{way}_bytes"] == 4096
    assert row.isna()["dram_bytes"]
    assert reasons_of(row)["dram_bytes"] == f"dram__bytes_{other}.sum or dram__bytes_op_{other}.sum not in the report"
