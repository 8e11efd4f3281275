"""What safetensors files hold, from their headers alone: names, dtypes, shapes, bytes. No torch, no weights read.

A file starts with the length of a JSON object in 8 bytes (little-endian) and the object itself, which
gives each tensor's dtype, shape and place in the rest of the file.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, NamedTuple

from kernelroof.models.errors import ConfigError
from kernelroof.models.fields import shortened

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}

_LONGEST = 100_000_000
"""Bytes of a header: the limit that the format itself sets."""

INDEX = "model.safetensors.index.json"


class Tensor(NamedTuple):
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def checkpoint_files(folder: str) -> list[str]:
    """Paths of the safetensors files of a checkpoint folder; empty where it has none.

    Raises:
        ConfigError: an index that can't be read, or that names files which are not there.
    """
    index = os.path.join(folder, INDEX)
    if os.path.isfile(index):
        names = sorted({str(f) for f in _index(index).values()})
        odd = [n for n in names if os.path.basename(n) != n]
        if odd:
            raise ConfigError(f"{index} names {odd[0]!r}, which is no file of its folder", "Download the index again.")
        missing = [n for n in names if not os.path.isfile(os.path.join(folder, n))]
        if len(missing) == len(names):
            return []
        if missing:
            raise ConfigError(
                f"{len(missing)} of the {len(names)} files in {index} are missing, {missing[0]} among them",
                "Complete the download.",
            )
        return [os.path.join(folder, n) for n in names]
    single = os.path.join(folder, "model.safetensors")
    if os.path.isfile(single):
        return [single]
    try:
        names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
    except OSError:
        return []
    return [os.path.join(folder, n) for n in names if not n.startswith(("consolidated", "adapter_"))]


def read_headers(paths: list[str]) -> list[Tensor]:
    """All tensors of these files.

    Raises:
        ConfigError: a file that is no safetensors file, is cut short, or repeats a tensor of another.
    """
    found: dict[str, Tensor] = {}
    for path in paths:
        for tensor in read_header(path):
            if tensor.name in found:
                raise ConfigError(f"{path} holds {tensor.name} again", "Leave one checkpoint in the folder.")
            found[tensor.name] = tensor
    return list(found.values())


def read_header(path: str) -> list[Tensor]:
    """The tensors of one file.

    Raises:
        ConfigError: not a safetensors file, or cut short.
    """
    try:
        if not os.path.isfile(path):
            # A pipe would be waited for, a folder can't be read.
            raise ConfigError(f"{path} is no regular file", "Download it again.")
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if start == b"version ":
                raise ConfigError(f"{path} is a Git LFS pointer, not the file itself", "Fetch it (git lfs pull).")
            if len(start) < 8 or not 2 <= length <= min(_LONGEST, size - 8):
                raise ConfigError(f"{path} is no safetensors file, or is cut short", "Download it again.")
            content = json.loads(file.read(length), object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: its header is not JSON ({error})", "Download it again.") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror})", "Check its permissions.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: its header is no JSON object", "Download it again.")
    tensors, spans = [], []
    for name, entry in content.items():
        if name == "__metadata__":
            continue
        tensor, span = _tensor(path, name, entry)
        tensors.append(tensor)
        spans.append(span)
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise ConfigError(f"{path}: the header's tensors overlap or leave a hole", "Download it again.")
        end = last
    if 8 + length + end != size:
        raise ConfigError(f"{path} has {size} bytes, and its header describes {8 + length + end}", "Download it again.")
    return tensors


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the header, whose names must differ."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _tensor(path: str, name: str, entry: Any) -> tuple[Tensor, tuple[int, int]]:
    try:
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        first, last = entry["data_offsets"]
        stored = last - first
        # Not 1.0 and not true, which compare like whole numbers.
        right = all(type(n) is int and n >= 0 for n in (*shape, first, last))
        right = right and stored * 8 == math.prod(shape) * _BITS[dtype]
    except (LookupError, TypeError, ValueError):
        right = False
    if not right:
        raise ConfigError(
            f"{path}: the header's entry of {shortened(name)} makes no sense: {shortened(entry, 200)}",
            "Download it again.",
        )
    return Tensor(name, dtype, shape, stored), (first, last)


def _index(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        files: dict[str, Any] = content["weight_map"]
        if not isinstance(files, dict):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ConfigError(f"{path} is no index of safetensors files", "Download it again.") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror})", "Check its permissions.") from None
    return files
