"""Another program under the (stub) profilers: its own ranges, its ranks, with and without a model."""

import importlib.util
import json
import sys
from pathlib import Path

import pandas as pd
import pytest
from kernelroof.profile import backends, target_command
from kernelroof.profile.cli import main
from kernelroof.profile.nsight_options import split_target
from kernelroof.roofline.ceilings import Ceilings

_spec = importlib.util.spec_from_file_location("fake_nsight", Path(__file__).with_name("fake_nsight.py"))
fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake)

ROOFS = Ceilings("H100", 700e12, 2e12, 5e12, "bfloat16", "measured", None, "canned")
FOREIGN = [
    {"phase": "", "step": None, "module": "", "ranges": ["serve", f"request {k}"], "kernel": kernel, "grid": [4, 2, 1],
     "block": [128, 1, 1], "time_ns": 20_000, "read": 10_000_000, "write": 1000, "flops": 4000}
    for k in range(3)
    for kernel in (fake.GEMM, fake.FLASH, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)")
]  # fmt: skip


@pytest.fixture
def box(tmp_path, monkeypatch):
    tools = fake.install(tmp_path)
    monkeypatch.setenv("KERNELROOF_NSYS", str(tools["nsys"]))
    monkeypatch.setenv("KERNELROOF_NCU", str(tools["ncu"]))
    how = tmp_path / "how.json"
    monkeypatch.setenv("KERNELROOF_FAKE", str(how))
    monkeypatch.setattr(backends, "find_gpu", lambda device: backends.Gpu("NVIDIA H100 PCIe", "9.0"))
    monkeypatch.setattr(target_command, "measure_roofs", lambda: ROOFS)

    def run(*options, status=0, target=(sys.executable, "serve.py"), **behaviour):
        how.write_text(json.dumps({"launches": FOREIGN, **behaviour}))
        words = ["profile", *options, "--out", str(tmp_path / "run"), "--", *target]
        assert main(words) == status
        return tmp_path / "run"

    return run


def test_another_programs_kernels_and_ranges(box):
    folder = box("--backend", "nsight")
    table = pd.read_csv(folder / "kernels.csv")
    assert len(table) == len(FOREIGN)
    assert set(table["ranges"]) == {f"serve/request {k}" for k in range(3)}
    counted = table[table["ncu_time_ns"].notna()]
    assert len(counted) == 6, "collectives are never counted"
    assert set(counted["dram_read_bytes"]) == {10_000_000}
    assert set(counted["flops"]) == {4000}
    assert set(table["time_ns"]) == {20_000}
    nccl = table[table["kernel"].str.contains("nccl")]
    assert nccl["flops"].isna().all()
    assert (folder / "roofline_timeline.png").exists()
    assert not (folder / "estimate.json").exists()


def test_a_model_supplies_the_estimate(box, capsys):
    folder = box("--backend", "nsight", "llama-3-8b", "--prompt", "1024")
    record = json.loads((folder / "estimate.json").read_text())
    assert record["decode"]["context"] == 1025
    assert "llama-3-8b" in capsys.readouterr().out


def test_one_report_per_rank(box, capsys):
    folder = box("--backend", "nsight", "--counters", "traced", processes=2)
    for rank in range(2):
        table = pd.read_csv(folder / f"rank{rank}" / "kernels.csv")
        assert len(table) == len(FOREIGN)
        assert set(table["device"]) == {f"cuda:{rank}"}
    assert "rank 1 (process 78)" in capsys.readouterr().out


def test_refused_counters_leave_the_times(box, capsys):
    folder = box("--backend", "nsight", ncu="denied")
    assert "ERR_NVGPUCTRPERM" in capsys.readouterr().err
    assert set(pd.read_csv(folder / "kernels.csv")["time_ns"]) == {20_000}


@pytest.mark.parametrize(
    ("options", "target", "words"),
    [
        (["--backend", "nsight"], [], "nothing follows --"),
        (["--backend", "nsight"], ["/no/such/program"], "no program"),
        (["--backend", "torch"], ["true"], "can't see into another program"),
        (["--backend", "nsight", "--plan"], ["true"], "--plan"),
    ],
)
def test_what_makes_no_sense(box, capsys, options, target, words):
    folder = box(*options, target=target, status=2)
    assert words in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize("options", [[], ["--backend", "nsight"], ["--counters", "traced"]])
def test_without_a_gpu_it_fails_early_and_advises_what_works(box, monkeypatch, capsys, options):
    monkeypatch.setattr(backends, "find_gpu", lambda device: None)
    folder = box(*options, status=2)
    error = capsys.readouterr().err
    assert "no GPU" in error
    assert "kernelroof analyze" in error
    assert "--backend torch" not in error, "torch.profiler can't see into another program"
    assert not folder.exists()


def test_only_profile_takes_a_program():
    assert split_target(["profile", "m", "--", "a", "--", "b"]) == (["profile", "m"], ["a", "--", "b"])
    assert split_target(["estimate", "--", "m"]) == (["estimate", "--", "m"], None)
    assert split_target(["profile", "m"]) == (["profile", "m"], None)


def test_profile_without_anything(capsys):
    assert main(["profile"]) == 2
    assert "needs a MODEL" in capsys.readouterr().err


def test_a_program_of_collectives_alone_is_not_counted(box, capsys):
    talk = [{**row, "kernel": "void twoShotAllReduceKernel<float>(float*)"} for row in FOREIGN]
    folder = box("--backend", "nsight", launches=talk)
    assert "no kernels but collectives" in capsys.readouterr().err
    assert not list(folder.glob("counters-*"))
    assert pd.read_csv(folder / "kernels.csv")["flops"].isna().all()


def of_process(number, device, *kernels, read=10_000_000):
    return [{**FOREIGN[0], "process": number, "device": device, "kernel": k, "read": read} for k in kernels]


def test_each_rank_has_its_own_counters(box):
    # Counted under other ids, interleaved otherwise, and the ranks launch different kernels.
    first = of_process(900, 0, *[fake.GEMM] * 3, read=1_000_000)
    second = of_process(300, 1, *[fake.FLASH] * 3, read=2_000_000)
    rows = [row for pair in zip(first, second, strict=True) for row in pair]
    recorded = [*of_process(77, 0, *[fake.GEMM] * 3), *of_process(78, 1, *[fake.FLASH] * 3)]
    folder = box("--backend", "nsight", recorded=recorded, launches=rows)
    for rank, (name, read) in enumerate(((fake.GEMM, 1_000_000), (fake.FLASH, 2_000_000))):
        table = pd.read_csv(folder / f"rank{rank}" / "kernels.csv")
        assert set(table["kernel"]) == {name}
        assert table["dram_read_bytes"].tolist() == [read] * 3


def test_ranks_that_can_not_be_told_apart_get_no_counters(box, capsys):
    rows = of_process(900, 0, *[fake.GEMM] * 3)
    folder = box("--backend", "nsight", recorded=[*of_process(77, 0, fake.GEMM), *of_process(78, 1, fake.GEMM)],
                 launches=rows)  # fmt: skip
    assert "nothing tells whose the counters are" in " ".join(capsys.readouterr().out.split())
    for rank in range(2):
        assert pd.read_csv(folder / f"rank{rank}" / "kernels.csv")["ncu_time_ns"].isna().all()


def test_a_recording_without_kernels_is_made_again(box, capsys):
    box("--backend", "nsight", "--counters", "traced", nsys="no-kernels", status=2)
    assert "has no CUDA kernels" in capsys.readouterr().err
    folder = box("--backend", "nsight", "--counters", "traced")
    assert len(pd.read_csv(folder / "kernels.csv")) == len(FOREIGN)


@pytest.mark.parametrize("figures", [("nan", "1"), ("3", "0"), ("inf", "inf")])
def test_absurd_figures_are_refused_before_anything_is_recorded(box, figures):
    folder = box("--backend", "nsight", "--peak-tflops", figures[0], "--bandwidth-gbs", figures[1], status=2)
    assert not folder.exists()
