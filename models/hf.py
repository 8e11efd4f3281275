"""The real Hugging Face model: built, cached and stepped in one way for the tracer and the driver.

Both sides call `run_prefill`, `run_step` and `choose_token`, so the ops that are traced on the meta
device are those that run on the CPU or the GPU. The names of transformers' arguments changed between
4.5x and 5.x; they are read off signatures here and nowhere else.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
import transformers
from kernelroof.models.compat import build, caches, inputs
from kernelroof.models.compat.values import Values
from kernelroof.models.errors import ConfigError, DriverError, KernelroofError, UsageError

DTYPES = ("float32", "bfloat16", "float16")
ATTENTIONS = ("sdpa", "eager", "flash_attention_2")
CACHES = ("dynamic", "static")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' log lines, progress bars and Python warnings inside the block only."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


@contextmanager
def meta_autocast() -> Iterator[None]:
    """Let models switch autocast off for the meta device inside the block, as rotary embeddings did up to 4.x.

    torch knows no autocast for that device, not even to switch it off. The CPU's stands in for it; it is
    off as well, so no op changes.
    """
    real = torch.autocast

    def autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return real("cpu" if device_type == "meta" else device_type, *args, **kwargs)

    torch.autocast = autocast  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        torch.autocast = real  # type: ignore[misc]


def config_object(config: dict[str, Any]) -> Any:
    """The transformers config object of a `config.json`'s content.

    Raises:
        ConfigError: `model_type` is missing or unknown to the installed transformers, or the values
            contradict each other.
    """
    fields = dict(config)
    model_type = fields.pop("model_type", None)
    if not isinstance(model_type, str):
        raise ConfigError("the config has no model_type", 'Name the family, e.g. "model_type": "llama".')
    fields.pop("auto_map", None)  # code from a repository is never run
    for name in ("return_dict", "output_attentions", "output_hidden_states"):
        fields.pop(name, None)  # what forward returns is chosen here, not by the checkpoint
    try:
        with quiet():
            return transformers.AutoConfig.for_model(model_type, **fields)
    except KeyError as error:
        raise ConfigError(f"the {model_type} config lacks {error}", "Complete the config.") from error
    except Exception as error:
        if "Unrecognized model identifier" in str(error):
            raise ConfigError(
                f"transformers {transformers.__version__} does not know model_type {model_type!r}",
                "Install a newer transformers, or check the field.",
            ) from error
        raise ConfigError(f"the {model_type} config makes no sense: {first_line(error)}") from error


def build_model(
    config: dict[str, Any],
    *,
    dtype: str,
    attn: str,
    device: str,
    weights: str | None = None,
    seed: int = 0,
) -> torch.nn.Module:
    """The causal LM of `config` in eval mode on `device`; on "meta" nothing is allocated.

    Args:
        config: the content of a config.json.
        dtype: name of the parameters' dtype, one of `DTYPES`.
        attn: attention implementation, one of `ATTENTIONS`.
        device: "meta", "cpu", "cuda", "cuda:0".
        weights: folder of a local checkpoint; None means random weights from `seed`.
        seed: seed of the random weights; the caller's random state is left as it was.

    Raises:
        UsageError: a dtype or attention that does not exist.
        ConfigError: see `config_object`.
        DriverError: transformers could not build the model as asked.
    """
    _check_choice("dtype", dtype, DTYPES)
    _check_choice("attention", attn, ATTENTIONS)
    cfg = config_object(config)
    options = {_dtype_argument(): getattr(torch, dtype), "attn_implementation": attn}
    try:
        with quiet(), _seeded(seed, device):
            if weights is not None:
                model, info = transformers.AutoModelForCausalLM.from_pretrained(
                    weights,
                    config=cfg,
                    local_files_only=True,
                    trust_remote_code=False,
                    output_loading_info=True,
                    **options,
                )
                _check_loaded(info, weights)
                model = model.to(device)
            else:
                # On meta integer buffers (positions, tables) keep their values, for those who ask in the forward.
                with Values() if device == "meta" else nullcontext(), torch.device(device):
                    model = build.from_config(cfg, options)
                build.unify(model, getattr(torch, dtype), device)
    except KernelroofError:
        raise
    except Exception as error:
        source = f"from {weights}" if weights is not None else "with random weights"
        raise DriverError(
            f"could not build the {cfg.model_type} model {source} on {device} ({dtype}, {attn}): {first_line(error)}",
            _remedy(error, attn),
        ) from error
    assert isinstance(model, torch.nn.Module)
    return model.eval()


def default_attention(config: dict[str, Any]) -> str:
    """ "sdpa" where the model offers it, as transformers itself chooses, else "eager".

    Raises:
        ConfigError: see `config_object`.
    """
    kind = build.causal_class(config_object(config))
    return "sdpa" if kind is None or getattr(kind, "_supports_sdpa", True) else "eager"


def _check_loaded(info: dict[str, Any], weights: str) -> None:
    """Refuse a checkpoint that is not this model's: transformers fills what is missing with random numbers."""
    for what in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        found = sorted(str(k) for k in info.get(what) or ())
        # Old checkpoints hold rotary frequencies, which are computed today.
        found = [k for k in found if not k.endswith("rotary_emb.inv_freq")]
        if found:
            raise DriverError(
                f"the checkpoint {weights} does not fit the config: {len(found)} {what.replace('_', ' ')}, "
                f"first {found[0]}",
                "Give the checkpoint's own folder as MODEL too.",
            )


def make_cache(kind: str, model: torch.nn.Module, *, max_length: int, batch: int) -> Any:
    """An empty KV cache. "dynamic" grows by concatenation; "static" holds `max_length` tokens from the start.

    Raises:
        UsageError: another kind.
        DriverError: transformers can't make that cache for this model.
    """
    _check_choice("cache", kind, CACHES)
    special = caches.special_cache(model)
    if special is not None:
        if kind != "dynamic":
            raise DriverError(
                f"{type(model).__name__} takes no {kind} cache: it keeps a state of its own, or none",
                "Choose the dynamic cache, which stands for the model's own.",
            )
        return special
    whole: Any = model.config
    config = whole.get_text_config(decoder=True)
    where = next(model.parameters())
    try:
        # The device block puts a static cache's counters where the model is; without it they start on
        # the CPU and the first update copies them over, an op that only some devices would show.
        with torch.device(where.device):
            if kind == "dynamic":
                takes_config = "config" in inspect.signature(transformers.DynamicCache.__init__).parameters
                return transformers.DynamicCache(**({"config": config} if takes_config else {}))
            known = inspect.signature(transformers.StaticCache.__init__).parameters
            offered = {
                "config": config,
                "max_cache_len": max_length,
                "max_batch_size": batch,
                "batch_size": batch,
                "device": where.device,
                "dtype": where.dtype,
            }
            return transformers.StaticCache(**{k: v for k, v in offered.items() if k in known})
    except Exception as error:
        raise DriverError(f"could not make a {kind} cache: {first_line(error)}") from error


def cache_argument(model: torch.nn.Module) -> str:
    """The name of forward's cache argument: "cache" since transformers 5.24, "past_key_values" before."""
    return next((name for name in caches.CACHE_NAMES if name in _forward_parameters(model)), caches.CACHE_NAMES[-1])


def keeps_last(model: torch.nn.Module) -> str | None:
    """The forward argument that limits the head to the last positions, or None if there is none."""
    known = _forward_parameters(model)
    return next((n for n in ("logits_to_keep", "num_logits_to_keep") if n in known), None)


def forward_kwargs(model: torch.nn.Module, cache: Any, *, last_only: bool) -> dict[str, Any]:
    """Keyword arguments of one forward beside input_ids: the cache, and the head's positions."""
    if isinstance(cache, caches.OwnCache):
        kwargs: dict[str, Any] = cache.arguments()
    elif isinstance(cache, caches.NoCache):
        kwargs = {}
    else:
        kwargs = {cache_argument(model): cache, "use_cache": True}
    keep = keeps_last(model)
    if last_only and keep is not None:
        kwargs[keep] = 1
    return kwargs


def cache_tensors(cache: Any) -> list[tuple[str, torch.Tensor]]:
    """Every tensor that holds cached state, with its name ("layers.0.keys"), in layer order.

    Counters of seen tokens are left out. Layers that hold nothing yet contribute nothing.
    """
    if isinstance(cache, caches.NoCache):
        return []
    if isinstance(cache, caches.OwnCache):
        return caches.tensors_of(cache.held, cache.name)
    found: list[tuple[str, torch.Tensor]] = []
    if hasattr(cache, "layers"):
        for i, layer in enumerate(cache.layers):
            for name, value in vars(layer).items():
                found += _tensors_in(f"layers.{i}.{name}", value)
        return found
    pairs = zip(getattr(cache, "key_cache", []), getattr(cache, "value_cache", []), strict=True)
    for i, (keys, values) in enumerate(pairs):
        found += [*_tensors_in(f"layers.{i}.keys", keys), *_tensors_in(f"layers.{i}.values", values)]
    return found


def choose_token(logits: torch.Tensor) -> torch.Tensor:
    """Greedy choice at the last position: [batch, positions, vocabulary] -> [batch, 1] int64."""
    return logits[:, -1:].argmax(dim=-1)


def run_prefill(model: torch.nn.Module, cache: Any, input_ids: torch.Tensor, *, last_only: bool) -> torch.Tensor:
    """Logits [batch, 1 or prompt, vocabulary] of the prompt [batch, prompt]; fills the empty cache.

    With `last_only` the head runs on the last position alone, where the model offers it.
    """
    return _forward(model, cache, input_ids, last_only=last_only)


def run_step(model: torch.nn.Module, cache: Any, token: torch.Tensor) -> torch.Tensor:
    """Logits [batch, 1, vocabulary] of one decode step on `token` [batch, 1]; the cache grows by one."""
    return _forward(model, cache, token, last_only=True)


def _forward(model: torch.nn.Module, cache: Any, input_ids: torch.Tensor, *, last_only: bool) -> torch.Tensor:
    kwargs = forward_kwargs(model, cache, last_only=last_only)
    # no_grad, not inference_mode: in inference mode a dispatch mode is handed linear and matmul whole.
    with torch.no_grad():
        if "cache_position" in _forward_parameters(model):
            # Before 5.x a static cache is asked for its length by looking at its values, which the
            # meta device has not; so the position is kept on the cache and handed over.
            seen = getattr(cache, "kernelroof_tokens", 0)
            cache.kernelroof_tokens = seen + input_ids.shape[1]
            kwargs["cache_position"] = torch.arange(seen, seen + input_ids.shape[1], device=input_ids.device)
        if isinstance(cache, caches.NoCache):
            input_ids = cache.extend(input_ids)
        elif inputs.cuts_tokens_itself(model):
            input_ids = inputs.all_tokens(cache, input_ids)
        result = model(input_ids=input_ids, **kwargs)
        if isinstance(cache, caches.OwnCache):
            cache.keep(result)
        logits = result.logits
    assert isinstance(logits, torch.Tensor)
    return logits


def _forward_parameters(model: torch.nn.Module) -> Any:
    return _parameters_of(cast(Hashable, type(model)))


@functools.cache
def _parameters_of(kind: Hashable) -> Any:
    # Cached: reading a signature takes as long as a small op, and every decode step asks.
    return inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]


def _tensors_in(name: str, value: Any) -> list[tuple[str, torch.Tensor]]:
    """Tensors of two or more dimensions in an attribute of a cache layer (a tensor, list or dict of them)."""
    if isinstance(value, torch.Tensor):
        return [(name, value)] if value.dim() > 1 else []
    items: Any = ()
    if isinstance(value, (list, tuple)):
        items = enumerate(value)
    elif isinstance(value, dict):
        items = value.items()
    return [t for key, item in items for t in _tensors_in(f"{name}.{key}", item)]


def _dtype_argument() -> str:
    major, minor = (int(n) for n in transformers.__version__.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


@contextmanager
def _seeded(seed: int, device: str) -> Iterator[None]:
    """Random numbers from `seed` inside the block; the state before is restored."""
    on_gpu = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=on_gpu, device_type="cuda"):
        torch.manual_seed(seed)
        yield


def _check_choice(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"unknown {what} {value!r}", f"Choose one of {', '.join(known)}.")


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        lines[0] = f"{lines[0]} {lines[1]}"
    return lines[0].rstrip(".") if lines else type(error).__name__


def _remedy(error: Exception, attn: str) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "Choose a smaller model or dtype, or a GPU with more memory."
    if attn == "flash_attention_2" and "flash" in str(error).lower():
        return "Install the flash-attn package, or use --attn sdpa."
    if attn == "sdpa" and "scaled_dot_product_attention" in str(error):
        return "Use --attn eager."
    return ""
