"""`kernelroof sweep`, `compare` and `batching` through the command line: tables against single estimates."""

import json

import pandas as pd
import pytest
from kernelroof.models.estimate import costs, ideal_times
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload
from kernelroof.profile.cli import main
from kernelroof.profile.number_lists import numbers
from kernelroof.roofline.gpus import find_gpu

SWEEP = ["sweep", "--models", "llama-3-8b,qwen2.5-0.5b", "--gpus", "a100-80gb,v100-sxm2-16gb", "--batches", "1:4"]
SWEEP += ["--prompts", "100,9000", "--outputs", "8", "--weights-dtypes", "bfloat16,int4"]


def test_lists_of_numbers():
    assert numbers("1:256") == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert numbers("1,8,1:20:5") == [1, 8, 6, 11, 16]


@pytest.mark.parametrize("text", ["", "0", "a", "5:2", "1:2:3:4", "1:9:0", "0:4"])
def test_lists_that_are_none(text, capsys):
    assert main(["sweep", "--batches", text]) == 2
    assert "kernelroof: error" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [".csv", ".csv.gz", ".parquet"])
def test_every_row_is_the_single_estimate(tmp_path, capsys, kind):
    out = tmp_path / f"sweep{kind}"
    assert main([*SWEEP, "--out", str(out)]) == 0
    table = pd.read_parquet(out) if kind == ".parquet" else pd.read_csv(out)
    assert "48 combinations" in capsys.readouterr().out
    assert len(table) == 2 * 2 * 3 * 2 * 2
    specs = {n: read_spec(load_config(n), n) for n in ("llama-3-8b", "qwen2.5-0.5b")}
    for r in table.itertuples():
        spec, gpu = specs[r.model], find_gpu(r.gpu)
        if r.model == "llama-3-8b" and r.prompt == 9000:
            assert pd.isna(r.tpot_ms)
            assert "positions" in r.reason
            continue
        load = make_workload(spec, batch=r.batch, prompt=r.prompt, output=r.output, weights_dtype=r.weights_dtype)
        cost = costs(spec, load)
        assert r.total_bytes == pytest.approx(cost.total_bytes)
        assert r.fits == (cost.total_bytes <= gpu.memory_bytes)
        if r.gpu == "v100-sxm2-16gb":  # no bfloat16 there
            assert pd.isna(r.tpot_ms)
            assert pd.isna(r.decode_bound)
            assert "no peak" in r.reason
            continue
        times = ideal_times(cost, gpu.bf16_flop_s, gpu.byte_s)
        assert r.tpot_ms == pytest.approx(1e3 * times.first_step_s)
        assert r.decode_ms == pytest.approx(1e3 * times.decode_s)
        assert r.ttft_ms == pytest.approx(1e3 * times.prefill_s)
        assert pd.isna(r.reason)


def test_heat_map_and_its_refusals(tmp_path, capsys):
    picture = tmp_path / "heat.png"
    assert main([*SWEEP, "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*SWEEP, "--picture", str(tmp_path / "heat.pdf")]) == 0
    assert (tmp_path / "heat.pdf").read_bytes().startswith(b"%PDF")
    for wrong in (["--heat", "model"], ["--heat", "nothing"], ["--axes", "batch"], ["--axes", "batch,reason2"]):
        assert main([*SWEEP, "--picture", str(picture), *wrong]) == 2
    assert main([*SWEEP, "--axes", "gpu,model", "--picture", str(picture)]) == 0
    assert main(["sweep", "--outputs", "1:26:2", "--axes", "batch,prompt", "--picture", str(picture)]) == 2
    assert "panels" in capsys.readouterr().err
    assert main(["sweep", "--out", str(tmp_path / "x.txt")]) == 2
    assert main(["sweep", "--batches", "1:9000:1", "--prompts", "1:9000:1"]) == 2
    assert "combinations are too many" in capsys.readouterr().err


def test_the_largest_batch_within_a_latency(capsys):
    words = ["sweep", "--gpus", "h100-sxm", "--batches", "1:200:1", "--fits", "--at-most", "tpot_ms=8", "--top", "1"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    batch = int(shown.split("─\n")[1].split()[0])
    spec, gpu = read_spec(load_config("llama-3-8b"), "llama-3-8b"), find_gpu("h100-sxm")
    steps = [
        ideal_times(costs(spec, make_workload(spec, batch=b, output=128)), gpu.bf16_flop_s, gpu.byte_s).first_step_s
        for b in (batch, batch + 1)
    ]
    assert steps[0] <= 8e-3 < steps[1]
    assert "ideal times" in shown
    assert main(["sweep", "--at-most", "tpot_ms=0"]) == 0
    for wrong in ("tpot_ms", "nothing=1", "model=1", "tpot_ms=x", "fits=1"):
        assert main(["sweep", "--at-most", wrong]) == 2


def test_a_refused_picture_leaves_no_table(tmp_path):
    out = tmp_path / "sweep.csv"
    words = ["sweep", "--outputs", "1:26:2", "--axes", "batch,prompt", "--picture", str(tmp_path / "p.png")]
    assert main([*words, "--out", str(out)]) == 2
    assert not out.exists()


def test_compare_is_the_estimates_side_by_side(capsys):
    assert main(["compare", "llama-3-8b", "--gpu", "a100-80gb", "--gpu", "l4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["gpu"] for r in rows] == ["a100-80gb-sxm", "l4"] or rows[1]["gpu"] == "l4"
    assert rows[0]["tpot_ms"] == pytest.approx(7.4273, abs=1e-4)
    assert main(["compare", "llama-3-8b", "--gpu", "a100-80gb", "--gpu", "l4"]) == 0
    shown = capsys.readouterr().out
    assert "7.43 ms" in shown
    assert all(len(line) <= 120 for line in shown.splitlines())


def test_compare_says_where_little_was_measured(capsys):
    words = ["compare", "llama-3-8b", "--gpu", "h100-sxm", "--gpu", "l4", "--weights-dtype"]
    assert main([*words, "int4-g128"]) == 0
    packed = capsys.readouterr().out.splitlines()
    assert main([*words, "bfloat16"]) == 0
    plain = capsys.readouterr().out.splitlines()
    assert "≥" in packed[3]
    assert "≥" not in plain[3]
    assert all(len(line) <= 110 for line in packed + plain)


def test_batching_says_51_25_percent(capsys):
    assert main(["batching", "--lengths", "200,100,30,80", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policies"][0]["utilisation"] == 0.5125
    assert found["policies"][0]["decode_s"] is None
    assert main(["batching", "llama-3-8b", "--gpu", "h100-sxm"]) == 0
    assert "longest stall" in capsys.readouterr().out
    assert main(["batching", "--gpu", "h100-sxm"]) == 2
    assert main(["batching", "--slots", "0"]) == 2
