"""The GPU table: datasheet peaks and memory per product variant, and looking one up by name.

The figures are data (`gpus.csv`, one row per variant): adding a GPU is adding a line. Conventions:

- peaks are dense (vendors often print sparse ones, twice as high) and a fused multiply-add is 2 FLOP;
- FP16, BF16 and FP8 are tensor rates with FP32 accumulation, as matrix libraries run them;
- FP32 is the plain (non-tensor) rate;
- GB is 10^9 bytes as the vendors write it (the driver of an «80GB» card reports up to 7 % more bytes);
- an empty cell means that the GPU lacks the format or that no figure could be found: never a guess.

Nothing heavy is imported, and the file is read only when asked: the estimate command must start at once.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from typing import NamedTuple

from kernelroof.models.errors import ReportError, UnknownGpuError, UsageError
from kernelroof.roofline.ceilings import Ceilings

TABLE_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpus.csv")

OWN_FIGURES_HINT = "or give its own figures, such as --peak-tflops 312 --bandwidth-gbs 2039 --memory-gb 80"

# Words that makers and drivers put around a model name and that no two variants differ by.
BRAND_WORDS = frozenset({"nvidia", "geforce", "tesla"})

# What people and torch call each format -> column of the table.
DTYPE_COLUMNS = {
    "float32": "fp32_flop_s",
    "fp32": "fp32_flop_s",
    "tf32": "tf32_flop_s",
    "float16": "fp16_flop_s",
    "fp16": "fp16_flop_s",
    "half": "fp16_flop_s",
    "bfloat16": "bf16_flop_s",
    "bf16": "bf16_flop_s",
    "fp8": "fp8_flop_s",
    "float8_e4m3fn": "fp8_flop_s",
    "float8_e5m2": "fp8_flop_s",
    "int8": "int8_ops_s",
    "fp4": "fp4_flop_s",
    "nvfp4": "fp4_flop_s",
}

# Formats that only weights are stored in: kernels unpack them and multiply in the compute dtype.
WEIGHT_ONLY_DTYPES = frozenset({"int4", "uint4", "nf4"})


class Gpu(NamedTuple):
    """One variant of one product. Rates are dense, per second; None where unknown or not supported."""

    key: str
    """short name, such as `a100-80gb-pcie`"""
    product: str
    """name that the driver (nvidia-smi, torch.cuda.get_device_name) reports"""
    aliases: tuple[str, ...]
    cc: str
    """compute capability, such as `9.0`"""
    memory_bytes: int
    byte_s: float
    l2_bytes: int | None
    fp32_flop_s: float | None
    tf32_flop_s: float | None
    fp16_flop_s: float | None
    bf16_flop_s: float | None
    fp8_flop_s: float | None
    int8_ops_s: float | None
    fp4_flop_s: float | None
    checked: bool
    """whether the figures were compared with a stored copy or transcription of the vendor's table"""
    source: str
    note: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every name this variant answers to."""
        return (self.key, self.product, *self.aliases)


def list_gpus() -> list[Gpu]:
    """Return every variant of the table, in its order.

    Raises:
        ReportError: the table is missing or a cell is not a number; the message names line and column.
    """
    try:
        with open(TABLE_PATH, encoding="utf-8", newline="") as file:
            return [_gpu(row, line) for line, row in enumerate(csv.DictReader(file), start=2)]
    except OSError as error:
        raise ReportError(
            f"the GPU table {TABLE_PATH} can't be read ({error.strerror})", "Install kernelroof again."
        ) from error


def find_gpu(name: str) -> Gpu:
    """Return the one variant called `name`: a key, an alias or a driver's product name.

    Spelling is free (case, spaces, hyphens, maker's names); the model is not: nothing is matched by
    similarity, so an H200 is never taken for an H100, nor a laptop part for a desktop card.

    Raises:
        UnknownGpuError: no variant, or more than one, has that name; lists what it may mean.
    """
    gpus = list_gpus()
    wanted = _spelling(name)
    matches = [gpu for gpu in gpus if any(_spelling(known) == wanted for known in gpu.names)]
    if wanted and len(matches) == 1:
        return matches[0]
    variants = matches or [gpu for gpu in gpus if _may_mean(name, gpu)]
    if variants:
        raise UnknownGpuError(
            f"GPU {name!r} does not name one variant; it may mean {_keys(variants)}",
            f"Name the variant, {OWN_FIGURES_HINT}.",
        )
    near = _closest(wanted, gpus)
    nearest = f"; the closest names are {_keys(near)}" if near else ""
    raise UnknownGpuError(
        f"GPU {name!r} is not in the table, which holds NVIDIA's{nearest}",
        f"List the table with `kernelroof gpus`, {OWN_FIGURES_HINT}.",
    )


def known_gpu(name: str) -> Gpu | None:
    """The variant called `name`, see `find_gpu`; None where the table does not tell which."""
    try:
        return find_gpu(name)
    except UnknownGpuError:
        return None


def peak_for(gpu: Gpu, dtype: str) -> float:
    """Return the dense peak of `gpu` for products in `dtype`, in FLOP/s (operations/s for int8).

    float32 means the plain FP32 units: torch leaves TF32 off by default, so TF32 has its own name (tf32).

    Raises:
        UsageError: a name that is no compute format, or a format without a figure for this GPU.
    """
    name = dtype.lower().removeprefix("torch.")
    if name in WEIGHT_ONLY_DTYPES:
        raise UsageError(
            f"{dtype} is a format for stored weights, which are multiplied in another one",
            "Ask for the peak of the compute dtype, such as bfloat16.",
        )
    column = DTYPE_COLUMNS.get(name)
    if column is None:
        raise UsageError(f"unknown dtype {dtype!r} for a peak", f"Use one of {', '.join(DTYPE_COLUMNS)}.")
    peak: float | None = getattr(gpu, column)
    if peak is None:
        raise UsageError(
            f"the GPU table has no {dtype} peak for {gpu.product}, which lacks the format or whose maker "
            "publishes no figure",
            "Choose another dtype, or give the peak, such as --peak-tflops 312.",
        )
    return peak


def quantised_peaks(gpu: Gpu) -> dict[str, float]:
    """Dense peaks of `gpu` for products of quantised operands, by class; those that the table has."""
    known = {"fp8": gpu.fp8_flop_s, "int8": gpu.int8_ops_s, "fp4": gpu.fp4_flop_s}
    return {kind: peak for kind, peak in known.items() if peak is not None}


def ceilings_for(gpu: Gpu, dtype: str) -> Ceilings:
    """Return the datasheet ceilings of `gpu` for `dtype`; errors as for `peak_for`.

    The bandwidth of the L2 cache is on no datasheet and stays None.
    """
    return Ceilings(
        name=gpu.product,
        flop_s=peak_for(gpu, dtype),
        byte_s=gpu.byte_s,
        cache_byte_s=None,
        dtype=dtype,
        origin="datasheet",
        memory_bytes=gpu.memory_bytes,
        note=_ceilings_note(gpu, dtype),
    )


def datasheet_roof(name: str, dtype: str) -> tuple[float, float] | None:
    """Compute peak (FLOP/s) and bandwidth (B/s) of a GPU by the name that its driver reports; None if not known."""
    gpu = known_gpu(name)
    if gpu is None:
        return None
    try:
        return peak_for(gpu, dtype), gpu.byte_s
    except UsageError:
        return None


def _ceilings_note(gpu: Gpu, dtype: str) -> str:
    parts = [gpu.source, gpu.note]
    if DTYPE_COLUMNS.get(dtype.lower().removeprefix("torch.")) == "fp32_flop_s":
        parts.append("float32 without tensor cores: torch leaves TF32 off by default")
    return "; ".join(part for part in parts if part)


def _gpu(row: dict[str, str], line: int) -> Gpu:
    def rate(column: str) -> float | None:
        text = row[column]
        try:
            return float(text) if text else None
        except ValueError:
            raise ReportError(
                f"the GPU table {TABLE_PATH}, line {line}: {column} is {text!r}, not a number",
                "Correct the line.",
            ) from None

    def required(column: str) -> float:
        value = rate(column)
        if value is None:
            raise ReportError(f"the GPU table {TABLE_PATH}, line {line}: {column} is empty", "Complete the line.")
        return value

    l2_bytes = rate("l2_bytes")
    return Gpu(
        key=row["key"],
        product=row["product"],
        aliases=tuple(alias for alias in row["aliases"].split(";") if alias),
        cc=row["cc"],
        memory_bytes=round(required("memory_bytes")),
        byte_s=required("byte_s"),
        l2_bytes=None if l2_bytes is None else round(l2_bytes),
        fp32_flop_s=rate("fp32_flop_s"),
        tf32_flop_s=rate("tf32_flop_s"),
        fp16_flop_s=rate("fp16_flop_s"),
        bf16_flop_s=rate("bf16_flop_s"),
        fp8_flop_s=rate("fp8_flop_s"),
        int8_ops_s=rate("int8_ops_s"),
        fp4_flop_s=rate("fp4_flop_s"),
        checked=row["checked"] == "yes",
        source=row["source"],
        note=row["note"],
    )


def _words(name: str) -> list[str]:
    """Return the lower-case words of a name without the brand words: «NVIDIA A100-PCIE-40GB» has 3."""
    for separator in "-_/,":
        name = name.replace(separator, " ")
    return [word for word in name.lower().split() if word not in BRAND_WORDS]


def _spelling(name: str) -> str:
    """Return the form in which two spellings of one name are equal."""
    return "".join(_words(name))


def _may_mean(name: str, gpu: Gpu) -> bool:
    """Return whether `name` is a shorter form of one of the names of `gpu` (all its words are in it)."""
    words = set(_words(name))
    return bool(words) and any(words <= set(_words(known)) for known in gpu.names)


def _closest(wanted: str, gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return up to three variants whose names look most like `wanted`, for a message only."""
    import difflib  # only needed for an error message

    by_spelling = {_spelling(known): gpu for gpu in gpus for known in gpu.names}
    near: dict[str, Gpu] = {}
    for spelling in difflib.get_close_matches(wanted, by_spelling, n=6, cutoff=0.6):
        gpu = by_spelling[spelling]
        near[gpu.key] = gpu
    return list(near.values())[:3]


def _keys(gpus: Iterable[Gpu]) -> str:
    return ", ".join(gpu.key for gpu in gpus)
