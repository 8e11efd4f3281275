"""What the files of a run folder must be: as the run wrote them, and with figures that make sense.

`stages.json` keeps a hash of every file that a stage made. A file that is not as it was then is refused: numbers out
of a cut or changed table would look like measured ones. Where a folder has no stages.json (somebody picked files out
of it), tables are at least checked for their columns and for figures that can't be.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import OutputError
from kernelroof.profile.runfolder import STAGES, fingerprint, read_json

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.parsers.schema import Column

REPAIR = (
    "Copy the run folder again, or give its `kernelroof profile` command again with the same --out: what is damaged "
    "is made anew"
)
_BYTES = ("weight_bytes", "act_read_bytes", "act_write_bytes", "kv_read_bytes", "kv_write_bytes")
_NAMES = ("role", "kind", "op", "kernel")


class Rule(NamedTuple):
    """What a table must have: its columns, those that may be below zero, and those without a gap."""

    texts: Sequence[str]
    numbers: Sequence[str]
    signed: Sequence[str] = ()
    needed: Sequence[str] = ()


def rule_of(columns: Sequence[Column], *, signed: Sequence[str] = (), needed: Sequence[str] = ()) -> Rule:
    """The rule of a table with these columns."""
    texts = [c.name for c in columns if c.dtype == "str"]
    return Rule(texts, [c.name for c in columns if c.dtype in ("Int64", "float64")], signed, needed)


OPS = Rule(
    ("phase", "module", "op", "kind"),
    ("count", "flops", *_BYTES, "ideal_ns"),
    needed=("phase", "module", "op", "count", "flops", *_BYTES, "ideal_ns"),
)
SPREAD = Rule(
    ("phase", "scope", *_NAMES, "reason"),
    (
        *("samples", "recordings", "growth_pct", "noise_pct", "between_pct", "launches"),
        *(f"{what}_{part}_ns" for what in ("step", "launch") for part in ("median", "low", "high", "min", "max")),
    ),
    signed=("growth_pct",),
    needed=("phase", "scope"),
)
REPEATS = Rule(
    ("phase", *_NAMES),
    ("recording", "step", "time_ns", "idle_ns", "launches", "pace"),
    needed=("phase", "recording", "step", "time_ns", "idle_ns", "launches", "pace"),
)
UNMATCHED = Rule(("phase", "module", "op"), ())
WALL_TIMES = ("bare_ns", "bare_min_ns", "bare_max_ns")
WALL_PARTS = ("ops_ns", "recorded_ns", "overlap_ns", "repeats")
"""`gap_ns` is none of them: it is negative where the recorded kernels took longer than the whole bare run."""
_ROUNDING = 1e-3


class WholeFiles:
    """The files of one run folder, each checked against its hash when it is read.

    Raises:
        OutputError: stages.json is damaged, or run.json names another run than the one that made the files.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self._digests: dict[str, str] = {}
        self.known = os.path.lexists(folder / STAGES)
        """whether there are hashes at all"""
        if not self.known:
            return
        if not (folder / STAGES).is_file():
            raise OutputError(f"{folder / STAGES} is no file", f"{REPAIR}.")
        try:
            stages = read_json(folder / STAGES)
            for stage in stages.values():
                self._digests |= {str(name): str(digest) for name, digest in stage["files"].items()}
            first = stages.get("roofs", {}).get("key")
        except (OutputError, AttributeError, KeyError, TypeError) as error:
            raise OutputError(f"{folder / STAGES} is damaged ({error})", f"{REPAIR}.") from error
        if identity is not None and first is not None and first != fingerprint({"identity": identity}):
            raise OutputError(
                f"{folder}: run.json and {STAGES} are not of one run, or one of them was changed", f"{REPAIR}."
            )

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        Raises:
            OutputError: it is not there, can't be read, or is not as the run wrote it.
        """
        path = self.folder / name
        try:
            if not path.is_file():
                raise OutputError(f"{path} is {'no file' if path.exists() else 'not there'}", f"{REPAIR}.")
            content = path.read_bytes()
        except OSError as error:
            raise OutputError(f"{path} can't be read ({error.strerror or error})", f"{REPAIR}.") from error
        known = self._digests.get(name)
        if known is not None and hashlib.sha256(content).hexdigest() != known:
            raise OutputError(f"{path} is not as the run wrote it: it was cut or changed since", f"{REPAIR}.")
        return content


def check_table(path: Path, table: pd.DataFrame, rule: Rule) -> None:
    """Refuse a table that lacks columns or holds figures that can't be.

    Raises:
        OutputError: with the column and the line of the file.
    """
    import pandas as pd

    lacking = [c for c in (*rule.texts, *rule.numbers) if c not in table.columns]
    if lacking:
        raise OutputError(
            f"{path} has no column {', '.join(lacking[:4])}: another version of kernelroof wrote it, or it was changed",
            "Profile again with this version, or read it with the one that wrote it.",
        )
    for name in rule.numbers:
        figures = pd.to_numeric(table[name], errors="coerce").astype("Float64")
        odd = figures.isna() & table[name].notna() | figures.abs().eq(math.inf).fillna(False)
        if name not in rule.signed:
            odd |= figures.lt(0).fillna(False)
        _refuse(path, table, name, odd)
    for name in rule.needed:
        _refuse(path, table, name, table[name].isna())


def check_sums(path: Path, table: pd.DataFrame, terms: Sequence[str], phases: Sequence[str]) -> None:
    """Refuse a waterfall whose terms do not add up, or that has not one row for each phase.

    Raises:
        OutputError: with the line of the file, or the phase.
    """
    odd = table[list(terms)].sum(axis=1) != table["total_ns"]
    if odd.any():
        raise OutputError(
            f"{path}: the terms in line {_line(odd)} do not add up to total_ns, so it was changed", f"{REPAIR}."
        )
    own = table.loc[table["scope"] == "phase", "phase"].tolist()
    for phase in phases:
        if own.count(phase) != 1:
            raise OutputError(f"{path} has {own.count(phase)} rows of the whole {phase} instead of one", f"{REPAIR}.")


def check_whole(path: Path, kernels: pd.DataFrame, walls: Mapping[str, Any]) -> None:
    """Refuse a kernels.csv whose times are not those that wall.json accounts for: rows are missing or doubled.

    Raises:
        OutputError: with the phase and both sums.
    """
    for phase, wall in walls.items():
        rows = kernels[kernels["phase"] == phase]
        found, said = int((rows["time_ns"] * rows["count"]).sum()), wall.get("ops_ns")
        if said is not None and abs(found - said) > _ROUNDING * said:
            raise OutputError(
                f"{path}: the kernels of {phase} take {found} ns in all, and wall.json accounts for {said} ns",
                f"{REPAIR}.",
            )


def check_walls(path: Path, walls: Mapping[str, Any]) -> None:
    """Refuse a wall.json without phases, or with times that can't be.

    Raises:
        OutputError: with the phase and the field.
    """
    if not walls:
        raise OutputError(f"{path} has no phase", f"{REPAIR}.")
    for phase, wall in walls.items():
        if phase not in ("prefill", "decode") or not isinstance(wall, dict):
            raise OutputError(f"{path} has {str(phase)[:40]!r}, which is no phase of a run", f"{REPAIR}.")
        for field in WALL_TIMES:
            check_figure(wall.get(field), f"{field} of {phase} in {path}", above=0)
        for field in WALL_PARTS:
            if field in wall:
                check_figure(wall[field], f"{field} of {phase} in {path}")
        if "gap_ns" in wall:
            check_figure(wall["gap_ns"], f"gap_ns of {phase} in {path}", signed=True)
        doubts, steps = wall.get("doubts"), wall.get("step_ns", [])
        if not isinstance(doubts, list) or not all(isinstance(d, str) for d in doubts):
            raise OutputError(f"{path} has no list of doubts for {phase}", f"{REPAIR}.")
        if not isinstance(steps, list):
            raise OutputError(f"{path} has no list of steps for {phase}", f"{REPAIR}.")
        for value in steps:
            check_figure(value, f"a step of {phase} in {path}")


def check_estimate(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse an estimate.json without the sums of its phases.

    Raises:
        OutputError: with the field.
    """
    fields = {"prefill": ("flops", "bytes"), "decode": ("total_flops", "total_bytes")}
    check_figure(record.get("parameters"), f"parameters in {path}", above=0)
    for phase, names in fields.items():
        found = record.get(phase)
        for name in names:
            check_figure(found.get(name) if isinstance(found, dict) else None, f"{name} of {phase} in {path}", above=0)
    if not isinstance(record.get("conventions"), dict):
        raise OutputError(f"{path} has no conventions", f"{REPAIR}.")


def check_record(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse a run.json whose account of the run can't be used.

    Raises:
        OutputError: with the field.
    """
    who = record["identity"]
    for field in ("model", "dtype", "device", "attn", "cache"):
        if not isinstance(who.get(field), str):
            raise OutputError(f"{path} has no {field} in its identity", f"{REPAIR}.")
    for field in ("batch", "prompt", "output"):
        value = who.get(field)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**53:
            raise OutputError(f"{path} has {_shown(value)} for {field} in its identity", f"{REPAIR}.")
    for field in ("driver", "machine"):
        if not isinstance(who.get(field), dict):
            raise OutputError(f"{path} has no {field} in its identity", f"{REPAIR}.")
    for field in ("sources", "environment"):
        if not isinstance(record.get(field) or {}, dict):
            raise OutputError(f"{path} has {_shown(record[field])} for {field}", f"{REPAIR}.")
    found = record.get("environment") or {}
    if not isinstance(found.get("command") or [], list) or not isinstance(found.get("reasons") or {}, dict):
        raise OutputError(f"{path} has an environment that can't be read", f"{REPAIR}.")


def check_figure(value: Any, what: str, *, above: int | None = None, signed: bool = False) -> None:
    """Refuse what is no finite number, is below 0 (unless `signed`), or not above `above`.

    Raises:
        OutputError: with the figure and where it stands.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = number and abs(value) < math.inf and (signed or value >= 0) and (above is None or value > above)
    if not fits:
        raise OutputError(f"{what} is {_shown(value)}", f"{REPAIR}.")


def _refuse(path: Path, table: pd.DataFrame, name: str, odd: pd.Series[bool]) -> None:
    if odd.any():
        value = table[name][odd].iloc[0]
        raise OutputError(f"{path}: {name} is {_shown(value)} in line {_line(odd)}", f"{REPAIR}.")


def _line(odd: pd.Series[bool]) -> int:
    return int(odd.to_numpy(bool).argmax()) + 2


def _shown(value: Any) -> str:
    import pandas as pd

    if value is None or value is pd.NA or value != value:
        return "missing"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
