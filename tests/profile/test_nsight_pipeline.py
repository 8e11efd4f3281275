"""The whole Nsight pipeline on a machine without a GPU: stub profilers, a made-up run, known answers."""

import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest
from kernelroof.models.presets import load_config
from kernelroof.models.trace import trace
from kernelroof.parsers.schema import ANALYZED, KERNELS
from kernelroof.profile import backends, nsight_backend, pipeline, timeline_stage
from kernelroof.profile.cli import main
from kernelroof.profile.runfolder import write_json
from kernelroof.roofline.ceilings import Ceilings

_spec = importlib.util.spec_from_file_location("fake_nsight", Path(__file__).with_name("fake_nsight.py"))
fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake)

STEPS = 3
SMALL = {"num_hidden_layers": fake.LAYERS, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 1024}  # fmt: skip
ROOFS = Ceilings("NVIDIA H100 PCIe", 700e12, 2e12, 5e12, "float32", "measured", 80 * 10**9, "canned")


@pytest.fixture(scope="module")
def traced():
    """A trace function that works once for each workload."""
    known = {}

    def once(config, **options):
        key = json.dumps([config, options], sort_keys=True)
        if key not in known:
            known[key] = trace(config, **options)
        return known[key]

    return once


def make_box(folder, monkeypatch, traced):
    """A pretended GPU box: a function that runs `profile` with options and a behaviour of the tools."""
    tools = fake.install(folder)
    monkeypatch.setenv("KERNELROOF_NSYS", str(tools["nsys"]))
    monkeypatch.setenv("KERNELROOF_NCU", str(tools["ncu"]))
    how = folder / "how.json"
    monkeypatch.setenv("KERNELROOF_FAKE", str(how))
    config = folder / "small.json"
    config.write_text(json.dumps({**load_config("tiny-llama"), **SMALL}))
    monkeypatch.setattr("kernelroof.models.trace.trace", traced)
    monkeypatch.setattr(backends, "find_gpu", lambda device: backends.Gpu("NVIDIA H100 PCIe", "9.0"))
    monkeypatch.setattr(pipeline.Pipeline, "measure_roofs", lambda self: (ROOFS, {}))
    monkeypatch.setattr(nsight_backend, "bare_run", lambda folder, spec, out: write_json(out, fake.bare(STEPS)))
    monkeypatch.setattr(pipeline.Pipeline, "_pictures", lambda self: write_json(self.folder.file("pictures.json"), {}))

    def run(*options, status=0, out="run", **behaviour):
        how.write_text(json.dumps(behaviour))
        common = ["--prompt", "48", "--output", str(STEPS), "--device", "cpu", "--dtype", "float32"]
        assert main(["profile", str(config), "--out", str(folder / out), *common, *options]) == status
        return folder / out

    return run


@pytest.fixture
def box(tmp_path, monkeypatch, traced):
    return make_box(tmp_path, monkeypatch, traced)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, traced):
    """One run with nsys and ncu in which all goes well."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return make_box(tmp_path_factory.mktemp("box"), monkeypatch, traced)("--backend", "nsight")


def truth():
    return pd.DataFrame(fake.launches(STEPS))


def kernels(folder):
    return pd.read_csv(folder / "kernels.csv")


def in_order(folder):
    """kernels.csv in the order of launching, which here is that of execution."""
    table = kernels(folder)
    order = table.assign(late=table["phase"] == "decode").sort_values(["late", "step", "ordinal"], ignore_index=True)
    return order.drop(columns="late")


def test_every_launch_gets_its_true_figures(whole):
    table, real = in_order(whole), truth()
    assert len(table) == len(real)
    assert list(kernels(whole).columns) == [c.name for c in KERNELS]
    assert table["time_ns"].tolist() == real["time_ns"].tolist()
    assert table["dram_read_bytes"].tolist() == real["read"].tolist()
    assert table["dram_write_bytes"].tolist() == real["write"].tolist()
    assert table["flops"].tolist() == real["flops"].tolist()
    for column, source in (("time_source", "nsys"), ("flops_source", "ncu"), ("bytes_source", "ncu")):
        assert set(table[column]) == {source}
    assert set(table["dram_pct"]) == {50}
    assert set(table["sm_pct"]) == {30}
    record = json.loads((whole / "counters.json").read_text())
    assert record["counted"] < record["launches"] == record["known"] == len(real)
    assert not record["unjoined"]


def test_spread_of_decode_and_one_sample_of_prefill(whole):
    spread, real = pd.read_csv(whole / "spread.csv"), truth()
    found = spread[spread["scope"] == "phase"].set_index("phase")
    sums = real[real["phase"] == "decode"].groupby("step")["time_ns"].sum()
    assert (found.loc["decode", "samples"], found.loc["decode", "recordings"]) == (STEPS, 1)
    assert found.loc["decode", "step_median_ns"] == sums.median()
    assert [found.loc["decode", k] for k in ("step_min_ns", "step_max_ns")] == [sums.min(), sums.max()]
    assert found.loc["prefill", "samples"] == 1
    assert found.loc["prefill", "step_median_ns"] == real.loc[real["phase"] == "prefill", "time_ns"].sum()
    assert pd.isna(found.loc["prefill", "noise_pct"])
    assert "one sample" in found.loc["prefill", "reason"]


def test_how_many_were_counted_of_how_many_is_printed(box, capsys):
    folder = box("--backend", "nsight")
    record = json.loads((folder / "counters.json").read_text())
    assert f"of {len(truth()):,} launches" in record["line"]
    assert record["line"] in " ".join(capsys.readouterr().out.split())


def test_what_is_left_in_the_folder(whole):
    folder = whole
    names = {p.name for p in folder.iterdir()}
    assert {
        "timeline.nsys-rep", "timeline.sqlite", "counters-traffic-1.ncu-rep", "counters-work-1.csv",
        "count-plan-1.json", "counters.json", "counted.csv", "counted_launches.csv", "kernels.csv",
        "launches.csv", "spec.json",
    } <= names  # fmt: skip
    run = json.loads((folder / "run.json").read_text())
    assert run["backend"] == "nsight"
    assert (run["sources"]["timeline"], run["sources"]["counters"]) == ("nsys", "ncu")


def test_conditions_and_command_lines_are_kept(whole):
    traffic, work = (json.loads((whole / f"counters-{name}-1.json").read_text()) for name in ("traffic", "work"))
    assert (traffic["cache_control"], work["cache_control"]) == ("none", "all")
    assert traffic["clock_control"] == "base"
    assert "--profile-from-start" in traffic["command"]
    assert "--count-plan" in traffic["command"]
    assert "--capture-range" in json.loads((whole / "timeline.json").read_text())["command"]


def test_the_two_clocks_stand_beside_each_other(whole):
    table = pd.read_csv(whole / "counted.csv")
    assert list(table.columns) == [c.name for c in ANALYZED]
    assert set(table["clock"]) == {"timeline"}
    assert table["duration_ratio"].between(1.19, 1.21).all()
    head = table[table["module"] == "lm_head"].iloc[0]
    assert head["ncu_byte_s"] == pytest.approx((50_000_000 + 2048) / 48_000e-9)
    assert head["ncu_dram_roof_pct"] == pytest.approx(100 * head["ncu_byte_s"] / (1280 * 1.5e9))
    assert head["timeline_pct_of_roof"] == pytest.approx(100 * (50_002_048 / ROOFS.byte_s) / 40_000e-9)


def test_the_wall_time_is_told_exactly(whole):
    folder = whole
    walls = json.loads((folder / "wall.json").read_text())
    table = kernels(folder)
    for phase, wall in walls.items():
        ops = table.loc[table["phase"] == phase, "time_ns"].sum()
        assert ops == wall["ops_ns"]
        assert wall["ops_ns"] + wall["gap_ns"] - wall["overlap_ns"] == wall["bare_ns"]
        assert wall["gap_ns"] == pytest.approx(0.1 * ops, rel=0.001)


def test_every_kernel_counts_each(box):
    folder = box("--backend", "nsight", "--every-kernel")
    record = json.loads((folder / "counters.json").read_text())
    assert record["counted"] == record["launches"] == len(truth())
    assert kernels(folder)["dram_read_bytes"].sum() == truth()["read"].sum()


def test_refused_counters_fall_back_with_one_line(box, capsys):
    folder = box("--backend", "auto", ncu="denied")
    said = capsys.readouterr()
    assert said.err.count("falling back to traced FLOPs and bytes") == 1
    assert "ERR_NVGPUCTRPERM" in said.err
    table = kernels(folder)
    assert set(table["flops_source"].dropna()) == {"traced"}
    assert table["dram_pct"].isna().all()
    assert json.loads((folder / "counters.json").read_text())["status"] == "refused"


def test_refused_counters_are_an_error_where_they_were_asked_for(box, capsys):
    folder = box("--backend", "nsight", ncu="denied", status=2)
    said = capsys.readouterr().err
    assert "NVreg_RestrictProfilingToAdminUsers" in said
    assert "--backend torch" in said
    assert (folder / "timeline.sqlite").exists(), "what was recorded is kept"


def test_an_interrupted_run_goes_on_where_it_stopped(box, capsys):
    box("--backend", "nsight", ncu="denied", status=2)
    capsys.readouterr()
    folder = box("--backend", "nsight")
    assert "recording every op ... kept" in capsys.readouterr().err
    assert kernels(folder)["dram_read_bytes"].sum() == truth()["read"].sum()


def test_nsys_times_with_traced_figures(box):
    folder = box("--timeline", "nsys", "--counters", "traced")
    table = in_order(folder)
    assert table["time_ns"].tolist() == truth()["time_ns"].tolist()
    assert not (folder / "counters.json").exists()
    head = table[table["module"] == "lm_head"]
    assert set(head["op"]) == {"aten::mm"}
    assert set(head["flops"]) == {2 * 256 * 1024}
    known = table[table["flops"].notna()]
    assert set(known["flops_source"]) == {"traced"}
    assert table.loc[table["flops"].isna(), "reason"].notna().all(), "missing has a reason"


@pytest.fixture
def by_torch(monkeypatch):
    """torch.profiler's part of a run, as if there were a GPU."""

    def timeline(self):
        fake.write_kineto(self.folder.file("trace.json.gz"), fake.launches(STEPS))
        write_json(self.folder.file("costs.json"), {"op_ns": 0.0, "range_ns": 0.0})

    monkeypatch.setattr(pipeline.Pipeline, "_timeline", timeline)


def test_torch_times_with_counted_figures(box, by_torch):
    folder = box("--timeline", "torch", "--counters", "ncu")
    table, real = in_order(folder), truth()
    assert table["time_ns"].tolist() == real["time_ns"].tolist()
    assert table["dram_read_bytes"].tolist() == real["read"].tolist()
    assert table["flops"].tolist() == real["flops"].tolist()
    assert set(table["time_source"]) == {"torch"}
    assert set(table["bytes_source"]) == {"ncu"}
    assert "aten::mm" in set(table["op"]), "torch knows the op as well"
    assert not (folder / "timeline.sqlite").exists()


def test_torch_times_with_traced_figures(box, by_torch):
    folder = box("--timeline", "torch", "--counters", "traced")
    table = in_order(folder)
    assert table["time_ns"].tolist() == truth()["time_ns"].tolist()
    assert set(table["bytes_source"].dropna()) == {"traced"}


def test_clocks_that_cannot_be_locked_run_free(box):
    folder = box("--backend", "nsight", ncu="no-clocks")
    notes = json.loads((folder / "counters.json").read_text())["notes"]
    assert any("--clock-control none" in note for note in notes)
    assert kernels(folder)["flops"].sum() == truth()["flops"].sum()


def test_bytes_that_take_several_passes_are_counted_with_flushed_caches(box):
    folder = box("--backend", "nsight", ncu="two-passes")
    notes = json.loads((folder / "counters.json").read_text())["notes"]
    assert any("3 passes" in note and "over-counted" in note for note in notes)
    assert (folder / "counters-traffic-1-flushed.csv").exists()


def test_a_counting_run_that_dies_keeps_what_it_counted(box):
    folder = box("--backend", "nsight", ncu="die")
    record = json.loads((folder / "counters.json").read_text())
    assert any("ended early" in note for note in record["notes"])
    assert record["unjoined"], "calls that were cut off are listed"
    assert record["known"] > 0
    table, real = in_order(folder), truth()
    counted = table["bytes_source"] == "ncu"
    assert counted.any()
    assert (table.loc[counted, "dram_read_bytes"] == real.loc[counted, "read"]).all()


def test_calls_whose_sequence_differs_are_left_unjoined(box):
    folder = box("--backend", "nsight", ncu="another-kernel")
    record = json.loads((folder / "counters.json").read_text())
    assert all("lm_head" in words for words in record["unjoined"])
    assert record["unjoined"]
    table = kernels(folder)
    assert set(table.loc[table["module"] == "lm_head", "bytes_source"]) == {"traced"}
    assert set(table.loc[table["module"] == "model.embed_tokens", "bytes_source"]) == {"ncu"}


def test_counters_without_ranges_are_joined_by_the_whole_sequence(box):
    folder = box("--backend", "nsight", ncu="no-ranges")
    assert kernels(folder)["dram_read_bytes"].sum() == truth()["read"].sum()


@pytest.mark.parametrize("kind", ["no-capture", "die"])
def test_a_recording_that_fails(box, capsys, kind):
    folder = box("--backend", "nsight", nsys=kind, status=2)
    assert "error:" in capsys.readouterr().err
    assert (folder / "bare.json").exists()


def test_a_recording_that_fails_falls_back_to_torch(box, capsys, monkeypatch):
    def by_torch(run):
        fake.write_kineto(run.folder.file("trace.json.gz"), fake.launches(STEPS))
        write_json(run.folder.file("costs.json"), {"op_ns": 0.0, "range_ns": 0.0})
        return []

    monkeypatch.setattr(timeline_stage, "_by_torch", by_torch)
    folder = box("--backend", "auto", nsys="no-capture")
    assert capsys.readouterr().err.count("falling back to torch.profiler") == 1
    table = in_order(folder)
    assert set(table["time_source"]) == {"torch"}
    assert set(table["bytes_source"]) == {"ncu"}
    assert json.loads((folder / "run.json").read_text())["sources"]["timeline"] == "torch"


def test_nothing_counted(box, capsys):
    box("--backend", "nsight", ncu="nothing", status=2)
    assert "profiled no kernels" in capsys.readouterr().err


def test_a_section_set_is_one_run(box):
    folder = box("--backend", "nsight", "--ncu-set", "full")
    assert (folder / "counters-set-1.csv").exists()
    assert not (folder / "counters-traffic-1.csv").exists()
    assert kernels(folder)["flops"].sum() == truth()["flops"].sum()


def test_top_limits_what_is_counted(box):
    folder = box("--backend", "nsight", "--top", "1")
    table = kernels(folder)
    counted = table[table["bytes_source"] == "ncu"]
    roles = set(counted["module"].str.replace(r"\d+", "*", regex=True))
    assert roles
    assert roles <= {"lm_head", *(f"model.layers.*.mlp.{name}_proj" for name in ("gate", "up", "down"))}
    rest = table[table["bytes_source"] != "ncu"]
    assert len(rest) > len(counted)


def test_plan_starts_nothing(box, capsys):
    folder = box("--backend", "nsight", "--plan", "--every-kernel", "--top", "2")
    said = capsys.readouterr().out
    assert "every member" in said
    assert "--top 2 leaves only the kernels with most time" in said
    assert not folder.exists()
    folder = box("--backend", "nsight", "--plan")
    said = capsys.readouterr().out
    assert not folder.exists()
    for word in ("kernels", "chosen", "passes", "minutes", "disk", "Nsight Systems version"):
        assert word in said
    assert "first and last members" in said


def test_plan_says_what_narrows_or_widens_the_choice(box, capsys):
    box("--backend", "nsight", "--plan", "--every-kernel", "--top", "2")
    said = capsys.readouterr().out
    assert "every member" in said
    assert "--top 2 leaves only the kernels with most time" in said


def test_launches_without_any_figure_are_not_counted(box, capsys):
    box("--backend", "nsight", ncu="no-metrics", status=2)
    assert "collected nothing of what was asked for" in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("--counters", "traced")])
def test_a_recording_without_ranges_is_no_finished_stage(box, capsys, options):
    folder = box("--backend", "nsight", *options, nsys="no-ranges", status=2)
    assert "no NVTX range" in capsys.readouterr().err
    assert not (folder / "timeline.json").exists()


def test_a_cut_export_is_made_again(box, capsys):
    box("--backend", "nsight", "--counters", "traced", nsys="cut-export", status=2)
    assert "not a readable sqlite" in capsys.readouterr().err
    box("--backend", "nsight", "--counters", "traced")


def test_an_ncu_that_is_killed_is_named(box, capsys):
    box("--backend", "nsight", ncu="killed", status=2)
    assert "ncu itself was ended by signal 9 (SIGKILL)" in capsys.readouterr().err
