"""The workload itself: one prefill, then decode steps token by token, under ranges if asked.

Started by hand, or by nsys and ncu:
    python -m kernelroof.profile.driver --model tiny-llama --prompt 256 --output 16 --mode bare
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import DriverError, KernelroofError
from kernelroof.profile.cpu_use import cpu_use
from kernelroof.profile.driver_options import build_parser, read_spec_options
from kernelroof.profile.driver_spec import DriverSpec, check_spec
from kernelroof.profile.memory import check_memory, memory_errors
from kernelroof.profile.ranges import SAMPLE_RANGE, Ranges, module_ranges, nvtx_sink
from kernelroof.profile.runfolder import write_json

if TYPE_CHECKING:
    import torch
    from kernelroof.profile.compiled import CompiledModel

_WARM_STEPS = 2
_COMPILE_PASSES = 3
_SHORT_S = 2.0
"""Passes are repeated further while all together took less."""


class Session(NamedTuple):
    """A model ready to run. input_ids: int64 [batch, prompt], on the model's device. compiled: None if eager."""

    spec: DriverSpec
    model: torch.nn.Module
    input_ids: torch.Tensor
    parameter_bytes: int
    compiled: CompiledModel | None = None


class PassTimes(NamedTuple):
    """One prefill and its decode steps; the durations tile the pass. cache_bytes: K and V at its end."""

    prefill_ns: int
    step_ns: tuple[int, ...]
    cache_bytes: int


def check(spec: DriverSpec) -> int:
    """Refuse what can't run before anything is measured or allocated; returns the vocabulary's size.

    Raises:
        DriverError: sizes that make no sense or outgrow the model's positions, no such device or
            checkpoint, a model that transformers can't build, or too little memory.
        UsageError, ConfigError: see `kernelroof.models.hf.build_model`.
    """
    from kernelroof.models.compat.build import causal_config
    from kernelroof.models.hf import config_object

    text = causal_config(config_object(spec.config)).get_text_config(decoder=True)
    check_spec(spec, getattr(text, "max_position_embeddings", None))
    check_memory(spec)
    return int(text.vocab_size)


def prepare(spec: DriverSpec) -> Session:
    """Build the model and a random prompt from the spec's seed; sets torch's CPU thread count.

    Raises:
        DriverError: see `check`, or a parameter or buffer that is not on the GPU.
        UsageError, ConfigError: see `kernelroof.models.hf.build_model`.
    """
    import torch
    from kernelroof.models.compat.inputs import input_rows
    from kernelroof.models.hf import build_model

    vocabulary = check(spec)
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    with memory_errors(spec):
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
    ids = torch.randint(vocabulary, (input_rows(model, spec.batch), spec.prompt), generator=draw)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    session = Session(spec, model, ids.to(spec.device), size)
    return session if spec.compile is None else _compiled(session)


def _compiled(session: Session) -> Session:
    """The session with its model compiled. For CUDA graphs an eager prefill first makes the cache that they keep."""
    import torch
    from kernelroof.models.hf import make_cache, run_prefill
    from kernelroof.profile.compile_check import uses_cuda_graphs
    from kernelroof.profile.compiled import CompiledModel

    spec, cache = session.spec, None
    if uses_cuda_graphs(spec):
        with memory_errors(spec), torch.no_grad():
            cache = make_cache(spec.cache, session.model, max_length=spec.prompt + spec.output, batch=spec.batch)
            run_prefill(session.model, cache, session.input_ids, last_only=spec.head == "last")
    return session._replace(compiled=CompiledModel(session.model, str(spec.compile), cache))


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

    spec, model, input_ids = session.spec, session.model, session.input_ids
    steps = spec.output if steps is None else steps
    with memory_errors(spec), torch.no_grad():
        cache = session.compiled.emptied_cache() if session.compiled else None
        if cache is None:
            cache = make_cache(spec.cache, model, max_length=spec.prompt + spec.output, batch=spec.batch)
        if session.compiled:
            session.compiled.phase = "prefill"
        mark, durations = _boundaries(spec.device)
        mark()
        with ranges.phase("prefill"), ranges.step(0):
            logits = run_prefill(model, cache, input_ids, last_only=spec.head == "last")
            with ranges.span(SAMPLE_RANGE):
                token = choose_token(logits)
        mark()
        if session.compiled:
            session.compiled.phase = "decode"
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
    if session.compiled and not session.compiled.seconds:
        # Compiles, records CUDA graphs if there are any, and replays them: once each.
        started = time.perf_counter()
        for _ in range(_COMPILE_PASSES):
            run_pass(session, Ranges(), min(_COMPILE_PASSES, session.spec.output))
        session.compiled.settled(time.perf_counter() - started)
    for _ in range(session.spec.warmup):
        run_pass(session, Ranges(), min(_WARM_STEPS, session.spec.output))


def measure_bare(session: Session, repeats: int | None = None) -> dict[str, Any]:
    """Time passes with no ranges and no profiler, after the warm-up: the truth about wall time.

    Python's cyclic garbage collector is off during the measured passes, so that no step pays for
    another's garbage; it collects between them.

    Returns:
        the content of bare.json: `prefill_ns` has one entry per pass, `decode_step_ns` one list per
        pass; `cache_bytes` is K and V after a pass's last step; `cpu_use` who used the CPU meanwhile.
    """
    warm_up(session)
    passes: list[PassTimes] = []
    with cpu_use() as use:
        wanted, most = (session.spec.repeats, session.spec.most_repeats) if repeats is None else (repeats, 0)
        began = time.monotonic()
        while len(passes) < wanted or (len(passes) < most and time.monotonic() - began < _SHORT_S):
            with no_collection():
                passes.append(run_pass(session, Ranges()))
    return {**times_record(session, passes), "cpu_use": use}


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
        **({"compile": session.compiled.record()} if session.compiled else {}),
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
            return [b - a for a, b in itertools.pairwise(instants)]

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
        return [round(a.elapsed_time(b) * 1e6) for a, b in itertools.pairwise(events)]

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the driver from the command line; returns the exit status (2: an error that was said)."""
    args = build_parser().parse_args(argv)
    try:
        session = prepare(read_spec_options(args))
        if args.count_plan:
            from kernelroof.profile.counted_pass import measure_counted, read_plan

            times = measure_counted(session, read_plan(Path(args.count_plan)))
        else:
            times = measure_bare(session) if args.mode == "bare" else measure_ranges(session)
        times["mode"] = "counted" if args.count_plan else args.mode
        if args.out is None:
            print(json.dumps(times, indent=2))
        else:
            write_json(Path(args.out), times)
    except KernelroofError as error:
        print(f"kernelroof driver: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("kernelroof driver: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
