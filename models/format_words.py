"""The formats of a run in words: what is held how, and at which peak products are computed."""

from __future__ import annotations

from collections.abc import Mapping

from kernelroof.models.formats import Format
from kernelroof.models.precision import Precision
from kernelroof.models.quantised import Quantised


def weight_words(held: Precision, name: str, checkpoint: Quantised | None) -> str:
    """How weights are held, and which are left out."""
    if name == held.run and not held.by_name:
        return name
    form = _named(held, name)
    if form.average:
        return f"table, head and all matrices in {name}: {form.words()}; an approximation; norms in {held.run}"
    rest = "" if held.head else ", head"
    if held.linear.name == name:
        words = f"linears of the layers in {name}: {form.words()}; embedding{rest}, norms, biases and expert routers"
    else:
        words = f"only the matrices that the checkpoint names in {name}: {form.words()}; all others"
    words += f" in {held.run}"
    others = sorted({f.name for _, f in held.rules} - {name, held.run})
    if others:
        words += f"; some matrices in {', '.join(others)}"
    if checkpoint is not None and checkpoint.linear is not None:
        words += f"; which matrices: as in the checkpoint's quantization_config ({checkpoint.method})"
        if name != checkpoint.linear.name:
            words += f", whose own format is {checkpoint.linear.name}"
    elif name == "int4":
        words += " (int4-g128 and the like count them)"
    return words


def cache_words(kv: Format, run: str) -> str:
    """How K and V are held."""
    if kv.name == run:
        return run
    if kv.name == "fp8":
        return "fp8: 8 bits; its scale is one per layer and not counted"
    return f"{kv.name}: {kv.words().replace('per output', 'per token and head')}"


def compute_words(
    held: Precision, classes: tuple[tuple[str, int], ...], flop_s: float | None, peaks: Mapping[str, float]
) -> str:
    """At which peak products are computed."""
    run = held.run
    if not classes:
        words = f"products computed in {run} at its dense peak"
        narrow = held.linear.bits < 16 * held.linear.elements or any(f.bits < 16 * f.elements for _, f in held.rules)
        return f"{words}; packed weights are read once and unpacked on the way (weight-only)" if narrow else words
    names = " and ".join(kind.upper() for kind, _ in classes)
    if flop_s is None:
        return (
            f"products of quantised linears in {names} on a GPU that has such a peak, else unpacked and computed in "
            f"{run}; attention and head in {run}"
        )
    parts = []
    for kind, _ in classes:
        if kind in peaks:
            unit = "TOP/s" if kind == "int8" else "TFLOP/s"
            parts.append(f"products of quantised linears at {_tera(peaks[kind])} {unit} ({kind.upper()})")
        else:
            parts.append(
                f"no {kind.upper()} peak known for this device: quantised linears are unpacked and computed in {run} "
                f"(weight-only)"
            )
    return f"{'; '.join(parts)}, attention and head at {_tera(flop_s)} ({run}); dense peaks"


def _named(held: Precision, name: str) -> Format:
    return next((f for _, f in held.rules if f.name == name), held.linear)


def _tera(flop_s: float) -> str:
    return f"{flop_s / 1e12:.4g}"
