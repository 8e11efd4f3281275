"""The formats that weights and caches are stored in, to the last scale: one table, one entry per format.

Bits count what a loaded model holds: packed elements, scales, zero points, group indices. Lookup tables
that all matrices share (the 16 values of nf4) are left out. Sources: the layouts that GPTQ (AutoGPTQ),
AutoAWQ, compressed-tensors, modelopt and bitsandbytes write, the OCP microscaling specification, ggml's
block structures.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kernelroof.models.dtypes import BITS, canonical
from kernelroof.models.errors import UsageError

FP8, INT8, FP4 = "fp8", "int8", "fp4"
"""Classes of operands that have a peak of their own on some GPUs."""


class Scale(NamedTuple):
    """One number of `bits` per block of a matrix [inputs, outputs]; None: the whole extent.

    flat: where it is not 0, blocks are that many elements of the flattened matrix instead.
    """

    bits: int
    inputs: int | None = None
    outputs: int | None = 1
    flat: int = 0
    what: str = "scale"

    def blocks(self, inputs: int, outputs: int) -> int:
        """Blocks of a matrix."""
        if self.flat:
            return -(-inputs * outputs // self.flat)
        across = 1 if self.inputs is None else -(-inputs // self.inputs)
        return across * (1 if self.outputs is None else -(-outputs // self.outputs))

    def words(self) -> str:
        """For print: «16-bit scale per 128 inputs»."""
        if self.flat:
            where = f"{self.flat} elements"
        elif self.inputs is None:
            where = "matrix" if self.outputs is None else "output"
        elif self.inputs == 1:
            where = "input"
        elif self.outputs == 1:
            where = f"{self.inputs} inputs"
        else:
            where = f"block of {self.inputs} x {self.outputs}"
        return f"{self.bits}-bit {self.what} per {where}"


class Format(NamedTuple):
    """Storage of a matrix: `elements` consecutive inputs take `bits`, and there are scales beside them.

    compute: class of both operands of its products; None: weights are unpacked and multiplied in the
        run's own format (weight-only).
    average: bits are a mean over a whole file (approximate), so table and head are held in it too.
    fallback: what takes its place where the inputs do not fill whole blocks.
    """

    name: str
    bits: int
    elements: int = 1
    scales: tuple[Scale, ...] = ()
    compute: str | None = None
    average: bool = False
    fallback: Format | None = None
    source: str = ""

    def matrix_bytes(self, inputs: int, outputs: int) -> int:
        """Bytes of a matrix [inputs, outputs]."""
        if self.fallback is not None and inputs % self.elements:
            return self.fallback.matrix_bytes(inputs, outputs)
        if self.average:
            bits = -(-inputs * outputs * self.bits // self.elements)
        else:
            bits = -(-inputs // self.elements) * outputs * self.bits
        for scale in self.scales:
            bits += scale.blocks(inputs, outputs) * scale.bits
        return (bits + 7) // 8

    def words(self) -> str:
        """How elements and scales are laid out, for print."""
        if self.average:
            return f"about {self.bits / self.elements:g} bits per weight on average ({self.source})"
        each = f"{self.bits / self.elements:g} bits"
        if self.elements > 1:
            each += f" in blocks of {self.elements}, scales included"
        if self.fallback is not None:
            each += f" ({self.fallback.name} where the inputs do not fill blocks)"
        beside = "" if self.elements > 1 else " before scales and zeros"
        return " + ".join((each, *(s.words() for s in self.scales))) if self.scales else each + beside


MATRIX = Scale(32, None, None)
"""One float32 for the whole matrix."""

INPUT_SCALE = Scale(32, None, None, what="scale of its input")
"""Checkpoints with static activation scales keep this one beside each matrix."""


def zero_points(bits: int, group: int | None) -> Scale:
    """Packed zero points of groups along the inputs."""
    return Scale(bits, group, what="zero point")


def integers(
    bits: int, group: int | None, *, zeros: bool = False, compute: str | None = None, scale_bits: int = 16
) -> Format:
    """Integers with a scale per `group` inputs, or per output (None), and maybe packed zero points."""
    scales = (Scale(scale_bits, group), *((zero_points(bits, group),) if zeros else ()))
    return Format(f"int{bits}{_suffix(group)}{'-asym' if zeros else ''}", bits, 1, scales, compute)


def gptq(bits: int, group: int | None) -> Format:
    """GPTQ's buffers: qweight, scales (fp16), qzeros (packed), g_idx (int32 per input)."""
    scales = (Scale(16, group), zero_points(bits, group), Scale(32, 1, None, what="group index"))
    return Format(f"gptq-int{bits}{_suffix(group)}", bits, 1, scales)


def awq(bits: int, group: int | None, *, zeros: bool = True) -> Format:
    """AWQ's buffers: qweight, scales (fp16), qzeros (packed)."""
    scales = (Scale(16, group), *((zero_points(bits, group),) if zeros else ()))
    return Format(f"awq-int{bits}{_suffix(group)}", bits, 1, scales)


def hqq(bits: int, group: int) -> Format:
    """HQQ: a 16-bit scale and a 16-bit zero point per group of the flattened matrix."""
    scales = (Scale(16, flat=group), Scale(16, flat=group, what="zero point"))
    return Format(f"hqq-int{bits}-g{group}", bits, 1, scales)


def bits_per_weight(text: str) -> Format:
    """A file's mean bits per weight, such as `4.85`.

    Raises:
        UsageError: not a number from 0.5 to 32.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.5 <= value <= 32:
        raise UsageError(f"{text!r} is no number of bits per weight", "Give one from 0.5 to 32, such as bpw:4.85.")
    return Format(f"bpw:{value:g}", round(value * 10_000), 10_000, average=True, source="as given")


def _suffix(group: int | None) -> str:
    return "-channel" if group is None else f"-g{group}"


_LLAMA_CPP = "llama.cpp's quantize README, Llama-3.1-8B"

# Mean bits per weight of files whose tensors are a mix; it differs by a few hundredths between models.
_MIXES = {
    "q2_k_s": 2.9697,
    "q3_k_s": 3.6429,
    "q3_k_m": 4.00,  # the README has no row; llama.cpp's quantize.cpp says 3.74 GiB for Llama-3-8B
    "q3_k_l": 4.2979,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "iq2_m": 2.9294,
    "iq3_xs": 3.4977,
    "iq3_m": 3.7628,
}

# ggml's blocks: elements, bytes, and the block that takes their place where the inputs do not fill them.
_BLOCKS: dict[str, tuple[int, int, str]] = {
    "q4_0": (32, 18, ""),
    "q4_1": (32, 20, ""),
    "q5_0": (32, 22, ""),
    "q5_1": (32, 24, ""),
    "q8_0": (32, 34, ""),
    "iq4_nl": (32, 18, ""),
    "q2_k": (256, 84, "iq4_nl"),
    "q3_k": (256, 110, "iq4_nl"),
    "q4_k": (256, 144, "q5_0"),
    "q5_k": (256, 176, "q5_1"),
    "q6_k": (256, 210, "q8_0"),
    "iq1_s": (256, 50, "iq4_nl"),
    "iq1_m": (256, 56, "iq4_nl"),
    "iq2_xxs": (256, 66, "iq4_nl"),
    "iq2_xs": (256, 74, "iq4_nl"),
    "iq2_s": (256, 82, "iq4_nl"),
    "iq3_xxs": (256, 98, "iq4_nl"),
    "iq3_s": (256, 110, "iq4_nl"),
    "iq4_xs": (256, 136, "iq4_nl"),
}


def _block(name: str) -> Format:
    elements, size, other = _BLOCKS[name]
    return Format(name, 8 * size, elements, fallback=_block(other) if other else None, source="ggml")


def _table(formats: tuple[Format, ...]) -> dict[str, Format]:
    return {f.name: f for f in formats}


PLAIN = {name: Format(name, bits) for name, bits in BITS.items()}
"""Elements alone, without scales."""

WEIGHTS = {
    **PLAIN,
    **_table(
        (
            Format("fp8", 8, 1, (MATRIX,), FP8),
            Format("fp8-static", 8, 1, (MATRIX, INPUT_SCALE), FP8),
            Format("fp8-channel", 8, 1, (Scale(32),), FP8),
            Format("fp8-block", 8, 1, (Scale(32, 128, 128),), FP8),
            Format("fp8-w8a16", 8, 1, (MATRIX,)),
            Format("mxfp8", 8, 1, (Scale(8, 32),), FP8),
            Format("w8a8", 8, 1, (Scale(16),), INT8, source="SmoothQuant"),
            Format("bnb-int8", 8, 1, (Scale(32),), INT8, source="LLM.int8()"),
            integers(8, None),
            integers(4, None),
            Format("w4a8", 4, 1, (Scale(16, 128),), INT8),
            Format("w4a8-fp8", 4, 1, (Scale(16, 128),), FP8),
            Format("mxfp4", 4, 1, (Scale(8, 32),), FP4),
            Format("mxfp4-w4a16", 4, 1, (Scale(8, 32),)),
            Format("nvfp4", 4, 1, (Scale(8, 16), MATRIX), FP4),
            Format("nvfp4-w4a16", 4, 1, (Scale(8, 16), MATRIX)),
            *(Format(kind, 4, 1, (Scale(32, flat=64),)) for kind in ("nf4", "fp4")),
            *(
                Format(f"{kind}-dq", 4, 1, (Scale(8, flat=64), Scale(32, flat=64 * 256), MATRIX))
                for kind in ("nf4", "fp4")
            ),
            *(_block(name) for name in _BLOCKS),
            *(
                Format(name, round(10_000 * bits), 10_000, average=True, source=_LLAMA_CPP)
                for name, bits in _MIXES.items()
            ),
        )
    ),
}
"""Formats of weight matrices by name; `weight_format` also knows families such as int4-g64."""

# In the cache a "matrix" is one token's keys or values: inputs are a head's width, outputs the heads.
CACHE = {
    **PLAIN,
    **_table(
        (
            Format("fp8", 8),  # one scale per layer, which does not grow
            Format("fp8-head", 8, 1, (Scale(32),)),
            Format("int8", 8, 1, (Scale(16),)),
            Format("int8-asym", 8, 1, (Scale(16), Scale(16, what="zero point"))),
            Format("int4", 4, 1, (Scale(16),)),
            Format("int4-asym", 4, 1, (Scale(16), Scale(16, what="zero point"))),
            Format("nvfp4", 4, 1, (Scale(8, 16),)),
            *(_block(name) for name in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl")),
        )
    ),
}
"""Formats of K and V by name."""

_ALIASES = {
    "w8": "int8",
    "w4": "int4",
    "w8a16": "int8-channel",
    "w4a16": "int4-g128",
    "gptq": "gptq-int4-g128",
    "awq": "awq-int4-g128",
    "hqq": "hqq-int4-g64",
    "bnb-nf4": "nf4",
    "bnb-fp4": "fp4",
    "llm.int8": "bnb-int8",
    "smoothquant": "w8a8",
    "float8": "fp8",
    "fp8-e4m3": "fp8",
    "fp8-tensor": "fp8",
    "fp8-blockwise": "fp8-block",
}

_FAMILIES: tuple[tuple[str, Callable[[int, int | None, bool], Format]], ...] = (
    (r"int([2348])-?(?:g(\d+)|channel)(-asym)?", lambda b, g, asym: integers(b, g, zeros=asym)),
    (r"gptq-?(?:int)?([2348])-?(?:g(\d+)|channel)()", lambda b, g, _: gptq(b, g)),
    (r"awq-?(?:int)?([48])-?(?:g(\d+)|channel)()", lambda b, g, _: awq(b, g)),
    (r"hqq-?(?:int)?([2348])-?g(\d+)()", lambda b, g, _: hqq(b, g or 1)),
)


def weight_format(name: str, option: str = "--weights-dtype") -> Format:
    """The format of weight matrices called `name`; spelling is free (case, `_` for `-`).

    Raises:
        UsageError: unknown; names the closest.
    """
    if name in WEIGHTS:
        return WEIGHTS[name]
    key = _key(name)
    for prefix in ("bpw:", "gguf:"):
        rest = key.removeprefix(prefix)
        if rest != key:
            return bits_per_weight(rest) if rest[:1].isdigit() or rest[:1] in "-." else weight_format(rest, option)
    for pattern, make in _FAMILIES:
        match = re.fullmatch(pattern, key)
        if match and (match[2] is None or int(match[2])):
            return make(int(match[1]), int(match[2]) if match[2] else None, bool(match[3]))
    return _look_up(WEIGHTS, name, option)


def cache_format(name: str, option: str = "--kv-dtype") -> Format:
    """The format of K and V called `name`.

    Raises:
        UsageError: unknown; names the closest.
    """
    return _look_up(CACHE, name, option)


def _look_up(table: dict[str, Format], name: str, option: str) -> Format:
    if name in table:
        return table[name]
    known = {_key(n): f for n, f in table.items()}
    found = known.get(_key(name))
    if found is not None:
        return found
    try:
        return table[canonical(name, option)]
    except UsageError:
        import difflib

        near = difflib.get_close_matches(_key(name), known, 4, 0.6)
        others = "also int4-g64, gptq-int4-g128, bpw:4.85 and the like; " if table is WEIGHTS else ""
        raise UsageError(
            f"{option} {name!r} is not one of {', '.join(table)}",
            f"{others}{'closest: ' + ', '.join(known[n].name for n in near) if near else 'choose one of them'}.",
        ) from None


def _key(name: str) -> str:
    key = name.strip().lower().removeprefix("torch.").replace("_", "-")
    alias = _ALIASES.get(key, key)
    return alias if alias.startswith(("bpw", "gguf")) else alias.replace("_", "-")
