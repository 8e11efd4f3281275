"""A measured sweep on a small model: its points are ordinary runs, a failing one is told, finished ones stay."""

import json
import shutil

import pandas as pd
import pytest
from kernelroof.models.estimate import costs
from kernelroof.models.expected import expected_phase
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload
from kernelroof.profile.cli import main
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.measured_sweep import POINT_FAILED, Point, points_of, sweep_table
from kernelroof.profile.sweep_expected import expected_of
from kernelroof.roofline.ceilings import from_json, highest, to_json
from kernelroof.roofline.gpus import ceilings_for, find_gpu
from kernelroof.roofline.place import place
from kernelroof.roofline.units import quantity

SMALL = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64}  # fmt: skip
OPTIONS = ["--output", "2", "--repeats", "2", "--top", "1"]
LISTS = ["--batch", "2,1", "--prompt", "16,500"]
FIXED = ("phase", "step", "module", "kernel", "ordinal", "op", "flops", "launches")
FORWARDS = {"prefill": 1, "decode": 2}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small-llama.json"
    path.write_text(json.dumps({**load_config("tiny-llama"), **SMALL}))
    return path


@pytest.fixture(scope="module")
def sweep(config, tmp_path_factory):
    """A sweep whose longer prompt is beyond the model's positions."""
    out = tmp_path_factory.mktemp("runs") / "sweep"
    assert main(["profile", str(config), "--out", str(out), *LISTS, *OPTIONS]) == POINT_FAILED
    return out


@pytest.fixture(scope="module")
def table(sweep):
    return pd.read_csv(sweep / "sweep.csv")


def test_points_with_least_work_come_first():
    assert points_of([8, 1], [128, 512]) == [Point(1, 128), Point(1, 512), Point(8, 128), Point(8, 512)]
    assert points_of([4, 1], [10, 40]) == [Point(1, 10), Point(1, 40), Point(4, 10), Point(4, 40)]


def test_a_point_that_fails_is_told_and_the_others_are_measured(sweep, table):
    record = json.loads((sweep / "run.json").read_text())
    assert record["status"] == "complete"
    assert [p["point"] for p in record["points"]] == ["batch 1, prompt 16", "batch 2, prompt 16"]
    assert [p["point"] for p in record["failed"]] == ["batch 1, prompt 500", "batch 2, prompt 500"]
    assert all("64" in p["error"] for p in record["failed"])
    assert table.groupby("phase")["batch"].apply(list).to_dict() == {"decode": [1, 2], "prefill": [1, 2]}
    assert set(table["prompt"]) == {16}
    assert (sweep / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_point_is_the_single_run(sweep, config, tmp_path):
    """What does not hang on the clock is the same to the last bit."""
    alone = tmp_path / "alone"
    assert main(["profile", str(config), "--out", str(alone), "--batch", "2", "--prompt", "16", *OPTIONS]) == 0
    point = sweep / "points/batch2_prompt16"
    ours, theirs = ({p.name for p in folder.iterdir()} - {"bare_again.json"} for folder in (point, alone))
    assert ours - theirs == {"story.txt"}
    for name in ("ops.csv", "modules.csv", "kernels.csv"):
        ours, theirs = (pd.read_csv(folder / name) for folder in (point, alone))
        assert list(ours) == list(theirs)
        same = [c for c in ours if c in FIXED or c.endswith("bytes")]
        assert len(same) > 2
        pd.testing.assert_frame_equal(ours[same], theirs[same])


def test_the_ideal_is_the_closed_form_at_the_highest_roofs(sweep, table, config):
    spec = read_spec(load_config(str(config)))
    roofs = highest([FinishedRun(p).ceilings for p in sorted((sweep / "points").glob("batch*"))])
    for row in table.to_dict("records"):
        made = costs(spec, make_workload(spec, batch=row["batch"], prompt=16, output=2))
        cost = getattr(made, row["phase"])
        seconds = max(cost.flops / roofs.flop_s, cost.bytes / roofs.byte_s)
        assert row["ideal_ms"] == pytest.approx(1e3 * seconds / FORWARDS[row["phase"]])
        assert row["intensity"] == pytest.approx(cost.flops / cost.bytes)


def slower_machine(folder):
    """As if the machine had been busy during this point: its own roofs are a quarter of what they are."""
    (folder / "stages.json").unlink()  # it has the hashes of what is changed here
    path = folder / "ceilings.json"
    ceilings, details = from_json(path.read_text())
    low = ceilings._replace(flop_s=ceilings.flop_s / 4, byte_s=ceilings.byte_s / 4)
    details["rounds"] = [{**r, "flop_s": r["flop_s"] / 4, "byte_s": r["byte_s"] / 4} for r in details["rounds"]]
    path.write_text(to_json(low, details))
    run = FinishedRun(folder)
    place(run.kernels.assign(reason=None), low)[run.kernels.columns].to_csv(folder / "kernels.csv", index=False)


def test_all_figures_of_a_row_are_at_the_same_roofs(sweep, table, tmp_path):
    """A point under its own low roofs gives the same row as under those that the sweep has: but for what it says."""
    names = ("batch1_prompt16", "batch2_prompt16")
    for name in names:
        shutil.copytree(sweep / "points" / name, tmp_path / name)
    slower_machine(tmp_path / names[0])
    made = sweep_table([FinishedRun(tmp_path / name) for name in names])
    runs = [FinishedRun(tmp_path / name) for name in names]
    top = max(runs, key=lambda r: r.ceilings.flop_s).ceilings.flop_s
    assert set(made["roof_flop_s"]) == {top}
    for row in made.to_dict("records"):
        run = runs[row["batch"] - 1]
        assert row["own_flop_s"] == run.ceilings.flop_s
        assert (row["own_roofs"] is None or pd.isna(row["own_roofs"])) == (row["batch"] == 2)
        roofs = run.ceilings._replace(flop_s=row["roof_flop_s"], byte_s=row["roof_byte_s"])
        kernels = place(run.kernels.assign(reason=None), roofs)
        kernels = kernels[kernels["phase"] == row["phase"]]
        known = kernels.dropna(subset="ideal_ns")
        share = 100 * (known["ideal_ns"] * known["count"]).sum() / (known["time_ns"] * known["count"]).sum()
        assert row["pct_of_roof"] == pytest.approx(share)
        assert row["recoverable_ms"] == pytest.approx(kernels["recoverable_ns"].sum() / FORWARDS[row["phase"]] / 1e6)
        assert row["pct_of_ideal"] == pytest.approx(max(row["mfu_pct"], row["mbu_pct"]))
    assert made["own_roofs"].dropna().str.contains("where the sweep has").all()


def test_times_lie_in_their_ranges(table):
    assert (table["wall_low_ms"] <= table["wall_ms"]).all()
    assert (table["wall_ms"] <= table["wall_high_ms"]).all()
    prefill = table[table["phase"] == "prefill"]
    assert prefill["wall_low_ms"].tolist() == pytest.approx(prefill["repeat_low_ms"].tolist())


def test_ranges_are_of_the_bare_passes_that_count(sweep, tmp_path):
    """Where the first were disturbed, those of the second try."""
    folder = tmp_path / "point"
    shutil.copytree(sweep / "points/batch1_prompt16", folder)
    for name in ("bare.json", "bare_again.json"):
        times = {"prefill_ns": [len(name)], "decode_step_ns": [[1, 2]]}
        (folder / name).write_text(json.dumps(times))
    (folder / "stages.json").unlink()
    assert FinishedRun(folder).bare["prefill_ns"] == [len("bare_again.json")]
    (folder / "bare_again.json").unlink()
    assert FinishedRun(folder).bare["prefill_ns"] == [len("bare.json")]


def test_on_a_cpu_nothing_is_expected_and_why_is_told(table):
    assert table["expected_ms"].isna().all()
    assert set(table["expected_note"]) == {
        "not known: kernels were measured on GPUs of the table only, not on this CPU"
    }


@pytest.fixture
def on_a_gpu(sweep, tmp_path):
    """A point as if it had run in half precision on a GPU of which kernels were measured; a larger model."""
    folder = tmp_path / "gpu"
    shutil.copytree(sweep / "points/batch2_prompt16", folder)
    (folder / "stages.json").unlink()  # it has the hashes of what is changed here
    record = json.loads((folder / "run.json").read_text())
    record["identity"] |= {"dtype": "bfloat16", "device": "cuda"}
    config = record["identity"]["driver"]["config"]
    config |= {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
    (folder / "run.json").write_text(json.dumps(record))
    gpu = find_gpu("h100-sxm")
    (folder / "ceilings.json").write_text(to_json(ceilings_for(gpu, "bfloat16")._replace(origin="measured")))
    return FinishedRun(folder)


def test_on_a_measured_gpu_there_are_expected_times(on_a_gpu):
    config = on_a_gpu.identity["driver"]["config"]
    spec = read_spec(config)
    load = make_workload(spec, batch=2, prompt=16, output=2, dtype="bfloat16")
    peaks = ceilings_for(find_gpu("h100-sxm"), "bfloat16")
    rates = {"flop_s": peaks.flop_s, "byte_s": peaks.byte_s}
    by_hand = {
        "prefill": [expected_phase(spec, load, "h100-sxm", "prefill", **rates)],
        "decode": [expected_phase(spec, load, "h100-sxm", "decode", context=seen, **rates) for seen in (17, 18)],
    }
    for phase, times in by_hand.items():
        found = expected_of(on_a_gpu, phase)
        assert found.ms == pytest.approx(1e3 * sum(t.seconds for t in times) / len(times))
        assert found.note.startswith("kernels of vLLM as measured on the device, without host time")


def test_finished_points_are_not_measured_again(sweep, config):
    """The same command goes on: what is there stays, a folder that is gone is made again."""
    kept = sweep / "points/batch1_prompt16/trace.json.gz"
    before = kept.stat().st_mtime_ns, kept.read_bytes()
    (sweep / "sweep.csv").unlink()
    lost = sweep / "points/batch2_prompt16"
    lost.rename(sweep.parent / "lost")
    assert main(["profile", str(config), "--out", str(sweep), *LISTS, *OPTIONS]) == POINT_FAILED
    assert (kept.stat().st_mtime_ns, kept.read_bytes()) == before
    assert json.loads((lost / "run.json").read_text())["status"] == "complete"
    assert len(pd.read_csv(sweep / "sweep.csv")) == 4


def test_other_lists_go_on_and_keep_what_is_there(sweep, config, tmp_path, capsys):
    """Points of the same settings join the table; others, and those that can't be read, are left out and named."""
    out = tmp_path / "sweep"
    shutil.copytree(sweep, out)
    kept = out / "points/batch1_prompt16"
    before = (kept / "trace.json.gz").stat().st_mtime_ns
    odd, cut = out / "points/batch8_prompt16", out / "points/batch9_prompt16"
    for folder in (odd, cut):
        shutil.copytree(kept, folder)
    (odd / "stages.json").unlink()  # it has the hashes of what is changed here
    record = json.loads((odd / "run.json").read_text())
    record["identity"] |= {"batch": 8, "dtype": "bfloat16"}
    (odd / "run.json").write_text(json.dumps(record))
    kernels = pd.read_csv(cut / "kernels.csv").drop(columns="idle_before_ns")
    kernels.to_csv(cut / "kernels.csv", index=False)
    capsys.readouterr()
    assert main(["profile", str(config), "--out", str(out), "--batch", "3", "--prompt", "8,16", *OPTIONS]) == 0
    said = capsys.readouterr()
    assert (kept / "trace.json.gz").stat().st_mtime_ns == before
    table = pd.read_csv(out / "sweep.csv")
    points = set(zip(table["batch"], table["prompt"], strict=True))
    assert points == {(1, 16), (2, 16), (3, 8), (3, 16)}
    record = json.loads((out / "run.json").read_text())
    assert [p["point"] for p in record["points"]] == [
        *("batch 1, prompt 16", "batch 3, prompt 8", "batch 2, prompt 16", "batch 3, prompt 16"),
    ]
    assert [p["point"] for p in record["left_out"]] == ["batch 8, prompt 16", "batch9_prompt16"]
    assert "left out of the table: batch 8, prompt 16: measured with another dtype" in said.err
    assert "kernels.csv is not as the run wrote it" in said.err
    # The curves are of the whole table.
    assert "from batch 1 to 3" in " ".join(said.out.split())


def test_points_of_other_settings_are_not_measured_over(sweep, config, tmp_path, capsys):
    out = tmp_path / "sweep"
    shutil.copytree(sweep, out)
    assert main(["profile", str(config), "--out", str(out), "--batch", "1,2", "--prompt", "16", "--output", "3"]) == 2
    assert "output 2 there, 3 asked" in capsys.readouterr().err
    assert len(pd.read_csv(out / "sweep.csv")) == 4
    assert FinishedRun(out / "points/batch1_prompt16").identity["output"] == 2


def test_lists_are_refused_before_a_program(capsys):
    assert main(["profile", "tiny-llama", "--batch", "1,2", "--", "python", "x.py"]) == 2
    assert "another program" in capsys.readouterr().err


def test_the_plan_of_a_sweep_names_every_point_and_starts_nothing(tmp_path, config, capsys):
    out = tmp_path / "none"
    assert main(["profile", str(config), "--plan", "--out", str(out), "--batch", "1,2", "--prompt", "16"]) == 0
    said = capsys.readouterr().out
    assert "batch 1, prompt 16:" in said
    assert "batch 2, prompt 16:" in said
    assert not out.exists()
    last = said.splitlines()[-2:]
    assert last[0].startswith("sum       2 points: about ")
    spec = read_spec(load_config(str(config)))
    cost = costs(spec, make_workload(spec, batch=2, prompt=16))
    assert last[1].startswith("          largest: batch 2, prompt 16: weights ")
    assert quantity(cost.weight_bytes + cost.kv_bytes, "B") in last[1]
