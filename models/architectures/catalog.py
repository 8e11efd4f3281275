"""Which causal-LM architectures the installed transformers has, and since when."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import NamedTuple

_YEAR = re.compile(r"Copyright\D{0,40}?(20\d\d)")
_HEADER_CHARS = 2000


class Architecture(NamedTuple):
    """One entry of transformers' table of causal LMs."""

    model_type: str
    class_name: str
    since: int | None
    """The last year in the copyright lines of its modeling file, which is when it came in or a little later."""


def architectures(only: str = "*") -> list[Architecture]:
    """The entries whose model_type matches a pattern of the shell, or contains it, in transformers' order."""
    from transformers.models.auto.configuration_auto import model_type_to_module_name
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found = []
    for model_type, names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        if fnmatch.fnmatchcase(model_type, only) or only in model_type:
            name = names if isinstance(names, str) else names[0]
            found.append(Architecture(model_type, name, _since(model_type_to_module_name(model_type))))
    return found


def _since(module: str) -> int | None:
    import transformers

    folder = Path(transformers.__file__).parent / "models" / module
    headers = [p.read_text(encoding="utf-8", errors="replace")[:_HEADER_CHARS] for p in folder.glob("modeling_*.py")]
    years = [int(year) for header in headers for year in _YEAR.findall(header)]
    return max(years, default=None)
