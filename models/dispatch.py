"""Runs a forward with everything recorded: a mode for the ops, one for attention, hooks for the modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from kernelroof.models import flops, traffic
from kernelroof.models.compat.values import list_as_index, made_of_numbers
from kernelroof.models.kinds import ROOT_MODULE, SAMPLE_MODULE
from kernelroof.models.recorder import Recorder
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

SDPA = "aten::scaled_dot_product_attention"
Tensor = torch.Tensor

# Tensors made from Python numbers: a dispatch mode is shown these ops; without one torch makes the tensor
# directly, and a profiler sees nothing.
_ONLY_UNDER_A_MODE = frozenset({"aten::scalar_tensor", "aten::lift_fresh"})


@contextmanager
def recording(model: torch.nn.Module, cache: Any, weight_ids: frozenset[int]) -> Iterator[Recorder]:
    """Record everything that runs in the block, with the module of `model` it runs in."""
    recorder = Recorder(weight_ids)
    recorder.note_cache(cache)
    hooks = [hook for name, module in model.named_modules() for hook in _hooks(recorder, name, module)]
    try:
        with _watched(recorder, cache), _Attention(recorder), _Ops(recorder):
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()
    recorder.note_cache(cache)


@contextmanager
def sampling(recorder: Recorder) -> Iterator[None]:
    """What runs in the block is the driver's choice of a token."""
    recorder.role = "sample"
    recorder.enter(SAMPLE_MODULE)
    result: list[Tensor] = []
    try:
        yield
    finally:
        recorder.leave(result)
        recorder.role = ""


def unrecorded() -> AbstractContextManager[Any]:
    """Run a forward in the block with attention taken whole, as in a recording, but keep nothing."""
    return _Attention(None)


def storage_ids(model: torch.nn.Module) -> frozenset[int]:
    """Ids of the storages of all parameters and buffers."""
    tensors = (*model.parameters(), *model.buffers())
    return frozenset(t.untyped_storage()._cdata for t in tensors)


def _hooks(recorder: Recorder, name: str, module: torch.nn.Module) -> tuple[Any, Any]:
    path = name or ROOT_MODULE
    before = module.register_forward_pre_hook(lambda *_: recorder.enter(path))
    after = module.register_forward_hook(lambda _module, _args, result: recorder.leave(result))
    return before, after


@contextmanager
def _watched(recorder: Recorder, cache: Any) -> Iterator[None]:
    """Mark what the cache's update methods run, as long as the block lasts."""
    names = [n for n in dir(cache) if n.startswith("update") and callable(getattr(cache, n))]
    for name in names:
        setattr(cache, name, _marked(recorder, cache, getattr(cache, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(cache, name)


def _marked(recorder: Recorder, cache: Any, update: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        recorder.note_update(args)
        recorder.role = "cache"
        try:
            return update(*args, **kwargs)
        finally:
            recorder.role = ""
            recorder.note_cache(cache)

    return run


def _record_attention(
    recorder: Recorder,
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_: Any,
) -> None:
    """The arguments after `out` are those of torch.nn.functional.scaled_dot_product_attention."""
    recorder.record(
        SDPA,
        (query, key, value, attn_mask),
        out,
        flops.attention(query, key, value, is_causal=is_causal),
        traffic.attention(query, key, value, attn_mask, out, is_causal=is_causal),
    )


def _attend(
    function: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """Attention's result; on meta in the memory layout that the fused kernels give it: the query's.

    The meta device would compute it unfused, heads first in memory, and the caller's transpose back, which
    is free after a fused kernel, would seem to be a copy. Unequal head sizes do run unfused on a CPU.
    """
    fused = query.dim() == 4 and query.shape[-1] == key.shape[-1] == value.shape[-1]
    if query.is_meta and fused:
        return torch.empty_like(query)
    return function(query, key, value, *args, **kwargs)


def _is_look(args: Any, out: Any) -> bool:
    """Whether an op takes values off the meta device, for Python to look at: where a model really runs, no copy."""
    return (
        isinstance(out, Tensor) and not out.is_meta and bool(args) and isinstance(args[0], Tensor) and args[0].is_meta
    )


class _Ops(TorchDispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name
        if not self.recorder.paused and name not in _ONLY_UNDER_A_MODE and not _is_look(args, out):
            self.recorder.record(
                name,
                (args, kwargs),
                out,
                flops.count(func, args, kwargs, out),
                traffic.traffic(func, args, kwargs, out),
            )
        return out


class _Attention(TorchFunctionMode):
    """Takes attention whole, before the meta device would take it apart into products and a softmax."""

    def __init__(self, recorder: Recorder | None) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor:
            return made_of_numbers(*args, **kwargs)
        if func is Tensor.__getitem__:
            return func(args[0], list_as_index(args[1], args[0].device))
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        if self.recorder is None:
            return _attend(func, *args, **kwargs)
        self.recorder.paused = True
        try:
            out = _attend(func, *args, **kwargs)
        finally:
            self.recorder.paused = False
        _record_attention(self.recorder, out, *args, **kwargs)
        return out
