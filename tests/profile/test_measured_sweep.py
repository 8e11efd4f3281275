"""A measured sweep on a small model: its points are ordinary runs, a failing one is told, finished ones stay."""

import json

import pandas as pd
import pytest
from kernelroof.models.estimate import costs
from kernelroof.models.presets import load_config
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload
from kernelroof.profile.cli import main
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.measured_sweep import POINT_FAILED, Point, points_of
from kernelroof.roofline.ceilings import highest

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
    assert {p.name for p in point.iterdir()} - {p.name for p in alone.iterdir()} == {"story.txt"}
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
