"""Number formats: their size in bits and the names people give them."""

from __future__ import annotations

from kernelroof.models.errors import UsageError

BITS: dict[str, int] = {
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": 4,
}
"""Bits per element, without the scales and zeros of a quantised format."""

RUN_DTYPES = ("float32", "bfloat16", "float16")
"""Formats in which a model can be executed."""

_ALIASES = {
    "fp32": "float32",
    "f32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "float8": "fp8",
    "fp8_e4m3": "fp8",
    "w8": "int8",
    "w4": "int4",
}


def canonical(name: str, option: str = "--dtype", allowed: tuple[str, ...] = tuple(BITS)) -> str:
    """Return the canonical name of a number format.

    Raises:
        UsageError: unknown, or not allowed for this option.
    """
    key = name.strip().lower().removeprefix("torch.")
    key = _ALIASES.get(key, key)
    if key not in allowed:
        raise UsageError(f"{option} {name!r} is not one of {', '.join(allowed)}", "Choose one of them.")
    return key
