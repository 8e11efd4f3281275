"""What a chip is called, and which counters belong to it: the table behind `ncu_metrics_plan`.

To add a chip is to add one entry to `CHIPS`. Names are those that `ncu --query-metrics --chips` prints.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Chip(NamedTuple):
    """One family of chips with the same counters.

    l1: the counter of NVIDIA's own L1 roofline (x 128 B).
    tensor: tensor-op counters, one for each source type, at the uppermost level, without `sm__`.
    dense: those whose `peak_sustained` is the dense peak.
    """

    l1: str
    tensor: tuple[str, ...]
    dense: tuple[str, ...]


_OPS = "ops_path_tensor_src_"
_AMPERE = ("bf16_dst_fp32", "fp16_dst_fp16", "fp16_dst_fp32", "tf32_dst_fp32", "int8", "int4")
_VOLTA_L1 = "l1tex__lsu_writeback_active"
_L1 = "l1tex__lsu_writeback_active_mem_lg"


def _plain(*types: str) -> tuple[str, ...]:
    return tuple(f"{_OPS}{t}" for t in types)


def _off(*types: str) -> tuple[str, ...]:
    return tuple(f"{_OPS}{t}_sparsity_off" for t in types)


_TURING = _plain("fp16_bf16_tf32_dst_fp32", "fp16_dst_fp16", "int8", "int4")
_VOLTA = _plain("fp16_dst_fp16", "fp16_dst_fp32")
_GA = Chip(_L1, _plain(*_AMPERE, "fp64"), (*_off(*_AMPERE), *_plain("fp64")))
_HOPPER_DENSE = tuple(
    f"ops_path_tensor_op_{op}_src_{t}_sparsity_off"
    for op, t in (("hgmma", "bf16_dst_fp32"), ("hgmma", "fp16"), ("hgmma", "tf32_dst_fp32"), ("igmma", "int8"))
)

CHIPS = {
    "gv100": Chip(_VOLTA_L1, _VOLTA, _VOLTA),
    "tu102": Chip(_L1, _TURING, _TURING),
    "ga100": _GA,
    "ga102": _GA,
    "ad102": Chip(_L1, (*_GA.tensor, *_plain("fp8")), (*_GA.dense, *_off("fp8"))),
    "gh100": Chip(
        "l1tex__lsu_writeback_active_mem_lgds",
        _plain("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp8", "int8", "fp64"),
        (*_HOPPER_DENSE, *_off("fp8"), *_plain("fp64")),
    ),
}

_BY_CC = {
    "7.0": "gv100",
    "7.2": "gv11b",
    "7.5": "tu102",
    "8.0": "ga100",
    "8.6": "ga102",
    "8.7": "ga10b",
    "8.9": "ad102",
    "9.0": "gh100",
    "10.0": "gb100",
    "10.3": "gb110",
    "12.0": "gb202",
    "12.1": "gb20b",
}
_BY_NAME = (
    (re.compile(r"\bTesla T4\b|\bT4\b|RTX 20[78]0(?! Ti)"), "7.5", "tu104"),
    (re.compile(r"RTX 2060"), "7.5", "tu106"),
    (re.compile(r"GTX 16"), "7.5", "tu116"),
    (re.compile(r"RTX 3070|RTX A4000"), "8.6", "ga104"),
    (re.compile(r"RTX 3060|RTX A2000"), "8.6", "ga106"),
    (re.compile(r"RTX 3050|\bA2\b"), "8.6", "ga107"),
    (re.compile(r"RTX 4080"), "8.9", "ad103"),
    (re.compile(r"\bL4\b|RTX 4070"), "8.9", "ad104"),
    (re.compile(r"RTX 4060"), "8.9", "ad106"),
)


def chip_of(cc: str, name: str = "") -> str:
    """ncu's name of a chip; "" where none is known.

    Args:
        cc: compute capability, such as "8.0".
        name: device name; it tells members of a family apart, all of which have the same counters.
    """
    for pattern, of, chip in _BY_NAME:
        if of == cc and pattern.search(name):
            return chip
    return _BY_CC.get(cc, "")


def family_of(chip: str) -> str:
    """The entry of `CHIPS` that has this chip's counters; "" where there is none."""
    if chip in CHIPS:
        return chip
    for prefix, family in (("tu1", "tu102"), ("ga10", "ga102"), ("ad10", "ad102"), ("gv1", "gv100")):
        if chip.startswith(prefix):
            return family
    return ""
