"""`kernelroof profile`: checks what was asked, then runs the pipeline and prints its story.

Lists in --batch or --prompt make a measured sweep: one such run for each combination.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelroof.models.errors import UsageError
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.spec import ModelSpec, read_spec
from kernelroof.profile.compile_options import compile_mode
from kernelroof.profile.estimate_command import device_from, workload_from
from kernelroof.profile.nsight_options import count_options
from kernelroof.profile.picture_options import parse_formats

if TYPE_CHECKING:
    from kernelroof.profile.driver_spec import DriverSpec
    from kernelroof.profile.pipeline import Job

_SHOWN = 8
_REPEATS, _MOST_REPEATS = 3, 9
"""Bare passes where --repeats is not given: as many, and of short ones more."""


def run(args: argparse.Namespace) -> int:
    """Profile `args.model` into a run folder; see `profile.cli` for the options."""
    mode = compile_mode(args)
    args.cache = args.cache or ("static" if mode else "dynamic")
    several = len(args.batch) * len(args.prompt) > 1
    if args.target is not None:
        if several:
            raise UsageError(
                "several batches or prompts can't be given to another program", "Give one of each, or leave out --."
            )
        from kernelroof.profile.target_command import run_target

        if mode is not None:
            raise UsageError(
                "--compile and a program after -- exclude each other", "Let the program compile its model."
            )
        return run_target(_at(args, args.batch[0], args.prompt[0]))
    if args.model is None:
        raise UsageError("profile needs a MODEL, or a program after --", "List the presets with `kernelroof models`.")
    config = load_config(args.model)
    name = display_name(args.model)
    spec = read_spec(config, name)
    _check(args)
    parse_formats(args.picture_formats)
    if several:
        return _sweep(args, config, name, spec)
    args = _at(args, args.batch[0], args.prompt[0])
    workload_from(args, spec)  # what is wrong with it is said before torch is loaded
    device = _device(args.device)
    if args.plan:
        from kernelroof.profile.plan_command import print_plan

        print_plan(_driver(args, config, spec, device), args, _out(args, name, device))
        return 0
    from kernelroof.profile.pipeline import run_job

    run_job(_job(args, config, spec, device), _out(args, name, device), overwrite=args.overwrite)
    return 0


def _sweep(args: argparse.Namespace, config: dict[str, Any], name: str, spec: ModelSpec) -> int:
    from kernelroof.profile.measured_sweep import points_of, run_sweep

    points = points_of(args.batch, args.prompt)
    device = _device(args.device)
    out = _out(args, name, device)
    if args.plan:
        from kernelroof.models.estimate import costs
        from kernelroof.profile.plan_command import print_plan, print_sum

        plans, memory = {}, {}
        for point in points:
            print(f"{point.words}:")
            one = _at(args, point.batch, point.prompt)
            plans[point.words] = print_plan(_driver(one, config, spec, device), one, out / point.folder)
            cost = costs(spec, workload_from(one, spec))
            memory[point.words] = cost.weight_bytes, cost.kv_bytes
        print_sum(plans, memory)
        return 0
    return run_sweep(
        points,
        lambda p: _job(_at(args, p.batch, p.prompt), config, spec, device),
        out,
        name,
        overwrite=args.overwrite,
        formats=parse_formats(args.picture_formats),
    )


def _at(args: argparse.Namespace, batch: int, prompt: int) -> argparse.Namespace:
    """The options of one point."""
    return argparse.Namespace(**{**vars(args), "batch": batch, "prompt": prompt})


def _check(args: argparse.Namespace) -> None:
    for option, value in (("--repeats", args.repeats), ("--top", args.top), ("--threads", args.threads)):
        if value is not None and value < 1:
            raise UsageError(f"{option} is {value}", "Give a whole number of at least 1.")


def _job(args: argparse.Namespace, config: dict[str, Any], spec: ModelSpec, device: str) -> Job:
    """The job of one workload.

    Raises:
        UsageError: the workload can't be executed.
    """
    from kernelroof.profile import backends
    from kernelroof.profile.pipeline import Job

    driver = _driver(args, config, spec, device)
    workload = workload_from(args, spec)
    other = device_from(args, workload)
    gpu = backends.find_gpu(device)
    sources, lost = backends.choose_sources(args.backend, args.timeline, args.counters, gpu)
    if driver.compile and sources.counters == "ncu":
        sources = sources._replace(counters="traced")
        lost.append("compiled code has no module calls for ncu to count in: FLOPs and bytes are traced, not counted")
    return Job(spec, workload, driver, other, args.top or _SHOWN, sources, count_options(args), gpu, tuple(lost),
               parse_formats(args.picture_formats))  # fmt: skip


def _driver(args: argparse.Namespace, config: dict[str, Any], spec: ModelSpec, device: str) -> DriverSpec:
    """What the driver is to run, checked."""
    from kernelroof.profile.driver_spec import DriverSpec

    mode = compile_mode(args)
    workload = workload_from(args, spec)
    if workload.cache == "ideal":
        raise UsageError("--cache ideal exists only on paper", "Profile dynamic or static; estimate shows ideal.")
    for option, value in (("--weights-dtype", workload.weights_dtype), ("--kv-dtype", workload.kv_dtype)):
        if value != workload.dtype:
            raise UsageError(
                f"{option} {value} can't be executed: the driver holds weights and KV in --dtype {workload.dtype}",
                f"Use the estimate command for other formats, or give --weights-dtype {workload.dtype} "
                f"--kv-dtype {workload.dtype} to run a quantised checkpoint's architecture unquantised.",
            )
    return DriverSpec(
        config=config,
        batch=workload.batch,
        prompt=workload.prompt,
        output=workload.output,
        dtype=workload.dtype,
        attn=workload.attn,
        cache=workload.cache,
        device=device,
        weights=args.weights,
        threads=args.threads,
        depth="phase" if mode else args.ranges,
        seed=args.seed,
        repeats=args.repeats or _REPEATS,
        most_repeats=0 if args.repeats else _MOST_REPEATS,
        head=workload.head,
        compile=mode,
    )


def _out(args: argparse.Namespace, name: str, device: str) -> Path:
    return Path(args.out) if args.out else Path("runs") / f"{name}-{device}-{time.strftime('%Y%m%d-%H%M%S')}"


def _device(asked: str) -> str:
    if asked != "auto":
        return asked
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
