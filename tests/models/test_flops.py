"""FLOP formulas against torch's own counter, against counting by hand, and whole models to the last digit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernelroof.models import dispatch, flops, hf
from kernelroof.models.presets import load_config, preset_names
from kernelroof.models.trace import trace
from torch.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten


def count(func: Any, *args: Any, **kwargs: Any) -> flops.Work:
    return flops.count(func, args, kwargs, func(*args, **kwargs))


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.mm.default, (meta(3, 5), meta(5, 7))),
        (aten.addmm.default, (meta(7), meta(3, 5), meta(5, 7))),
        (aten.bmm.default, (meta(2, 3, 5), meta(2, 5, 7))),
        (aten.baddbmm.default, (meta(2, 3, 7), meta(2, 3, 5), meta(2, 5, 7))),
        (aten.convolution.default, (meta(2, 4, 9), meta(6, 2, 3), None, [1], [1], [1], False, [0], 2)),
        (aten.convolution.default, (meta(2, 4, 9), meta(4, 3, 3), None, [2], [1], [1], True, [0], 2)),
    ],
)
def test_products_equal_torchs_counter(func: Any, args: Any) -> None:
    with FlopCounterMode(display=False) as counter:
        func(*args)
    work = count(func, *args)
    assert counter.get_total_flops() > 0
    assert work == flops.Work(counter.get_total_flops(), counter.get_total_flops(), "matmul")


@pytest.mark.parametrize(("sq", "skv"), [(1, 1), (1, 9), (5, 5), (5, 9), (9, 5)])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_attention_counts_the_pairs_of_torchs_mask(sq: int, skv: int, heads: tuple[int, int]) -> None:
    batch, (h, hkv), d, dv = 2, heads, 8, 6
    q, k, v = meta(batch, h, sq, d), meta(batch, hkv, skv, d), meta(batch, hkv, skv, dv)
    pairs = int(torch.ones(sq, skv).tril().sum())  # what is_causal means to torch: aligned top left
    work = flops.attention(q, k, v, is_causal=True)
    assert work.flops == batch * h * pairs * 2 * (d + dv)
    assert work.flops_full == batch * h * sq * skv * 2 * (d + dv)
    assert flops.attention(q, k, v, is_causal=False).flops == work.flops_full


def test_attention_on_cpu_tensors() -> None:
    """torch's counter gives 0 for attention on CPU tensors; shapes are enough to know."""

    class Attend(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    model, x = Attend(), torch.zeros(1, 12, 64, 64)
    with dispatch.recording(model, SimpleNamespace(layers=[]), frozenset()) as recorder, torch.no_grad():
        model(x)
    (op,) = recorder.ops("prefill", 0)
    assert (op.op, op.flops, op.flops_full, op.flops_kind) == (dispatch.SDPA, 12_582_912, 12_582_912, "attention")


@pytest.mark.parametrize(
    ("func", "args", "expected"),
    [
        (aten.mul.Tensor, (meta(4, 6), meta(6)), 24),
        (aten.cos.default, (meta(4, 6),), 24),
        (aten.silu.default, (meta(4, 6),), 24),
        (aten.add_.Tensor, (meta(4, 6), meta(6)), 24),
        (aten.mean.dim, (meta(4, 6), [-1]), 24),
        (aten.argmax.default, (meta(4, 6), -1), 24),
        (aten.max.dim, (meta(4, 6), 1), 24),
        (aten._softmax.default, (meta(4, 6), -1, False), 120),
        (aten.cat.default, ([meta(4, 6), meta(4, 6)],), 0),
        (aten.clone.default, (meta(4, 6),), 0),
        (aten._to_copy.default, (meta(4, 6),), 0),
        (aten.transpose.int, (meta(4, 6), 0, 1), 0),
        (aten.add.Tensor, (meta(4).long(), meta(4).long()), 0),
        (aten.le.Tensor, (meta(4).long(), meta(4).long()), 0),
    ],
)
def test_elementwise_and_moved_data(func: Any, args: Any, expected: int) -> None:
    assert count(func, *args) == flops.Work(expected, expected, "elementwise" if expected else "none")


def total(ops: Any, phase: str) -> int:
    return sum(o.flops_full for o in ops if o.phase == phase and o.flops_kind in ("matmul", "attention"))


WORKLOADS = [(1, 32, 1), (2, 77, 3), (4, 200, 2)]
# Every preset at full depth once; at the other workloads the large ones with two layers of full width,
# since their layers are all alike and torch takes a second for each forward of a deep model.
CASES = [(p, "sdpa", w, p.startswith("tiny") or w == WORKLOADS[0]) for p in preset_names() for w in WORKLOADS]
CASES += [(p, "eager", w, True) for p in preset_names() if p.startswith("tiny") for w in WORKLOADS]


@pytest.mark.parametrize(("preset", "attn", "workload", "deep"), CASES, ids=str)
def test_whole_model_equals_torchs_counter(preset: str, attn: str, workload: tuple[int, int, int], deep: bool) -> None:
    """Full mask, head on all positions: prefill and the last decode step, to the last digit."""
    batch, prompt, output = workload
    config = load_config(preset)
    if not deep:
        config = {**config, "num_hidden_layers": 2}
        config.pop("layer_types", None)
    model = hf.build_model(config, dtype="bfloat16", attn=attn, device="meta")
    cache = hf.make_cache("dynamic", model, max_length=prompt + output, batch=batch)
    with FlopCounterMode(display=False) as prefill:
        logits = hf.run_prefill(
            model, cache, torch.zeros(batch, prompt, dtype=torch.int64, device="meta"), last_only=False
        )
    for _ in range(output):
        with FlopCounterMode(display=False) as step:
            logits = hf.run_step(model, cache, hf.choose_token(logits))
    traced = trace(
        config,
        batch=batch,
        prompt=prompt,
        output=output,
        dtype="bfloat16",
        attn=attn,
        head="all",
        steps=[output - 1],
    )
    assert traced.head == "all"
    assert total(traced.ops, "prefill") == prefill.get_total_flops() > 0
    assert total(traced.ops, "decode") == step.get_total_flops() > 0
