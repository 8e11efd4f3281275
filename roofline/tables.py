"""The estimate's tables as files: ops.csv and modules.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from kernelroof.models.ops import ModuleIO, TracedOp, summarise_ops
from kernelroof.roofline.ceilings import Ceilings

BYTES = ("weight_bytes", "act_read_bytes", "act_write_bytes", "kv_read_bytes", "kv_write_bytes")


def ops_table(ops: Sequence[TracedOp], ceilings: Ceilings) -> pd.DataFrame:
    """ops.csv: what every traced op must do, summed by phase, module and op.

    Decode rows are sums over all decode steps (`count` calls). `flops` are what runs (causal where
    attention is causal), `flops_full` those of a full mask. `ideal_ns` is the sum over the calls of
    max(flops / peak, bytes / bandwidth) at these ceilings. Ops that do no work are left out.
    """
    table = pd.DataFrame([row._asdict() for row in summarise_ops(ops)])
    calls = pd.DataFrame([op._asdict() for op in ops])
    compute_ns = calls["flops"] / ceilings.flop_s * 1e9
    memory_ns = calls[list(BYTES)].sum(axis=1) / ceilings.byte_s * 1e9
    calls["ideal_ns"] = compute_ns.combine(memory_ns, max)
    calls = calls[(calls[[*BYTES, "flops"]] != 0).any(axis=1)]
    keys = ["phase", "module", "op", "dtype", "flops_kind", "role"]
    ideal = calls.groupby(keys, sort=False)["ideal_ns"].sum()
    if len(ideal) != len(table):
        raise AssertionError("the calls and their summary disagree on what an op is")
    out: pd.DataFrame = table.assign(ideal_ns=ideal.to_numpy(), source="traced")
    return out


def modules_table(module_io: Mapping[tuple[str, int, str], ModuleIO]) -> pd.DataFrame:
    """modules.csv: each module's compulsory bytes (inputs, weights and outputs once), summed over steps.

    They are the lower bound of its traffic; the sum of its ops' bytes in ops.csv is the upper one.
    """
    table = pd.DataFrame([io._asdict() for io in module_io.values()])
    summed: pd.DataFrame = table.groupby(["phase", "module"], sort=False)[list(BYTES)].sum().reset_index()
    summed["source"] = "traced"
    return summed


def unmatched_table(ops: Iterable[TracedOp]) -> pd.DataFrame:
    """unmatched.csv: traced ops that do work and that no recorded op stands for."""
    lost = [op._asdict() for op in ops if op.flops or op.read_bytes or op.write_bytes]
    table: pd.DataFrame = pd.DataFrame(lost, columns=list(TracedOp._fields))
    return table


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV: missing cells are empty, floats keep 12 digits."""
    frame.to_csv(path, index=False, float_format="%.12g")
