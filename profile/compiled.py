"""The model under torch.compile: compiled once for prefill and once for decode, and what inductor made of it.

Ranges of modules can't live inside compiled code: a hook would be traced away or break the graph. So
inductor is asked while it writes its code: each call of a kernel comes with the graph's nodes that it
computes, and each node with the module that made it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernelroof.profile.compiled_calls import calls_of, known_modules

if TYPE_CHECKING:
    import torch

_OPTIONS: dict[str, Any] = {
    # Without it generated C++ kernels leave no event in a recording.
    "cpp.enable_kernel_profile": True,
    # What a graph's kernels were made of is known only while they are generated.
    "trace.provenance_tracking_level": 1,
    "fx_graph_cache": False,
}


class CompiledModel:
    """A model whose forward is compiled.

    cache: one for all passes, for CUDA graphs, which hold on to its memory; else None: a fresh one each pass.
    phase: what runs now, to be set before each forward; a graph belongs to the phase that it was compiled in.
    """

    def __init__(self, model: torch.nn.Module, mode: str, cache: Any = None) -> None:
        import torch

        self.mode = mode
        self.cache = cache
        self.phase = "prefill"
        self.seconds = 0.0
        """Time of the passes that compiled, in seconds."""
        self.graphs: list[dict[str, Any]] = []
        self._modules = known_modules(model)
        self._made = 0
        # Another model's compiled code would count against the limit after which torch runs eagerly.
        torch._dynamo.reset()
        self._before = _counters()
        self._model = model
        # One specialised graph for the prompt's shape and one for a single token: shapes never change.
        compiled: Any = torch.compile(model.forward, backend=self._backend, dynamic=False)
        model.forward = compiled

    def emptied_cache(self) -> Any:
        """The shared cache, emptied; None where there is none."""
        if self.cache is not None:
            self.cache.reset()
            if hasattr(self.cache, "kernelroof_tokens"):
                self.cache.kernelroof_tokens = 0
        return self.cache

    def settled(self, seconds: float) -> None:
        """Say that warming up is over and took so long: what is compiled from now on is a doubt."""
        self.seconds += seconds
        self._made = len(self.graphs)

    def record(self) -> dict[str, Any]:
        """What was compiled and how, ready for JSON; the kernels' calls by graph are under `graphs`."""
        now = _counters()
        gained = {name: count - self._before.get(name, 0) for name, count in now.items()}
        breaks = {n.removeprefix("graph_break: "): c for n, c in gained.items() if n.startswith("graph_break: ") and c}
        return {
            "mode": self.mode,
            "backend": "inductor",
            "dynamic_shapes": False,
            "seconds": self.seconds,
            "late_compilations": len(self.graphs) - self._made,
            "graph_breaks": breaks,
            "skipped_cuda_graphs": gained.get("inductor: cudagraph_skips", 0),
            "cuda_graphs": self.cache is not None,
            "graphs": self.graphs,
        }

    def _backend(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        from torch._guards import CompileContext
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        started = time.perf_counter()
        calls: list[dict[str, Any]] = []
        options = {**(list_mode_options(self.mode) if self.mode != "default" else {}), **_OPTIONS}
        with _code_seen(lambda: calls.extend(calls_of(self._modules))), _no_autograd_cache():
            compiled = compile_fx(graph, inputs, config_patches=options)
        self.graphs.append(
            {
                "id": str(CompileContext.current_compile_id()),
                "phase": self.phase,
                "inductor_seconds": time.perf_counter() - started,
                "calls": calls,
            }
        )
        return compiled


@contextmanager
def _code_seen(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` whenever inductor has written the code of a graph and still knows what it is made of."""
    from torch._inductor.graph import GraphLowering

    before = GraphLowering.save_output_code

    def seen(code: str) -> None:
        look()
        if before is not None:
            before(code)

    hooked: Any = staticmethod(seen)
    GraphLowering.save_output_code = hooked
    try:
        yield
    finally:
        GraphLowering.save_output_code = before


@contextmanager
def _no_autograd_cache() -> Iterator[None]:
    from torch._functorch import config

    with config.patch(enable_autograd_cache=False):
        yield


def _counters() -> dict[str, int]:
    """Dynamo's counters that tell of graphs that broke or were not captured, flattened."""
    from torch._dynamo.utils import counters

    kept: Mapping[str, Counter[str]] = counters
    return {f"{group}: {name}": count for group in ("graph_break", "inductor") for name, count in kept[group].items()}
