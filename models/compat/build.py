"""The causal LM with random weights from a config object: which class, which part of the config, which dtype."""

from __future__ import annotations

from typing import Any

import torch
import transformers


def causal_class(cfg: Any) -> Any:
    """The class that AutoModelForCausalLM builds for a config object, or None if it has none."""
    found = transformers.AutoModelForCausalLM._model_mapping.get(type(cfg), None)
    return found[0] if isinstance(found, tuple) else found


def causal_config(cfg: Any) -> Any:
    """The part of a composite config that the causal LM is made of.

    transformers itself finds the part where it is called text_config; Musicgen's is its decoder.
    """
    wanted = getattr(causal_class(cfg), "config_class", None)
    if wanted is None or isinstance(cfg, wanted):
        return cfg
    parts = getattr(type(cfg), "sub_configs", {})
    return next((getattr(cfg, name) for name, part in parts.items() if part is wanted), cfg)


def from_config(cfg: Any, options: dict[str, Any]) -> Any:
    """The causal LM with random weights."""
    part = causal_config(cfg)
    if part is not cfg and part is not getattr(cfg, "text_config", None):
        return causal_class(cfg)._from_config(part, **options)
    return transformers.AutoModelForCausalLM.from_config(cfg, trust_remote_code=False, **options)


def unify(model: torch.nn.Module, dtype: torch.dtype, device: str) -> None:
    """Cast and move parameters that a model makes in a dtype or on a device of its own, as loading a checkpoint does.

    What the model keeps in 32 bits on purpose stays so.
    """
    kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    made: dict[int, torch.nn.Parameter] = {}
    for path, module in model.named_modules():
        for name, old in list(module.named_parameters(recurse=False)):
            cast = old.is_floating_point() and not any(k in f"{path}.{name}" for k in kept)
            new = old.data.to(device=device if old.device.type != torch.device(device).type else None)
            new = new.to(dtype) if cast else new
            if new.dtype != old.dtype or new.device != old.device:
                setattr(module, name, made.setdefault(id(old), torch.nn.Parameter(new, old.requires_grad)))
