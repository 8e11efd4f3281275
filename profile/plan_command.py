"""`profile --plan`: what a run under Nsight would count and cost, said before anything starts.

Launches are taken from the timeline where the run folder already has one, else from the traced ops: an op
that does work is at least one kernel. Minutes and disk are estimates from the rates below.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from kernelroof.profile.backends import Gpu, find_gpu
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.nsight_options import count_options
from kernelroof.profile.tool_errors import ToolError
from kernelroof.profile.tools import find_tool
from kernelroof.roofline.units import counted, quantity

START_S = 30.0
"""Start of the driver under a profiler: torch, the model's random weights, the warm-up."""
PASS_S = 0.004
"""Save, replay and restore of one launch for one pass of ncu, with the memory that it writes."""
REP_BYTES, TIMELINE_BYTES = 12_000, 1_500
"""Of a launch in a .ncu-rep with its CSV, and in a timeline with its export."""
WORK_PASSES, SET_PASSES = 6, 40
"""Replay passes of the work metrics and of a whole section set, where the chip is not at hand."""


class Plan(NamedTuple):
    """What a run would do. kernels: launches of one pass. passes: of each counting run."""

    kernels: int
    chosen: int
    windows: int
    classes: int
    never: int
    passes: dict[str, int]
    metrics: dict[str, int]
    minutes: float
    disk_bytes: int
    origin: str


def make_plan(driver: DriverSpec, args: argparse.Namespace, out: Path) -> Plan:
    """Plan a run of this driver with these options."""
    launches, origin, growing = _launches(driver, out)
    from kernelroof.profile.representatives import choose, classify, in_windows, windows_of

    table = launches
    if growing is not None:
        table = launches.assign(
            varies=(launches["module"].isin(growing) & (launches["phase"] == "decode")).fillna(False)
        )
    classified = classify(table)
    options = count_options(args)
    chosen = choose(classified) | options.every_kernel
    windows = windows_of(classified, chosen)
    replayed = int(in_windows(classified, windows).sum())
    metrics = _metrics(find_gpu(driver.device), options.section_set)
    passes = {"set": SET_PASSES} if options.section_set else {"traffic": 1, "work": WORK_PASSES}
    seconds = START_S * (2 + len(passes)) + PASS_S * replayed * sum(passes.values())
    disk = TIMELINE_BYTES * len(launches) + REP_BYTES * replayed * len(passes)
    classes = classified["class"]
    return Plan(
        len(launches), replayed, len(windows), int(classes[classes >= 0].nunique()), int((classes < 0).sum()),
        passes, metrics, seconds / 60, disk, origin,
    )  # fmt: skip


def print_plan(driver: DriverSpec, args: argparse.Namespace, out: Path) -> Plan:
    """Print the plan and return it; nothing is started and nothing written."""
    plan = make_plan(driver, args, out)
    for name in ("nsys", "ncu"):
        try:
            print(f"{name:<10}{find_tool(name).text}")
        except ToolError as error:
            print(f"{name:<10}missing: {error.what}")
    share = 100 * plan.chosen / plan.kernels if plan.kernels else 0.0
    print(f"kernels   {plan.kernels:,} launches in a prefill and {driver.output} decode steps ({plan.origin})")
    never = f"; {plan.never:,} are never represented (routed experts, collectives)" if plan.never else ""
    members = "every member" if args.every_kernel else "their first and last members"
    print(f"chosen    {plan.chosen:,} launches ({share:.1f} %) in {plan.windows:,} module calls: "
          f"{plan.classes:,} classes, {members}{never}")  # fmt: skip
    if args.top is not None:
        print(f"          at most: --top {args.top} leaves only the kernels with most time, known after the timeline")
    asked = "; ".join(
        f"{name} {count}" + (f" ({plan.metrics[name]} metrics)" if name in plan.metrics else "")
        for name, count in plan.passes.items()
    )
    print(f"passes    {asked}: replays of each chosen launch, estimated")
    print(f"minutes   about {plan.minutes:.0f}: {2 + len(plan.passes)} starts of the driver at {START_S:.0f} s, "
          f"{1000 * PASS_S:.0f} ms a replay; classes that split cost one or two more runs")  # fmt: skip
    print(f"disk      about {plan.disk_bytes / 1e6:.0f} MB in the run folder")
    return plan


def print_sum(plans: Mapping[str, Plan], memory: Mapping[str, tuple[int, int]]) -> None:
    """Print what a sweep comes to.

    Args:
        plans: by point.
        memory: bytes of weights and of the KV cache, by point.
    """
    minutes, disk = sum(p.minutes for p in plans.values()), sum(p.disk_bytes for p in plans.values())
    largest = max(memory, key=lambda point: sum(memory[point]))
    weights, cache = memory[largest]
    print(f"sum       {counted(len(plans), 'point')}: about {minutes:.0f} minutes, one after the other, and "
          f"{disk / 1e6:.0f} MB of disk")  # fmt: skip
    print(f"          largest: {largest}: weights {quantity(weights, 'B')} + KV cache {quantity(cache, 'B')} = "
          f"{quantity(weights + cache, 'B')}, estimated, without activations")  # fmt: skip


def _launches(driver: DriverSpec, out: Path) -> tuple[pd.DataFrame, str, set[str] | None]:
    """The launches to plan for, where they come from, and the modules whose bytes depend on the context."""
    recorded = out / "launches.csv"
    if recorded.exists():
        table = pd.read_csv(recorded, dtype={"step": "Int64"})
        return table[table["grid"].notna()].reset_index(drop=True), f"recorded in {out}", None
    from kernelroof.models.trace import trace
    from kernelroof.profile.counters_stage import growing_modules

    ops = trace(
        driver.config, batch=driver.batch, prompt=driver.prompt, output=driver.output, dtype=driver.dtype,
        attn=driver.attn, cache=driver.cache, head=driver.head,
    ).ops  # fmt: skip
    working = [op for op in ops if op.flops or op.read_bytes or op.write_bytes]
    table = pd.DataFrame(
        {
            "phase": [op.phase for op in working],
            "step": pd.array([op.step for op in working], dtype="Int64"),
            "module": [op.module for op in working],
            "kernel": [op.op for op in working],
            "shapes": [op.shapes for op in working],
            "grid": "",
            "block": "",
        }
    )
    return table, "traced ops that do work; an op may launch more", growing_modules(ops)


def _metrics(gpu: Gpu | None, section_set: str) -> dict[str, int]:
    """How many metrics each counting run asks for, where the GPU and ncu are here."""
    if gpu is None or section_set:
        return {}
    from kernelroof.profile.ncu_metrics_plan import chip_of, plan

    try:
        tool = find_tool("ncu")
    except ToolError:
        return {}
    return {p: len(plan(chip_of(gpu.cc, gpu.name), tool.version, p).metrics) for p in ("traffic", "work")}
