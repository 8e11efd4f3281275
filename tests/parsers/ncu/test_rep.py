"""Report files that can't be read, and a machine without the optional package."""

import builtins

import pytest
from kernelroof.parsers import ncu_errors
from kernelroof.parsers.ncu import read_ncu


def test_without_the_package(tmp_path, monkeypatch):
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"NVR\0\2\0\0\0")
    real = builtins.__import__

    def refuse(name, *args, **more):
        if name == "ncu_report":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ncu_errors.ReportReaderError, match=r"pip install ncu-report.*ncu --import"):
        read_ncu(path)


@pytest.mark.parametrize("size", [8, 5000])
def test_a_cut_report(captures, tmp_path, size):
    """The package reads a cut file as an empty one, without a word."""
    pytest.importorskip("ncu_report")
    path = tmp_path / "a.ncu-rep"
    path.write_bytes((captures / "ncu_rep/t4_matrix_add_set-full.ncu-rep").read_bytes()[:size])
    with pytest.raises(ncu_errors.NcuError, match="cut off"):
        read_ncu(path)


def test_report_bytes_need_a_file():
    with pytest.raises(ncu_errors.ReportReaderError, match="path"):
        read_ncu(b"NVR\0abc")


def test_rules(captures):
    pytest.importorskip("ncu_report")
    rules = read_ncu(captures / "ncu_rep/t4_matrix_add_set-full.ncu-rep").rules
    assert len(rules) == 9
    assert rules.iloc[0]["kind"] == "INF"
    assert rules["speedup_pct"].notna().any()
