"""What is asked of a model: sizes, number formats and the conventions the figures follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernelroof.models.dtypes import RUN_DTYPES, canonical
from kernelroof.models.errors import ConfigError, UsageError
from kernelroof.models.fields import MOST, shortened
from kernelroof.models.format_words import cache_words, compute_words, weight_words
from kernelroof.models.formats import PLAIN, cache_format, weight_format
from kernelroof.models.precision import Precision, precision
from kernelroof.models.spec import ModelSpec

MASKS = ("auto", "causal", "full")
HEADS = ("last", "all")
EMBEDDINGS = ("gathered", "streamed")
CACHES = ("dynamic", "static", "ideal")
ATTENTIONS = ("sdpa", "eager", "flash_attention_2")


class Workload(NamedTuple):
    """One prefill of `prompt` tokens and `output` decode steps, for `batch` sequences.

    The cache ends at prompt + output tokens. The conventions default to what Hugging Face executes
    in the driver:

    mask: causal counts S(S+1)/2 query-key pairs in prefill, full counts S*S; auto is what the
        attention and cache in use really compute (see `effective_mask`).
    head: logits of the last position only, or of all.
    embedding: only the gathered rows of the table are read, or the whole table is streamed.
    cache: dynamic concatenates (two more passes over the KV per step), static attends over its
        whole length, ideal appends in place.
    """

    batch: int = 1
    prompt: int = 1024
    output: int = 32
    dtype: str = "bfloat16"
    weights_dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"
    attn: str = "sdpa"
    cache: str = "dynamic"
    mask: str = "auto"
    head: str = "last"
    embedding: str = "gathered"
    overhead: float = 0.10


def make_workload(
    spec: ModelSpec,
    *,
    batch: int = 1,
    prompt: int = 1024,
    output: int = 32,
    dtype: str | None = None,
    weights_dtype: str | None = None,
    kv_dtype: str | None = None,
    attn: str = "sdpa",
    cache: str = "dynamic",
    mask: str = "auto",
    head: str = "last",
    embedding: str = "gathered",
    overhead: float = 0.10,
) -> Workload:
    """Return a checked workload; number formats default to the model's own, a quantised checkpoint's included.

    Raises:
        UsageError: a size below 1, an unknown format or convention, or more tokens than positions.
        ConfigError: a checkpoint quantised in a way that is not read, without `weights_dtype`.
    """
    check_sizes(batch, prompt, output, spec.max_positions, spec.name)
    if not 0 <= overhead <= 10:
        raise UsageError(f"--overhead is {overhead}", "Give a share such as 0.1 for 10 %.")
    for option, value, allowed in (
        ("--attn", attn, ATTENTIONS),
        ("--cache", cache, CACHES),
        ("--mask", mask, MASKS),
        ("--head", head, HEADS),
        ("--embedding", embedding, EMBEDDINGS),
    ):
        if value not in allowed:
            raise UsageError(f"{option} {value!r} is not one of {', '.join(allowed)}", "Choose one of them.")
    run = spec.dtype if dtype is None else canonical(dtype, "--dtype", RUN_DTYPES)
    return Workload(
        batch=batch,
        prompt=prompt,
        output=output,
        dtype=run,
        weights_dtype=_own_weights(spec, run) if weights_dtype is None else weight_format(weights_dtype).name,
        kv_dtype=_own_cache(spec, run) if kv_dtype is None else cache_format(kv_dtype).name,
        attn=attn,
        cache=cache,
        mask=mask,
        head=head,
        embedding=embedding,
        overhead=overhead,
    )


def check_size(option: str, size: int) -> None:
    """Refuse a number of tokens or sequences that makes no sense.

    Raises:
        UsageError: below 1, or absurdly large.
    """
    if not 1 <= size <= MOST:
        raise UsageError(f"{option} is {shortened(size)}", f"Give a whole number from 1 to {MOST:,}.")


def check_sizes(batch: int, prompt: int, output: int, max_positions: int | None, name: str) -> None:
    """Refuse sizes of a workload that make no sense, or that the model `name` has too few positions for.

    Raises:
        UsageError: naming the option.
    """
    for option, size in (("--batch", batch), ("--prompt", prompt), ("--output", output)):
        check_size(option, size)
    if max_positions is not None and prompt + output > max_positions:
        raise UsageError(
            f"--prompt {prompt} + --output {output} = {prompt + output} tokens, but {name} has "
            f"max_position_embeddings {max_positions}",
            "Ask for fewer tokens.",
        )


def precision_of(spec: ModelSpec, workload: Workload) -> Precision:
    """The formats that a workload holds the model in.

    A quantised checkpoint says which matrices stay as they were, also where another format is asked for.
    """
    run, checkpoint = workload.dtype, spec.quantised
    own = checkpoint is not None and checkpoint.linear is not None and workload.weights_dtype == checkpoint.linear.name
    asked = precision(run, None if own else workload.weights_dtype, workload.kv_dtype)
    if checkpoint is None or checkpoint.linear is None or asked.linear.average:
        return asked
    rules, linear = checkpoint.rules, checkpoint.linear
    if not own:
        linear = asked.linear
        rules = tuple((modules, linear) for modules, _ in rules) if not checkpoint.everywhere else ()
    return asked._replace(
        linear=linear if checkpoint.everywhere else PLAIN[run],
        excluded=checkpoint.excluded,
        rules=rules,
        head=linear if checkpoint.head else None,
    )


def _own_weights(spec: ModelSpec, run: str) -> str:
    if spec.quantised is None:
        return run
    if spec.quantised.linear is None:
        raise ConfigError(
            f"{spec.name}: the config has a quantization_config that is not read here: {spec.quantised.why}",
            "Say what to count with --weights-dtype (fp8, w8a8, int4-g128, nf4, bpw:4.85, or a 16-bit format).",
        )
    return spec.quantised.linear.name


def _own_cache(spec: ModelSpec, run: str) -> str:
    own = spec.quantised.kv if spec.quantised is not None else None
    return run if own is None else own.name


def effective_mask(workload: Workload) -> str:
    """The mask that `auto` stands for.

    Hugging Face's sdpa and flash attention skip the upper triangle in prefill (`is_causal=True`, in
    transformers 5 over a static cache too); eager attention computes it and masks it away.
    """
    if workload.mask != "auto":
        return workload.mask
    return "full" if workload.attn == "eager" else "causal"


def conventions(
    spec: ModelSpec,
    workload: Workload,
    classes: tuple[tuple[str, int], ...] = (),
    flop_s: float | None = None,
    peaks: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """The conventions behind the figures, in words, for print and JSON.

    classes: FLOPs by class of quantised products (`Coefficients.quantised`); flop_s and peaks: the
    device's dense peaks in the run's format and by class, where there is a device.
    """
    held = precision_of(spec, workload)
    mask = effective_mask(workload)
    pairs = {
        "causal": "causal: S(S+1)/2 query-key pairs in prefill",
        "full": "full: all query-key pairs in prefill",
    }[mask]
    cache = {
        "dynamic": "dynamic: concatenated; each decode step also re-reads and re-writes all K and V (cache_copy_bytes)",
        "static": "static: decode (and eager prefill) attends over its whole length, prompt + output; zero-filled once",
        "ideal": "ideal: new K and V appended in place",
    }[workload.cache]
    words = {
        "mask": pairs,
        "head": "logits of the last position only" if workload.head == "last" else "logits of all positions",
        "embedding": "table not streamed (rows are gathered)" if workload.embedding == "gathered" else "table streamed",
        "cache": cache,
        "attention": workload.attn,
        "bytes": "weights streamed once + KV read once; KV written, activations and cache copies are separate fields",
        "decode": "context of every step is prompt + output"
        if workload.cache == "static"
        else "context of decode step k (from 0) is prompt + k + 1",
        "weights": weight_words(held, workload.weights_dtype, spec.quantised),
        "kv": cache_words(held.kv, workload.dtype),
        "compute": compute_words(held, classes, flop_s, peaks or {}),
        "flops": "matrix products and attention; FMA = 2 FLOP",
        "units": "GB = 10^9 B",
        "overhead": f"{100 * workload.overhead:g} % of weights, KV and activations (allocator, context, buffers)",
    }
    if any(g.state for g in spec.groups):
        words["activations"] = (
            "recurrences as transformers' own PyTorch code runs them; fused kernels (fla, mamba_ssm) hold far less"
        )
    return words
