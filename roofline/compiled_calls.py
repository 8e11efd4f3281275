"""The kernel calls of compiled graphs, and which recorded kernels they are.

Inductor's generated kernels have names that recordings show too: they are the anchors. A library's kernels
go by other names on a GPU; what runs between two anchors is what the calls between them launched.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernelroof.parsers.schema import ROOT_MODULE

DIFFERS = "the recorded kernels are not those of the compiled graph, in its order"
NO_RECORD = "inductor did not tell which kernels its code calls"
EXTRA = "no call of the compiled graph launches a kernel here"
_PRODUCT = re.compile(r"::_?(mm|addmm|bmm|baddbmm|_?scaled_mm|_?scaled_dot_product\w*)$")


class Call(NamedTuple):
    """One kernel call of a compiled graph.

    kernel: a generated kernel's name, or the aten op of a library's (`extern`).
    module: the innermost one around all ops that only this kernel computes; None where it is not known.
    modules: those of all its ops, also of what several kernels compute again. ops: these ops.
    shapes, read_bytes, write_bytes: of the operands and the result of a library's kernel.
    """

    kernel: str
    extern: bool
    module: str | None
    modules: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    read_bytes: int | None = None
    write_bytes: int | None = None


class Assigned(NamedTuple):
    """What each recorded kernel may be: calls by position, one where it is certain, none where nothing is known.

    alone: whether the kernel is the only one of its call. why: per kernel without a call, the reason.
    """

    calls: list[tuple[int, ...]]
    alone: list[bool]
    why: list[str]


def calls_by_phase(compiled: Mapping[str, Any]) -> dict[str, list[Call]]:
    """The calls of one forward of each phase, in order, from the record of a compiled run.

    Where a forward is several graphs, they run in the order they were compiled in.
    """
    found: dict[str, list[Call]] = {}
    for graph in compiled.get("graphs", []):
        found.setdefault(graph["phase"], []).extend(_call(c) for c in graph["calls"])
    return found


def _call(record: Mapping[str, Any]) -> Call:
    return Call(
        record["kernel"],
        bool(record["extern"]),
        record["module"],
        tuple(record["modules"]),
        tuple(record["ops"]),
        tuple(tuple(shape) for shape in record.get("shapes", ())),
        record.get("read_bytes"),
        record.get("write_bytes"),
    )


def assign(calls: Sequence[Call], seen: Sequence[str], *, ops_named: bool) -> Assigned:
    """Find the call behind each recorded kernel of one forward, all in launch order.

    Args:
        seen: names of the recorded kernels.
        ops_named: whether a library's kernel is recorded under the name of its aten op, as on a CPU.

    A kernel with a known name is found by it, and only where all of those ran in the order of the calls.
    Between two of them (or to either end) lie the kernels of the library calls that are between them: of the
    one call, if it is one; one each, if there are as many and all are products or attention; else of any of
    them. Fewer kernels than products there say that another graph ran.
    """
    if not calls:
        return _nothing(seen, NO_RECORD)
    anchors = [i for i, c in enumerate(calls) if ops_named or not c.extern]
    wanted = {calls[i].kernel for i in anchors}
    found = [k for k, name in enumerate(seen) if name in wanted]
    if [seen[k] for k in found] != [calls[i].kernel for i in anchors]:
        return _nothing(seen, DIFFERS)
    out = _nothing(seen, EXTRA)
    for k, i in zip(found, anchors, strict=True):
        out.calls[k], out.alone[k], out.why[k] = (i,), True, ""
    edges = [(-1, -1), *zip(found, anchors, strict=True), (len(seen), len(calls))]
    for (k, i), (after, last) in itertools.pairwise(edges):
        between = tuple(range(i + 1, last))
        kernels = range(k + 1, after)
        products = sum(_PRODUCT.search(calls[n].kernel) is not None for n in between)
        if products > len(kernels):
            return _nothing(seen, DIFFERS)
        one_each = len(kernels) == len(between) == products
        for number, kernel in enumerate(kernels if between else ()):
            out.calls[kernel] = (between[number],) if one_each else between
            out.alone[kernel], out.why[kernel] = one_each, ""
    return out


def _nothing(seen: Sequence[str], why: str) -> Assigned:
    return Assigned([()] * len(seen), [False] * len(seen), [why] * len(seen))


def common_module(paths: Iterable[str]) -> str | None:
    """The innermost module around all of these; None for none."""
    pieces = [p.split(".") if p != ROOT_MODULE else [] for p in paths]
    if not pieces:
        return None
    shared = 0
    while all(len(p) > shared for p in pieces) and len({p[shared] for p in pieces}) == 1:
        shared += 1
    return ".".join(pieces[0][:shared]) or ROOT_MODULE
