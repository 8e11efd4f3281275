"""Real nsys exports: values equal to what independent readers found, and to nsys's own tables."""

import hashlib
import json

import pytest
from kernelroof.parsers.nsys_csv import read_stats
from kernelroof.parsers.nsys_frames import NO_CALL
from kernelroof.parsers.nsys_sqlite import read_nsys
from kernelroof.parsers.nsys_windows import path_sums


@pytest.fixture(scope="module")
def t4(captures):
    return read_nsys(captures / "nsys_sqlite/t4_cupy_nvtx_2025.3.1.sqlite")


def test_every_capture_equals_the_expected_values(captures):
    expected = json.loads((captures / "EXPECTED.json").read_text())["nsys_sqlite"]
    files = sorted((captures / "nsys_sqlite").iterdir())
    assert sorted(expected) == [path.name for path in files]
    for path in files:
        before = hashlib.sha256(path.read_bytes()).hexdigest()
        launches, wanted = read_nsys(path).launches, expected[path.name]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == before
        assert len(launches) == wanted["kernels"]
        assert launches["time_ns"].sum() == wanted["kernel_time_ns"]
        assert launches["kernel"].nunique() == wanted["distinct_names"]
        by_name = launches.groupby("kernel")["time_ns"].agg(["size", "sum"])
        for top in wanted["top3"]:
            assert by_name.loc[top["name"]].tolist() == [top["instances"], top["total_ns"]]


def test_ranges_equal_nsys_own_table(captures, t4):
    """Kernels and time under each range, all nesting levels, as nvtx_kern_sum has them."""
    table = read_stats(captures / "nsys_csv/t4_cupy_nvtx.nsys-2023.4.nvtx_kern_sum.csv").frame
    theirs = table.groupby(table["range"].fillna(""))[["count", "sum_ns"]].sum()
    sums = path_sums(t4)
    total = sums[sums["path"] == ""].iloc[0]
    sums = sums[sums["path"] != ""]
    ours = sums.groupby(sums["path"].str.rsplit("/", n=1).str[-1])[["kernels", "kernel_ns"]].sum()
    ours = ours[ours["kernels"] > 0]
    # nsys puts a domain's name before the range's; a range in two places counts in both.
    named = {name.removeprefix("CCCL:"): row.tolist() for name, row in theirs.iterrows() if name}
    assert {name: row.tolist() for name, row in ours.iterrows()} == named
    outside = t4.unattributed.iloc[0]
    assert [outside["kernels"], outside["time_ns"]] == theirs.loc[""].tolist()
    assert total["kernels"] == 3689


def test_launches_equal_nsys_own_table(captures, t4):
    table = read_stats(captures / "nsys_csv/t4_cupy_nvtx.nsys-2023.4.cuda_kern_exec_trace.csv").frame
    table = table.sort_values("start_ns").reset_index(drop=True)
    ours = t4.launches
    for column in ("start_ns", "launch_ns"):
        assert (ours[column] + t4.origin_ns).tolist() == table[column].tolist()
    for column in ("kernel", "thread", "grid", "block", "time_ns"):
        assert ours[column].tolist() == table[column].tolist()


def test_range_nesting_equals_nsys_own_table(captures, t4):
    table = read_stats(captures / "nsys_csv/t4_cupy_nvtx.nsys-2023.4.nvtx_pushpop_trace.csv").frame
    table = table.set_index("start_ns").sort_index()
    ours = t4.ranges.assign(start_ns=t4.ranges["start_ns"] + t4.origin_ns).set_index("start_ns").sort_index()
    assert ours.index.tolist() == table.index.tolist()
    # The level counts the ranges of the same domain only.
    default = ours["domain"].isna().to_numpy()
    assert ours["path"].str.count("/").to_numpy()[default].tolist() == table["level"].to_numpy()[default].tolist()
    assert ours["domain"].dropna().unique().tolist() == ["CCCL"]


def test_machine_of_the_captures(t4):
    device = t4.devices.iloc[0]
    assert device[["process", "device", "name", "cc", "sms"]].tolist() == [9946, "cuda:0", "Tesla T4", "7.5", 40]
    assert t4.version == "2025.3.1.90"
    assert t4.processes["name"].tolist() == ["python"]


def test_two_gpus_and_a_cut_recording(captures):
    nsys = read_nsys(captures / "nsys_sqlite/h100_2gpu_1s.sqlite")
    assert nsys.launches.groupby("device").size().to_dict() == {"cuda:0": 1721, "cuda:1": 1721}
    assert nsys.unattributed.set_index("reason").loc[NO_CALL, "kernels"] == 1810
    assert nsys.launches["ranges"].notna().sum() == 3442 - nsys.unattributed["kernels"].sum()


def test_graphs_of_a_graph_recording_are_said(captures):
    nsys = read_nsys(captures / "nsys_sqlite/rtx3060_cudagraph_2025.5.2.sqlite")
    assert any(note.startswith("graph launches recorded as a whole, without kernels: 2") for note in nsys.notes)
    assert nsys.work["kind"].value_counts().to_dict() == {"kernel": 3, "graph": 2, "memcpy": 1}
