"""Run folders that were cut, changed, mixed up or hold strange names: one line that says which file, never a figure."""

import json
import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from kernelroof.models.errors import OutputError
from kernelroof.profile import cli
from kernelroof.profile.cli import TRACEBACK, UNFORESEEN, main
from kernelroof.profile.runfolder import whole_file

WORDS = ["--device", "cpu", "--prompt", "8", "--output", "2", "--repeats", "1", "--threads", "1"]
READERS = {
    "run.json": "report",
    "stages.json": "report",
    "wall.json": "report",
    "estimate.json": "report",
    "ceilings.json": "report",
    "kernels.csv": "report",
    "launches.csv": "trace",
    "ops.csv": "explain",
    "waterfall.csv": "explain",
    "spread.csv": "explain",
    "repeats.csv": "diff",
    "unmatched.csv": "report",
}
"""File of a run folder -> a command that reads it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model and a finished run of it."""
    from kernelroof.models.presets import load_config

    folder = tmp_path_factory.mktemp("bad")
    small = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 128, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    (folder / "small.json").write_text(json.dumps({**load_config("tiny-llama"), **small}))
    assert main(["profile", str(folder / "small.json"), *WORDS, "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def run(made, tmp_path):
    """A copy of the run, to be damaged."""
    return shutil.copytree(made / "run", tmp_path / "run")


def refused(words, capsys):
    """The one line that a command ends with."""
    capsys.readouterr()
    assert main([str(w) for w in words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert not [line for line in lines if "Traceback" in line]
    assert [line.startswith("kernelroof: error: ") for line in lines].count(True) == 1
    return lines[-1]


def command(name, run, tmp_path):
    out = ["--out", tmp_path / "out.html"] if name in ("report", "trace") else []
    return [name, run, *([run] if name == "diff" else []), *out]


DAMAGE = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut at a line": lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1])),
    "twice": lambda path: path.write_bytes(path.read_bytes() + path.read_bytes().split(b"\n", 1)[1]),
    "nothing but nul": lambda path: path.write_bytes(b"\0" * 100 + b"\n"),
    "UTF-16": lambda path: path.write_bytes(path.read_text().encode("utf-16")),
    "a digit changed": lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2", 1)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", READERS)
def test_a_file_that_is_not_as_the_run_wrote_it_is_named(run, tmp_path, capsys, file, damage):
    if damage == "missing" and file == "stages.json":
        pytest.skip("tables are then checked for sense alone, see below")
    before = (run / file).read_bytes()
    DAMAGE[damage](run / file)
    if (run / file).is_file() and (run / file).read_bytes() == before:
        pytest.skip("this damage leaves this file as it was")
    words = command(READERS[file], run, tmp_path)
    line = refused(words, capsys)
    assert file in line or "holds no run" in line
    assert "kernelroof profile" in line
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize(
    ("file", "column", "value", "says"),
    [
        ("kernels.csv", "time_ns", None, "no column time_ns"),
        ("kernels.csv", "time_ns", "-5", "time_ns is -5 in line 3"),
        ("kernels.csv", "time_ns", "", "time_ns is missing in line 3"),
        ("kernels.csv", "time_ns", "9" * 25, "kernels.csv"),
        ("kernels.csv", "ideal_ns", "inf", "ideal_ns is inf in line 3"),
        ("kernels.csv", "flops", "many", "kernels.csv"),
        ("ops.csv", "ideal_ns", "nan", "ideal_ns"),
        ("ops.csv", "flops", None, "no column flops"),
        ("waterfall.csv", "idle_ns", "1", "do not add up"),
        ("waterfall.csv", "scope", "phase", "rows of the whole"),
        ("spread.csv", "noise_pct", "-1", "noise_pct is -1"),
        ("spread.csv", "launch_max_ns", None, "no column launch_max_ns"),
    ],
)
def test_without_hashes_figures_that_can_not_be_are_found(run, capsys, file, column, value, says):
    (run / "stages.json").unlink()
    table = pd.read_csv(run / file, dtype=str, keep_default_na=False)
    if value is None:
        table = table.drop(columns=[column])
    else:
        table.loc[1, column] = value
    table.to_csv(run / file, index=False)
    line = refused(["explain", run], capsys)
    assert file in line
    assert says in line


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("wall.json", (), {}),
        ("wall.json", ("decode", "bare_ns"), -1),
        ("wall.json", ("decode", "bare_ns"), float("inf")),
        ("wall.json", ("decode", "doubts"), None),
        ("wall.json", ("train",), {}),
        ("estimate.json", ("decode",), {}),
        ("estimate.json", ("prefill", "flops"), "many"),
        ("ceilings.json", ("byte_s",), 0),
        ("run.json", ("identity", "output"), 0),
        ("run.json", ("identity", "machine"), None),
        ("run.json", ("environment",), "here"),
    ],
)
def test_without_hashes_records_that_can_not_be_are_found(run, capsys, file, path, value):
    (run / "stages.json").unlink()
    record = json.loads((run / file).read_text())
    part = record
    for key in path[:-1]:
        part = part[key]
    if path:
        part[path[-1]] = value
    (run / file).write_text(json.dumps(record if path else value))
    assert file in refused(["explain", run], capsys)


@pytest.mark.parametrize("damage", ["cut at a line", "twice"])
def test_without_hashes_lost_and_doubled_kernels_are_found(run, capsys, damage):
    (run / "stages.json").unlink()
    DAMAGE[damage](run / "kernels.csv")
    assert "wall.json accounts for" in refused(["diff", run, run], capsys)


def test_the_gate_refuses_a_run_without_a_phase(made, run, capsys):
    (run / "stages.json").unlink()
    walls = json.loads((run / "wall.json").read_text())
    (run / "wall.json").write_text(json.dumps({"prefill": walls["prefill"]}))
    assert main(["diff", str(made / "run"), str(run)]) == 0
    assert "only one run has decode" in capsys.readouterr().out
    assert "decode" in refused(["diff", made / "run", run, "--fail-over", "5%"], capsys)


def test_a_phase_without_kernels_has_no_modules(run, capsys):
    (run / "stages.json").unlink()
    walls = json.loads((run / "wall.json").read_text())
    for wall in walls.values():
        wall["ops_ns"] = 0
    (run / "wall.json").write_text(json.dumps(walls))
    lines = (run / "kernels.csv").read_text().splitlines(keepends=True)
    (run / "kernels.csv").write_text(lines[0])
    assert "no module 'mlp'" in refused(["explain", run, "--module", "mlp"], capsys)


def test_a_folder_without_hashes_is_read_with_a_note(run, capsys):
    (run / "stages.json").unlink()
    assert main(["explain", str(run)]) == 0
    assert "no stages.json" in capsys.readouterr().err


def test_bare_times_are_those_of_the_second_try(run):
    from kernelroof.profile.finished_run import FinishedRun

    again = {**json.loads((run / "bare.json").read_text()), "repeats": 77}
    (run / "bare_again.json").write_text(json.dumps(again))
    assert FinishedRun(run).bare["repeats"] == 77


def test_a_record_of_another_run_is_found(run, capsys):
    record = json.loads((run / "run.json").read_text())
    record["identity"]["prompt"] = 9
    (run / "run.json").write_text(json.dumps(record))
    assert "not of one run" in refused(["diff", run, run], capsys)


def test_nothing_is_recorded_over_a_folder_that_lost_its_stages(made, run, capsys):
    (run / "stages.json").unlink()
    before = (run / "bare.json").read_bytes()
    for prompt in ("8", "9"):
        words = ["profile", made / "small.json", *WORDS, "--out", run, "--prompt", prompt]
        assert "stages.json" in refused(words, capsys)
    assert (run / "bare.json").read_bytes() == before


def test_a_sweep_names_its_points(run, tmp_path, capsys):
    sweep = tmp_path / "sweep"
    shutil.copytree(run, sweep / "points" / "batch1_prompt8")
    identity = {"command": "measured sweep", "model": "small"}
    (sweep / "run.json").write_text(json.dumps({"status": "complete", "identity": identity}))
    assert str(sweep / "points" / "batch1_prompt8") in refused(["report", sweep], capsys)


STRANGE = {
    "markup": "<img src=x onerror=alert(1)></script>",
    "escapes": "\x1b[31mred\x1b]0;title\x07\x1b[2J",
    "lines": "two\nlines\r\nhere",
    "direction": "abc\u202eevil",
    "formula": "$\\frac{1$ and $x_{$",
    "styles": "[bold red]x[/bold red] {0} %s",
    "long": "k" * 10_000,
    "missing": "NA",
    "emoji": "🔥 日本",
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_names_are_text_everywhere(run, tmp_path, capsys, name):
    (run / "stages.json").unlink()
    for file in ("kernels.csv", "launches.csv", "ops.csv", "waterfall.csv", "spread.csv", "repeats.csv"):
        table = pd.read_csv(run / file, dtype=str, keep_default_na=False)
        for column in table.columns.intersection(["module", "role", "name", "op", "kernel"]):
            for plain in ("mlp.up_proj", "aten::mm"):
                table[column] = table[column].str.replace(plain, STRANGE[name], regex=False)
        table.to_csv(run / file, index=False)
    page, drawn = tmp_path / "r.html", tmp_path / "drawn"
    for words in (
        ["report", run, "--out", page],
        ["explain", run, "--phase", "decode"],
        ["explain", run, "--kernel", "1"],
        ["diff", run, run, "--out", tmp_path / "d.html"],
        ["trace", run, "--out", tmp_path / "t.json"],
        ["pictures", run, "--top", "2", "--out", drawn],
    ):
        assert main([str(w) for w in words]) == 0, words
        said = capsys.readouterr()
        assert not set("\x1b\x07\u202e") & set(said.out + said.err)
        assert "Traceback" not in said.err
        assert "Warning" not in said.err
    assert "<img src=x" not in page.read_text(encoding="utf-8")
    assert len(list(drawn.glob("kernels/*.png"))) == 4


def test_drawing_again_leaves_other_pictures(run):
    mine = run / "kernels" / "my_1_picture.png"
    mine.write_bytes(b"mine")
    assert main(["pictures", str(run), "--top", "1"]) == 0
    assert mine.exists()


@pytest.mark.parametrize("name", ["kernels.csv", "bare.json", "trace.json.gz", "run.json", "stages.json"])
@pytest.mark.parametrize("word", ["report", "trace", "diff"])
def test_nothing_is_written_over_a_recording(run, capsys, word, name):
    before = (run / name).read_bytes()
    words = [word, run, *([run] if word == "diff" else []), "--out", run / name]
    assert "that a run recorded" in refused(words, capsys)
    assert (run / name).read_bytes() == before


def test_devices_pipes_and_folders_are_no_targets(run, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for target in ("/dev/null", "/dev/stdout", tmp_path / "pipe", tmp_path):
        assert str(target) in refused(["report", run, "--out", target], capsys)
    (tmp_path / "link.html").symlink_to("real.html")
    assert main(["report", str(run), "--out", str(tmp_path / "link.html")]) == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").stat().st_size > 1000


def test_a_folder_that_is_a_file_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Not a directory"), whole_file(tmp_path / "file" / "x.html") as part:
        part.write_text("")


def test_an_empty_name_is_no_name(run, capsys):
    assert "empty" in refused(["report", ""], capsys)
    assert "no module ''" in refused(["explain", run, "--module", ""], capsys)


def test_streams_that_are_closed(run, tmp_path):
    code = "import sys; from kernelroof.profile.cli import main; sys.exit(main(sys.argv[1:]))"
    page = tmp_path / "r.html"
    for words, status in ((["report", str(run), "--out", str(page)], 0), (["report", str(tmp_path / "none")], 2)):
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$0" -c "$@" >&- 2>&-', sys.executable, code, *words], check=False
        )
        assert done.returncode == status
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_folder_whose_name_is_no_text(run, tmp_path, capsys):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/run\xff")
    os.rename(run, odd)
    for words in (["diff", odd, odd, "--out", str(tmp_path / "d.html")], ["trace", odd], ["report", odd]):
        assert main(words) == 0
    assert "\\udcff" in (tmp_path / "d.html").read_text(encoding="utf-8")


def test_an_unforeseen_error_is_one_line(monkeypatch, capsys):
    def fail(_):
        raise KeyError("\x1b[31ma name\nof two lines")

    monkeypatch.setattr(cli, "_dispatch", fail)
    monkeypatch.delenv(TRACEBACK, raising=False)
    assert main(["models"]) == UNFORESEEN
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "KeyError" in error
    assert TRACEBACK in error
    assert "\x1b" not in error
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(KeyError):
        main(["models"])


@pytest.mark.parametrize("written", [None, '{"traceEvents": [{"ph": "X"'])
def test_a_trace_that_torch_wrote_in_part_is_not_kept(tmp_path, written):
    from kernelroof.profile.torch_backend import export

    class Recorder:
        def export_chrome_trace(self, path):
            if written is not None:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(written)

    with pytest.raises(OutputError, match="TMPDIR"):
        export(Recorder(), tmp_path / "trace.json.gz")
    assert list(tmp_path.iterdir()) == []
