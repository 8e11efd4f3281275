"""Finding the profilers, and running a program so that nothing is lost."""

import os
import sys
import time
from pathlib import Path

import pytest
from kernelroof.profile import tools
from kernelroof.profile.process_tree import MARK
from kernelroof.profile.tool_disk import check_disk
from kernelroof.profile.tool_errors import DiskFullError, ToolBroken, ToolMissing, ToolTimeout
from kernelroof.profile.tools import find_tool, last_words, run_tool


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(tools, "_INSTALLED", {"nsys": (), "ncu": ()})


def test_the_variable_comes_before_path(program, tmp_path):
    on_path = program("ncu", "", "2022.3.0.0")
    other = program("my-ncu", "", "2024.2.0.0")
    environ = {"PATH": str(on_path.parent)}
    assert find_tool("ncu", environ=environ).version == (2022, 3, 0, 0)
    found = find_tool("ncu", environ={**environ, "KERNELROOF_NCU": str(other)})
    assert found.version == (2024, 2, 0, 0)
    assert found.path == other.resolve()
    assert found.text == "Version 2024.2.0.0 (build 1)"


def test_path_is_resolved_and_remembered_as_found(program, tmp_path):
    real = program("nsys-real", "", "2023.4.4.54")
    link = tmp_path / "links" / "nsys"
    link.parent.mkdir()
    link.symlink_to(real)
    tool = find_tool("nsys", environ={"PATH": str(link.parent)})
    assert (tool.path, tool.found) == (real.resolve(), link)


@pytest.mark.parametrize(("name", "package"), [("nsys", "nsight-systems"), ("ncu", "nsight-compute")])
def test_missing_says_how_to_install(nothing_installed, name, package):
    with pytest.raises(ToolMissing, match=package) as caught:
        find_tool(name, environ={"PATH": "/nonexistent"})
    assert f"KERNELROOF_{name.upper()}" in caught.value.hint


def test_a_variable_that_names_nothing_is_no_reason_to_take_another(program):
    on_path = program("ncu", "")
    with pytest.raises(ToolMissing, match="KERNELROOF_NCU is /nonexistent/ncu"):
        find_tool("ncu", environ={"PATH": str(on_path.parent), "KERNELROOF_NCU": "/nonexistent/ncu"})


def test_the_newest_installed_version_is_taken(monkeypatch, tmp_path):
    for version in ("2023.4.1", "2023.10.2", "2022.4"):
        path = tmp_path / version / "bin" / "nsys"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho version {version}\n")
        path.chmod(0o755)
    broken = tmp_path / "2099.1" / "bin" / "nsys"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(tools, "_INSTALLED", {"nsys": (f"{tmp_path}/*/bin/nsys",)})
    assert find_tool("nsys", environ={"PATH": "/nonexistent"}).version == (2023, 10, 2)


def test_a_program_without_a_version_is_broken(tmp_path):
    path = tmp_path / "nsys"
    path.write_text("#!/bin/sh\necho libssh.so: cannot open shared object file\nexit 127\n")
    path.chmod(0o755)
    with pytest.raises(ToolBroken, match=r"libssh\.so"):
        find_tool("nsys", environ={"PATH": str(tmp_path)})


def test_output_goes_to_the_log_line_by_line(tmp_path):
    lines = []
    log = tmp_path / "log"
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr, flush=True); print('x', end='')"
    run = run_tool([sys.executable, "-c", code], log=log, on_line=lines.append)
    assert run == (0, "one\ntwo\nx")
    assert lines == ["one", "two", "x"]
    assert log.read_text() == "one\ntwo\nx"


def test_environment_and_folder(tmp_path):
    code = "import os; print(os.environ['LC_ALL'], os.environ['MINE'], os.getcwd())"
    run = run_tool([sys.executable, "-c", code], env={"MINE": "yes"}, cwd=tmp_path)
    assert run.output.split() == ["C", "yes", str(tmp_path)]


def test_status_of_a_program_that_fails_or_dies():
    assert run_tool(["/bin/sh", "-c", "exit 7"]).returncode == 7
    assert run_tool(["/bin/sh", "-c", "kill -9 $$"]).returncode == -9


def test_a_program_that_cannot_start():
    with pytest.raises(ToolBroken, match="/nonexistent/tool can't be started"):
        run_tool(["/nonexistent/tool"])


LEAVES_ITS_SESSION = (
    "echo begun; setsid sleep 77 & echo $! > {pid}; setsid sh -c 'trap \"\" TERM INT; sleep 78' & sleep 79"
)


def runs(pid):
    """Whether a process runs; one that has ended may stay as a zombie until process 1 looks after it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def left_with(mark_owner):
    """Processes that still run under a mark of this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark_owner}-".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_timeout_stops_also_what_left_the_session(tmp_path):
    pid, log = tmp_path / "pid", tmp_path / "log"
    with pytest.raises(ToolTimeout, match=r"sh was stopped after 0\.5 s"):
        run_tool(["/bin/sh", "-c", LEAVES_ITS_SESSION.format(pid=pid)], log=log, timeout=0.5)
    assert log.read_text().startswith("begun\n")
    assert not left_with(os.getpid())
    assert not runs(int(pid.read_text()))


def test_interrupt_stops_everything_and_keeps_the_log(tmp_path):
    log = tmp_path / "log"

    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tool(["/bin/sh", "-c", LEAVES_ITS_SESSION.format(pid=tmp_path / "pid")], log=log, on_line=interrupt)
    assert log.read_text().startswith("begun\n")
    assert not left_with(os.getpid())


def test_the_program_is_ended_first_so_that_the_profiler_can_write(tmp_path):
    report = tmp_path / "report"
    script = f"trap '' INT; sleep 60; echo what was seen > {report}"
    started = time.monotonic()
    with pytest.raises(ToolTimeout):
        run_tool(["/bin/sh", "-c", script], timeout=0.5)
    assert report.read_text() == "what was seen\n"
    assert time.monotonic() - started < 60


def test_last_words_leave_out_rulers_and_progress():
    assert last_words("a\n10%\r50%\rError: no.\n-----\n\n") == "Error: no"
    assert last_words("the argument is invalid\n\nUse --help for further details.\n") == "the argument is invalid"
    assert last_words("") == ""


def test_full_disk_by_words_and_by_free_space(monkeypatch, tmp_path):
    check_disk("all is well", [tmp_path])
    with pytest.raises(DiskFullError, match="no space is left"):
        check_disk("write failed: No space left on device", [tmp_path])
    monkeypatch.setattr("kernelroof.profile.tool_disk.free_bytes", lambda place: 0 if place == tmp_path else 10**9)
    with pytest.raises(DiskFullError, match=str(tmp_path)):
        check_disk("", [tmp_path])
