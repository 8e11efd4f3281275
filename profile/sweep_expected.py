"""The expected time of a forward of a finished run: by kernels as they were measured on its GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelroof.models.errors import KernelroofError
from kernelroof.roofline.sweep_points import Expectation

if TYPE_CHECKING:
    from kernelroof.models.spec import ModelSpec
    from kernelroof.models.workload import Workload
    from kernelroof.profile.finished_run import FinishedRun

_ROUNDING = 1e-3


def expected_of(run: FinishedRun, phase: str) -> Expectation:
    """What to expect of the prefill, or of the mean decode step; no time, and why, where nothing is known."""
    from kernelroof.models.expected import PhaseTime, expected_phase
    from kernelroof.models.spec import read_spec
    from kernelroof.roofline.gpus import ceilings_for, known_gpu

    gpu = known_gpu(run.ceilings.name)
    if gpu is None:
        return Expectation(None, f"not known: kernels were measured on GPUs of the table only, not on {_device(run)}")
    try:
        peaks = ceilings_for(gpu, str(run.identity["dtype"]))
    except KernelroofError as error:
        return Expectation(None, f"not known: {error.what}")
    spec = read_spec(run.identity["driver"]["config"], str(run.identity["model"]))
    load = _workload(run, spec)
    times: list[PhaseTime] = []
    for seen in _contexts(load, phase):
        time = expected_phase(spec, load, gpu.key, phase, flop_s=peaks.flop_s, byte_s=peaks.byte_s, context=seen)
        if time is None:
            return Expectation(
                None, f"not known: no kernels were measured on {gpu.key} or another GPU of its architecture"
            )
        times.append(time)
    number = len(times)
    took = sum(t.seconds for t in times) / number
    share = sum(t.measured_share * t.seconds for t in times) / number / took
    if share <= 0.5:
        why = ", ".join(times[0].reasons)
        return Expectation(None, f"not known: only {100 * share:.0f} % of it would rest on measurements ({why})")
    flops, moved = run.model_cost(phase)
    if took < peaks.ideal_ns(flops, moved) / run.steps(phase) / 1e9 * (1 - _ROUNDING):
        return Expectation(None, "none: what runs computes what the measured kernels skip: its ideal is longer")
    note = "kernels of vLLM as measured on the device, without host time and elementwise kernels"
    if any(t.transferred for t in times):
        note += "; learned on another GPU of the same architecture"
    if times[0].reasons:
        note += f"; at their ideal: {', '.join(times[0].reasons)}"
    return Expectation(1e3 * took, note)


def _device(run: FinishedRun) -> str:
    return f"this {'CPU' if run.scaled else 'GPU'}"


def _contexts(load: Workload, phase: str) -> list[int]:
    """Tokens that each forward sees; 0 where they are the same for all."""
    if phase == "prefill" or load.cache == "static":
        return [0]
    return [load.prompt + step + 1 for step in range(load.output)]


def _workload(run: FinishedRun, spec: ModelSpec) -> Workload:
    from kernelroof.models.workload import make_workload

    who = run.identity
    same = ("batch", "prompt", "output", "dtype", "attn", "cache", "mask", "embedding", "overhead")
    dtype = who["dtype"]
    # The driver holds weights and cache in the type that computes.
    return make_workload(
        spec, **{k: who[k] for k in same}, head=who["driver"]["head"], weights_dtype=dtype, kv_dtype=dtype
    )
