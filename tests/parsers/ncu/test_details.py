"""The details page: header generations, labels, short rows, rule rows."""

import pytest
from kernelroof.parsers.ncu import read_ncu

SOL = "GPU Speed Of Light Throughput"
RULE_HEADER = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")


def test_names_and_labels(texts):
    report = read_ncu(texts.before + texts.details([
        ("Command line profiler metrics", "dram__bytes_read.sum", "Mbyte", "2.33"),
        (SOL, "Duration", "us", "6.75"),
        (SOL, "Memory Throughput", "%", "19.50"),
        ("Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "345.19"),
        (SOL, "DRAM Throughput", "%", "19.66"),
        ("Occupancy", "Achieved Occupancy", "%", "11.32"),
        ("Launch Statistics", "Grid Size", "", "1,024"),
        ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
    ]) + texts.after)  # fmt: skip
    row = report.counters.iloc[0]
    assert report.page == "details"
    assert row[["kernel", "time_ns", "dram_read_bytes", "dram_pct", "occupancy_pct", "grid_blocks"]].tolist() == [
        *(texts.gemm, 6750, 2330000, 19.66, 11.32, 1024)
    ]
    assert report.metrics["dram__bytes.sum.per_second"].iloc[0] == 345.19e9
    assert report.labels["gpu__time_duration.sum"] == "Duration"
    assert row["dram_bytes"] == round(345.19e9 * 6750e-9)
    assert "Function Cache Configuration" in report.texts


@pytest.mark.parametrize("old", [False, True])
def test_header_generations(texts, old):
    """Old pages have no grid (only its product) and other labels."""
    rows = [("GPU Speed Of Light", "SOL FB", "%", "0.86"), ("GPU Speed Of Light", "SM [%]", "%", "0.18"),
            ("GPU Speed Of Light", "Duration", "nsecond", "4672"), ("Launch Statistics", "Grid Size", "", "8"),
            ("GPU Speed Of Light", "Memory Frequency", "cycle/second", "681506849.32")]  # fmt: skip
    row = read_ncu(texts.details(rows, old=old)).counters.iloc[0]
    assert row[["dram_pct", "sm_pct", "time_ns", "dram_clock_hz"]].tolist() == [0.86, 0.18, 4672, 681506849.32]
    assert row.isna()["grid"] == old
    assert row["grid_blocks"] == 8


def test_short_rows_and_rules(texts):
    page = texts.details(
        [(SOL, "Duration", "ns", "10", ""), ("Occupancy", "Achieved Occupancy", "%", "50")],
        tail=RULE_HEADER,
        rules=[("SpeedOfLight", "Bottleneck", "OPT", "many\nlines, and commas", "local", "12.5")],
    )
    report = read_ncu(page)
    assert report.counters.iloc[0][["time_ns", "occupancy_pct"]].tolist() == [10, 50.0]
    assert report.rules.iloc[0].to_dict() == {
        "ordinal": 0, "section": "SpeedOfLight", "rule": "Bottleneck", "kind": "OPT",
        "description": "many\nlines, and commas", "speedup_kind": "local", "speedup_pct": 12.5,
    }  # fmt: skip


def test_label_and_name_together(texts):
    rows = [(SOL, "DRAM Frequency (dram__cycles_elapsed.avg.per_second)", "Ghz", "6.68")]
    assert read_ncu(texts.details(rows)).counters.iloc[0]["dram_clock_hz"] == 6.68e9


def test_separate_processes_with_equal_ids(texts):
    page = texts.details([(SOL, "Duration", "ns", "10")])
    other = page.splitlines()[1].replace('"77"', '"78"').replace('"10"', '"20"')
    assert read_ncu(page + other + "\n").counters["time_ns"].tolist() == [10, 20]
