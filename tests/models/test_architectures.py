"""Architectures of many kinds: traced FLOPs, weights and caches against torch's own counter and real tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernelroof.models import hf
from kernelroof.models.architectures.catalog import Architecture, architectures
from kernelroof.models.architectures.completions import COMPLETIONS, complete
from kernelroof.models.architectures.shrink import shrink
from kernelroof.models.architectures.survey import survey
from kernelroof.models.errors import DriverError
from kernelroof.models.trace import Trace, trace
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

PRODUCTS = ("matmul", "attention", "scan")
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
LINEAR = {
    "num_hidden_layers": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
MAMBA2 = {"hidden_size": 64, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1}
MLA = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
# model_type: config, experts, experts per token, of how many MoE layers
TINY: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "mixtral": ({**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2}, 4, 2, 2),
    "qwen3_moe": ({**SMALL, "num_experts": 8, "num_experts_per_tok": 3}, 8, 3, 2),
    "deepseek_v3": (
        {k: v for k, v in SMALL.items() if k != "head_dim"} | MLA | {"num_experts_per_tok": 2, "n_shared_experts": 1},
        8, 2, 1,
    ),
    "qwen3_next": (
        {**SMALL, **LINEAR, "num_experts": 8, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 32}, 8, 2, 4
    ),
    "gpt_oss": ({**SMALL, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2}, 4, 2, 2),
    "qwen3_5_text": ({**SMALL, **LINEAR}, 0, 0, 0),
    "gemma3_text": ({**SMALL, "sliding_window": 8}, 0, 0, 0),
    "mamba2": ({**MAMBA2, "vocab_size": 128, "expand": 2, "chunk_size": 8}, 0, 0, 0),
    "jetmoe": (
        {"hidden_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2, "kv_channels": 16,
         "intermediate_size": 96, "vocab_size": 128, "num_local_experts": 4, "num_experts_per_tok": 2}, 0, 0, 0,
    ),
}  # fmt: skip
PROMPT, OUTPUT = 24, 2


def _of_attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """What torch counts for attention on a GPU, and leaves out on a CPU."""
    return int(sdpa_flop_count(q, k, v))


def _of_grouped(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Rows times one matrix each; torch's counter does not know the op."""
    return int(2 * a[0] * a[1] * b[2])


MORE: dict[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _of_attention,
    torch.ops.aten._grouped_mm: _of_grouped,
}


def tiny(name: str) -> dict[str, Any]:
    return {"model_type": name, **TINY[name][0]}


def traced(config: dict[str, Any], dtype: str = "bfloat16", **changes: Any) -> Trace:
    asked = {"batch": 1, "prompt": PROMPT, "output": OUTPUT, "attn": hf.default_attention(config), **changes}
    return trace(config, dtype=dtype, **asked)


def flops_of(result: Trace, phase: str, step: int = 0, *, full: bool = True) -> int:
    ops = [o for o in result.ops if (o.phase, o.step) == (phase, step) and o.flops_kind in PRODUCTS]
    return sum(o.flops_full if full else o.flops for o in ops)


def counted_on_cpu(config: dict[str, Any], dtype: str) -> tuple[list[int], int, torch.nn.Module]:
    """FLOPs that torch counts in prefill and steps with real tensors, bytes of the cache after them, the model."""
    model = hf.build_model(config, dtype=dtype, attn=hf.default_attention(config), device="cpu")
    cache = hf.make_cache("dynamic", model, max_length=PROMPT + OUTPUT, batch=1)
    token = torch.randint(1, 100, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    counts = []
    for step in range(OUTPUT + 1):
        with FlopCounterMode(display=False, custom_mapping=MORE) as counter:
            run = hf.run_step if step else hf.run_prefill
            logits = run(model, cache, token, **({} if step else {"last_only": True}))  # type: ignore[operator]
        token = hf.choose_token(logits)
        counts.append(counter.get_total_flops())
    return counts, sum(t.numel() * t.element_size() for _name, t in hf.cache_tensors(cache)), model


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in TINY), ("mixtral", "bfloat16"), ("deepseek_v3", "bfloat16")]
)
def test_real_tensors_count_the_same(name: str, dtype: str) -> None:
    """Also where tokens are routed by data: each token has as many experts, whichever they are."""
    config = tiny(name)
    result = traced(config, dtype)
    counts, cache_bytes, model = counted_on_cpu(config, dtype)
    found = [flops_of(result, "prefill"), *(flops_of(result, "decode", step) for step in range(OUTPUT))]
    assert found == counts
    assert result.cache_bytes == cache_bytes
    assert result.parameters == sum(p.numel() for p in model.parameters())
    assert result.parameter_bytes == sum(p.numel() * p.element_size() for p in model.parameters())


@pytest.mark.parametrize("name", [name for name, (_config, experts, *_rest) in TINY.items() if experts])
def test_a_step_reads_the_experts_of_its_token(name: str) -> None:
    _config, experts, chosen, layers = TINY[name]
    result = traced(tiny(name))
    products = [o for o in result.ops if o.op == "aten::_grouped_mm"]
    step = [o for o in products if (o.phase, o.step) == ("decode", 0)]
    prefill = [o for o in products if o.phase == "prefill"]
    assert len(step) == len(prefill) == 2 * layers
    model = hf.build_model(tiny(name), dtype="bfloat16", attn=hf.default_attention(tiny(name)), device="meta")
    whole = sum(p.numel() * p.element_size() for n, p in model.named_parameters() if "experts." in n and p.dim() == 3)
    assert sum(o.weight_bytes for o in prefill) == whole > 0
    assert sum(o.weight_bytes for o in step) * experts == whole * chosen
    assert sum(o.flops for o in prefill) == PROMPT * sum(o.flops for o in step)


def test_an_expert_loop_without_grouped_products_counts_its_tokens() -> None:
    """Jetmoe splits the tokens by expert in Python; all experts' products together are tokens times top_k rows."""
    result = traced(tiny("jetmoe"))
    products = [o for o in result.ops if o.phase == "prefill" and o.flops_kind == "matmul"]
    loops = [o for o in products if o.module.endswith("mlp.input_linear")]
    per_token = {o.flops / max(1, int(o.shapes[1:].split(",")[0])) for o in loops if o.flops}
    assert len(per_token) == 1
    assert sum(o.flops for o in loops) == 2 * PROMPT * 2 * per_token.pop()  # layers, tokens, experts of each
    step = [o for o in result.ops if (o.phase, o.step) == ("decode", 0) and o.module.endswith("mlp.input_linear")]
    weights = {o.weight_bytes for o in step if o.op == "aten::mm" and o.flops}
    assert len([o for o in step if o.flops_kind == "matmul"]) == 2 * 2
    assert len(weights) == 1


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5_text", "mamba2"])
def test_scans_are_apart_from_weight_products(name: str) -> None:
    """Without the scans a prefill's weight products are those of its tokens, one by one; attention is apart."""
    result = traced(tiny(name))
    scans = [o for o in result.ops if o.flops_kind == "scan"]
    assert scans
    assert not any(o.weight_bytes for o in scans)
    kinds = {part for o in scans for part in o.module.split(".") if part in ("linear_attn", "mixer")}
    assert kinds
    matmuls = [o for o in result.ops if o.flops_kind == "matmul" and "conv" not in o.op]
    assert all(o.weight_bytes or "experts" in o.module for o in matmuls)


@pytest.mark.parametrize("name", ["llama", "gemma2", "deepseek_v3", "gpt_oss", "bloom", "mixtral", "falcon"])
def test_softmax_attention_is_no_scan(name: str) -> None:
    config = shrink(complete(name)[0])
    result = trace(config, batch=1, prompt=16, output=1, dtype="bfloat16", attn="eager")
    assert not [o for o in result.ops if o.flops_kind == "scan"]


@pytest.mark.parametrize(
    "name",
    [
        "cohere2",
        "gemma3_text",
        "lfm2_moe",
        "minimax",
        "olmo_hybrid",
        "opt",
        "bart",
        "gpt_neo",
        "xlnet",
    ],
)
def test_default_configs_count_as_torch_does(name: str) -> None:
    """The whole default config, fewer layers, against torch's counter on meta tensors."""
    from kernelroof.models.compat.values import Values

    config = shrink(complete(name)[0])
    prompt = 12
    result = traced(config, prompt=prompt, output=1)
    with hf.quiet(), Values():
        model = hf.build_model(config, dtype="bfloat16", attn=hf.default_attention(config), device="meta")
        cache = hf.make_cache("dynamic", model, max_length=prompt + 1, batch=1)
        with FlopCounterMode(display=False, custom_mapping=MORE) as prefill:
            hf.run_prefill(model, cache, torch.zeros((1, prompt), dtype=torch.int64, device="meta"), last_only=True)
        with FlopCounterMode(display=False, custom_mapping=MORE) as step:
            hf.run_step(model, cache, torch.zeros((1, 1), dtype=torch.int64, device="meta"))
    assert flops_of(result, "prefill") == prefill.get_total_flops() > 0
    assert flops_of(result, "decode") == step.get_total_flops() > 0


def test_a_model_that_cannot_run_alone_says_why() -> None:
    row = survey(Architecture("gemma4_unified_assistant", "Gemma4UnifiedAssistantForCausalLM", None))
    assert not row.traced
    assert "shared_kv_states" in row.why_not_traced


def test_values_computed_from_weights_are_refused() -> None:
    """Byte Latent Transformers end patches where a computed entropy is high."""
    config = shrink(complete("blt")[0]) | {"patching_mode": "entropy"}
    with pytest.raises(DriverError, match="computed from weights"):
        trace(config, batch=1, prompt=8, output=1, dtype="bfloat16")


def test_a_row_has_the_closed_form_beside_the_trace() -> None:
    (llama,) = [a for a in architectures("llama") if a.model_type == "llama"]
    row = survey(llama)
    assert row.traced
    assert row.closed_form
    assert row.equal, row.differences
    assert len(row.figures) == 5


@pytest.mark.parametrize("name", ["qwen3_next", "mamba2", "deepseek_v32"])
def test_recurrences_and_indexers_stand_where_the_closed_form_has_them(name: str) -> None:
    row = survey(Architecture(name, "", None))
    assert row.figures[3:]
    assert all(traced == closed for traced, closed in row.figures[3:]), row.differences


def test_every_completion_is_needed_and_known() -> None:
    known = {a.model_type for a in architectures()}
    assert known >= set(COMPLETIONS)
    assert all(completion.why for completion in COMPLETIONS.values())
