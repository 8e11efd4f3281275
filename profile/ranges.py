"""Named ranges around phases, steps and modules, sent to NVTX and to torch.profiler by one helper.

Nesting and names are the same for every sink:
`prefill` > `step0` > module paths; `decode` > `step0`, `step1`, ... > module paths; the token choice
is `(sample)` inside its step. The top model itself has no range: what runs directly inside a step
belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

DEPTHS = ("phase", "layer", "module")
"""How deep ranges go: phases and steps only; layers and their siblings; every module that runs."""

SAMPLE_RANGE = "(sample)"
"""Name of the range around the driver's token choice, which is no module of the model."""


class Sink(NamedTuple):
    """Where ranges go: `push` opens one on this thread, `pop` closes the innermost."""

    push: Callable[[str], None]
    pop: Callable[[], None]


def nvtx_sink() -> Sink:
    """Ranges for nsys and ncu: push/pop in NVTX's default domain, each name registered once.

    An `annotate` object is kept per name and entered by hand: its attributes are then made once,
    which costs 0.2 us per range where `nvtx.push_range` and `pop_range` cost 0.7 to 1 us.
    """
    import nvtx

    known: dict[str, Any] = {}
    opened: list[Any] = []

    def push(name: str) -> None:
        note = known.get(name)
        if note is None:
            note = known[name] = nvtx.annotate(name)
        note.__enter__()
        opened.append(note)

    def pop() -> None:
        opened.pop().__exit__(None, None, None)

    return Sink(push, pop)


def profiler_sink() -> Sink:
    """Ranges for torch.profiler: `user_annotation` events under the given name.

    The pair behind `record_function` is called directly where torch has it: 2 to 4 us per range
    under the profiler where `record_function` costs 8 to 15. `_RecordFunctionFast` would be cheaper
    still, but its events are indistinguishable from ops unless shapes are recorded too.
    """
    import torch

    enter: Any = getattr(torch.autograd, "_record_function_with_args_enter", None)
    leave: Any = getattr(torch.autograd, "_record_function_with_args_exit", None)
    opened: list[Any] = []

    def push(name: str) -> None:
        opened.append(enter(name))

    def pop() -> None:
        leave(opened.pop())

    def push_public(name: str) -> None:
        opened.append(torch.autograd.profiler.record_function(name).__enter__())

    def pop_public() -> None:
        opened.pop().__exit__(None, None, None)

    return Sink(push, pop) if enter and leave else Sink(push_public, pop_public)


class Ranges:
    """The open ranges of one thread, mirrored in every sink.

    A context manager of this class closes whatever was left open inside it, so an exception in a
    module, which skips that module's closing hook, leaves the sinks balanced. With no sinks the
    context managers are empty.
    """

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = tuple(sinks)
        self._open: list[str] = []

    def phase(self, name: str) -> AbstractContextManager[None]:
        """The range of a phase: prefill or decode."""
        return self.span(name)

    def step(self, k: int) -> AbstractContextManager[None]:
        """The range of step `k` (from 0) of the phase."""
        return self.span(f"step{k}") if self._sinks else nullcontext()

    def span(self, name: str) -> AbstractContextManager[None]:
        """A range of any name."""
        return self._span(name) if self._sinks else nullcontext()

    @contextmanager
    def _span(self, name: str) -> Iterator[None]:
        depth = len(self._open)
        self.push(name)
        try:
            yield
        finally:
            while len(self._open) > depth:
                self._pop()

    def push(self, name: str) -> None:
        """Open a range."""
        for sink in self._sinks:
            sink.push(name)
        self._open.append(name)

    def close(self, name: str) -> None:
        """Close the innermost open range of this name, and what was left open inside it."""
        while self._open:
            if self._pop() == name:
                return

    def _pop(self) -> str:
        for sink in reversed(self._sinks):
            sink.pop()
        return self._open.pop()


@contextmanager
def module_ranges(model: nn.Module, depth: str, sinks: Sequence[Sink]) -> Iterator[Ranges]:
    """Give the modules of `model` ranges named by their dotted path, until the block ends.

    Yields the `Ranges` for phases and steps. Works where modules are called eagerly: under
    torch.compile or CUDA graphs no hook runs and only phases and steps keep a range.

    Raises:
        UsageError: a depth that is not one of `DEPTHS`.
    """
    chosen = modules_with_ranges(model, depth)
    ranges = Ranges(sinks)
    handles: list[Any] = []
    try:
        for name, module in chosen if sinks else ():
            before, after = _hooks(ranges, name)
            # Outermost of all hooks: other hooks' work belongs to the module too.
            handles.append(module.register_forward_pre_hook(before, prepend=True))
            handles.append(module.register_forward_hook(after))
        yield ranges
    finally:
        for handle in handles:
            handle.remove()


def modules_with_ranges(model: nn.Module, depth: str) -> list[tuple[str, nn.Module]]:
    """The modules that get a range at this depth, as (dotted path, module), in registration order.

    "layer" takes the members of the outermost ModuleLists, and the other children of the base model
    (embedding, final norm, rotary) and of the top (the head).
    """
    from torch import nn

    if depth not in DEPTHS:
        raise UsageError(f"unknown range depth {depth!r}", f"Choose one of {', '.join(DEPTHS)}.")
    if depth == "phase":
        return []
    named = [(name, module) for name, module in model.named_modules() if name]
    if depth == "module":
        return [(n, m) for n, m in named if not isinstance(m, nn.ModuleList)]
    lists = [n for n, m in named if isinstance(m, nn.ModuleList)]
    outer = [n for n in lists if not any(n.startswith(f"{other}.") for other in lists)]
    base = getattr(model, "base_model", model)
    base_name = next((n for n, m in named if m is base), "")
    parents = {"", base_name, *outer}
    return [
        (n, m)
        for n, m in named
        if n.rpartition(".")[0] in parents and n != base_name and not isinstance(m, nn.ModuleList)
    ]


def _hooks(ranges: Ranges, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    push, close = ranges.push, ranges.close

    def before(module: Any, args: Any) -> None:
        push(name)

    def after(module: Any, args: Any, output: Any) -> None:
        close(name)

    return before, after
