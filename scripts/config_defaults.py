"""Print what the config classes of the installed transformers put where a config leaves a field out, as JSON.

`models/config_defaults.json` is this script's output for the model types of `kernelroof.models.families`
and the fields that the readers ask for. Sizes that every config must give are left out.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from kernelroof.models.families import FAMILIES
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

MODELS = Path(__file__).parents[1] / "models"
READERS = ("*_kinds.py", "layer_types.py", "famil*.py", "spec.py", "towers.py", "unknown.py", "mlp_kinds.py")
REQUIRED = frozenset(
    {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"}
    | {"max_position_embeddings", "is_decoder", "model_type", "dtype"}
)


def asked_fields() -> frozenset[str]:
    """Every word in quotes in the readers: a superset of the fields they ask for."""
    texts = [path.read_text() for glob in READERS for path in MODELS.glob(glob)]
    return frozenset(w for text in texts for w in re.findall(r'"([A-Za-z_0-9]+)"', text)) - REQUIRED


def defaults_of(model_type: str, fields: frozenset[str]) -> dict[str, Any]:
    """Simple values that the config class of a model type gives to fields that a config leaves out."""
    found = {}
    aliases = frozenset(FAMILIES[model_type].aliases.values())
    needed = {a for f, a in FAMILIES[model_type].aliases.items() if f in REQUIRED}
    for field in dataclasses.fields(CONFIG_MAPPING[model_type]):
        simple = isinstance(field.default, (int, str)) and (field.name in fields or field.name in aliases)
        if simple and field.name not in REQUIRED | needed:
            found[field.name] = field.default
    return found


def main() -> None:
    fields = asked_fields()
    known = [m for m in sorted(FAMILIES) if m in CONFIG_MAPPING]
    print("{")
    lines = [f'  "{m}": {json.dumps(defaults_of(m, fields))}' for m in known]
    print(",\n".join(lines))
    print("}")


if __name__ == "__main__":
    main()
