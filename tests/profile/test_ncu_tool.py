"""Nsight Compute's command line, tried on the real tool, and what its runs are turned into."""

import os
import re
from pathlib import Path

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.parsers.ncu import read_ncu
from kernelroof.parsers.ncu_errors import (
    CounterPermissionError,
    DriverError,
    NoKernelsError,
    OptionError,
    ProgramFailedError,
    ReplayInterruptedError,
    ReportReaderError,
    UnknownMetricError,
)
from kernelroof.profile import ncu
from kernelroof.profile.ncu import Counting, count, count_command, export_csv, push_pop
from kernelroof.profile.ncu_metrics_plan import PURPOSES, plan
from kernelroof.profile.tool_errors import DiskFullError, ToolFailed, ToolTimeout

SHARED = Path(os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared")
CAPTURES = SHARED / "captures" / "ncu_rep"
NO_GPU = (NoKernelsError, DriverError)
"""How ncu ends without a GPU, once its command line was accepted: with a driver library, and without."""

ONE = Counting(metrics=("dram__bytes_read.sum",))
COUNTINGS = {
    "default": ONE,
    "no locks, no flush": ONE._replace(cache_control="none", clock_control="none"),
    "ranges": ONE._replace(nvtx_include=(push_pop("prefill", "step0"), push_pop("model.layers.0.mlp (a/b), [c]"))),
    "names": ONE._replace(kernel_names="gemm|flash.*<", launch_skip=3, launch_count=10),
    "from cudaProfilerStart": ONE._replace(profile_from_start=False),
    "application replay": ONE._replace(replay="application"),
    "range replay": ONE._replace(replay="range"),
    "full set": Counting(section_set="full"),
    "set and metrics": ONE._replace(section_set="roofline"),
}
PARSE = "while [ $# -gt 0 ]; do case $1 in --export) rep=$2;; --log-file) log=$2;; esac; shift; done\n"
DONE = '==PROF== Profiling "k" - 0: 0%....50%....100% - 3 passes\n==PROF== Profiling "k" - 1: 0%....100% - 1 pass\n'


def says(text, report=True, after=""):
    """The body of a stand-in that writes this log, maybe a report, and then does something else."""
    return f"{PARSE}cat > $log <<'END'\n{text}\nEND\n{'echo report > $rep' if report else ''}\n{after}"


@pytest.mark.parametrize("counting", COUNTINGS.values(), ids=COUNTINGS)
def test_the_real_tool_accepts_every_command_line(ncu_tool, tmp_path, counting):
    with pytest.raises(NO_GPU):
        count(ncu_tool, ["/bin/true"], tmp_path, counting, timeout=120)
    assert (tmp_path / "counters.ncu.log").exists()
    assert not (tmp_path / "counters.ncu-rep").exists()


@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("chip", ["gv100", "gh100"])
def test_the_real_tool_accepts_the_command_of_a_plan(ncu_tool, tmp_path, chip, purpose):
    planned = plan(chip, ncu_tool.version, purpose)
    counting = Counting(metrics=planned.metrics, cache_control=planned.cache_control)
    with pytest.raises(NO_GPU):
        count(ncu_tool, ["/bin/true"], tmp_path, counting, timeout=120)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ["--nonsense", "/bin/true"]),
        ({"section_set": "full"}, ["--section", "nonsense", "/bin/true"]),
        ({}, ["--cache-control", "sometimes", "/bin/true"]),
    ],
)
def test_what_the_real_tool_does_not_accept_is_an_option_error(ncu_tool, tmp_path, change, wrong):
    with pytest.raises(OptionError) as caught:
        count(ncu_tool, wrong, tmp_path, ONE._replace(**change), timeout=120)
    assert caught.value.evidence


def test_a_program_that_does_not_exist(ncu_tool, tmp_path):
    with pytest.raises(Exception, match=r"no-such-program.*does not exist"):
        count(ncu_tool, ["/no-such-program"], tmp_path, ONE, timeout=120)


def test_app_range_where_it_is_known(ncu_tool, tmp_path):
    counting = ONE._replace(replay="app-range")
    if ncu_tool.version < (2023, 1):
        with pytest.raises(UsageError, match=r"ncu 2022\.3\.0 has no replay mode app-range"):
            count(ncu_tool, ["/bin/true"], tmp_path, counting)
    else:
        with pytest.raises(NO_GPU):
            count(ncu_tool, ["/bin/true"], tmp_path, counting, timeout=120)


@pytest.mark.parametrize(
    "counting",
    [
        Counting(),
        ONE._replace(cache_control="some"),
        ONE._replace(clock_control="boost"),
        ONE._replace(replay="rewind"),
        Counting(metrics=("a__b.sum,c__d.sum",)),
    ],
)
def test_settings_that_make_no_sense(fake, counting):
    with pytest.raises(UsageError):
        count_command(fake("ncu", ""), ["x"], Path("out"), counting)


def test_nothing_is_left_to_a_default_that_changed(fake, tmp_path):
    command = count_command(fake("ncu", ""), ["python", "-m", "x"], tmp_path / "a.b", ONE, log=tmp_path / "log")
    text = " ".join(command)
    for option in ("--target-processes all", "--cache-control all", "--clock-control base", "--replay-mode kernel"):
        assert option in text
    assert f"--export {tmp_path}/a.b.ncu-rep" in text
    assert command[-3:] == ["python", "-m", "x"]


def test_range_filters():
    assert push_pop("decode") == "decode/"
    assert push_pop("decode", "step3") == "decode/*/step3/"
    assert push_pop("a/b,[c]@d*\\") == r"a\/b\,\[c\]\@d\*\\/"


def test_a_good_run_keeps_report_log_and_passes(fake, tmp_path):
    heard = []
    tool = fake("ncu", says(DONE, after="echo program output"))
    counted = count(tool, ["x"], tmp_path, ONE, name="traffic", on_line=heard.append)
    assert counted.report == tmp_path / "traffic.ncu-rep"
    assert counted.report.read_text() == "report\n"
    assert counted.problem is None
    assert counted.said.passes == {0: 3, 1: 1}
    assert counted.one_pass is False
    assert ncu.passes(counted.log) == {0: 3, 1: 1}
    assert heard == ["program output"]
    assert (tmp_path / "traffic.out.txt").read_text() == "program output\n"


PERMISSION = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"


@pytest.mark.parametrize(
    ("log", "status", "kind"),
    [
        (f"{PERMISSION}\n==ERROR== The application returned an error code (1).", 1, CounterPermissionError),
        ("==WARNING== No kernels were profiled.", 0, NoKernelsError),
        ("==ERROR== Failed to find metric dram__x.sum", 1, UnknownMetricError),
        ("==ERROR== The application returned an error code (3).", 3, ProgramFailedError),
        ("==PROF== Connected to process 7 (/usr/bin/x)", 0, NoKernelsError),
        ("==PROF== Connected to process 7 (/usr/bin/x)", 9, ToolFailed),
    ],
)
def test_what_the_messages_say_whatever_the_status(fake, tmp_path, log, status, kind):
    tool = fake("ncu", says(log, report=False, after=f"exit {status}"))
    with pytest.raises(kind):
        count(tool, ["x"], tmp_path, ONE)


def test_an_old_report_is_not_taken_for_a_new_one(fake, tmp_path):
    (tmp_path / "counters.ncu-rep").write_text("old")
    with pytest.raises(NoKernelsError):
        count(fake("ncu", says("==WARNING== No kernels were profiled.", report=False)), ["x"], tmp_path, ONE)


def test_what_was_recorded_before_the_end_is_kept_with_the_reason(fake, tmp_path):
    log = (
        f'{DONE}==PROF== Profiling "cut" - 2: 0%....50%.... - 19 passes\n==ERROR== Failed to profile "cut"\n'
        "==ERROR== The application returned an error code (15).\n==PROF== Report: x.ncu-rep"
    )
    counted = count(fake("ncu", says(log, after="exit 1")), ["x"], tmp_path, ONE)
    assert counted.report.exists()
    assert isinstance(counted.problem, ReplayInterruptedError)
    assert sorted(counted.said.passes) == [0, 1]


def test_a_run_that_takes_too_long_keeps_the_report_that_ncu_still_wrote(fake, tmp_path):
    body = f"{PARSE}trap '' INT\nsleep 60\nprintf '%s' '{DONE}' > $log\necho report > $rep"
    counted = count(fake("ncu", body), ["x"], tmp_path, ONE, timeout=0.5)
    assert isinstance(counted.problem, ToolTimeout)
    assert counted.report.read_text() == "report\n"


def test_a_run_that_takes_too_long_and_leaves_nothing(fake, tmp_path):
    with pytest.raises(ToolTimeout, match=r"after 0\.5 s"):
        count(fake("ncu", "exec sleep 60"), ["x"], tmp_path, ONE, timeout=0.5)


def test_full_disk(fake, tmp_path):
    body = says("==ERROR== Unable to write: No space left on device", report=False, after="exit 1")
    with pytest.raises(DiskFullError, match=re.escape(str(tmp_path))):
        count(fake("ncu", body), ["x"], tmp_path, ONE)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the folder of captures is not here")
def test_export_of_a_real_report(ncu_tool, tmp_path):
    csv = tmp_path / "counters.csv"
    report = CAPTURES / "rtx3070_nvtx_nested.ncu-rep"
    assert export_csv(ncu_tool, report, csv) == csv
    exported, direct = read_ncu(csv, own_run=True), read_ncu(report)
    assert list(exported.counters["kernel"]) == list(direct.counters["kernel"])
    assert exported.counters["time_ns"].tolist() == direct.counters["time_ns"].tolist()


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the folder of captures is not here")
def test_a_report_of_a_newer_version(ncu_tool, tmp_path):
    report, csv = CAPTURES / "h100_rmsnorm_set-full.ncu-rep", tmp_path / "counters.csv"
    if ncu_tool.version >= (2024, 2):
        assert read_ncu(export_csv(ncu_tool, report, csv), own_run=True).counters["dram_read_bytes"].notna().all()
        return
    with pytest.raises(ReportReaderError, match=r"ncu 2022\.3\.0 can't read .*h100_rmsnorm"):
        export_csv(ncu_tool, report, csv)
    assert not csv.exists()


def test_a_damaged_report(ncu_tool, tmp_path):
    report = tmp_path / "cut.ncu-rep"
    report.write_bytes(b"NVR\0" + bytes(200))
    with pytest.raises(ReportReaderError, match=r"cut\.ncu-rep"):
        export_csv(ncu_tool, report, tmp_path / "out.csv")
    assert list(tmp_path.glob("*.csv")) == []


def test_metrics_of_a_chip_that_the_tool_does_not_know(ncu_tool):
    assert ncu.query_metrics(ncu_tool, "gb999") is None
