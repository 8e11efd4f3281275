"""The whole job on a small model: what it leaves behind, and that the numbers hold together."""

import json
import struct

import numpy as np
import pandas as pd
import pytest
from kernelroof.models.errors import KernelroofError
from kernelroof.models.estimate import costs
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload
from kernelroof.parsers.schema import KERNELS
from kernelroof.profile import pipeline, repeats
from kernelroof.profile.cli import main
from kernelroof.profile.pipeline import Pipeline

SMALL = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 1024}  # fmt: skip
OPTIONS = ["--prompt", "48", "--output", "3", "--repeats", "2", "--top", "3"]
DESIGNED = (
    "phase step module kernel ordinal time_ns flops dram_read_bytes dram_write_bytes intensity attained_flop_s "
    "attained_byte_s bound pct_of_roof recoverable_ns dram_pct sm_pct time_source flops_source bytes_source reason"
).split()


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small-llama.json"
    path.write_text(json.dumps({**load_config("tiny-llama"), **SMALL}))
    return path


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    """One finished run."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["profile", str(config), "--out", str(out), *OPTIONS]) == 0
    return out


@pytest.fixture(scope="module")
def kernels(run):
    return pd.read_csv(run / "kernels.csv")


@pytest.fixture(scope="module")
def expected(config):
    spec = read_spec(load_config(str(config)))
    return costs(spec, make_workload(spec, prompt=48, output=3))


def test_everything_is_there(run):
    names = {str(p.relative_to(run)) for p in run.rglob("*")}
    assert {
        "run.json", "ops.csv", "kernels.csv", "launches.csv", "modules.csv", "unmatched.csv", "estimate.json",
        "ceilings.json", "bare.json", "wall.json", "trace.json.gz", "roofline_prefill.png", "roofline_decode.png",
    } <= names  # fmt: skip
    assert len([n for n in names if n.startswith("kernels/")]) == 6
    assert not [n for n in names if ".part-" in n or n == "run.lock"]
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "complete"
    assert record["identity"]["prompt"] == 48
    assert record["environment"]["torch"]


def test_pictures_are_pictures(run):
    for path in [*run.glob("*.png"), *run.glob("kernels/*.png")]:
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n", path.name
        width, height = struct.unpack(">II", head[16:24])
        assert width > 900, path.name
        assert height > 600, path.name


def test_kernel_columns(kernels):
    assert set(DESIGNED) <= set(kernels.columns)
    assert list(kernels.columns) == [c.name for c in KERNELS]
    assert set(kernels["phase"]) == {"prefill", "decode"}
    assert set(kernels["bound"]) <= {"compute", "memory", "latency", "inefficient", "unknown"}
    assert kernels.loc[kernels["flops"].isna(), "reason"].notna().all(), "missing has a reason"
    assert kernels.loc[kernels["flops"].isna(), "intensity"].isna().all(), "missing is never zero"


def test_ops_and_gaps_are_the_wall_time_exactly(run, kernels):
    walls = json.loads((run / "wall.json").read_text())
    again = run / "bare_again.json"  # there if the first bare run was disturbed
    bare = json.loads((again if again.exists() else run / "bare.json").read_text())
    truth = {
        "prefill": np.median(bare["prefill_ns"]),
        "decode": np.median(np.array(bare["decode_step_ns"]), axis=0).sum(),
    }
    for phase, wall in walls.items():
        ops = int(kernels.loc[kernels["phase"] == phase, "time_ns"].sum())
        assert ops == wall["ops_ns"]
        assert ops + wall["gap_ns"] == wall["bare_ns"]
        assert wall["bare_ns"] == pytest.approx(truth[phase], abs=len(bare["decode_step_ns"][0]))
        assert wall["dilation_ns"] == wall["recorded_ns"] - wall["bare_ns"]


def test_spread_is_that_of_the_recordings(run, kernels):
    steps, spread = pd.read_csv(run / "repeats.csv"), pd.read_csv(run / "spread.csv")
    assert set(steps["recording"]) == {0, 1, 2}
    first = steps[steps["recording"] == 0]
    paces = steps.groupby(["phase", "recording"])["pace"].first()
    assert paces.groupby("phase").median().tolist() == pytest.approx([1, 1])
    for (phase, step), rows in kernels.groupby(["phase", "step"]):
        here = first[(first["phase"] == phase) & (first["step"] == step)]
        assert here["time_ns"].sum() == rows["time_ns"].sum()
        assert here["launches"].sum() == len(rows)
    samples = spread[spread["scope"] == "phase"].set_index("phase")["samples"]
    assert samples.to_dict() == {"prefill": 3, "decode": 9}
    walls = spread[spread["scope"] == "wall"].set_index("phase")
    again = run / "bare_again.json"
    bare = json.loads((again if again.exists() else run / "bare.json").read_text())
    assert walls.loc["prefill", "step_median_ns"] == np.median(bare["prefill_ns"])
    assert walls.loc["decode", "step_max_ns"] == np.max(bare["decode_step_ns"])
    assert walls["recordings"].tolist() == [2, 2]
    timed = spread["step_median_ns"] > 0
    assert spread.loc[timed, "noise_pct"].notna().all()
    assert spread.loc[~timed, "reason"].notna().all()
    roles = spread[spread["scope"] == "kernel"]
    assert roles["launches"].sum() == len(kernels)
    assert (roles["launch_max_ns"] == kernels["time_ns"].max()).any()


def test_one_recording_is_said_to_be_one_sample(config, tmp_path, monkeypatch, capsys):
    """A pass too long to be recorded again: nothing shows a spread of prefill."""
    monkeypatch.setattr(repeats, "_BUDGET_NS", 0)
    out = tmp_path / "run"
    assert main(["profile", str(config), "--out", str(out), *OPTIONS]) == 0
    spread = pd.read_csv(out / "spread.csv")
    prefill = spread[(spread["phase"] == "prefill") & (spread["scope"] != "wall")]
    assert set(prefill["samples"]) == {1}
    assert prefill["noise_pct"].isna().all()
    assert prefill["reason"].str.contains("one sample").all()
    said = capsys.readouterr().out
    assert "prefill: its kernels were recorded in one forward only" in " ".join(said.split())
    table = said[said.index("prefill:") : said.index("decode:")]
    assert " 1x " in table
    assert not list(out.glob("repeat_*"))


def test_every_traced_flop_is_on_a_kernel(run, kernels, expected):
    ops = pd.read_csv(run / "ops.csv")
    assert len(pd.read_csv(run / "unmatched.csv")) == 0
    products = ops[ops["flops_kind"].isin(["matmul", "attention"])]
    for phase, cost in (("prefill", expected.prefill), ("decode", expected.decode)):
        assert products.loc[products["phase"] == phase, "flops"].sum() == cost.flops
        assert kernels.loc[kernels["phase"] == phase, "flops"].sum() == ops.loc[ops["phase"] == phase, "flops"].sum()
        traced = ops.loc[ops["phase"] == phase, ["weight_bytes", "act_read_bytes", "kv_read_bytes"]].sum().sum()
        assert kernels.loc[kernels["phase"] == phase, "dram_read_bytes"].sum() == traced


def test_sizes_equal_the_real_tensors(run, expected):
    bare = json.loads((run / "bare.json").read_text())
    assert bare["parameter_bytes"] == expected.weight_bytes
    assert bare["cache_bytes"] == expected.kv_bytes


def test_estimate_is_the_estimate_command(run, config, capsys):
    ceilings = json.loads((run / "ceilings.json").read_text())
    own = ["--peak-tflops", repr(ceilings["flop_s"] / 1e12), "--bandwidth-gbs", repr(ceilings["byte_s"] / 1e9)]
    assert main(["estimate", str(config), "--prompt", "48", "--output", "3", *own, "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    kept = json.loads((run / "estimate.json").read_text())
    assert kept["prefill"]["flops"] == asked["prefill"]["flops"]
    assert kept["decode"]["total_bytes"] == asked["decode"]["total_bytes"]
    assert kept["decode"]["ideal_ms"] == pytest.approx(asked["decode"]["ideal_ms"])


def test_the_same_command_again_keeps_every_stage(run, config, capsys):
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.is_file() and p.name != "run.json"}
    assert main(["profile", str(config), "--out", str(run), *OPTIONS]) == 0
    said = capsys.readouterr()
    assert said.err.count("kept") == 8
    assert {p: p.stat().st_mtime_ns for p in before} == before
    for words in ("prefill:", "decode:", "FMA = 2 FLOP", "run folder", "recoverable"):
        assert words in said.out, words


def test_another_workload_in_the_same_folder_is_refused(run, config, capsys):
    before = (run / "kernels.csv").read_bytes()
    assert main(["profile", str(config), "--out", str(run), *OPTIONS, "--batch", "2"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (run / "kernels.csv").read_bytes() == before


def test_an_interrupted_run_goes_on(config, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    calls = []

    def interrupted(self):
        calls.append("kernels")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "_kernels", interrupted)
        assert main(["profile", str(config), "--out", str(out), *OPTIONS]) == 130
    assert calls == ["kernels"]
    left = {p.name for p in out.iterdir()}
    assert {"roofs.json", "bare.json", "trace.json.gz", "run.json"} <= left
    assert not left & {"kernels.csv", "wall.json", "run.lock"}
    assert not [n for n in left if n.startswith(".part-")]
    assert json.loads((out / "run.json").read_text())["status"] == "running"
    capsys.readouterr()

    def never(self):
        raise AssertionError("a finished stage ran again")

    monkeypatch.setattr(Pipeline, "_bare", never)
    monkeypatch.setattr(Pipeline, "_timeline", never)
    assert main(["profile", str(config), "--out", str(out), *OPTIONS]) == 0
    assert capsys.readouterr().err.count("kept") == 3
    assert (out / "kernels.csv").exists()
    assert set(pd.read_csv(out / "repeats.csv")["recording"]) == {0, 1, 2}


def test_all_kernels_can_be_drawn(run, config, capsys):
    assert main(["profile", str(config), "--out", str(run), *OPTIONS[:6], "--top", "25"]) == 0
    drawn = list(run.glob("kernels/*.png"))
    assert len(drawn) == 50
    assert main(["profile", str(config), "--out", str(run), *OPTIONS]) == 0
    assert len(list(run.glob("kernels/*.png"))) == 6, "pictures of another --top are removed"


def test_a_checkpoint_of_another_model_is_refused(config, tmp_path, capsys):
    from kernelroof.models.hf import build_model

    fields = json.loads(config.read_text())
    build_model(fields, dtype="float32", attn="sdpa", device="cpu").save_pretrained(tmp_path / "two")
    fits = ["profile", str(config), "--out", str(tmp_path / "a"), *OPTIONS, "--weights", str(tmp_path / "two")]
    assert main(fits) == 0
    (tmp_path / "three.json").write_text(json.dumps({**fields, "num_hidden_layers": 3}))
    capsys.readouterr()
    other = ["profile", str(tmp_path / "three.json"), "--out", str(tmp_path / "b"), *OPTIONS]
    assert main([*other, "--weights", str(tmp_path / "two")]) == 2
    assert "missing keys" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--attn", "eager"], ["--cache", "static"], ["--ranges", "layer"], ["--ranges", "phase"], ["--head", "all"]],
    ids=" ".join,
)
def test_what_runs_is_what_is_traced(config, tmp_path, options):
    """Whatever attention, cache or depth of ranges runs, every op with work is found in the recording."""
    out = tmp_path / "run"
    assert main(["profile", str(config), "--out", str(out), "--top", "1", *OPTIONS[:6], *options]) == 0
    assert len(pd.read_csv(out / "unmatched.csv")) == 0
    ops, kernels = pd.read_csv(out / "ops.csv"), pd.read_csv(out / "kernels.csv")
    assert kernels["flops"].sum() == ops["flops"].sum() > 0


def test_a_model_too_large_for_this_machine_is_refused_before_it_is_built(tmp_path, capsys):
    huge = {**load_config("llama-3-8b"), "num_hidden_layers": 4000}
    (tmp_path / "huge.json").write_text(json.dumps(huge))
    assert main(["profile", str(tmp_path / "huge.json"), "--out", str(tmp_path / "run")]) == 2
    assert "GB free" in capsys.readouterr().err


def test_errors_of_a_stage_end_the_line_they_interrupt(config, tmp_path, monkeypatch, capsys):
    def fails(self):
        raise KernelroofError("the bare run failed")

    monkeypatch.setattr(pipeline.Pipeline, "_bare", fails)
    assert main(["profile", str(config), "--out", str(tmp_path / "run"), *OPTIONS]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "kernelroof: error: the bare run failed"
