"""The made-up program whose recordings the size benchmarks read: decode steps of a model, range by range.

Phase > step > module > op, with about five ranges for each kernel. What a profiler keeps of it is up to
the recordings that are made from it: a subclass for each file format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

LAYERS = 32
STEPS = 100
MODULES = (
    ("input_layernorm", 1),
    ("self_attn", 0),
    ("self_attn.q_proj", 1),
    ("self_attn.k_proj", 1),
    ("self_attn.v_proj", 1),
    ("self_attn.rotary", 1),
    ("self_attn.o_proj", 1),
    ("post_attention_layernorm", 1),
    ("mlp", 0),
    ("mlp.gate_proj", 1),
    ("mlp.act_fn", 1),
    ("mlp.down_proj", 1),
)
OPS = ("aten::linear", "aten::matmul", "aten::mm")


class Walk(ABC):
    """One run of the program; `now` is the host's clock in ns, `gpu` the time at which its stream is free."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.gpu = 1_000_000
        self.correlation = 0

    @abstractmethod
    def full(self) -> bool:
        """Whether enough was recorded."""

    @abstractmethod
    def begun(self) -> int:
        """A range or an op begins now; the answer comes back when it ends."""

    @abstractmethod
    def ended(self, token: int, start: int, text: str) -> None:
        """It ends now; an op is one whose text begins with `aten::`."""

    @abstractmethod
    def called(self, start: int, end: int, text: str) -> None:
        """A call of the runtime."""

    @abstractmethod
    def ran(self, start: int, end: int, text: str) -> None:
        """A kernel, launched by the last call."""

    def walk(self) -> None:
        """A prefill, then decode steps, until enough was recorded."""
        step = 0
        while not self.full():
            phase = self._push()
            for k in range(1 if step == 0 else STEPS):
                began = self._push()
                for layer in range(LAYERS):
                    self._layer(layer)
                self._pop(began, f"step{k}")
                step += 1
                if self.full():
                    break
            self._pop(phase, "prefill" if step == 1 else "decode")

    def _push(self) -> tuple[int, int]:
        self.now += 400
        return self.begun(), self.now

    def _pop(self, opened: tuple[int, int], text: str) -> None:
        self.now += 300
        self.ended(*opened, text)

    def _call(self, text: str) -> None:
        self.now += 500
        self.correlation += 1
        self.called(self.now, self.now + 2000, text)
        self.now += 2500

    def _kernel(self, text: str, duration: int) -> None:
        """A launch and its kernel, which runs when its stream is free."""
        self._call("cudaLaunchKernel")
        begin = max(self.gpu + 800, self.now + 3000)
        self.gpu = begin + duration
        self.ran(begin, self.gpu, text)

    def _layer(self, layer: int) -> None:
        base = f"model.layers.{layer}"
        outer = self._push()
        for position, (module, kernels) in enumerate(MODULES):
            opened = self._push()
            for _ in range(kernels):
                ops = [self._push() for _ in OPS]
                self._kernel(f"void gemm<float, {position}>(int, float const*)", 2000 + 700 * position)
                for at, op in zip(reversed(ops), reversed(OPS), strict=True):
                    self._pop(at, op)
            self._pop(self._push(), "aten::view")
            if position % 2:
                self._call("cudaStreamIsCapturing")
            self._pop(opened, f"{base}.{module}")
        self._pop(outer, base)
