"""Which metrics to ask Nsight Compute for: by chip, version of ncu, and purpose of the counting run.

"traffic" is meant to fit one pass, so that caches can be left as the previous kernel left them: DRAM bytes,
duration, the DRAM's busy share, and what its ceiling needs. "work" takes several passes, with flushed caches:
FLOPs by pipe and type, bytes at L1 and L2 with their peaks, throughputs, occupancy.

ncu refuses a whole run for one name that it does not know, so nothing is asked for that may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kernelroof.models.errors import UsageError
from kernelroof.profile.ncu_chips import CHIPS, chip_of, family_of

__all__ = ["MetricPlan", "base_name", "chip_of", "plan", "tensor_levels"]

PURPOSES = {"traffic": "none", "work": "all"}
"""Purpose -> the cache control that belongs to it."""

TENSOR_OPS_SINCE = (2024, 2)
"""From here on ncu is known to have tensor-op counters; 2022.3 has none, in between nobody looked."""
SM_COUNT_SINCE = (2024, 2)

_PCT = "avg.pct_of_peak_sustained_elapsed"
_TIME = "gpu__time_duration.sum"
_SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
_LAUNCH = (
    "launch__registers_per_thread",
    "launch__waves_per_multiprocessor",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
)
_TRAFFIC = (
    _TIME,
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    f"dram__cycles_active.{_PCT}",
    "dram__bytes.sum.peak_sustained",
    "dram__cycles_elapsed.avg.per_second",
    _SM_CLOCK,
)
_WORK = (
    _TIME,
    _SM_CLOCK,
    f"sm__throughput.{_PCT}",
    f"dram__throughput.{_PCT}",
    f"sm__pipe_tensor_cycles_active.{_PCT}",
    "sm__pipe_tensor_cycles_active.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    *(f"smsp__sass_thread_inst_executed_op_{f}{op}_pred_on.sum" for f in "fdh" for op in ("add", "mul", "fma")),
    *(f"sm__sass_thread_inst_executed_op_{f}fma_pred_on.sum.peak_sustained" for f in "fdh"),
    "lts__lts2xbar_cycles_active.sum",
    "lts__lts2xbar_cycles_active.sum.peak_sustained",
    "lts__cycles_elapsed.avg.per_second",
    "l1tex__cycles_elapsed.avg.per_second",
)
_BLACKWELL_DRAM = {f"dram__bytes_{way}.sum": f"dram__bytes_op_{way}.sum" for way in ("read", "write")}


class MetricPlan(NamedTuple):
    """What one counting run asks for.

    cache_control: what its purpose needs. metrics: full names, for `--metrics`. lacking: metric name ->
    why it is not asked for, though the purpose wants it.
    """

    chip: str
    purpose: str
    cache_control: str
    metrics: tuple[str, ...]
    lacking: dict[str, str]


def plan(chip: str, version: Sequence[int], purpose: str, *, available: Collection[str] | None = None) -> MetricPlan:
    """The metrics of one counting run.

    Args:
        chip: ncu's name, see `chip_of`; a chip that is not in the table gets what is the same everywhere.
        version: of ncu.
        purpose: "traffic" or "work".
        available: base names that this ncu lists for this chip (`ncu.query_metrics`); what it lacks is left
            out. None: by the table.

    Raises:
        UsageError: an unknown purpose.
    """
    if purpose not in PURPOSES:
        raise UsageError(f"unknown purpose of a counting run {purpose!r}", f"Choose one of {', '.join(PURPOSES)}.")
    family = family_of(chip)
    shown = chip or "this chip"
    tool = f"ncu {'.'.join(map(str, version[:2]))}"
    wanted: dict[str, str] = dict.fromkeys(_TRAFFIC if purpose == "traffic" else _WORK, "")
    wanted |= dict.fromkeys(_LAUNCH, "")
    wanted["launch__sm_count"] = (
        "" if tuple(version) >= SM_COUNT_SINCE else f"{tool} has no such metric; the report's device attributes say it"
    )
    if purpose == "work":
        wanted |= _by_chip(family, shown, tool, tuple(version), available is not None)
    if available is not None:
        wanted = {
            k: v for name, why in wanted.items() for k, v in _as_listed(name, why, available, shown, tool).items()
        }
    elif not family:
        why = f"{shown} is not in the table of chips, and this ncu was not asked what it has"
        wanted = {
            name: old or ("" if name.startswith(("launch__", "gpu__", "sm__")) else why) for name, old in wanted.items()
        }
    metrics = tuple(name for name, why in wanted.items() if not why)
    return MetricPlan(chip, purpose, PURPOSES[purpose], metrics, {n: why for n, why in wanted.items() if why})


def tensor_levels(chip: str) -> tuple[str, ...]:
    """The `.sum` of every tensor-op counter that the plan knows for a chip, dense ones included.

    Levels overlap: this is for checking them against each other, not for adding up.
    """
    family = family_of(chip)
    if not family:
        return ()
    names = dict.fromkeys((*CHIPS[family].tensor, *CHIPS[family].dense))
    return tuple(f"sm__{name}.sum" for name in names)


def base_name(metric: str) -> str:
    """A metric's name without rollup: what `--query-metrics` lists."""
    return metric.partition(".")[0]


def _by_chip(family: str, shown: str, tool: str, version: tuple[int, ...], listed: bool) -> dict[str, str]:
    """The metrics of the work run that differ between chips."""
    if not family:
        why = f"which counters {shown} has is not known here"
        return {"l1tex__lsu_writeback_active.sum": why, "sm__ops_path_tensor_src_bf16_dst_fp32.sum": why}
    chip = CHIPS[family]
    out = {f"{chip.l1}.sum": "", f"{chip.l1}.sum.peak_sustained": ""}
    why = "" if version >= TENSOR_OPS_SINCE or listed else f"{tool} has no tensor-op counters"
    out |= dict.fromkeys((f"sm__{name}.sum" for name in chip.tensor), why)
    out |= dict.fromkeys((f"sm__{name}.avg.peak_sustained" for name in chip.dense), why)
    return out


def _as_listed(name: str, why: str, available: Collection[str], shown: str, tool: str) -> dict[str, str]:
    """A metric if the tool lists it, its newer name if it lists that, else the reason."""
    if why or name.startswith("launch__") or base_name(name) in available:
        return {name: why}
    newer = _BLACKWELL_DRAM.get(name)
    if newer and base_name(newer) in available:
        return {newer: ""}
    return {name: f"{tool} does not list it for {shown}"}
