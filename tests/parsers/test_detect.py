"""Kinds of files from their content, and what is said of anything else."""

import gzip
import json
import os

import pytest
from kernelroof.models.errors import ReportError
from kernelroof.parsers import detect as kinds
from kernelroof.parsers.detect import detect
from kernelroof.parsers.nsys_errors import ImporterMissingError, NoReportDataError

RAW = '"ID","Process ID","Kernel Name","dram__bytes_read.sum"\n"","","","byte"\n"0","7","k","5"\n'
DETAILS = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
KERN_SUM = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
NVTX_SUM = "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Min (ns),Max (ns),Kernel Name\n"
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "aten::mm"}]})
NOISE = "loading checkpoint [####]\n{'loss': 3.1}\n==PROF== Connected to process 7\n" * 50


@pytest.fixture
def make(tmp_path):
    def write(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("content", "kind", "report"),
    [
        (RAW, kinds.NCU_RAW, ""),
        (NOISE + RAW, kinds.NCU_RAW, ""),
        ("==PROF== Disconnected" + RAW, kinds.NCU_RAW, ""),
        (DETAILS, kinds.NCU_DETAILS, ""),
        (DETAILS.replace('"', ""), kinds.NCU_DETAILS, ""),
        (b"\xef\xbb\xbf" + DETAILS.replace("\n", "\r\n").encode(), kinds.NCU_DETAILS, ""),
        (("\ufeff" + RAW).encode("utf-16-le"), kinds.NCU_RAW, ""),
        (NOISE, kinds.NCU_LOG, ""),
        ("==ERROR== ERR_NVGPUCTRPERM\n", kinds.NCU_LOG, ""),
        (b"NVR\x00\x02\x00\x00\x00", kinds.NCU_REPORT, ""),
        (b"NVIDIA Tegra Profiler Report 2023@4", kinds.NSYS_REPORT, ""),
        (b"U3w[END]NVIDIA Nsight Systems Stream 2023.4.4.54", kinds.QDSTRM, ""),
        (KERN_SUM, kinds.NSYS_STATS, "cuda_gpu_kern_sum"),
        ("Processing [x.sqlite] with [y.py]... \n" + KERN_SUM, kinds.NSYS_STATS, "cuda_gpu_kern_sum"),
        (NVTX_SUM, kinds.NSYS_STATS, "nvtx_kern_sum"),
        (TRACE, kinds.KINETO, ""),
        ("  \n" + TRACE, kinds.KINETO, ""),
        ('[{"ph": "X", "name": "k", "ts": 1}]', kinds.KINETO, ""),
    ],
)
def test_kinds(make, content, kind, report):
    found = detect(make(content, "misleading.png"))
    assert (found.kind, found.report, found.gzipped) == (kind, report, False)
    packed = make(gzip.compress(content if isinstance(content, bytes) else content.encode()), "misleading.txt")
    found = detect(packed)
    assert (found.kind, found.report, found.gzipped) == (kind, report, True)


def test_sqlite(nsys_file, make):
    path = nsys_file().launch(10, 1, 20, 30).write()
    assert detect(path).kind == kinds.NSYS_SQLITE
    assert detect(make(gzip.compress(path.read_bytes()))).gzipped
    with pytest.raises(ReportError, match="not a readable sqlite"):
        detect(make(path.read_bytes()[:3000]))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("hello\nworld\n", "begins with 'hello'"),
        ('{"model_type": "llama"}', "JSON without traceEvents"),
        (b"\x7fELF\x02\x01\x01\x00", "binary file that begins with .*ELF"),
        (b"\x1f\x8b\x08\x00garbage", "can't be read"),
        (gzip.compress(b"NVR\x00" * 100)[:-12], "can't be read"),
        ("a" * 5_000_000, "begins with 'aaa"),
    ],
    ids=["empty", "text", "config", "program", "no gzip", "cut gzip", "one long line"],
)
def test_anything_else(make, content, says):
    with pytest.raises(ReportError, match=says):
        detect(make(content))


def test_nsys_saying_that_there_is_nothing(make):
    with pytest.raises(NoReportDataError):
        detect(make("Processing [x.sqlite] with [y.py]...\nSKIPPED: x.sqlite does not contain CUDA kernel data.\n"))


def test_folders_and_missing_files(tmp_path):
    with pytest.raises(ReportError, match="is a folder"):
        detect(tmp_path)
    (tmp_path / "run.qdstrm").write_bytes(b"x")
    with pytest.raises(ImporterMissingError):
        detect(tmp_path)
    with pytest.raises(ReportError, match="does not exist"):
        detect(tmp_path / "nothing")


FOLDERS = {
    "kineto": {kinds.KINETO},
    "ncu_details": {kinds.NCU_DETAILS},
    "ncu_raw": {kinds.NCU_RAW},
    "ncu_rep": {kinds.NCU_REPORT},
    "nsys_csv": {kinds.NSYS_STATS},
    "nsys_sqlite": {kinds.NSYS_SQLITE},
    "errors": {kinds.NCU_LOG, kinds.NCU_RAW, kinds.NCU_DETAILS},
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_capture(captures, folder):
    files = sorted((captures / folder).iterdir())
    assert files
    for path in files:
        found = detect(path)
        assert found.kind in FOLDERS[folder], path
        if found.kind == kinds.NSYS_STATS:
            assert (
                found.report.replace("_", "") in path.name.replace("_", "")
                or "nvtxgpuproj" in path.name
                or ("gpukernsum" in path.name or "gputrace" in path.name or "nvtxpptrace" in path.name)
            )


def test_any_order_of_columns(make):
    shuffled = "\n".join(",".join(reversed(line.split(","))) for line in RAW.splitlines())
    assert detect(make(NOISE + shuffled)).kind == kinds.NCU_RAW
    assert detect(make(shuffled.replace('"', ""))).kind == kinds.NCU_RAW


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReportError, match="pipe or a device"):
        detect(tmp_path / "pipe")


def test_parquet_is_known(make):
    assert detect(make(b"PAR1....")).kind == kinds.PARQUET
