"""`kernelroof advise` through the command line."""

import json

import pytest
from kernelroof.profile.cli import main


def test_levers_are_sorted_by_the_goal(capsys):
    assert main(["advise", "llama-3-8b", "--gpu", "a100-80gb", "--batch", "8", "--goal", "throughput", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    gains = [r["gain"] for r in found["levers"] if r["after"]]
    assert gains == sorted(gains, reverse=True)
    for row in filter(lambda r: r["after"], found["levers"]):
        against = row["against"] or found["before"]
        assert row["gain"] == row["after"]["tokens_per_s"] / against["tokens_per_s"]
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
    free, drafted = (
        _after(capsys, "speculative decoding", "llama-3-8b", "--gpu", "a100-80gb", *extra) for extra in DRAFTS
    )
    assert drafted["step_s"] > free["step_s"]
    assert drafted["prefill_s"] > free["prefill_s"]
    assert drafted["total_bytes"] > free["total_bytes"] + 0.9e9


DRAFTS = ([], ["--draft", "qwen2.5-0.5b"])


def _after(capsys, name, *words):
    assert main(["advise", *words, "--json"]) == 0
    return next(r["after"] for r in json.loads(capsys.readouterr().out)["levers"] if r["name"] == name)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["llama-3-8b", "--gpu", "gb200"], set()),  # nothing in the table is faster
        (["llama-3-8b", "--gpu", "h100-sxm", "--goal", "memory"], set()),  # it fits, and needs as much elsewhere
        (["llama-3-8b", "--gpu", "rtx-4080"], {"rtx-4090", "a30", "a10", "l4", "rtx-3090", "rtx-3090-ti"}),
    ],
)
def test_other_gpus_are_better_ones(words, expected, capsys):
    assert main(["advise", *words, "--json"]) == 0
    rows = [r for r in json.loads(capsys.readouterr().out)["levers"] if r["name"] == "another GPU"]
    assert {r["setting"] for r in rows} <= expected
    assert bool(rows) == bool(expected)
    assert all(r["after"]["fits"] for r in rows)


@pytest.mark.parametrize(
    "words",
    [[], ["--gpu", "l4", "--acceptance", "1.5"], ["--gpu", "l4", "--drafted", "0"], ["--gpu", "l4", "--chunk", "0"]],
)
def test_senseless_options(words, capsys):
    assert main(["advise", "llama-3-8b", *words]) == 2
    assert "kernelroof: error" in capsys.readouterr().err
