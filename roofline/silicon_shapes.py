"""Measured kernels as shapes and times, one group for each table of corrections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.models.efficiency import attention_table
from kernelroof.models.efficiency_table import kind_of
from kernelroof.models.kernel_work import KINDS, Attention, Chip, Gemm, Kind
from kernelroof.roofline.gpus import Gpu, find_gpu, peak_for

SMS = {
    "a100-40gb": 108, "a100-80gb": 108, "a100-40gb-pcie": 108, "a100-80gb-pcie": 108, "a30": 56,
    "h100-sxm": 132, "h100-pcie": 114, "h100-nvl": 132, "h200": 132, "h200-nvl": 132,
    "gh200-96gb": 132, "gh200-144gb": 132, "h20": 78, "h800": 132,
}  # fmt: skip
"""Streaming multiprocessors, as NVIDIA's whitepapers and product briefs state them."""

_PHASES = {"context_attention": "prefill", "generation_attention": "decode"}
_KEYS = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "window")

Floats = npt.NDArray[np.float64]


class Measured(NamedTuple):
    """Kernels of one table on one GPU."""

    gpu_key: str
    table: str
    dtype: str
    """what is computed in"""
    shapes: list[Gemm] | list[Attention]
    seconds: Floats

    @property
    def kind(self) -> Kind:
        """The kind of kernel."""
        return KINDS[kind_of(self.table)]

    def take(self, rows: npt.NDArray[np.intp]) -> Measured:
        """Return some of the rows."""
        shapes = [self.shapes[row] for row in rows]
        return self._replace(shapes=shapes, seconds=self.seconds[rows])


def chip_of(gpu: Gpu, dtype: str) -> Chip:
    """Return what the rough times need of a GPU."""
    return Chip(SMS[gpu.key], peak_for(gpu, "fp8" if dtype.startswith("fp8") else dtype), gpu.byte_s)


def read_shapes(folder: Path) -> list[Measured]:
    """Read every table of a folder of measured latencies."""
    paths = sorted(folder.glob("*_perf.parquet"))
    return [found for path in paths for found in _read(pd.read_parquet(path))]


def _read(rows: pd.DataFrame) -> Iterator[Measured]:
    gpu_key = find_gpu(str(rows["device"].iloc[0])).key
    op = str(rows["op_name"].iloc[0])
    if op == "gemm":
        for dtype, found in rows.groupby("gemm_dtype"):
            narrow = dtype != "bfloat16"
            columns = zip(*(found[c].tolist() for c in "mnk"), strict=True)
            shapes = [Gemm(m, n, k, 1 if narrow else 2, narrow) for m, n, k in columns]
            yield Measured(gpu_key, f"gemm {dtype}", str(dtype), shapes, found["latency"].to_numpy() * 1e-3)
        return
    phase = _PHASES[op]
    # Decode rows count the token being made in `step`: isl + step - 1 tokens are attended to.
    context = rows["isl"] + (rows["step"] - 1 if phase == "decode" else 0)
    window = rows["window_size"] if "window_size" in rows else 0 * rows["isl"]
    rows = rows.assign(context=context, window=window.where((window > 0) & (window < context), 0))
    # Some shapes were measured twice, and a window that covers the context is none.
    single = rows.groupby([*_KEYS, "context"], sort=False)["latency"].median().reset_index()
    single["windowed"] = single["window"] > 0
    for keys, found in single.groupby(["head_dim", "kv_cache_dtype", "windowed"]):
        dim, kv_dtype, windowed = keys
        table = attention_table(phase, int(str(dim)), str(kv_dtype), bool(windowed))
        yield Measured(gpu_key, table, "bfloat16", _attention(found, phase), found["latency"].to_numpy() * 1e-3)


def _attention(rows: pd.DataFrame, phase: str) -> list[Attention]:
    queries = rows["isl"] if phase == "prefill" else 0 * rows["isl"] + 1
    kv_bytes = 1 if rows["kv_cache_dtype"].iloc[0] == "fp8" else 2
    window = rows["window"].where(rows["window"] > 0, rows["context"])
    columns = (
        rows["batch_size"],
        queries,
        rows["context"],
        rows["num_heads"],
        rows["num_key_value_heads"],
        rows["head_dim"],
        window,
    )
    return [
        Attention(batch, query, context, heads, kv_heads, dim, kv_bytes, seen)
        for batch, query, context, heads, kv_heads, dim, seen in zip(*(c.tolist() for c in columns), strict=True)
    ]
