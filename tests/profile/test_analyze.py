"""`kernelroof analyze`: files in, tables, pictures and words out; or the error that says why not."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kernelroof.parsers.schema import ANALYZED
from kernelroof.profile.cli import main

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
NAME = "void gemm<float, 4>(int, float const*)"
FFMA = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
METRICS = {
    "gpu__time_duration.sum": ("ns", "239008"),
    "dram__bytes_read.sum": ("byte", "25170048"),
    "dram__bytes_write.sum": ("byte", "0"),
    **{FFMA.format(f"f{op}"): ("inst", n) for op, n in (("add", "10"), ("mul", "20"), ("fma", "1000"))},
}
NOISE = '==PROF== Connected to process 7\nthe program, says "hello"\n==WARNING== look out\n'


def page(metrics: dict[str, tuple[str, str]], *rows: dict[str, str], reverse: bool = False) -> str:
    """A raw page in a log; every row has the values of `metrics`, changed by `rows`."""
    names = [*HEAD, "Device", "CC", *metrics]
    lines = []
    for number, row in enumerate(rows or ({},)):
        cells = dict(
            zip(
                names,
                [str(number), "7", "app", "host", NAME, "1", "7", "(128, 1, 1)", "(4, 1, 1)", "0", "9.0"],
                strict=False,
            )
        )
        cells |= {name: value for name, (_, value) in metrics.items()} | row
        lines.append(cells)
    order = names[:1] + names[:0:-1] if reverse else names
    units = {name: unit for name, (unit, _) in metrics.items()}
    body = [order, [units.get(n, "") for n in order], *([line[n] for n in order] for line in lines)]
    quoted = "\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in line) for line in body)
    return f"{NOISE}{quoted}\n==PROF== Disconnected from process 7\n"


class Ran:
    """One run of the command in a temporary folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys, self.count = folder, capsys, 0

    def __call__(self, *words: str | Path) -> Any:
        self.count += 1
        self.out = self.folder / f"out{self.count}"
        status = main(["analyze", *map(str, words), "--out", str(self.out)])
        self.said, self.error = self.capsys.readouterr()
        return status

    def write(self, text: str, name: str = "counters.csv") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def table(self, name: str = "kernels.csv") -> pd.DataFrame:
        return pd.read_csv(self.out / name)


@pytest.fixture
def ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ran:
    return Ran(tmp_path, capsys)


def captures() -> Path:
    folder = Path(os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared") / "captures"
    if not folder.is_dir():
        pytest.skip("no captures here")
    return folder


def recording(path: Path, names: list[str], length: int = 100_000) -> Path:
    """An nsys export: in prefill, then decode, one kernel for each name; launches at 1000 and 3000."""
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
            "CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);"
            "CREATE TABLE NVTX_EVENTS(start, end, eventType, text, textId, globalTid, domainId);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, "
            "shortName, demangledName, graphNodeId, gridX, gridY, gridZ, blockX, blockY, blockZ);"
        )
        pid = 2**56 + 77 * 2**24
        for at, phase in enumerate(("prefill", "decode")):
            start = 1000 + 2000 * at
            db.execute(
                "INSERT INTO NVTX_EVENTS VALUES(?,?,59,?,NULL,?,0)", (start - 100, start + 900, phase, pid + 101)
            )
            for k, name in enumerate(names):
                number = 10 * (at + 1) + k
                db.execute("INSERT OR IGNORE INTO StringIds VALUES(?,?)", (k + 1, name))
                db.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(?,?,?,?,1)", (start, start + 9, pid + 101, number)
                )
                begin = 10_000 + 1_000_000 * number
                db.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(?,?,0,7,?,?,?,?,NULL,4,1,1,128,1,1)",
                    (begin, begin + length, number, pid, k + 1, k + 1),
                )
    db.close()
    return path


@pytest.mark.parametrize("reverse", [False, True])
def test_a_raw_page_in_a_dirty_log(ran: Ran, reverse: bool) -> None:
    assert ran(ran.write(page(METRICS, reverse=reverse)), "--gpu", "h100-pcie") == 0
    row = ran.table().iloc[0]
    assert len(ran.table()) == 1
    assert row["kernel"] == NAME
    assert (row["dram_read_bytes"], row["time_ns"], row["flops"]) == (25_170_048, 239_008, 2030)
    assert row["clock"] == row["time_source"] == "ncu"
    assert "gemm" in ran.said
    assert (ran.out / "roofline_ncu.png").read_bytes().startswith(b"\x89PNG")
    assert list(ran.table().columns) == [c.name for c in ANALYZED]
    assert (ran.out / "counters.csv").exists()


def test_scaled_units(ran: Ran) -> None:
    scaled = {
        "gpu__time_duration.sum": ("usecond", "239.008"),
        "dram__bytes_read.sum": ("Mbyte", "25.170048"),
        "dram__bytes_write.sum": ("byte", "0"),
    }
    assert ran(ran.write(page(scaled))) == 0
    assert ran.table()[["dram_read_bytes", "time_ns"]].iloc[0].tolist() == [25_170_048, 239_008]


def test_an_ambiguous_number_is_refused(ran: Ran) -> None:
    odd = {"gpu__time_duration.sum": ("ns", "5,79"), "dram__bytes_read.sum": ("byte", "129.977")}
    assert ran(ran.write(page(odd))) == 2
    assert "LC_ALL=C" in ran.error
    assert not ran.out.exists()


@pytest.mark.parametrize("cell", ["no data", "n/a", "N/A", "nan", ""])
def test_missing_is_null_and_the_rest_is_given(ran: Ran, cell: str) -> None:
    assert ran(ran.write(page(METRICS, {"dram__bytes_read.sum": cell}, {})), "--gpu", "h100-pcie") == 0
    table = ran.table()
    assert table["intensity"].isna().tolist() == [True, False]
    assert table["bound"].tolist()[0] == "unknown"
    assert "bytes" in table["reason"].tolist()[0]


def test_packed_halves_are_an_upper_bound(ran: Ran) -> None:
    half = {
        **METRICS,
        **{FFMA.format(f"h{op}"): ("inst", n) for op, n in (("add", "10"), ("mul", "20"), ("fma", "1000"))},
    }
    assert ran(ran.write(page(half))) == 0
    row = ran.table().iloc[0]
    assert row["flops"] == 2030 + 4060
    assert row["flops_upper_bound"]


def test_a_renamed_dram_share_is_the_same_quantity(ran: Ran) -> None:
    renamed = {
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "88.2"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "12"),
        "gpu__time_duration.sum": ("ns", "84480"),
    }
    assert ran(ran.write(page(renamed))) == 0
    row = ran.table().iloc[0]
    assert (row["dram_pct"], row["bound"]) == (88.2, "memory")
    assert pd.isna(row["intensity"])
    assert "gpu__dram_throughput" in ran.table("counters.csv")["sources"].iloc[0]
    assert (ran.out / "shares.png").exists()
    assert not list(ran.out.glob("roofline*"))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "==PROF== Connected to process 7\n==WARNING== No kernels were profiled.\n"
            "==PROF== Disconnected from process 7\n",
            ("--target-processes all", "trailing slash"),
        ),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\nTraceback (most recent call last):\n",
         ("SYS_ADMIN", "--backend torch")),
    ],
)  # fmt: skip
def test_a_log_without_a_table_is_the_error_that_it_speaks_of(ran: Ran, log: str, words: tuple[str, ...]) -> None:
    assert ran(ran.write(log, "ncu.log")) == 2
    assert all(word in ran.error for word in words)


def test_a_log_beside_a_table_is_a_note(ran: Ran) -> None:
    log = ran.write("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "ncu.log")
    assert ran(log, ran.write(page(METRICS))) == 0
    assert "ncu.log" in ran.said
    assert "ERR_NVGPUCTRPERM" in ran.said.replace("\n", " ")


def test_with_a_timeline_true_durations_and_phases(ran: Ran, tmp_path: Path) -> None:
    counted = ran.write(page(METRICS, {}, {}))
    timeline = recording(tmp_path / "t.sqlite", ["void ns::gemm<float, (int)4>(int, const float *)", "copyk"])
    assert ran(counted, timeline, "--gpu", "h100-pcie") == 0
    table = ran.table()
    assert table["phase"].tolist() == ["prefill", "prefill", "decode", "decode"]
    assert table["timeline_ns"].tolist() == [100_000] * 4
    assert table["joined"].tolist()[::2] == ["ordinal", "ordinal"]
    assert table["joined"].isna().tolist()[1::2] == [True, True]
    assert table["ncu_time_ns"].dropna().tolist() == [239_008] * 2
    assert table["duration_ratio"].dropna().tolist() == pytest.approx([2.39008] * 2)
    assert "1.5 times" in ran.said.replace("\n", " ")
    assert ran.table("unjoined.csv")["ranges"].tolist() == ["prefill", "decode"]
    assert set(ran.table("unjoined.csv")["reason"]) == {"this kernel was not counted"}
    for name in ("roofline_ncu.png", "roofline_timeline.png", "times.png", "phases.csv", "steps.csv", "launches.csv"):
        assert (ran.out / name).exists(), name


def test_with_a_model_the_estimate_stands_beside(ran: Ran, tmp_path: Path) -> None:
    timeline = recording(tmp_path / "t.sqlite", ["gemm"])
    assert ran(timeline, "--model", "llama-3-8b", "--prompt", "128", "--gpu", "a100-80gb") == 0
    assert "8,030,261,248 parameters" in ran.said
    assert "decode: kernels 100.0 µs a forward" in ran.said.replace("\n", " ")
    assert json.loads((ran.out / "estimate.json").read_text())["prefill"]["ideal_ms"] > 0


def test_a_kineto_trace_gives_durations_and_launching_ops(ran: Ran, tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9,
         "args": {"External id": 5}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1,
         "args": {"correlation": 9, "External id": 5}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 30,
         "args": {"device": 0, "stream": 7, "correlation": 9, "External id": 5, "grid": [4, 1, 1],
                  "block": [64, 1, 1]}},
    ]  # fmt: skip
    trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert ran(path) == 0
    row = ran.table().iloc[0]
    assert (row["op"], row["time_ns"], row["time_source"]) == ("aten::mm", 30_000, "torch")
    assert "aten::mm" in ran.said
    assert "NVIDIA H200" in ran.said


def test_a_summary_of_nsys_stats(ran: Ran) -> None:
    text = (
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "75.0,3000,3,1000.0,1000.0,900,1100,10.0,gemm\n25.0,1000,1,1000.0,1000.0,1000,1000,0.0,copyk\n"
    )
    assert ran(ran.write(text)) == 0
    assert ran.table()[["kernel", "count", "time_ns"]].to_numpy().tolist() == [["gemm", 3, 1000], ["copyk", 1, 1000]]
    assert "no verdicts" in ran.said
    assert not list(ran.out.glob("roofline*"))


def test_files_of_different_gpus_are_not_one_roofline(ran: Ran) -> None:
    named = [{**METRICS, "device__attribute_display_name": ("", gpu)} for gpu in ("NVIDIA H200", "NVIDIA H100 PCIe")]
    paths = [ran.write(page(m), f"{i}.csv") for i, m in enumerate(named)]
    assert ran(*paths) == 2
    assert "different GPUs" in ran.error
    assert ran(paths[0]) == 0
    assert "NVIDIA H200" in ran.said


def test_what_does_not_go_together_leaves_no_folder(ran: Ran, tmp_path: Path) -> None:
    both = [recording(tmp_path / name, ["gemm"]) for name in ("a.sqlite", "b.sqlite")]
    assert ran(*both) == 2
    assert not ran.out.exists()


def test_a_report_is_never_filled_up_with_the_peaks_of_another_gpu(ran: Ran) -> None:
    named = {**METRICS, "device__attribute_display_name": ("", "NVIDIA H100 PCIe")}
    assert ran(ran.write(page(named)), "--gpu", "h200") == 0
    found = json.loads((ran.out / "ceilings.json").read_text())["ncu"]
    assert found["memory"]["DRAM"]["rate"] == 2000e9
    assert "the files name NVIDIA H100 PCIe" in ran.said.replace("\n", " ")


def test_a_log_of_two_runs_does_not_deny_its_kernels(ran: Ran) -> None:
    first = "==PROF== Connected to process 6\n==WARNING== No kernels were profiled.\n"
    assert ran(ran.write(first + page(METRICS))) == 0
    assert "1 different kernel, 1 execution" in ran.said
    assert "profiled no kernels" not in ran.said


def test_copies_are_told_apart_from_kernels(ran: Ran, tmp_path: Path) -> None:
    path = recording(tmp_path / "t.sqlite", ["gemm"])
    with sqlite3.connect(path) as db:
        db.executescript(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start, end, deviceId, streamId, correlationId, globalPid, bytes, "
            "copyKind, graphNodeId);"
        )
        row = (40_000_000, 43_000_000, 0, 7, 10, 2**56 + 77 * 2**24, 8, 1, None)
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(?,?,?,?,?,?,?,?,?)", row)
    db.close()
    assert ran(path) == 0
    said = " ".join(ran.said.split())
    assert "prefill: 1 kernel, 100.0 µs; with copies, memsets and whole graphs 3.100 ms; GPU busy" in said
    assert "decode: 1 kernel, 100.0 µs; GPU busy 100.0 µs" in said


def test_a_wrongly_named_gpu_is_said(ran: Ran) -> None:
    named = {**METRICS, "device__attribute_display_name": ("", "NVIDIA H200")}
    assert ran(ran.write(page(named)), "--gpu", "h100-sxm") == 0
    assert "the files name NVIDIA H200" in ran.said.replace("\n", " ")


def test_two_timelines_are_refused(ran: Ran, tmp_path: Path) -> None:
    both = [recording(tmp_path / name, ["gemm"]) for name in ("a.sqlite", "b.sqlite")]
    assert ran(*both) == 2
    assert "one at a time" in ran.error


def test_a_folder_stands_for_its_files(ran: Ran, tmp_path: Path) -> None:
    folder = tmp_path / "somebody's"
    folder.mkdir()
    (folder / "counters.csv").write_text("ours,of,another,run\n")
    (folder / "raw.csv").write_text(page(METRICS))
    (folder / "notes.csv").write_text("a,b\n1,2\n")
    assert ran(folder) == 0
    assert len(ran.table()) == 1
    (folder / "raw.csv").unlink()
    assert ran(folder) == 2
    assert "no file of a profiler" in ran.error


def test_inputs_are_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(page(METRICS))
    before = path.read_bytes()
    assert main(["analyze", str(path), "--out", str(tmp_path), "--overwrite"]) == 2
    assert "lies in --out" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["counters.csv"]


def test_another_analysis_in_out_is_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"{i}.csv" for i in range(2)]
    for path in paths:
        path.write_text(page(METRICS))
    out = str(tmp_path / "out")
    assert main(["analyze", str(paths[0]), "--out", out]) == 0
    assert main(["analyze", str(paths[0]), "--out", out]) == 0
    assert main(["analyze", str(paths[1]), "--out", out]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["analyze", str(paths[1]), "--out", out, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["missing.csv"], "does not exist"),
        (["FILE", "--top", "0"], "--top is 0"),
        (["FILE", "--peak-tflops", "3"], "--bandwidth-gbs together"),
        (["FILE", "--gpu", "h200", "--peak-tflops", "3", "--bandwidth-gbs", "1"], "exclude each other"),
        (["FILE", "--gpu", "no such"], "not in the table"),
    ],
)
def test_usage(ran: Ran, words: list[str], error: str) -> None:
    path = str(ran.write(page(METRICS)))
    assert ran(*(path if w == "FILE" else w for w in words)) == 2
    assert error in ran.error


def test_own_figures_are_the_last_resort(ran: Ran) -> None:
    path = ran.write(page(METRICS))
    assert ran(path, "--peak-tflops", "1", "--bandwidth-gbs", "200", "--dtype", "float32") == 0
    row = ran.table().iloc[0]
    assert row["pct_of_roof"] == pytest.approx(100 * 25_170_048 / 200e9 / 239_008e-9)
    assert "(given" in ran.said


@pytest.mark.parametrize("gpu", ["ncu_raw/a100_silu_set-full.base.csv", "ncu_raw/h100_rmsnorm_set-full.base.csv"])
def test_real_reports_become_rooflines(ran: Ran, gpu: str) -> None:
    assert ran(captures() / gpu) == 0
    assert (ran.out / "roofline_ncu.png").exists()
    table = ran.table()
    assert (table["ncu_dram_roof_pct"] - table["dram_pct"]).abs().max() < 0.1
    ceilings = json.loads((ran.out / "ceilings.json").read_text())["ncu"]
    assert ceilings["memory"]["DRAM"]["rate"] == pytest.approx(1555e9 if "a100" in gpu else 2024e9, rel=0.01)
    assert ceilings["per_sm_cycle"]["tensor:bf16->fp32"] == (2048 if "a100" in gpu else 4096)


@pytest.mark.parametrize(
    "name",
    [
        "ncu_raw/rtx3070_nvtx_nested.ncu-2024.2.base.csv",
        "ncu_raw/b200_flashinfer_paged_decode__gqa_bf16_b64_ctx4k_p64.ncu.csv",
        "ncu_raw/b200_torch_sdpa_flash__mha_bf16_b16_ctx4k_p64.ncu.csv",
    ],
)
def test_real_reports_of_percentages_become_cards(ran: Ran, name: str) -> None:
    assert ran(captures() / name) == 0
    table = ran.table()
    assert table["intensity"].isna().all()
    assert table["reason"].notna().all()
    assert [p.name for p in ran.out.glob("*.png")] == ["shares.png"]


def test_every_error_capture_is_an_error_with_what_to_do(ran: Ran) -> None:
    for path in sorted((captures() / "errors").iterdir()):
        assert ran(path) == 2, path
        assert ran.error.splitlines()[-1].startswith("kernelroof: error: "), path  # above it: progress, if slow
        assert path.name in ran.error, path
        assert ran.error.rstrip().endswith("."), path


@pytest.mark.parametrize("folder", ["nsys_csv", "nsys_sqlite", "kineto", "ncu_details"])
def test_every_capture_gives_tables(ran: Ran, folder: str) -> None:
    for path in sorted((captures() / folder).iterdir()):
        assert ran(path) == 0, path
        assert list(ran.out.glob("*.csv")), path
        for leftover in ran.out.glob(".*"):
            raise AssertionError(f"{leftover} was left")


def test_reports_of_two_chips(ran: Ran) -> None:
    assert ran(ran.write(page(METRICS)), ran.write(page(METRICS, {"CC": "8.0"}), "other.csv")) == 2
    assert "different GPUs (compute capability 9.0, compute capability 8.0)" in ran.error


def test_a_copy_of_a_report_is_counted_once(ran: Ran) -> None:
    first = ran.write(page(METRICS))
    link = ran.folder / "link.csv"
    link.symlink_to(first)
    assert ran(first, link, ran.write(page(METRICS), "copy.csv")) == 0
    assert len(ran.table()) == 1
    assert "copy.csv holds the same launches" in " ".join(ran.said.split())


def test_a_recording_on_different_gpus_has_no_roof(ran: Ran) -> None:
    path = recording(ran.folder / "two.sqlite", ["a", "b"])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE shortName = 2")
        db.execute("CREATE TABLE TARGET_INFO_GPU(id, name)")
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 PCIe'), (1, 'NVIDIA A100-SXM4-80GB')")
    db.close()
    assert ran(path) == 0
    assert "recorded on different GPUs (NVIDIA A100-SXM4-80GB, NVIDIA H100 PCIe)" in " ".join(ran.said.split())


@pytest.mark.parametrize("kind", ["loop", "dangling", "long", "pipe"])
def test_paths_that_hold_nothing(ran: Ran, kind: str) -> None:
    path = ran.folder / ("x" * 3000 if kind == "long" else kind)
    if kind in ("loop", "dangling"):
        path.symlink_to(path if kind == "loop" else "nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    assert ran(path) == 2
    assert "output can't be written" not in ran.error
    assert len(ran.error) < 500


@pytest.mark.parametrize("cell", ["-5", "0"])
def test_a_summary_without_launches(ran: Ran, cell: str) -> None:
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    assert ran(ran.write(f"{head}\n100.0,10,{cell},5.0,5.0,5,5,0.0,gemm\n")) == 2
    assert "has no launches" in ran.error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--peak-tflops nan --bandwidth-gbs 3", "--peak-tflops is nan"),
        ("--peak-tflops inf --bandwidth-gbs 3", "--peak-tflops is inf"),
        ("--peak-tflops 1 --bandwidth-gbs 1e300", "--bandwidth-gbs is 1e+300"),
        ("--peak-tflops 1 --bandwidth-gbs 3 --memory-gb nan", "--memory-gb is nan"),
        ("--peak-tflops 1 --bandwidth-gbs 3 --memory-gb -4", "--memory-gb is -4"),
        ("--peak-tflops 1 --bandwidth-gbs 3 --dtype q9", "q9"),
        ("--dtype q9", "q9"),
        ("--peak-tflops 1", "together"),
        ("--gpu h100-sxm --peak-tflops 1", "exclude each other"),
        ("--gpu=", "GPU name of --gpu is empty"),
    ],
)
def test_figures_that_make_no_sense(ran: Ran, options: str, words: str) -> None:
    assert ran(ran.write(page(METRICS)), *options.split()) == 2
    assert words in ran.error
    assert not ran.out.exists()
