"""The driver in a process of its own, and what a counting run asks for."""

import json
import re
from pathlib import Path

import pytest
from kernelroof.models.presets import load_config
from kernelroof.profile.backends import Gpu
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.nsight_backend import bare_run, purposes
from kernelroof.profile.target_run import counting_of, merge_tables
from kernelroof.profile.tool_errors import TargetFailed
from kernelroof.profile.tools import Tool

NCU = Tool("ncu", Path("/bin/false"), (2024, 2, 1, 0), "Version 2024.2.1.0", Path("/bin/false"))
H100 = Gpu("NVIDIA H100 PCIe", "9.0")


def test_bare_times_come_from_another_process(tmp_path):
    spec = DriverSpec(config=load_config("tiny-llama"), prompt=4, output=2, threads=1, repeats=1)
    (tmp_path / "spec.json").write_text(spec.to_json())
    bare_run(tmp_path, tmp_path / "spec.json", tmp_path / "bare.json")
    times = json.loads((tmp_path / "bare.json").read_text())
    assert len(times["prefill_ns"]) == 1
    assert len(times["decode_step_ns"][0]) == 2


def test_a_driver_that_fails_is_said_in_its_own_words(tmp_path):
    (tmp_path / "spec.json").write_text('{"config": {}, "nonsense": 1}')
    with pytest.raises(TargetFailed, match="nonsense"):
        bare_run(tmp_path, tmp_path / "spec.json", tmp_path / "bare.json")
    assert (tmp_path / "bare.log").exists()


def test_two_purposes_with_their_own_caches():
    traffic, work = purposes(NCU, H100, CountOptions())
    assert (traffic.name, traffic.cache_control) == ("traffic", "none")
    assert (work.name, work.cache_control) == ("work", "all")
    assert "dram__bytes_read.sum" in traffic.metrics
    assert not [m for m in traffic.metrics if "sass" in m], "FLOPs would take more passes"
    assert [p.section_set for p in purposes(NCU, H100, CountOptions(section_set="full"))] == ["full"]


def test_another_program_is_counted_where_it_has_phases_and_never_in_collectives():
    purpose = purposes(NCU, H100, CountOptions())[0]
    some = counting_of(purpose, CountOptions(), ["gemm", "flash_fwd"], ["decode"])
    assert (some.nvtx_include, some.launch_count) == (("decode/",), 400)
    assert "gemm|flash_fwd" in some.kernel_names
    every = counting_of(purpose, CountOptions(every_kernel=True), ["gemm"], [])
    assert (every.nvtx_include, every.launch_count) == ((), None)
    assert re.search(every.kernel_names, "ncclDevKernel_AllReduce") is None
    assert re.search(every.kernel_names, "ampere_gemm") is not None


def test_two_runs_of_other_kernels_are_not_merged():
    import pandas as pd

    names = ["kernel", "grid", "block", "range", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "dram_pct"]
    names += ["time_ns", "sm_clock_hz", "passes", "dram_clock_hz", "peak_dram_byte_s", "flops"]
    at = {"process": 7, "device": "cuda:0", "peak_flop_s": None, "peak_l1_byte_s": None}
    one = pd.DataFrame([["a", "1", "1", "x", *[1] * 9, pd.NA]], columns=names).assign(**at)
    two = pd.DataFrame([["a", "1", "1", "x", *[2] * 9, 7]], columns=names).assign(**at)
    merged, notes = merge_tables([one, two])
    assert (merged["dram_read_bytes"].iloc[0], merged["flops"].iloc[0], notes) == (1, 7, [])
    merged, notes = merge_tables([one.assign(kernel="b"), two])
    assert merged["dram_read_bytes"].iloc[0] == 2
    assert len(notes) == 1
    # Two ranks on one GPU, interleaved otherwise and under other ids in the second run.
    pids = [(10, 20, 10, 20), (5, 5, 9, 9)]
    runs = [pd.concat([run] * 4).assign(process=ids) for run, ids in zip((one, two), pids, strict=True)]
    runs[0]["dram_read_bytes"], runs[1]["flops"] = [100, 200, 101, 201], [1, 2, 3, 4]
    merged, notes = merge_tables(runs)
    columns = ["process", "dram_read_bytes", "flops"]
    assert merged[columns].values.tolist() == [[5, 100, 1], [5, 101, 2], [9, 200, 3], [9, 201, 4]]
    assert notes == []
