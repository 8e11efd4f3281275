"""Two finished runs brought together: comparability, lines, noise, waterfalls. What `kernelroof diff` shows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import UsageError
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.roofline.comparability import Difference, differences, not_comparable, same_setup
from kernelroof.roofline.diff_noise import PhaseChange, Wall
from kernelroof.roofline.steady import named_doubts
from kernelroof.roofline.units import seconds

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.roofline.ceilings import Ceilings


_FOR_QUARTILES = 5
_STRANGE = 0.05
"""Share of a phase's time from which kernels of no traced op are worth a word."""


class Comparison(NamedTuple):
    """Run B against run A. All times are per forward."""

    names: tuple[str, str]
    phases: dict[str, PhaseChange]
    lines: pd.DataFrame
    """`diff.aligned` with `diff_noise.judged`, most changed first within each phase"""
    terms: pd.DataFrame
    """`diff.waterfalls`"""
    lost: list[str]
    """phases that only one of the two has: nothing is known of their change"""
    setup: list[Difference]
    incomparable: list[str]
    """what makes their times those of different work"""
    warnings: list[str]
    """what makes figures of the two incomparable or doubtful"""
    roofs_pct: float
    """how far B's measured memory roof is from A's"""
    roofs: tuple[Any, Any]


def compare(a: FinishedRun, b: FinishedRun) -> Comparison:
    """Compare two runs of `kernelroof profile`.

    Raises:
        UsageError: they have no phase in common.
        OutputError: a file of theirs is missing or damaged.
    """
    from kernelroof.roofline.diff import Side, aligned, line_of, waterfalls, with_idle
    from kernelroof.roofline.diff_noise import judged, line_samples, own_noise, phase_change, typical

    steps = [{phase: run.steps(phase) for phase in run.walls} for run in (a, b)]
    if not set(steps[0]) & set(steps[1]):
        raise UsageError(f"{a.path} and {b.path} have no phase in common", "Compare two runs of one kind.")
    lost = sorted(set(steps[0]) ^ set(steps[1]))
    setup = differences(a.record, b.record)
    same = same_setup(setup)
    walls = {phase: (_wall(a, phase), _wall(b, phase)) for phase in steps[0] if phase in steps[1]}
    work = [with_idle(run.kernels) for run in (a, b)]
    lines = aligned(Side(work[0], steps[0]), Side(work[1], steps[1]))
    where: dict[tuple[str, str, str], tuple[str, str]] = {}
    for phase in walls:
        of_phase = line_of(*(_units(rows, phase) for rows in work))
        where |= {(phase, *unit): line for unit, line in of_phase.items()}
    samples = [line_samples(with_idle(run.repeats, "idle_ns"), where) for run in (a, b)]
    noise, medians = [own_noise(s) for s in samples], [typical(s) for s in samples]
    other_work = not_comparable(setup)
    table, drift = judged(lines, walls, noise, medians, same_setup=same, same_work=not other_work)
    roofs = (a.ceilings, b.ceilings)
    roofs_pct = 100 * (roofs[1].byte_s / roofs[0].byte_s - 1)
    most_pct = max(abs(roofs_pct), abs(100 * (roofs[1].flop_s / roofs[0].flop_s - 1)))
    phases = {p: phase_change(w, drift.get(p), most_pct, same_setup=same) for p, w in walls.items()}
    terms = waterfalls(a.waterfall, b.waterfall, steps[0], steps[1])
    doubts = [f"{name}: {d}" for name, run in zip("AB", (a, b), strict=True) for d in _doubts(run)]
    order = table.assign(_far=(table["delta_ns"]).abs())
    ordered = order.sort_values(["phase", "_far"], ascending=[False, False], kind="stable").drop(columns="_far")
    return Comparison(
        names=(str(a.path), str(b.path)),
        phases=phases,
        lines=ordered.reset_index(drop=True),
        terms=terms,
        lost=lost,
        setup=setup,
        incomparable=other_work,
        warnings=[
            *other_work,
            *_strange(terms, walls),
            *_moved(roofs, same=same),
            *(f"only one run has {phase}: it is not compared" for phase in lost),
            *doubts,
        ],
        roofs_pct=roofs_pct,
        roofs=roofs,
    )


def slower(found: Comparison, limit_pct: float, *, allow_drift: bool = False) -> list[str]:
    """A sentence for each phase of B that is slower than A by more than a limit and by more than noise.

    allow_drift: a phase passes that is slower only by what all its work is slower by alike.
    """
    out = []
    for phase, change in found.phases.items():
        if change.change_pct <= max(limit_pct, change.noise_pct):
            continue
        words = f"{phase} is {change.change_pct:.1f} % slower, beyond {limit_pct:g} % and the noise floor of "
        words += f"{change.noise_pct:.1f} %"
        if change.changed:
            out.append(words)
        elif not allow_drift:
            out.append(
                f"{words}; all its work is {change.drift_pct:.1f} % slower alike: a busy or throttled machine, or a "
                "change that touches everything. Measure both again, or let such pass with --allow-drift"
            )
    return out


def passed(found: Comparison, limit_pct: float) -> str:
    """What it is worth that no phase was `slower`: where the noise floor is above the limit, not much."""
    deaf = [f"{phase} by up to {c.noise_pct:.1f} %" for phase, c in found.phases.items() if c.noise_pct > limit_pct]
    words = f"PASS: no phase is slower by more than {limit_pct:g} % and noise"
    return f"{words}; but noise would hide a slow-down of {' and of '.join(deaf)}" if deaf else words


def _units(kernels: pd.DataFrame, phase: str) -> set[tuple[str, str]]:
    from kernelroof.roofline.summary import role_of

    rows = kernels[kernels["phase"] == phase]
    return {(role_of(str(m)), str(k)) for m, k in zip(rows["module"], rows["kind"], strict=True)}


def _wall(run: FinishedRun, phase: str) -> Wall:
    """A phase's bare time per forward, and where its repeats lie: all of few, the middle half of five or more."""
    passes = run.bare["prefill_ns"] if phase == "prefill" else [sum(steps) for steps in run.bare["decode_step_ns"]]
    low, high = min(passes), max(passes)
    if len(passes) >= _FOR_QUARTILES:
        low, _, high = statistics.quantiles(passes, n=4, method="inclusive")
    steps = run.steps(phase)
    return Wall(run.walls[phase]["bare_ns"] / steps, low / steps, high / steps)


def _strange(terms: pd.DataFrame, walls: Mapping[str, Any]) -> list[str]:
    """Where one run's kernels do what the model, as traced, does not."""
    rows = terms[terms["term"] == "unmatched_ns"].set_index("phase")
    return [
        f"{side.upper()}, {phase}: kernels of {seconds(ns / 1e9, 3)} a forward stand for no traced op: its code does "
        "more than the model's own"
        for phase in walls
        for side, wall in zip("ab", walls[phase], strict=True)
        if phase in rows.index and (ns := float(rows.loc[phase, f"{side}_ns"])) > _STRANGE * wall.median_ns
    ]


def _moved(roofs: tuple[Ceilings, Ceilings], *, same: bool) -> list[str]:
    """Where one machine's roofs were measured at other heights in the two runs."""
    changes = [100 * (getattr(roofs[1], f) / getattr(roofs[0], f) - 1) for f in ("flop_s", "byte_s")]
    far = [f"{what} {pct:+.0f} %" for what, pct in zip(("compute", "memory"), changes, strict=True) if abs(pct) > 10]
    if not same or not far:
        return []
    return [f"the roofs of one machine were measured apart ({', '.join(far)}): ideals and shares move by as much"]


def _doubts(run: FinishedRun) -> list[str]:
    return named_doubts({name: wall["doubts"] for name, wall in run.walls.items()})
