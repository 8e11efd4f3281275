from __future__ import annotations

import importlib.metadata
import json
import os
import sys

import pytest
import torch
from kernelroof.profile import environment


def test_describe_is_json_and_says_what_is_installed() -> None:
    found = json.loads(json.dumps(environment.describe()))
    assert found["python"] == ".".join(str(n) for n in sys.version_info[:3])
    assert found["packages"]["torch"] == importlib.metadata.version("torch")
    assert found["packages"]["kernelroof"] == importlib.metadata.version("kernelroof")
    assert found["cpu"]["threads"] == torch.get_num_threads()
    assert found["command"] == list(sys.orig_argv)


def test_every_null_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_text", lambda path: None)
    monkeypatch.setattr(environment, "_CPU", environment.Path("/nowhere"))
    monkeypatch.setattr(environment.platform, "processor", lambda: "")
    monkeypatch.setattr(environment, "_PACKAGES", ("torch", "no-such-package"))
    found = environment.describe("cpu")
    nulls = {"cpu.model", "cpu.cores", "cpu.caches", "memory_bytes", "gpu", "packages.no-such-package"}
    assert nulls <= set(found["reasons"])
    for name in nulls:
        value = found
        for key in name.split(".", 1):
            value = value[key]
        assert value is None
    assert environment.available_memory_bytes() is None


def test_caches_are_read_from_sysfs(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    root = environment.Path(str(tmp_path))
    for cpu in (0, 1):
        for index, (level, kind, size, shared) in enumerate(
            [("1", "Data", "32K", str(cpu)), ("1", "Instruction", "64K", str(cpu)), ("3", "Unified", "16M", "0-1")]
        ):
            folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for field, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
                (folder / field).write_text(text + "\n")
    monkeypatch.setattr(environment, "_CPU", root)
    assert environment._caches() == {
        "L1d": {"bytes": 32768, "instances": 2},
        "L1i": {"bytes": 65536, "instances": 2},
        "L3": {"bytes": 16 * 2**20, "instances": 1},
    }


def test_available_memory_is_the_lesser_of_kernel_and_container(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = environment.Path(str(tmp_path))
    monkeypatch.setattr(environment, "_CGROUP", root)
    monkeypatch.setattr(environment, "_meminfo", lambda field: 10_000)
    assert environment.available_memory_bytes() == 10_000
    (root / "memory.max").write_text("max\n")
    (root / "memory.current").write_text("5000\n")
    assert environment.available_memory_bytes() == 10_000
    (root / "memory.max").write_text("8000\n")
    (root / "memory.stat").write_text("anon 4000\nfile 1000\n")
    assert environment.available_memory_bytes() == 4_000


def test_variables_that_matter_are_kept_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("TORCH_HUB_TOKEN", "hidden")
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    found = environment._variables()
    assert found["OMP_NUM_THREADS"] == "2"
    assert "hidden" not in found.values()
    assert "SOMETHING_ELSE" not in found
    assert os.environ["SOMETHING_ELSE"] == "x"
