"""`kernelroof advise`: every lever with the effect that the estimate computes for this model, workload and GPU."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.levers import Assumed, Device, Lever, State, best_first, gain, levers, state_of
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.spec import ModelSpec, read_spec
from kernelroof.models.workload import Workload, check_size, make_workload
from kernelroof.profile.estimate_command import workload_from
from kernelroof.profile.option_checks import check_one_device
from kernelroof.roofline.gpus import Gpu, find_gpu, list_gpus, peak_for, quantised_peaks
from kernelroof.roofline.links import host_link, peer_link
from kernelroof.roofline.text_table import WIDTH, text_table
from kernelroof.roofline.units import fixed, quantity, seconds

_OTHERS = 3
"""So many other GPUs are listed, the best for the goal."""


def run(args: argparse.Namespace) -> int:
    """Print the levers, best first; see `decision_options` for the options."""
    if args.gpu is None:
        raise UsageError("advice is for a GPU", "Add --gpu NAME (see `kernelroof gpus`).")
    spec = read_spec(load_config(args.model), display_name(args.model))
    workload = workload_from(args, spec)
    check_one_device(args)
    gpu = find_gpu(args.gpu)
    device = _device(gpu, peak_for(gpu, workload.dtype))
    assumed = _assumed(args, workload, device)
    before = state_of(spec, workload, device)
    # Where the model does not fit, fitting comes first.
    goal = args.goal or ("latency" if before.fits else "memory")
    others = _better(spec, workload, device, gpu, before, goal)
    found = best_first(levers(spec, workload, device, others, assumed), before, goal)
    if args.json:
        import json

        rows = [_row(lever, before, goal) for lever in found]
        print(json.dumps({"goal": goal, "before": before._asdict(), "levers": rows}, indent=2, allow_nan=False))
        return 0
    asked = (
        f"{spec.name} on {device.name}: batch {workload.batch}, prompt {workload.prompt}, output {workload.output}, "
        f"{workload.dtype}, weights {workload.weights_dtype}, KV {workload.kv_dtype}"
    )
    print(textwrap.fill(asked, WIDTH))
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


def _better(spec: ModelSpec, workload: Workload, device: Device, gpu: Gpu, before: State, goal: str) -> list[Device]:
    """The best other GPUs for a goal, those that fit first; for memory those with more of it, the smallest first."""
    others = [_device(g, peak) for g in list_gpus() if g.key != gpu.key and (peak := _peak(g, workload.dtype))]
    states = {other: state_of(spec, workload, other) for other in others}
    if goal == "memory":
        larger = [o for o in others if o.memory_bytes > device.memory_bytes]
        if before.fits:
            return larger[:0]  # it needs no more memory, and no GPU makes it need less
        fitting = sorted((o for o in larger if states[o].fits), key=lambda o: (o.memory_bytes, states[o].step_s))
        return fitting[:_OTHERS] or sorted(larger, key=lambda o: -o.memory_bytes)[:1]
    faster = [o for o in others if gain(before, states[o], goal) > 1]
    return sorted(faster, key=lambda o: (not states[o].fits, -gain(before, states[o], goal)))[:_OTHERS]


def _row(lever: Lever, before: State, goal: str) -> dict[str, Any]:
    """A lever for scripts."""
    states = {field: state and state._asdict() for field, state in (("after", lever.after), ("against", lever.against))}
    return {**lever._asdict(), **states, "gain": lever.gain(before, goal)}


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
        check_size(option, value)
    drafting: dict[str, float] = {}
    if args.draft is not None:
        draft = read_spec(load_config(args.draft), display_name(args.draft))
        load = make_workload(draft, batch=workload.batch, prompt=workload.prompt, output=1)
        cost = costs(draft, load._replace(output=workload.output))
        times = ideal_times(cost, device.flop_s, device.byte_s, quantised_flop_s=device.apart(cost))
        drafting = {
            "draft_step_s": times.first_step_s,
            "draft_prefill_s": times.prefill_s,
            "draft_bytes": (cost.weight_bytes + cost.kv_bytes) * (1 + workload.overhead),
        }
    return Assumed(
        tuple(args.lengths),
        args.drafted,
        args.acceptance,
        shared_prompt=args.shared_prompt,
        chunk=args.chunk,
        **drafting,
    )


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
                f"{lever.gain(before, goal):.2f} x",
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
