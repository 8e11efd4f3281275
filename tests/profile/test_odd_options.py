"""Options that make no sense, through the command line: one line and status 2, never a traceback or a long wait."""

import json

import numpy as np
import pytest
from kernelroof.models.coefficients import coefficients
from kernelroof.models.estimate import costs_of, flags_of
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.sweep import Points, estimate_points
from kernelroof.models.workload import make_workload, precision_of
from kernelroof.profile.cli import main

ON = ["llama-3-8b", "--gpu", "h100-sxm"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["memory", *ON, "--link-gbs", "inf"], "--link-gbs"),
        (["memory", *ON, "--host-gbs", "1e-310"], "--host-gbs"),
        (["memory", *ON, "--tp", "1:100000000:1"], "too long a list"),
        (["memory", *ON, "--tp", "1:32:1", "--pp", "1:32:1"], "splits"),
        (["memory", "--memory-gb", "nan"], "--memory-gb"),
        (["memory", "--memory-gb", "1e300"], "--memory-gb"),
        (["memory", "--memory-gb", "16", "--reserve-gb", "-5"], "--reserve-gb"),
        (["memory", "--params-b", "0"], "--params-b"),
        (["memory", "--params-b", "7", "--bandwidth-gbs", "-4"], "--bandwidth-gbs"),
        (["memory", "--gpu", "h100-sxm", "--memory-gb", "3"], "exclude"),
        (["advise", *ON, "--peak-tflops", "100"], "exclude"),
        (["advise", *ON, "--drafted", "1" + 13 * "0"], "--drafted"),
        (["batching", "--requests", "100000000"], "requests"),
        (["batching", "--lengths", "1:100000000:1"], "too long a list"),
        (["batching", "--lengths", "1:2000:1", "--slots", "1000"], "too many to follow"),
        (["batching", *ON, "--lengths", "1:2000:1", "--slots", "256", "--requests", "2000"], "too often"),
        (["batching", *ON, "--lengths", "1000000"], "positions"),
        (["batching", *ON, "--long-prompt", "1000000"], "--long-prompt"),
        (["batching", "--bandwidth-gbs", "3"], "MODEL"),
        (["sweep", "--models", ""], "empty list"),
        (["sweep", "--gpus", ","], "empty list"),
        (["sweep", "--batches", "1:1000000000:1"], "too long a list"),
        (["sweep", "--batches", "1" + 40 * "0"], "not from 1 to"),
        (["sweep", "--axes", "batch,nonsense"], "--axes"),
        (["sweep", "--out", ""], "--out"),
        (["sweep", "--picture", "heat.xyz"], "--picture"),
        (["architectures", "--only", ""], "--only"),
        (["architectures", "--timeout", "nan"], "--timeout"),
        (["estimate", "tiny-llama", "--traced", "--overhead", "nan"], "--overhead"),
        (["estimate", "tiny-llama", "--traced", "--prompt", "1000000"], "max_position_embeddings"),
        (["estimate", "tiny-llama", "--calibrate", "/nonexistent"], "holds no run"),
    ],
)
def test_one_line(words, said, capsys):
    assert main(words) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.startswith("kernelroof: error: ")
    assert message.count("\n") == 1


def test_line_breaks_in_names_stay_in_one_line(tmp_path, capsys):
    folder = tmp_path / "two\nlines"
    folder.mkdir()
    (folder / "config.json").write_text("{")
    assert main(["estimate", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_one_gpu_in_two_spellings_is_one(capsys):
    assert main(["compare", *ON, "--gpu", "H100-SXM", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert main(["sweep", "--gpus", "h100-sxm,H100-SXM", "--weights-dtypes", "int4,INT4", "--batches", "1"]) == 0
    assert "1 combination" in capsys.readouterr().out


def test_a_batch_too_large_to_follow_is_a_lever_that_does_not_apply(capsys):
    assert main(["advise", *ON, "--batch", "1000000000000", "--json"]) == 0
    found = {lever["name"]: lever for lever in json.loads(capsys.readouterr().out)["levers"]}
    assert found["continuous batching"]["after"] is None
    assert "too many" in found["continuous batching"]["reason"]


def test_the_long_prompt_ends_where_positions_do(capsys):
    assert main(["batching", "llama-2-7b", "--gpu", "h100-sxm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chunks"][-1]["chunk"] == 4096


@pytest.mark.parametrize(("attn", "cache"), [("sdpa", "dynamic"), ("eager", "static")])
def test_arrays_do_not_wrap_around(attn, cache):
    spec = read_spec({**load_config("llama-3-8b"), "max_position_embeddings": 10**12})
    load = make_workload(spec, prompt=1, output=1, attn=attn, cache=cache)
    model, flags = coefficients(spec, precision_of(spec, load)), flags_of(load)
    sizes = [(b, p, o) for b in (1, 10**6, 10**12) for p in (1, 10**6, 10**11) for o in (1, 10**11)]
    columns = (np.array(s, dtype=np.int64) for s in zip(*sizes, strict=True))
    cost, times = estimate_points([model], Points(np.zeros(len(sizes), int), *columns, 1e15, 3e12), flags)
    for i, size in enumerate(sizes):
        single = costs_of(model, *size, flags)
        assert cost.kv_bytes[i] == pytest.approx(single.kv_bytes)
        assert cost.prefill.flops[i] == pytest.approx(single.prefill.flops)
        assert cost.decode.executed_bytes[i] == pytest.approx(single.decode.executed_bytes)
        assert cost.total_bytes[i] == pytest.approx(single.total_bytes)
        assert times.decode_s[i] > 0
