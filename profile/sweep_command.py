"""`kernelroof sweep`: every combination of models, GPUs, sizes and formats, as a table and a heat map."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.models.errors import OutputError, UsageError
from kernelroof.models.estimate import PhaseCost, compute_time
from kernelroof.models.grid import Device, Grid, estimate_grid
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.spec import ModelSpec, read_spec
from kernelroof.models.workload import Workload, conventions, make_workload
from kernelroof.profile.runfolder import check_target
from kernelroof.roofline.gpus import Gpu, find_gpu, peak_for, quantised_peaks
from kernelroof.roofline.text_table import WIDTH, text_table
from kernelroof.roofline.units import quantity, seconds

AXES = ("model", "gpu", "batch", "prompt", "output", "dtype", "weights_dtype", "kv_dtype")
_REASONS = ["prompt + output exceed the model's positions", "the GPU table has no peak for this dtype"]
_TABLES = (".csv", ".csv.gz", ".parquet")
_PICTURES = (".png", ".svg", ".pdf")
_SLOW_ROWS = 200_000
"""Writing more rows than this takes over two seconds, and is said."""


def run(args: argparse.Namespace) -> int:
    """Estimate the product of all lists, print the best rows, write what was asked for."""
    if args.top < 1:
        raise UsageError(f"--top is {args.top}", "Give a whole number of at least 1.")
    rows = list(dict.fromkeys(_rows(args)))
    _check_outputs(args)
    dtypes = {load.dtype for _, load in rows}
    devices = [_device(gpu, dtypes) for gpu in dict.fromkeys(find_gpu(name) for name in args.gpus)]
    grid = estimate_grid(rows, devices, args.batches, args.prompts, args.outputs)
    table = sweep_table(rows, devices, grid)
    every = len(table)
    limited = [("--at-most", column) for column, _ in args.at_most]
    for option, column in (("--sort", args.sort), ("--heat", args.heat), *limited):
        if column not in table.columns:
            raise UsageError(f"{option}: no column {column!r}", f"Columns: {', '.join(table.columns)}.")
    table = _kept(table, args)
    # The picture may be refused: then nothing has been written.
    if args.picture is not None:
        from kernelroof.roofline.heatmap import plot_heat

        axes = args.axes or _longest(args)
        plot_heat(table, args.heat, axes, [a for a in AXES if a not in axes], args.picture, _footer(rows))
    if args.out:
        _write(table, args.out)
    limits = ["fit"] if args.fits else []
    limits += [f"have {column} of at most {limit:g}" for column, limit in args.at_most]
    print(
        f"{every:,} combination{'s' if every != 1 else ''}"
        + (f", {len(table):,} of them {' and '.join(limits)}" if limits else "")
    )
    _print_best(table, args.sort, args.top)
    print(
        "ideal times at datasheet peaks (dense), real ones are longer: see `kernelroof estimate`; tokens/s: batch\n"
        "over the step, the first of decode (tpot_ms), prefill (ttft_ms) not in it; bound: of prefill/of decode"
    )
    for convention, words in conventions(*rows[0]).items():
        if convention in ("mask", "cache", "head", "bytes"):
            print(textwrap.fill(words, WIDTH, initial_indent=f"  {convention:<6} ", subsequent_indent=" " * 9))
    for path in filter(None, (args.out, args.picture)):
        print(f"written: {path}")
    return 0


def _kept(table: pd.DataFrame, args: argparse.Namespace) -> pd.DataFrame:
    """The rows that fit, where that is asked for, and that stay within the limits; unknown values do not."""
    if args.fits:
        table = table[table["fits"]]
    for column, limit in args.at_most:
        if not pd.api.types.is_numeric_dtype(table[column]) or pd.api.types.is_bool_dtype(table[column]):
            raise UsageError(f"--at-most {column}: not a number", "Name a column such as tpot_ms.")
        table = table[table[column] <= limit]
    return table


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse axes and files that make no sense before anything is estimated."""
    if args.axes is not None and (len(set(args.axes)) != 2 or not set(args.axes) <= set(AXES)):
        raise UsageError(
            f"--axes {','.join(args.axes)}: not two columns of the sweep",
            f"Name two of {', '.join(AXES)}, such as batch,prompt.",
        )
    if args.out is not None and not args.out.endswith(_TABLES):
        raise UsageError(f"--out {args.out}: unknown kind of file", "Name a .csv, .csv.gz or .parquet file.")
    if args.picture is not None and not args.picture.endswith(_PICTURES):
        raise UsageError(f"--picture {args.picture}: unknown kind of file", "Name a .png, .svg or .pdf file.")
    if args.out is not None:
        check_target(Path(args.out))


def _rows(args: argparse.Namespace) -> list[tuple[ModelSpec, Workload]]:
    """Models in formats; formats that were not given are the model's own."""
    rows = []
    for name in args.models:
        spec = read_spec(load_config(name), display_name(name))
        for run in args.dtypes or [None]:
            for weights in args.weights_dtypes or [None]:
                for kv in args.kv_dtypes or [None]:
                    load = make_workload(
                        spec,
                        prompt=1,
                        output=1,
                        dtype=run,
                        weights_dtype=weights,
                        kv_dtype=kv,
                        attn=args.attn,
                        cache=args.cache,
                        overhead=args.overhead,
                    )
                    rows.append((spec, load))
    return rows


def _device(gpu: Gpu, dtypes: set[str]) -> Device:
    peaks: dict[str, float | None] = {}
    for dtype in dtypes:
        try:
            peaks[dtype] = peak_for(gpu, dtype)
        except UsageError:
            peaks[dtype] = None  # its times become null, with the reason in the row
    return Device(gpu.key, gpu.byte_s, gpu.memory_bytes, peaks, quantised_peaks(gpu))


def sweep_table(rows: list[tuple[ModelSpec, Workload]], devices: list[Device], grid: Grid) -> pd.DataFrame:
    """One row per point: what was asked, sizes in bytes, ideal times in ms, bounds, and why times are missing."""
    cost, times = grid.costs, grid.times
    length = len(grid.batch)

    def labels(index: Any, words: list[str]) -> Any:
        unique = list(dict.fromkeys(words))
        codes = np.asarray([unique.index(w) for w in words])[index]
        return pd.Categorical.from_codes(codes, categories=pd.Index(unique))

    def bound(phase: PhaseCost) -> Any:
        compute = compute_time(phase, grid.flop_s, grid.quantised_flop_s) >= phase.bytes / grid.byte_s
        codes = np.where(np.isnan(times.prefill_s), -1, compute.astype(np.int8))
        return pd.Categorical.from_codes(codes, categories=pd.Index(["memory", "compute"]))

    prefill, step = cost.prefill, cost.first_step
    columns: dict[str, Any] = {
        "model": labels(grid.row, [spec.name for spec, _ in rows]),
        "gpu": labels(grid.device, [d.key for d in devices]),
        "batch": grid.batch,
        "prompt": grid.prompt,
        "output": grid.output,
        "dtype": labels(grid.row, [load.dtype for _, load in rows]),
        "weights_dtype": labels(grid.row, [load.weights_dtype for _, load in rows]),
        "kv_dtype": labels(grid.row, [load.kv_dtype for _, load in rows]),
        "parameters": cost.parameters,
        "weight_bytes": cost.weight_bytes,
        "kv_bytes": cost.kv_bytes,
        "total_bytes": cost.total_bytes,
        "fits": cost.total_bytes <= grid.memory_bytes,
        "prefill_flops": prefill.flops,
        "prefill_bytes": prefill.bytes,
        "prefill_flop_per_byte": prefill.flops / prefill.bytes,
        "prefill_bound": bound(prefill),
        "ttft_ms": 1e3 * times.prefill_s,
        "decode_step_flops": step.flops,
        "decode_step_bytes": step.bytes,
        "decode_flop_per_byte": step.flops / step.bytes,
        "decode_bound": bound(step),
        "tpot_ms": 1e3 * times.first_step_s,
        "decode_ms": 1e3 * times.decode_s,
        "tokens_per_s": grid.batch / times.first_step_s,
        "reason": pd.Categorical.from_codes(
            np.where(grid.too_long, 0, np.where(np.isnan(grid.flop_s), 1, -1)),
            categories=pd.Index(_REASONS),
        ),
    }
    table: pd.DataFrame = pd.DataFrame(
        {name: np.broadcast_to(c, length) if np.ndim(c) == 0 else c for name, c in columns.items()}
    )
    return table


def _longest(args: argparse.Namespace) -> list[str]:
    """The two axes with most values, sizes before names."""
    lists = {
        "batch": args.batches,
        "prompt": args.prompts,
        "output": args.outputs,
        "gpu": args.gpus,
        "model": args.models,
        "weights_dtype": args.weights_dtypes or [],
        "kv_dtype": args.kv_dtypes or [],
        "dtype": args.dtypes or [],
    }
    return sorted(lists, key=lambda axis: -len(lists[axis]))[:2]


def _footer(rows: list[tuple[ModelSpec, Workload]]) -> str:
    words = conventions(*rows[0])
    return f"closed-form estimate at datasheet peaks (dense); {words['mask']}; cache {words['cache']}; {words['units']}"


def _write(table: pd.DataFrame, path: str) -> None:
    if len(table) > _SLOW_ROWS:
        print(f"writing {len(table):,} rows to {path} ...", file=sys.stderr)
    part = f"{path}.{os.getpid()}.part"
    try:
        if path.endswith(".parquet"):
            table.to_parquet(part, index=False)
        else:
            table.to_csv(part, index=False, compression="gzip" if path.endswith(".gz") else None)
        os.replace(part, path)
    except ImportError as error:
        raise UsageError(
            "writing Parquet needs the package pyarrow, which is not installed",
            "pip install pyarrow, or name a .csv file.",
        ) from error
    except OSError as error:
        raise OutputError(
            f"{path} can't be written ({error.strerror or error})", "Choose a writable folder."
        ) from error
    finally:
        if os.path.exists(part):
            os.unlink(part)


_SHORT = {"weights_dtype": "weights", "kv_dtype": "KV"}


def _print_best(table: pd.DataFrame, column: str, top: int) -> None:
    """The first rows by `column`, what fits before what does not.

    The largest come first of rates and intensities, the smallest of times and sizes. Axes that have one
    value only are said once.
    """
    rising = column.endswith(("_ms", "_bytes"))
    best = table.sort_values(["fits", column], ascending=[False, rising], na_position="last", kind="stable").head(top)
    varying = [a for a in AXES if table[a].nunique() > 1]
    alike = [f"{_SHORT.get(a, a)} {table[a].iloc[0]}" for a in AXES if a not in varying and len(table)]
    if table.empty:
        return
    if alike:
        print(textwrap.fill(f"all with {', '.join(alike)}", WIDTH, subsequent_indent="  "))
    header = [_SHORT.get(a, a) for a in varying]
    header += ["memory", "fits", "prefill", "step", "tokens/s", "bound"]
    body = []
    for r in best.to_dict("records"):
        known = r["tpot_ms"] == r["tpot_ms"]
        body.append(
            [
                *(f"{r[a]:,}" if isinstance(r[a], int) else str(r[a]) for a in varying),
                quantity(r["total_bytes"], "B", 3),
                "yes" if r["fits"] else "NO",
                seconds(r["ttft_ms"] / 1e3, 3),
                seconds(r["tpot_ms"] / 1e3, 3),
                f"{r['tokens_per_s']:,.0f}" if known else "–",
                f"{r['prefill_bound']}/{r['decode_bound']}" if known else r["reason"],
            ]
        )
    if body:
        texts = {i for i, a in enumerate(varying) if a not in ("batch", "prompt", "output")}
        print(text_table(header, body, left=texts | {len(header) - 1}, names=texts))
    unknown = int(table["tokens_per_s"].isna().sum())
    if unknown:
        print(f"{unknown:,} rows have no times: see the column reason")
