"""What to do about a kernel, and what to say of a phase: sentences out of figures.

Each sentence follows from the figures beside it: the bound and the share of the roof decide, the kind of module and
op choose the words. What is not known is said, with the way to know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from kernelroof.parsers.kernel_names import cut
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.compiled_match import DISPATCH
from kernelroof.roofline.large_rows import LARGE, reason_of, without_verdict
from kernelroof.roofline.place import HEALTHY_PCT, TOLERANCE_PCT
from kernelroof.roofline.steady import calls_for_quiet, short_doubts
from kernelroof.roofline.summary import PhaseSummary
from kernelroof.roofline.units import fixed, quantity, seconds
from kernelroof.roofline.verdict import NOT_COUNTED
from kernelroof.roofline.waterfall import WORDS

_PRODUCTS = ("mm", "addmm", "bmm", "matmul", "linear", "baddbmm", "gemm", "gemv", "cutlass", "cublas", "xmma", "nvjet")
_ATTENTION = ("scaled_dot_product", "flash", "fmha", "attention")
_STEPS = 3
"""Things to do that are named of a phase, besides running again."""
_LOSSES = ("one_after_another_ns", "left_out_ns", "roofs_ns", "traffic_ns", "kernels_ns", "unmatched_ns", "idle_ns")


class Setting(NamedTuple):
    """Where a kernel ran."""

    phase: str
    steps: int
    on_gpu: bool
    batch: int
    cache: str
    """dynamic or static"""
    ceilings: Ceilings
    compiled: bool = False
    """whether the model ran under torch.compile"""


def sentences(kernels: pd.DataFrame, setting: Setting, counted: pd.DataFrame | None = None) -> list[str]:
    """One sentence for each row of `summary.kernel_table`: what bounds it and what would help.

    Where a kernel was counted (`counted`: rows of counted.csv of the phase), the counters' own sentence stands.
    """
    found = {} if counted is None else counted_sentences(counted)
    rows = kernels.to_dict("records")
    return [found.get((str(row["role"]), str(row["kernel"]))) or sentence(row, setting) for row in rows]


def counted_sentences(counted: pd.DataFrame) -> dict[tuple[str, str], str]:
    """What the counters say of each kernel, by module role and kernel name: of the grid that takes most time.

    Args:
        counted: rows of counted.csv of one phase.
    """
    from kernelroof.roofline.kernel_groups import kernels_of

    if counted.empty:
        return {}
    said = kernels_of(counted).drop_duplicates(["role", "kernel"])
    said = said[said["verdict"].notna() & (said["verdict"] != NOT_COUNTED)]
    return {(str(r), str(k)): str(v) for r, k, v in zip(said["role"], said["kernel"], said["verdict"], strict=True)}


def sentence(row: Mapping[Any, Any], setting: Setting) -> str:
    """The sentence for one kernel role; see `sentences`."""
    if pd.isna(row["time_ns"]):
        return "estimated, but not recorded: nothing to change"
    bound, name, few = str(row["bound"]), f"{row['op']} {row['kernel']}".lower(), row.get("few")
    if bound == "unknown":
        reason = "figures are missing" if pd.isna(row["reason"]) else str(row["reason"])
        return f"not judged: {reason}" + (f"; {few}" if isinstance(few, str) else "")
    if isinstance(few, str):
        return few
    if DISPATCH.search(str(row["kernel"])):
        return "what torch.compile does around its kernels, on the CPU: a larger batch, or CUDA graphs on a GPU"
    if str(row["reason"]).startswith("no work"):
        other = "" if setting.compiled else ", or torch.compile, which leaves it out"
        return f"no work, only its dispatch costs: fewer calls{other}"
    if str(row["kind"]) == "cache" and setting.phase == "decode" and setting.cache == "dynamic":
        return f"{_share(row)}: copies the KV cache each step; a static cache is written in place"
    if any(word in name for word in _ATTENTION):
        return f"{_share(row)}: {_attention(bound, setting)}"
    if _is_product(name):
        return f"{_share(row)}: {_product(row, bound, setting)}"
    if bound == "memory":
        return f"{_share(row)}: only fewer passes over its data help{_fused(setting)}"
    if bound == "compute":
        return f"{_share(row)}: near its roof, only less work or a narrower type helps"
    each = float(row["time_ns"]) / max(1, int(row["launches"]))
    return f"{_share(row)} in launches of {seconds(each / 1e9, 2)}{_fused(setting)}"


def _fused(setting: Setting) -> str:
    return ", though it is compiled already" if setting.compiled else ": torch.compile fuses it with its neighbours"


def _attention(bound: str, setting: Setting) -> str:
    if bound == "memory":
        return "it reads the KV cache; fewer bytes (a narrower KV format, fewer KV heads) would help"
    if bound == "compute":
        return "near its roof, only a narrower type or a shorter context helps"
    if setting.phase == "decode":
        return "one query a head leaves the machine idle; a kernel that splits the context, or a larger batch"
    return "another fused attention kernel (--attn), or longer blocks of queries"


def _product(row: Mapping[Any, Any], bound: str, setting: Setting) -> str:
    ridge = setting.ceilings.ridge
    by_memory = pd.notna(row["intensity"]) and float(row["intensity"]) < ridge
    if bound == "memory":
        return "it streams its weights; fewer bytes (narrower weights) or more tokens for each reading (a larger batch)"
    if bound == "compute":
        return "near its roof, only a narrower type or less work helps"
    if bound == "latency":
        return "too short to fill the machine; merge it with its neighbours (one QKV or gate-up product) or batch more"
    if by_memory:
        moved = quantity(float(row["attained_byte_s"]), "B/s", 3)
        roof = quantity(setting.ceilings.byte_s, "B/s", 3)
        layout = "another kernel for few rows" if setting.on_gpu else "packed weights or another matrix library"
        return f"streams {moved} where {roof} are there; {layout}, or a larger batch"
    done, peak = quantity(float(row["attained_flop_s"]), "FLOP/s", 3), quantity(setting.ceilings.flop_s, "FLOP/s", 3)
    return f"reaches {done} of {peak}; other tile or matrix sizes, or another matrix library"


def _is_product(name: str) -> bool:
    words = name.replace("::", " ").replace("_", " ").replace("<", " ").split()
    return any(w in _PRODUCTS for w in words) or any(p in name for p in _PRODUCTS if len(p) > 5)


def _share(row: Mapping[Any, Any]) -> str:
    words = {"memory": "memory-bound", "compute": "compute-bound", "latency": "latency-bound"}
    bound = words.get(str(row["bound"]), str(row["bound"]))
    if pd.isna(row["pct_of_roof"]):
        return bound
    pct = float(row["pct_of_roof"])
    if str(row["bound"]) in ("latency", "inefficient") and pct >= HEALTHY_PCT:
        # The bound is that of most of its time; a few launches, with operands in a cache, can lift the mean.
        return f"{bound} for most of its time, though {_percent(pct)} of its roof on the whole{_above(pct)}"
    return f"{bound}, {_percent(pct)} of its roof{_above(pct)}"


def _above(pct: float) -> str:
    return " (operands in a cache, or the roof was measured too low)" if pct > TOLERANCE_PCT else ""


def phase_answers(
    summary: PhaseSummary,
    modules: pd.DataFrame,
    kinds: pd.DataFrame,
    kernels: pd.DataFrame,
    terms: Mapping[str, int],
    setting: Setting,
    doubts: Sequence[str] = (),
) -> list[tuple[str, str]]:
    """What a reader asks first, answered with figures per step: what bounds it, what wastes most, what to do.

    Args:
        modules, kinds, kernels: `summary.module_table`, `summary.kind_table`, `summary.kernel_table`.
        terms: the phase's terms of `kernelroof.roofline.waterfall`.
        doubts: why the phase's figures may not be trusted.
    """
    return [
        ("What bounds it?", _what_bounds(summary, terms, setting)),
        ("Which module wastes most?", _what_wastes(summary, modules, kinds, kernels)),
        ("What to do?", " ".join(what_to_do(summary, kernels, terms, setting, doubts))),
    ]


def _what_bounds(summary: PhaseSummary, terms: Mapping[str, int], setting: Setting) -> str:
    roofs = setting.ceilings
    parts = []
    if summary.model is not None:
        flops, moved = summary.model
        memory = moved / roofs.byte_s >= flops / roofs.flop_s
        what = (
            f"{quantity(moved / summary.steps, 'B', 3)} at {quantity(roofs.byte_s, 'B/s', 3)}"
            if memory
            else f"{quantity(flops / summary.steps, 'FLOP', 3)} at {quantity(roofs.flop_s, 'FLOP/s', 3)}"
        )
        side = "memory" if memory else "compute"
        parts.append(
            f"By the model, {side}: {what} take {_time(summary.model_ns, summary)} "
            f"({fixed(flops / moved, 3)} FLOP/B; the ridge is at {fixed(roofs.ridge, 3)})"
        )
    spent = {**terms, "idle_ns": _idle_ns(terms)}
    lost = sorted(((spent[t], t) for t in _LOSSES if spent.get(t, 0) > 0), reverse=True)[:3]
    said = ", ".join(f"{_time(ns, summary)} for {WORDS[t]}" for ns, t in lost)
    parts.append(f"It takes {_time(summary.wall_ns, summary)}{_each(summary)}" + (f"; lost: {said}" if said else ""))
    parts.append(
        f"its kernels are {_BOUNDS.get(summary.bound, summary.bound)} for {summary.bound_pct:.0f} % of their time"
    )
    return ". ".join(p[0].upper() + p[1:] for p in parts) + "."


_BOUNDS = {
    "inefficient": "inefficient (far from any roof though they run long enough)",
    "latency": "bound by latency",
    "memory": "bound by memory",
    "compute": "bound by compute",
    "unknown": "without a verdict",
}


def _what_wastes(summary: PhaseSummary, modules: pd.DataFrame, kinds: pd.DataFrame, kernels: pd.DataFrame) -> str:
    known = modules.dropna(subset=["recoverable_ns"])
    if known.empty or not float(known["recoverable_ns"].sum()):
        return f"Nothing that is known to be recoverable.{_unjudged(summary, kernels)}"
    worst = known.sort_values("recoverable_ns", ascending=False, kind="stable").iloc[0]
    each = _each(summary)
    words = (
        f"{worst['role']}: {_time(worst['recoverable_ns'], summary)}{each} recoverable of "
        f"{_time(worst['time_ns'], summary)}."
    )
    if len(kinds):
        most = kinds.sort_values("recoverable_ns", ascending=False, kind="stable").iloc[0]
        share = 100 * float(most["recoverable_ns"]) / summary.wall_ns if summary.wall_ns else 0.0
        words += (
            f" By kind of work, {most['kind']}: {_time(most['recoverable_ns'], summary)}{each}, {_percent(share)} of "
            "the wall time."
        )
    return words + _unjudged(summary, kernels)


def _unjudged(summary: PhaseSummary, kernels: pd.DataFrame) -> str:
    """How much time has no verdict, of which kernel most, and why; empty where it is little."""
    rows = without_verdict(kernels)
    lost = float(rows["time_ns"].sum())
    if not lost > LARGE * summary.wall_ns:
        return ""
    most = rows.iloc[0]
    return (
        f" {_time(lost, summary)}{_each(summary)} ({_percent(100 * lost / summary.wall_ns)}) have no verdict, most of "
        f"it in {cut(str(most['label']), 60)} ({_time(most['time_ns'], summary)}): {reason_of(most)}."
    )


def what_to_do(
    summary: PhaseSummary,
    kernels: pd.DataFrame,
    terms: Mapping[str, int],
    setting: Setting,
    doubts: Sequence[str],
) -> list[str]:
    """Numbered sentences, most time first: at most three, behind what doubtful figures call for."""
    known = kernels.dropna(subset=["recoverable_ns"]).sort_values("recoverable_ns", ascending=False, kind="stable")
    each = _each(summary)
    steps = []
    idle = _idle_ns(terms)
    for row in known.head(_STEPS).to_dict("records"):
        if float(row["recoverable_ns"]) > 0:
            gain = _time(row["recoverable_ns"], summary)
            steps.append(
                (
                    float(row["recoverable_ns"]),
                    f"{row['label']} (up to {gain}{each}): {row.get('advice') or sentence(row, setting)}",
                )
            )
    if summary.wall_ns and idle > 0.05 * summary.wall_ns:
        ways = ([] if setting.compiled else ["torch.compile"]) + (["CUDA graphs"] if setting.on_gpu else [])
        cure = " or ".join([*ways, "a larger batch"])
        share = _percent(100 * idle / summary.wall_ns)
        steps.append((idle, f"no kernel runs for {_time(idle, summary)}{each} ({share}), Python and dispatch: {cure}"))
    rows = without_verdict(kernels)
    lost = float(rows["time_ns"].sum())
    if lost > LARGE * summary.wall_ns:
        share = _percent(100 * lost / summary.wall_ns)
        steps.append((lost, f"{_time(lost, summary)}{each} ({share}) have no verdict: {_way_to_know(setting)}"))
    steps.sort(key=lambda s: -s[0])
    found = [*doubtful(doubts), *(words for _, words in steps[:_STEPS])]
    nothing = "Nothing measured stands out; the model itself would have to do less"
    if not found:
        return [f"{nothing}."]
    found += [] if steps else [nothing]
    return [f"{n}. {words}." for n, words in enumerate(found, start=1)]


def doubtful(doubts: Sequence[str]) -> list[str]:
    """What comes before any other advice, where figures may not be trusted; else nothing."""
    if not doubts:
        return []
    first = "first run again on a quiet machine" if calls_for_quiet(doubts) else "first see why"
    return [f"{first}, the figures are in doubt ({short_doubts(doubts)})"]


def _way_to_know(setting: Setting) -> str:
    ways = (["profile without --compile, which judges the same ops one by one"] if setting.compiled else []) + (
        ["profile with --counters ncu, which counts them"] if setting.on_gpu else []
    )
    return ", or ".join(ways) or "the reasons are in kernels.csv"


def _each(summary: PhaseSummary) -> str:
    return " per step" if summary.steps > 1 else ""


def _idle_ns(terms: Mapping[str, int]) -> int:
    """Time of the bare run in which no kernel ran.

    On a device the recording's own time lies in the gaps; the term that takes it off again is negative.
    """
    return max(0, terms.get("idle_ns", 0) + min(0, terms.get("dilation_ns", 0)))


def _time(ns: Any, summary: PhaseSummary) -> str:
    return "–" if ns is None or pd.isna(ns) else seconds(float(ns) / summary.steps / 1e9, 3)


def _percent(value: float) -> str:
    return "under 0.1 %" if 0 < value < 0.1 else f"{fixed(value, 2) if value < 10 else f'{value:.0f}'} %"
