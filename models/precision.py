"""How weights and cache are stored: bits per element, scales and zeros, and which matrices are left out."""

from __future__ import annotations

import fnmatch
import functools
from typing import NamedTuple

from kernelroof.models.dtypes import BITS


class Format(NamedTuple):
    """Storage of a matrix: `bits` per element, and per group of elements a scale and a zero point.

    group: elements along the inputs that share a scale; 0: no scales; None: one per output channel.
    """

    name: str
    bits: int
    group: int | None = 0
    scale_bits: int = 0
    zero_bits: int = 0

    def matrix_bytes(self, inputs: int, outputs: int) -> int:
        """Bytes of a matrix [inputs, outputs]."""
        bits = inputs * outputs * self.bits
        if self.group != 0:
            groups = 1 if self.group is None else -(-inputs // self.group)
            bits += groups * outputs * (self.scale_bits + self.zero_bits)
        return (bits + 7) // 8


class Precision(NamedTuple):
    """Formats of one run.

    run: what activations, norms and biases are held in. `linear` applies to the layers' matrices
    except those whose path matches a pattern in `excluded` (as in a checkpoint's
    modules_to_not_convert), which are held in `run`, as are table and head.
    """

    run: str
    linear: Format
    kv: Format
    excluded: tuple[str, ...] = ()

    def of(self, path: str) -> Format:
        """The format of a layer's matrix, by its module path without the model's prefix."""
        return plain(self.run) if any(fnmatch.fnmatch(path, p) for p in self.excluded) else self.linear


@functools.cache
def plain(dtype: str) -> Format:
    """A format without scales."""
    return Format(dtype, BITS[dtype])


@functools.cache
def precision(run: str, weights: str | None = None, kv: str | None = None) -> Precision:
    """Run format, format of the layers' matrices, format of the cache, by name."""
    return Precision(run, plain(weights or run), plain(kv or run))
