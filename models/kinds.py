"""What kind of work an op is, from where it runs: the colours of the plots and the groups of the tables.

Imports nothing heavy, so that the command line can use it freely.
"""

from __future__ import annotations

ROOT_MODULE = "(root)"
"""Module path of work done by the model's own forward, outside any submodule."""
SAMPLE_MODULE = "(sample)"
"""Module path of the driver's token choice (argmax), which is no module of the model."""

KINDS = (
    "embedding",
    "norm",
    "projection",
    "attention",
    "rotary",
    "cache",
    "mlp",
    "head",
    "residual",
    "sampling",
    "other",
)

# Substrings of one path component in lower case; components are tried innermost first, and in each
# the first line that hits wins. Norms stand before attention and MLP because of "q_norm", "ffn_norm";
# rotary before the embedding because of "rotary_emb".
_BY_NAME: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("norm", ("norm", "ln_", "_ln")),
    ("rotary", ("rotary", "rope")),
    ("head", ("lm_head", "embed_out", "output_head")),
    ("embedding", ("embed", "wte", "wpe")),
    ("mlp", ("mlp", "feed_forward", "ffn", "expert", "moe", "router")),
    ("attention", ("attn", "attention")),
)
# A weight product that the attention module runs itself (a fused projection class named "c_attn").
_WEIGHT_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::linear"})
# Ops that apply_rotary_pos_emb shares with nothing else in an attention module, for callers that
# have no role at hand. Its mul and add look like the scaling and mask of eager attention.
_ROTARY_OPS = frozenset({"aten::neg", "aten::cat"})
_ROLES = {"cache": "cache", "sample": "sampling", "rotary": "rotary"}


def kind_of(module: str, op: str = "", role: str = "") -> str:
    """The kind of an op by its module path, its name ("aten::mm") and its traced role; one of `KINDS`.

    A linear layer below attention is "projection", below an MLP "mlp". Work of a decoder layer itself,
    outside its submodules, is "residual".
    """
    if role in _ROLES:
        return _ROLES[role]
    if module == SAMPLE_MODULE:
        return "sampling"
    parts = module.lower().split(".")
    if parts[-1].isdigit() and not any(_kind_of_name(p) for p in parts):
        return "residual"
    for depth, part in enumerate(reversed(parts)):
        kind = _kind_of_name(part)
        if kind == "attention":
            return _inside_attention(op) if depth == 0 else "projection"
        if kind:
            return kind
    return "other"


def _kind_of_name(part: str) -> str:
    for kind, hints in _BY_NAME:
        if any(h in part for h in hints):
            return kind
    return ""


def _inside_attention(op: str) -> str:
    if op in _WEIGHT_PRODUCTS:
        return "projection"
    return "rotary" if op in _ROTARY_OPS else "attention"
