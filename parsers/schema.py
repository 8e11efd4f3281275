"""The measured tables, defined once: column, dtype, unit (in the name), nullability, meaning.

Missing is null, never zero. `kernels` is the join that `kernelroof.roofline` makes from `launches`,
counters and the estimate; it is defined here so that every reader and writer shares one definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import ReportError
from kernelroof.parsers.plain import plain_texts

if TYPE_CHECKING:
    import pandas as pd

ROOT_MODULE = "(root)"
"""Module path of work done by the model's own forward, outside any submodule."""
SAMPLE_MODULE = "(sample)"
"""Module path of the driver's token choice (argmax), which is no module of the model."""
UNATTRIBUTED = "(unattributed)"
"""Phase or module of work that no range covers; kept and counted."""


class Column(NamedTuple):
    """One column: `dtype` is a pandas dtype name; nullable integers use `Int64`; no value is below `least`."""

    name: str
    dtype: str
    nullable: bool
    meaning: str
    least: int | None = None


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
    Column("time_ns", "Int64", False, "duration as recorded, without that of nested launches", 0),
    Column("launch_ns", "Int64", True, "start of the launching call, same clock; null on a CPU"),
    Column("grid", "str", True, "x,y,z; null on a CPU"),
    Column("block", "str", True, "x,y,z; null on a CPU"),
    Column("shared_bytes", "Int64", True, "shared memory of a block, static and dynamic; null where not recorded", 0),
    Column(
        "ranges",
        "str",
        True,
        "names of the ranges around the launching call, outermost first, joined by /; null where none is known",
    ),
    Column("time_source", "str", False, "torch or nsys"),
)

COUNTERS = (
    Column("ordinal", "Int64", False, "position of the launch among those of its export, from 0"),
    Column("launch_id", "Int64", True, "the tool's own number of the launch (its ID column)"),
    Column("kernel", "str", False, "kernel name as printed, demangled"),
    Column("grid", "str", True, "x,y,z; null where the export gives only a product"),
    Column("block", "str", True, "x,y,z; null where the export gives only a product"),
    Column("grid_blocks", "Int64", True, "blocks of the launch"),
    Column("block_threads", "Int64", True, "threads of a block"),
    Column("range", "str", True, "open push/pop ranges of the launching thread, outermost first, joined by /"),
    Column("open_ranges", "str", True, "open start/end ranges of the process, joined by /"),
    Column("process", "Int64", True, "process id"),
    Column("stream", "Int64", True, "CUDA stream"),
    Column("device", "str", True, "cuda:0, ..."),
    Column("gpu", "str", True, "name of the GPU as the report gives it"),
    Column("cc", "str", True, "compute capability, e.g. 9.0"),
    Column("time_ns", "Int64", True, "duration under the profiler, kernels serialised"),
    Column("dram_read_bytes", "Int64", True, "bytes read from DRAM"),
    Column("dram_write_bytes", "Int64", True, "bytes written to DRAM; writes may leave L2 after the kernel"),
    Column("dram_bytes", "Int64", True, "read + written, or the counter of both where only that is there"),
    Column("l2_bytes", "Int64", True, "bytes between L2 and the crossbar (not tag traffic)"),
    Column("l1_bytes", "Int64", True, "bytes written back by L1 to registers"),
    Column("flops", "Int64", True, "FLOP of the launch, FMA = 2; null where the tensor pipe is active and silent"),
    Column("flops_by_type", "str", True, 'JSON: FLOP by type, e.g. {"fp32": 1, "tensor:bf16->fp32": 2}'),
    Column("flops_upper_bound", "boolean", False, "FLOPs hold packed half instructions: at most so many"),
    Column("dram_pct", "float64", True, "DRAM share of peak"),
    Column("sm_pct", "float64", True, "SM share of peak"),
    Column("tensor_pct", "float64", True, "cycles with an active tensor pipe, % of elapsed"),
    Column("occupancy_pct", "float64", True, "achieved occupancy"),
    Column("waves_per_sm", "float64", True, "waves of blocks on each SM"),
    Column("registers", "Int64", True, "registers of a thread"),
    Column("sm_count", "Int64", True, "SMs of the GPU"),
    Column("sm_clock_hz", "float64", True, "SM clock while counted"),
    Column("dram_clock_hz", "float64", True, "DRAM clock while counted"),
    Column("passes", "Int64", True, "replay passes that the counters took"),
    Column("peak_dram_byte_s", "float64", True, "the report's own DRAM peak, at its clock"),
    Column("peak_l2_byte_s", "float64", True, "the report's own L2 peak, at its clock"),
    Column("peak_l1_byte_s", "float64", True, "the report's own L1 peak, at its clock"),
    Column("peak_flop_s", "str", True, "JSON: the report's own dense peaks by type, FLOP/s at its SM clock"),
    Column("peak_flop_per_sm_cycle", "str", True, "JSON: the same in FLOP per SM and cycle"),
    Column("sources", "str", True, "JSON: the real metric name behind each figure of the row"),
    Column("reasons", "str", True, "JSON: why a figure of the row is null, or what limits it"),
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
    Column("idle_before_ns", "Int64", False, "time right before it in which no kernel ran, on the same clock"),
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
    Column("time_source", "str", False, "torch or nsys; ncu where there is no timeline"),
    Column("flops_source", "str", True, "traced or ncu"),
    Column("bytes_source", "str", True, "traced or ncu"),
    Column("group", "Int64", True, "event of the op that launched it: rows of one group share its work"),
    Column("group_flops", "Int64", True, "FLOP of the whole group, where it is not known by kernel"),
    Column("group_bytes", "Int64", True, "bytes of the whole group, likewise"),
)

_COUNTED = (
    Column("clock", "str", False, "clock of time_ns and all that is divided by it: ncu, or timeline (nsys, torch)"),
    Column("device", "str", True, "cuda:0, ..."),
    Column("grid", "str", True, "x,y,z"),
    Column("block", "str", True, "x,y,z"),
    Column("ranges", "str", True, "ranges around the launching call, outermost first, joined by /"),
    Column("start_ns", "Int64", True, "start on the timeline; null without one"),
    Column("dram_bytes", "Int64", True, "read + written, or the counter of both where only that is there"),
    Column("l2_bytes", "Int64", True, "bytes from L2 to the SMs (what is read)"),
    Column("l1_bytes", "Int64", True, "bytes from L1 to registers (what is read)"),
    Column("intensity_l2", "float64", True, "flops / l2_bytes"),
    Column("intensity_l1", "float64", True, "flops / l1_bytes"),
    Column("hierarchy", "str", True, "where AI_L1 <= AI_L2 <= AI_DRAM does not hold, and why; null where it holds"),
    Column("flops_by_type", "str", True, "JSON: FLOP by type"),
    Column("flops_upper_bound", "boolean", True, "FLOPs hold packed half instructions: at most so many"),
    Column("roof_type", "str", True, "the type whose peak is the compute roof of this launch"),
    Column("ncu_time_ns", "Int64", True, "duration under ncu: kernels serialised, its clocks, its cache mode"),
    Column("ncu_flop_s", "float64", True, "flops / ncu_time_ns"),
    Column("ncu_byte_s", "float64", True, "DRAM bytes / ncu_time_ns"),
    Column("ncu_dram_roof_pct", "float64", True, "ncu_byte_s as share of the DRAM roof at ncu's clock"),
    Column("ncu_l2_roof_pct", "float64", True, "L2 bytes / ncu_time_ns as share of the report's L2 roof"),
    Column("ncu_l1_roof_pct", "float64", True, "L1 bytes / ncu_time_ns as share of the report's L1 roof"),
    Column("ncu_pct_of_roof", "float64", True, "share of the roof wholly inside ncu"),
    Column("ncu_bound", "str", True, "bound wholly inside ncu"),
    Column("timeline_ns", "Int64", True, "true duration on the timeline; null without one"),
    Column("timeline_pct_of_roof", "float64", True, "counted work over timeline_ns, at the timeline's roofs"),
    Column("timeline_bound", "str", True, "bound wholly on the timeline"),
    Column("duration_ratio", "float64", True, "ncu_time_ns / timeline_ns"),
    Column("sm_pct_at_least", "float64", True, "share of the SM's instruction units where sm_pct was not counted"),
    Column("tensor_pct", "float64", True, "cycles with an active tensor pipe, % of elapsed"),
    Column("occupancy_pct", "float64", True, "achieved occupancy"),
    Column("waves_per_sm", "float64", True, "waves of blocks on each SM"),
    Column("registers", "Int64", True, "registers of a thread"),
    Column("sm_clock_hz", "float64", True, "SM clock while counted"),
    Column("passes", "Int64", True, "replay passes that the counters took"),
    Column("joined", "str", True, "how a launch got its counters: itself, ordinal, class; null where it has none"),
    Column("caveat", "str", True, "what limits the figures of the row"),
    Column("cure", "str", True, "which kind of change would help; null where that can't be said"),
    Column("verdict", "str", False, "one sentence: what bounds the kernel and what would help"),
)
_NULLABLE_HERE = ("recorded_ns", "time_ns", "idle_before_ns")

ANALYZED = (
    *(c._replace(nullable=True) if c.name in _NULLABLE_HERE else c for c in KERNELS),
    *_COUNTED,
)
"""kernels.csv where counters of ncu are in it: the columns of KERNELS first. Ratios stay inside one clock."""


def conform(frame: pd.DataFrame, columns: tuple[Column, ...], table: str) -> pd.DataFrame:
    """Return `frame` with exactly these columns, in this order and these dtypes; control characters are escaped.

    Raises:
        ReportError: a column is missing, holds what its dtype can't hold (a fraction, a number of 64 bits and
            more), a number below its least, or a null that may not be.
    """
    import pandas as pd

    missing = [c.name for c in columns if c.name not in frame.columns]
    if missing:
        raise ReportError(f"table {table} lacks {', '.join(missing)}", "Record it again with this version.")
    out: pd.DataFrame = frame[[c.name for c in columns]].copy()
    dtype: Any
    for c in columns:
        dtype = c.dtype
        if c.dtype == "str":
            given = out[c.name].dtype  # one of pandas' two storages of nullable text, to be kept, or something else
            dtype = given if isinstance(given, pd.StringDtype) and given.na_value is pd.NA else "string"
        try:
            out[c.name] = out[c.name].astype(dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ReportError(
                f"table {table}: {c.name} holds what is no {c.dtype} ({error})", "Record it again."
            ) from error
        if c.dtype == "str":
            out[c.name] = plain_texts(out[c.name])
        if c.least is not None and (low := out[c.name].lt(c.least).fillna(False)).any():
            row = int(low.to_numpy(bool).argmax())
            raise ReportError(
                f"table {table}: {c.name} is {out[c.name].iloc[row]} in row {row}, less than {c.least}",
                "Record it again.",
            )
        if not c.nullable and out[c.name].isna().any():
            row = int(out[c.name].isna().to_numpy().argmax())
            raise ReportError(f"table {table} has no {c.name} in row {row}", "Record it again.")
    return out
