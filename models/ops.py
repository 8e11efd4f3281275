"""The op tables of the traced estimate: one traced op, one module's compulsory bytes, one row of ops.csv.

Values only; torch is not imported, so that the matching and the pictures can use them freely.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernelroof.models.kinds import kind_of


class TracedOp(NamedTuple):
    """One op of one forward, as the dispatcher hands it out. Views are kept, with no FLOPs and no bytes."""

    phase: str
    """"prefill" or "decode"."""
    step: int
    """Decode step from 0; 0 in prefill."""
    module: str
    """Path of the innermost module that runs it, "(root)" or "(sample)"."""
    op: str
    """Base name, e.g. "aten::mm"; attention is "aten::scaled_dot_product_attention"."""
    ordinal: int
    """Position within phase and step, from 0."""
    flops: int
    """FLOPs as it runs: half of the scores only, where attention is causal."""
    flops_full: int
    """FLOPs with the mask taken as full."""
    flops_kind: str
    """"matmul", "attention", "scan", "elementwise" or "none"; see `kernelroof.models.flops`."""
    weight_bytes: int
    """Read from parameters and buffers."""
    act_read_bytes: int
    act_write_bytes: int
    kv_read_bytes: int
    """Read from the KV cache's storage."""
    kv_write_bytes: int
    dtype: str
    """dtype of the result, e.g. "bfloat16"; empty if the result is no tensor."""
    shapes: str
    """Operand shapes, e.g. "[1024,768] [768,2048]"."""
    role: str
    """"cache" inside the cache's update, "rotary" in attention before it, "sample", else empty."""

    @property
    def read_bytes(self) -> int:
        return self.weight_bytes + self.act_read_bytes + self.kv_read_bytes

    @property
    def write_bytes(self) -> int:
        return self.act_write_bytes + self.kv_write_bytes


class ModuleIO(NamedTuple):
    """Bytes that one module, with all below it, can't avoid in one forward.

    What it reads that was made outside of it, once; its weights, once; the results that it returns, once;
    the new tokens' keys and values, once. What is made and consumed inside counts nothing.
    """

    phase: str
    step: int
    module: str
    weight_bytes: int
    act_read_bytes: int
    act_write_bytes: int
    kv_read_bytes: int
    kv_write_bytes: int

    @property
    def read_bytes(self) -> int:
        return self.weight_bytes + self.act_read_bytes + self.kv_read_bytes

    @property
    def write_bytes(self) -> int:
        return self.act_write_bytes + self.kv_write_bytes


class OpRow(NamedTuple):
    """One row of ops.csv: all ops of one name, dtype and kind in one module, summed over a phase's steps."""

    phase: str
    module: str
    op: str
    count: int  # type: ignore[assignment]  # the column's name, at the price of tuple.count
    flops: int
    weight_bytes: int
    act_read_bytes: int
    act_write_bytes: int
    kv_read_bytes: int
    kv_write_bytes: int
    dtype: str
    flops_kind: str
    flops_full: int
    kind: str
    """Kind of module work, see `kernelroof.models.kinds`."""


def summarise_ops(ops: Iterable[TracedOp]) -> list[OpRow]:
    """The rows of ops.csv, in the order in which the ops first ran. Views do no work and are left out."""
    sums: dict[tuple[str, str, str, str, str, str], list[int]] = {}
    for op in ops:
        numbers = (
            op.flops,
            op.weight_bytes,
            op.act_read_bytes,
            op.act_write_bytes,
            op.kv_read_bytes,
            op.kv_write_bytes,
            op.flops_full,
        )
        if not any(numbers):
            continue
        key = (op.phase, op.module, op.op, op.dtype, op.flops_kind, op.role)
        total = sums.setdefault(key, [0] * (len(numbers) + 1))
        total[0] += 1
        for i, number in enumerate(numbers, start=1):
            total[i] += number
    rows = []
    for (phase, module, name, dtype, flops_kind, role), total in sums.items():
        *counted, flops_full = total
        kind = kind_of(module, name, role)
        rows.append(OpRow._make((phase, module, name, *counted, dtype, flops_kind, flops_full, kind)))
    return rows
