"""Real captures from V100 to B200: all are read, values equal the expected ones, both ways of reading agree."""

import json

import numpy as np
import pytest
from kernelroof.parsers.kernel_names import function_name
from kernelroof.parsers.ncu import read_ncu

READ = {
    "ncu_raw/a100_silu_set-full.auto.csv": 3,
    "ncu_raw/a100_silu_set-full.base.csv": 3,
    "ncu_raw/b200_flashinfer_paged_decode__gqa_bf16_b64_ctx4k_p64.ncu.csv": 64,
    "ncu_raw/b200_torch_sdpa_flash__mha_bf16_b16_ctx4k_p64.ncu.csv": 16,
    "ncu_raw/gpu-kernel-performance-analyzer_h100_gemm_tiled_raw.csv": 1,
    "ncu_raw/h100_rmsnorm_set-full.base.csv": 4,
    "ncu_raw/rtx3070_nvtx_nested.ncu-2022.3.auto.csv": 3,
    "ncu_raw/rtx3070_nvtx_nested.ncu-2022.3.base.csv": 3,
    "ncu_raw/rtx3070_nvtx_nested.ncu-2024.2.auto.csv": 3,
    "ncu_raw/rtx3070_nvtx_nested.ncu-2024.2.base.csv": 3,
    "ncu_details/a100_dropout_roofline_metrics.csv": 162,
    "ncu_details/a100_gpt2_attention_torch.csv": 26,
    "ncu_details/a100_gpt2_flashattn.csv": 10,
    "ncu_details/a100_interpolate_oom_traceback_mixed.csv": 198,
    "ncu_details/decode-roofline_qwen2.5-1.5b_ncu_gemv.csv": 12,
    "ncu_details/rtx3070_nvtx_nested.ncu-2022.3.csv": 3,
    "ncu_details/rtx3070_nvtx_nested.ncu-2024.2.csv": 3,
    "ncu_details/rtx5070_win_bom_gemm_tiled.csv": 1,
    "ncu_details/rtx5090_dsocr_kernel_0001.details.csv": 1,
    "ncu_details/rtx5090_dsocr_kernel_0001.roofline_detailsall.csv": 1,
    "ncu_details/rtx5090_dsocr_kernel_0003.details.csv": 1,
    "ncu_details/rtx5090_dsocr_kernel_0003.roofline_detailsall.csv": 1,
    "ncu_details/rtx5090_dsocr_kernel_0005.details.csv": 1,
    "ncu_details/rtx5090_dsocr_kernel_0005.roofline_detailsall.csv": 1,
    "ncu_details/t4_nsightful_copy_blocked.csv": 1,
    "ncu_details/v100_2019_lassen_bfs.log": 13,
    "ncu_details/v100_2020_cfd_plain.log": 100,
    "ncu_details/v100_2020_cfd_thousands.log": 100,
}
REPORTS = {
    "a100_silu_set-full": ["a100_silu_set-full.auto", "a100_silu_set-full.base"],
    "h100_rmsnorm_set-full": ["h100_rmsnorm_set-full.base"],
    "rtx3070_nvtx_nested": [f"rtx3070_nvtx_nested.ncu-{v}.{u}" for v in ("2022.3", "2024.2") for u in ("auto", "base")],
    "t4_matrix_add_set-full": [],
}
PAIRS = [(rep, page) for rep, pages in REPORTS.items() for page in pages]
TEXT_KEYS = ("kernel", "grid", "nvtx_push_pop")


@pytest.fixture(scope="module")
def expected(captures):
    return json.loads((captures / "EXPECTED.json").read_text())["ncu_rep"]


@pytest.mark.parametrize("name", READ)
def test_every_page_is_read(captures, name):
    table = read_ncu(captures / name).counters
    assert len(table) == READ[name]
    assert table["kernel"].str.len().gt(2).all()


def test_no_page_is_forgotten(captures):
    there = {f"{d}/{p.name}" for d in ("ncu_raw", "ncu_details") for p in (captures / d).iterdir()}
    assert there == set(READ)
    assert {p.name.removesuffix(".ncu-rep") for p in (captures / "ncu_rep").iterdir()} == set(REPORTS)


def check(report, rows, tolerance):
    """Each expected value against the report's; null means that the report must not have it."""
    assert len(report.counters) == len(rows)
    for number, row in enumerate(rows):
        counters = report.counters.iloc[number]
        assert function_name(counters["kernel"]) == row["kernel"]
        if not counters.isna()["grid"]:
            assert counters["grid"] == ",".join(map(str, row["grid"]))
        path = "/".join(row["nvtx_push_pop"][0]) if row["nvtx_push_pop"] else None
        assert (None if counters.isna()["range"] else counters["range"]) == path
        for name, value in row.items():
            if name in TEXT_KEYS:
                continue
            has = name in report.metrics and not np.isnan(report.metrics[name].iloc[number])
            assert has == (value is not None), name
            if value is not None:
                assert report.metrics[name].iloc[number] == pytest.approx(value, **tolerance(name, value)), name


def exact(name, value):
    return {"rel": 1e-12}


def printed(auto):
    """Base units are printed with two decimals, scaled ones with six."""
    return lambda name, value: {"rel": 5e-7 if auto else 0, "abs": 5.1e-7 if auto else 5.1e-3}


@pytest.mark.parametrize(("rep", "page"), PAIRS)
def test_csv_values(captures, expected, rep, page):
    check(read_ncu(captures / f"ncu_raw/{page}.csv"), expected[f"{rep}.ncu-rep"], printed(page.endswith("auto")))


@pytest.mark.parametrize("rep", REPORTS)
def test_report_values(captures, expected, rep):
    pytest.importorskip("ncu_report")
    report = read_ncu(captures / f"ncu_rep/{rep}.ncu-rep")
    assert report.page == "report"
    check(report, expected[f"{rep}.ncu-rep"], exact)
    for counters, row in zip(report.counters.to_dict("records"), expected[f"{rep}.ncu-rep"], strict=True):
        assert counters["time_ns"] == row["gpu__time_duration.sum"]
        assert counters["dram_pct"] == row["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"]
        if row["dram__bytes_read.sum"] is not None:
            assert counters["dram_read_bytes"] == row["dram__bytes_read.sum"]
            assert counters["dram_write_bytes"] == row["dram__bytes_write.sum"]


@pytest.mark.parametrize(("rep", "page"), PAIRS)
def test_both_ways_agree(captures, rep, page):
    """Every column of the counters, and every metric that both have, to the digits printed."""
    pytest.importorskip("ncu_report")
    one, two = read_ncu(captures / f"ncu_rep/{rep}.ncu-rep"), read_ncu(captures / f"ncu_raw/{page}.csv")
    for name in one.counters:
        left, right = one.counters[name], two.counters[name]
        if name in ("process", "sources", "reasons", "flops_by_type", "peak_flop_s", "peak_flop_per_sm_cycle"):
            continue
        if "2022.3" in page and name in ("grid", "block", "device", "cc"):
            continue
        assert left.isna().tolist() == right.isna().tolist(), name
        if left.dtype == "string":
            assert left.dropna().tolist() == right.dropna().tolist(), name
        else:
            assert right.dropna().astype(float).tolist() == pytest.approx(
                left.dropna().astype(float).tolist(), rel=2e-4, abs=6e-3
            ), name
    # The two tools give other units to some derived metrics, and ncu scales `%/byte` the wrong way round.
    shared = [m for m in one.metrics if m in two.metrics and not m.startswith("derived__")]
    assert len(shared) > 300
    for name in shared:
        if {one.units[name], two.units[name]} & {"byte", "ns", "hz", "byte/s", "byte/cycle", "%", "inst"}:
            assert one.units[name] == two.units[name], name
        places = 6 if page.endswith("auto") and two.units[name] else 2
        left, right = one.metrics[name].to_numpy(), two.metrics[name].to_numpy()
        assert np.allclose(left, right, rtol=1e-6, atol=0.51 * 10.0**-places, equal_nan=True), name


def test_ceilings(captures):
    """A100-40GB 1555 GB/s and 2048 dense FLOP per SM and cycle; H100 PCIe 2024 GB/s and 4096."""
    for name, bandwidth, ops in (("a100_silu_set-full", 1555e9, 2048), ("h100_rmsnorm_set-full", 2024e9, 4096)):
        row = read_ncu(captures / f"ncu_raw/{name}.base.csv").counters.iloc[0]
        assert row["peak_dram_byte_s"] == pytest.approx(bandwidth, rel=1e-3)
        assert json.loads(row["peak_flop_per_sm_cycle"])["tensor:bf16->fp32"] == ops


def test_hierarchy_of_bytes(captures):
    """Bytes grow towards the core, so intensity falls: L1 >= L2 >= DRAM reads."""
    for name in ("a100_silu_set-full", "h100_rmsnorm_set-full"):
        row = read_ncu(captures / f"ncu_raw/{name}.base.csv").counters.iloc[0]
        assert row["l1_bytes"] >= row["l2_bytes"] >= row["dram_read_bytes"]


def test_silu_flops(captures):
    """2^26 elements: ten fmas and an add each; packed half instructions keep the tensor pipe busy, not its ops."""
    row = read_ncu(captures / "ncu_raw/a100_silu_set-full.auto.csv").counters.iloc[0]
    assert json.loads(row["flops_by_type"])["fp32"] == 21 * 2**26
    assert row["flops_upper_bound"]
    assert row["tensor_pct"] > 2


def test_dram_share_is_bytes_over_peak(captures):
    row = read_ncu(captures / "ncu_raw/a100_silu_set-full.base.csv").counters.iloc[0]
    share = 100 * row["dram_bytes"] / (row["time_ns"] * 1e-9) / row["peak_dram_byte_s"]
    assert share == pytest.approx(row["dram_pct"], abs=0.01)


def test_particular_values(captures):
    """One figure of each generation, read by eye."""
    first = {name: read_ncu(captures / f"ncu_details/{name}").counters.iloc[0] for name in (
        "rtx5070_win_bom_gemm_tiled.csv", "v100_2020_cfd_thousands.log", "a100_dropout_roofline_metrics.csv",
        "t4_nsightful_copy_blocked.csv", "rtx5090_dsocr_kernel_0003.details.csv",
    )}  # fmt: skip
    assert first["rtx5070_win_bom_gemm_tiled.csv"]["dram_read_bytes"] == 53261312
    assert first["v100_2020_cfd_thousands.log"]["sm_clock_hz"] == 1177954478.05
    assert first["a100_dropout_roofline_metrics.csv"]["dram_bytes"] == 4194688
    assert first["a100_dropout_roofline_metrics.csv"]["flops"] == 1048576 + 1048576 + 2 * 655360
    assert first["t4_nsightful_copy_blocked.csv"]["time_ns"] == 21058944
    assert first["rtx5090_dsocr_kernel_0003.details.csv"]["dram_read_bytes"] == 3350000
    assert first["rtx5090_dsocr_kernel_0003.details.csv"]["time_ns"] == 23420


def test_plain_and_thousands_logs_agree(captures):
    plain = read_ncu(captures / "ncu_details/v100_2020_cfd_plain.log").counters
    grouped = read_ncu(captures / "ncu_details/v100_2020_cfd_thousands.log").counters
    assert plain["kernel"].tolist() == grouped["kernel"].tolist()
    assert plain["grid_blocks"].tolist() == grouped["grid_blocks"].tolist()
    assert (grouped["time_ns"] / plain["time_ns"]).between(0.5, 2).all()


def test_percentages_only_invent_nothing(captures):
    for name in ("rtx3070_nvtx_nested.ncu-2024.2.base", "gpu-kernel-performance-analyzer_h100_gemm_tiled_raw"):
        table = read_ncu(captures / f"ncu_raw/{name}.csv").counters
        assert table[["dram_bytes", "flops"]].isna().all().all()
        assert table[["dram_pct", "sm_pct"]].notna().all().all()


def test_log_around_a_table(captures):
    report = read_ncu(captures / "ncu_details/a100_interpolate_oom_traceback_mixed.csv")
    assert report.log.exit_code == 1
