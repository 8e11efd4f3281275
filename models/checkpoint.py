"""A checkpoint's own figures beside the closed form: parameters of packed tensors, stored bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kernelroof.models.coefficients import coefficients
from kernelroof.models.errors import ConfigError
from kernelroof.models.precision import precision
from kernelroof.models.safetensors_headers import Tensor, checkpoint_files, read_headers
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import make_workload, precision_of

# What stands beside a packed matrix and holds no parameter of the model.
_COMPANIONS = frozenset(
    """qzeros scales g_idx weight_scale weight_scale_inv weight_scale_2 weight_global_scale weight_zero_point
    weight_shape weight_g_idx input_scale input_global_scale input_zero_point output_scale pre_quant_scale
    k_scale v_scale q_scale kv_scale SCB weight_format absmax nested_absmax quant_map nested_quant_map
    inv_freq scale zero""".split()
)

_ELSEWHERE = re.compile(r"vision|visual|audio|image|multi_modal|mm_projector|(?:^|\.)mtp")
_DIGITS = 9
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


class Stored(NamedTuple):
    """Sums over tensors. companion_bytes: scales, zero points, indices, tables, which are no parameters."""

    tensors: int = 0
    parameters: int = 0
    stored_bytes: int = 0
    companion_bytes: int = 0


def stored_sums(tensors: Iterable[Tensor], bits: int) -> Stored:
    """What these tensors hold; `bits`: per element of matrices packed in int32 whose shape does not tell."""
    by_name = {t.name: t for t in tensors}
    parameters = companions = 0
    for tensor in by_name.values():
        if _is_companion(tensor.name, by_name):
            companions += tensor.stored_bytes
        else:
            parameters += _parameters(tensor, by_name, bits)
    return Stored(len(by_name), parameters, sum(t.stored_bytes for t in by_name.values()), companions)


def _is_companion(name: str, by_name: Mapping[str, Tensor]) -> bool:
    last = name.rpartition(".")[2]
    if last in _COMPANIONS or ".quant_state." in name:
        return True
    return last.endswith("_scales") and f"{name.removesuffix('_scales')}_blocks" in by_name


def _parameters(tensor: Tensor, by_name: Mapping[str, Tensor], bits: int) -> int:
    """Elements of the matrix that a tensor holds, packed or not."""
    module, _, last = tensor.name.rpartition(".")
    if last == "qweight" and tensor.dtype == "I32" and len(tensor.shape) == 2:
        scales, index = by_name.get(f"{module}.scales"), by_name.get(f"{module}.g_idx")
        if index is not None:  # GPTQ packs along the inputs
            return index.elements * tensor.shape[-1]
        if scales is not None and scales.shape and scales.shape[-1] != tensor.shape[-1]:  # AWQ packs along the outputs
            return tensor.shape[0] * scales.shape[-1]
        return tensor.elements * 32 // bits
    if tensor.dtype == "I32" and last == "weight_packed":
        return tensor.elements * 32 // bits
    if tensor.dtype != "U8":
        return tensor.elements
    beside = {
        n
        for n in ("weight.absmax", "weight_scale", "weight_scale_2", "weight_global_scale", "scale")
        if f"{module}.{n}" in by_name
    }
    pairs = last in ("weight_packed", "W_q") or last.endswith("_blocks") or (last == "weight" and beside)
    return tensor.elements * 2 if pairs else tensor.elements


def split(tensors: Iterable[Tensor], layers: int) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors of the language model, and others: vision or audio parts, layers for predicting further tokens."""
    own: list[Tensor] = []
    others: list[Tensor] = []
    for tensor in tensors:
        layer = _LAYER.search(tensor.name)
        # More digits than any model's last layer has are beyond it without being converted.
        beyond = layer is not None and (len(layer[1]) > _DIGITS or int(layer[1]) >= layers)
        (others if beyond or _ELSEWHERE.search(tensor.name) else own).append(tensor)
    return own, others


def checkpoint_record(folder: str, spec: ModelSpec) -> dict[str, Any] | None:
    """What the safetensors files in `folder` hold beside the closed form, in figures and words.

    None where there are no such files. Files that can't be read are said, and not compared.
    """
    try:
        paths = checkpoint_files(folder)
        if not paths:
            return None
        own, others = split(read_headers(paths), spec.layers)
    except ConfigError as error:
        return {"folder": folder, "agrees": None, "words": [f"not compared: {error}"]}
    quantised = spec.quantised.linear if spec.quantised is not None else None
    bits = quantised.bits if quantised is not None and quantised.elements == 1 else 4
    held, rest = stored_sums(own, bits), stored_sums(others, bits)
    known = spec.quantised is None or quantised is not None
    asked = precision(spec.dtype)
    if known:
        asked = precision_of(spec, make_workload(spec, prompt=1, output=1))
    closed = coefficients(spec, asked)
    closed_bytes = closed.weight_bytes if known else None
    agrees = held.parameters == closed.parameters and closed_bytes in (None, held.stored_bytes)
    return {
        "folder": folder,
        "files": len(paths),
        "tensors": held.tensors + rest.tensors,
        "parameters": held.parameters,
        "stored_bytes": held.stored_bytes,
        "companion_bytes": held.companion_bytes,
        "other_parameters": rest.parameters,
        "other_bytes": rest.stored_bytes,
        "closed_form_parameters": closed.parameters,
        "closed_form_bytes": closed_bytes,
        "agrees": agrees,
        "words": _words(len(paths), held, rest, closed.parameters, closed_bytes),
    }


def _words(files: int, held: Stored, rest: Stored, parameters: int, size: int | None) -> list[str]:
    lines = [
        f"{held.tensors:,} tensors in {files} {'file' if files == 1 else 'files'}: {held.parameters:,} parameters, "
        f"{held.stored_bytes:,} B stored"
        + (f", {held.companion_bytes:,} B of them scales, zero points and tables" if held.companion_bytes else "")
    ]
    differences = []
    for what, stored, computed in (("parameters", held.parameters, parameters), ("B", held.stored_bytes, size)):
        if computed is not None and computed != stored:
            gap = stored - computed
            differences.append(f"{computed:,} {what} ({gap:+,}, {100 * gap / computed:+.3g} % in the files)")
    lines.append(f"the closed form says otherwise: {'; '.join(differences)}" if differences else "as the closed form")
    if rest.tensors:
        lines.append(
            f"besides, outside the language model's layers: {rest.parameters:,} parameters, {rest.stored_bytes:,} B"
        )
    return lines
