"""The reports of `nsys stats` that have a reader: their names, their headers, what each column is.

To add a report is to add one entry to `REPORTS`.
"""

from __future__ import annotations

import csv
import re
from typing import NamedTuple


class Field(NamedTuple):
    """A column: our name, what it is (see `_convert`), and whether a table may lack it."""

    name: str
    kind: str
    optional: bool = False


class Report(NamedTuple):
    """One report of nsys stats: its names, newest first, and its columns by header without unit.

    A table is this report if it has all the headers in `marks`.
    """

    names: tuple[str, ...]
    marks: frozenset[str]
    fields: dict[str, Field]


def _statistics(prefix: str = "") -> dict[str, Field]:
    return {
        f"{prefix}Avg": Field("avg_ns", "mean"),
        f"{prefix}Med": Field("median_ns", "mean", True),
        f"{prefix}Min": Field("min_ns", "time"),
        f"{prefix}Max": Field("max_ns", "time"),
        f"{prefix}StdDev": Field("std_ns", "mean", True),
    }


_OWNER = {"PID": Field("process", "count"), "TID": Field("thread", "count")}
_NESTING = {
    "Lvl": Field("level", "count"),
    "NumChild": Field("children", "count"),
    "RangeId": Field("range", "count"),
    "ParentId": Field("parent", "count"),
    "RangeStack": Field("stack", "text"),
}

REPORTS = (
    Report(
        ("cuda_gpu_trace", "gputrace"),
        frozenset({"Start", "Duration", "CorrId", "GrdX", "Name"}),
        {
            "Start": Field("start_ns", "time"),
            "Duration": Field("time_ns", "time"),
            "CorrId": Field("correlation", "count"),
            **{
                f"{h}{d}": Field(f"{n}_{d.lower()}", "count")
                for h, n in (("Grd", "grid"), ("Blk", "block"))
                for d in "XYZ"
            },
            "Reg/Trd": Field("registers", "count", True),
            "StcSMem": Field("static_shared_bytes", "bytes", True),
            "DymSMem": Field("dynamic_shared_bytes", "bytes", True),
            "Bytes": Field("bytes", "bytes"),
            "Throughput": Field("byte_s", "bytes", True),
            "SrcMemKd": Field("source_memory", "text", True),
            "DstMemKd": Field("target_memory", "text", True),
            "Device": Field("device_name", "text"),
            "Ctx": Field("context", "count", True),
            "Strm": Field("stream", "count"),
            "Name": Field("name", "text"),
        },
    ),
    Report(
        ("cuda_gpu_kern_sum", "gpukernsum"),
        frozenset({"Time", "Total Time", "Instances", "Name"}),
        {
            "Time": Field("time_pct", "number"),
            "Total Time": Field("sum_ns", "time"),
            "Instances": Field("count", "count"),
            **_statistics(),
            "GridXYZ": Field("grid", "triple", True),
            "BlockXYZ": Field("block", "triple", True),
            "Name": Field("kernel", "text"),
        },
    ),
    Report(
        ("nvtx_kern_sum", "nvtxkernsum"),
        frozenset({"NVTX Range", "Kern Inst", "Kernel Name"}),
        {
            "NVTX Range": Field("range", "text"),
            "Style": Field("style", "text"),
            **_OWNER,
            "NVTX Inst": Field("ranges", "count"),
            "Kern Inst": Field("count", "count"),
            "Total Time": Field("sum_ns", "time"),
            **_statistics(),
            "Kernel Name": Field("kernel", "text"),
        },
    ),
    Report(
        ("nvtx_gpu_proj_trace", "nvtxgpuproj"),
        frozenset({"Name", "Projected Start", "Projected Duration"}),
        {
            "Name": Field("name", "text"),
            "Projected Start": Field("gpu_start_ns", "time"),
            "Projected Duration": Field("gpu_span_ns", "time"),
            "Orig Start": Field("start_ns", "time"),
            "Orig Duration": Field("time_ns", "time"),
            "Style": Field("style", "text"),
            **_OWNER,
            "NumGPUOps": Field("gpu_ops", "count"),
            **_NESTING,
        },
    ),
    Report(
        ("nvtx_gpu_proj_sum",),
        frozenset({"Range", "Total Proj Time", "Range Instances"}),
        {
            "Range": Field("name", "text"),
            "Style": Field("style", "text"),
            "Total Proj Time": Field("gpu_span_ns", "time"),
            "Total Range Time": Field("time_ns", "time"),
            "Range Instances": Field("count", "count"),
            **_statistics("Proj "),
            "Total GPU Ops": Field("gpu_ops", "count"),
            "Avg GPU Ops": Field("avg_gpu_ops", "number"),
            "Avg Range Lvl": Field("avg_level", "number"),
            "Avg Num Child": Field("avg_children", "number"),
        },
    ),
    Report(
        ("nvtx_pushpop_trace", "nvtxpptrace"),
        frozenset({"Start", "End", "DurNonChild", "Name"}),
        {
            "Start": Field("start_ns", "time"),
            "End": Field("end_ns", "time"),
            "Duration": Field("time_ns", "time"),
            "DurChild": Field("child_ns", "time"),
            "DurNonChild": Field("self_ns", "time"),
            "Name": Field("name", "text"),
            **_OWNER,
            **_NESTING,
        },
    ),
    Report(
        ("cuda_kern_exec_trace", "kernexectrace"),
        frozenset({"API Start", "Kernel Start", "Kernel Name"}),
        {
            "API Start": Field("launch_ns", "time"),
            "API Dur": Field("launch_time_ns", "time"),
            "Queue Start": Field("queue_ns", "time"),
            "Queue Dur": Field("queue_time_ns", "time"),
            "Kernel Start": Field("start_ns", "time"),
            "Kernel Dur": Field("time_ns", "time"),
            "Total Dur": Field("total_ns", "time"),
            **_OWNER,
            "DevId": Field("device", "count"),
            "API Function": Field("api", "text"),
            "GridXYZ": Field("grid", "triple", True),
            "BlockXYZ": Field("block", "triple", True),
            "Kernel Name": Field("kernel", "text"),
        },
    ),
)

_HEADER = re.compile(r'^"?(?:Time ?\(%\)|Start ?\(|Name,|NVTX Range|Range,|API Start)', re.MULTILINE)
_UNIT = re.compile(r"^(.*?)\s*\(([^()]*)\)$")
_SPELLINGS = {"Average": "Avg", "Minimum": "Min", "Maximum": "Max", "Median": "Med"}


def identify(header: list[str]) -> Report | None:
    """The report that has this header, or None."""
    plain = {split_unit(cell)[0] for cell in header}
    return next((report for report in REPORTS if report.marks <= plain), None)


def header_of(line: str) -> list[str]:
    """The cells of a line that could be the header of a report; none for any other line."""
    return next(csv.reader([line.strip()]), []) if _HEADER.match(line) else []


def split_unit(cell: str) -> tuple[str, str]:
    """A header cell without its unit, in today's spelling, and the unit."""
    match = _UNIT.match(cell.strip())
    title, unit = match.groups() if match else (cell.strip(), "")
    return _SPELLINGS.get(title, title), unit


def next_header(text: str, at: int) -> int:
    """Where the next line that could be a report's header begins, at or after `at`; -1 for none."""
    found = _HEADER.search(text, at)
    return found.start() if found else -1
