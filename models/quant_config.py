"""How a checkpoint says that it is quantised: `quantization_config` in config.json, modelopt's hf_quant_config.json.

One reader per quant_method. What a reader does not know is never guessed: the result then says why, and
the user is asked for --weights-dtype.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from kernelroof.models.fields import shortened
from kernelroof.models.formats import FP8, WEIGHTS, Format, Scale, awq, gptq, hqq, integers
from kernelroof.models.modules import Modules, listed, matching
from kernelroof.models.quant_schemes import compressed_tensors, modelopt
from kernelroof.models.quantised import NotReadError, Quantised, bits_of, extent, extents, group_of, integer, skipped


def read_quantised(config: Mapping[str, Any]) -> Quantised | None:
    """What `config` (the content of a config.json) says about quantisation; None: nothing."""
    given = config.get("quantization_config") or config.get("compression_config")
    if not given:
        return None
    if not isinstance(given, Mapping):
        return Quantised("unknown", None, f"quantization_config is {shortened(given)}, not an object")
    method = _method(given)
    reader = _READERS.get(method)
    if reader is None:
        shown = given.get("quant_method")
        return Quantised(method, None, f"quant_method {shortened(shown)} is not one of {', '.join(sorted(_READERS))}")
    try:
        return reader(given)._replace(method=method)
    except NotReadError as error:
        why = str(error)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        why = f"a field makes no sense ({error})"
    return Quantised(method, None, f"quant_method {method!r}: {textwrap.shorten(why, _LONGEST_REASON)}")


_LONGEST_REASON = 400
"""Characters of a reason, which may quote what the config holds."""


def with_hf_quant_config(config: dict[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a config.json with that of the hf_quant_config.json beside it put in."""
    given = beside.get("quantization")
    if not isinstance(given, Mapping) or config.get("quantization_config"):
        return config
    return {**config, "quantization_config": {"quant_method": "modelopt", **given}}


def _method(given: Mapping[str, Any]) -> str:
    method = given.get("quant_method")
    if method is None and "quant_algo" in given:
        return "modelopt"
    if method is None and (given.get("load_in_8bit") or given.get("load_in_4bit")):
        return "bitsandbytes"
    name = str(method).lower().replace("_", "-")
    return _SAME.get(name, name)


def _gptq(given: Mapping[str, Any]) -> Quantised:
    def layout(fields: Mapping[str, Any]) -> Format:
        bits = bits_of(integer(fields, "bits"), (2, 3, 4, 8))
        return gptq(bits, group_of(integer(fields, "group_size", -1)))

    off, rules = [], []
    for pattern, fields in (given.get("dynamic") or {}).items():
        if pattern.startswith("-:"):
            off.append(pattern[2:])
        else:
            rules.append((matching([pattern.removeprefix("+:")]), layout({**given, **fields})))
    dropped = matching(off)
    excluded = listed(skipped(given))
    inside = given.get("modules_in_block_to_quantize")
    if inside:
        if rules:
            raise NotReadError("modules_in_block_to_quantize together with dynamic")
        names = [n for part in inside for n in ([part] if isinstance(part, str) else part)]
        rules = [(listed(names), layout(given))]
    return Quantised(
        "",
        layout(given),
        everywhere=not inside,
        rules=tuple(rules),
        excluded=Modules(excluded.names | dropped.names, excluded.regexes + dropped.regexes),
        head=given.get("lm_head") is True,
    )


def _auto_round(given: Mapping[str, Any]) -> Quantised:
    packing = str(given.get("packing_format", "auto_round:auto_gptq"))
    if "awq" in packing:
        return _awq({"zero_point": not given.get("sym", True), **given})
    if "gptq" in packing:
        return _gptq(given)
    raise NotReadError(f"packing_format {packing!r}")


def _awq(given: Mapping[str, Any]) -> Quantised:
    bits = bits_of(integer(given, "bits", 4, "w_bit"), (4, 8))
    group = group_of(integer(given, "group_size", 128, "q_group_size"))
    return Quantised("", awq(bits, group, zeros=given.get("zero_point", True)), excluded=listed(skipped(given)))


def _fp8(given: Mapping[str, Any]) -> Quantised:
    block = given.get("weight_block_size")
    static = given.get("activation_scheme") == "static"
    if block is None:
        linear = WEIGHTS["fp8-static" if static else "fp8"]
    else:
        rows, columns = extents(block, "weight_block_size")
        linear = WEIGHTS["fp8-block"]
        if (rows, columns) != (128, 128):
            linear = Format(f"fp8-block-{rows}x{columns}", 8, 1, (Scale(32, columns, rows),), FP8)
    return Quantised("", linear, excluded=listed(skipped(given)))


def _fbgemm_fp8(given: Mapping[str, Any]) -> Quantised:
    return Quantised("", WEIGHTS["fp8-channel"], excluded=listed(skipped(given)))


def _bitsandbytes(given: Mapping[str, Any]) -> Quantised:
    if given.get("load_in_8bit") or given.get("_load_in_8bit"):
        linear = WEIGHTS["bnb-int8"]
    elif given.get("load_in_4bit") or given.get("_load_in_4bit"):
        kind = str(given.get("bnb_4bit_quant_type", "fp4"))
        if kind not in ("nf4", "fp4"):
            raise NotReadError(f"bnb_4bit_quant_type {kind!r}")
        linear = WEIGHTS[f"{kind}-dq" if given.get("bnb_4bit_use_double_quant") else kind]
    else:
        raise NotReadError("neither load_in_8bit nor load_in_4bit is true")
    return Quantised("", linear, excluded=listed(skipped(given)))


def _mxfp4(given: Mapping[str, Any]) -> Quantised:
    # Experts only, and their activations stay in 16 bit: what gpt-oss ships and transformers executes.
    linear = WEIGHTS["mxfp4-w4a16"]
    experts = matching([r".*\.experts(?:\.|$)"])
    return Quantised("", linear, everywhere=False, rules=((experts, linear),), excluded=listed(skipped(given)))


def _hqq(given: Mapping[str, Any]) -> Quantised:
    fields = (given.get("quant_config") or {}).get("weight_quant_params")
    if not isinstance(fields, Mapping):
        raise NotReadError("quant_config with settings per layer")
    bits = bits_of(integer(fields, "nbits"), (2, 3, 4, 8))
    return Quantised("", hqq(bits, extent(fields.get("group_size"))), excluded=listed([*skipped(given), "lm_head"]))


def _quanto(given: Mapping[str, Any]) -> Quantised:
    known = {
        "int8": integers(8, None),
        "float8": Format("fp8-channel-w8a16", 8, 1, (Scale(16),)),
        "int4": Format("int4-g128-asym", 4, 1, (Scale(16, 128), Scale(16, 128, what="zero point"))),
    }
    kind = str(given.get("weights"))
    if kind not in known:
        raise NotReadError(f"weights {kind!r} (known: {', '.join(known)})")
    return Quantised("", known[kind], excluded=listed(skipped(given)))


def _torchao(given: Mapping[str, Any]) -> Quantised:
    kind, fields = given.get("quant_type"), given.get("quant_type_kwargs") or {}
    if isinstance(kind, Mapping):
        inner = kind.get("default", kind)
        kind, fields = str(inner.get("_type")), inner.get("_data") or {}
    # int4_weight_only and Int4WeightOnlyConfig are one name.
    name = str(kind).replace("_", "").lower().removesuffix("config")
    group = extent(fields.get("group_size") or 128)
    four = Format(f"int4-g{group}-asym", 4, 1, (Scale(16, group), Scale(16, group, what="zero point")))
    known = {
        "int4weightonly": four,
        "int8weightonly": integers(8, None),
        "int8dynamicactivationint8weight": WEIGHTS["w8a8"],
        "float8weightonly": Format("fp8-channel-w8a16", 8, 1, (Scale(32),)),
        "float8dynamicactivationfloat8weight": WEIGHTS["fp8-channel"],
    }
    if name not in known:
        raise NotReadError(f"quant_type {kind!r}")
    return Quantised("", known[name], excluded=listed(skipped(given)))


def _eetq(given: Mapping[str, Any]) -> Quantised:
    return Quantised("", integers(8, None), excluded=listed(skipped(given)))


_SAME = {
    "gptq-marlin": "gptq",
    "gptqmodel": "gptq",
    "awq-marlin": "awq",
    "modelopt-fp4": "modelopt",
    "modelopt-mixed": "modelopt",
    "intel/auto-round": "auto-round",
}

_READERS: dict[str, Callable[[Mapping[str, Any]], Quantised]] = {
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm_fp8,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "compressed-tensors": compressed_tensors,
    "modelopt": modelopt,
    "hqq": _hqq,
    "quanto": _quanto,
    "torchao": _torchao,
    "eetq": _eetq,
}
"""How each quant_method is read; `_` and `-` are one."""
