"""`explain` and `trace` on a real run of this machine: every screen fits, and its figures are the tables'."""

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from kernelroof.profile.cli import main
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.roofline.units import seconds


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run of a small model of three layers."""
    from kernelroof.models.presets import load_config

    folder = tmp_path_factory.mktemp("explain")
    config = {**load_config("tiny-llama"), "num_hidden_layers": 3, "hidden_size": 320, "intermediate_size": 640}
    path = folder / "small.json"
    path.write_text(json.dumps({**config, "vocab_size": 512}))
    words = ["profile", str(path), "--device", "cpu", "--prompt", "16", "--output", "3", "--repeats", "1"]
    assert main([*words, "--threads", "1", "--out", str(folder / "run")]) == 0
    return folder / "run"


def said(capsys, *words):
    capsys.readouterr()
    assert main(["explain", *map(str, words)]) == 0
    return capsys.readouterr().out


VIEWS = [
    [],
    ["--phase", "prefill"],
    ["--phase", "decode"],
    ["--module", "mlp"],
    ["--phase", "prefill", "--module", "model.layers.1"],
    ["--module", "model.layers.*.self_attn"],
    ["--kernel", "1"],
    ["--phase", "prefill", "--kernel", "3"],
]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_each_view_is_one_screen_and_names_the_next(finished, capsys, view):
    lines = said(capsys, finished, *view).splitlines()
    further = [line.split(" ", 1)[1] for line in map(str.strip, lines) if line.startswith("kernelroof ")]
    assert further
    for command in further:
        assert main(shlex.split(command)) == 0
    own = [line for line in lines if str(finished) not in line]  # the test's folder has a long name
    assert max(map(len, own)) <= 100
    assert len(lines) <= 46


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_figures_are_those_of_the_tables(finished, capsys, phase):
    run = FinishedRun(finished)
    tables, steps = run.phase(phase), run.steps(phase)
    record = json.loads(said(capsys, finished, "--phase", phase, "--json"))
    assert record["wall_ns"] == pytest.approx(run.walls[phase]["bare_ns"] / steps)
    assert record["ideal_ns"] == pytest.approx(tables.summary.model_ns / steps)
    assert sum(record["terms_ns"].values()) == pytest.approx(record["wall_ns"])
    assert [k["kernel"] for k in record["kernels"]] == tables.kernels["label"].tolist()
    for name in ("time_ns", "recoverable_ns"):
        measured = tables.kernels[name].dropna().sum() / steps
        assert sum(k[name] for k in record["kernels"] if k[name] is not None) == pytest.approx(measured)
        assert sum(k[name] for k in record["kinds"] if k[name] is not None) == pytest.approx(measured)
    text = said(capsys, finished, "--phase", phase)
    first = record["kernels"][0]
    shown = next(line for line in text.splitlines() if line.lstrip().startswith("1 "))
    figures = [float(f) for f in re.findall(r"(?<= )\d+\.\d+(?= |$)", shown)]
    assert figures[1] == pytest.approx(first["time_ns"] / 1e6, rel=1e-2, abs=1e-3)


def test_parts_of_a_phase_add_up_to_it(finished, capsys):
    run = FinishedRun(finished)
    rows = run.kernels[run.kernels["phase"] == "decode"]
    layers = [json.loads(said(capsys, finished, "--module", f"model.layers.{i}", "--json")) for i in range(3)]
    inside = rows["module"].str.startswith("model.layers.")
    whole = (rows["time_ns"] * rows["count"])[inside].sum() / run.steps("decode")
    assert sum(one["time_ns"] for one in layers) == pytest.approx(whole)
    for one in layers:
        assert sum(one["terms_ns"].values()) == pytest.approx(one["time_ns"] + one["idle_ns"])
        assert sum(k["time_ns"] for k in one["kernels"]) == pytest.approx(one["time_ns"])
    mlp = json.loads(said(capsys, finished, "--module", "mlp", "--json"))
    assert sum(mlp["terms_ns"].values()) == pytest.approx(mlp["time_ns"] + mlp["idle_ns"])
    assert [r["layer"] for r in mlp["layers"]] == [f"model.layers.{i}" for i in range(3)]
    assert all(".mlp" in path for path in mlp["paths"])


def test_a_kind_is_the_sum_of_its_kernels(finished, capsys):
    """A module such as self_attn runs kernels of several kinds."""
    run = FinishedRun(finished)
    kernels = run.phase("decode").kernels
    assert kernels[kernels["role"] == "model.layers.*.self_attn"]["kind"].nunique() > 2
    record = json.loads(said(capsys, finished, "--phase", "decode", "--json"))
    kinds = {r["kind"]: r for r in record["kinds"]}
    for kind, rows in kernels.groupby("kind"):
        for name in ("time_ns", "ideal_ns", "recoverable_ns"):
            assert kinds[kind][name] == pytest.approx(rows[name].sum() / 3)
    answer = next(a["answer"] for a in record["answers"] if a["question"] == "Which module wastes most?")
    assert f"By kind of work, {record['kinds'][0]['kind']}: " in answer


def test_a_name_that_means_one_layer_is_that_layer(finished, capsys):
    run = FinishedRun(finished)
    rows = run.waterfall
    [row] = rows[(rows["phase"] == "decode") & (rows["scope"] == "layer") & (rows["name"] == "model.layers.1")].to_dict(
        "records"
    )
    for name in ("layers.1", "model.layers.1"):
        one = json.loads(said(capsys, finished, "--module", name, "--json"))
        assert one["terms_ns"] == {term: row[term] / 3 for term in one["terms_ns"]}
        assert "each module by itself" not in said(capsys, finished, "--module", name)
    assert "each module by itself" in said(capsys, finished, "--module", "layers.1.mlp")


def changed(finished, tmp_path, edits):
    """A copy of a run with other tables, without their hashes: name -> what makes the new frame, or the new record."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy, ignore=shutil.ignore_patterns("*.gz", "*.png", "stages.json"))
    for name, edit in edits.items():
        path = copy / name
        if name.endswith(".json"):
            record = json.loads(path.read_text())
            edit(record)
            path.write_text(json.dumps(record))
        else:
            edit(pd.read_csv(path)).to_csv(path, index=False)
    return copy


def doubt(record):
    for wall in record.values():
        wall["doubts"] = ["NOT STEADY: scaled by 1.3; a busy machine", "bare repeats spread from 1 ms to 2 ms: busy?"]


@pytest.mark.parametrize("view", [*VIEWS, ["--phase", "decode", "--kernel", "2"]], ids=" ".join)
def test_doubts_are_said_on_each_screen_of_a_phase(finished, capsys, tmp_path, view):
    run = changed(finished, tmp_path, {"wall.json": doubt})
    lines = said(capsys, run, *view).splitlines()
    assert "! in doubt: NOT STEADY; bare repeats spread from 1 ms to 2 ms (wall.json)" in lines
    assert len(lines) <= 46
    if view == ["--phase", "decode"]:
        assert "What to do? 1. first run again on a quiet machine" in "\n".join(lines)


def test_recordings_that_disagree_are_said_of_a_kernel(finished, capsys, tmp_path):
    same = changed(finished, tmp_path / "a", {"repeats.csv": lambda t: t[t["recording"] == 0]})
    assert "recordings disagree" not in said(capsys, same, "--kernel", "1")

    def slower(table):
        first = table[table["recording"] == 0]
        return pd.concat([first, first.assign(recording=1, time_ns=first["time_ns"] * 2)])

    other = changed(finished, tmp_path / "b", {"repeats.csv": slower})
    [low, high] = json.loads(said(capsys, other, "--kernel", "1", "--json"))["recordings_ns"]
    assert high == pytest.approx(2 * low)
    words = f"! recordings disagree: {seconds(low / 1e9, 3)} to {seconds(high / 1e9, 3)} per step"
    assert words in said(capsys, other, "--kernel", "1")


def test_small_shares_are_no_zero(finished, capsys, tmp_path):
    run = FinishedRun(finished)
    times = run.phase("prefill").kernels["time_ns"]
    last = int(times.where(times > 0).argmin()) + 1
    assert "(0 % of" not in said(capsys, finished, "--phase", "prefill", "--kernel", last)


def test_a_run_of_another_version_is_told_so(finished, capsys, tmp_path):
    run = changed(finished, tmp_path, {"kernels.csv": lambda t: t.drop(columns="idle_before_ns")})
    assert main(["explain", str(run)]) == 2
    error = capsys.readouterr().err
    assert "no column idle_before_ns: another version of kernelroof wrote it" in error
    assert "Profile again with this version" in error


@pytest.mark.parametrize("command", ["report", "explain", "pictures", "trace", "diff"])
def test_a_sweeps_folder_names_its_runs(finished, capsys, tmp_path, command):
    record = {"status": "complete", "identity": {"command": "measured sweep", "model": "m"}}
    point = tmp_path / "points" / "batch1_prompt8"
    point.mkdir(parents=True)
    for folder in (tmp_path, point):
        (folder / "run.json").write_text(json.dumps(record))
    words = [command, str(tmp_path), *([str(finished)] if command == "diff" else [])]
    assert main(words) == 2
    assert f"holds a sweep of many runs. Give the folder of one of them: {point}." in capsys.readouterr().err


def test_the_roofline_names_every_doubt(finished, tmp_path, monkeypatch):
    from kernelroof.profile import pictures

    run = FinishedRun(changed(finished, tmp_path, {"wall.json": doubt}))
    said_of = []
    for name in ("phase_roofline", "kernel_roofline"):
        monkeypatch.setattr(pictures, name, lambda *_, subtitle, **__: said_of.append(subtitle))
    pictures.draw_all(run, run.path, "what", top=1)
    assert said_of
    assert all(s.endswith("\nin doubt: NOT STEADY; bare repeats spread from 1 ms to 2 ms") for s in said_of)


def test_one_kernel_has_its_launches(finished, capsys):
    run = FinishedRun(finished)
    row = run.phase("decode").kernels.iloc[0]
    one = json.loads(said(capsys, finished, "--kernel", "1", "--json"))
    assert one["launches"] == pytest.approx(row["launches"] / run.steps("decode"))
    assert one["advice"] == row["advice"]
    assert one["slowest"][0]["time_ns"] == one["launch_ns"]["max"]
    assert one["counters"] is None
    assert "none: FLOPs and bytes are traced" in said(capsys, finished, "--kernel", "1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--module", "model.layers.*.mpl"], "mlp"),
        (["--module", "nothing_like_it"], "mlp"),
        (["--module", "layer.1"], "layers.1"),
        (["--kernel", "0"], "It has 1 to"),
        (["--kernel", "99999"], "It has 1 to"),
        (["--kernel", "1", "--module", "mlp"], "Give one of them"),
    ],
)
def test_what_is_not_there_is_one_line_that_helps(finished, capsys, words, message):
    assert main(["explain", str(finished), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "(sample)" not in error
    assert error.count("\n") == 1


def test_neither_command_loads_torch(finished, tmp_path):
    for words in (["explain", str(finished)], ["trace", str(finished), "--out", str(tmp_path / "t.json")]):
        code = (
            f"import sys; from kernelroof.profile.cli import main; status = main({words!r}); "
            "print([m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules], file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr.strip().endswith("[]")


def test_the_trace_has_every_launch_and_the_figures_of_kernels_csv(finished, tmp_path):
    run = FinishedRun(finished)
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    assert main(["trace", str(finished), "--out", str(plain)]) == 0
    assert main(["trace", str(finished), "--out", str(packed)]) == 0
    whole = json.loads(plain.read_text(encoding="utf-8"))
    assert json.loads(gzip.decompress(packed.read_bytes())) == whole
    assert "recording" in whole["otherData"]["clock"]
    events = whole["traceEvents"]
    tracks = {e["tid"] for e in events if e["ph"] == "M" and e["args"].get("name", "").endswith(": kernels")}
    slices = [e for e in events if e["ph"] == "X" and e["tid"] in tracks]
    assert len(slices) == len(run.launches)
    placed = [e["args"] for e in slices if "bound" in e["args"]]
    measured = run.kernels
    assert len(placed) == len(measured)
    key = "time on the bare run's clock (µs)"
    assert sum(a[key] for a in placed) == pytest.approx(measured["time_ns"].sum() / 1e3, rel=1e-4)
    assert all(a["what to do"] for a in placed if a["module"] != "(unattributed)")
