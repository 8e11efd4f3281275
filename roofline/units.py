"""Numbers for people: SI prefixes, three or four digits, the unit always said (GB = 10^9 B)."""

from __future__ import annotations

import math

_UP = ("", "k", "M", "G", "T", "P", "E")
_DOWN = ("", "m", "µ", "n", "p")
_NONE = "–"


def quantity(value: float | None, unit: str, digits: int = 4) -> str:
    """`value` with an SI prefix: 16060522496, "B" -> "16.06 GB"; None -> a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _NONE
    size = abs(value)
    if size == 0:
        return f"0 {unit}"
    step = 0
    while step < len(_UP) - 1 and float(f"{size / 1000**step:.{digits}g}") >= 1000:
        step += 1
    return f"{fixed(value / 1000**step, digits)} {_UP[step]}{unit}"


def seconds(value: float | None, digits: int = 4) -> str:
    """A duration given in seconds, scaled to s, ms, µs or ns."""
    if value is None or math.isnan(value):
        return _NONE
    if value == 0:
        return "0 s"
    step = 0
    while step < 3 and float(f"{abs(value) * 1000**step:.{digits}g}") < 1:
        step += 1
    return f"{fixed(value * 1000**step, digits)} {_DOWN[step]}s"


def counted(number: int, noun: str) -> str:
    """A number of things: "1 kernel", "1,721 launches"."""
    plural = "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def fixed(value: float, digits: int = 4) -> str:
    """`value` with `digits` significant digits, never in exponent form."""
    if value == 0:
        return "0"
    whole = len(str(int(abs(float(f"{value:.{digits}g}")))))
    return f"{value:.{max(0, digits - whole)}f}"


def plain_type(name: str) -> str:
    """A type for people: "tensor:bf16->fp32" is "bf16 tensor"."""
    source = name.removeprefix("tensor:").partition("->")[0]
    return f"{source} tensor" if name.startswith("tensor:") else source
