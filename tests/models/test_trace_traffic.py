"""Byte rules op by op, and the straight lines that steps are interpolated on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernelroof.models import linear, traffic

aten = torch.ops.aten
F4 = 4  # bytes of a float32
I8 = 8  # bytes of an int64


def moved(func: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
    """(read, written) bytes of one op."""
    reads, writes = traffic.traffic(func, args, kwargs, func(*args, **kwargs))
    return sum(a.size_bytes for a in reads), sum(a.size_bytes for a in writes)


def f(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def i(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


X = f(3, 5)


@pytest.mark.parametrize(
    ("func", "args", "read", "written"),
    [
        (aten.mm.default, (f(3, 5), f(5, 7)), (15 + 35) * F4, 21 * F4),
        (aten.addmm.default, (f(7), f(3, 5), f(5, 7)), (7 + 15 + 35) * F4, 21 * F4),
        (aten.mul.Tensor, (f(3, 5), f(1, 5)), (15 + 5) * F4, 15 * F4),
        (aten.mul.Tensor, (X, X), 15 * F4, 15 * F4),
        (aten.mul.Tensor, (f(3, 5), f(3, 1).expand(3, 5)), (15 + 3) * F4, 15 * F4),
        (aten.clone.default, (f(2, 1, 5).expand(2, 4, 5),), 10 * F4, 40 * F4),
        (aten.add_.Tensor, (f(3, 5), f(5)), (15 + 5) * F4, 15 * F4),
        (aten.cat.default, ([f(3, 5), f(2, 5)],), 25 * F4, 25 * F4),
        (aten.cat.default, ([f(0), f(2, 5)],), 10 * F4, 10 * F4),
        (aten.max.dim, (f(3, 5), 1), 15 * F4, 3 * (F4 + I8)),
        (aten.transpose.int, (f(3, 5), 0, 1), 0, 0),
        (aten.slice.Tensor, (f(3, 5), 0, 0, 1), 0, 0),
        (aten.split.Tensor, (f(4, 5), 2), 0, 0),
        (aten._unsafe_view.default, (f(3, 5), [15]), 0, 0),
        (aten.empty.memory_format, ([3, 5],), 0, 0),
        (aten.empty_like.default, (f(3, 5),), 0, 0),
        (aten.zeros.default, ([3, 5],), 0, 15 * F4),
        (aten.zeros_like.default, (f(3, 5),), 0, 15 * F4),
        (aten.new_zeros.default, (f(3, 5), [2]), 0, 2 * F4),
        (aten.arange.default, (6,), 0, 6 * I8),
        (aten.fill_.Scalar, (f(3, 5), 1.0), 0, 15 * F4),
        (aten.copy_.default, (f(3, 5), f(5)), 5 * F4, 15 * F4),
        (aten.embedding.default, (f(100, 5), i(2, 3)), 6 * 5 * F4 + 6 * I8, 30 * F4),
        (aten.index_select.default, (f(100, 5), 0, i(3)), 15 * F4 + 3 * I8, 15 * F4),
        (aten.index.Tensor, (f(100, 5), [i(3)]), 15 * F4 + 3 * I8, 15 * F4),
        (aten.gather.default, (f(4, 9), 1, i(4, 2)), 8 * F4 + 8 * I8, 8 * F4),
        (aten.index_copy_.default, (f(2, 9, 5), 1, torch.arange(3), f(2, 3, 5)), 30 * F4 + 3 * I8, 30 * F4),
        (aten.index_put_.default, (f(2, 9, 5), [None, torch.arange(3)], f(2, 3, 5)), 30 * F4 + 3 * I8, 30 * F4),
        (aten.index_put_.default, (f(9, 5), [torch.arange(3)], f(1)), F4 + 3 * I8, 15 * F4),
        (aten.scatter_.value, (f(4, 9), 1, i(4, 2), 1.0), 8 * I8, 8 * F4),
    ],
    ids=str,
)
def test_rule(func: Any, args: Any, read: int, written: int) -> None:
    assert moved(func, *args) == (read, written)


def test_a_given_result_is_written_only() -> None:
    assert moved(aten.mm.out, f(3, 5), f(5, 7), out=f(3, 7)) == ((15 + 35) * F4, 21 * F4)


def test_accumulating_store_reads_what_it_adds_to() -> None:
    read, written = moved(aten.index_put_.default, f(9, 5), [torch.arange(3)], f(3, 5), True)
    assert (read, written) == (15 * F4 + 3 * I8 + 15 * F4, 15 * F4)


def test_attention_reads_every_operand_once_with_its_own_heads() -> None:
    q, k, out = f(2, 8, 3, 4), f(2, 2, 7, 4), f(2, 8, 3, 4)
    mask = torch.zeros(1, 1, 3, 7, dtype=torch.bool).expand(2, 1, 3, 7)
    reads, writes = traffic.attention(q, k, k.clone(), mask, out)
    assert [a.size_bytes for a in reads] == [192 * F4, 112 * F4, 112 * F4, 21]
    assert [a.size_bytes for a in writes] == [192 * F4]


def test_lines() -> None:
    first, last = [("a", 3, "[1,10,4]")], [("a", 9, "[1,16,4]")]
    lines = linear.fit(first, last, 6, [(2, [("a", 5, "[1,12,4]")])])
    assert lines is not None
    assert linear.at(lines, 0) == first
    assert linear.at(lines, 6) == last
    assert linear.at(lines, 5) == [("a", 8, "[1,15,4]")]


@pytest.mark.parametrize(
    ("first", "last", "span", "checks"),
    [
        ([("a", 3)], [("a", 8)], 6, []),  # the slope is no integer
        ([("a", 3)], [("b", 9)], 6, []),  # another op
        ([("a", 3)], [("a", 9), ("b", 1)], 6, []),  # one op more
        ([("a", 3)], [("a", 9)], 6, [(2, [("a", 6)])]),  # a bend
        ([("a", 3)], [("a", 9)], 6, [(2, [("a", 5), ("b", 1)])]),
        ([("[1,10]",)], [("[1,10,2]",)], 6, []),  # another rank
        ([("[1,10]",)], [("[1,15]",)], 6, []),
    ],
)
def test_no_line(first: Any, last: Any, span: int, checks: Any) -> None:
    assert linear.fit(first, last, span, checks) is None
