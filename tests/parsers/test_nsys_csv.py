"""nsys stats CSV: every report, old names and new, units, noise, refusals."""

import pytest
from kernelroof.models.errors import ReportError
from kernelroof.parsers.nsys_csv import read_all_stats, read_stats, trace_launches
from kernelroof.parsers.nsys_errors import NoReportDataError, StaleExportError
from kernelroof.parsers.nsys_reports import REPORTS

KERN_SUM = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '75.0,1500,2,750.0,750.0,500,1000,353.6,"void gemm<float, 4>(int, float const*)"\n'
    "25.0,500,1,500.0,500.0,500,500,0.0,copyk\n"
)
PROCESSING = "Processing [x.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]... \n"


@pytest.fixture
def write(tmp_path):
    def make(text, encoding="utf-8"):
        path = tmp_path / "stats.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return make


def test_kernel_summary(write):
    table = read_stats(write(KERN_SUM))
    assert table.report == "cuda_gpu_kern_sum"
    assert table.rounded == ()
    assert table.frame["kernel"].tolist() == ["void gemm<float, 4>(int, float const*)", "copyk"]
    assert table.frame["sum_ns"].tolist() == [1500, 500]
    assert table.frame["avg_ns"].tolist() == [750.0, 500.0]
    assert table.frame["grid"].isna().all()


@pytest.mark.parametrize(
    "text",
    [
        PROCESSING + KERN_SUM + "\n",
        "Generating SQLite file x.sqlite from x.nsys-rep\n" + PROCESSING + KERN_SUM,
        "\ufeff" + KERN_SUM.replace("\n", "\r\n"),
        "hello from the program\n" + PROCESSING + KERN_SUM + "\nProcessing [x.sqlite] with [y.py]... \n"
        "SKIPPED: x.sqlite does not contain NV Tools Extension (NVTX) data.\n",
    ],
)
def test_what_is_printed_around_a_table(write, text):
    assert read_stats(write(text)).frame["count"].tolist() == [2, 1]


def test_powershell_encoding(write):
    assert read_stats(write("\ufeff" + KERN_SUM, "utf-16-le")).frame["count"].tolist() == [2, 1]


def test_columns_in_another_order_and_unknown_ones(write):
    text = "Time (%),Name,Instances,New Column,Total Time (ns),Avg (ns),Min (ns),Max (ns)\n100.0,k,3,?,30,10.0,9,11\n"
    frame = read_stats(write(text)).frame
    assert frame.iloc[0][["kernel", "count", "sum_ns", "min_ns"]].tolist() == ["k", 3, 30, 9]
    assert frame["median_ns"].isna().all()


def test_spellings_of_2020(write):
    text = "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n100.0,1200,3,400.0,300,500,k\n"
    row = read_stats(write(text)).frame.iloc[0]
    assert row[["sum_ns", "avg_ns", "min_ns", "max_ns", "kernel"]].tolist() == [1200, 400.0, 300, 500, "k"]


def test_other_time_units_are_converted_and_said(write):
    text = KERN_SUM.replace("(ns)", "(ms)").replace("1500,2,750.0", "0.0015,2,0.00075")
    table = read_stats(write(text))
    assert table.frame["sum_ns"].tolist()[0] == 1500
    assert "sum_ns" in table.rounded


def test_several_reports_in_one_file(write):
    trace = "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId"
    trace += ",ParentId,RangeStack,NameTree\n10,40,30,0,30,prefill,7,7,0,0,1,None,:1,prefill\n"
    path = write(PROCESSING + KERN_SUM + "\n" + PROCESSING + trace + "\n")
    assert [t.report for t in read_all_stats(path)] == ["cuda_gpu_kern_sum", "nvtx_pushpop_trace"]
    assert read_stats(path, "nvtxpptrace").frame["parent"].isna().all()
    with pytest.raises(ReportError, match="2 tables"):
        read_stats(path)
    with pytest.raises(ReportError, match="no cuda_gpu_trace table"):
        read_stats(path, "cuda_gpu_trace")


@pytest.mark.parametrize("empty", ["None", ""])
def test_missing_cells_are_null(write, empty):
    header = "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),"
    text = f"{header}StdDev (ns),Kernel Name\n{empty},{empty},7,7,0,1,5,5.0,5.0,5,5,0.0,k\n"
    row = read_stats(write(text)).frame.iloc[0]
    assert row[["range", "style"]].isna().all()
    assert row["ranges"] == 0


def test_a_table_without_rows(write):
    assert len(read_stats(write(KERN_SUM.splitlines()[0])).frame) == 0


def test_skipped_reports(write):
    with pytest.raises(NoReportDataError, match="does not contain CUDA kernel data"):
        read_stats(write(PROCESSING + "SKIPPED: x.sqlite does not contain CUDA kernel data.\n\n"))
    old = "\nWARNING: Existing SQLite export found: s.sqlite\n         File is older than input file: s.nsys-rep\n"
    with pytest.raises(StaleExportError, match="--force-export=true"):
        read_stats(write(old))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "begins with 'nothing'"),
        ("a,b\n1,2\n", "begins with 'a,b'"),
        (KERN_SUM + "25.0,500,1,50", "row 3 .* is cut off"),
        (KERN_SUM + "1,2,3,4,5,6,7,8,k,surplus\n", "damaged"),
        (KERN_SUM.replace("1500", "many"), "column Total Time"),
        (KERN_SUM.replace("(ns)", "(fortnights)"), "fortnights"),
        (KERN_SUM.replace("Min (ns)", "Least (ns)"), "lacks Min"),
    ],
)
def test_refused(write, text, says):
    with pytest.raises(ReportError, match=says):
        read_stats(write(text))


def test_summaries_are_no_launches(write):
    with pytest.raises(ReportError, match="Name a trace"):
        trace_launches(read_stats(write(KERN_SUM)))


def test_every_name_belongs_to_one_report():
    names = [name for report in REPORTS for name in report.names]
    assert len(names) == len(set(names))


# Real captures.


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gputrace", "cuda_gpu_trace"),
        ("nvtxkernsum", "nvtx_kern_sum"),
        ("nvtxpptrace", "nvtx_pushpop_trace"),
        ("nvtxgpuproj", "nvtx_gpu_proj_trace"),
    ],
)
def test_old_and_new_nsys_give_the_same(captures, old, new):
    before, after = (
        read_stats(captures / "nsys_csv" / f"t4_cupy_nvtx.nsys-{version}.{name}.csv")
        for version, name in (("2022.4", old), ("2023.4", new))
    )
    assert before.report == after.report == new
    ours = after.frame[after.frame["name"].notna()] if "name" in after.frame else after.frame
    # 2023.4 adds a row for work outside ranges to the projection, and spells copies out.
    theirs = before.frame.replace({"[CUDA memcpy DtoH]": "[CUDA memcpy Device-to-Host]"})
    assert theirs.astype(object).fillna("-").equals(ours.astype(object).fillna("-").reset_index(drop=True))


def test_every_capture_is_read(captures):
    files = sorted((captures / "nsys_csv").iterdir())
    assert files
    for path in files:
        table = read_stats(path)
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(table.frame) == len(lines) - 1, path


def test_trace_as_launches(captures):
    launches = trace_launches(read_stats(captures / "nsys_csv/t4_cupy_nvtx.nsys-2023.4.cuda_gpu_trace.csv"))
    assert (len(launches), launches["time_ns"].sum()) == (3689, 1131742684)
    assert launches["device"].unique().tolist() == ["cuda:0"]
    assert launches["grid"][1] == "1024,1,40"


@pytest.mark.parametrize("cell", ["1.5", "inf", "9" * 30, "abc"])
def test_a_count_that_is_none_is_refused(tmp_path, cell):
    path = tmp_path / "k.csv"
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    path.write_text(f"{head}\n100.0,10,{cell},5.0,5.0,5,5,0.0,gemm\n")
    with pytest.raises(ReportError, match="column Instances of cuda_gpu_kern_sum"):
        read_stats(path)
