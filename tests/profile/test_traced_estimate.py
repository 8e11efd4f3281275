"""`kernelroof estimate` by tracing: equal to the closed form where there is one, its stand-in where there is none."""

import json

import pytest
from kernelroof.profile.cli import main

LOAD = ["--prompt", "48", "--output", "3", "--gpu", "h100-sxm", "--json"]


def answer(capsys, *words):
    assert main(["estimate", *words]) == 0
    shown = capsys.readouterr()
    return json.loads(shown.out), shown.err


def test_both_tiers_say_the_same(capsys):
    closed, _ = answer(capsys, "tiny-qwen", *LOAD)
    traced, said = answer(capsys, "tiny-qwen", "--traced", *LOAD)
    assert said == ""
    for field in ("parameters", "weight_bytes", "kv_bytes"):
        assert traced[field] == closed[field]
    for phase in ("prefill", "decode"):
        assert traced[phase]["flops"] == closed[phase]["flops"]
        # The trace also reads gathered rows and rotary frequencies, but no keys that the forward itself makes.
        assert traced[phase]["bytes"] == pytest.approx(closed[phase]["bytes"], rel=0.02)
        assert traced[phase]["bound"] == closed[phase]["bound"]
        assert traced[phase]["op_by_op_ideal_ms"] >= traced[phase]["ideal_ms"]
    assert traced["last_step"]["flops"] > traced["decode"]["flops"]


@pytest.fixture
def unknown(tmp_path):
    """An architecture that has no closed form."""
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "ctrl", "n_layer": 2, "n_embd": 64, "n_head": 4, "dff": 128, "vocab_size": 300})
    )
    return str(path)


def test_without_a_closed_form_the_model_is_traced(unknown, capsys):
    record, said = answer(capsys, unknown, *LOAD, "--dtype", "float32")
    assert record["source"] == "traced"
    assert "no closed form" in said
    assert record["parameters"] > 0
    assert main(["estimate", unknown, "--prompt", "16", "--output", "2"]) == 0
    shown = capsys.readouterr().out
    assert "traced estimate" in shown
    assert all(len(line) <= 112 for line in shown.splitlines())


@pytest.mark.parametrize(
    "words", [["--weights-dtype", "int4"], ["--mask", "full"], ["--cache", "ideal"], ["--embedding", "streamed"]]
)
def test_what_a_trace_can_not_vary(words, capsys):
    assert main(["estimate", "tiny-qwen", "--traced", *words]) == 2
    assert "kernelroof: error" in capsys.readouterr().err


def test_a_missing_field_is_no_reason_to_trace(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 2}))
    assert main(["estimate", str(path)]) == 2
    assert "the config has no" in capsys.readouterr().err
