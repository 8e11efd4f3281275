"""Imported once by the process that workers are forked from: what every one of them needs, warm.

The first trace of a process costs seconds of imports behind lazy names, which a small one pays here.
"""

import torch
import transformers.integrations
import transformers.models.auto.modeling_auto
from kernelroof.models import hf
from kernelroof.models.trace import trace

PRELOADED = (transformers.StaticCache, transformers.integrations)

torch.set_num_threads(1)
_TINY = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 32,
}
with hf.quiet():
    trace(_TINY, batch=1, prompt=2, output=1, dtype="bfloat16")
