"""Measured ceilings: what they are made of. No test here asserts how fast this machine is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kernelroof.models.errors import DriverError, UsageError
from kernelroof.roofline import machine
from kernelroof.roofline.ceilings import from_json, to_json
from kernelroof.roofline.measure import Plan, default_plan, measure_ceilings
from kernelroof.roofline.timing import rate_of

SMALL = Plan(2**23, (2**16, 2**17), (32, 64), dram_s=0.002, cache_s=0.001, product_s=0.002)
CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_ceilings_are_the_best_of_what_was_measured(dtype: str) -> None:
    ceilings, details = measure_ceilings(dtype, threads=1, plan=SMALL)
    for value, key in (
        (ceilings.flop_s, "product_flop_s"),
        (ceilings.byte_s, "dram_byte_s"),
        (ceilings.cache_byte_s, "cache_byte_s"),
    ):
        best = [rate["best"] for rate in details[key].values()]
        assert value == max(best)
        assert min(best) > 0
        assert all(rate["median"] <= rate["best"] for rate in details[key].values())
    assert ceilings.origin == "measured"
    assert ceilings.dtype == dtype
    assert details["threads"] == 1
    assert "1 threads" in ceilings.note
    assert from_json(to_json(ceilings, details)) == (ceilings, details)


def test_decode_product_is_among_the_memory_kernels_and_both_layouts_among_products() -> None:
    _, details = measure_ceilings("bfloat16", plan=SMALL)
    names = " ".join(details["dram_byte_s"])
    for kernel in ("sum", "copy", "matrix-vector float32", "matrix-vector bfloat16"):
        assert kernel in names
    assert {"32x32 a @ b.T", "32x32 a @ b"} <= set(details["product_flop_s"])
    assert all("bfloat16" not in n or "matrix-vector" in n for n in details["dram_byte_s"])


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    measure_ceilings("float32", threads=1, plan=SMALL)
    assert torch.get_num_threads() == before


def test_working_sets_fit_the_caches() -> None:
    plan = default_plan(CPU)
    known = machine.cache_sizes()
    last = known[max(known)] if known else machine.DEFAULT_CACHE_BYTES
    free = machine.memory_bytes("MemAvailable")
    if free is None or free > 16 * max(last, 2**28):
        assert plan.dram_bytes >= 4 * last
        assert plan.dram_bytes >= 2**28
    assert all(size < last for size in plan.cache_bytes)


def test_bad_requests_are_errors() -> None:
    with pytest.raises(UsageError, match="int3"):
        measure_ceilings("int3", plan=SMALL)
    with pytest.raises(UsageError, match="threads is 0"):
        measure_ceilings("float32", threads=0, plan=SMALL)
    with pytest.raises(DriverError, match="nowhere"):
        measure_ceilings("float32", device="nowhere", plan=SMALL)


def test_rate_counts_the_best_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = iter([9.0, 4.0, 2.0, 8.0, 99.0])
    monkeypatch.setattr("kernelroof.roofline.timing._cpu_time", lambda run: next(durations))
    # Warm-up 9 s, then at least three repeats within a limit of 10 s.
    got = rate_of(lambda: None, 100.0, 10.0, CPU)
    assert got.best == 50.0
    assert got.median == 25.0


def test_a_call_longer_than_its_limit_runs_once_more_only(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = iter([9.0, 8.0])
    monkeypatch.setattr("kernelroof.roofline.timing._cpu_time", lambda run: next(durations))
    assert rate_of(lambda: None, 80.0, 0.5, CPU).best == 10.0


def cache(folder: Path, cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> None:
    where = folder / f"cpu{cpu}" / "cache" / f"index{index}"
    where.mkdir(parents=True)
    for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
        (where / name).write_text(f"{text}\n")


def test_caches_shared_count_once_and_private_ones_add_up(tmp_path: Path) -> None:
    for cpu in range(4):
        cache(tmp_path, cpu, 0, 1, "Data", "32K", str(cpu))
        cache(tmp_path, cpu, 1, 1, "Instruction", "32K", str(cpu))
        cache(tmp_path, cpu, 2, 2, "Unified", "512K", str(cpu))
        cache(tmp_path, cpu, 3, 3, "Unified", "16M", "0-1" if cpu < 2 else "2-3")
    assert machine.cache_sizes({0, 1, 2, 3}, tmp_path) == {1: 4 * 2**15, 2: 4 * 2**19, 3: 2 * 2**24}
    assert machine.cache_sizes({0, 1}, tmp_path)[3] == 2**24
    assert machine.cache_sizes({9}, tmp_path) == {}


def test_machine_files(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    (tmp_path / "meminfo").write_text("MemTotal:       1024 kB\nMemAvailable:    512 kB\n")
    assert machine.cpu_name(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
    assert machine.memory_bytes("MemAvailable", tmp_path / "meminfo") == 512 * 1024
    assert machine.memory_bytes("MemTotal", tmp_path / "absent") is None
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert machine.container_headroom_bytes(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.container_headroom_bytes(tmp_path) is None
    with pytest.raises(ValueError, match="lots"):
        machine.parse_size("lots")
