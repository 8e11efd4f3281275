"""Whole and cut reports, told by the lengths of their blocks."""

import struct

import pytest
from kernelroof.parsers.ncu import read_ncu
from kernelroof.parsers.ncu_errors import ReportReaderError
from kernelroof.parsers.ncu_rep_blocks import is_cut

HEADER = b"NVR\0" + struct.pack("<I", 2) + b"\x08\x07"


def block(payload=b"", *, wide=False):
    """A block: a text, a number, a fixed field, and the payload's size."""
    size = len(payload)
    message = b"\x1a\x03abc" + b"\x10\x01" + (b"\x31" + bytes(8) if wide else b"")
    message += b"\x28" + (bytes([size & 0x7F | 0x80, size >> 7]) if size > 127 else bytes([size]))
    return struct.pack("<I", len(message)) + message + payload


WHOLE = HEADER + block() + block(b"x" * 300, wide=True) + block(b"y" * 5)


@pytest.fixture
def report(tmp_path):
    def write(data):
        path = tmp_path / "r.ncu-rep"
        path.write_bytes(data)
        return path

    return write


def test_a_whole_report(report):
    assert not is_cut(report(WHOLE))
    assert not is_cut(report(HEADER))


def test_every_cut_inside_a_block_is_seen(report):
    ends = {len(HEADER), len(HEADER + block()), len(HEADER + block() + block(b"x" * 300, wide=True)), len(WHOLE)}
    assert {n for n in range(4, len(WHOLE) + 1) if not is_cut(report(WHOLE[:n]))} == ends


def test_bytes_without_meaning_end_it(report):
    assert is_cut(report(HEADER + bytes(40)))
    assert is_cut(report(HEADER + struct.pack("<I", 4) + b"\xff" * 4 + b"z"))


def test_real_reports_are_whole_and_cut_ones_say_so(captures, report):
    pytest.importorskip("ncu_report")
    real = captures / "ncu_rep" / "rtx3070_nvtx_nested.ncu-rep"
    data = real.read_bytes()
    assert not any("cut off" in note for note in read_ncu(real).notes)
    cut = read_ncu(report(data[: len(data) // 2]))
    assert len(cut.counters) == 1
    assert any("cut off" in note for note in cut.notes)
    with pytest.raises(ReportReaderError, match="cut off"):
        read_ncu(report(data[:1000]))
