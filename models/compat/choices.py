"""What the computed numbers are taken to be where a model's course depends on them.

Routing: of the n things to choose from, rows choose in turn: row r takes the k numbers r·k, r·k + 1, … modulo
n. So the experts share the tokens as evenly as can be, every token has k different ones, all products that run
are counted (tokens times k), and as many experts are read as can be: the smaller of n and tokens times k. Of
one sequence's decode step that is exactly k.

Numbers are finite: nothing is NaN or infinite. A sort finds its input sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from kernelroof.models.compat.values import set_value, value_of

Tensor = torch.Tensor


def _topk(x: Tensor, k: int, dim: int = -1, *_: Any, out: Any, **__: Any) -> None:
    set_value(out[1], lambda: _in_turn(tuple(x.shape), k, dim))


def _largest(x: Tensor, dim: int | None = None, keepdim: bool = False, *_: Any, out: Any, **__: Any) -> None:
    """argmax, or max along a dimension: one choice for each row."""
    if dim is None:
        return
    index = out[1] if isinstance(out, (tuple, list)) else out

    def chosen() -> Tensor:
        picked = _in_turn(tuple(x.shape), 1, dim)
        return picked if keepdim else picked.squeeze(dim)

    set_value(index, chosen)


def _sorted(x: Tensor, *args: Any, out: Any, **kwargs: Any) -> None:
    """sort(x, dim, descending), sort.stable(x, *, stable, dim, descending), argsort: the order that is there."""
    numbers = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    dim = int(kwargs.get("dim", numbers[0] if numbers else -1))
    index = out[1] if isinstance(out, (tuple, list)) else out

    def order() -> Tensor:
        shape = [1] * x.dim()
        shape[dim] = x.shape[dim]
        return torch.arange(x.shape[dim]).view(shape).expand(x.shape).contiguous()

    set_value(index, order)


def _never(*_: Any, out: Tensor, **__: Any) -> None:
    set_value(out, lambda: torch.zeros(out.shape, dtype=torch.bool))


def _always(*_: Any, out: Tensor, **__: Any) -> None:
    set_value(out, lambda: torch.ones(out.shape, dtype=torch.bool))


CHOICES: dict[str, Callable[..., None]] = {
    "aten::topk": _topk,
    "aten::max": _largest,
    "aten::argmax": _largest,
    "aten::sort": _sorted,
    "aten::argsort": _sorted,
    "aten::isnan": _never,
    "aten::isinf": _never,
    "aten::isfinite": _always,
}
"""Op to function; called as the op was, with its result as `out`, to say which value the result has."""


def _in_turn(shape: tuple[int, ...], k: int, dim: int) -> Tensor:
    """Indices along `dim` for every row of the other dimensions, in the result's shape."""
    n = shape[dim]
    others = [size for i, size in enumerate(shape) if i != dim % len(shape)]
    rows = torch.arange(int(torch.tensor(others).prod()) if others else 1).unsqueeze(1)
    return ((rows * k + torch.arange(k)) % n).view(*others, k).movedim(-1, dim).contiguous()


def _index(func: Any, source: Tensor, indices: Any, *rest: Any, **kwargs: Any) -> Any:
    """Masks as indices: the places where a known mask is true; None if a mask is not known."""
    places: list[Tensor | None] = []
    for i in indices:
        if i is None or i.dtype not in (torch.bool, torch.uint8):
            places.append(i)
            continue
        mask = value_of(i)
        if mask is None:
            return None
        places += [p.to("meta") for p in mask.nonzero(as_tuple=True)]
    return func(source, places, *rest, **kwargs)


def _masked_select(_func: Any, source: Tensor, mask: Tensor) -> Any:
    known = value_of(mask)
    if known is None:
        return None
    return source.new_empty(int(known.expand(torch.broadcast_shapes(source.shape, mask.shape)).sum()))


def _repeat_interleave(_func: Any, repeats: Tensor, *, output_size: int | None = None) -> Any:
    return None if output_size is None else repeats.new_empty(output_size, dtype=torch.int64)


def _grouped_mm(func: Any, a: Tensor, b: Tensor, *rest: Any, **kwargs: Any) -> Any:
    """[S, K] x [E, K, N] in any dtype; the meta device, unlike the CPU, knows bfloat16 only."""
    if a.dtype == torch.bfloat16 or a.dim() != 2 or b.dim() != 3:
        return func(a, b, *rest, **kwargs)
    return a.new_empty(a.shape[0], b.shape[-1])


ANSWERS: dict[str, Callable[..., Any]] = {
    "aten::index": _index,
    "aten::index_put": _index,
    "aten::index_put_": _index,
    "aten::_index_put_impl_": _index,
    "aten::_grouped_mm": _grouped_mm,
    "aten::masked_select": _masked_select,
    "aten::repeat_interleave": _repeat_interleave,
}
"""Op to function that gives its result where the meta device can't, or None to leave it to the device."""
