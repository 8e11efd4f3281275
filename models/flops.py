"""FLOPs of every op, from its shapes: one registry from op name to formula, filled by a decorator.

A multiply-add is two FLOPs. Element-wise ops count one FLOP per output element whatever the function:
a sine or an exponential is one, as an addition is. Reductions count one per input element. Moving,
casting and creating data, and arithmetic on integers and booleans, count none.

Matrix products and attention are exact and are what `torch.utils.flop_counter` counts; element-wise
work, which it leaves out, has its own kind so that totals can be compared. Products of activations outside
softmax attention (scans of linear attention and state spaces, scores of indexers) are "scan": they grow in other
ways than weights and attention, whose closed forms are compared without them. Attention that runs eagerly is
taken apart into products that are "matmul".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

MATMUL = "matmul"
ATTENTION = "attention"
SCAN = "scan"
"""A product of activations alone in a mixer that is no softmax attention: see `Recorder`."""
ELEMENTWISE = "elementwise"
NONE = "none"


class Work(NamedTuple):
    """FLOPs of one op: as it runs, with the mask taken as full, and the kind of formula behind them."""

    flops: int
    flops_full: int
    kind: str


Formula = Callable[..., int]
"""Called as the op is, with its result as keyword `out`; returns FLOPs."""

_FORMULAS: dict[str, tuple[str, Formula]] = {}


def formula(*ops: str, kind: str) -> Callable[[Formula], Formula]:
    """Register the decorated function as the FLOP formula of these ops ("aten::mm")."""

    def register(function: Formula) -> Formula:
        for op in ops:
            _FORMULAS[op] = (kind, function)
        return function

    return register


def count(func: torch._ops.OpOverload, args: Any, kwargs: Any, out: Any) -> Work:
    """FLOPs of one dispatched op. Ops without a formula that are tagged pointwise count as element-wise."""
    kind, function = _FORMULAS.get(func._schema.name, (NONE, None))
    if function is None and torch.Tag.pointwise in func.tags:
        kind, function = ELEMENTWISE, per_output
    if function is None or (kind == ELEMENTWISE and not _is_floating(args, out)):
        return Work(0, 0, NONE)
    flops = function(*args, **kwargs, out=out)
    return Work(flops, flops, kind if flops else NONE)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool) -> Work:
    """Scaled dot-product attention: q [..., H, Sq, D], k [..., Hkv, Skv, D], v [..., Hkv, Skv, Dv].

    2·B·H·pairs·(D + Dv), for the scores and for their product with v. Full: Sq·Skv pairs. Causal, aligned
    top left as torch does: query i (from 0) sees min(i + 1, Skv) keys.
    """
    per_pair = 2 * _product(q.shape[:-2]) * (q.shape[-1] + v.shape[-1])
    sq, skv = q.shape[-2], k.shape[-2]
    full = sq * skv
    seen = min(sq, skv)
    causal = seen * (seen + 1) // 2 + (sq - seen) * skv
    return Work(per_pair * (causal if is_causal else full), per_pair * full, ATTENTION)


@formula("aten::mm", kind=MATMUL)
def mm(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """[M, K] x [K, N]."""
    (m, k), (_k, n) = a.shape, b.shape
    return int(2 * m * k * n)


@formula("aten::addmm", kind=MATMUL)
def addmm(_bias: Any, a: Any, b: Any, **__: Any) -> int:
    """[N] + [M, K] x [K, N]; the sum is fused and, as in torch's counter, left out."""
    return mm(a, b)


@formula("aten::bmm", kind=MATMUL)
def bmm(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """[B, M, K] x [B, K, N]."""
    (batch, m, k), (_b, _k, n) = a.shape, b.shape
    return int(2 * batch * m * k * n)


@formula("aten::baddbmm", kind=MATMUL)
def baddbmm(_bias: Any, a: Any, b: Any, **__: Any) -> int:
    """[B, M, N] + [B, M, K] x [B, K, N]; the sum is left out."""
    return bmm(a, b)


@formula("aten::mv", "aten::dot", kind=MATMUL)
def mv(a: Any, b: Any, **__: Any) -> int:
    """[M, K] x [K], or [K] x [K]."""
    return 2 * int(a.numel())


@formula("aten::_grouped_mm", "transformers::grouped_mm_fallback", kind=MATMUL)
def grouped_mm(a: Any, b: Any, *_: Any, out: Any, **__: Any) -> int:
    """[S, K] x [E, K, N], each row with one of the E matrices: as many products as rows, however they are shared out.

    Without rows to share out, [E, M, K] x [E, K, N]; with the columns shared out, [M, S] x [S, N].
    """
    if a.dim() == 2 and b.dim() == 2:
        return 2 * int(a.numel()) * int(b.shape[-1])
    return 2 * int(out.numel()) * int(a.shape[-1])


@formula("aten::linear", kind=MATMUL)
def linear(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """[..., K] x [N, K]^T, where a backend takes it whole."""
    return 2 * int(x.numel()) * int(weight.shape[0])


@formula("aten::convolution", kind=MATMUL)
def convolution(x: Any, weight: Any, *rest: Any, out: Any, **__: Any) -> int:
    """x [B, Cin, ...], weight [Cout, Cin/groups, ...]; transposed (argument 6): [Cin, Cout/groups, ...]."""
    transposed = len(rest) > 4 and bool(rest[4])
    return 2 * int((x if transposed else out).numel()) * _product(weight.shape[1:])


@formula(
    "aten::sum",
    "aten::mean",
    "aten::amax",
    "aten::amin",
    "aten::max",
    "aten::min",
    "aten::argmax",
    "aten::argmin",
    "aten::prod",
    "aten::var",
    "aten::linalg_vector_norm",
    "aten::cumsum",
    "aten::topk",
    kind=ELEMENTWISE,
)
def per_input(x: Any, *_: Any, **__: Any) -> int:
    """Reductions and scans: one per input element."""
    return int(x.numel())


@formula("aten::_softmax", "aten::_safe_softmax", "aten::_log_softmax", kind=ELEMENTWISE)
def softmax(x: Any, *_: Any, **__: Any) -> int:
    """Maximum, difference, exponential, sum, quotient: five per element."""
    return 5 * int(x.numel())


@formula("aten::native_layer_norm", "aten::_fused_rms_norm", "aten::native_group_norm", kind=ELEMENTWISE)
def fused_norm(x: Any, *_: Any, **__: Any) -> int:
    """Square, mean, scale, weight: counted as the four passes that an unfused norm makes."""
    return 4 * int(x.numel())


@formula(
    "aten::clone",
    "aten::copy_",
    "aten::_to_copy",
    "aten::cat",
    "aten::fill_",
    "aten::fill",
    "aten::zero_",
    "aten::where",
    "aten::masked_fill",
    "aten::masked_fill_",
    kind=NONE,
)
def no_work(*_: Any, **__: Any) -> int:
    """Data that is moved, cast, set or selected: none."""
    return 0


def per_output(*_: Any, out: Any, **__: Any) -> int:
    """Element-wise ops: one per output element."""
    first = out[0] if isinstance(out, (tuple, list)) else out
    return int(first.numel()) if isinstance(first, torch.Tensor) else 0


def _is_floating(args: Iterable[Any], out: Any) -> bool:
    return any(isinstance(t, torch.Tensor) and t.is_floating_point() for t in (*args, out))


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= int(size)
    return total
