"""The raw page: dirty logs, shuffled columns, units, separators, missing values, odd encodings."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelroof.parsers import ncu_errors
from kernelroof.parsers.ncu import read_ncu

NOISE = ("==PROF== Profiling \"gemm\" - 0: 0%....50%....100% - 3 passes", "hello, world", '{"a": 1, "b": [2, 3]}',
         '"quoted", he said', 'a "half quote', "", "  12 34", "==WARNING== careful",
         "Traceback (most recent call last):",
         '"0","1"', "é ü 漢")  # fmt: skip


def row(report, number=0):
    return report.counters.iloc[number]


def test_dirty_log(texts):
    report = read_ncu(texts.before + texts.raw(texts.traffic) + texts.after)
    assert report.page == "raw"
    assert len(report.counters) == 1
    assert row(report)[["kernel", "dram_read_bytes", "time_ns"]].tolist() == [texts.gemm, 25170048, 239008]
    assert row(report)[["grid", "block", "device", "cc", "process", "stream"]].tolist() == [
        *("64,2,1", "256,1,1", "cuda:0", "8.0", 77, 7)
    ]
    assert report.log.warnings == ("mind the gap",)


@settings(deadline=None)
@given(order=st.permutations(range(14)), noise=st.lists(st.sampled_from(NOISE), max_size=4), crlf=st.booleans())
def test_any_column_order_and_noise(texts, order, noise, crlf):
    """Where a column stands and what the program prints around the table and inside it changes nothing."""
    page = texts.raw(texts.traffic, kernels=[texts.gemm, "b", "c"], order=order).splitlines()
    mixed = [*noise, page[0], *noise[:1], page[1], page[2], *noise[1:], *page[3:], *noise]
    report = read_ncu(("\r\n" if crlf else "\n").join(mixed).encode())
    assert report.counters["kernel"].tolist() == [texts.gemm, "b", "c"]
    assert report.counters["dram_read_bytes"].tolist() == [25170048] * 3
    assert report.counters["time_ns"].tolist() == [239008] * 3


@pytest.mark.parametrize(
    ("join_header", "join_row", "tail"),
    [("progress 3/4 ", "", ""), ("", "0.5 ms ", ""), ("", "", "==PROF== Disconnected from process 77"),
     ('he said "go" ', "x", "")],
)  # fmt: skip
def test_noise_on_the_same_line(texts, join_header, join_row, tail):
    lines = texts.raw(texts.traffic).splitlines()
    report = read_ncu("\n".join([join_header + lines[0], lines[1], join_row + lines[2] + tail, ""]))
    assert row(report)["dram_read_bytes"] == 25170048
    assert row(report)["kernel"] == texts.gemm


@pytest.mark.parametrize(
    ("encode", "what"),
    [(lambda t: b"\xef\xbb\xbf" + t.replace("\n", "\r\n").encode(), "BOM and CRLF"),
     (lambda t: ("\ufeff" + t.replace("\n", "\r\n")).encode("utf-16-le"), "UTF-16 from PowerShell"),
     (lambda t: gzip.compress(t.encode()), "gzip")],
)  # fmt: skip
def test_encodings(texts, encode, what, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(encode(texts.before + texts.raw(texts.traffic)))
    assert row(read_ncu(path))["dram_read_bytes"] == 25170048, what


def test_damaged_gzip_and_missing_file(tmp_path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x" * 1000)[:40])
    for source in (path, tmp_path / "none.csv"):
        with pytest.raises(ncu_errors.NoTableError):
            read_ncu(source)


def test_scaled_units(texts):
    report = read_ncu(texts.raw({
        "dram__bytes_read.sum": ("Mbyte", "25.170048"),
        "gpu__time_duration.sum": ("usecond", "239.008"),
        "dram__bytes_read.sum.per_second": ("Gbyte/second", "105.310483"),
    }))  # fmt: skip
    assert row(report)["dram_read_bytes"] == 25170048
    assert row(report)["time_ns"] == 239008
    assert report.metrics["dram__bytes_read.sum.per_second"].iloc[0] == 1.05310483e11
    assert report.units["dram__bytes_read.sum.per_second"] == "byte/s"


def test_a_unit_that_is_not_understood_is_null_with_a_reason(texts):
    metrics = {"dram__bytes_read.sum": ("furlong", 5), "gpu__time_duration.sum": ("ns", 10)}
    found = row(read_ncu(texts.raw(metrics)))
    assert found.isna()["dram_read_bytes"]
    assert "furlong" in json.loads(found["reasons"])["dram_read_bytes"]


@pytest.mark.parametrize("cell", ["25,170,048", "25 170 048", "25\u202f170\u202f048", "25.170.048", "25'170'048"])
def test_separators(texts, cell):
    metrics = {**texts.traffic, "dram__bytes_read.sum": ("byte", cell)}
    assert row(read_ncu(texts.raw(metrics)))["dram_read_bytes"] == 25170048


def test_ambiguous_number_is_refused_unless_our_own(texts):
    metrics = {
        "dram__bytes_read.sum": ("Mbyte", "129.977"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "5,79"),
        "gpu__time_duration.sum": ("ns", 10),
    }
    with pytest.raises(ncu_errors.AmbiguousNumberError, match=r"129\.977.*LC_ALL=C"):
        read_ncu(texts.raw(metrics))
    assert row(read_ncu(texts.raw(metrics), own_run=True))["dram_read_bytes"] == 129977000


def test_decimal_comma(texts):
    metrics = {
        "dram__bytes_read.sum": ("byte", "1.234.567"),
        "dram__bytes_write.sum": ("byte", "129.977"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "5,79"),
    }
    found = row(read_ncu(texts.raw(metrics)))
    assert found[["dram_read_bytes", "dram_write_bytes", "sm_pct"]].tolist() == [1234567, 129977, 5.79]


@pytest.mark.parametrize("cell", ["no data", "n/a", "N/A", "nan", ""])
def test_missing_is_null_and_the_rest_stays(texts, cell):
    found = row(read_ncu(texts.raw({**texts.traffic, "dram__bytes_read.sum": ("byte", cell)})))
    assert found.isna()[["dram_read_bytes", "dram_bytes", "flops"]].all()
    assert found["dram_write_bytes"] == 4096
    assert found["time_ns"] == 239008
    assert "no value" in json.loads(found["reasons"])["dram_read_bytes"]


def test_missing_in_one_row_only(texts):
    values = [["no data", 1, 10], [7, 2, 10]]
    table = read_ncu(texts.raw(texts.traffic, kernels=["a", "b"], values=values)).counters
    assert table["dram_read_bytes"].isna().tolist() == [True, False]
    assert json.loads(table["reasons"].iloc[1]).keys().isdisjoint({"dram_read_bytes", "dram_bytes"})


def test_instance_lists(texts):
    metrics = {**texts.traffic, "dram__bytes_read.sum": ("byte", "12 (4; 4; 4)")}
    assert row(read_ncu(texts.raw(metrics)))["dram_read_bytes"] == 12


def test_two_reports_in_one_file_and_a_cut_row(texts):
    first = texts.raw(texts.traffic)
    second = texts.raw({**texts.traffic, "dram__bytes_read.sum": ("Kbyte", 3)}, kernels=["x", "y"])
    report = read_ncu(first + texts.before + second[: second.rindex('"77"') + 20])
    assert report.counters["kernel"].tolist() == [texts.gemm, "x"]
    assert report.counters["dram_read_bytes"].tolist() == [25170048, 3000]
    assert any("incomplete" in note for note in report.notes)


def test_unquoted_file(texts):
    import csv
    import io

    out = io.StringIO()
    csv.writer(out).writerows(csv.reader(texts.raw(texts.traffic).splitlines()))
    report = read_ncu(texts.before + out.getvalue() + texts.after)
    assert row(report)[["kernel", "dram_read_bytes"]].tolist() == [texts.gemm, 25170048]


def test_odd_kernel_names(texts):
    names = ["NA", "null", "nan", 'say "hi"', "x; DROP", "1,5"]
    assert read_ncu(texts.raw(texts.traffic, kernels=names)).counters["kernel"].tolist() == names
    broken = read_ncu(texts.raw(texts.traffic, kernels=["a\nb"] * len(names))).counters["kernel"]
    assert set(broken) == {"a\\x0ab"}, "a line break in a name is shown, not obeyed"


def test_range_columns(texts):
    extra = {
        "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": (
            '77  "<default domain>:decode:none:none:none:none:none:none"  '
            '"<default domain>:layers.0:none:none:none:none:none:none" '
        ),
        "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": (
            '1  "<default domain>:serve:none:none:none:none:none:none" '
        ),
    }
    found = row(read_ncu(texts.raw(texts.traffic, extra=extra)))
    assert found[["range", "open_ranges"]].tolist() == ["decode/layers.0", "serve"]


def test_passes_from_the_log(texts):
    log = '==PROF== Profiling "gemm" - 0: 0%....50%....100% - 3 passes\n'
    assert row(read_ncu(log + texts.raw(texts.traffic)))["passes"] == 3


def test_dropped_counter_is_reported(texts):
    asked = ["dram__bytes_read.sum", "dram__bytes_write.sum", "sm__gone.sum", "group:memory"]
    metrics = {**texts.traffic, "dram__bytes_write.sum": ("byte", "n/a")}
    metrics["device__attribute_display_name"] = ("", "NVIDIA A100-SXM4-40GB")
    report = read_ncu(texts.raw(metrics), asked=asked, version="2024.2")
    assert [a.metric for a in report.absent] == ["dram__bytes_write.sum", "sm__gone.sum"]
    assert report.absent[1].reason == "sm__gone.sum: not collected on NVIDIA A100-SXM4-40GB, CC 8.0 by ncu 2024.2"


def test_nothing_to_read(texts):
    header_only = texts.raw(texts.traffic).splitlines()[0]
    summary = '"Process ID","Kernel Name","Invocations","Metric Name","Average"\n"7","k","2","m","1"\n'
    for text, kind in ((header_only + "\n", ncu_errors.NoKernelsError), (summary, ncu_errors.WrongPageError),
                       ("a,b\n1,2\n", ncu_errors.NoTableError), ("", ncu_errors.NoTableError)):  # fmt: skip
        with pytest.raises(kind):
            read_ncu(text)


@pytest.mark.parametrize(
    ("cells", "values"),
    [(("1.234.567", "129.977"), (1234567, 129977)), (("129.977", "1.234.567"), (129977, 1234567))],
)
def test_a_column_that_looks_decimal_beside_grouped_dots(texts, cells, values):
    metrics = dict(zip(texts.traffic, (("byte", cells[0]), ("byte", cells[1]), ("ns", "12")), strict=True))
    found = row(read_ncu(texts.raw(metrics)))
    assert found[["dram_read_bytes", "dram_write_bytes"]].tolist() == list(values)


def test_a_lone_dot_beside_a_lone_comma_is_refused(texts):
    metrics = dict(zip(texts.traffic, (("byte", "129.977"), ("byte", "129,977"), ("ns", "12")), strict=True))
    with pytest.raises(ncu_errors.AmbiguousNumberError, match="LC_ALL=C"):
        read_ncu(texts.raw(metrics))
    assert row(read_ncu(texts.raw(metrics), own_run=True))["dram_write_bytes"] == 129977


def test_pages_without_grid_and_capability_have_them_as_metrics(texts):
    launch = {f"launch__{part}_dim_{axis}": ("", n) for part, n in (("grid", 64), ("block", 8)) for axis in "xyz"}
    capability = {f"device__attribute_compute_capability_{part}": ("", n) for part, n in (("major", 8), ("minor", 6))}
    page = texts.raw({**texts.traffic, **launch, **capability, "launch__device_id": ("", 1)})
    lines = [[cell for k, cell in enumerate(line.split('","')) if k not in range(7, 11)] for line in page.splitlines()]
    found = row(read_ncu("\n".join('","'.join(line) for line in lines) + "\n"))
    assert found[["grid", "block", "device", "cc"]].tolist() == ["64,64,64", "8,8,8", "cuda:1", "8.6"]
    whole = row(read_ncu(page))
    assert whole[["grid", "block", "device", "cc"]].tolist() == ["64,2,1", "256,1,1", "cuda:0", "8.0"]


def test_a_value_that_one_launch_lacks_is_lacking_for_that_launch(texts):
    page = texts.raw(texts.traffic, kernels=["a", "b"], values=[["n/a", 0, 5], [7, 0, 5]])
    counters = read_ncu(page).counters
    assert counters["dram_read_bytes"].isna().tolist() == [True, False]
    reasons = json.loads(counters["reasons"][0])
    assert reasons["dram_read_bytes"] == "dram__bytes_read.sum has no value for this launch"
    assert "dram_read_bytes" not in json.loads(counters["reasons"][1])
