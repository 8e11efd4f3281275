"""The table of model types: what their code fixes. Everything else is read from the config's fields.

Sizes here were compared with the meta module of every row (`tests/models/test_families.py`).
Defaults are those of the config classes of transformers 5.24, and only where a config may leave the
field out.
"""

from __future__ import annotations

from kernelroof.models.families_dense import DENSE
from kernelroof.models.families_sparse import SPARSE
from kernelroof.models.family import Family

FAMILIES: dict[str, Family] = {**DENSE, **SPARSE}
