"""Reading configs: what fields mean, and that senseless ones are refused by name."""

import json

import pytest
from kernelroof.models.errors import ConfigError, UnknownModelError, UsageError
from kernelroof.models.estimate import costs
from kernelroof.models.presets import display_name, load_config, preset_names
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload


def changed(**fields):
    config = load_config("llama-3-8b")
    config.update(fields)
    return {k: v for k, v in config.items() if v is not ...}


def test_kv_heads_absent_or_null_means_the_number_of_heads():
    assert read_spec(changed(num_key_value_heads=None)).kv_heads == 32
    assert read_spec(changed(num_key_value_heads=...)).kv_heads == 32


def test_explicit_head_dim_wins():
    assert read_spec(changed(head_dim=64)).head_dim == 64
    assert read_spec(changed(head_dim=None)).head_dim == 128


def test_text_config_is_found_and_inherits_from_the_wrapper():
    inner = changed(tie_word_embeddings=..., torch_dtype=...)
    spec = read_spec(
        {"model_type": "llava", "text_config": inner, "tie_word_embeddings": True, "torch_dtype": "float16"}
    )
    assert (spec.model_type, spec.tied, spec.dtype) == ("llama", True, "float16")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", ...),
        ("hidden_size", 0),
        ("hidden_size", "4096"),
        ("hidden_size", True),
        ("num_attention_heads", 0),
        ("num_attention_heads", -3),
        ("num_hidden_layers", ...),
        ("num_hidden_layers", 1.5),
        ("intermediate_size", None),
        ("vocab_size", 0),
        ("num_key_value_heads", 5),
        ("num_key_value_heads", 0),
        ("head_dim", 0),
        ("head_dim", 7),
        ("max_position_embeddings", ...),
        ("tie_word_embeddings", "yes"),
        ("torch_dtype", "complex64"),
        ("model_type", ...),
        ("attention_bias", 3),
    ],
)
def test_a_senseless_field_is_named(field, value):
    with pytest.raises(ConfigError, match=field):
        read_spec(changed(**{field: value}))


def test_hidden_not_divisible_by_heads_needs_head_dim():
    with pytest.raises(ConfigError, match="head_dim"):
        read_spec(changed(num_attention_heads=24, num_key_value_heads=8))


def test_quantised_config_says_its_format():
    spec = read_spec(changed(quantization_config={"quant_method": "fp8"}))
    assert make_workload(spec).weights_dtype == "fp8"
    assert make_workload(spec, weights_dtype="int4").weights_dtype == "int4"


def test_quantised_config_that_is_not_read_needs_an_explicit_format():
    spec = read_spec(changed(quantization_config={"quant_method": "vptq"}))
    with pytest.raises(ConfigError, match=r"quantization_config.*vptq"):
        make_workload(spec)
    assert make_workload(spec, weights_dtype="fp8").weights_dtype == "fp8"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch": 0}, "--batch"),
        ({"prompt": 0}, "--prompt"),
        ({"output": -1}, "--output"),
        ({"prompt": 8000, "output": 193}, "max_position_embeddings"),
        ({"dtype": "int8"}, "--dtype"),
        ({"weights_dtype": "int3"}, "--weights-dtype"),
        ({"kv_dtype": "wide"}, "--kv-dtype"),
        ({"mask": "half"}, "--mask"),
        ({"cache": "paged"}, "--cache"),
        ({"overhead": -0.1}, "--overhead"),
    ],
)
def test_a_senseless_workload_is_named(options, named):
    spec = read_spec(load_config("llama-3-8b"))
    with pytest.raises(UsageError, match=named):
        make_workload(spec, **options)


def test_loading_from_folder_and_file(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(changed()))
    assert load_config(str(folder)) == load_config(str(folder / "config.json")) == changed()
    assert display_name(str(folder)) == display_name(str(folder / "config.json")) == "my-model"
    assert display_name("llama-3-8b") == "llama-3-8b"


def test_what_can_not_be_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "bad.json").write_text("{not json")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="not JSON"):
        load_config(str(tmp_path / "bad.json"))
    with pytest.raises(ConfigError, match="not an object"):
        load_config(str(tmp_path / "list.json"))
    with pytest.raises(UnknownModelError, match=r"config\.json"):
        load_config(str(tmp_path / "empty"))
    with pytest.raises(UnknownModelError, match="llama-3-8b"):
        load_config("llama3-8b")
    with pytest.raises(UnknownModelError, match=r"no preset, folder"):
        load_config("./nothing/here.json")


def test_presets_are_the_published_sizes():
    """Counts published with the models (llama-2-7b, llama-3-8b, qwen2.5: their model cards and papers)."""
    specs = {n: read_spec(load_config(n)) for n in preset_names()}
    counts = {n: costs(s, make_workload(s)).parameters for n, s in specs.items()}
    assert counts["llama-2-7b"] == 6_738_415_616
    assert counts["llama-3-8b"] == 8_030_261_248
    assert counts["qwen2.5-0.5b"] == 494_032_768
    assert counts["qwen2.5-7b"] == 7_615_616_512
    for tiny in ("tiny-llama", "tiny-qwen"):
        assert 10e6 < counts[tiny] < 100e6
        spec = read_spec(load_config(tiny))
        assert spec.kv_heads < spec.heads


def test_an_unknown_model_type_is_read_by_its_fields_and_says_so():
    known, unknown = read_spec(changed()), read_spec(changed(model_type="brand-new"))
    assert unknown.groups == known.groups
    assert "brand-new is in no table" in unknown.notes[0]
    experts = read_spec(changed(model_type="brand-new", num_experts=8, num_experts_per_tok=2, n_shared_experts=1))
    assert {(li.copies, li.used) for li in experts.groups[0].linears} == {(1, 1), (8, 2)}


@pytest.mark.parametrize(
    "field", ["memory_slots", "compress_rates", "cross_attention_layers", "mamba_d_state", "num_kv_shared_layers"]
)
def test_a_field_that_no_reader_understands_is_refused(field):
    with pytest.raises(ConfigError, match=field):
        read_spec(changed(model_type="brand-new", **{field: 7}))


def test_a_kind_of_layer_that_is_not_known_is_named():
    with pytest.raises(ConfigError, match=r"layer_types .* holographic"):
        read_spec(changed(layer_types=["holographic"] * 32))
    with pytest.raises(ConfigError, match="layer_types"):
        read_spec(changed(layer_types=["full_attention"] * 31))


@pytest.mark.parametrize(("model_type", "why"), [("deepseek_v4", "cache"), ("zamba2", "share weights")])
def test_a_refused_model_type_has_a_reason(model_type, why):
    with pytest.raises(ConfigError, match=f"model_type '{model_type}': .*{why}"):
        read_spec(changed(model_type=model_type))
    with pytest.raises(ConfigError, match=f"model_type '{model_type}': .*{why}"):
        read_spec({"model_type": model_type, "text_config": changed()})
