"""Which launches to count so that all are known: classes of equal launches, and a few members of each.

A class holds the launches of one kernel, grid, block, shared memory, phase, role (the module with its
layer number wildcarded), operand shapes and place among its like in one call of the module. Two members
are counted, of the first and of the last layer. Attention and the cache move more bytes the longer the
context: for such launches first, middle and last step are counted. What the counts say is spread by
`kernelroof.profile.spreading`; members that differ split their class here.

Routed experts and collectives are never represented: what an expert moves depends on the data, and a
collective can't be replayed safely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.models.kinds import kind_of
from kernelroof.parsers.kernel_names import normalise
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.profile.window import Window

Mask = npt.NDArray[np.bool_]

TOLERANCE = 0.05
"""Members that differ by more than this share are not alike."""
FLOOR_BYTES = 1 << 16
"""Reads that differ by less are alike: below it, what caches happen to hold decides."""
ROUNDS = 3
"""At most so many counting runs: the second and third are for classes that were split."""
JUDGED = {"dram_read_bytes": FLOOR_BYTES, "flops": 0}
"""Figures that members are compared by, with the difference that does not count."""

EXPERT = "a routed expert: its work depends on the data, so none stands for another"
COLLECTIVE = "a collective: it waits for other GPUs and can't be replayed safely"
UNPLACED = "in no phase: nothing tells its like"

_TALKS = r"nccl|rccl|nvshmem|mscclpp|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|multimem"
COLLECTIVES = re.sub(r"[a-z]", lambda letter: f"[{letter[0].upper()}{letter[0]}]", _TALKS)
"""Names of kernels that talk to other GPUs, in any case: a regular expression that ncu reads as Python does."""
_COLLECTIVE = re.compile(COLLECTIVES)
_EXPERT_MODULE = re.compile(r"(?:^|\.)(?:local_|routed_)?experts?(?:\.|$)", re.IGNORECASE)
_EXPERT_KERNEL = re.compile(r"fused_?moe|moe_(?:gemm|align|sum)|group(?:ed)?_?gemm", re.IGNORECASE)
_LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
_GROWING = ("attention", "cache")


def classify(launches: pd.DataFrame) -> pd.DataFrame:
    """Sort launches into classes.

    Args:
        launches: one row a launch, in the order they were launched within each phase and step: phase,
            step, module, kernel, grid, block; where known also shared_bytes, shapes
            (of its op), process, and varies (bool: bytes depend on the context). Without `varies` it is
            told from the module: attention and the cache.

    Returns:
        A copy with `key` (normalised kernel), `role`, `layer` (-1: none), `place` (position in its call of
        the module), `nth` (among its like there), `varies`, `never` (why it is never represented, else
        null) and `class` (number from 0; -1 where never represented).
    """
    out: pd.DataFrame = launches.copy()
    modules, kernels = out["module"].astype(str), out["kernel"].astype(str)
    out["key"] = kernels.map({k: normalise(k) for k in kernels.unique()})
    layers = {m: _layer(m) for m in modules.unique()}
    out["role"] = modules.map({m: _role(m) for m in layers})
    out["layer"] = modules.map(layers).astype("int64")
    call = ["phase", "step", "module"]
    out["place"] = out.groupby(call, sort=False, dropna=False).cumcount()
    out["nth"] = out.groupby([*call, "key", "grid", "block"], sort=False, dropna=False).cumcount()
    never = {(m, k): _never(m, k) for m, k in set(zip(modules, kernels, strict=True))}
    reasons = [never[pair] for pair in zip(modules, kernels, strict=True)]
    outside = (out["phase"] == UNATTRIBUTED).fillna(True).to_numpy(bool)
    out["never"] = pd.array(
        [UNPLACED if away else reason for away, reason in zip(outside, reasons, strict=True)], dtype="string"
    )
    if "varies" not in out:
        grows = {m: kind_of(m) in _GROWING for m in layers}
        decode = (out["phase"] == "decode").fillna(False).to_numpy(bool)
        out["varies"] = np.array([grows[m] for m in modules], bool) & decode
    out["varies"] = out["varies"].fillna(False).astype(bool)
    same = ["key", "grid", "block", *[c for c in ("shared_bytes", "process") if c in out], "phase", "role", "nth"]
    number = out.assign(_shapes=_shapes(out)).groupby([*same, "_shapes"], sort=False, dropna=False).ngroup()
    out["class"] = np.where(out["never"].isna(), number, -1)
    return out


def choose(classified: pd.DataFrame) -> Mask:
    """The members to count of every class: a mask over the rows."""
    chosen = np.zeros(len(classified), bool)
    rows = classified.assign(_row=np.arange(len(classified)), step=_steps(classified))
    rows = rows[rows["class"] >= 0].sort_values(["class", "layer", "step", "_row"], kind="stable")
    steady, growing = rows[~rows["varies"]], rows[rows["varies"]]
    for part, keys in ((steady, ["class"]), (_marked_steps(growing), ["class", "step"])):
        grouped = part.groupby(keys, sort=False)["_row"]
        chosen[grouped.first().to_numpy(dtype=np.int64)] = True
        chosen[grouped.last().to_numpy(dtype=np.int64)] = True
    return chosen


def windows_of(classified: pd.DataFrame, chosen: Mask) -> list[Window]:
    """The module calls that hold the chosen launches, in the order they run.

    A call with a collective in it is left out as a whole: it can't be replayed.
    """
    calls = ["phase", "step", "module"]
    table = classified.assign(step=_steps(classified))
    unsafe = (table["never"] == COLLECTIVE).fillna(False)
    banned = set(table.loc[unsafe, calls].itertuples(index=False, name=None))
    wanted = table.loc[chosen, calls].drop_duplicates().itertuples(index=False, name=None)
    return [Window(str(p), int(s), str(m)) for p, s, m in wanted if (p, s, m) not in banned]


def split(classified: pd.DataFrame, figures: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Split the classes whose counted members differ by more than `TOLERANCE`.

    A class whose first and last members are of different steps is first taken to depend on the context;
    one whose layers differ at the same step gets a class for each layer. Count again what `choose` then
    asks for.

    Args:
        classified: see `classify`.
        figures: the counted launches only, by the index of `classified`; needs the columns of `JUDGED`.

    Returns:
        The table with its new classes, and a sentence for each that was changed (none: all are alike).
    """
    out = classified.copy()
    counted = _counted(classified, figures)
    said = []
    following = int(out["class"].max()) + 1 if len(out) else 0
    for number, members in counted.groupby("class", sort=True):
        spread = spread_of(members)
        if spread <= TOLERANCE:
            continue
        rows = out["class"] == number
        one = members.iloc[0]
        words = f"{one['role']} {one['kernel']} ({one['phase']}): members differ by {100 * spread:.0f} %"
        if not one["varies"] and members["step"].nunique() > 1:
            out.loc[rows, "varies"] = True
            said.append(f"{words}; taken to depend on the context")
        elif out.loc[rows, "layer"].nunique() > 1:
            layers = pd.factorize(out.loc[rows, "layer"], sort=True)[0]
            out.loc[rows, "class"] = np.where(layers == 0, int(str(number)), following + layers - 1)
            following += int(layers.max())
            said.append(f"{words}; split into {int(layers.max()) + 1} layers")
    return out, said


def count_classes(
    classified: pd.DataFrame, count: Callable[[list[Window], Mask], pd.DataFrame], rounds: int = ROUNDS
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Count members of every class, split the classes whose members differ, and count what that asks for.

    Args:
        count: counts all launches of these windows (the mask says which rows they are); returns the
            figures of those that it could join, by the index of `classified`.

    Returns:
        The table with its final classes, all counted figures, and a sentence for each class changed.
    """
    figures = pd.DataFrame()
    asked: set[Window] = set()
    said: list[str] = []
    for _ in range(rounds):
        windows = [w for w in windows_of(classified, choose(classified)) if w not in asked]
        if not windows:
            break
        asked.update(windows)
        found = count(windows, in_windows(classified, windows))
        figures = found if figures.empty else pd.concat([figures, found])
        classified, changes = split(classified, figures)
        said += changes
        if not changes:
            break
    return classified, figures, said


def in_windows(launches: pd.DataFrame, windows: Iterable[Window]) -> Mask:
    """Which launches are in one of these calls."""
    wanted = set(windows)
    calls = zip(launches["phase"], _steps(launches), launches["module"], strict=True)
    return np.array([call in wanted for call in calls], bool)


def spread_of(members: pd.DataFrame) -> float:
    """The largest difference between counted members of a class, as a share of the larger one.

    Members whose bytes depend on the context are compared within each step. Unknown figures tell nothing.
    """
    groups = [m for _, m in members.groupby("step", sort=False)] if members["varies"].any() else [members]
    worst = 0.0
    for group in groups:
        for name, floor in JUDGED.items():
            values = group[name].astype("Float64").dropna().to_numpy(dtype=np.float64)
            if len(values) > 1 and values.max() - values.min() > floor:
                worst = max(worst, float((values.max() - values.min()) / values.max()))
    return worst


def _counted(classified: pd.DataFrame, figures: pd.DataFrame) -> pd.DataFrame:
    """The counted rows with what they are compared by; those never represented are left out."""
    rows = classified.loc[figures.index].assign(step=_steps(classified.loc[figures.index]))
    rows = rows.assign(**{name: figures[name] for name in JUDGED})
    kept: pd.DataFrame = rows[rows["class"] >= 0]
    return kept


def _marked_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at the first, the middle and the last step of their class."""
    marked = []
    for _, members in rows.groupby("class", sort=False):
        steps = np.unique(members["step"].to_numpy(dtype=np.int64))
        marked.append(members[members["step"].isin({steps[0], steps[len(steps) // 2], steps[-1]})])
    return pd.concat(marked) if marked else rows


def _shapes(rows: pd.DataFrame) -> pd.Series[str]:
    """The shapes that tell classes apart: none where they change with the context."""
    if "shapes" not in rows:
        return pd.Series("", rows.index, dtype="str")
    shapes: pd.Series[str] = rows["shapes"].astype("str").fillna("").where(~rows["varies"], "")
    return shapes


def _steps(rows: pd.DataFrame) -> pd.Series[int]:
    """Steps as plain integers, -1 for none."""
    steps: pd.Series[int] = rows["step"].fillna(-1).astype("int64")
    return steps


def _layer(module: str) -> int:
    found = _LAYER.search(module)
    return int(found.group(1)) if found else -1


def _role(module: str) -> str:
    """The path with its first number wildcarded: an expert's number stays."""
    return _LAYER.sub(lambda m: m.group(0).replace(m.group(1), "*"), module, count=1)


def _never(module: str, kernel: str) -> str | None:
    if _COLLECTIVE.search(kernel):
        return COLLECTIVE
    if _EXPERT_MODULE.search(module) or _EXPERT_KERNEL.search(kernel):
        return EXPERT
    return None
