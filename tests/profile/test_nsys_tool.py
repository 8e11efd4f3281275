"""Nsight Systems: real recordings of the driver on the CPU, and stand-ins for what can go wrong."""

import os
import sys

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.parsers.nsys_csv import read_stats
from kernelroof.parsers.nsys_errors import ImporterMissingError, NoReportDataError, OldExporterError
from kernelroof.parsers.nsys_sqlite import read_nsys
from kernelroof.profile import nsys
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.tool_errors import DiskFullError, NothingRecorded, TargetFailed, ToolFailed, ToolTimeout, ending
from kernelroof.profile.tools import Tool

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
PUSH = """
import nvtx, sys, time
for name in sys.argv[2:]:
    nvtx.push_range(name)
    time.sleep(float(sys.argv[1]))
    nvtx.pop_range()
"""
PARSE = "while [ $# -gt 0 ]; do case $1 in --output|-o) out=$2;; esac; shift; done\n"
NO_IMPORTER = "Importer error status: The importer binary and its dependencies were not found."


def pushing(seconds, *names):
    return [sys.executable, "-c", PUSH, str(seconds), *names]


def record(tool, target, folder, **options):
    return nsys.record(tool, target, folder, **{"capture_range": False, "traces": ("nvtx",), "timeout": 300} | options)


def expected_ranges(spec):
    """What the driver pushes, in order, found by running it with a sink that writes names down."""
    from kernelroof.profile.driver import prepare, run_pass
    from kernelroof.profile.ranges import Sink, module_ranges

    stack, paths = [], []

    def push(name):
        stack.append(name)
        paths.append(tuple(stack))

    session = prepare(spec)
    with module_ranges(session.model, spec.depth, (Sink(push, stack.pop),)) as ranges:
        run_pass(session, ranges)
    return paths


def recorded_paths(frame):
    """Every range as the tuple of names that lead to it, by time alone."""
    rows = frame.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
    stack, paths = [], []
    for name, end in zip(rows["name"], rows["end_ns"], strict=True):
        while stack and stack[-1][1] < end:
            stack.pop()
        stack.append((name, end))
        paths.append(tuple(n for n, _ in stack))
    return paths


@pytest.mark.parametrize("traces", [("nvtx",), nsys.TRACES], ids="+".join)
def test_the_driver_is_found_again_in_the_recording(nsys_tool, tmp_path, traces):
    spec = DriverSpec(config=CONFIG, prompt=6, output=3, depth="module", threads=1, warmup=1, repeats=1)
    spec_file = tmp_path / "spec.json"
    spec_file.write_text(spec.to_json())
    driver = ["-m", "kernelroof.profile.driver", "--spec", str(spec_file), "--mode", "ranges", "--out"]
    report = record(nsys_tool, [sys.executable, *driver, str(tmp_path / "times.json")], tmp_path, traces=traces)
    assert report == tmp_path / "timeline.nsys-rep"
    assert not (tmp_path / "timeline.qdstrm").exists()
    assert (tmp_path / "times.json").exists()
    recording = read_nsys(nsys.export_sqlite(nsys_tool, report, tmp_path / "timeline.sqlite"), need_kernels=False)
    recording.require_ranges()
    expected = expected_ranges(spec)
    assert recorded_paths(recording.ranges) == expected
    modules = {path[-1] for path in expected if path[-1].startswith(("model", "lm_head"))}
    assert len(modules) > 20
    assert set(recording.ranges["phase"].dropna()) == {"prefill", "decode"}
    decode = recording.ranges[recording.ranges["phase"] == "decode"]
    assert sorted(decode["step"].dropna().unique()) == [0, 1, 2]
    assert modules == set(recording.ranges["module"].dropna()) & modules


def test_stats_by_todays_name(nsys_tool, tmp_path):
    report = record(nsys_tool, pushing(0.3, "one", "two"), tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    out = nsys.stats_csv(nsys_tool, report, "nvtx_pushpop_trace", tmp_path / "ranges.csv")
    table = read_stats(out).frame
    assert [name.lstrip(":") for name in table["name"]] == ["one", "two"]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "ranges.csv"])
    with pytest.raises(NoReportDataError):
        nsys.stats_csv(nsys_tool, report, "cuda_gpu_trace", tmp_path / "kernels.csv")
    with pytest.raises(UsageError, match="Choose one of cuda_gpu_trace"):
        nsys.stats_csv(nsys_tool, report, "no_such_table", tmp_path / "x.csv")
    assert not (tmp_path / "kernels.csv").exists()


def test_an_exporter_older_than_the_report(real, alone, tmp_path):
    old, new = real("nsys", "2022.4"), real("nsys", "2023.4")
    report = record(new, pushing(0.01, "one"), tmp_path)
    with pytest.raises(OldExporterError, match=r"2023\.4"):
        nsys.export_sqlite(old, report, tmp_path / "timeline.sqlite")
    assert not (tmp_path / "timeline.sqlite").exists()


def test_a_capture_range_that_is_never_opened_exits_0_and_is_caught(nsys_tool, tmp_path):
    with pytest.raises(NothingRecorded, match="cudaProfilerStart"):
        record(nsys_tool, pushing(0.01, "one"), tmp_path, capture_range=True, traces=("cuda", "nvtx"))


def test_a_program_that_fails_leaves_its_recording(nsys_tool, tmp_path):
    code = PUSH + "\nsys.exit(3)"
    with pytest.raises(TargetFailed, match="status 3") as caught:
        record(nsys_tool, [sys.executable, "-c", code, "0.01", "one"], tmp_path)
    assert str(tmp_path / "timeline.nsys-rep") in caught.value.hint
    sqlite = nsys.export_sqlite(nsys_tool, tmp_path / "timeline.nsys-rep", tmp_path / "t.sqlite")
    assert list(read_nsys(sqlite, need_kernels=False).ranges["name"]) == ["one"]


def test_a_program_that_is_killed_leaves_its_recording(nsys_tool, tmp_path):
    code = "import nvtx, os, time\nfor n in ('one', 'two'):\n nvtx.push_range(n); time.sleep(.3); nvtx.pop_range()\n"
    with pytest.raises(TargetFailed):
        record(nsys_tool, [sys.executable, "-c", f"{code}time.sleep(2); os.kill(os.getpid(), 9)"], tmp_path)
    sqlite = nsys.export_sqlite(nsys_tool, tmp_path / "timeline.nsys-rep", tmp_path / "t.sqlite")
    assert list(read_nsys(sqlite, need_kernels=False).ranges["name"]) == ["one", "two"]


def test_a_recording_that_is_stopped_keeps_what_it_has(nsys_tool, tmp_path):
    # What a tool has written when it is stopped is its own affair: a slow machine gets longer.
    for patience in (8, 20, 45):
        folder = tmp_path / str(patience)
        folder.mkdir()
        with pytest.raises(ToolTimeout):
            record(nsys_tool, pushing(0.2, *(f"r{k}" for k in range(1000))), folder, timeout=patience)
        sqlite = nsys.export_sqlite(nsys_tool, folder / "timeline.nsys-rep", folder / "t.sqlite")
        names = list(read_nsys(sqlite, need_kernels=False).ranges["name"])
        if names:
            break
    assert names
    assert names == [f"r{k}" for k in range(len(names))]


def test_ctrl_c_leaves_a_stream_that_can_be_imported(nsys_tool, tmp_path):
    def interrupt(line):
        if line == "three pushed":
            raise KeyboardInterrupt

    code = f"{PUSH}\nprint('three pushed', flush=True)\ntime.sleep(600)"
    target = [sys.executable, "-c", code, "0.5", "one", "two", "three"]
    with pytest.raises(KeyboardInterrupt):
        record(nsys_tool, target, tmp_path, on_line=interrupt)
    raw, report = tmp_path / "timeline.qdstrm", tmp_path / "timeline.nsys-rep"
    if not report.exists():
        nsys.import_raw(nsys_tool, raw, report)
    sqlite = nsys.export_sqlite(nsys_tool, report, tmp_path / "t.sqlite")
    assert list(read_nsys(sqlite, need_kernels=False).ranges["name"]) == ["one", "two", "three"]


def test_options_that_the_real_tool_refuses(nsys_tool, tmp_path):
    with pytest.raises(UsageError, match="--nonsense"):
        record(nsys_tool, ["/bin/true"], tmp_path, extra=["--nonsense"])
    with pytest.raises(UsageError, match="bogus"):
        record(nsys_tool, ["/bin/true"], tmp_path, traces=("bogus",))


def test_a_program_that_does_not_exist(nsys_tool, tmp_path):
    with pytest.raises(TargetFailed, match="can't start the program"):
        record(nsys_tool, ["/no-such-program"], tmp_path)


def test_the_command_goes_on_after_the_capture_and_keeps_graphs_apart(fake, tmp_path):
    text = " ".join(nsys.record_command(fake("nsys", ""), ["x", "-y"], tmp_path / "t"))
    for option in ("--capture-range cudaProfilerApi --capture-range-end stop", "--cuda-graph-trace node"):
        assert option in text
    assert "--sample none" in text
    assert text.endswith(" x -y")
    plain = nsys.record_command(fake("nsys", ""), ["x"], tmp_path / "t", capture_range=False, traces=("nvtx",))
    assert not {"--capture-range", "--cuda-graph-trace"} & set(plain)


def linked(fake, tmp_path, body, importer):
    """A stand-in as packages install it: a link, a link in bin, the real program elsewhere, the importer beside."""
    tool = fake("nsys", body, "2023.4.4")
    home = tmp_path / "lib" / "nsight-systems"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nsys").symlink_to(tool.path)
    link = tmp_path / "usr-bin-nsys"
    link.symlink_to("lib/nsight-systems/bin/nsys")
    if importer is not None:
        (home / "host-linux-x64").mkdir()
        path = home / "host-linux-x64" / "QdstrmImporter"
        path.write_text(f"#!/bin/sh\n{PARSE.replace('--output', '-o2')}{importer}\n")
        path.chmod(0o755)
    return tool._replace(found=link)


LEAVES_RAW = f'{PARSE}echo raw > $out.qdstrm; echo "{NO_IMPORTER}"'


def test_a_raw_stream_is_imported_by_the_importer_beside_a_link(fake, tmp_path):
    tool = linked(fake, tmp_path, LEAVES_RAW, "echo imported > $out")
    report = record(tool, ["x"], tmp_path)
    assert report.read_text() == "imported\n"
    assert not (tmp_path / "timeline.qdstrm").exists()


def test_no_importer_names_the_package_and_keeps_the_stream(fake, tmp_path):
    tool = linked(fake, tmp_path, LEAVES_RAW, None)
    with pytest.raises(ImporterMissingError, match="nsight-systems"):
        record(tool, ["x"], tmp_path)
    assert (tmp_path / "timeline.qdstrm").read_text() == "raw\n"


def test_an_importer_that_fails_keeps_the_stream(fake, tmp_path):
    broken = "echo 'QdstrmImporter: error while loading shared libraries: libssh.so: cannot open'; exit 127"
    with pytest.raises(ToolFailed, match=r"libssh\.so"):
        record(linked(fake, tmp_path, LEAVES_RAW, broken), ["x"], tmp_path)
    assert (tmp_path / "timeline.qdstrm").exists()


def test_a_stream_that_could_not_be_written_where_asked_is_fetched(fake, tmp_path):
    elsewhere = tmp_path / "nsys-report-1.qdstrm"
    body = f'echo raw > {elsewhere}; echo "Failed to create x"; echo Generated:; echo "    {elsewhere}"'
    tool = linked(fake, tmp_path, body, "echo imported > $out")
    assert record(tool, ["x"], tmp_path).read_text() == "imported\n"


def test_where_a_full_disk_sent_the_stream_is_said(fake, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere" / "nsys-report-1.qdstrm"
    elsewhere.parent.mkdir()
    monkeypatch.setattr("kernelroof.profile.tool_disk.free_bytes", lambda place: 0 if place == tmp_path else 10**9)
    body = f'echo raw > {elsewhere}; echo "Failed to create x"; echo Generated:; echo "    {elsewhere}"'
    with pytest.raises(DiskFullError, match=f"what was recorded is in {elsewhere}"):
        record(fake("nsys", body), ["x"], tmp_path)


def test_an_old_report_is_not_taken_for_a_new_one(fake, tmp_path):
    (tmp_path / "timeline.nsys-rep").write_text("old")
    with pytest.raises(ToolFailed, match=r"nsys 2024\.2 left no report"):
        record(fake("nsys", "echo well"), ["x"], tmp_path)


def test_full_disk(fake, tmp_path):
    with pytest.raises(DiskFullError):
        record(fake("nsys", "echo 'write failed: No space left on device'"), ["x"], tmp_path)
    with pytest.raises(DiskFullError):
        nsys.export_sqlite(fake("nsys", "echo 'database or disk is full'; exit 1"), tmp_path / "a", tmp_path / "b")


def test_an_export_that_exits_0_without_a_file(fake, tmp_path):
    with pytest.raises(ToolFailed, match="could not export"):
        nsys.export_sqlite(fake("nsys", "echo all good"), tmp_path / "a.nsys-rep", tmp_path / "b.sqlite")


def test_a_table_under_its_other_name(fake, tmp_path):
    """A version that was thought to know the new names, and knows only the old ones."""
    body = (
        'case $* in *nvtx_pushpop_trace*) echo "ERROR: Report could not be found.";; '
        f"*) {PARSE.strip()}\necho table > ${{out}}_nvtxpptrace.csv;; esac"
    )
    sqlite = tmp_path / "r.sqlite"
    sqlite.write_text("")
    tool = fake("nsys", body, "2023.1")
    assert nsys.stats_csv(tool, sqlite, "nvtx_pushpop_trace", tmp_path / "o.csv").read_text() == "table\n"


def test_names_by_version():
    old, new = (Tool("nsys", None, v, "") for v in ((2022, 4, 2), (2023, 4)))
    assert nsys.stats_names(old, "cuda_gpu_kern_sum")[0] == "gpukernsum"
    assert nsys.stats_names(new, "cuda_gpu_kern_sum")[0] == "cuda_gpu_kern_sum"


def test_links_that_go_in_circles_end(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    os.symlink(b, a)
    os.symlink(a, b)
    assert nsys.find_importer(Tool("nsys", tmp_path / "x", (1,), "", a)) is None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (3, "status 3"),
        (139, "signal 11 (SIGSEGV)"),
        (-9, "signal 9 (SIGKILL)"),
        (255, "status 255"),
        (128, "status 128"),
    ],
)
def test_endings_in_words(status, words):
    assert ending(status) == words


def test_an_nsys_that_is_killed_is_not_the_programs_failure(fake, tmp_path):
    with pytest.raises(ToolFailed, match=r"nsys itself was ended by signal 9 \(SIGKILL\)"):
        nsys.record(fake("nsys", "kill -9 $$"), ["true"], tmp_path)
