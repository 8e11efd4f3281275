"""Smaller configs keep every kind of layer."""

from __future__ import annotations

from kernelroof.models.architectures.shrink import LEAST_LAYERS, shrink


def test_layers_are_cut_and_nothing_else() -> None:
    config = {"num_hidden_layers": 32, "hidden_size": 4096, "num_experts": 128}
    assert shrink(config) == {**config, "num_hidden_layers": LEAST_LAYERS}
    assert config["num_hidden_layers"] == 32


def test_every_kind_of_layer_stays() -> None:
    kinds = ["linear"] * 5 + ["full"] + ["linear"] * 5 + ["full"]
    small = shrink({"num_hidden_layers": 12, "layer_types": kinds, "other": list(range(12))})
    assert small["num_hidden_layers"] == 6 or small["num_hidden_layers"] == 12
    assert set(small["layer_types"]) == {"linear", "full"}
    assert len(small["layer_types"]) == small["num_hidden_layers"] == len(small["other"])


def test_dense_layers_before_experts_and_periods_are_passed() -> None:
    assert shrink({"num_hidden_layers": 61, "first_k_dense_replace": 3})["num_hidden_layers"] == 4
    assert shrink({"num_hidden_layers": 48, "full_attention_interval": 4})["num_hidden_layers"] == 4
    assert shrink({"num_hidden_layers": 2})["num_hidden_layers"] == 2


def test_every_part_of_a_composite_is_cut() -> None:
    small = shrink({"text_config": {"num_hidden_layers": 40}, "vision_config": {"num_hidden_layers": 27}, "x": 1})
    assert small == {"text_config": {"num_hidden_layers": 3}, "vision_config": {"num_hidden_layers": 3}, "x": 1}


def test_settings_by_layer_number_are_cut_too() -> None:
    small = shrink({"num_hidden_layers": 30, "per_layer_config": {"0": {"a": 1}, "11": {"a": 2}, 17: {"a": 3}}})
    assert small["per_layer_config"] == {"0": {"a": 1}}
