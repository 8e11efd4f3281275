"""The metric plan: against what the real ncu lists for each chip, and what its section files collect."""

import functools
import re

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.parsers.ncu_flops import _OPS
from kernelroof.profile import ncu
from kernelroof.profile.ncu_chips import CHIPS, chip_of, family_of
from kernelroof.profile.ncu_metrics_plan import PURPOSES, base_name, plan, tensor_levels

ROLLUP = re.compile(r"(?:sum|avg)(?:\.peak_sustained|\.per_second|\.pct_of_peak_sustained_(?:elapsed|active))?")
NEWEST = (2024, 2)


def counters(metrics):
    """Those that ncu lists by chip; launch metrics are not listed."""
    return [m for m in metrics if not m.startswith("launch__")]


@functools.cache
def ask(tool, chip):
    return ncu.query_metrics(tool, chip)


@pytest.fixture
def listed(ncu_tool):
    """Base names that the real tool lists for a chip; each question is asked once."""
    return lambda chip: ask(ncu_tool, chip)


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("chip", CHIPS)
def test_every_planned_metric_exists_and_what_lacks_is_lacking(ncu_tool, listed, chip, purpose):
    names = listed(chip)
    assert len(names) > 1000
    planned = plan(chip, ncu_tool.version, purpose)
    assert [m for m in counters(planned.metrics) if base_name(m) not in names] == []
    assert [m for m in counters(planned.lacking) if base_name(m) in names] == []
    assert all(planned.lacking.values())
    assert plan(chip, ncu_tool.version, purpose, available=names).metrics == planned.metrics


@pytest.mark.parametrize("chip", CHIPS)
def test_every_rollup_exists(ncu_tool, chip):
    """The full names, as the tool lists them for the counters of both plans."""
    from kernelroof.profile.tools import run_tool

    metrics = {m for p in PURPOSES for m in counters(plan(chip, ncu_tool.version, p).metrics)}
    bases = ",".join(sorted({base_name(m) for m in metrics}))
    command = [ncu_tool.path, "--query-metrics-mode", "suffix", "--metrics", bases, "--chips", chip]
    full = set(re.findall(r"^([a-z]\w*__\w+\.\S+)", run_tool(command).output, re.M))
    assert metrics - full == set()


def test_launch_metrics_are_in_the_section_files(ncu_tool):
    root = next(p for p in ncu_tool.path.parents if p.name == "usr")
    text = "".join(f.read_text() for f in root.rglob("sections/*.section"))
    known = set(re.findall(r'"(launch__\w+)"', text))
    planned = plan("ga100", ncu_tool.version, "work")
    mine = {m for m in planned.metrics if m.startswith("launch__")}
    assert mine
    assert mine <= known
    assert {m for m in planned.lacking if m.startswith("launch__")} & known == set()


def test_tensor_counters_of_each_chip_are_one_level_only():
    for chip in CHIPS:
        asked = [base_name(m) for m in plan(chip, NEWEST, "work").metrics if "ops_path" in m and m.endswith(".sum")]
        names = [_OPS.fullmatch(base) for base in asked]
        assert all(names)
        assert not any(n["op"] or n["sparsity"] for n in names), chip
        assert len({(n["src"], n["dst"]) for n in names}) == len(names)


@pytest.mark.parametrize("chip", ["ga100", "ga102", "ad102", "gh100"])
def test_peaks_of_chips_with_sparsity_are_dense(chip):
    peaks = [m for m in plan(chip, NEWEST, "work").metrics if "ops_path" in m and m.endswith("peak_sustained")]
    sparse = [m for m in peaks if "_sparsity_off" not in m and "fp64" not in m]
    assert peaks
    assert sparse == []


def test_traffic_leaves_caches_alone_and_work_flushes_them():
    traffic, work = plan("gh100", NEWEST, "traffic"), plan("gh100", NEWEST, "work")
    assert (traffic.cache_control, work.cache_control) == ("none", "all")
    assert {"dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"} <= set(traffic.metrics)
    # Counters of the SM's instructions each need passes of their own.
    assert not [m for m in traffic.metrics if "sass" in m or "ops_path" in m or "throughput" in m]


@pytest.mark.parametrize(
    ("chip", "l1"),
    [
        ("gv100", "l1tex__lsu_writeback_active"),
        ("tu102", "l1tex__lsu_writeback_active_mem_lg"),
        ("ad102", "l1tex__lsu_writeback_active_mem_lg"),
        ("gh100", "l1tex__lsu_writeback_active_mem_lgds"),
    ],
)
def test_l1_bytes_come_from_the_counter_of_the_chip(chip, l1):
    found = [m for m in plan(chip, NEWEST, "work").metrics if "writeback" in m]
    assert found == [f"{l1}.sum", f"{l1}.sum.peak_sustained"]


def test_old_versions_say_that_tensor_counters_are_lacking():
    lacking = plan("gh100", (2022, 3, 0, 0), "work").lacking
    assert lacking["sm__ops_path_tensor_src_bf16_dst_fp32.sum"] == "ncu 2022.3 has no tensor-op counters"
    assert "device attributes" in lacking["launch__sm_count"]


def test_an_unknown_chip_gets_only_what_is_sure():
    planned = plan("gb202", (2025, 1), "traffic")
    assert "gpu__time_duration.sum" in planned.metrics
    assert "dram__bytes_read.sum" not in planned.metrics
    assert "not in the table" in planned.lacking["dram__bytes_read.sum"]


def test_an_unknown_chip_that_the_tool_lists_gets_what_is_listed():
    listed = {"dram__bytes_op_read", "dram__bytes_op_write", "gpu__time_duration", "sm__cycles_elapsed"}
    planned = plan("gb202", (2025, 1), "traffic", available=listed)
    assert {"dram__bytes_op_read.sum", "dram__bytes_op_write.sum"} <= set(planned.metrics)
    assert {base_name(m) for m in counters(planned.metrics)} == listed
    assert planned.lacking["dram__bytes.sum.peak_sustained"] == "ncu 2025.1 does not list it for gb202"


def test_every_name_has_a_known_rollup():
    for chip in (*CHIPS, ""):
        for purpose in PURPOSES:
            planned = plan(chip, NEWEST, purpose)
            for metric in counters((*planned.metrics, *planned.lacking)):
                assert ROLLUP.fullmatch(metric.partition(".")[2]), metric


def test_an_unknown_purpose_is_refused():
    with pytest.raises(UsageError, match="Choose one of traffic, work"):
        plan("ga100", NEWEST, "everything")


@pytest.mark.parametrize(
    ("cc", "name", "chip"),
    [
        ("7.0", "Tesla V100-SXM2-16GB", "gv100"),
        ("7.5", "Tesla T4", "tu104"),
        ("7.5", "NVIDIA GeForce RTX 2080 Ti", "tu102"),
        ("8.0", "NVIDIA A100-SXM4-80GB", "ga100"),
        ("8.6", "NVIDIA A10", "ga102"),
        ("8.6", "NVIDIA GeForce RTX 3070", "ga104"),
        ("8.9", "NVIDIA GeForce RTX 4090", "ad102"),
        ("8.9", "NVIDIA L40S", "ad102"),
        ("8.9", "NVIDIA L4", "ad104"),
        ("9.0", "NVIDIA H100 PCIe", "gh100"),
        ("12.0", "NVIDIA GeForce RTX 5070", "gb202"),
        ("6.1", "NVIDIA GeForce GTX 1080", ""),
    ],
)
def test_chip_of_a_gpu(cc, name, chip):
    assert chip_of(cc, name) == chip


def test_members_of_a_family_have_its_counters(ncu_tool, listed):
    for chip, family in (("tu104", "tu102"), ("ga106", "ga102"), ("ad103", "ad102")):
        assert family_of(chip) == family
        names = listed(chip)
        assert [m for m in counters(plan(chip, ncu_tool.version, "work").metrics) if base_name(m) not in names] == []


def test_levels_hold_both_ends_of_the_identity():
    levels = tensor_levels("gh100")
    assert "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in levels
    assert "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum" in levels
    assert tensor_levels("gb202") == ()
