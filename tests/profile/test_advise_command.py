"""`kernelroof advise` through the command line."""

import json

import pytest
from kernelroof.profile.cli import main


def test_levers_are_sorted_by_the_goal(capsys):
    assert main(["advise", "llama-3-8b", "--gpu", "a100-80gb", "--batch", "8", "--goal", "throughput", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rates = [r["after"]["tokens_per_s"] for r in found["levers"] if r["after"]]
    assert rates == sorted(rates, reverse=True)
    names = {r["name"] for r in found["levers"]}
    assert names >= {
        "weight quantisation", "KV quantisation", "larger batch", "continuous batching", "tensor parallel",
        "pipeline parallel", "fused attention", "paged cache", "offload", "speculative decoding", "prefix caching",
        "chunked prefill", "another GPU",
    }  # fmt: skip


def test_text_fits_a_terminal_and_explains_every_lever(capsys):
    assert main(["advise", "llama-3-8b", "--gpu", "l4", "--batch", "8"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 110 for line in shown)
    assert sum("Limit:" in " ".join(shown[i : i + 3]) for i in range(len(shown))) > 10


def test_a_draft_model_costs_time(capsys):
    command = ["advise", "llama-3-8b", "--gpu", "a100-80gb", "--json"]
    steps = []
    for extra in ([], ["--draft", "qwen2.5-0.5b"]):
        assert main([*command, *extra]) == 0
        rows = json.loads(capsys.readouterr().out)["levers"]
        steps.append(next(r["after"]["step_s"] for r in rows if r["name"] == "speculative decoding"))
    assert steps[1] > steps[0]


@pytest.mark.parametrize(
    "words",
    [[], ["--gpu", "l4", "--acceptance", "1.5"], ["--gpu", "l4", "--drafted", "0"], ["--gpu", "l4", "--chunk", "0"]],
)
def test_senseless_options(words, capsys):
    assert main(["advise", "llama-3-8b", *words]) == 2
    assert "kernelroof: error" in capsys.readouterr().err
