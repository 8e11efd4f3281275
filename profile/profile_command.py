"""`kernelroof profile`: checks what was asked, then runs the pipeline and prints its story."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from kernelroof.models.errors import UsageError
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.spec import read_spec
from kernelroof.profile.compile_options import compile_mode
from kernelroof.profile.estimate_command import device_from, workload_from
from kernelroof.profile.nsight_options import count_options

_SHOWN = 8


def run(args: argparse.Namespace) -> int:
    """Profile `args.model` into a run folder; see `profile.cli` for the options."""
    mode = compile_mode(args)
    args.cache = args.cache or ("static" if mode else "dynamic")
    if args.target is not None:
        from kernelroof.profile.target_command import run_target

        if mode is not None:
            raise UsageError(
                "--compile and a program after -- exclude each other", "Let the program compile its model."
            )
        return run_target(args)
    if args.model is None:
        raise UsageError("profile needs a MODEL, or a program after --", "List the presets with `kernelroof models`.")
    config = load_config(args.model)
    name = display_name(args.model)
    spec = read_spec(config, name)
    workload = workload_from(args, spec)
    for option, value in (("--repeats", args.repeats), ("--top", args.top)):
        if value is not None and value < 1:
            raise UsageError(f"{option} is {value}", "Give a whole number of at least 1.")
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads is {args.threads}", "Give a whole number of at least 1.")
    if workload.cache == "ideal":
        raise UsageError("--cache ideal exists only on paper", "Profile dynamic or static; estimate shows ideal.")
    for option, value in (("--weights-dtype", workload.weights_dtype), ("--kv-dtype", workload.kv_dtype)):
        if value != workload.dtype:
            raise UsageError(
                f"{option} {value} can't be executed: the driver holds weights and KV in --dtype {workload.dtype}",
                f"Use the estimate command for other formats, or give --weights-dtype {workload.dtype} "
                f"--kv-dtype {workload.dtype} to run a quantised checkpoint's architecture unquantised.",
            )
    other = device_from(args, workload)

    from kernelroof.profile import backends
    from kernelroof.profile.driver_spec import DriverSpec
    from kernelroof.profile.pipeline import Job, run_job

    device = _device(args.device)
    out = Path(args.out) if args.out else Path("runs") / f"{name}-{device}-{time.strftime('%Y%m%d-%H%M%S')}"
    driver = DriverSpec(
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
        repeats=args.repeats,
        head=workload.head,
        compile=mode,
    )
    counting = count_options(args)
    if args.plan:
        from kernelroof.profile.plan_command import print_plan

        print_plan(driver, args, out)
        return 0
    gpu = backends.find_gpu(device)
    sources, lost = backends.choose_sources(args.backend, args.timeline, args.counters, gpu)
    job = Job(spec, workload, driver, other, args.top or _SHOWN, sources, counting, gpu, tuple(lost))
    run_job(job, out, overwrite=args.overwrite)
    return 0


def _device(asked: str) -> str:
    if asked != "auto":
        return asked
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
