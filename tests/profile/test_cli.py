"""The command line as a user meets it: what it prints, what it refuses, what it must not load."""

import json
import os
import subprocess
import sys

import pytest
from kernelroof.profile.cli import main

HEAVY = ("torch", "transformers", "pandas", "matplotlib", "numpy", "rich")


def kernelroof(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "kernelroof.profile", *args],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **env},
    )


def estimate_json(capsys, *args):
    assert main(["estimate", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "command",
    [
        "['estimate', 'llama-3-8b', '--gpu', 'a100-80gb']",
        "['estimate', 'llama-3-8b', '--gpu', 'a100-80gb', '--json']",
        "['models']",
        "['gpus']",
        "['gpus', 'h200']",
    ],
)
def test_light_commands_load_nothing_heavy(command):
    code = (
        "import sys; from kernelroof.profile.cli import main; "
        f"status = main({command}); "
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert done.stdout


def test_estimate_json_has_what_scripts_need(capsys):
    record = estimate_json(capsys, "llama-3-8b", "--gpu", "a100-80gb", "--prompt", "1024", "--output", "256")
    for field in (
        "weight_bytes", "kv_bytes_per_token", "kv_bytes", "total_bytes", "fits", "ridge_flop_per_byte", "conventions",
    ):  # fmt: skip
        assert record[field] is not None, field
    for phase in ("prefill", "decode"):
        for field in ("flops", "bytes", "intensity", "bound", "ideal_ms"):
            assert record[phase][field] is not None, (phase, field)
    for field in ("total_flops", "total_bytes", "total_intensity", "total_ideal_ms"):
        assert record["decode"][field] > 0
    assert record["weight_bytes"] == 16_060_522_496
    assert record["decode"]["bytes"] == 15_144_198_144
    assert record["decode"]["ideal_ms"] == pytest.approx(7.4273, abs=1e-4)
    assert record["device"]["name"]


def test_own_figures_equal_the_table(capsys):
    table = estimate_json(capsys, "llama-3-8b", "--gpu", "a100-80gb")
    own = estimate_json(capsys, "llama-3-8b", "--peak-tflops", "312", "--bandwidth-gbs", "2039", "--memory-gb", "80")
    # Expected times need a GPU of the table; all else follows from the figures alone.
    ideal = {field: value for field, value in table["prefill"].items() if not field.startswith("expected_")}
    assert {field: own["prefill"][field] for field in ideal} == ideal
    assert own["prefill"]["expected_ms"] is None
    assert own["fits"] == table["fits"]


def test_the_card_says_its_conventions_and_fits_a_terminal(capsys):
    assert main(["estimate", "qwen2.5-7b", "--gpu", "h100-sxm", "--weights-dtype", "int4"]) == 0
    card = capsys.readouterr().out
    for words in ("FMA = 2 FLOP", "GB = 10^9", "causal", "before scales", "dense", "H100", "fits", "ridge"):
        assert words in card, words
    assert max(map(len, card.splitlines())) <= 110


def test_what_does_not_fit_is_said(capsys):
    record = estimate_json(capsys, "llama-3-8b", "--gpu", "t4", "--dtype", "float16")
    assert record["fits"] is False
    assert main(["estimate", "llama-3-8b", "--gpu", "t4", "--dtype", "float16"]) == 0
    assert "does NOT fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["estimate", "no-such-model"], "no-such-model"),
        (["estimate", "llama-3-8b", "--gpu", "h999"], "h999"),
        (["estimate", "llama-3-8b", "--batch", "0"], "--batch"),
        (["estimate", "llama-3-8b", "--prompt", "9000"], "max_position_embeddings"),
        (["estimate", "llama-3-8b", "--peak-tflops", "3"], "--bandwidth-gbs"),
        (["estimate", "llama-3-8b", "--gpu", "h200", "--peak-tflops", "3"], "exclude"),
        (["estimate", "{bad}"], "not JSON"),
        (["estimate", "{deep}"], "not JSON"),
        (["estimate", "llama-3-8b", "--batch", "1e9"], "--batch"),
        (["estimate", "llama-3-8b", "--peak-tflops", "nan", "--bandwidth-gbs", "3"], "--peak-tflops"),
        (["estimate", "llama-3-8b", "--peak-tflops", "3", "--bandwidth-gbs", "inf"], "--bandwidth-gbs"),
        (["estimate", "llama-3-8b", "--peak-tflops", "3", "--bandwidth-gbs", "3", "--memory-gb", "0"], "--memory-gb"),
        (["estimate", "llama-3-8b", "--dtype", ""], "--dtype"),
        (["estimate", "llama-3-8b", "--gpu", ""], "GPU"),
        (["estimate", "no/such-model"], "no/such-model"),
        (["profile", "tiny-llama", "--attn", "flash_attention_2"], "flash-attn"),
        (["profile", "tiny-llama", "--weights", "/nowhere"], "/nowhere"),
        (["profile", "tiny-llama", "--threads", "100000"], "threads"),
        (["profile", "tiny-llama", "--seed", "100000000000000000000000"], "seed"),
        (["profile", "no-such-model"], "no-such-model"),
        (["profile", "tiny-llama", "--batch", "0"], "--batch"),
        (["profile", "tiny-llama", "--prompt", "5000"], "max_position_embeddings"),
        (["profile", "tiny-llama", "--cache", "ideal"], "--cache"),
        (["profile", "tiny-llama", "--weights-dtype", "int4"], "--weights-dtype"),
        (["profile", "tiny-llama", "--out", "{file}"], "--out"),
        (["profile", "tiny-llama", "--out", "/proc/nowhere/run"], "--out"),
        (["profile", "tiny-llama", "--repeats", "0"], "--repeats"),
        (["profile", "tiny-llama", "--threads", "0"], "--threads"),
        (["profile", "tiny-llama", "--top", "0"], "--top"),
        (["profile", "{bad}"], "not JSON"),
        (["gpus", "h999"], "h999"),
    ],
)
def test_bad_input_is_one_line_and_a_non_zero_exit(args, named, tmp_path):
    (tmp_path / "bad.json").write_text("{nope")
    (tmp_path / "file").write_text("")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    args = [a.format(bad=tmp_path / "bad.json", deep=tmp_path / "deep.json", file=tmp_path / "file") for a in args]
    done = kernelroof(*args, HF_HUB_OFFLINE="1")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("kernelroof: error: ")
    assert named in lines[0]


@pytest.mark.parametrize("command", [["gpus"], ["estimate", "llama-3-8b", "--gpu", "h200"]])
def test_a_stream_that_can_not_encode_or_hold_the_output(command):
    assert kernelroof(*command, PYTHONIOENCODING="ascii").returncode == 0
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "kernelroof.profile", *command],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_no_command_prints_help_and_fails(capsys):
    assert main([]) == 2
    assert "estimate" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["estimate", "profile"])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_models_and_gpus_as_json(capsys):
    assert main(["models", "--json"]) == 0
    models = {m["name"]: m for m in json.loads(capsys.readouterr().out)}
    assert {"tiny-llama", "tiny-qwen", "llama-2-7b", "llama-3-8b", "qwen2.5-0.5b", "qwen2.5-7b"} <= models.keys()
    assert models["llama-3-8b"]["parameters"] == 8_030_261_248
    assert main(["gpus", "--json"]) == 0
    gpus = json.loads(capsys.readouterr().out)
    assert all(g["source"] for g in gpus)
    assert len(gpus) >= 19


def test_a_closed_pipe_is_no_traceback():
    done = subprocess.run(
        f"{sys.executable} -m kernelroof.profile gpus | head -n 1",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
