"""One architecture: its small default config traced, and the closed form held beside it."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.architectures.catalog import Architecture
from kernelroof.models.architectures.completions import complete
from kernelroof.models.architectures.shrink import shrink
from kernelroof.models.errors import KernelroofError

if TYPE_CHECKING:
    from kernelroof.models.ops import TracedOp
    from kernelroof.models.trace import Trace

BATCH, PROMPT, OUTPUT, DTYPE = 1, 128, 1, "bfloat16"
FIGURES = ("parameters", "weight bytes", "cache bytes", "prefill FLOPs", "step FLOPs")
_EXACT = ("matmul", "attention")


class Row(NamedTuple):
    """What is known of one architecture. Texts that say why are empty where there is nothing to say."""

    model_type: str
    class_name: str
    since: int | None
    traced: bool
    why_not_traced: str
    closed_form: bool
    why_no_closed_form: str
    figures: tuple[tuple[int, int], ...]
    """Traced and closed figure for each of `FIGURES`; empty without both."""
    scan_flops: int
    """Products of activations outside softmax attention in prefill and step, left out of the figures."""
    differences: str
    notes: str
    seconds: float

    @property
    def equal(self) -> bool:
        """Whether there are figures and all of them agree."""
        return bool(self.figures) and all(traced == closed for traced, closed in self.figures)


class Idle(NamedTuple):
    """Parameters by part of the model that no op touches, and the embedding table's if the head shares it."""

    parts: dict[str, int]
    tied_table: int


def failed(architecture: Architecture, why: str, seconds: float) -> Row:
    """The row of an architecture of which nothing came back."""
    return Row(*architecture, False, why, False, "", (), 0, "", "", seconds)


def survey(architecture: Architecture) -> Row:
    """Trace an architecture and compare; whatever stands in the way is said in the row."""
    start = time.monotonic()
    try:
        config, completed = complete(architecture.model_type)
    except KernelroofError as error:
        return failed(architecture, _short(error), time.monotonic() - start)
    traced, config, notes, why = _traced(config, completed)
    cost, why_closed = _closed(config, architecture.model_type, traced)
    figures: tuple[tuple[int, int], ...] = ()
    differences = ""
    scans = 0
    idle = Idle({}, 0)
    if traced is not None:
        scans = sum(op.flops for op in traced.ops if op.flops_kind == "scan")
        idle = idle_parameters(config, traced)
        if idle.parts:
            parts = ", ".join(f"{name} {count:,}" for name, count in idle.parts.items())
            notes.append(f"parameters that do not take part: {parts}")
        if traced.head == "all":
            notes.append("head on all positions: forward has no argument to limit it")
    if traced is not None and cost is not None:
        recurrent = cost.state_bytes_per_sequence > 0
        figures = (
            (traced.parameters, int(cost.parameters)),
            (traced.parameter_bytes, int(cost.weight_bytes)),
            (traced.cache_bytes, int(cost.kv_bytes)),
            (_flops(traced, "prefill", recurrent), int(cost.prefill.flops)),
            (_flops(traced, "decode", recurrent), int(cost.first_step.flops)),
        )
        differences = "; ".join(
            _difference(i, figures, traced, idle, recurrent) for i in range(len(FIGURES)) if _differs(figures[i])
        )
    return Row(
        *architecture, traced is not None, why, cost is not None, why_closed, figures, scans, differences,
        "; ".join(notes), time.monotonic() - start,
    )  # fmt: skip


def _traced(config: dict[str, Any], note: str) -> tuple[Trace | None, dict[str, Any], list[str], str]:
    """The trace of the config made small, or as it is where it can't be; which, and what is to be said of it."""
    from kernelroof.models import hf
    from kernelroof.models.trace import trace

    notes = [note] if note else []
    why = ""
    small = shrink(config)
    for candidate in (small, config) if small != config else (config,):
        try:
            attn = hf.default_attention(candidate)
            result = trace(candidate, batch=BATCH, prompt=PROMPT, output=OUTPUT, dtype=DTYPE, attn=attn)
        except KernelroofError as error:
            why = _short(error)
            continue
        if attn != "sdpa":
            notes.append(f"{attn} attention: it has no SDPA path")
        if candidate is config and small != config:
            notes.append("not made small: it does not run with fewer layers")
        return result, candidate, notes, ""
    return None, config, notes, why


def _closed(config: Mapping[str, Any], name: str, traced: Trace | None) -> tuple[Any, str]:
    """The closed form of the same workload, or None and why there is none."""
    from kernelroof.models.estimate import costs
    from kernelroof.models.spec import read_spec
    from kernelroof.models.workload import make_workload

    try:
        spec = read_spec(config, name)
        conventions: Any = {} if traced is None else {"attn": traced.attn, "head": traced.head}
        workload = make_workload(spec, batch=BATCH, prompt=PROMPT, output=OUTPUT, dtype=DTYPE, **conventions)
        return costs(spec, workload), ""
    except KernelroofError as error:
        return None, error.what.removeprefix(f"{name}: ")


def compared(ops: Iterable[TracedOp], recurrent: bool) -> Iterator[TracedOp]:
    """The ops whose FLOPs the closed form's products are.

    A causal convolution belongs to the recurrence that it feeds, as scans do; where there is none, what the trace
    calls a scan (an indexer's scores, streams that are mixed) is a product between activations.
    """
    kinds = (*_EXACT, *(() if recurrent else ("scan",)))
    return (op for op in ops if op.flops_kind in kinds and "convolution" not in op.op)


def _flops(traced: Trace, phase: str, recurrent: bool) -> int:
    return sum(op.flops for op in compared(traced.ops, recurrent) if op.phase == phase)


def _differs(figure: tuple[int, int]) -> bool:
    return figure[0] != figure[1]


def _difference(index: int, figures: tuple[tuple[int, int], ...], traced: Trace, idle: Idle, recurrent: bool) -> str:
    """One disagreement in words: by how much, and what alone would make up for it, if anything does."""
    ours, closed = figures[index]
    said = f"{FIGURES[index]} traced {ours:,}, closed {closed:,}"
    if index == 1 and _differs(figures[0]) and (ours - closed) == 2 * (figures[0][0] - figures[0][1]):
        return f"{said} (the parameters' difference)"
    if index == 0 and ours - closed == sum(idle.parts.values()):
        return f"{said} (what does not take part)"
    if index == 0 and ours - closed == sum(idle.parts.values()) - idle.tied_table:
        return f"{said} (what does not take part, and the closed form takes a tied table for two)"
    if index < 3:
        return said
    cause = _cause(traced, "prefill" if index == 3 else "decode", ours - closed, recurrent)
    return f"{said} ({cause})" if cause else said


def idle_parameters(config: Mapping[str, Any], traced: Trace) -> Idle:
    """What of a model no op touched, by the highest module of which nothing was."""
    from kernelroof.models import hf

    model: Any = hf.build_model(dict(config), dtype=DTYPE, attn=traced.attn, device="meta")
    busy = {above for name, _p in model.named_parameters() if name not in traced.idle for above in _prefixes(name)}
    parts: Counter[str] = Counter()
    for name, size in traced.idle.items():
        highest = next((above for above in _prefixes(name) if above not in busy), name)
        parts[re.sub(r"\.\d+(?=\.|$)", ".*", highest)] += size
    head = model.get_output_embeddings()
    table = getattr(model.get_input_embeddings(), "weight", None)
    tied = table is not None and getattr(head, "weight", None) is table
    return Idle(dict(parts), int(head.weight.numel()) if tied else 0)


def _prefixes(name: str) -> list[str]:
    """The modules above a parameter, the highest first, and itself."""
    pieces = name.split(".")
    return [".".join(pieces[: n + 1]) for n in range(len(pieces))]


def _cause(traced: Trace, phase: str, missing: int, recurrent: bool) -> str:
    """Modules whose products, alone or two together, are just what the closed form leaves out."""
    groups: Counter[str] = Counter()
    for op in compared(traced.ops, recurrent):
        if op.phase == phase and op.flops:
            groups[re.sub(r"\.\d+(?=\.|$)", ".*", op.module)] += op.flops
    for count in (1, 2):
        for some in itertools.combinations(groups, count):
            if sum(groups[name] for name in some) == missing:
                return f"the closed form leaves out {' and '.join(some)}"
    return ""


def _short(error: KernelroofError) -> str:
    """What happened, in one line that fits a table."""
    line = " ".join(error.what.split())
    return line if len(line) <= 200 else f"{line[:197]}…"
