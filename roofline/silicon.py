"""Kernel latencies measured on real GPUs (tables of aiconfigurator, as parquet), placed under the datasheet's roofs.

Work is computed from the shapes, as the least that the kernel must do: FLOPs with FMA = 2 and a causal mask,
bytes with every operand read and every result written once. So a share of the roof is an efficiency, and more
than 100 % says that operands stayed in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from kernelroof.models.errors import ReportError, UsageError
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.gpus import ceilings_for, find_gpu

OPS = ("gemm", "context_attention", "generation_attention")
_SIZES = {"bfloat16": 2, "float16": 2, "fp8": 1, "fp8_block": 1, "int8": 1}
_PEAK_DTYPES = {"fp8_block": "fp8"}
_OUT_BYTES = 2
"""Results and queries are 16 bits wide whatever the operands are."""


class Silicon(NamedTuple):
    """Points of one GPU: columns op, source, dtype, time_ns, flops, bytes, intensity, attained_flop_s,
    pct_of_roof. `ceilings` by the dtype that computes."""

    gpu: str
    points: pd.DataFrame
    ceilings: dict[str, Ceilings]


def read_silicon(paths: Sequence[str | Path]) -> list[Silicon]:
    """Read tables and place their rows; one `Silicon` per GPU.

    Raises:
        UsageError: pyarrow is not installed.
        ReportError: a file that is no such table.
        UnknownGpuError: a GPU that is not in the table of GPUs.
    """
    frames = [_points(Path(path)) for path in paths]
    together = pd.concat(frames, ignore_index=True)
    out = []
    for name, rows in together.groupby("gpu", sort=False):
        gpu = find_gpu(str(name))
        ceilings = {d: ceilings_for(gpu, _PEAK_DTYPES.get(d, d)) for d in rows["dtype"].unique()}
        out.append(Silicon(gpu.product, _placed(rows.reset_index(drop=True), ceilings), ceilings))
    return out


def summary(found: Silicon) -> pd.DataFrame:
    """Shares of the roof by op and dtype: rows, median_pct, p99_pct, max_pct, above (rows over 100 %)."""
    grouped = found.points.groupby(["op", "dtype"], sort=False)["pct_of_roof"]
    table = grouped.agg(
        rows="size",
        median_pct="median",
        p99_pct=lambda pct: float(np.quantile(pct, 0.99)),
        max_pct="max",
        above=lambda pct: int((pct > 100).sum()),
    )
    named = table.reset_index().assign(gpu=found.gpu)
    out: pd.DataFrame = named[["gpu", "op", "dtype", "rows", "median_pct", "p99_pct", "max_pct", "above"]]
    return out


def _points(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except ImportError as error:
        raise UsageError(f"reading {path} needs pyarrow", "Install it: pip install 'kernelroof[silicon]'.") from error
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} can't be read as parquet ({error})", "Copy it again.") from error
    op = str(table["op_name"].iloc[0]) if "op_name" in table and len(table) else ""
    if op not in _WORK:
        raise ReportError(
            f"{path} is no table of measured kernels ({op or 'no op_name'})", f"Known: {', '.join(_WORK)}."
        )
    needed = ("device", "latency", *_NEEDED[op])
    missing = [c for c in needed if c not in table]
    if missing:
        raise ReportError(f"{path} lacks {', '.join(missing)}", "Take the table of measured latencies itself.")
    if table["op_name"].nunique() != 1:
        raise ReportError(f"{path} holds several kinds of ops", "Give each its own file.")
    dtype = table["gemm_dtype" if op == "gemm" else "attn_dtype"].astype("string")
    unknown = sorted(set(dtype.unique()) - set(_SIZES))
    if unknown:
        raise ReportError(f"{path} has dtypes of unknown size: {', '.join(unknown)}", "Leave those rows out.")
    flops, moved = _WORK[op](table)
    points: pd.DataFrame = pd.DataFrame(
        {
            "gpu": table["device"].astype("string"),
            "op": op,
            "source": table["kernel_source"].astype("string") if "kernel_source" in table else pd.NA,
            "dtype": dtype,
            "time_ns": table["latency"].astype("float64") * 1e6,
            "flops": flops,
            "bytes": moved,
        }
    )
    return points


def _gemm(table: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    m, n, k = (table[c].astype("float64") for c in "mnk")
    size = table["gemm_dtype"].map(_SIZES).astype("float64")
    return 2 * m * n * k, (m * k + k * n) * size + m * n * _OUT_BYTES


def _context(table: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """Prefill: every token attends to itself and those before it, at most `window_size`."""
    length = table["isl"].astype("float64")
    window = _window(table, length)
    pairs = window * (window + 1) / 2 + (length - window) * window
    heads, kv_heads, dim = (table[c].astype("float64") for c in ("num_heads", "num_key_value_heads", "head_dim"))
    batch = table["batch_size"].astype("float64")
    flops = 4 * batch * heads * dim * pairs
    kv = table["kv_cache_dtype"].map(_SIZES).astype("float64")
    return flops, batch * length * dim * (2 * heads * _OUT_BYTES + 2 * kv_heads * kv)


def _generation(table: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """Decode: one token attends to a context of isl + step - 1 tokens, at most `window_size`."""
    length = (table["isl"] + table["step"] - 1).astype("float64")
    context = _window(table, length)
    heads, kv_heads, dim = (table[c].astype("float64") for c in ("num_heads", "num_key_value_heads", "head_dim"))
    batch = table["batch_size"].astype("float64")
    kv = table["kv_cache_dtype"].map(_SIZES).astype("float64")
    flops = 4 * batch * heads * dim * context
    return flops, batch * dim * (2 * heads * _OUT_BYTES + 2 * kv_heads * context * kv)


def _window(table: pd.DataFrame, length: pd.Series[float]) -> pd.Series[float]:
    """How many tokens are attended to at most."""
    if "window_size" not in table:
        return length
    window = table["window_size"].astype("float64")
    capped: pd.Series[float] = length.where(window <= 0, np.minimum(length, window))
    return capped


_WORK: dict[str, Callable[[pd.DataFrame], tuple[pd.Series[float], pd.Series[float]]]] = {
    "gemm": _gemm,
    "context_attention": _context,
    "generation_attention": _generation,
}
_ATTENTION = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "attn_dtype", "kv_cache_dtype")
_NEEDED = {
    "gemm": ("gemm_dtype", "m", "n", "k"),
    "context_attention": _ATTENTION,
    "generation_attention": (*_ATTENTION, "step"),
}


def _placed(rows: pd.DataFrame, ceilings: dict[str, Ceilings]) -> pd.DataFrame:
    peak = rows["dtype"].map({d: c.flop_s for d, c in ceilings.items()}).astype("float64")
    band = rows["dtype"].map({d: c.byte_s for d, c in ceilings.items()}).astype("float64")
    ideal_ns = np.maximum(rows["flops"] / peak, rows["bytes"] / band) * 1e9
    placed: pd.DataFrame = rows.drop(columns="gpu").assign(
        intensity=rows["flops"] / rows["bytes"],
        attained_flop_s=rows["flops"] / rows["time_ns"] * 1e9,
        pct_of_roof=100 * ideal_ns / rows["time_ns"],
    )
    return placed
