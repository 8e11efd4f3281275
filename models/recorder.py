"""One forward as it is recorded: its ops and module calls, and whose memory each of them touched.

A recording holds storages alive until the forward ends, so that a storage's id names one tensor's memory
throughout; whether that memory is a weight, the KV cache or an activation is decided at the end, when
every storage that the cache has used is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from kernelroof.models import flops, hf, traffic
from kernelroof.models.kinds import ROOT_MODULE, kind_of
from kernelroof.models.ops import ModuleIO, TracedOp

_SOFTMAXES = frozenset({"aten::_softmax", "aten::_safe_softmax", "aten::logsumexp"})
"""What tells attention, taken apart, from other products of activations."""


class _Raw(NamedTuple):
    """One op before its bytes are sorted into weights, cache and activations; (storage id, bytes) pairs."""

    module: str
    op: str
    work: flops.Work
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]
    dtype: str
    shapes: str
    scan_of: _Call | None
    """For a product without a weight among its operands, the module call that runs it."""


class _Extent:
    """How one module call uses one storage: bytes read in all, read from outside, and written so far."""

    __slots__ = ("external", "read", "written")

    def __init__(self) -> None:
        self.read = self.external = self.written = 0


class _Call:
    """One module call in progress, or finished."""

    def __init__(self, module: str, first_op: int) -> None:
        self.module = module
        self.first_op = first_op
        self.extents: dict[int, _Extent] = {}
        self.results: dict[int, int] = {}
        self.new_kv_bytes = 0
        self.normalises = False
        """Whether it takes a softmax: then its products of activations are attention, taken apart."""


class Recorder:
    """Collects ops and module calls of one forward; `ops` and `module_io` give them sorted at its end."""

    def __init__(self, weight_ids: frozenset[int]) -> None:
        self.weight_ids = weight_ids
        self.kv_ids: set[int] = set()
        self.from_weights: set[int] = set()
        """Storages computed from weights alone: casts and copies of them."""
        self.storages: dict[int, Any] = {}
        self.raw: list[_Raw] = []
        self.roles: list[str] = []
        self.role = ""
        self.stack: list[_Call] = []
        self.calls: list[_Call] = []
        self.paused = False

    def record(self, op: str, inputs: Any, out: Any, work: flops.Work, moved: traffic.Traffic) -> None:
        """Append one op under the module that is running."""
        reads = [(self._id(a.tensor), a.size_bytes) for a in moved.reads if a.size_bytes]
        writes = [(self._id(a.tensor), a.size_bytes) for a in moved.writes if a.size_bytes]
        for call in self.stack:
            for storage, size in reads:
                e = call.extents.setdefault(storage, _Extent())
                e.read += size
                outside = min(e.read, self.storages[storage].nbytes()) - e.written
                e.external = max(e.external, outside)
            for storage, size in writes:
                e = call.extents.setdefault(storage, _Extent())
                e.written = min(e.written + size, self.storages[storage].nbytes())
        scan_of = self._activations_only(op, work, reads, writes)
        results = traffic.tensors_in(out)
        dtype = str(results[0].dtype).removeprefix("torch.") if results else ""
        shapes = " ".join(f"[{','.join(map(str, t.shape))}]" for t in traffic.tensors_in(inputs))
        module = self.stack[-1].module if self.stack else ROOT_MODULE
        self.raw.append(_Raw(module, op, work, reads, writes, dtype, shapes, scan_of))
        self.roles.append(self.role)

    def _activations_only(
        self, op: str, work: flops.Work, reads: list[tuple[int, int]], writes: list[tuple[int, int]]
    ) -> _Call | None:
        """The running call if this is a product of activations alone; keeps count of what is made of weights."""
        call = self.stack[-1] if self.stack else None
        if op in _SOFTMAXES and call is not None:
            call.normalises = True
        weights = [s in self.weight_ids or s in self.from_weights for s, _size in reads]
        if weights and all(weights):
            self.from_weights.update(s for s, _size in writes)
        return call if work.kind == flops.MATMUL and not any(weights) else None

    def enter(self, module: str) -> None:
        self.stack.append(_Call(module, len(self.raw)))

    def leave(self, result: Any) -> None:
        """End of the running module's call, which returns `result`."""
        call = self.stack.pop()
        for t in traffic.tensors_in(result):
            storage = self._id(t)
            made = call.extents[storage].written if storage in call.extents else 0
            call.results[storage] = max(call.results.get(storage, 0), min(made, traffic.size_bytes(t)))
        self.calls.append(call)

    def note_cache(self, cache: Any) -> None:
        """Remember every storage that the cache holds now."""
        self.kv_ids.update(self._id(t) for _name, t in hf.cache_tensors(cache))

    def note_update(self, new: Iterable[Any]) -> None:
        """A cache update with these arguments, new keys and values among them, begins in the running module.

        What the attention module itself ran up to here, outside its projections, is the rotary embedding.
        """
        size = sum(traffic.size_bytes(t) for t in new if isinstance(t, torch.Tensor))
        for call in self.stack:
            call.new_kv_bytes += size
        if not self.stack or kind_of(self.stack[-1].module) != "attention":
            return
        running = self.stack[-1]
        for i in range(running.first_op, len(self.raw)):
            raw = self.raw[i]
            if raw.module == running.module and raw.work.kind != flops.MATMUL and not self.roles[i]:
                self.roles[i] = "rotary"

    def ops(self, phase: str, step: int) -> list[TracedOp]:
        """The recorded ops in order, their bytes sorted by whose storage they touch."""
        found = []
        for ordinal, (raw, role) in enumerate(zip(self.raw, self.roles, strict=True)):
            weight, act_read, kv_read = self._split(raw.reads)
            _none, act_write, kv_write = self._split(raw.writes)
            work = raw.work
            if raw.scan_of is not None and not raw.scan_of.normalises:
                work = work._replace(kind=flops.SCAN)
            found.append(
                TracedOp(
                    phase, step, raw.module, raw.op, ordinal, work.flops, work.flops_full, work.kind,
                    weight, act_read, act_write, kv_read, kv_write, raw.dtype, raw.shapes, role,
                )
            )  # fmt: skip
        return found

    def module_io(self, phase: str, step: int) -> list[ModuleIO]:
        """Compulsory bytes of each module, in the order in which their (first) calls ended."""
        sums: dict[str, list[int]] = {}
        for call in self.calls:
            weight, act_read, kv_read = self._split((s, e.external) for s, e in call.extents.items())
            _none, act_write, _kv = self._split(call.results.items())
            total = sums.setdefault(call.module, [0] * 5)
            for i, size in enumerate((weight, act_read, act_write, kv_read, call.new_kv_bytes)):
                total[i] += size
        return [ModuleIO(phase, step, module, *total) for module, total in sums.items()]

    def _split(self, accesses: Iterable[tuple[int, int]]) -> tuple[int, int, int]:
        """Bytes of (weights, activations, cache)."""
        weight = act = kv = 0
        for storage, size in accesses:
            if storage in self.weight_ids:
                weight += size
            elif storage in self.kv_ids:
                kv += size
            else:
                act += size
        return weight, act, kv

    def _id(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        return self.storages.setdefault(storage._cdata, storage)._cdata  # type: ignore[no-any-return]
