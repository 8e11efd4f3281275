"""`kernelroof memory` through the command line."""

import json

import pytest
from kernelroof.profile.cli import main


def answer(capsys, *words):
    assert main(["memory", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_sizes_that_fit_16_gb(capsys):
    found = answer(capsys, "--memory-gb", "16", "--reserve-gb", "2")
    sizes = {r["dtype"]: r["parameters"] for r in found["sizes"]}
    assert (sizes["float32"], sizes["bfloat16"], sizes["int8"], sizes["int4"]) == (3.5e9, 7e9, 14e9, 28e9)


def test_seven_billion_from_every_tier(capsys):
    found = answer(capsys, "--gpu", "h100-sxm", "--params-b", "7")
    assert [round(r["load_s"], 4) for r in found["load"]] == [0.0042, 0.14, 2.0, 70.0]


def test_what_does_not_fit_is_streamed(capsys):
    found = answer(capsys, "llama-3-8b", "--gpu", "rtx-4080", "--dtype", "float16")
    assert found["use"]["fits"] is False
    excess = found["use"]["total_bytes"] - 16e9
    assert found["tiers"]["excess_bytes"] == pytest.approx(excess)
    host = found["tiers"]["rows"][0]
    assert host["offload"]["stream_s"] == pytest.approx(excess / 31.5e9)
    assert [r["tp"] for r in found["splits"]["rows"]] == [1, 2, 4, 8]
    assert [r["fits"] for r in found["splits"]["rows"]] == [False, True, True, True]


def test_what_fits_has_no_offload(capsys):
    found = answer(capsys, "llama-3-8b", "--gpu", "a100-80gb", "--prompt", "1024", "--output", "256")
    assert found["use"]["fits"] is True
    assert found["tiers"]["rows"][0]["offload"] is None
    assert found["cache"]["outgrows_weights_at_tokens"] == 122_533
    assert main(["memory", "llama-3-8b", "--gpu", "a100-80gb"]) == 0
    shown = capsys.readouterr().out
    assert "largest batch" in shown
    assert all(len(line) <= 110 for line in shown.splitlines())


def test_without_a_device_there_is_still_the_cache(capsys):
    found = answer(capsys, "llama-3-8b")
    assert set(found) == {"use", "cache"}


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--memory-gb", "16", "--reserve-gb", "20"],
        ["--memory-gb", "16", "--reserve-gb", "-1"],
        ["--nvme-gbs", "7"],
        ["--memory-gb", "16", "--params-b", "7", "--host-gbs", "0"],
    ],
)
def test_nothing_to_answer(words, capsys):
    assert main(["memory", *words]) == 2
    assert "kernelroof: error" in capsys.readouterr().err


MOE = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000, "max_position_embeddings": 32768, "tie_word_embeddings": False,
}  # fmt: skip


def test_all_experts_are_held_and_few_are_read(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MOE))
    found = answer(capsys, str(path), "--gpu", "a100-80gb")
    routed = 32 * 8 * 3 * 4096 * 14336 * 2
    assert found["use"]["routed_expert_bytes"] == routed
    table = 32000 * 4096 * 2
    assert found["use"]["step_weight_bytes"] == found["use"]["weight_bytes"] - table - routed * 6 / 8
    streamed = found["tiers"]["rows"][0]["offload"]["streamed_bytes"]
    assert streamed == pytest.approx(found["tiers"]["excess_bytes"] * 2 / 8)
    assert main(["memory", str(path), "--gpu", "a100-80gb", "--tp", "1,2,4,8", "--pp", "1,2"]) == 0
    shown = capsys.readouterr().out
    assert "all are held, 2 of 8 per layer are read" in shown
    assert "those that a decode step meets" in shown
    assert all(len(line) <= 110 for line in shown.splitlines())


def test_the_largest_batch_of_every_split(capsys):
    found = answer(capsys, "llama-3-8b", "--gpu", "l4")
    rows = found["splits"]["rows"]
    assert rows[0]["largest_batch"] == found["use"]["largest_batch"] > 0
    assert [r["largest_batch"] for r in rows] == sorted(r["largest_batch"] for r in rows)


def test_a_split_that_is_not_possible_is_said(capsys):
    found = answer(capsys, "qwen2.5-7b", "--gpu", "h100-sxm", "--tp", "1,8", "--pp", "1,40")
    assert [(r["tp"], r["pp"]) for r in found["splits"]["rows"]] == [(1, 1)]
    assert any("28 heads" in r for r in found["splits"]["refused"])
    assert main(["memory", "llama-3-8b", "--gpu", "l4", "--link-gbs", "0"]) == 2
