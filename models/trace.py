"""The traced estimate: the real Hugging Face model run on the meta device, every op with its FLOPs and bytes.

Nothing is allocated and no weights are needed. The model is run as the driver runs it, so the ops are those
that a profiler records, in the same order and under the same module paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from kernelroof.models import dispatch, hf, linear
from kernelroof.models.compat.inputs import input_rows
from kernelroof.models.compat.values import Values
from kernelroof.models.errors import DriverError, KernelroofError, UsageError
from kernelroof.models.ops import ModuleIO, OpRow, TracedOp, summarise_ops

__all__ = ["ModuleIO", "OpRow", "Trace", "TracedOp", "summarise_ops", "trace"]

_ALL_STEPS = 8
"""Up to so many decode steps are traced one by one; of more, four, and the others are interpolated."""


class Trace(NamedTuple):
    """All ops of a prefill and of the decode steps after it, with what they were traced for."""

    ops: tuple[TracedOp, ...]
    module_io: Mapping[tuple[str, int, str], ModuleIO]
    """Compulsory bytes by (phase, step, module)."""
    parameter_bytes: int
    """All parameters; tied ones once."""
    parameters: int
    cache_bytes: int
    """The KV cache's tensors after the last decode step, whichever steps were traced."""
    cache_kind: str
    attn: str
    head: str
    """Positions that the head ran on in prefill: "last" or "all"."""
    idle: Mapping[str, int]
    """Parameters that no traced op touched, with their sizes: towers beside the language model, cross-attention."""


class _Job(NamedTuple):
    """A model on the meta device and the workload to run on it."""

    model: torch.nn.Module
    weight_ids: frozenset[int]
    cache_kind: str
    last_only: bool
    batch: int
    prompt: int
    output: int


class _Forward(NamedTuple):
    """What one forward, and the choice of a token after it, recorded."""

    ops: list[TracedOp]
    io: list[ModuleIO]
    tokens: int
    """Tokens in the cache after it."""
    cache_bytes: int | None
    """Size of the cache's tensors after it; None if it was interpolated."""
    touched: frozenset[int] = frozenset()
    """Ids of the storages that its ops and modules handled; empty if it was interpolated."""


def trace(
    config: dict[str, Any],
    *,
    batch: int,
    prompt: int,
    output: int,
    dtype: str,
    attn: str = "sdpa",
    cache: str = "dynamic",
    head: str = "last",
    steps: Sequence[int] | None = None,
) -> Trace:
    """Trace a prefill of `prompt` tokens and `output` decode steps of `batch` sequences.

    Args:
        config: the content of a config.json.
        dtype: of weights, activations and cache, see `hf.DTYPES`.
        attn: "flash_attention_2" is traced as "sdpa": one op of the same FLOPs and bytes.
        cache: "dynamic" or "static", see `hf.make_cache`; a static one holds prompt + output tokens.
        head: positions that the head runs on in prefill: "last", where the model offers it, or "all".
        steps: the decode steps to return, from 0; None means all.

    Of many steps only four are traced. If every number of every op proves to be a straight line over
    them, the steps between are computed from it, exactly; if not, all are traced.

    Raises:
        UsageError: a size, step, dtype or choice that makes no sense.
        ConfigError: transformers can't read the config.
        DriverError: the model can't be built, or can't run on the meta device.
    """
    wanted = _check(batch, prompt, output, head, steps)
    traced_attn = "sdpa" if attn == "flash_attention_2" else attn
    model = hf.build_model(config, dtype=dtype, attn=traced_attn, device="meta")
    last_only = head == "last" and hf.keeps_last(model) is not None
    job = _Job(model, dispatch.storage_ids(model), cache, last_only, batch, prompt, output)
    try:
        with hf.quiet(), hf.meta_autocast(), Values():
            prefill, decode = _all_forwards(job, wanted)
            forwards = [prefill, *decode]
            cache_bytes = _final_cache_bytes(job, forwards[-1])
    except KernelroofError:
        raise
    except Exception as error:
        raise DriverError(
            f"the {config['model_type']} model can't be traced on the meta device: {hf.first_line(error)}",
            "Its closed-form estimate, if there is one, needs no tracing.",
        ) from error
    parameters = list(model.parameters())
    touched = frozenset[int]().union(*(f.touched for f in forwards))
    return Trace(
        ops=tuple(op for f in forwards for op in f.ops),
        module_io={(io.phase, io.step, io.module): io for f in forwards for io in f.io},
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        parameters=sum(p.numel() for p in parameters),
        cache_bytes=cache_bytes,
        cache_kind=cache,
        attn=attn,
        head="last" if last_only else "all",
        idle={n: p.numel() for n, p in model.named_parameters() if p.untyped_storage()._cdata not in touched},
    )


def _check(batch: int, prompt: int, output: int, head: str, steps: Sequence[int] | None) -> list[int]:
    for name, value, least in (("batch", batch, 1), ("prompt", prompt, 1), ("output", output, 0)):
        if value < least:
            raise UsageError(f"{name} is {value}", f"Give at least {least}.")
    if head not in ("last", "all"):
        raise UsageError(f"unknown head {head!r}", "Choose last or all.")
    wanted = sorted(set(range(output) if steps is None else steps))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < output:
        raise UsageError(f"steps {wanted} are not all in 0..{output - 1}", "Ask for steps within the output.")
    return wanted


def _all_forwards(job: _Job, wanted: list[int]) -> tuple[_Forward, list[_Forward]]:
    if wanted and wanted[-1] >= _ALL_STEPS:
        decode = _interpolated(job, wanted)
        if decode is not None:
            return _walk(job, [])[0], decode
    return _walk(job, wanted)


def _walk(job: _Job, wanted: list[int]) -> tuple[_Forward, list[_Forward]]:
    """Prefill and decode one after the other, as the driver does, recording the prefill and these steps."""
    cache = _new_cache(job)
    prefill, token = _recorded(job, cache, _tokens(job, job.prompt), "prefill", 0)
    decode = []
    recorded = set(wanted)
    for step in range(wanted[-1] + 1 if wanted else 0):
        if step in recorded:
            forward, token = _recorded(job, cache, token, "decode", step)
            decode.append(forward)
        else:
            with dispatch.unrecorded():
                token = hf.choose_token(hf.run_step(job.model, cache, token))
    return prefill, decode


def _interpolated(job: _Job, wanted: list[int]) -> list[_Forward] | None:
    """The wanted steps from at most four traced ones, or None if the numbers are no straight lines."""
    first, last = wanted[0], wanted[-1]
    between = wanted[1:-1]
    middle = sorted({between[len(between) // 3], between[2 * len(between) // 3]}) if between else []
    probes = {step: _probe(job, step) for step in sorted({first, *middle, last})}
    if len(probes) == len(wanted):
        return [probes[step] for step in wanted]
    checks = [(step - first, probes[step]) for step in middle]
    ops = linear.fit(probes[first].ops, probes[last].ops, last - first, [(x, f.ops) for x, f in checks])
    io = linear.fit(probes[first].io, probes[last].io, last - first, [(x, f.io) for x, f in checks])
    if ops is None or io is None:
        return None
    return [
        _Forward(
            [TracedOp._make(r) for r in linear.at(ops, step - first)],
            [ModuleIO._make(r) for r in linear.at(io, step - first)],
            job.prompt + step + 1,
            probes[step].cache_bytes if step in probes else None,
        )
        for step in wanted
    ]


def _probe(job: _Job, step: int) -> _Forward:
    """One decode step by itself, on a cache that one long prefill has filled up to it."""
    cache = _new_cache(job)
    with dispatch.unrecorded():
        logits = hf.run_prefill(job.model, cache, _tokens(job, job.prompt + step), last_only=True)
    return _recorded(job, cache, hf.choose_token(logits), "decode", step)[0]


def _recorded(job: _Job, cache: Any, input_ids: torch.Tensor, phase: str, step: int) -> tuple[_Forward, torch.Tensor]:
    with dispatch.recording(job.model, cache, job.weight_ids) as recorder:
        if phase == "prefill":
            logits = hf.run_prefill(job.model, cache, input_ids, last_only=job.last_only)
        else:
            logits = hf.run_step(job.model, cache, input_ids)
        with dispatch.sampling(recorder):
            token = hf.choose_token(logits)
    tokens = job.prompt + (step + 1 if phase == "decode" else 0)
    ops, io, touched = recorder.ops(phase, step), recorder.module_io(phase, step), frozenset(recorder.storages)
    return _Forward(ops, io, tokens, _cache_bytes(cache), touched), token


def _final_cache_bytes(job: _Job, last: _Forward) -> int:
    """Bytes of the cache after all steps, from a prefill of as many tokens if the last step was not traced."""
    if last.tokens == job.prompt + job.output and last.cache_bytes is not None:
        return last.cache_bytes
    cache = _new_cache(job)
    with dispatch.unrecorded():
        hf.run_prefill(job.model, cache, _tokens(job, job.prompt + job.output), last_only=True)
    return _cache_bytes(cache)


def _cache_bytes(cache: Any) -> int:
    return sum(t.numel() * t.element_size() for _name, t in hf.cache_tensors(cache))


def _new_cache(job: _Job) -> Any:
    return hf.make_cache(job.cache_kind, job.model, max_length=job.prompt + job.output, batch=job.batch)


def _tokens(job: _Job, length: int) -> torch.Tensor:
    return torch.zeros((input_rows(job.model, job.batch), length), dtype=torch.int64, device="meta")
