"""Weights, cache and peak activations against what torch really allocates on this CPU, for families of three kinds."""

import pytest
import torch
from kernelroof.models import hf
from kernelroof.models.estimate import costs
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload

MOE = {
    "model_type": "mixtral", "hidden_size": 128, "intermediate_size": 224, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
    "vocab_size": 512, "max_position_embeddings": 4096, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
WINDOWED = {
    "model_type": "gemma3_text", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512, "sliding_window": 128,
    "sliding_window_pattern": 2, "max_position_embeddings": 4096,
}  # fmt: skip
SMALL = {"num_hidden_layers": 2, "vocab_size": 512, "max_position_embeddings": 4096, "tie_word_embeddings": False}
MANY = {
    **SMALL, "model_type": "qwen3_moe", "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 96,
    "num_experts": 16, "num_experts_per_tok": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
LATENT = {
    **SMALL, "model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 64,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1, "num_attention_heads": 8, "num_key_value_heads": 8, "q_lora_rank": 96,
    "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 48,
}  # fmt: skip
SINKS = {
    **SMALL, "model_type": "gpt_oss", "hidden_size": 256, "intermediate_size": 256, "num_local_experts": 8,
    "num_experts_per_tok": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"], "rope_scaling": None,
}  # fmt: skip
DELTA = {
    **SMALL, "model_type": "qwen3_5_text", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
HYBRID = {
    **SMALL, "model_type": "nemotron_h", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "hybrid_override_pattern": "M*-M",
    "mamba_num_heads": 16, "mamba_head_dim": 32, "ssm_state_size": 32, "n_groups": 2, "conv_kernel": 4,
    "chunk_size": 64, "expand": 2,
}  # fmt: skip
MAMBA = {
    "model_type": "mamba", "hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 512, "state_size": 16,
    "expand": 2, "conv_kernel": 4,
}  # fmt: skip
QWEN = {**load_config("tiny-qwen"), "num_hidden_layers": 2, "vocab_size": 1024}
CASES = [
    ("dense", QWEN, "sdpa", 0.02),
    ("dense", QWEN, "eager", 0.05),
    ("windowed", WINDOWED, "sdpa", 0.05),
    ("experts", MOE, "sdpa", 0.05),
    ("many experts", MANY, "sdpa", 0.05),
    ("latent", LATENT, "sdpa", 0.15),
    ("sinks", SINKS, "eager", 0.15),
    ("delta rule", DELTA, "sdpa", 0.25),
    ("hybrid", HYBRID, "sdpa", 0.05),
    ("mamba", MAMBA, "eager", 0.05),
]
"""Name, config, attention, and how far the predicted peak may be off."""


def allocated(config, prompt, batch, dtype, attn):
    """Bytes of the weights, the cache, and the peak of everything else in a prefill, by torch's own allocator."""
    model = hf.build_model(config, dtype=dtype, attn=attn, device="cpu")
    ids = torch.zeros((batch, prompt), dtype=torch.int64)
    cache = hf.make_cache("dynamic", model, max_length=prompt, batch=batch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        hf.run_prefill(model, cache, ids, last_only=True)
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    kept = sum(t.numel() * t.element_size() for _, t in hf.cache_tensors(cache))
    return sum(p.numel() * p.element_size() for p in model.parameters()), kept, peak - kept


@pytest.mark.parametrize(("name", "config", "attn", "off"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_torch_allocates(name, config, attn, off, dtype):
    spec = read_spec(config, name)
    cost = costs(spec, make_workload(spec, batch=2, prompt=256, output=1, dtype=dtype, attn=attn))
    weights, _kept, peak = allocated(config, 256, 2, dtype, attn)
    print(f"{name} {attn} {dtype}: {cost.peak_activation_bytes / peak - 1:+.1%}")
    assert weights == cost.weight_bytes
    assert cost.peak_activation_bytes == pytest.approx(peak, rel=off)


@pytest.mark.parametrize(("name", "config"), [("dense", QWEN), ("windowed", WINDOWED), ("experts", MOE)])
def test_what_the_cache_holds(name, config):
    spec = read_spec(config, name)
    prompt, batch = 256, 2
    cost = costs(spec, make_workload(spec, batch=batch, prompt=prompt, output=1, dtype="float32"))
    model = hf.build_model(config, dtype="float32", attn="sdpa", device="cpu")
    cache = hf.make_cache("dynamic", model, max_length=prompt, batch=batch)
    logits = hf.run_prefill(model, cache, torch.zeros((batch, prompt), dtype=torch.int64), last_only=True)
    hf.run_step(model, cache, hf.choose_token(logits))
    assert sum(t.numel() * t.element_size() for _, t in hf.cache_tensors(cache)) == cost.kv_bytes
