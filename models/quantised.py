"""What a checkpoint says about its formats, and the pieces that its readers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kernelroof.models.fields import MOST, shortened
from kernelroof.models.formats import Format
from kernelroof.models.modules import Modules


class Quantised(NamedTuple):
    """What a checkpoint says about its formats.

    linear: format of the quantised matrices (the first where there are several); None: not read, `why` says why.
    everywhere: whether it applies to all matrices of the layers; else only `rules` do.
    head: whether the output head is quantised too. kv: format of the cache, where it is fixed.
    """

    method: str
    linear: Format | None
    why: str = ""
    everywhere: bool = True
    rules: tuple[tuple[Modules, Format], ...] = ()
    excluded: Modules = Modules()
    head: bool = False
    kv: Format | None = None


class NotReadError(Exception):
    """Something in the config that no reader here knows."""


def quantised(config: Mapping[str, Any]) -> Quantised | None:
    """What the content of a config.json says about quantisation; the readers are loaded where there is something."""
    if not (config.get("quantization_config") or config.get("compression_config")):
        return None
    from kernelroof.models.quant_config import read_quantised

    return read_quantised(config)


def integer(given: Mapping[str, Any], field: str, default: int | None = None, other: str = "") -> int:
    value = given.get(field, given.get(other, default))
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotReadError(f"{field} is {shortened(value)}, not a whole number")
    return value


def extent(value: object, what: str = "group_size") -> int:
    """The size of a group or of a block's side."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise NotReadError(f"{what} is {shortened(value)}")
    return value


def extents(block: object, what: str) -> tuple[int, int]:
    """Rows and columns of a block."""
    if not isinstance(block, (list, tuple)) or len(block) != 2:
        raise NotReadError(f"{what} is {shortened(block)}, not rows and columns")
    return extent(block[0], what), extent(block[1], what)


def group_of(value: int) -> int | None:
    """A group size as checkpoints write it: -1 stands for one scale per output."""
    if value == -1:
        return None
    return extent(value)


def bits_of(value: int, allowed: tuple[int, ...]) -> int:
    if value not in allowed:
        raise NotReadError(f"{value}-bit weights (known: {', '.join(map(str, allowed))})")
    return value


def named_lists(*names: str) -> Callable[[Mapping[str, Any]], list[object]]:
    """A function that collects the lists of modules found under `names`."""

    def read(given: Mapping[str, Any]) -> list[object]:
        found: list[object] = []
        for name in names:
            value = given.get(name)
            found += [value] if isinstance(value, str) else list(value or ())
        return found

    return read


skipped = named_lists("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules")
