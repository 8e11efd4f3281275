"""What the doctor says of a machine; other machines are folders that look like their /proc."""

import argparse
import json
import os
from pathlib import Path

import pytest
from kernelroof.profile import doctor
from kernelroof.profile import doctor_machine as machine
from kernelroof.profile.doctor_machine import Check, Gpu, Place

A100 = Gpu("NVIDIA A100-SXM4-80GB", "550.54.15", "8.0")


@pytest.fixture
def place(tmp_path):
    """A machine with the files given as path -> text."""

    def make(files=None, kernel="6.1.0", path="/nonexistent"):
        root = tmp_path / "root"
        for name, text in (files or {}).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (tmp_path / "tmp").mkdir(exist_ok=True)
        return Place(root, {"PATH": str(path)}, kernel, tmp_path / "tmp")

    return make


def test_gpus_are_read_from_nvidia_smi(program, place):
    smi = program(
        "nvidia-smi", "echo 'NVIDIA A100-SXM4-80GB, 550.54.15, 8.0'; echo 'NVIDIA H100, PCIe, 550.54.15, 9.0'"
    )
    gpus, why = machine.list_gpus(place(path=smi.parent))
    assert gpus == [A100, Gpu("NVIDIA H100, PCIe", "550.54.15", "9.0")]
    assert why == ""
    assert machine.check_gpu(gpus, why).ok is True


def test_no_gpu_and_why(program, place):
    gpus, why = machine.list_gpus(place())
    assert (gpus, why) == ([], "nvidia-smi is not on PATH")
    smi = program(
        "nvidia-smi", 'echo "NVIDIA-SMI has failed because it couldn\'t communicate with the driver."; exit 9'
    )
    gpus, why = machine.list_gpus(place(path=smi.parent))
    assert gpus == []
    check = machine.check_gpu(gpus, why)
    assert check.ok is False
    assert "couldn't communicate" in check.words
    assert "--backend torch" in check.remedy


@pytest.mark.parametrize(
    ("files", "kernel", "gpus", "ok", "words"),
    [
        (
            {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15"},
            "6.1",
            [],
            True,
            "550.54.15",
        ),
        ({}, "5.15.0-microsoft-standard-WSL2", [A100], True, "550.54.15, Windows side of WSL"),
        ({}, "5.15.0-microsoft-standard-WSL2", [], False, "none seen under WSL"),
        ({".dockerenv": ""}, "6.1", [], False, "none seen in this container"),
        ({}, "6.1", [], False, "the NVIDIA kernel module is not loaded"),
    ],
)
def test_driver(place, files, kernel, gpus, ok, words):
    check = machine.check_driver(place(files, kernel), gpus)
    assert (check.ok, check.words) == (ok, words)
    assert bool(check.remedy) is not ok


PARAMS = "proc/driver/nvidia/params"
STATUS = "proc/self/status"
USER, ROOT = "CapEff:\t0000000000000000", "CapEff:\t000001ffffffffff"


@pytest.mark.parametrize(
    ("files", "kernel", "ok", "remedy"),
    [
        ({PARAMS: "RmProfilingAdminOnly: 0", STATUS: USER}, "6.1", True, ""),
        ({PARAMS: "RmProfilingAdminOnly: 1", STATUS: ROOT}, "6.1", True, ""),
        ({PARAMS: "RmProfilingAdminOnly: 1", STATUS: USER}, "6.1", False, "NVreg_RestrictProfilingToAdminUsers=0"),
        (
            {PARAMS: "RmProfilingAdminOnly: 1", STATUS: USER, "run/.containerenv": ""},
            "6.1",
            False,
            "Start this container with --cap-add=SYS_ADMIN",
        ),
        ({}, "5.15-microsoft-standard-WSL2", None, "NVIDIA Control Panel"),
        ({}, "6.1", None, "NVreg_RestrictProfilingToAdminUsers=0"),
    ],
)
def test_who_may_read_counters(place, files, kernel, ok, remedy):
    check = machine.check_permission(place(files, kernel), [A100])
    assert check.ok is ok
    assert remedy in check.remedy
    assert bool(check.remedy) is bool(remedy)


def test_counting_a_kernel_is_the_last_word(fake):
    said = Check("counters", True, "every user may read them")
    refuses = fake("ncu", 'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1')
    check = doctor.check_counting(refuses, said)
    assert check.ok is False
    assert "refused" in check.words
    assert "--backend torch" in check.remedy
    report = 'while [ $# -gt 0 ]; do [ "$1" = --export ] && rep=$2; shift; done; echo report > $rep'
    check = doctor.check_counting(fake("ncu", report), said)
    assert check.ok is True
    assert "one kernel was counted" in check.words


@pytest.mark.parametrize(("text", "ok"), [("2", True), ("-1", True), ("4", None), ("", None)])
def test_perf_events_never_stand_in_the_way(place, text, ok):
    assert machine.check_perf(place({"proc/sys/kernel/perf_event_paranoid": text})).ok is ok


def test_temporary_files(place, monkeypatch):
    here = place()
    monkeypatch.setattr(machine, "free_bytes", lambda folder: 50 * 10**9)
    assert machine.check_temporary(here).ok is True
    monkeypatch.setattr(machine, "free_bytes", lambda folder: 10**8)
    assert machine.check_temporary(here)[1:3] == (False, f"{here.temporary}: 0.1 GB free")
    gone = machine.check_temporary(here._replace(temporary=Path("/nonexistent")))
    assert gone.ok is False
    assert "TMPDIR" in gone.remedy


def test_locks_of_runs_that_ended(place, tmp_path):
    runs = tmp_path / "runs"
    for name, pid in (("alive", os.getpid()), ("dead", 2**22 + 1)):
        (runs / name).mkdir(parents=True)
        (runs / name / "run.lock").write_text(json.dumps({"pid": pid}))
    check = machine.check_locks(place(), runs)
    assert check.ok is None
    assert "dead" in check.words
    assert "alive" not in check.words
    assert machine.check_locks(place(), tmp_path / "none").ok is True


def test_a_lock_of_somebody_else_stands_in_the_way(place, tmp_path, monkeypatch):
    here = place()
    lock = here.temporary / "nsight-compute-lock"
    lock.write_text("")
    assert machine.check_locks(here, tmp_path / "runs").ok is True
    monkeypatch.setattr(machine.os, "access", lambda path, mode: False)
    check = machine.check_locks(here, tmp_path / "runs")
    assert check.ok is False
    assert str(lock) in check.remedy


def test_ranges_are_recorded_by_the_real_tool(nsys_tool):
    check = doctor.check_nvtx(nsys_tool)
    assert check.ok is True, check
    assert "three recorded" in check.words


def test_ranges_that_are_not_seen_are_noticed(nsys_tool, program):
    silent = program("python", "exit 0")
    check = doctor.check_nvtx(nsys_tool, str(silent))
    assert check.ok is False
    assert "three ranges pushed, 0 recorded" in check.words
    assert "nvtx==0.2.11" in check.remedy


def test_importer_of_the_real_tool(nsys_tool):
    assert doctor.check_importer(nsys_tool).ok is True


def test_importer_that_is_not_there(fake):
    check = doctor.check_importer(fake("nsys", ""))
    assert check.ok is False
    assert "QdstrmImporter" in check.remedy


def test_chips_that_the_real_tool_knows(ncu_tool):
    assert doctor.check_chip(ncu_tool, A100).ok is True
    newer = doctor.check_chip(ncu_tool, Gpu("NVIDIA GeForce RTX 5070", "570", "12.0"))
    assert newer.ok is False
    assert "newer" in newer.remedy
    assert doctor.check_chip(ncu_tool, Gpu("Some GPU", "1", "99.9")).ok is None


def test_absent_tools_are_one_line_each(monkeypatch, place):
    monkeypatch.setattr("kernelroof.profile.tools._INSTALLED", {"nsys": (), "ncu": ()})
    checks = list(doctor.all_checks(place(), Path("/nonexistent")))
    by_name = {check.name: check for check in checks}
    assert len(by_name) == len(checks)
    assert by_name["nsys"].ok is by_name["ncu"].ok is by_name["GPU"].ok is False
    assert all("\n" not in doctor.line_of(check) for check in checks)
    assert all(check.remedy for check in checks if check.ok is False)
    assert doctor.exit_status(checks) == 1


def test_exit_status():
    assert doctor.exit_status([Check("a", True, ""), Check("b", None, "")]) == 0
    assert doctor.exit_status([Check("a", True, ""), Check("b", False, "")]) == 1


def test_json_is_what_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "all_checks", lambda *_: [Check("a", True, "fine"), Check("b", None, "so so", "Look.")])
    assert doctor.run(argparse.Namespace(json=True)) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["a", "b"]
    assert doctor.run(argparse.Namespace(json=False)) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("so so. Look.")


def test_torch(monkeypatch):
    import torch

    assert torch.__version__ in doctor.check_torch(False).words
    monkeypatch.setattr(torch.version, "cuda", None)
    assert doctor.check_torch(False).ok is None
    assert "CPU build" in doctor.check_torch(True).words
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert doctor.check_torch(True).ok is False
