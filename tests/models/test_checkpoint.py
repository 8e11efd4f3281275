"""Headers of safetensors files: parameters of packed tensors, stored bytes, and files that are not whole."""

import json
import os

import numpy as np
import pytest
from kernelroof.models.checkpoint import checkpoint_record, split, stored_sums
from kernelroof.models.errors import ConfigError
from kernelroof.models.presets import load_config
from kernelroof.models.safetensors_headers import INDEX, Tensor, checkpoint_files, read_header, read_headers
from kernelroof.models.spec import read_spec
from kernelroof.profile.cli import main

_SIZES = {"F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "F8_E4M3": 1}


def write(path, tensors):
    """A safetensors file with these (dtype, shape) and no data: a sparse file of the right length."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = int(np.prod(shape, dtype=np.int64)) * _SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def llama_tensors(config, pack, dtype="F16"):
    """All tensors of a llama, its linears as `pack` says: a function of name, inputs and outputs."""
    hidden, wide, layers = (config[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    vocab = config["vocab_size"]
    tensors = {
        "model.embed_tokens.weight": (dtype, (vocab, hidden)),
        "model.norm.weight": (dtype, (hidden,)),
        "lm_head.weight": (dtype, (vocab, hidden)),
    }
    shapes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, kv),
        "self_attn.v_proj": (hidden, kv),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (hidden, wide),
        "mlp.up_proj": (hidden, wide),
        "mlp.down_proj": (wide, hidden),
    }
    for layer in range(layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = (dtype, (hidden,))
        for name, shape in shapes.items():
            tensors |= pack(f"model.layers.{layer}.{name}", *shape)
    return tensors


def nf4(name, inputs, outputs):
    elements = inputs * outputs
    return {
        f"{name}.weight": ("U8", (elements // 2, 1)),
        f"{name}.weight.absmax": ("F32", (elements // 64,)),
        f"{name}.weight.quant_map": ("F32", (16,)),
        f"{name}.weight.quant_state.bitsandbytes__nf4": ("U8", (79,)),
    }


def gptq(name, inputs, outputs, bits=4, group=128):
    return {
        f"{name}.qweight": ("I32", (inputs * bits // 32, outputs)),
        f"{name}.scales": ("F16", (inputs // group, outputs)),
        f"{name}.qzeros": ("I32", (inputs // group, outputs * bits // 32)),
        f"{name}.g_idx": ("I32", (inputs,)),
    }


def awq(name, inputs, outputs):
    return {
        f"{name}.qweight": ("I32", (inputs, outputs // 8)),
        f"{name}.scales": ("F16", (inputs // 128, outputs)),
        f"{name}.qzeros": ("I32", (inputs // 128, outputs // 8)),
    }


def fp8_static(name, inputs, outputs):
    return {
        f"{name}.weight": ("F8_E4M3", (outputs, inputs)),
        f"{name}.weight_scale": ("F32", ()),
        f"{name}.input_scale": ("F32", ()),
    }


def nvfp4(name, inputs, outputs):
    return {
        f"{name}.weight": ("U8", (outputs, inputs // 2)),
        f"{name}.weight_scale": ("F8_E4M3", (outputs, inputs // 16)),
        f"{name}.weight_scale_2": ("F32", ()),
        f"{name}.input_scale": ("F32", ()),
    }


def mxfp4_pair(name, inputs, outputs):
    return {
        f"{name}_blocks": ("U8", (outputs, inputs // 32, 16)),
        f"{name}_scales": ("U8", (outputs, inputs // 32)),
    }


def test_four_bit_linears_packed_in_uint8(tmp_path):
    """6,738,415,616 parameters, of which 3,500,412,928 elements are stored; lookup tables are what differs."""
    config = {**load_config("llama-2-7b"), "quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}
    config["num_key_value_heads"] = config["num_attention_heads"]
    tensors = llama_tensors(config, nf4)
    assert sum(np.prod(s) for n, (_, s) in tensors.items() if n.endswith(".weight")) == 3_500_412_928
    write(tmp_path / "model.safetensors", tensors)
    spec = read_spec(config, "llama-2-7b")
    record = checkpoint_record(str(tmp_path), spec)
    assert record["parameters"] == record["closed_form_parameters"] == 6_738_415_616
    assert record["stored_bytes"] - record["closed_form_bytes"] == 32 * 7 * (64 + 79)
    assert record["agrees"] is False
    assert f"{record['stored_bytes']:,}" in record["words"][0]
    assert f"{record['closed_form_bytes']:,}" in record["words"][1]


def test_one_gptq_layer(tmp_path):
    write(tmp_path / "model.safetensors", gptq("model.layers.0.mlp.up_proj", 512, 512))
    held = stored_sums(read_headers(checkpoint_files(str(tmp_path))), 4)
    assert (held.tensors, held.parameters, held.stored_bytes) == (4, 262_144, 138_240)
    assert held.companion_bytes == 138_240 - 64 * 512 * 4


@pytest.mark.parametrize(
    ("pack", "says"),
    [
        (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 128}),
        (awq, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}),
        (fp8_static, {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"]}),
        (nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}),
        (lambda n, i, o: gptq(n, i, o, 8, 64), {"quant_method": "gptq", "bits": 8, "group_size": 64}),
        (lambda n, i, o: {f"{n}.weight": ("F16", (o, i))}, None),
    ],
)
def test_files_and_closed_form_agree(tmp_path, pack, says):
    config = {**load_config("llama-3-8b"), "num_hidden_layers": 3}
    if says:
        config["quantization_config"] = says
    write(tmp_path / "model.safetensors", llama_tensors(config, pack))
    record = checkpoint_record(str(tmp_path), read_spec(config, "m"))
    assert record["agrees"], record["words"]
    assert record["words"][1] == "as the closed form"


def test_experts_packed_in_blocks():
    tensors = {"model.layers.0.mlp.experts.up_bias": ("BF16", (4, 64))}
    tensors |= mxfp4_pair("model.layers.0.mlp.experts.up", 128, 4 * 64)
    held = stored_sums([_tensor(n, *v) for n, v in tensors.items()], 4)
    assert held.parameters == 4 * 64 * 128 + 4 * 64
    assert held.companion_bytes == 4 * 64 * 4


def _tensor(name, dtype, shape):
    from kernelroof.models.safetensors_headers import Tensor

    return Tensor(name, dtype, shape, int(np.prod(shape)) * _SIZES[dtype])


def test_headers_are_what_the_safetensors_package_writes(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.zeros((3, 5), np.float16), "b": np.zeros((7,), np.int32), "c": np.zeros((), np.float32)}
    numpy.save_file(arrays, tmp_path / "x.safetensors")
    found = {t.name: t for t in read_header(str(tmp_path / "x.safetensors"))}
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert (found[name].shape, found[name].stored_bytes) == (array.shape, array.nbytes)


def test_sharded_checkpoint(tmp_path):
    config = {**load_config("llama-3-8b"), "num_hidden_layers": 2}
    tensors = llama_tensors(config, lambda n, i, o: {f"{n}.weight": ("BF16", (o, i))}, "BF16")
    names = list(tensors)
    shards = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, part in shards.items():
        write(tmp_path / file, {n: tensors[n] for n in part})
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {n: f for f, part in shards.items() for n in part}}))
    record = checkpoint_record(str(tmp_path), read_spec(config, "m"))
    assert (record["files"], record["agrees"]) == (2, True)
    (tmp_path / "b.safetensors").unlink()
    broken = checkpoint_record(str(tmp_path), read_spec(config, "m"))
    assert broken["agrees"] is None
    assert "b.safetensors" in broken["words"][0]


def test_parts_that_the_closed_form_leaves_out_are_said_apart(tmp_path):
    config = {**load_config("llama-3-8b"), "num_hidden_layers": 1}
    tensors = llama_tensors(config, lambda n, i, o: {f"{n}.weight": ("BF16", (o, i))}, "BF16")
    tensors |= {"visual.patch_embed.weight": ("BF16", (10, 10)), "model.layers.1.eh_proj.weight": ("BF16", (4, 4))}
    write(tmp_path / "model.safetensors", tensors)
    record = checkpoint_record(str(tmp_path), read_spec(config, "m"))
    assert record["agrees"]
    assert (record["other_parameters"], record["other_bytes"]) == (116, 232)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "cut short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", "git lfs"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "cut short"),
        ((2).to_bytes(8, "little") + b"[]", "no JSON object"),
        ((3).to_bytes(8, "little") + b"{,}", "not JSON"),
        ((2).to_bytes(8, "little") + b"{}rest", "describes"),
    ],
)
def test_files_that_are_no_safetensors(tmp_path, content, named):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=named):
        read_header(str(path))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 7]},
        {"dtype": "X9", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F16", "shape": [-2], "data_offsets": [0, -4]},
        {"dtype": "F16", "shape": [2]},
        [],
    ],
)
def test_entries_that_make_no_sense(tmp_path, entry):
    text = json.dumps({"w": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ConfigError, match="entry of 'w'"):
        read_header(str(path))


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"w": "../x.safetensors"}}'])
def test_an_index_that_makes_no_sense(tmp_path, content):
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(ConfigError, match="index"):
        checkpoint_files(str(tmp_path))


def test_a_folder_without_weights_says_nothing(tmp_path):
    assert checkpoint_record(str(tmp_path), read_spec(load_config("llama-3-8b"), "m")) is None


def test_the_command_prints_both_figures(tmp_path, capsys):
    config = {**load_config("llama-3-8b"), "num_hidden_layers": 2, "quantization_config": {"load_in_4bit": True}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write(tmp_path / "model.safetensors", llama_tensors(config, nf4))
    assert main(["estimate", str(tmp_path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    stored, computed = record["checkpoint"]["stored_bytes"], record["checkpoint"]["closed_form_bytes"]
    assert computed == record["weight_bytes"] != stored
    assert main(["estimate", str(tmp_path)]) == 0
    card = capsys.readouterr().out
    assert f"{stored:,}" in card
    assert f"{computed:,}" in card


@pytest.mark.parametrize(
    "entries",
    [
        '{"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}',
        '{"a": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}',
        '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]}}',
        '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {}}',
        '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},'
        ' "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        '{"a": {"dtype": "F32", "shape": [' + "1, " * 9000 + '2], "data_offsets": [0, 4]}}',
    ],
)
def test_headers_that_contradict_themselves(tmp_path, entries):
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(entries).to_bytes(8, "little") + entries.encode() + bytes(4))
    with pytest.raises(ConfigError) as caught:
        read_header(str(path))
    assert len(str(caught.value)) < 1000


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "model.safetensors"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="no regular file"):
        read_header(str(path))


def test_odd_names_and_shapes_of_packed_tensors():
    scalar = Tensor("layers.0.x.qweight", "I32", (), 4)
    beside = Tensor("layers.0.x.scales", "F16", (), 2)
    assert stored_sums([scalar, beside], 4).parameters == 1
    far = Tensor(f"layers.{'9' * 5000}.x", "F32", (1,), 4)
    assert split([far], 2) == ([], [far])
