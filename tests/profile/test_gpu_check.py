"""The GPU check: what it compares, that a missing piece is one line, and what it packs."""

import importlib.util
import json
import subprocess
import tarfile
import time
from pathlib import Path

import pandas as pd
import pytest
from kernelroof.profile import backends, doctor, gpu_check
from kernelroof.profile.doctor_machine import Check
from kernelroof.profile.gpu_check import Setting, archive, table
from kernelroof.profile.gpu_check_compare import (
    MISSING,
    OFF,
    OK,
    Row,
    cache_rows,
    compare,
    known_rows,
    level_rows,
    spread_rows,
    trusted,
    work_rows,
)
from kernelroof.profile.known_work import COPY, COPY_BYTES, FLOPS, PRODUCT

_spec = importlib.util.spec_from_file_location("fake_nsight", Path(__file__).with_name("fake_nsight.py"))
fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake)

SCRIPTS = Path(__file__).parents[2] / "scripts"


def counted(flops, reads):
    table = pd.DataFrame({"range": [PRODUCT, COPY], "flops": [flops, 0], "dram_read_bytes": [1, reads]})
    return table.astype({"flops": "Int64", "dram_read_bytes": "Int64", "range": "string"})


@pytest.mark.parametrize(
    ("flops", "reads", "results"),
    [
        (FLOPS, COPY_BYTES, [OK, OK]),
        (round(FLOPS * 1.009), round(COPY_BYTES * 0.98), [OK, OK]),
        (2 * FLOPS, COPY_BYTES, [OFF, OK]),
        (FLOPS, round(COPY_BYTES * 1.04), [OK, OFF]),
        (pd.NA, COPY_BYTES, [MISSING, OK]),
    ],
)
def test_known_work(flops, reads, results):
    rows = known_rows(counted(flops, reads))
    assert [row.result for row in rows] == results
    assert trusted(rows) == (OFF not in results)


def test_known_work_without_ranges():
    rows = known_rows(counted(FLOPS, COPY_BYTES).assign(range=pd.NA))
    assert [row.result for row in rows] == [OK, OK]


def test_tensor_levels():
    name = "sm__ops_path_tensor_src_bf16_dst_fp32"
    good = {f"{name}.sum": 10.0, f"{name}_sparsity_off.sum": 10.0, f"{name}_sparsity_on.sum": 0.0}
    assert [r.result for r in level_rows(good)] == [OK]
    assert [r.result for r in level_rows({**good, f"{name}_sparsity_on.sum": 3.0})] == [OFF]
    assert [r.result for r in level_rows({f"{name}.sum": 10.0})] == [MISSING]
    assert [r.result for r in level_rows(dict.fromkeys(good, 0.0))] == [MISSING]


def kernels(down, source="ncu"):
    rows = [
        {"phase": p, "module": f"model.layers.{i}.mlp.down_proj", "dram_read_bytes": down, "flops": 10,
         "flops_source": source, "bytes_source": source}
        for p in ("prefill", "decode") for i in range(2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_representatives_against_every_kernel():
    assert {r.result for r in spread_rows(kernels(100), kernels(101))} == {OK}
    rows = spread_rows(kernels(100), kernels(120))
    assert {r.result for r in rows} == {OFF}
    assert "model.layers.*.mlp.down_proj" in rows[0].words
    assert {r.result for r in spread_rows(kernels(100, "traced"), kernels(100))} == {MISSING}


def test_work_of_each_phase():
    ops = pd.DataFrame(
        {"phase": ["prefill", "decode"], "flops": [20, 20], "weight_bytes": [150, 150], "act_read_bytes": [40, 50],
         "kv_read_bytes": [0, 0]}
    )  # fmt: skip
    estimate = {"prefill": {"flops": 20, "bytes": 200}, "decode": {"total_flops": 20, "total_bytes": 200}}
    rows = {r.check: r for r in work_rows(kernels(100), ops, estimate)}
    assert "+0.00 %" in rows["decode: traced FLOPs"].words
    assert "+5.26 %" in rows["prefill: traced reads"].words
    assert "+0.00 %" in rows["decode: closed-form bytes"].words
    assert compare("x", None, 1.0, None, "B").result == MISSING


def test_caches():
    rows = cache_rows({"decode_step_ns": [[2_000_000, 4_000_000]]}, {"decode_step_ns": [[1_000_000]]})
    assert "3.000 ms with DynamicCache, 1.000 ms with StaticCache" in rows[0].words


def test_table_and_archive(tmp_path):
    folder = tmp_path / "check"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "kernels.csv").write_text("x" * 100)
    (folder / "big.ncu-rep").write_bytes(b"x" * 1000)
    with tarfile.open(archive(folder, limit=500)) as packed:
        assert packed.getnames() == ["check/run/kernels.csv"]
    with tarfile.open(archive(folder)) as packed:
        assert len(packed.getnames()) == 2
    assert table([Row("a", OK, "fine"), Row("bc", OFF, "bad")]) == "ok  a   fine\nOFF bc  bad\n"


def test_without_a_gpu_every_missing_piece_is_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(backends, "find_gpu", lambda device: None)
    monkeypatch.setattr(gpu_check, "STEPS", gpu_check.STEPS[1:])
    assert gpu_check.main(["--out", str(tmp_path / "check")]) == 0
    said = capsys.readouterr().out
    assert said.count("torch sees no GPU here") == 3
    assert "nothing was counted to compare with" in said
    assert (tmp_path / "check.tar.gz").exists()


def test_no_step_begins_without_time(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(backends, "find_gpu", lambda device: None)
    monkeypatch.setattr(gpu_check, "STEPS", gpu_check.STEPS[1:])
    assert gpu_check.main(["--out", str(tmp_path / "check"), "--minutes", "0.1"]) == 0
    assert capsys.readouterr().out.count("left out") == 4


def test_known_work_under_the_stubs(tmp_path, monkeypatch):
    tools = fake.install(tmp_path)
    monkeypatch.setenv("KERNELROOF_NCU", str(tools["ncu"]))
    rows = [
        {"phase": "", "module": "", "ranges": [name], "kernel": fake.GEMM, "grid": [1, 2, 1], "block": [128, 1, 1],
         "time_ns": 1000, "read": read, "write": read, "flops": flops}
        for name, read, flops in ((PRODUCT, 100, FLOPS), (COPY, COPY_BYTES, 0))
    ]  # fmt: skip
    how = tmp_path / "how.json"
    how.write_text(json.dumps({"launches": rows}))
    monkeypatch.setenv("KERNELROOF_FAKE", str(how))
    gpu = backends.Gpu("NVIDIA H100 PCIe", "9.0")
    setting = Setting(tmp_path, "tiny-llama", 2, 8, 2, "bfloat16", "cuda", time.monotonic() + 100, gpu)
    assert [r.result for r in gpu_check._known(setting, [])] == [OK, OK]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("profile_decode.sh", "--backend nsight --prompt 1024 --output 32"),
        ("profile_prefill.sh", "--backend nsight --prompt 4096 --output 1"),
        ("profile_vllm.sh", "vllm bench latency --model"),
    ],
)
def test_dry_runs_print_and_start_nothing(script, words):
    done = subprocess.run([SCRIPTS / script, "--dry-run"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
    assert not done.stderr


def test_scripts_pass_their_arguments_on(tmp_path):
    stub = tmp_path / "kernelroof"
    stub.write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    stub.chmod(0o755)
    command = [SCRIPTS / "profile_decode.sh", "tiny-llama", "--output", "4", "--out", "a b"]
    environ = {"PATH": "/usr/bin:/bin", "KERNELROOF": str(stub)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    last = done.stdout.splitlines()[-1]
    assert last.startswith("[profile][tiny-llama][--backend][nsight]")
    assert last.endswith("[--output][4][--out][a b]")


def test_what_was_not_asked_is_not_called_fine(tmp_path, monkeypatch):
    checks = [Check(words, ok, words) for ok, words in ((True, "fine"), (False, "gone"), (None, "not asked"))]
    monkeypatch.setattr(doctor, "all_checks", lambda *_: checks)
    setting = Setting(tmp_path, "tiny-llama", 2, 8, 2, "bfloat16", "cuda", 0.0, None)
    found = gpu_check._doctor(setting, [])
    assert [row.result for row in found] == [OK, MISSING, MISSING]
