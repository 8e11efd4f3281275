"""What forwards want as tokens, where it is not one row of new ones for each sequence."""

from __future__ import annotations

from typing import Any

import torch

_CUT_THEMSELVES = ("CpmAntForCausalLM", "XLMWithLMHeadModel")
"""Models that want all tokens in every forward and leave out by themselves those that the cache holds."""
_ROW_PER_CODEBOOK = ("MusicgenForCausalLM", "MusicgenMelodyForCausalLM")
"""Models whose token is one number from each of several codebooks, in rows of their own."""


def input_rows(model: torch.nn.Module, batch: int) -> int:
    """Rows of input_ids for so many sequences."""
    config: Any = model.config
    return batch * int(config.num_codebooks) if type(model).__name__ in _ROW_PER_CODEBOOK else batch


def cuts_tokens_itself(model: torch.nn.Module) -> bool:
    """Whether the model is given all tokens so far beside its cache."""
    return type(model).__name__ in _CUT_THEMSELVES


def all_tokens(cache: Any, input_ids: torch.Tensor) -> torch.Tensor:
    """All tokens up to these; they are kept on the cache, which lives as long as the sequence."""
    earlier = getattr(cache, "kernelroof_ids", None)
    cache.kernelroof_ids = input_ids if earlier is None else torch.cat([earlier, input_ids], dim=1)
    kept: torch.Tensor = cache.kernelroof_ids
    return kept
