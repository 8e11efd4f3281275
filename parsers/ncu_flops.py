"""FLOPs of a launch from its counters.

CUDA cores: add + mul + 2 x fma for single and double precision; for half precision the hardware counts
packed instructions (and the compiler moves constants with them), so adds and muls count 2, fmas 4, and the
sum is an upper bound. Tensor ops are FLOP already and are counted on several levels that overlap (all /
by instruction / dense or sparse): each source type is taken from one level only, the uppermost that is whole.
Where the tensor pipe was active and its ops are silent or were not collected, the FLOPs are unknown; so are
they where the only counters that were collected are 0 and others are missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from kernelroof.parsers.metric_book import Book, json_rows, known_sum
from kernelroof.parsers.ncu_tensor_pipe import unexplained_activity
from kernelroof.parsers.printed_numbers import Floats

_FAMILIES = {"fp32": ("f", 1, 2), "fp64": ("d", 1, 2), "fp16": ("h", 2, 4)}
_OPS = re.compile(
    r"(?P<unit>sm|smsp)__ops_path_tensor(?:_op_(?P<op>[a-z]+))?_src_(?P<src>\w+?)"
    r"(?:_dst_(?P<dst>\w+?))?(?:_sparsity_(?P<sparsity>on|off))?"
)
_SIBLING = {"hgmma": "hmma", "hmma": "hgmma", "igmma": "imma", "imma": "igmma", "bgmma": "bmma", "bmma": "bgmma"}


class OpsName(NamedTuple):
    """A tensor-op counter's name taken apart; empty where a part is absent."""

    unit: str
    op: str
    src: str
    dst: str
    sparsity: str


@dataclass(frozen=True)
class Flops:
    """FLOPs by row: total (NaN: unknown), JSON by type, whether the total is an upper bound, and why or how."""

    total: Floats
    by_type: npt.NDArray[np.object_]
    upper_bound: npt.NDArray[np.bool_]
    sources: tuple[str, ...]
    why_null: npt.NDArray[np.object_]
    caveat: str


def ops_names(book: Book) -> dict[str, OpsName]:
    """The tensor-op counters of a report, by name without rollup."""
    out = {}
    for column in book.values.columns:
        base = str(column).partition(".")[0]
        if base not in out and (found := _OPS.fullmatch(base)):
            out[base] = OpsName(*(found[g] or "" for g in ("unit", "op", "src", "dst", "sparsity")))
    return out


def type_key(src: str, dst: str = "") -> str:
    """Name of a tensor type in our tables: `tensor:bf16->fp32`, `tensor:fp8`."""
    return f"tensor:{src}->{dst}" if dst else f"tensor:{src}"


def count_flops(book: Book) -> Flops:
    """All FLOPs of each row."""
    notes: list[str] = []
    sources: list[str] = []
    cuda = {kind: _family(book, kind, notes, sources) for kind in _FAMILIES}
    tensor = _tensor(book, notes, sources)
    by_type = {k: v for k, v in {**cuda, **tensor}.items() if not np.isnan(v).all()}
    total = known_sum(list(by_type.values()), book.rows)
    ops = known_sum(list(tensor.values()), book.rows)
    active = unexplained_activity(book)
    with np.errstate(invalid="ignore"):
        silent = (active > 0) & ~(ops > 0)
        unseen = (total == 0) & (
            np.isnan(known_sum(list(cuda.values()), book.rows)) | (np.isnan(ops) & np.isnan(active))
        )
    reason = np.full(book.rows, None, dtype=object)
    reason[np.isnan(total)] = "no FLOP counter in the report"
    reason[unseen] = "the collected FLOP counters are 0, and the others were not collected"
    reason[silent & ~np.isnan(ops)] = "the tensor pipe was active, but every collected tensor-op counter is silent"
    reason[silent & np.isnan(ops)] = "the tensor pipe was active, and no tensor-op counter was collected"
    total = np.where(silent | unseen, np.nan, total)
    upper = (np.nan_to_num(cuda["fp16"]) > 0) & ~np.isnan(total)
    if not tensor and np.isnan(active).all():
        notes.append("tensor pipe not observed")
    missing = [kind for kind, values in cuda.items() if np.isnan(values).all()]
    if missing:
        notes.append(f"not collected: {', '.join(missing)}")
    return Flops(
        total,
        json_rows(by_type, book.rows),
        upper,
        tuple(dict.fromkeys(sources)),
        reason,
        "; ".join(dict.fromkeys(notes)),
    )


def _family(book: Book, kind: str, notes: list[str], sources: list[str]) -> Floats:
    """FLOPs of one precision on the CUDA cores; null without its fma counter."""
    letter, single, fused = _FAMILIES[kind]
    parts, absent = [], []
    for op, weight in (("add", single), ("mul", single), ("fma", fused)):
        names = [f"{unit}__sass_thread_inst_executed_op_{letter}{op}_pred_on" for unit in ("smsp", "sm")]
        pick = book.first([c for n in names for c in book.total(n, "inst")], names)
        if np.isnan(pick.values).all():
            absent.append(f"{letter}{op}")
            continue
        if op == "fma":
            sources.append(pick.sources[0].replace(f"{letter}fma", f"{letter}*"))
        parts.append(pick.values * weight)
    if len(parts) == 0 or f"{letter}fma" in absent:
        if parts:
            notes.append(f"{kind} left out: {', '.join(absent)} not collected")
        return book.nothing()
    if absent:
        notes.append(f"{kind} without {', '.join(absent)} (not collected)")
    return known_sum(parts, book.rows)


def _tensor(book: Book, notes: list[str], sources: list[str]) -> dict[str, Floats]:
    """Tensor FLOPs by type; each source type from the whole-SM counters, else from the sub-partitions'."""
    names = ops_names(book)
    out: dict[str, Floats] = {}
    for src in dict.fromkeys(n.src for n in names.values()):
        for unit in ("sm", "smsp"):
            mine = {base: n for base, n in names.items() if n.src == src and n.unit == unit}
            found = {k: v for k, v in _source_type(book, mine, notes).items() if not np.isnan(v).all()}
            if found:
                out |= found
                sources.append(f"{unit}__ops_path_tensor_src_*")
                break
    return out


def _source_type(book: Book, names: dict[str, OpsName], notes: list[str]) -> dict[str, Floats]:
    """The ops of one source type, by key, from the uppermost level that was collected."""
    nodes: dict[tuple[str, str], dict[str, Floats]] = {}
    for base, name in names.items():
        pick = book.first(book.total(base, ""), [base])
        if not np.isnan(pick.values).all():
            nodes.setdefault((name.op, name.dst), {})[name.sparsity] = pick.values
    if not nodes:
        return {}
    src = next(iter(names.values())).src
    levels = {key: _level(book, node) for key, node in nodes.items()}
    dsts = dict.fromkeys(dst for op, dst in levels if not op and dst)
    ops = dict.fromkeys(op for op, _ in levels if op)
    below = {op: _filled(levels.get((op, "")), [v for (o, d), v in levels.items() if o == op and d]) for op in ops}
    if dsts:
        by_dst = {d: _filled(levels["", d], [v for (o, e), v in levels.items() if o and e == d]) for d in dsts}
        if ("", "") not in levels:
            found = {type_key(src, d): v for d, v in by_dst.items()}
        else:
            found = {type_key(src): _filled(levels["", ""], list(by_dst.values()))}
    elif ("", "") not in levels:
        lone = [op for op in ops if _SIBLING.get(op) not in ops]
        notes.extend(f"tensor {src} without {_SIBLING[op]} (not collected)" for op in lone if op in _SIBLING)
        kinds = {d for o, d in levels if o}
        found = {type_key(src, kinds.pop() if len(kinds) == 1 else ""): _filled(None, list(below.values()))}
    else:
        found = {type_key(src): _filled(levels["", ""], list(below.values()))}
    for level in found.values():
        if (level.seen_part & ~np.isnan(level.values)).any():
            notes.append(f"tensor {src} dense or sparse only (the other not collected)")
    return {key: level.values for key, level in found.items()}


class _Level(NamedTuple):
    """Ops by row as one level tells them, and the rows in which only dense or only sparse ones were collected."""

    values: Floats
    seen_part: npt.NDArray[np.bool_]


def _level(book: Book, node: dict[str, Floats]) -> _Level:
    """One counter: the plain one, else dense + sparse."""
    plain = node.get("", book.nothing())
    parts = [node.get(s, book.nothing()) for s in ("off", "on")]
    values = np.where(np.isnan(plain), known_sum(parts, book.rows), plain)
    return _Level(values, np.isnan(plain) & np.isnan(parts).any(axis=0))


def _filled(upper: _Level | None, lower: list[_Level]) -> _Level:
    """The upper level; where it is null the sum of the level below, and where it is a part whichever saw more."""
    if not lower and upper is not None:
        return upper
    rows = len(lower[0].values)
    below = known_sum([level.values for level in lower], rows)
    seen_part = np.any([level.seen_part for level in lower], axis=0)
    if upper is None:
        return _Level(below, seen_part)
    most = np.fmax(upper.values, below)
    return _Level(np.where(upper.seen_part, most, upper.values), upper.seen_part & (seen_part | np.isnan(below)))
