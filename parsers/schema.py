"""The measured tables, defined once: column, dtype, unit (in the name), nullability, meaning.

Missing is null, never zero. `kernels` is the join that `kernelroof.roofline` makes from `launches`,
counters and the estimate; it is defined here so that every reader and writer shares one definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernelroof.models.errors import ReportError

if TYPE_CHECKING:
    import pandas as pd

ROOT_MODULE = "(root)"
"""Module path of work done by the model's own forward, outside any submodule."""
SAMPLE_MODULE = "(sample)"
"""Module path of the driver's token choice (argmax), which is no module of the model."""
UNATTRIBUTED = "(unattributed)"
"""Phase or module of work that no range covers; kept and counted."""


class Column(NamedTuple):
    """One column: `dtype` is a pandas dtype name; nullable integers use `Int64`."""

    name: str
    dtype: str
    nullable: bool
    meaning: str


KEYS = (
    Column("phase", "str", False, "prefill, decode or (unattributed)"),
    Column("step", "Int64", True, "decode step from 0; 0 in prefill; null when no step range covers it"),
    Column("module", "str", False, "dotted module path, (root), (sample) or (unattributed)"),
    Column("kernel", "str", False, "CPU: the torch op, e.g. aten::mm; GPU: the demangled kernel name"),
    Column("op", "str", True, "the torch op that launched it, where the timeline knows it"),
    Column("ordinal", "Int64", False, "position among the launches of its phase and step, from 0"),
)

LAUNCHES = (
    *KEYS,
    Column("event", "Int64", False, "id of the event in its recording"),
    Column("thread", "Int64", True, "thread id of the launching call"),
    Column("stream", "Int64", True, "CUDA stream; null on a CPU"),
    Column("device", "str", False, "cpu, cuda:0, ..."),
    Column("start_ns", "Int64", False, "start of execution, from the recording's first event"),
    Column("time_ns", "Int64", False, "duration as recorded, without that of nested launches"),
    Column("launch_ns", "Int64", True, "start of the launching call, same clock; null on a CPU"),
    Column("grid", "str", True, "x,y,z; null on a CPU"),
    Column("block", "str", True, "x,y,z; null on a CPU"),
    Column("time_source", "str", False, "torch or nsys"),
)

KERNELS = (
    *KEYS,
    Column(
        "kind",
        "str",
        False,
        "kind of module: attention, projection, mlp, norm, ... (kernelroof.models.kinds)",
    ),
    Column("count", "Int64", False, "launches this row stands for"),
    Column("shapes", "str", True, "operand shapes of the traced op"),
    Column("dtype", "str", True, "dtype of the op's result"),
    Column("recorded_ns", "Int64", False, "duration as the profiler recorded it"),
    Column("time_ns", "Int64", False, "duration brought to the bare run's clock (see wall.json)"),
    Column("flops", "Int64", True, "FLOP of one launch, FMA = 2"),
    Column("dram_read_bytes", "Int64", True, "bytes read by one launch"),
    Column("dram_write_bytes", "Int64", True, "bytes written by one launch"),
    Column("intensity", "float64", True, "flops / (read + written bytes)"),
    Column("attained_flop_s", "float64", True, "flops / time"),
    Column("attained_byte_s", "float64", True, "bytes / time"),
    Column("ideal_ns", "float64", True, "time at the roof: max(flops / peak, bytes / bandwidth)"),
    Column("pct_of_roof", "float64", True, "100 * ideal_ns / time_ns"),
    Column("recoverable_ns", "float64", True, "(time_ns - ideal_ns) * count, at least 0"),
    Column("bound", "str", False, "compute, memory, latency, inefficient or unknown"),
    Column("reason", "str", True, "why the bound is what it is, or why a number is missing"),
    Column("dram_pct", "float64", True, "DRAM share of peak, counted by ncu; null without counters"),
    Column("sm_pct", "float64", True, "SM share of peak, counted by ncu; null without counters"),
    Column("time_source", "str", False, "torch or nsys"),
    Column("flops_source", "str", True, "traced or ncu"),
    Column("bytes_source", "str", True, "traced or ncu"),
    Column("group", "Int64", True, "event of the op that launched it: rows of one group share its work"),
    Column("group_flops", "Int64", True, "FLOP of the whole group, where it is not known by kernel"),
    Column("group_bytes", "Int64", True, "bytes of the whole group, likewise"),
)


def conform(frame: pd.DataFrame, columns: tuple[Column, ...], table: str) -> pd.DataFrame:
    """Return `frame` with exactly these columns, in this order and these dtypes.

    Raises:
        ReportError: a column is missing, or a column that may not be null holds a null.
    """
    missing = [c.name for c in columns if c.name not in frame.columns]
    if missing:
        raise ReportError(f"table {table} lacks {', '.join(missing)}", "Record it again with this version.")
    out: pd.DataFrame = frame[[c.name for c in columns]].astype({c.name: c.dtype for c in columns if c.dtype != "str"})
    for c in columns:
        if c.dtype == "str":
            out[c.name] = out[c.name].astype("string")
        if not c.nullable and out[c.name].isna().any():
            row = int(out[c.name].isna().to_numpy().argmax())
            raise ReportError(f"table {table} has no {c.name} in row {row}", "Record it again.")
    return out
