"""The traced ops are those that the CPU runs: same names, same modules, same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from kernelroof.models import hf
from kernelroof.models.trace import trace
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
MODELS = {
    "llama": LLAMA,
    "qwen2": {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 32},
    "mistral-window": {**LLAMA, "model_type": "mistral", "sliding_window": 8},
}
BATCH, PROMPT, OUTPUT = 2, 16, 3
STEPS = [("prefill", 0), *(("decode", i) for i in range(OUTPUT))]

CASES = [
    (name, attn, cache, "float32")
    for name in ("llama", "qwen2")
    for attn in ("sdpa", "eager")
    for cache in ("dynamic", "static")
] + [
    ("llama", "sdpa", "dynamic", "bfloat16"),
    ("llama", "eager", "static", "bfloat16"),
    ("qwen3", "sdpa", "dynamic", "float32"),
    ("mistral-window", "sdpa", "dynamic", "float32"),
    ("mistral-window", "sdpa", "static", "float32"),
]

Around = Callable[[str], Any]


def run_on_cpu(name: str, attn: str, cache_kind: str, dtype: str, around: Around) -> int:
    """Prefill and steps as the driver does them, everything inside `around(range name)`; bytes of the cache."""
    model = hf.build_model(MODELS[name], dtype=dtype, attn=attn, device="cpu")
    open_ranges: list[Any] = []

    def enter(path: str) -> None:
        open_ranges.append(around(path))
        open_ranges[-1].__enter__()

    def leave(*_: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    for path, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, path=path: enter(path or "(root)"))
        module.register_forward_hook(leave)
    cache = hf.make_cache(cache_kind, model, max_length=PROMPT + OUTPUT, batch=BATCH)
    token = torch.zeros(BATCH, PROMPT, dtype=torch.int64)
    for phase, step in STEPS:
        with around(f"{phase}/{step}"):
            if phase == "prefill":
                logits = hf.run_prefill(model, cache, token, last_only=True)
            else:
                logits = hf.run_step(model, cache, token)
            with around("(sample)"):
                token = hf.choose_token(logits)
    return sum(t.numel() * t.element_size() for _name, t in hf.cache_tensors(cache))


def traced(name: str, attn: str, cache_kind: str, dtype: str) -> Any:
    return trace(MODELS[name], batch=BATCH, prompt=PROMPT, output=OUTPUT, dtype=dtype, attn=attn, cache=cache_kind)


@pytest.mark.parametrize(("name", "attn", "cache", "dtype"), CASES)
def test_profiled_work_is_the_traced_work(name: str, attn: str, cache: str, dtype: str) -> None:
    """Every op that moves bytes or computes, as torch.profiler records it, outermost first."""
    result = traced(name, attn, cache, dtype)
    working = [o for o in result.ops if o.flops or o.read_bytes or o.write_bytes]
    names = {o.op for o in working}
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        cache_bytes = run_on_cpu(name, attn, cache, dtype, record_function)
    recorded: dict[str, list[tuple[str, str]]] = {}
    roots = [e for e in profiler.events() if "/" in e.name and e.name.split("/")[0] in ("prefill", "decode")]
    for event in roots:
        recorded[event.name] = list(_work(event, "(root)", names))
    assert list(recorded) == [f"{phase}/{step}" for phase, step in STEPS]
    for phase, step in STEPS:
        expected = [(o.module, o.op) for o in working if (o.phase, o.step) == (phase, step)]
        assert len(expected) > 50
        assert recorded[f"{phase}/{step}"] == expected
    assert result.cache_bytes == cache_bytes


def _work(event: Any, module: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """The outermost ops of these names below an event, with the range that they are in."""
    for child in sorted(event.cpu_children, key=lambda e: e.time_range.start):
        if child.name in names:
            yield module, child.name
        else:
            yield from _work(child, module if child.name.startswith("aten::") else child.name, names)


@pytest.mark.parametrize(("name", "attn", "cache", "dtype"), CASES)
def test_dispatched_ops_are_the_traced_ops(name: str, attn: str, cache: str, dtype: str) -> None:
    """All of them, views included, but for what differs between real and meta tensors (see `same`)."""
    seen: list[tuple[str, str]] = []
    path: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((path[-1], func._schema.name))
            return func(*args, **(kwargs or {}))

    @contextmanager
    def around(part: str) -> Iterator[None]:
        path.append("(root)" if "/" in part else part)
        with Watch() if "/" in part else nullcontext():  # type: ignore[no-untyped-call]
            yield
        path.pop()

    run_on_cpu(name, attn, cache, dtype, around)
    expected = [(o.module, o.op) for o in traced(name, attn, cache, dtype).ops]
    assert len(expected) > 400
    assert same(seen) == expected


def same(seen: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """CPU ops as traced: tensors made from Python numbers are no op to a profiler, so they are not traced;
    attention arrives as the CPU's own kernel, after the op that makes its mask a float one."""
    out: list[tuple[str, str]] = []
    for module, op in seen:
        if op in ("aten::lift_fresh", "aten::scalar_tensor"):
            continue
        if op == "aten::_scaled_dot_product_flash_attention_for_cpu":
            if out[-1][1] == "aten::where":
                out.pop()
            op = "aten::scaled_dot_product_attention"
        out.append((module, op))
    return out
