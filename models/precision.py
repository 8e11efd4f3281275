"""Which format each part of a model is held in, and which matrices are left as they were."""

from __future__ import annotations

import functools
from typing import NamedTuple

from kernelroof.models.formats import PLAIN, Format, cache_format, weight_format
from kernelroof.models.modules import Modules

_ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
"""Modules that choose experts: small, sensitive, and left alone by every method."""


class Precision(NamedTuple):
    """Formats of one run.

    run: what activations, norms, biases and unquantised matrices are held in. `linear` applies to the
    layers' matrices, but not to routers nor to those in `excluded`; a rule that holds a matrix comes
    before `linear`. `table` and `head`: formats of embedding and head; None: `run`.
    """

    run: str
    linear: Format
    kv: Format
    excluded: Modules = Modules()
    rules: tuple[tuple[Modules, Format], ...] = ()
    table: Format | None = None
    head: Format | None = None

    def of(self, path: str) -> Format:
        """The format of a layer's matrix, by its module path without the model's prefix."""
        if path.rpartition(".")[2] in _ROUTERS or self.excluded.holds(path):
            return PLAIN[self.run]
        return next((f for modules, f in self.rules if modules.holds(path)), self.linear)

    @property
    def by_name(self) -> bool:
        """Whether matrices of one kind may differ between layers."""
        return bool(self.rules or self.excluded.names or self.excluded.regexes)

    @property
    def computes(self) -> bool:
        """Whether some products have both operands quantised."""
        return any(f.compute for f in (self.linear, *(f for _, f in self.rules)))

    @property
    def table_format(self) -> Format:
        return self.table or PLAIN[self.run]

    @property
    def head_format(self) -> Format:
        return self.head or PLAIN[self.run]


@functools.cache
def precision(run: str, weights: str | None = None, kv: str | None = None) -> Precision:
    """Run format, format of the layers' matrices, format of the cache, by name."""
    linear = weight_format(weights or run)
    outer = linear if linear.average else None
    return Precision(run, linear, cache_format(kv or run), table=outer, head=outer)
