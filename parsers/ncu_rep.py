"""`.ncu-rep` files through NVIDIA's own reader, the optional package `ncu-report`.

The package is imported when a report is read and not before. It needs no ncu and no GPU. Values are in
base units and unrounded; `get_version()` is the package's version, not the report's, so none is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.parsers.ncu_errors import NoKernelsError, ReportReaderError
from kernelroof.parsers.ncu_page import NcuPage, launch_columns, whole_numbers
from kernelroof.parsers.ncu_rep_blocks import is_cut
from kernelroof.parsers.nvtx_cells import CellRange, path_of
from kernelroof.parsers.units import base_unit

MAGIC = b"NVR\0"
"""The first bytes of a report file."""

_DEMANGLED = 1
_MESSAGE_KINDS = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_SPEEDUP_KINDS = {1: "local", 2: "global"}


def is_report(data: bytes) -> bool:
    """Whether the first bytes of a file are those of a report."""
    return data[:4] == MAGIC


def read_rep(path: Path) -> NcuPage:
    """Read a report file.

    Raises:
        ReportReaderError: the package is not installed, or it can't read the file.
        NoKernelsError: the report holds no kernel.
    """
    actions = [action for each in _ranges(_load(path)) for action in _actions(each)]
    cut = is_cut(path)
    if cut:
        actions = [action for action in actions if action.metric_names()]  # the one in which it ends has a name only
    if not actions and cut:
        raise ReportReaderError(
            f"The report {path} is cut off and holds no whole kernel",
            "Copy it again; if ncu was killed while it wrote, count again, with fewer kernels (--launch-count).",
        )
    if not actions:
        raise NoKernelsError(f"The report {path} holds no kernels")
    names = dict.fromkeys(str(n) for action in actions for n in action.metric_names() if ":" not in n)
    units: dict[str, str] = {}
    values: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    for name in names:
        metrics = [action.metric_by_name(name) for action in actions]
        unit = next((base_unit(m.unit() or "") for m in metrics if m is not None), base_unit(""))
        cells = [None if m is None or not m.has_value() else m.value() for m in metrics]
        if any(isinstance(c, str) for c in cells):
            texts[name] = pd.array([None if c is None else str(c) for c in cells], dtype="string")
            continue
        values[name] = np.array([np.nan if c is None else float(c) for c in cells]) * unit.factor
        units[name] = unit.name
    table, words = (pd.DataFrame(columns, index=range(len(actions))) for columns in (values, texts))
    notes = (f"the file is cut off: only the {len(actions)} kernels before the cut were read",) if cut else ()
    return NcuPage("report", _identity(actions, table), table, words, units, {}, _rules(actions), notes)


def _load(path: Path) -> Any:
    try:
        import ncu_report  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise ReportReaderError(f"Reading {path} needs the package ncu-report, which is not installed") from error
    try:
        return ncu_report.load_report(str(path))
    except Exception as error:
        raise ReportReaderError(
            f"The package ncu-report can't read {path} ({str(error).strip() or type(error).__name__})",
            "The file may be cut off, or written by a newer Nsight Compute: copy it again, or update ncu-report.",
        ) from error


def _ranges(context: Any) -> list[Any]:
    return [context.range_by_idx(k) for k in range(context.num_ranges())]


def _actions(each: Any) -> list[Any]:
    return [each.action_by_idx(k) for k in range(each.num_actions())]


def _identity(actions: list[Any], values: pd.DataFrame) -> pd.DataFrame:
    count = len(actions)
    stacks = [_stacks(action) for action in actions]
    out: pd.DataFrame = pd.DataFrame(
        {
            "launch_id": pd.array(range(count), dtype="Int64"),
            "process": pd.array([None] * count, dtype="Int64"),
            "program": pd.array([None] * count, dtype="string"),
            "kernel": pd.array([action.name(_DEMANGLED) or action.name() for action in actions], dtype="string"),
            "context": whole_numbers(values, "launch__context_id"),
            "stream": whole_numbers(values, "launch__stream_id"),
        }
    )
    out = out.assign(**launch_columns(values))
    out["range"] = pd.array([s[0] for s in stacks], dtype="string")
    out["open_ranges"] = pd.array([s[1] for s in stacks], dtype="string")
    return out


def _stacks(action: Any) -> tuple[str | None, str | None]:
    """The push/pop path and the open start/end ranges of a launch."""
    state = action.nvtx_state()
    pushed: list[CellRange] = []
    started: list[CellRange] = []
    for domain in state.domains() if state else ():
        info = state.domain_by_id(domain)
        pushed += [CellRange(str(info.name()), str(r)) for r in info.push_pop_ranges()]
        started += [CellRange(str(info.name()), str(r)) for r in info.start_end_ranges()]
    return path_of(pushed), path_of(started)


def _rules(actions: list[Any]) -> pd.DataFrame:
    """The tool's own advice for each launch, as in the details page."""
    rows = []
    for ordinal, action in enumerate(actions):
        for rule in action.rule_results_as_dicts():
            message, speedup = rule.get("rule_message") or {}, rule.get("speedup_estimation") or {}
            rows.append(
                (
                    ordinal,
                    rule.get("section_identifier"),
                    rule.get("name"),
                    _MESSAGE_KINDS.get(message.get("type", 0)),
                    message.get("message"),
                    _SPEEDUP_KINDS.get(speedup.get("type", 0)),
                    float(speedup.get("speedup", np.nan)),
                )
            )
    names = ("ordinal", "section", "rule", "kind", "description", "speedup_kind", "speedup_pct")
    kinds = ("Int64", "string", "string", "string", "string", "string", "float64")
    table = pd.DataFrame(rows, columns=list(names), dtype="object")
    out: pd.DataFrame = table.astype(dict(zip(names, kinds, strict=True)))
    return out
