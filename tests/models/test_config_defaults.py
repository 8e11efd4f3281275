"""A field that a config leaves out means what the config class of transformers puts there."""

import json
import runpy
from pathlib import Path

import pytest
from kernelroof.models import hf
from kernelroof.models.architectures.completions import complete
from kernelroof.models.errors import KernelroofError
from kernelroof.models.families import FAMILIES
from kernelroof.models.spec import read_spec
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

ROOT = Path(__file__).parents[2]
PER_LAYER = ("layer_types", "mlp_layer_types", "layers_block_type", "per_layer_config", "indexer_types", "moe_layers")
KNOWN = sorted(m for m in FAMILIES if m in CONFIG_MAPPING_NAMES and m != "glm4_moe")


def read(config):
    spec = read_spec(config)
    return spec._replace(name="", notes=(), dtype="", model_type="", tower=None)


def as_class_sees(config):
    return {**hf.config_object(config).to_dict(), "model_type": config["model_type"]}


def test_the_table_is_what_the_script_makes():
    script = runpy.run_path(str(ROOT / "scripts" / "config_defaults.py"))
    table = json.loads((ROOT / "models" / "config_defaults.json").read_text())
    fields = script["asked_fields"]()
    assert table == {m: script["defaults_of"](m, fields) for m in table}


@pytest.mark.parametrize("model_type", KNOWN)
def test_fields_left_out(model_type):
    """One field at a time, and all lists with an entry per layer: the same model, or an error that names a field."""
    whole, _ = complete(model_type)
    full = read(whole)
    shorter = [{k: v for k, v in whole.items() if k != left_out} for left_out in whole]
    shorter.append({k: v for k, v in whole.items() if k not in PER_LAYER})
    for config in shorter:
        try:
            mine = read(config)
        except KernelroofError:
            continue
        if mine == full:
            continue
        try:
            theirs = read(as_class_sees(config))
        except KernelroofError:
            continue
        left_out = sorted(set(whole) - set(config))
        assert mine._replace(max_positions=None) == theirs._replace(max_positions=None), left_out
