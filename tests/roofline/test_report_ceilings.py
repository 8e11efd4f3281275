"""Ceilings out of a report: dense, of the report's clock, else the datasheet's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from kernelroof.parsers.ncu import read_ncu
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.gpus import ceilings_for, find_gpu
from kernelroof.roofline.report_ceilings import (
    ReportCeilings,
    find_type,
    peaks_at,
    read_ceilings,
    row_roofs,
    sheet_ceilings,
)
from kernelroof.roofline.units import plain_type

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32"
HGMMA = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off"
H100 = {
    "launch__sm_count": ("", "114"),
    "sm__cycles_elapsed.avg.per_second": ("hz", "1000000000"),
    "device__attribute_display_name": ("", "NVIDIA H100 PCIe"),
}


def report(metrics: dict[str, tuple[str, str]], *more: dict[str, str]) -> pd.DataFrame:
    """The counters of a raw page with one row of `metrics` (unit, value), and one for each of `more` values."""
    names = [*HEAD, "Device", "CC", *metrics]
    identity = ["1", "7", "app", "host", "gemm", "1", "7", "(128, 1, 1)", "(4, 1, 1)", "0", "9.0"]
    lines = [names, [""] * 11 + [unit for unit, _ in metrics.values()]]
    for number, values in enumerate(({}, *more)):
        cells = [values.get(name, value) for name, (_, value) in metrics.items()]
        lines.append([str(number), *identity[1:], *cells])
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines) + "\n"
    return read_ncu(text, own_run=True).counters


def captures() -> Path:
    folder = Path(os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared") / "captures"
    if not folder.is_dir():
        pytest.skip("no captures here")
    return folder


def test_the_dense_peak_of_an_h100_not_the_sparse_one() -> None:
    counters = report({**H100, f"{BF16}.avg.peak_sustained": ("", "8192"), f"{HGMMA}.avg.peak_sustained": ("", "4096")})
    found = read_ceilings(counters)
    assert found.per_sm_cycle[str(found.headline)] == 4096
    roof = found.of_type("tensor:bf16->fp32")
    assert roof is not None
    assert roof.rate == pytest.approx(4096 * 114 * 1e9)
    assert (roof.origin, roof.clock) == ("report", "SM at 1.00 GHz")


def test_a_sparse_peak_alone_is_no_dense_peak() -> None:
    found = read_ceilings(report({**H100, f"{BF16}.avg.peak_sustained": ("", "8192")}))
    assert found.of_type("tensor:bf16->fp32") is None


def test_what_the_report_lacks_is_the_datasheets_and_said_so() -> None:
    found = read_ceilings(report(H100), find_gpu("h100-pcie"))
    assert found.memory["DRAM"].origin == "datasheet"
    roof = found.of_type("tensor:bf16->fp32")
    assert roof is not None
    assert (roof.rate, roof.origin) == (756e12, "datasheet")
    assert any("datasheet" in note for note in found.notes)


def test_nothing_is_invented_without_report_and_gpu() -> None:
    found = read_ceilings(report({"gpu__time_duration.sum": ("ns", "1000")}))
    assert found.memory == {}
    assert found.compute == {}
    assert found.ceilings() is None
    assert "--gpu" in " ".join(found.notes)


def test_the_users_figures_come_last() -> None:
    own = Ceilings("mine", 1e14, 1e12, None, "bfloat16", "given", None, "")
    found = read_ceilings(report({"gpu__time_duration.sum": ("ns", "1000")}), None, own)
    assert found.memory["DRAM"].rate == 1e12
    assert found.ceilings() == Ceilings(
        "mine",
        1e14,
        1e12,
        None,
        "bf16 tensor",
        "given",
        None,
        "bf16 tensor dense, given (as given); DRAM given (as given)",
    )


def test_the_dram_roof_from_the_reports_own_share() -> None:
    counters = report(
        {
            "gpu__time_duration.sum": ("ns", "1000"),
            "dram__bytes.sum": ("byte", "500000"),
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "50"),
        },
        {"dram__bytes.sum": "1000", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "1"},
    )
    assert read_ceilings(counters).memory["DRAM"].rate == pytest.approx(1e12)


@pytest.mark.parametrize(
    ("name", "dram", "per_cycle"),
    [
        ("ncu_rep/a100_silu_set-full.ncu-rep", 1555e9, 2048),
        ("ncu_raw/a100_silu_set-full.base.csv", 1555e9, 2048),
        ("ncu_rep/h100_rmsnorm_set-full.ncu-rep", 2024e9, 4096),
        ("ncu_raw/h100_rmsnorm_set-full.base.csv", 2024e9, 4096),
    ],
)
def test_real_reports(name: str, dram: float, per_cycle: float) -> None:
    if name.endswith(".ncu-rep"):
        pytest.importorskip("ncu_report")
    found = read_ceilings(read_ncu(captures() / name).counters)
    assert found.memory["DRAM"].rate == pytest.approx(dram, rel=0.01)
    assert found.per_sm_cycle["tensor:bf16->fp32"] == per_cycle
    assert found.memory["DRAM"].rate < found.memory["L2"].rate < found.memory["L1"].rate
    assert found.sm_clock_hz
    assert found.compute["tensor:bf16->fp32"].rate == pytest.approx(
        per_cycle * (found.sm_count or 0) * found.sm_clock_hz, rel=0.01
    )


def test_every_launch_has_the_roof_of_its_own_mix() -> None:
    own = '{"fp32": 100, "fp16": 400}'
    rows = pd.DataFrame(
        {
            "flops_by_type": ['{"fp32": 50, "fp16": 40, "tensor:bf16->fp32": 0}', '{"tensor:bf16->fp32": 7}', None],
            "peak_flop_s": [own, own, own],
            "peak_dram_byte_s": [10.0, np.nan, 12.0],
        }
    )
    found = sheet_ceilings(find_gpu("a100-80gb"), None)
    got = row_roofs(rows, found, own=True)
    # fp32 needs 0.5 s and fp16 0.1 s: 90 FLOP in 0.5 s.
    assert got["roof_flop_s"].tolist() == [180.0, 312e12, 312e12]
    assert got["roof_type"].tolist()[:2] == ["fp32", "tensor:bf16->fp32"]
    assert got["roof_type"].isna().tolist() == [False, False, True]
    assert got["roof_byte_s"].tolist() == [10.0, 2039e9, 12.0]


def test_types() -> None:
    assert plain_type("tensor:bf16->fp32") == "bf16 tensor"
    assert find_type("tensor:fp16->fp32", ["fp16", "tensor:fp16"]) == "tensor:fp16"
    assert find_type("fp16", ["tensor:fp16"]) is None


@pytest.mark.parametrize(
    ("name", "ridge"), [("NVIDIA H200", 206.1), ("NVIDIA H100 80GB HBM3", 295.3), ("NVIDIA H100 PCIe", 378.0)]
)
def test_ridges_of_gpus_that_are_easily_mixed_up(name: str, ridge: float) -> None:
    gpu = find_gpu(name)
    found = sheet_ceilings(gpu, None).ceilings()
    assert found is not None
    assert found.ridge == pytest.approx(ridge, rel=1e-3)
    assert found.flop_s == ceilings_for(gpu, "bfloat16").flop_s


def roof_of(mix: str, found: ReportCeilings) -> tuple[float, str]:
    roofs = row_roofs(pd.DataFrame({"flops_by_type": [mix]}), found, own=False)
    return float(roofs["roof_flop_s"].iloc[0]), str(roofs["roof_type"].iloc[0])


@pytest.mark.parametrize(
    ("mix", "roof", "kind"),
    [
        ('{"tensor:fp8": 990, "fp32": 10}', np.nan, "tensor:fp8"),  # what needs most time is not known
        ('{"fp32": 100, "fp16": 90}', 1.9 * 19.5e12, "fp32"),  # half precision can't be slower than single
        ('{"fp32": 100, "fp64": 2}', np.nan, "fp64"),  # double precision may be, 64 times
        ('{"fp32": 100, "fp64": 1}', 1.01 * 19.5e12, "fp32"),
        ('{"tensor:bf16->fp32": 320, "fp32": 10}', 330 * 312e12 / 320, "tensor:bf16->fp32"),
    ],
)
def test_a_type_without_a_peak_leaves_the_roof_only_where_it_can_not_matter(mix: str, roof: float, kind: str) -> None:
    assert roof_of(mix, sheet_ceilings(find_gpu("a100-80gb"), None)) == (pytest.approx(roof, nan_ok=True), kind)


def test_a_measured_roof_goes_first_and_the_datasheet_has_the_other_types() -> None:
    measured = Ceilings("NVIDIA A100-SXM4-80GB", 2.5e14, 1.7e12, None, "bfloat16", "measured", None, "")
    found = sheet_ceilings(find_gpu("a100-80gb"), measured)
    assert found.memory["DRAM"] == (1.7e12, "measured", "running clocks")
    assert found.compute["tensor:bf16"].rate == 2.5e14
    assert (found.compute["fp32"].rate, found.compute["fp32"].origin) == (19.5e12, "datasheet")
    assert "fp32" in found.notes[0]
    assert "bf16" not in found.notes[0]
    assert roof_of('{"fp32": 7}', found) == (19.5e12, "fp32")
    single = sheet_ceilings(find_gpu("a100-80gb"), measured._replace(dtype="float32", flop_s=1.8e13))
    assert single.headline == "fp32", "what was measured is what is drawn"


def test_peaks_follow_the_clock_of_the_run_that_the_duration_is_of() -> None:
    rows = pd.DataFrame(
        {
            "sm_clock_hz": [1e9, 1e9, np.nan],
            "peak_flop_s": ['{"fp32": 1000, "tensor:bf16": 8000}', None, '{"fp32": 1000}'],
            "peak_l1_byte_s": [400.0, np.nan, 400.0],
        }
    )
    found = peaks_at(rows, pd.Series([1.5e9, 2e9, 1e9]))
    assert json.loads(found["peak_flop_s"][0]) == {"fp32": 1500, "tensor:bf16": 12000}
    assert found["peak_l1_byte_s"][0] == 600
    assert pd.isna(found["peak_flop_s"][1])
    assert (found["peak_flop_s"][2], found["peak_l1_byte_s"][2]) == ('{"fp32": 1000}', 400)
