"""Sizes of public models: equal to the sum over the meta module, and to the digits that were published.

Publishers count "active" parameters differently; each row says how. `total` and `active` are billions as
published; `without` is what the publisher leaves out of the active ones.
"""

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest
from kernelroof.models import hf
from kernelroof.models.coefficients import coefficients
from kernelroof.models.errors import ConfigError
from kernelroof.models.precision import precision
from kernelroof.models.spec import read_spec
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

CONFIGS = Path(os.environ.get("KERNELROOF_SHARED", Path(__file__).parents[3] / "shared")) / "configs"
pytestmark = pytest.mark.skipif(not CONFIGS.is_dir(), reason="the folder of real configs is not here")


class Published(NamedTuple):
    file: str
    total: str
    active: str
    without: str
    kv_bytes: int  # per token in bf16, by hand from the config: layers that attend x width kept x 2 B
    source: str


TABLE_ROWS = "embedding"
PUBLISHED = [
    Published("meta-llama--Meta-Llama-3.1-405B", "405.9", "405.9", "", 126 * 2 * 8 * 128 * 2, "model card: 405B"),
    Published("meta-llama--Meta-Llama-3.1-8B", "8.03", "8.03", "", 32 * 2 * 8 * 128 * 2, "model card: 8.03B"),
    Published("mistralai--Mixtral-8x7B-v0.1", "46.7", "12.9", "", 32 * 2 * 8 * 128 * 2, "Mistral: 46.7B, uses 12.9B"),
    Published("mistralai--Mixtral-8x22B-v0.1", "141", "39", "", 56 * 2 * 8 * 128 * 2, "Mistral: 141B, 39B active"),
    Published("Qwen--Qwen3-30B-A3B", "30.5", "3.4", "", 48 * 2 * 4 * 128 * 2, "card: 30.5B, 3.3B (cut off) active"),
    Published("Qwen--Qwen3-235B-A22B", "235", "22", "", 94 * 2 * 4 * 128 * 2, "model card: 235B, 22B activated"),
    Published("deepseek-ai--DeepSeek-V3", "671", "37", TABLE_ROWS, 61 * (512 + 64) * 2, "report: 671B, 37B activated"),
    Published("openai--gpt-oss-120b", "116.83", "5.13", TABLE_ROWS, 36 * 2 * 8 * 64 * 2, "model card: 116.83B, 5.13B"),
    Published("openai--gpt-oss-20b", "20.91", "3.61", TABLE_ROWS, 24 * 2 * 8 * 64 * 2, "model card: 20.91B, 3.61B"),
    Published("moonshotai--Kimi-K2-Instruct", "1026", "32", TABLE_ROWS, 61 * 576 * 2, "card: 1T, 32B activated"),
    Published(
        "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "31.6", "3.6", "", 6 * 2 * 2 * 128 * 2, "report: 31.6B, 3.6B"
    ),
    Published("nvidia--Nemotron-H-56B-Base-8K", "56", "56", "", 10 * 2 * 8 * 128 * 2, "model card: 56B"),
    Published("google--gemma-4-26B-A4B", "25.2", "3.8", "", (25 * 8 * 256 + 5 * 2 * 512) * 2 * 2, "card: 25.2B, 3.8B"),
    Published("Qwen--Qwen3.5-35B-A3B", "35", "3", "", 10 * 2 * 2 * 256 * 2, "model card: 35B, 3B activated"),
    Published("MiniMaxAI--MiniMax-M2.5", "229", "10", TABLE_ROWS, 62 * 2 * 8 * 128 * 2, "card: 230B, 10B active"),
    Published("zai-org--GLM-5", "744", "41", TABLE_ROWS, 78 * (512 + 64 + 128) * 2, "card: 744B, 40B active"),
]


def config_of(file):
    return json.loads((CONFIGS / f"{file}_config.json").read_text())


def rounded(count, published):
    digits = len(published.partition(".")[2])
    return f"{count / 1e9:.{digits}f}" == published


def meta_module(config):
    """The module of the decoder alone, built from a config as published."""
    if config["model_type"] == "kimi_k2":
        config = {**config, "model_type": "deepseek_v3"}
    return hf.build_model(config, dtype="bfloat16", attn="eager", device="meta")


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda r: r.file)
def test_published_sizes(row):
    spec = read_spec(config_of(row.file), row.file)
    numbers = coefficients(spec, precision("bfloat16"))
    assert rounded(numbers.parameters, row.total), numbers.parameters
    active = numbers.active_parameters - (spec.table if row.without == TABLE_ROWS else 0)
    assert rounded(active, row.active), active
    assert sum(w.kept_bytes for w in numbers.windows) == row.kv_bytes


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda r: r.file)
def test_sum_over_the_meta_module(row):
    spec = read_spec(config_of(row.file), row.file)
    numbers = coefficients(spec, precision("bfloat16"))
    model = meta_module(config_of(row.file))
    parameters = list(model.parameters())
    beside = sum(p.numel() for n, p in model.named_parameters() if "vision" in n)
    assert sum(p.numel() for p in parameters) - beside == numbers.parameters
    assert beside in (0, spec.tower.parameters if spec.tower else 0)
    assert sum(p.numel() * p.element_size() for p in parameters) - 2 * beside == numbers.weight_bytes
    experts = [p for n, p in model.named_parameters() if ".experts." in n]
    used = {e.experts: e.used for e in numbers.experts}
    idle = sum(p.numel() // p.shape[0] * (p.shape[0] - used[p.shape[0]]) for p in experts)
    assert numbers.active_parameters == numbers.parameters - idle


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*_config.json")), ids=lambda p: p.name[:-12])
def test_every_real_config_is_read_or_refused_by_field(path):
    config = json.loads(path.read_text())
    if path.name.endswith("hf_quant_config.json"):
        with pytest.raises(ConfigError, match="model_type"):
            read_spec(config, path.stem)
        return
    spec = read_spec(config, path.stem)
    assert spec.layers == (config.get("text_config") or config)["num_hidden_layers"]
    inner = (config.get("text_config") or config)["model_type"]
    if inner not in CONFIG_MAPPING_NAMES:
        assert any(inner in note for note in spec.notes), "what was assumed is said"


def test_a_tower_is_counted_apart():
    """Qwen3-VL-8B is 8.77B in all (its card: 9B), of which the decoder is Qwen3-8B."""
    spec = read_spec(config_of("Qwen--Qwen3-VL-8B-Instruct"), "vl")
    decoder = coefficients(spec, precision("bfloat16")).parameters
    assert decoder == coefficients(read_spec(config_of("Qwen--Qwen3-8B")), precision("bfloat16")).parameters
    assert spec.tower is not None
    assert decoder + spec.tower.parameters == 8_767_123_696
    scout = read_spec(config_of("meta-llama--Llama-4-Scout-17B-16E-Instruct"), "scout")
    assert scout.tower is not None
    assert (scout.tower.parameters, "vision_config" in scout.tower.reason) == (None, True)
