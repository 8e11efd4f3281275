from __future__ import annotations

import subprocess
import sys

import pytest
from kernelroof.models.kinds import KINDS, kind_of


@pytest.mark.parametrize(
    ("module", "op", "role", "kind"),
    [
        ("model.embed_tokens", "aten::embedding", "", "embedding"),
        ("transformer.wte", "aten::embedding", "", "embedding"),
        ("model.rotary_emb", "aten::cos", "", "rotary"),
        ("model.layers.0.input_layernorm", "aten::mul", "", "norm"),
        ("model.layers.31.self_attn.q_norm", "aten::mul", "", "norm"),
        ("model.norm", "aten::mean", "", "norm"),
        ("transformer.ln_f", "aten::native_layer_norm", "", "norm"),
        ("model.layers.0.self_attn.q_proj", "aten::mm", "", "projection"),
        ("transformer.h.0.attn.c_attn", "aten::addmm", "", "projection"),
        ("gpt_neox.layers.3.attention.dense", "aten::addmm", "", "projection"),
        ("model.layers.0.self_attn", "aten::scaled_dot_product_attention", "", "attention"),
        ("model.layers.0.self_attn", "aten::bmm", "", "attention"),
        ("model.layers.0.self_attn", "aten::mul", "", "attention"),
        ("model.layers.0.self_attn", "aten::mul", "rotary", "rotary"),
        ("model.layers.0.self_attn", "aten::neg", "", "rotary"),
        ("model.layers.0.self_attn", "aten::cat", "cache", "cache"),
        ("model.layers.0.mlp.gate_proj", "aten::mm", "", "mlp"),
        ("model.layers.0.mlp.act_fn", "aten::silu", "", "mlp"),
        ("model.layers.0.block_sparse_moe.experts.3.w1", "aten::mm", "", "mlp"),
        ("model.layers.7", "aten::add", "", "residual"),
        ("lm_head", "aten::mm", "", "head"),
        ("(sample)", "aten::argmax", "", "sampling"),
        ("(root)", "aten::slice", "", "other"),
        ("model", "aten::arange", "", "other"),
        ("(unattributed)", "", "", "other"),
    ],
)
def test_kind(module: str, op: str, role: str, kind: str) -> None:
    assert kind in KINDS
    assert kind_of(module, op, role) == kind


def test_imports_nothing_heavy() -> None:
    code = "import sys, kernelroof.models.kinds; print({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
