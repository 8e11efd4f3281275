"""Bytes that every op must read and write, from the tensors it is given.

Every input is read once and every output written once, at the size of the elements that exist: an
expanded dimension (stride 0) counts once, whatever its length. Views and shape-only ops move nothing.
Ops that touch a part of an operand (gathers, in-place stores) have a rule of their own in the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

Tensor = torch.Tensor


class Access(NamedTuple):
    """`size_bytes` of `tensor` read, or written, by one op."""

    tensor: Tensor
    size_bytes: int


class Traffic(NamedTuple):
    """What one op reads and writes. An operand updated in place appears in both."""

    reads: list[Access]
    writes: list[Access]


NOTHING = Traffic([], [])
Rule = Callable[..., Traffic]
"""Called as the op is, with its result as keyword `out`."""

_RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the byte rule of these ops ("aten::embedding")."""

    def register(function: Rule) -> Rule:
        for op in ops:
            _RULES[op] = function
        return function

    return register


def traffic(func: torch._ops.OpOverload, args: Any, kwargs: Any, out: Any) -> Traffic:
    """The bytes of one dispatched op: its own rule, or inputs once and outputs once."""
    name = func._schema.name
    if func.is_view or (isinstance(out, Tensor) and out.numel() == 0):
        return NOTHING  # an expert without tokens makes a product of no rows
    if name in _RULES:
        return _RULES[name](*args, **kwargs, out=out)
    if name.endswith("_like") or name.startswith("aten::new_"):
        return Traffic([], whole(tensors_in(out)))  # the operand gives its shape only
    return _generic(func, args, kwargs, out)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor, *, is_causal: bool = False) -> Traffic:
    """Attention as one op: q, k, v with their own number of heads, and the mask, once; the result once.

    A causal mask aligned top left hides every key beyond the last query; those are not read.
    """
    if is_causal and k.shape[-2] > q.shape[-2]:
        k, v = k[..., : q.shape[-2], :], v[..., : q.shape[-2], :]
    return Traffic(whole([t for t in (q, k, v, mask) if t is not None]), whole([out]))


def size_bytes(tensor: Tensor) -> int:
    """Bytes of the distinct elements of a tensor: dimensions of stride 0 count once."""
    if tensor.numel() == 0:
        return 0
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= int(size) if stride else 1
    return elements * tensor.element_size()


def whole(tensors: Iterable[Tensor]) -> list[Access]:
    """Each distinct tensor once, all its elements."""
    found: dict[Any, Access] = {}
    for t in tensors:
        key = (t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride())
        found.setdefault(key, Access(t, size_bytes(t)))
    return list(found.values())


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in an argument or result: a tensor, or lists, tuples and dicts of them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item)]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_in(item)]
    return []


def _generic(func: torch._ops.OpOverload, args: Any, kwargs: Any, out: Any) -> Traffic:
    reads: list[Tensor] = []
    writes: list[Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        if not argument.is_out:
            reads += tensors_in(value)
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes += tensors_in(value)
    results = out if isinstance(out, (tuple, list)) else (out,)
    for result, declared in zip(results, func._schema.returns, strict=False):
        if declared.alias_info is None:
            writes += tensors_in(result)
    return Traffic(whole(reads), whole(writes))


@rule(
    "aten::_unsafe_view",
    "aten::_reshape_alias",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::lift",
    "aten::sym_size",
    "aten::is_same_size",
)
def _nothing(*_: Any, **__: Any) -> Traffic:
    return NOTHING


@rule("aten::embedding")
def _embedding(weight: Tensor, indices: Tensor, *_: Any, out: Tensor, **__: Any) -> Traffic:
    """weight [V, D], indices [...]: one row of D for each index."""
    rows = Access(weight, indices.numel() * weight.shape[-1] * weight.element_size())
    return Traffic([rows, *whole([indices])], whole([out]))


@rule("aten::index_select", "aten::gather")
def _gather(source: Tensor, _dim: int, index: Tensor, *_: Any, out: Tensor, **__: Any) -> Traffic:
    """As many elements of the source as the result has."""
    return Traffic([_part(source, out.numel()), *whole([index])], whole([out]))


@rule("aten::index")
def _index(source: Tensor, indices: Any, *, out: Tensor, **__: Any) -> Traffic:
    return Traffic([_part(source, out.numel()), *whole(tensors_in(indices))], whole([out]))


@rule("aten::copy_")
def _copy(target: Tensor, source: Tensor, *_: Any, **__: Any) -> Traffic:
    """The old content of the target is not read."""
    return Traffic(whole([source]), whole([target]))


@rule("aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_")
def _fill(target: Tensor, *_: Any, **__: Any) -> Traffic:
    return Traffic([], whole([target]))


@rule("aten::index_copy_")
def _index_copy(target: Tensor, _dim: int, index: Tensor, source: Tensor, **__: Any) -> Traffic:
    """Only the slices named by the index are stored."""
    return Traffic(whole([index, source]), [_part(target, source.numel())])


@rule("aten::index_put_", "aten::_index_put_impl_")
def _index_put(target: Tensor, indices: Any, values: Tensor, accumulate: bool = False, *_: Any, **__: Any) -> Traffic:
    """The stored elements: the indices' broadcast shape times the dimensions that are not indexed."""
    used = [i for i in indices if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for i in used):
        stored = values.numel()  # how many are true depends on the data
    else:
        free = [n for d, n in enumerate(target.shape) if d >= len(indices) or indices[d] is None]
        stored = torch.broadcast_shapes(*(i.shape for i in used)).numel() * torch.Size(free).numel()
    part = _part(target, stored)
    return Traffic([*whole([*used, values]), *([part] if accumulate else [])], [part])


@rule("aten::scatter_")
def _scatter(target: Tensor, _dim: int, index: Tensor, source: Any, *_: Any, **__: Any) -> Traffic:
    """One element for each index; the source may be a number."""
    read = [_part(source, index.numel())] if isinstance(source, Tensor) else []
    return Traffic([*whole([index]), *read], [_part(target, index.numel())])


@rule("aten::_grouped_mm", "transformers::grouped_mm_fallback")
def _grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, *_: Any, out: Tensor, **__: Any) -> Traffic:
    """a [S, K], b [E, K, N]: of the E matrices as many as rows can have, the smaller of E and S.

    That is exact for one sequence's decode step, whose rows all have different ones. Otherwise it is the most
    that can be read: how many a batch really needs depends on the data.
    """
    read = size_bytes(b) if b.dim() == 2 else size_bytes(b) // b.shape[0] * min(int(b.shape[0]), int(a.shape[0]))
    return Traffic([*whole([a]), Access(b, read), *whole([] if offs is None else [offs])], whole([out]))


def _part(tensor: Tensor, elements: int) -> Access:
    return Access(tensor, int(elements) * tensor.element_size())
