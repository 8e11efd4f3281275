"""Quoted figures: which are right, and that every command named for them exists."""

import json
import shlex

import pytest
from kernelroof.profile.cli import build_parser, main

WRONG = {
    "billions in 16 GB, int4, as a takeaway": 28.0,
    "% of slots used by outputs of 200, 100, 30, 80": 51.25,
    "GB of Llama-2-7B at 32,768 tokens": 17.18,
    "Llama-2-7B over Qwen2.5-7B, per token": 9.14,
    "tokens at which Llama-3-8B's passes its weights, batch 1": 122_533,
    "tokens/s, batch 32, ideal": 3_380,
    "billions that multiply, by the 2N rule of 8.03": 7.505,
    "FLOP/B, a100-80gb, elsewhere": 153.0,
    "TFLOP of prefill, Llama-3-8B, batch 1": 14.5698,
    "TFLOP of decode, Llama-3-8B, batch 32": 127.9,
    "FLOP/B of decode, Llama-3-8B, batch 32": 25.18,
    "times that int4 makes Qwen2.5-7B's step faster, batch 1, ideal": 3.146,
    "tokens/s that 14 GB at 2,039 GB/s allow": 145.6,
    "% of DRAM bandwidth drawn by a grid of one block, at most": 4.426,
}
RIGHT = [
    "GB of 7 billion parameters, int4", "times slower than HBM: disk", "FLOP/B, h20", "the same, batch 32",
    "ridge, FLOP/B", "GB/s, rtx-4090", "times that grouped heads shrink Llama-3-8B's",
    "GB of cache, Llama-3-8B, batch 32", "GB of weights, Llama-3-8B, batch 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def found():
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["textbook", "--json"]) == 0
    return {f["what"]: f for f in json.loads(out.getvalue())}


@pytest.mark.parametrize("what", list(WRONG))
def test_wrong_figures_have_the_right_value_beside(found, what):
    assert not found[what]["right"]
    assert found[what]["ours"] == pytest.approx(WRONG[what], rel=1e-3)


@pytest.mark.parametrize("what", RIGHT)
def test_right_figures_are_confirmed(found, what):
    assert found[what]["right"]


def test_every_named_command_is_one(found):
    for figure in found.values():
        words = shlex.split(figure["command"])
        assert words[0] == "kernelroof"
        build_parser().parse_args(words[1:])


def test_text_says_how_many_are_wrong(capsys, found):
    assert main(["textbook"]) == 0
    shown = capsys.readouterr().out
    wrong = sum(not f["right"] for f in found.values())
    assert f"{len(found)} figures, {wrong} of them wrong" in shown
