"""The GPU table and its lookup: known ridge points, exact names, refusals, plausible rows."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kernelroof.models.errors import ReportError, UnknownGpuError, UsageError
from kernelroof.roofline import gpus
from kernelroof.roofline.gpus import Gpu, ceilings_for, find_gpu, list_gpus, peak_for
from kernelroof.roofline.links import host_link, peer_link

TABLE = list_gpus()


@pytest.mark.parametrize(
    ("name", "ridge"),
    [
        ("NVIDIA H200", 206.1),
        ("NVIDIA H100 80GB HBM3", 295.3),
        ("NVIDIA H100 PCIe", 378.0),
        ("NVIDIA A100-SXM4-80GB", 153.0),
        ("a100-80gb", 153.0),
    ],
)
def test_ridge_points(name: str, ridge: float) -> None:
    """The ridge is dense peak over bandwidth; a sparse peak would double it, another variant shift it."""
    assert round(ceilings_for(find_gpu(name), "bfloat16").ridge, 1) == ridge


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("a100-80gb-sxm", "a100-80gb"),
        ("4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("  Rtx_4090 ", "rtx-4090"),
    ],
)
def test_names_find_their_variant(name: str, key: str) -> None:
    assert find_gpu(name).key == key


@pytest.mark.parametrize(
    ("name", "variants"),
    [
        ("a100", {"a100-40gb", "a100-80gb", "a100-40gb-pcie", "a100-80gb-pcie"}),
        ("h100", {"h100-sxm", "h100-pcie", "h100-nvl"}),
        ("v100", {"v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-16gb", "v100-pcie-32gb"}),
        ("RTX 6000", {"rtx-6000-ada", "rtx-pro-6000-workstation", "rtx-pro-6000-server"}),
        ("NVIDIA GeForce RTX 4060 Ti", {"rtx-4060-ti-8gb", "rtx-4060-ti-16gb"}),
    ],
)
def test_ambiguous_name_lists_every_variant(name: str, variants: set[str]) -> None:
    with pytest.raises(UnknownGpuError) as caught:
        find_gpu(name)
    listed = caught.value.what.split("may mean ")[1].split(", ")
    assert set(listed) == variants
    assert "--peak-tflops" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3080 Ti",
        "NVIDIA A10G",
        "NVIDIA H20-3e",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "Quadro RTX 6000",
        "AMD Instinct MI300X",
        "",
        "nvidia",
    ],
)
def test_other_gpus_are_refused(name: str) -> None:
    """A similar name is never good enough: each of these has other peaks than its namesake."""
    with pytest.raises(UnknownGpuError) as caught:
        find_gpu(name)
    assert "--peak-tflops 312 --bandwidth-gbs 2039 --memory-gb 80" in caught.value.hint


def test_unknown_name_names_the_closest() -> None:
    with pytest.raises(UnknownGpuError, match=r"closest names are .*rtx-4090"):
        find_gpu("rtx-4091")


def test_every_name_belongs_to_one_variant() -> None:
    """Only a product name that the driver itself gives to two cards may be shared."""
    owners: dict[str, set[str]] = {}
    for gpu in TABLE:
        assert len({gpus._spelling(name) for name in (gpu.key, *gpu.aliases)}) == 1 + len(gpu.aliases)
        for name in gpu.names:
            owners.setdefault(gpus._spelling(name), set()).add(gpu.key)
    shared = {spelling for spelling, keys in owners.items() if len(keys) > 1}
    assert shared == {"rtx4060ti"}
    assert len({gpu.key for gpu in TABLE}) == len(TABLE) >= 40


@pytest.mark.parametrize("gpu", TABLE, ids=lambda gpu: gpu.key)
def test_every_row_is_plausible(gpu: Gpu) -> None:
    assert gpu.source
    assert gpu.note
    assert gpu.checked or "not re-read" in gpu.source or "no sheet" in gpu.source
    assert 8e9 <= gpu.memory_bytes <= 300e9
    assert 200e9 <= gpu.byte_s <= 8.1e12
    assert gpu.l2_bytes is None or 2 * 2**20 <= gpu.l2_bytes <= 192 * 2**20
    assert gpu.fp32_flop_s is not None
    assert 5e12 <= gpu.fp32_flop_s <= 150e12
    if gpu.bf16_flop_s is not None:
        assert gpu.fp16_flop_s == gpu.bf16_flop_s
    if gpu.fp16_flop_s is not None:
        # Dense FP16: at most 32 times plain FP32 on any of these chips, and at least 2 times.
        assert 1.95 <= gpu.fp16_flop_s / gpu.fp32_flop_s <= 33
    if gpu.fp8_flop_s is not None:
        assert gpu.bf16_flop_s is not None
        # The L40S sheet is at odds with itself (362.05 beside 733): 1.2 % instead of rounding only.
        tolerance = 0.013 if gpu.key == "l40s" else 0.01
        assert gpu.fp8_flop_s == pytest.approx(2 * gpu.bf16_flop_s, rel=tolerance)
    if gpu.int8_ops_s is not None:
        assert gpu.fp16_flop_s is not None
        assert gpu.int8_ops_s >= 1.99 * gpu.fp16_flop_s
    if gpu.tf32_flop_s is not None and gpu.fp16_flop_s is not None:
        assert gpu.tf32_flop_s == pytest.approx(gpu.fp16_flop_s / 2, rel=0.03)
    if gpu.fp4_flop_s is not None and gpu.fp8_flop_s is not None:
        assert gpu.fp4_flop_s >= 1.99 * gpu.fp8_flop_s


# Streaming multiprocessors, boost clock in MHz and dense FP16 FLOP per SM and cycle (FP32 accumulation):
# an independent way to the same peaks, from the chips' published layout.
LAYOUT = {
    "v100-sxm2-16gb": (80, 1530, 1024),
    "t4": (40, 1590, 1024),
    "a100-80gb": (108, 1410, 2048),
    "a40": (84, 1740, 1024),
    "a10": (72, 1695, 1024),
    "rtx-a6000": (84, 1800, 1024),
    "rtx-3060": (28, 1777, 512),
    "rtx-3070": (46, 1725, 512),
    "rtx-3080": (68, 1710, 512),
    "rtx-3090": (82, 1695, 512),
    "rtx-3090-ti": (84, 1860, 512),
    "rtx-4060-ti-16gb": (34, 2535, 512),
    "rtx-4070": (46, 2475, 512),
    "rtx-4080": (76, 2505, 512),
    "rtx-4090": (128, 2520, 512),
    "l40s": (142, 2520, 1024),
    "rtx-6000-ada": (142, 2505, 1024),
    "h100-sxm": (132, 1830, 4096),
    "h100-pcie": (114, 1620, 4096),
    "rtx-5070": (48, 2512, 512),
    "rtx-5070-ti": (70, 2452, 512),
    "rtx-5080": (84, 2617, 512),
    "rtx-5090": (170, 2407, 512),
}


@pytest.mark.parametrize("key", LAYOUT)
def test_peaks_follow_from_cores_and_clock(key: str) -> None:
    multiprocessors, boost_mhz, flop_per_cycle = LAYOUT[key]
    expected = multiprocessors * boost_mhz * 1e6 * flop_per_cycle
    assert find_gpu(key).fp16_flop_s == pytest.approx(expected, rel=0.015)


@pytest.mark.parametrize(
    ("key", "dtype", "peak"),
    [
        ("h100-sxm", "bfloat16", 989.4e12),
        ("h100-sxm", "torch.float16", 989.4e12),
        ("h100-sxm", "fp8", 1979e12),
        ("h100-sxm", "float32", 67e12),
        ("h100-sxm", "tf32", 494.7e12),
        ("rtx-3090", "float16", 71e12),
        ("a100-80gb", "int8", 624e12),
        ("b200", "fp4", 9000e12),
    ],
)
def test_peak_for_dtype(key: str, dtype: str, peak: float) -> None:
    assert peak_for(find_gpu(key), dtype) == peak


@pytest.mark.parametrize(
    ("key", "dtype", "words"),
    [
        ("a100-80gb", "fp8", ["fp8", "NVIDIA A100-SXM4-80GB"]),
        ("v100-pcie-16gb", "bfloat16", ["bfloat16", "Tesla V100-PCIE-16GB"]),
        ("gb10", "bfloat16", ["bfloat16", "NVIDIA GB10"]),
        ("h100-sxm", "int4", ["int4", "weights"]),
        ("h100-sxm", "float99", ["float99"]),
    ],
)
def test_missing_peak_is_refused(key: str, dtype: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        ceilings_for(find_gpu(key), dtype)
    assert all(word in caught.value.what for word in words)
    assert caught.value.hint


def test_ceilings_say_where_they_come_from() -> None:
    gpu = find_gpu("h20")
    found = ceilings_for(gpu, "float32")
    assert (found.name, found.origin, found.dtype) == ("NVIDIA H20", "datasheet", "float32")
    assert (found.flop_s, found.byte_s, found.memory_bytes) == (44e12, 4000e9, 96 * 10**9)
    assert found.cache_byte_s is None
    assert "no sheet" in found.note
    assert "TF32" in found.note
    assert "TF32 off" not in ceilings_for(gpu, "bfloat16").note


def test_bad_cell_is_named(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(gpus.TABLE_PATH, encoding="utf-8") as file:
        header, first = file.readline(), file.readline()
    path = f"{tmp_path}/gpus.csv"
    with open(path, "w", encoding="utf-8") as file:
        file.write(header + first.replace("900e9", "fast"))
    monkeypatch.setattr(gpus, "TABLE_PATH", path)
    with pytest.raises(ReportError, match="line 2: byte_s is 'fast'"):
        list_gpus()
    monkeypatch.setattr(gpus, "TABLE_PATH", f"{tmp_path}/none.csv")
    with pytest.raises(ReportError, match=r"none\.csv can't be read"):
        list_gpus()


def test_lookup_imports_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from kernelroof.roofline.gpus import ceilings_for, find_gpu\n"
        "ceilings_for(find_gpu('h200'), 'bfloat16')\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "kernelroof.roofline.gpus" in loaded
    heavy = {"torch", "transformers", "numpy", "pandas", "matplotlib", "rich"}
    assert not loaded & (heavy | {"dataclasses", "difflib", "importlib.resources"})


@pytest.mark.parametrize(
    ("key", "host", "peer"),
    [
        ("a100-80gb", 31.5e9, 300e9),
        ("h100-sxm", 63e9, 450e9),
        ("gh200-96gb", 450e9, 450e9),
        ("rtx-3090", 31.5e9, 56.25e9),
        ("rtx-4060-ti-16gb", 15.75e9, 15.75e9),
        ("t4", 15.75e9, 15.75e9),
    ],
)
def test_links_of_one_direction(key, host, peer):
    gpu = find_gpu(key)
    assert (host_link(gpu.key, gpu.cc).byte_s, peer_link(gpu.key, gpu.cc).byte_s) == (host, peer)
