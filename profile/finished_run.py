"""A finished run folder of `kernelroof profile`, read back: every table, without torch.

What looks at a run after it ended (report, diff, explain, pictures, trace) reads it here, so all see the same.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import OutputError, ReportError, UsageError
from kernelroof.profile import run_checks
from kernelroof.profile.run_checks import REPAIR, Rule, WholeFiles, rule_of
from kernelroof.profile.runfolder import RUN, read_json
from kernelroof.roofline.ceilings import Ceilings, checked, from_json

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.roofline.advice import Setting
    from kernelroof.roofline.summary import PhaseSummary

_ANOTHER = "Give the folder of a finished run of `kernelroof profile`."


class PhaseTables(NamedTuple):
    """What is shown of one phase: its sums, its modules, kinds of work and kernel roles; most recoverable first."""

    summary: PhaseSummary
    modules: pd.DataFrame
    kinds: pd.DataFrame
    kernels: pd.DataFrame


class FinishedRun:
    """The tables of a run folder, each read when first asked for.

    Raises:
        UsageError: the folder holds no run, or one that did not end (unless `unfinished` is allowed).
        OutputError: a file is missing, damaged or cut.
    """

    def __init__(self, path: str | Path, *, unfinished: bool = False) -> None:
        if not str(path):
            raise UsageError("the name of the run folder is empty", _ANOTHER)
        self.path = Path(path)
        if not (self.path / RUN).is_file():
            raise UsageError(f"{path} holds no run", "Give a folder that `kernelroof profile` wrote.")
        self.record = _record(self.path / RUN)
        if not isinstance(self.record.get("identity"), dict):
            raise OutputError(f"{self.path / RUN} has no identity", _ANOTHER)
        if self.identity.get("command") == "measured sweep":
            points = [str(p.parent) for p in sorted(self.path.glob(f"points/*/{RUN}"))]
            hint = f"Give the folder of one of them: {', '.join(points[:4])}{', …' if len(points) > 4 else ''}."
            raise UsageError(f"{path} holds a sweep of many runs", hint if points else _ANOTHER)
        if not unfinished and self.record.get("status") != "complete":
            raise UsageError(f"{path} holds no finished run", "Finish it: give the same command and the same --out.")
        if "driver" not in self.identity:
            raise UsageError(f"{path} is no run of `kernelroof profile MODEL`", _ANOTHER)
        run_checks.check_record(self.path / RUN, self.record)
        self._files = WholeFiles(self.path, self.identity)
        if not self._files.known:
            print(f"note: {path} has no stages.json: nobody can tell if its files are as the run wrote them",
                  file=sys.stderr)  # fmt: skip

    @property
    def identity(self) -> dict[str, Any]:
        """What was run: model, workload, device, versions."""
        found: dict[str, Any] = self.record["identity"]
        return found

    @property
    def sources(self) -> dict[str, Any]:
        """Where times and counters come from, as it turned out."""
        found: dict[str, Any] = self.record.get("sources") or self.identity.get("sources") or {}
        return found

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, CPU, GPU, variables, the command line."""
        found: dict[str, Any] = self.record.get("environment") or {}
        return found

    @property
    def scaled(self) -> bool:
        """Whether kernels' times were brought to the bare run's clock one by one: on a CPU."""
        return bool(self.identity.get("device") == "cpu")

    @cached_property
    def walls(self) -> dict[str, dict[str, Any]]:
        """wall.json: by phase, where the bare wall time went."""
        found = self._json("wall.json")
        run_checks.check_walls(self.path / "wall.json", found)
        return found

    @cached_property
    def estimate(self) -> dict[str, Any]:
        """estimate.json."""
        found = self._json("estimate.json")
        run_checks.check_estimate(self.path / "estimate.json", found)
        return found

    @cached_property
    def ceilings(self) -> Ceilings:
        """ceilings.json: the roofs that `kernels` was placed under."""
        try:
            return from_json(self._text("ceilings.json"))[0]
        except ReportError as error:
            raise OutputError(f"{self.path / 'ceilings.json'} is damaged: {error.what}", f"{REPAIR}.") from error

    @cached_property
    def roof_rounds(self) -> list[Ceilings]:
        """FLOP/s and B/s of every round in which the roofs were measured; the roofs alone where no rounds are told."""
        ceilings, details = from_json(self._text("ceilings.json"))
        rounds = details.get("rounds") or []
        # The details of a round stand in place of its cache bandwidth.
        return [checked(ceilings._replace(**{k: r.get(k) for k in ("flop_s", "byte_s")})) for r in rounds] or [ceilings]

    @cached_property
    def bare(self) -> dict[str, Any]:
        """The time of every forward of every bare repeat: of the second try, if the first was disturbed."""
        from kernelroof.profile.pipeline import BARE_AGAIN

        return self._json(BARE_AGAIN if (self.path / BARE_AGAIN).exists() else "bare.json")

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """kernels.csv, one row a launch."""
        from kernelroof.parsers.schema import KERNELS

        needed = ("phase", "module", "kernel", "kind", "count", "time_ns", "bound")
        found = self._csv("kernels.csv", {c.name: c.dtype for c in KERNELS}, rule_of(KERNELS, needed=needed))
        if not self._files.known:
            run_checks.check_whole(self.path / "kernels.csv", found, self.walls)
        return found

    @cached_property
    def launches(self) -> pd.DataFrame:
        """launches.csv, the recording as a table."""
        from kernelroof.parsers.schema import LAUNCHES

        signed, needed = ("start_ns", "launch_ns"), ("phase", "module", "kernel", "start_ns", "time_ns")
        rule = rule_of(LAUNCHES, signed=signed, needed=needed)
        return self._csv("launches.csv", {c.name: c.dtype for c in LAUNCHES}, rule)

    @cached_property
    def ops(self) -> pd.DataFrame:
        """ops.csv, the traced estimate."""
        return self._csv("ops.csv", {}, run_checks.OPS)

    @cached_property
    def waterfall(self) -> pd.DataFrame:
        """waterfall.csv."""
        from kernelroof.roofline.waterfall import TERMS

        figures = (*TERMS, "total_ns")
        rule = Rule(("phase", "scope", "name"), figures, signed=figures, needed=("phase", "scope", "name", *figures))
        found = self._csv("waterfall.csv", {}, rule)
        run_checks.check_sums(self.path / "waterfall.csv", found, TERMS, list(self.walls))
        return found

    @cached_property
    def spread(self) -> pd.DataFrame:
        """spread.csv: medians and spreads of the time in one step, by phase, module role and kernel role."""
        texts = ("phase", "scope", "role", "kind", "op", "kernel", "reason")
        dtypes = {**dict.fromkeys(texts, "str"), "samples": "Int64", "noise_pct": "float64"}
        return self._csv("spread.csv", dtypes, run_checks.SPREAD)

    @cached_property
    def repeats(self) -> pd.DataFrame:
        """repeats.csv: the time of each kernel role in each step of each recording."""
        names = ("phase", "role", "kind", "op", "kernel")
        return self._csv("repeats.csv", dict.fromkeys(names, "str"), run_checks.REPEATS)

    @cached_property
    def unmatched(self) -> pd.DataFrame:
        """unmatched.csv: traced ops that no kernel stands for."""
        return self._csv("unmatched.csv", {}, run_checks.UNMATCHED)

    @cached_property
    def counters(self) -> dict[str, Any] | None:
        """counters.json; None where ncu was not asked for."""
        return self._json("counters.json") if (self.path / "counters.json").exists() else None

    @cached_property
    def counted(self) -> pd.DataFrame | None:
        """counted.csv (ANALYZED): launches judged on both clocks; None where nothing was counted."""
        from kernelroof.parsers.schema import ANALYZED

        if not (self.path / "counted.csv").exists():
            return None
        rule = rule_of(ANALYZED, signed=("start_ns",), needed=("phase", "module", "kernel"))
        return self._csv("counted.csv", {c.name: c.dtype for c in ANALYZED}, rule)

    def read(self) -> None:
        """Read what the sums of a phase rest on.

        Raises:
            OutputError: a file is missing, damaged, or lacks a column.
        """
        _ = (self.walls, self.estimate, self.ceilings, self.roof_rounds, self.bare, self.kernels, self.ops)

    def steps(self, phase: str) -> int:
        """Forwards in a phase."""
        return int(self.identity["output"]) if phase == "decode" else 1

    def model_cost(self, phase: str) -> tuple[int, int]:
        """FLOPs and unavoidable bytes of a whole phase, in closed form."""
        record = self.estimate[phase]
        if phase == "decode":
            return record["total_flops"], record["total_bytes"]
        return record["flops"], record["bytes"]

    def setting(self, phase: str) -> Setting:
        """Where the kernels of a phase ran, for sentences on them."""
        from kernelroof.roofline.advice import Setting

        who = self.identity
        compiled = bool(who["driver"].get("compile"))
        batch, cache = int(who["batch"]), str(who["cache"])
        return Setting(phase, self.steps(phase), not self.scaled, batch, cache, self.ceilings, compiled)

    def terms(self, phase: str) -> dict[str, int]:
        """The terms of a phase's waterfall, in order."""
        from kernelroof.roofline.waterfall import TERMS

        table = self.waterfall
        row = table[(table["phase"] == phase) & (table["scope"] == "phase")].iloc[0]
        return {term: int(row[term]) for term in TERMS}

    def summary(self, phase: str, roofs: Ceilings | None = None) -> PhaseSummary:
        """The sums of one phase; with `roofs`, every kernel is placed again under them instead of the run's own."""
        from kernelroof.roofline.place import place_again
        from kernelroof.roofline.summary import phase_summary

        wall, own = self.walls[phase], self.ceilings
        at = roofs or own
        as_it_is = (at.flop_s, at.byte_s) == (own.flop_s, own.byte_s)
        return phase_summary(
            self.kernels if as_it_is else place_again(self.kernels, at),
            phase,
            wall_ns=wall["bare_ns"],
            steps=self.steps(phase),
            ceilings=at,
            ops=self.ops,
            model=self.model_cost(phase),
            overlap_ns=wall["overlap_ns"],
        )

    def phase(self, phase: str) -> PhaseTables:
        """The tables of one phase, as every view of the run shows them."""
        from kernelroof.roofline.advice import sentences
        from kernelroof.roofline.outliers import outliers
        from kernelroof.roofline.spread import with_spread
        from kernelroof.roofline.summary import kernel_table, kind_table, module_table

        shared: Mapping[str, Any] = {"wall_ns": self.walls[phase]["bare_ns"], "ceilings": self.ceilings}
        summary = self.summary(phase)
        modules = with_spread(module_table(self.kernels, phase, ops=self.ops, **shared), self.spread, phase, ["role"])
        # nsys does not know the op of every kernel, so only modules can be compared with the estimate.
        known = self.ops if self.sources.get("timeline") == "torch" else None
        kernels = with_spread(kernel_table(self.kernels, phase, ops=known, **shared), self.spread, phase)
        counted = None if self.counted is None else self.counted[self.counted["phase"] == phase]
        kernels["few"] = outliers(kernels, self.kernels[self.kernels["phase"] == phase], self.steps(phase))
        kernels["advice"] = sentences(kernels, self.setting(phase), counted)
        return PhaseTables(summary, modules, kind_table(self.kernels, phase, **shared), kernels)

    def _text(self, name: str) -> str:
        try:
            return self._files.read(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise OutputError(f"{self.path / name} can't be read ({error})", f"{REPAIR}.") from error

    def _json(self, name: str) -> dict[str, Any]:
        self._files.read(name)
        return _record(self.path / name)

    def _csv(self, name: str, dtypes: Mapping[str, str], rule: Rule) -> pd.DataFrame:
        import pandas as pd
        from kernelroof.parsers.plain import plain_texts

        path = self.path / name
        content = self._files.read(name)
        if not content.endswith(b"\n"):
            raise OutputError(f"{path} is cut short", f"{REPAIR}.")
        wanted = {k: "string" if v == "str" else v for k, v in dtypes.items()}
        try:
            table: pd.DataFrame = pd.read_csv(
                BytesIO(content), dtype=wanted or None, keep_default_na=False, na_values=[""]
            )
        except (ValueError, TypeError, OverflowError) as error:  # pandas' own errors are ValueErrors
            raise OutputError(f"{path} can't be read ({' '.join(str(error).split())})", f"{REPAIR}.") from error
        run_checks.check_table(path, table, rule)
        for column in rule.texts:
            if pd.api.types.is_string_dtype(table[column]) and not pd.api.types.is_numeric_dtype(table[column]):
                table[column] = plain_texts(table[column])
        return table


def _record(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except OutputError as error:
        raise OutputError(error.what, f"{REPAIR}.") from error
