"""The closed form equals the real module for every architecture of the table.

Each family's default config is made shallow (`shrink`) and built on the meta device; nothing in the
module knows the formulas. Sizes are compared for all families, FLOPs and cache for one family of every
kind of layer (set KERNELROOF_ALL_ARCHITECTURES=1 for all of them, which takes ten minutes).
"""

import functools
import os

import pytest
from kernelroof.models import hf
from kernelroof.models.architectures.completions import complete
from kernelroof.models.architectures.shrink import shrink
from kernelroof.models.architectures.survey import compared
from kernelroof.models.errors import KernelroofError
from kernelroof.models.estimate import costs
from kernelroof.models.families import FAMILIES
from kernelroof.models.model_types import REFUSED
from kernelroof.models.spec import read_spec
from kernelroof.models.trace import trace
from kernelroof.models.workload import make_workload
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

NOT_IN_TRANSFORMERS = {"mimo"}
ONLY_IN_WRAPPERS = {"emu3_text_model", "qwen3_vl_text", "qwen3_vl_moe_text"}
CHANGED = {"glm4_moe": {"head_dim": 128}}
"""By default 4096 columns for 96 heads, rounded down."""
CHANGED_WHEN_SHALLOW = {"gemma3n_text": {"num_kv_shared_layers": 5}}
"""By default more layers share than are left."""
WITH_TOWERS = ("vision", "audio", "image_embed", "embed_tokens_extend")
FAMILIES_HERE = sorted(m for m in FAMILIES if m in CAUSAL and m not in NOT_IN_TRANSFORMERS)
WRAPPERS = ("gemma3", "gemma4", "llama4", "qwen3_5", "qwen3_5_moe", "fuyu", "emu3", "got_ocr2")
ONE_OF_A_KIND = (
    "mixtral",
    "deepseek_v3",
    "deepseek_v32",
    "gpt_oss",
    "gemma3_text",
    "gemma4_text",
    "llama4_text",
    "qwen3_next",
    "nemotron_h",
    "jamba",
    "minimax",
    "kimi_linear",
    "lfm2",
    "falcon",
    "gpt2",
    "bart",
    "bert",
    "diffllama",
    "mamba2",
    "mimo_v2_flash",
    "gemma3n_text",
)
TRACED = FAMILIES_HERE if os.environ.get("KERNELROOF_ALL_ARCHITECTURES") else ONE_OF_A_KIND
BATCH, PROMPT, OUTPUT = 2, 7, 2


@functools.cache
def config_of(model_type):
    config, _ = complete(model_type)
    small = shrink({**config, **CHANGED.get(model_type, {})})
    return {**small, **CHANGED_WHEN_SHALLOW.get(model_type, {})}


def attention_of(config):
    return "eager" if read_spec(config).eager else "sdpa"


def cost_of(config, attn, head="last"):
    spec = read_spec(config)
    load = {"batch": BATCH, "prompt": PROMPT, "output": OUTPUT, "dtype": "bfloat16", "weights_dtype": "bfloat16"}
    return costs(spec, make_workload(spec, attn=attn, head=head, **load))


@pytest.mark.parametrize("model_type", [*FAMILIES_HERE, *WRAPPERS])
def test_sizes(model_type):
    config = config_of(model_type)
    try:
        model = hf.build_model(config, dtype="bfloat16", attn="sdpa", device="meta")
    except KernelroofError:
        model = hf.build_model(config, dtype="bfloat16", attn="eager", device="meta")
    decoder = [p for n, p in model.named_parameters() if not any(t in n for t in (*WITH_TOWERS, "multi_modal"))]
    cost = cost_of(config, "eager")
    assert sum(p.numel() for p in decoder) == cost.parameters
    assert sum(p.numel() * p.element_size() for p in decoder) == cost.weight_bytes


@pytest.mark.parametrize("model_type", TRACED)
def test_flops_and_cache(model_type):
    config = config_of(model_type)
    attn = attention_of(config)
    result = trace(config, batch=BATCH, prompt=PROMPT, output=OUTPUT, dtype="bfloat16", attn=attn)
    cost = cost_of(config, attn, result.head)
    assert result.cache_bytes == cost.kv_bytes > 0
    phases = {
        "prefill": [op for op in result.ops if op.phase == "prefill"],
        "first_step": [op for op in result.ops if op.phase == "decode" and op.step == 0],
        "decode": [op for op in result.ops if op.phase == "decode"],
    }
    recurrent = any(group.state for group in read_spec(config).groups)
    for phase, ops in phases.items():
        run = sum(op.flops for op in compared(ops, recurrent))
        assert run == getattr(cost, phase).flops > 0, phase


@pytest.mark.parametrize("model_type", ["youtu", "phi3", "gpt2"])
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_activation_bytes(model_type, attn):
    """Of fused matrices, and of keys and values that are made from a latent again in every step."""
    config = config_of(model_type)
    result = trace(config, batch=BATCH, prompt=PROMPT, output=OUTPUT, dtype="bfloat16", attn=attn)
    cost = cost_of(config, attn)
    for phase, closed in (("prefill", cost.prefill), ("decode", cost.decode)):
        products = [op for op in result.ops if op.phase == phase and op.flops_kind in ("matmul", "attention")]
        assert sum(op.act_read_bytes + op.act_write_bytes for op in products) == closed.activation_bytes, phase


def test_every_causal_architecture_is_read_or_refused_with_a_reason():
    unknown = []
    for model_type in CAUSAL:
        try:
            config, _ = complete(model_type)
        except KernelroofError:
            continue
        inner = next((config[k] for k in ("text_config",) if isinstance(config.get(k), dict)), config)
        if inner["model_type"] not in FAMILIES and inner["model_type"] not in REFUSED:
            unknown.append(model_type)
    assert not unknown
    assert len(FAMILIES_HERE) >= 130
