"""The workload itself: one prefill, then decode steps token by token, under ranges if asked.

Started by hand, or by nsys and ncu:
    python -m kernelroof.profile.driver --model tiny-llama --prompt 256 --output 16 --mode bare
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import ConfigError, DriverError, KernelroofError, OutputError
from kernelroof.profile.ranges import DEPTHS, SAMPLE_RANGE, Ranges, module_ranges, nvtx_sink

if TYPE_CHECKING:
    import torch

_WARM_STEPS = 2
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class DriverSpec:
    """All that a run depends on. Counts are tokens or sequences; names are those of the command line.

    config: content of the model's config.json. weights: a local checkpoint, or None for random ones.
    threads: CPU threads, or None for torch's own choice. depth: of the ranges, when there are any.
    warmup: passes of a prefill and 2 steps before the measured ones. repeats: measured passes.
    head: "last" runs the head on a prompt's last position only, "all" on all of them.
    """

    config: dict[str, Any]
    batch: int = 1
    prompt: int = 256
    output: int = 16
    dtype: str = "float32"
    attn: str = "sdpa"
    cache: str = "dynamic"
    device: str = "cpu"
    weights: str | None = None
    threads: int | None = None
    depth: str = "module"
    seed: int = 0
    warmup: int = 1
    repeats: int = 3
    head: str = "last"

    def to_json(self) -> str:
        """The spec as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> DriverSpec:
        """Read what `to_json` wrote.

        Raises:
            DriverError: not a JSON object, or a field is missing or unknown.
        """
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise DriverError(f"the driver's spec is not JSON ({error})") from error
        if not isinstance(fields, dict) or "config" not in fields:
            raise DriverError("the driver's spec is not a JSON object with a config")
        unknown = sorted(set(fields) - {f.name for f in dataclasses.fields(cls)})
        if unknown:
            raise DriverError(f"the driver's spec has unknown fields: {', '.join(unknown)}")
        return cls(**fields)


class Session(NamedTuple):
    """A model ready to run. input_ids: int64 [batch, prompt], on the model's device."""

    spec: DriverSpec
    model: torch.nn.Module
    input_ids: torch.Tensor
    parameter_bytes: int


class PassTimes(NamedTuple):
    """One prefill and its decode steps; the durations tile the pass. cache_bytes: K and V at its end."""

    prefill_ns: int
    step_ns: tuple[int, ...]
    cache_bytes: int


def prepare(spec: DriverSpec) -> Session:
    """Build the model and a random prompt from the spec's seed; sets torch's CPU thread count.

    Raises:
        DriverError: sizes that make no sense or outgrow the model's positions, no such device, too
            little memory, or a parameter or buffer that is not on the GPU.
        UsageError, ConfigError: see `kernelroof.models.hf.build_model`.
    """
    import torch

    from kernelroof.models.hf import build_model, config_object

    text = config_object(spec.config).get_text_config()
    _check(spec, getattr(text, "max_position_embeddings", None))
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    _check_memory(spec)
    with _memory_errors(spec):
        model = build_model(
            spec.config,
            dtype=spec.dtype,
            attn=spec.attn,
            device=spec.device,
            weights=spec.weights,
            seed=spec.seed,
        )
    if spec.device.startswith("cuda"):
        check_on_gpu(model)
    draw = torch.Generator().manual_seed(spec.seed)
    ids = torch.randint(text.vocab_size, (spec.batch, spec.prompt), generator=draw)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return Session(spec, model, ids.to(spec.device), size)


def check_on_gpu(model: torch.nn.Module) -> None:
    """Raise DriverError if any parameter or buffer is elsewhere: every step would wait for its copy."""
    named = [*model.named_parameters(), *model.named_buffers()]
    away = [f"{name} ({tensor.device})" for name, tensor in named if tensor.device.type != "cuda"]
    if away:
        raise DriverError(
            f"{len(away)} of {len(named)} parameters and buffers are not on the GPU, first {away[0]}",
            "Choose a model and dtype that fit the GPU's memory, without offloading.",
        )


def run_pass(session: Session, ranges: Ranges, steps: int | None = None) -> PassTimes:
    """Run the prefill and `steps` decode steps (default: the spec's output) with a fresh cache.

    The greedy token of one step feeds the next; nothing waits for the device between steps. On a CPU
    durations are wall time between boundaries; on CUDA they are between events on the stream, so
    each lasts from the end of the previous step's last kernel to the end of its own.

    Raises:
        DriverError: out of memory.
    """
    import torch

    from kernelroof.models.hf import cache_tensors, choose_token, make_cache, run_prefill, run_step

    spec, model, input_ids, _ = session
    steps = spec.output if steps is None else steps
    with _memory_errors(spec), torch.no_grad():
        cache = make_cache(spec.cache, model, max_length=spec.prompt + spec.output, batch=spec.batch)
        mark, durations = _boundaries(spec.device)
        mark()
        with ranges.phase("prefill"), ranges.step(0):
            logits = run_prefill(model, cache, input_ids, last_only=spec.head == "last")
            with ranges.span(SAMPLE_RANGE):
                token = choose_token(logits)
        mark()
        with ranges.phase("decode"):
            for k in range(steps):
                with ranges.step(k):
                    logits = run_step(model, cache, token)
                    with ranges.span(SAMPLE_RANGE):
                        token = choose_token(logits)
                mark()
        prefill_ns, *step_ns = durations()
        held = sum(t.numel() * t.element_size() for _, t in cache_tensors(cache))
    return PassTimes(prefill_ns, tuple(step_ns), held)


def warm_up(session: Session) -> None:
    """Run the spec's warm-up passes: a full prefill and up to 2 steps each, without ranges."""
    for _ in range(session.spec.warmup):
        run_pass(session, Ranges(), min(_WARM_STEPS, session.spec.output))


def measure_bare(session: Session, repeats: int | None = None) -> dict[str, Any]:
    """Time passes with no ranges and no profiler, after the warm-up: the truth about wall time.

    Python's cyclic garbage collector is off during the measured passes, so that no step pays for
    another's garbage; it collects between them.

    Returns:
        the content of bare.json: `prefill_ns` has one entry per pass, `decode_step_ns` one list per
        pass; `cache_bytes` is K and V after a pass's last step.
    """
    warm_up(session)
    passes = []
    for _ in range(session.spec.repeats if repeats is None else repeats):
        with no_collection():
            passes.append(run_pass(session, Ranges()))
    return times_record(session, passes)


def measure_ranges(session: Session, depth: str | None = None) -> dict[str, Any]:
    """Time one pass under NVTX ranges, after a warm-up without any.

    On CUDA the profilers' capture (cudaProfilerStart and Stop) is open during that pass only.
    The result has the shape of `measure_bare`'s, and `depth`.
    """
    depth = session.spec.depth if depth is None else depth
    warm_up(session)
    with (
        module_ranges(session.model, depth, (nvtx_sink(),)) as ranges,
        no_collection(),
        _capture(session.spec.device),
    ):
        times = run_pass(session, ranges)
    return {**times_record(session, [times]), "depth": depth}


def times_record(session: Session, passes: list[PassTimes]) -> dict[str, Any]:
    """Passes as a JSON-ready dict; see `measure_bare`."""
    import torch

    return {
        "prefill_ns": [p.prefill_ns for p in passes],
        "decode_step_ns": [list(p.step_ns) for p in passes],
        "cache_bytes": passes[-1].cache_bytes,
        "parameter_bytes": session.parameter_bytes,
        "threads": torch.get_num_threads(),
        "device": session.spec.device,
        "repeats": len(passes),
    }


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect garbage now, and not again inside the block."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _boundaries(device: str) -> tuple[Callable[[], None], Callable[[], list[int]]]:
    """A function that marks a boundary, and one that waits for the device and returns the gaps in ns."""
    import torch

    if not device.startswith("cuda"):
        instants: list[int] = []

        def gaps() -> list[int]:
            return [b - a for a, b in zip(instants, instants[1:], strict=False)]

        return lambda: instants.append(time.perf_counter_ns()), gaps

    events: list[torch.cuda.Event] = []
    stream = torch.cuda.current_stream(device)
    torch.cuda.synchronize(device)

    def mark() -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        events.append(event)

    def event_gaps() -> list[int]:
        torch.cuda.synchronize(device)
        return [round(a.elapsed_time(b) * 1e6) for a, b in zip(events, events[1:], strict=False)]

    return mark, event_gaps


@contextmanager
def _capture(device: str) -> Iterator[None]:
    if not device.startswith("cuda"):
        yield
        return
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.profiler.start()
    try:
        yield
    finally:
        torch.cuda.synchronize(device)
        torch.cuda.profiler.stop()


def _check(spec: DriverSpec, positions: int | None) -> None:
    import torch

    for field in ("batch", "prompt", "output", "repeats"):
        if getattr(spec, field) < 1:
            raise DriverError(f"{field} is {getattr(spec, field)}", "Give a whole number of at least 1.")
    if spec.threads is not None and spec.threads < 1:
        raise DriverError(f"threads is {spec.threads}", "Give a whole number of at least 1.")
    if spec.head not in ("last", "all"):
        raise DriverError(f"head is {spec.head!r}", "Choose last or all.")
    if positions is not None and spec.prompt + spec.output > positions:
        raise DriverError(
            f"prompt {spec.prompt} + output {spec.output} is beyond the model's "
            f"max_position_embeddings of {positions}",
            "Ask for fewer tokens.",
        )
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        raise DriverError(
            f"device is {spec.device}, and torch {torch.__version__} sees no CUDA device",
            "Use --device cpu, or a CUDA build of torch on a machine with a GPU.",
        )


def needed_bytes(spec: DriverSpec) -> tuple[int, int | None]:
    """Bytes of the parameters and of the full KV cache; the latter None for an unknown family."""
    from kernelroof.models.hf import build_model
    from kernelroof.models.spec import read_spec

    model = build_model(spec.config, dtype=spec.dtype, attn=spec.attn, device="meta")
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    element = next(model.parameters()).element_size()
    try:
        sizes = read_spec(spec.config)
    except ConfigError:
        return parameters, None
    per_token = 2 * sizes.layers * sizes.kv_heads * sizes.head_dim * element
    return parameters, per_token * spec.batch * (spec.prompt + spec.output)


def _need(spec: DriverSpec) -> tuple[int, str]:
    """Bytes that the run needs at least, and the sum in words."""
    parameters, cache = needed_bytes(spec)
    kv = "the KV cache" if cache is None else f"{cache / 1e9:.2f} GB of KV cache"
    return parameters + (cache or 0), f"{parameters / 1e9:.2f} GB of parameters + {kv} + activations"


def _check_memory(spec: DriverSpec) -> None:
    """Refuse what can't fit before the kernel kills the process for it."""
    from kernelroof.profile.environment import available_memory_bytes

    if spec.device.startswith("cuda"):
        import torch

        free: int | None = torch.cuda.mem_get_info(torch.device(spec.device))[0]
    else:
        free = available_memory_bytes()
    total, words = _need(spec)
    if free is not None and total > free:
        raise DriverError(
            f"the run needs {words}, and {spec.device} has {free / 1e9:.2f} GB free",
            "Choose a smaller model, dtype, batch or prompt.",
        )


@contextmanager
def _memory_errors(spec: DriverSpec) -> Iterator[None]:
    """Turn an allocator's failure into a DriverError that says what the run needed."""
    try:
        yield
    except (RuntimeError, MemoryError, DriverError) as error:
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DriverError(
            f"out of memory on {spec.device}: the run needs {_need(spec)[1]} ({first})",
            "Choose a smaller model, dtype, batch or prompt.",
        ) from error
