"""`kernelroof advise`: every lever with the effect that the estimate computes for this model, workload and GPU."""

from __future__ import annotations

import argparse
import textwrap

from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.levers import Assumed, Device, Lever, State, best_first, gain, levers, state_of
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import Workload, make_workload
from kernelroof.profile.estimate_command import workload_from
from kernelroof.roofline.gpus import Gpu, find_gpu, list_gpus, peak_for, quantised_peaks
from kernelroof.roofline.links import host_link, peer_link
from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed, quantity, seconds

_OTHERS = 3
"""So many other GPUs are listed, the best for the goal."""


def run(args: argparse.Namespace) -> int:
    """Print the levers, best first; see `decision_options` for the options."""
    if args.gpu is None:
        raise UsageError("advice is for a GPU", "Add --gpu NAME (see `kernelroof gpus`).")
    spec = read_spec(load_config(args.model), display_name(args.model))
    workload = workload_from(args, spec)
    gpu = find_gpu(args.gpu)
    device = _device(gpu, peak_for(gpu, workload.dtype))
    assumed = _assumed(args, workload, device)
    before = state_of(spec, workload, device)
    # Where the model does not fit, fitting comes first.
    goal = args.goal or ("latency" if before.fits else "memory")
    others = [_device(g, peak) for g in list_gpus() if g.key != gpu.key and (peak := _peak(g, workload.dtype))]
    states = {other: state_of(spec, workload, other) for other in others}
    ranked = sorted(others, key=lambda o: (not states[o].fits, -gain(before, states[o], goal)))
    found = best_first(levers(spec, workload, device, ranked[:_OTHERS], assumed), before, goal)
    if args.json:
        import json

        rows = [{**lever._asdict(), "after": lever.after and lever.after._asdict()} for lever in found]
        print(json.dumps({"goal": goal, "before": before._asdict(), "levers": rows}, indent=2, allow_nan=False))
        return 0
    print(
        f"{spec.name} on {device.name}: batch {workload.batch}, prompt {workload.prompt}, output {workload.output}, "
        f"{workload.dtype}, weights {workload.weights_dtype}, KV {workload.kv_dtype}"
    )
    print(_now(before, device))
    print(f"levers, largest gain in {_WORDS[goal]} first (--goal {goal}):\n")
    print(_table(before, found, goal))
    print()
    for number, lever in enumerate(found, 1):
        print(_explained(number, lever))
    print(
        "\nTimes are ideal: all bytes the estimate knows at datasheet bandwidth, FLOPs at the dense peak, elementwise\n"
        "kernels, launches and efficiency left out. Gains are upper bounds, and they do not multiply."
    )
    return 0


_WORDS = {
    "latency": "time per output token",
    "throughput": "tokens/s",
    "ttft": "time to first token",
    "memory": "memory per GPU",
}


def _device(gpu: Gpu, flop_s: float) -> Device:
    return Device(
        gpu.key,
        flop_s,
        gpu.byte_s,
        gpu.memory_bytes,
        peer_link(gpu.key, gpu.cc).byte_s,
        host_link(gpu.key, gpu.cc).byte_s,
        tuple(quantised_peaks(gpu).items()),
    )


def _peak(gpu: Gpu, dtype: str) -> float | None:
    try:
        return peak_for(gpu, dtype)
    except UsageError:
        return None  # a GPU that lacks the format is no candidate


def _assumed(args: argparse.Namespace, workload: Workload, device: Device) -> Assumed:
    """What the options say, checked, and the draft model's own step where one is named."""
    if not 0 <= args.acceptance <= 1:
        raise UsageError(f"--acceptance is {args.acceptance}", "Give a probability from 0 to 1.")
    if not 0 <= args.shared_prompt < 1:
        raise UsageError(f"--shared-prompt is {args.shared_prompt}", "Give a share from 0 to below 1.")
    for option, value in (("--drafted", args.drafted), ("--chunk", args.chunk)):
        if value < 1:
            raise UsageError(f"{option} is {value}", "Give a whole number of at least 1.")
    draft_s = 0.0
    if args.draft is not None:
        draft = read_spec(load_config(args.draft), display_name(args.draft))
        load = make_workload(draft, batch=workload.batch, prompt=workload.prompt, output=1)
        cost = costs(draft, load)
        draft_s = ideal_times(cost, device.flop_s, device.byte_s, quantised_flop_s=device.apart(cost)).first_step_s
    return Assumed(tuple(args.lengths), args.drafted, args.acceptance, draft_s, args.shared_prompt, args.chunk)


def _now(state: State, device: Device) -> str:
    fits = "fits" if state.fits else "does NOT fit"
    return (
        f"now: prefill {seconds(state.prefill_s)}, decode step {seconds(state.step_s)}, "
        f"{fixed(state.tokens_per_s)} tokens/s, {quantity(state.total_bytes, 'B')} of "
        f"{quantity(device.memory_bytes, 'B')}: {fits}"
    )


def _table(before: State, found: list[Lever], goal: str) -> str:
    header = ["", "lever", "", "gain", "decode step", "tokens/s", "prefill", "memory/GPU", "fits"]
    rows = []
    for number, lever in enumerate(found, 1):
        after = lever.after
        if after is None:
            rows.append([str(number), lever.name, lever.setting, "–", "–", "–", "–", "–", ""])
            continue
        rows.append(
            [
                str(number),
                lever.name,
                lever.setting,
                f"{gain(before, after, goal):.2f} x",
                seconds(after.step_s, 3),
                fixed(after.tokens_per_s),
                seconds(after.prefill_s, 3),
                quantity(after.total_bytes, "B", 3),
                "yes" if after.fits else "NO",
            ]
        )
    return text_table(header, rows, left=(1, 2))


def _explained(number: int, lever: Lever) -> str:
    words = f"{lever.name} {lever.setting}".strip() + f": {lever.reason}"
    if lever.limit:
        words += f". Limit: {lever.limit}"
    return textwrap.fill(words, 98, initial_indent=f"{number:>3}  ", subsequent_indent="     ")
