"""The two families of checkpoints that describe formats by schemes: compressed-tensors and modelopt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernelroof.models.formats import (
    CACHE,
    FP4,
    FP8,
    INPUT_SCALE,
    INT8,
    MATRIX,
    WEIGHTS,
    Format,
    Scale,
    gptq,
    integers,
    zero_points,
)
from kernelroof.models.modules import globbed, targeted
from kernelroof.models.quantised import NotReadError, Quantised, bits_of, extent, extents, group_of, named_lists

_ACTIVATIONS = {("float", 8): FP8, ("int", 8): INT8, ("float", 4): FP4}


def compressed_tensors(given: Mapping[str, Any]) -> Quantised:
    sparsity = given.get("sparsity_config") or {}
    if isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense":
        raise NotReadError(f"sparsity_config with format {sparsity.get('format')!r}")
    groups = given.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise NotReadError("no config_groups")
    everywhere: Format | None = None
    rules = []
    for group in groups.values():
        if not group.get("weights"):
            continue
        layout = _scheme(group, str(group.get("format") or given.get("format") or ""))
        targets = [str(t) for t in group.get("targets") or ["Linear"]]
        # A class name (Linear, LlamaMLP) has no dot and starts with a capital letter.
        if any(re.fullmatch(r"[A-Z]\w*Linear|Linear", t) for t in targets):
            everywhere = layout
        else:
            rules.append((targeted(targets), layout))
    if everywhere is None and not rules:
        raise NotReadError("no group of config_groups has weights")
    ignored = targeted(given.get("ignore") or ())
    return Quantised(
        "",
        everywhere or rules[0][1],
        everywhere=everywhere is not None,
        rules=tuple(rules),
        excluded=ignored,
        head=everywhere is not None and not ignored.holds("lm_head"),
        kv=_kv(given.get("kv_cache_scheme")),
    )


def _scheme(group: Mapping[str, Any], form: str) -> Format:
    """The format of one entry of config_groups."""
    if "24" in form:
        raise NotReadError(f"format {form!r} (2:4 sparsity)")
    weights, inputs = group["weights"], group.get("input_activations") or {}
    compute = _ACTIVATIONS.get((str(inputs.get("type", "int")), int(inputs["num_bits"]))) if inputs else None
    static = bool(inputs) and not inputs.get("dynamic", False)
    kind, bits = str(weights.get("type", "int")), int(weights["num_bits"])
    if (kind, bits) == ("float", 8):
        layout = _float8(weights, compute)
    elif (kind, bits) in (("float", 4), ("float", 6)):
        return _narrow_float(bits, weights, compute)
    elif kind == "int":
        layout = _integers(weights, compute, form)
    else:
        raise NotReadError(f"weights of type {kind!r} with {bits} bits")
    return layout._replace(scales=(*layout.scales, _BF16_INPUT_SCALE)) if static else layout


_BF16_INPUT_SCALE = INPUT_SCALE._replace(bits=16)


def _float8(weights: Mapping[str, Any], compute: str | None) -> Format:
    strategy, size = str(weights.get("strategy")), weights.get("group_size")
    rows, columns = extents(weights.get("block_structure") or (128, 128), "block_structure")
    scales = {"tensor": Scale(16, None, None), "channel": Scale(16), "block": Scale(16, columns, rows)}
    if size == 32:
        return Format("mxfp8" if compute else "mxfp8-w8a16", 8, 1, (Scale(8, 32),), compute)
    if size:
        scales["group"] = Scale(16, extent(size))
    if strategy not in scales:
        raise NotReadError(f"float8 weights with strategy {strategy!r}")
    return Format(f"fp8-{strategy}" + ("" if compute else "-w8a16"), 8, 1, (scales[strategy],), compute)


def _narrow_float(bits: int, weights: Mapping[str, Any], compute: str | None) -> Format:
    size = weights.get("group_size")
    suffix = {None: f"-w{bits}a16", FP4: ""}.get(compute, "-a8")
    if size == 32:
        return Format(f"mxfp{bits}{suffix}", bits, 1, (Scale(8, 32),), compute)
    if size == 16 and bits == 4:
        scales = (Scale(8, 16), MATRIX, INPUT_SCALE) if compute else (Scale(8, 16), MATRIX)
        return Format(f"nvfp4{suffix}", 4, 1, scales, compute)
    raise NotReadError(f"float{bits} weights with group_size {size!r}")


def _integers(weights: Mapping[str, Any], compute: str | None, form: str) -> Format:
    bits = bits_of(int(weights["num_bits"]), (2, 3, 4, 5, 6, 7, 8))
    strategy = weights.get("strategy")
    size = group_of(weights.get("group_size") or -1) if strategy == "group" else None
    if strategy not in ("group", "channel", "tensor"):
        raise NotReadError(f"integer weights with strategy {strategy!r}")
    rows = None if strategy == "tensor" else 1
    scales = [Scale(16, size, rows)]
    if weights.get("symmetric") is False:
        scales.append(zero_points(bits, size)._replace(outputs=rows))
    if form == "pack-quantized":
        scales.append(Scale(128, None, None, what="shape"))
    by_operands = f"w{bits}a8" + ("-fp8" if compute == FP8 else "")
    name = by_operands if compute else integers(bits, size).name
    # Only pack-quantized packs: int-quantized keeps a byte per element, whatever its bits.
    stored = bits if form == "pack-quantized" else 8
    return Format(name, stored, 1, tuple(scales), compute)


def _kv(scheme: object) -> Format | None:
    """compressed-tensors' kv_cache_scheme, modelopt's kv_cache_quant_algo."""
    if not scheme:
        return None
    if isinstance(scheme, Mapping):
        scheme = f"{'fp' if scheme.get('type') == 'float' else 'int'}{scheme.get('num_bits')}"
    found = CACHE.get(str(scheme).lower())
    if found is None:
        raise NotReadError(f"a KV cache in {scheme!r}")
    return found


def _modelopt_layout(algo: str, given: Mapping[str, Any]) -> Format:
    group = given.get("group_size")
    pre_scale = Scale(16, 1, None, what="pre-quantisation scale")
    size = extent(group or 128)
    four = Format("int4-awq", 4, 1, (Scale(16, size), pre_scale))
    known: dict[str, Format] = {
        "FP8": WEIGHTS["fp8-static"],
        "FP8_PER_CHANNEL_PER_TOKEN": WEIGHTS["fp8-channel"],
        "FP8_BLOCK_SCALES": WEIGHTS["fp8-block"],
        "FP8_PB_WO": Format("fp8-block-w8a16", 8, 1, (Scale(32, 128, 128),)),
        "NVFP4": Format("nvfp4", 4, 1, (Scale(8, extent(group or 16)), MATRIX, INPUT_SCALE), FP4),
        "W4A16_NVFP4": WEIGHTS["nvfp4-w4a16"],
        "W4A16": integers(4, None),
        "W8A16": integers(8, None),
        "W4A16_AWQ": four,
        "W4A8_AWQ": four._replace(name="w4a8-fp8", scales=(*four.scales, MATRIX, INPUT_SCALE), compute=FP8),
        "W4A16_GPTQ": gptq(4, size),
        "W8A16_GPTQ": gptq(8, size),
        "W4A16_MXFP4": WEIGHTS["mxfp4-w4a16"],
        "MXFP8": WEIGHTS["mxfp8"],
    }
    known["NVFP4_AWQ"] = known["NVFP4"]._replace(scales=(*known["NVFP4"].scales, pre_scale))
    known["INT8_SQ"] = Format("w8a8", 8, 1, (Scale(32), INPUT_SCALE, pre_scale), INT8)
    for name in ("W4A8_MXFP4_FP8", "W4A8_MXFP4_MXFP8"):
        known[name] = WEIGHTS["mxfp4"]._replace(name="mxfp4-a8", compute=FP8)
    known["W4A8_NVFP4_FP8"] = known["NVFP4"]._replace(name="nvfp4-a8", compute=FP8)
    if algo.startswith("W8A8_SQ_PER_CHANNEL"):
        algo = "INT8_SQ"
    if algo not in known:
        raise NotReadError(f"quant_algo {algo!r} is not one of {', '.join(known)}")
    return known[algo]


def modelopt(given: Mapping[str, Any]) -> Quantised:
    algo = str(given.get("quant_algo") or "").upper()
    excluded = globbed(named_lists("exclude_modules", "ignore", "exclude")(given))
    kv = _kv(given.get("kv_cache_quant_algo") or given.get("kv_cache_scheme"))
    if algo != "MIXED_PRECISION":
        head = not excluded.holds("lm_head")
        return Quantised("", _modelopt_layout(algo, given), excluded=excluded, head=head, kv=kv)
    by_layout: dict[Format, list[object]] = {}
    for name, fields in (given.get("quantized_layers") or {}).items():
        by_layout.setdefault(_modelopt_layout(str(fields.get("quant_algo")).upper(), fields), []).append(name)
    if not by_layout:
        raise NotReadError("MIXED_PRECISION without quantized_layers")
    rules = tuple((globbed(names), layout) for layout, names in by_layout.items())
    head = any(modules.holds("lm_head") for modules, _ in rules)
    return Quantised("", rules[0][1], everywhere=False, rules=rules, excluded=excluded, head=head, kv=kv)
