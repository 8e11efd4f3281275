"""Whether the runs behind the figures fit together: said beside every figure they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.units import seconds

SCALE = 1.25
"""Up to this factor, either way, recorded times may be scaled to the bare run's."""
SPREAD = 1.15
"""Up to this ratio repeats of the same work count as alike."""
AGREEING = 1.10
"""Up to this ratio the two highest rounds of a measured roof confirm each other."""
UNCONFIRMED = "ROOFS NOT CONFIRMED"
"""How the doubt begins that is about the rounds of the roofs."""


OTHERS_PCT = 10.0
"""From this share of the CPU on other programs disturb, where nearly none of it is idle."""
IDLE_PCT = 15.0
STOLEN_PCT = 5.0
"""From this share on the hypervisor's other machines do."""


def total_ns(times: Mapping[str, Any], phase: str) -> float:
    """Median over repeats of a phase's whole time, from a record of bare or recorded times."""
    passes = times["prefill_ns"] if phase == "prefill" else [sum(steps) for steps in times["decode_step_ns"]]
    return float(median(passes))


def disturbed(bare: Mapping[str, Any], recorded: Mapping[str, Any]) -> str | None:
    """Which of two runs of the same passes was disturbed: "bare", "recorded" or None.

    A profiler only adds: a bare run slower than the recorded one was held up by something else. A
    recorded one much slower than a profiler explains was held up itself.
    """
    for phase in ("prefill", "decode"):
        ratio = total_ns(recorded, phase) / total_ns(bare, phase)
        if ratio < 1 / SPREAD:
            return "bare"
        if ratio > 2:
            return "recorded"
    return None


def agreed(rounds: Sequence[Ceilings]) -> bool:
    """Whether the two highest rounds of each roof are within `AGREEING` of each other."""
    if len(rounds) < 2:
        return False
    for field in ("flop_s", "byte_s"):
        first, second = sorted((getattr(c, field) for c in rounds), reverse=True)[:2]
        if first > AGREEING * second:
            return False
    return True


def phase_doubts(wall: Mapping[str, Any], steps: int) -> list[str]:
    """Why the times of a phase may not be trusted, from its entry in wall.json; empty if they may."""
    lines = []
    factor = wall["factor"]
    if not 1 / SCALE < factor < SCALE:
        lines.append(
            f"NOT STEADY: recorded kernel times had to be scaled by {factor:.2f} to the bare run's; a busy machine or "
            "a changing clock. Don't trust single figures; run again with --overwrite on a quiet machine"
        )
    if wall["repeats"] > 1 and wall["bare_max_ns"] > SPREAD * wall["bare_min_ns"]:
        low, high = (seconds(wall[k] / steps / 1e9, 3) for k in ("bare_min_ns", "bare_max_ns"))
        lines.append(f"bare repeats spread from {low} to {high}: a busy machine?")
    return lines


def roof_doubts(rounds: Sequence[Ceilings], load_average: float | None, cores: int | None) -> list[str]:
    """Why measured roofs may be too low, from the rounds they were measured in."""
    lines = []
    if not agreed(rounds):
        lines.append(
            f"{UNCONFIRMED}: no two of {len(rounds)} rounds agree within {100 * (AGREEING - 1):.0f} % on the "
            "highest compute or memory rate; the true roofs may be higher"
        )
    if load_average is not None and cores and load_average > cores:
        lines.append(f"the machine was busy when the run began: load average {load_average:g} on {cores} cores")
    return lines


def busy_doubts(uses: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    """Why times may be too long and roofs too low: others used the CPU while they were measured.

    Args:
        uses: what was measured -> shares of the CPU each time (`others_pct`, `stolen_pct`, `idle_pct`). Of several
            the quietest counts: a roof is the highest that was reached.
    """
    found = []
    for what, each in uses.items():
        others = min((u["others_pct"] if u["idle_pct"] < IDLE_PCT else 0.0 for u in each), default=0.0)
        stolen = min((u["stolen_pct"] for u in each), default=0.0)
        who = [f"other programs took {others:.0f} %"] if others >= OTHERS_PCT else []
        who += [f"the hypervisor took {stolen:.0f} %"] if stolen >= STOLEN_PCT else []
        found += [f"{' and '.join(who)} of the CPU ({what})"] if who else []
    if not found:
        return []
    words = "; ".join(found)
    return [f"BUSY MACHINE: {words}. Times are too long, roofs too low; run again with --overwrite on a quiet machine"]


def calls_for_quiet(doubts: Sequence[str]) -> bool:
    """Whether a quiet machine would end one of these doubts; some are of the model or of torch.compile."""
    return any("machine" in words or words.startswith("ROOFS") for words in doubts)


def short_doubts(doubts: Sequence[str]) -> str:
    """Doubts in a few words each; wall.json has them whole."""
    return "; ".join(dict.fromkeys(words.split(": ")[0] for words in doubts))


def named_doubts(by_phase: Mapping[str, Sequence[str]]) -> list[str]:
    """The doubts of all phases, each once; what is not said of every phase names its own."""
    every = dict.fromkeys(doubt for doubts in by_phase.values() for doubt in doubts)
    found = {doubt: [phase for phase, doubts in by_phase.items() if doubt in doubts] for doubt in every}
    return [d if len(phases) == len(by_phase) else f"{' and '.join(phases)}: {d}" for d, phases in found.items()]
