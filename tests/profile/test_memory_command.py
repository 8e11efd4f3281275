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
    [[], ["--nvme-gbs", "7"], ["--memory-gb", "16", "--params-b", "7", "--host-gbs", "0"]],
)
def test_nothing_to_answer(words, capsys):
    assert main(["memory", *words]) == 2
    assert "kernelroof: error" in capsys.readouterr().err


def test_a_split_that_is_not_possible_is_said(capsys):
    found = answer(capsys, "qwen2.5-7b", "--gpu", "h100-sxm", "--tp", "1,8", "--pp", "1,40")
    assert [(r["tp"], r["pp"]) for r in found["splits"]["rows"]] == [(1, 1)]
    assert any("28 heads" in r for r in found["splits"]["refused"])
    assert main(["memory", "llama-3-8b", "--gpu", "l4", "--link-gbs", "0"]) == 2
