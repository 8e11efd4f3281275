"""The run folder keeps what was recorded: whole files, one writer, stages that resume."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernelroof.models.errors import OutputError
from kernelroof.profile.runfolder import RunFolder, whole_file, write_json, write_text

IDENTITY = {"model": "m", "batch": 1}


def finish(run):
    write_json(run.file("run.json"), {"identity": run.identity})


def test_an_interrupted_write_leaves_no_file(tmp_path):
    target = tmp_path / "table.csv"
    with pytest.raises(KeyboardInterrupt), whole_file(target) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_keeps_the_old_file(tmp_path):
    target = tmp_path / "table.csv"
    write_text(target, "old")
    with pytest.raises(RuntimeError), whole_file(target) as part:
        part.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]


def test_a_full_disk_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="space"), whole_file(tmp_path / "table.csv"):
        raise OSError(28, "No space left on device")


def test_what_was_not_written_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="space"), whole_file(tmp_path / "page.html"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_only_a_folder_with_measured_stages_can_lose_them(tmp_path):
    for measured, out in (((), tmp_path / "sweep"), (("bare",), tmp_path / "run")):
        out.mkdir()
        write_json(out / "run.json", {"identity": {"a": 1}})
        write_text(out / "table.csv", "x")
        folder = RunFolder(out, {"a": 1}, files=("table.csv",), measured=measured)
        if measured:
            with pytest.raises(OutputError, match=r"no stages\.json"), folder:
                pass
        else:
            with folder:
                pass
        assert (out / "table.csv").exists()


def test_a_device_is_not_replaced_by_a_file():
    before = os.stat(os.devnull).st_mode
    with pytest.raises(OutputError, match="no ordinary file"), whole_file(Path(os.devnull)) as part:
        part.write_text("lost")
    assert os.stat(os.devnull).st_mode == before


def test_stages_resume_and_depend_on_their_inputs(tmp_path):
    done = []

    def work(run, name):
        def write():
            done.append(name)
            write_text(run.file(name), name)

        return write

    with RunFolder(tmp_path / "run", IDENTITY) as run:
        finish(run)
        assert run.stage("a", {"x": 1}, ["a.txt"], work(run, "a.txt"))
        with pytest.raises(RuntimeError):
            run.stage("b", {"a": run.key_of("a")}, ["b.txt"], lambda: (_ for _ in ()).throw(RuntimeError()))
    with RunFolder(tmp_path / "run", IDENTITY) as run:
        assert not run.stage("a", {"x": 1}, ["a.txt"], work(run, "a.txt"))
        assert run.stage("b", {"a": run.key_of("a")}, ["b.txt"], work(run, "b.txt"))
        assert run.stage("a", {"x": 2}, ["a.txt"], work(run, "a.txt")), "changed inputs run it again"
        run.file("b.txt").unlink()
        assert run.stage("b", {"a": run.key_of("a")}, ["b.txt"], work(run, "b.txt")), "a lost output is made again"
    assert done == ["a.txt", "b.txt", "a.txt", "b.txt"]


def test_a_stage_that_writes_nothing_is_an_error(tmp_path):
    with RunFolder(tmp_path / "run", IDENTITY) as run, pytest.raises(OutputError, match=r"a\.txt"):
        run.stage("a", {}, ["a.txt"], lambda: None)


def recorded(run):
    finish(run)
    run.stage("bare", {}, ["bare.json"], lambda: write_json(run.file("bare.json"), {"precious": 1}))


OTHER = {"model": "m", "batch": 2}


def test_another_run_is_not_overwritten_unless_asked(tmp_path):
    with RunFolder(tmp_path, IDENTITY) as run:
        recorded(run)
    (tmp_path / "notes.csv").write_text("the user's own")
    with pytest.raises(OutputError, match="batch 1 there, 2 asked"), RunFolder(tmp_path, OTHER, files=["bare.json"]):
        pass
    assert (tmp_path / "bare.json").exists()
    with RunFolder(tmp_path, OTHER, files=["bare.json"], overwrite=True) as run:
        assert run.key_of("bare") is None
        assert not (tmp_path / "bare.json").exists()
    assert (tmp_path / "notes.csv").read_text() == "the user's own"


def test_a_run_that_measured_nothing_blocks_no_other(tmp_path):
    with RunFolder(tmp_path, IDENTITY) as run:
        finish(run)
        run.stage("roofs", {}, ["roofs.json"], lambda: write_json(run.file("roofs.json"), {}))
    with RunFolder(tmp_path, OTHER, files=["roofs.json"], measured=["bare"]):
        assert not (tmp_path / "roofs.json").exists()


def test_a_damaged_or_missing_output_is_made_again(tmp_path):
    made = []

    def work(run):
        made.append(1)
        write_text(run.file("kernels.csv"), "whole")
        write_text(run.file("extra.png"), "picture")
        return ["extra.png"]

    for damage in (None, "kernels.csv", "extra.png"):
        with RunFolder(tmp_path, IDENTITY) as run:
            finish(run)
            if damage:
                run.file(damage).write_text("wh")
            run.stage("kernels", {}, ["kernels.csv"], lambda run=run: work(run))
            assert run.file("kernels.csv").read_text() == "whole"
    assert len(made) == 3
    with RunFolder(tmp_path, IDENTITY) as run:
        assert not run.stage("kernels", {}, ["kernels.csv"], lambda: made.append(1))


@pytest.mark.parametrize("content", ["", "[]", "null", "{", "\x00"])
@pytest.mark.parametrize("name", ["run.json", "stages.json"])
def test_a_damaged_record_is_said_and_can_be_replaced(tmp_path, name, content):
    with RunFolder(tmp_path, IDENTITY) as run:
        recorded(run)
    (tmp_path / name).write_text(content)
    with pytest.raises(OutputError, match="--overwrite"), RunFolder(tmp_path, IDENTITY):
        pass
    with RunFolder(tmp_path, IDENTITY, overwrite=True):
        pass


@pytest.mark.parametrize(
    "content", ["", "garbage", '{"pid": 99999999999999999999}', '{"pid": -1}', '{"pid": 0}', "[]", '{"pid": 1e999}']
)
def test_a_lock_that_names_no_living_process_is_taken_over(tmp_path, content):
    (tmp_path / "run.lock").write_text(content)
    with RunFolder(tmp_path, IDENTITY):
        assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()


def test_a_lock_of_an_earlier_process_with_this_pid_is_stale(tmp_path):
    (tmp_path / "run.lock").write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    with RunFolder(tmp_path, IDENTITY):
        pass


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(OutputError, match="not empty"), RunFolder(tmp_path, IDENTITY, overwrite=True):
        pass


def test_two_writers_exclude_each_other_and_a_dead_one_does_not(tmp_path):
    with RunFolder(tmp_path, IDENTITY), pytest.raises(OutputError, match="in use"), RunFolder(tmp_path, IDENTITY):
        pass
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    (tmp_path / "run.lock").write_text(json.dumps({"pid": int(gone.stdout)}))
    with RunFolder(tmp_path, IDENTITY):
        assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()
    assert not (tmp_path / "run.lock").exists()


def test_leftovers_of_a_killed_run_are_cleared(tmp_path):
    (tmp_path / ".part-1-kernels.csv").write_text("half")
    with RunFolder(tmp_path, IDENTITY):
        pass
    assert not list(tmp_path.glob(".part-*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_place(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="--out"), RunFolder(tmp_path / "run", IDENTITY):
        pass


def test_another_run_is_named_in_few_words(tmp_path):
    with RunFolder(tmp_path / "run", {"paths": [f"/some/folder/{i}.csv" for i in range(40)]}) as run:
        finish(run)
    with pytest.raises(OutputError) as caught, RunFolder(tmp_path / "run", {"paths": ["/a.csv"]}):
        pass
    assert "paths 40 (/some/folder/0.csv, ...) there, /a.csv asked" in str(caught.value)
