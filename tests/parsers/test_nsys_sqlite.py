"""nsys sqlite: schemas, attribution of tiny recordings with known answers, refusals."""

import gzip
import hashlib
import sqlite3

import pytest
from kernelroof.models.errors import KernelroofError, ReportError
from kernelroof.parsers.nsys_errors import GraphTraceOnlyError, ImporterMissingError, NoKernelsError, NoRangesError
from kernelroof.parsers.nsys_frames import NO_CALL, NO_RANGE
from kernelroof.parsers.nsys_sqlite import read_nsys
from kernelroof.parsers.nsys_windows import path_sums, phase_sums
from kernelroof.parsers.schema import LAUNCHES

GEMM = "void gemm<float, 4>(int, float const*)"


def sums_by_path(nsys, column="kernel_ns"):
    sums = path_sums(nsys)
    return dict(zip(sums["path"], sums[column].astype(int), strict=True))


def two_kernels(file, **options):
    """One range around two launches whose kernels run later."""
    file.range("prefill", 1000, 1500, **options)
    file.launch(1100, 11, 5000, 6000)
    return file.launch(1300, 12, 6000, 6500, name="copyk")


@pytest.mark.parametrize("variant", ["text", "textId", "no textId column", "NVTX_EVENTS_V2"])
def test_range_names_wherever_they_are(nsys_file, variant):
    file = two_kernels(
        nsys_file(),
        by_id=variant == "textId",
        table="NVTX_EVENTS_V2" if variant == "NVTX_EVENTS_V2" else "NVTX_EVENTS",
    )
    nsys = read_nsys(file.write(drop=("textId",) if variant == "no textId column" else ()))
    in_range = nsys.launches[nsys.launches["ranges"] == "prefill"]
    assert dict(zip(in_range["kernel"], in_range["time_ns"], strict=True)) == {GEMM: 1000, "copyk": 500}
    assert list(in_range["phase"]) == ["prefill", "prefill"]
    assert nsys.unattributed.empty


def test_text_and_text_id_in_one_file(nsys_file):
    file = two_kernels(nsys_file())
    file.range("decode", 1500, 1700, by_id=True).launch(1600, 13, 7000, 7001)
    assert sums_by_path(read_nsys(file.write())) == {"": 1501, "prefill": 1500, "decode": 1}


def test_launch_time_decides_never_gpu_time(nsys_file):
    file = nsys_file().range("prefill", 1000, 1300).range("decode", 1300, 1600)
    file.launch(1100, 11, 1500, 9000).launch(1350, 12, 9000, 9100)
    sums = phase_sums(read_nsys(file.write())).set_index("phase")["busy_ns"]
    assert sums.to_dict() == {"prefill": 7500, "decode": 100}


def test_graph_launch_is_one_launch(nsys_file):
    file = nsys_file().range("prefill", 1000, 2000).call(1100, 20, name="cudaGraphLaunch_v10000")
    for node, (start, end) in enumerate([(5000, 6000), (6000, 6400), (6400, 6500)], start=100):
        file.kernel(start, end, 20, graphNodeId=node)
    nsys = read_nsys(file.write())
    row = phase_sums(nsys).iloc[0]
    assert (row["kernels"], row["kernel_ns"], row["launches"]) == (3, 1500, 1)
    assert list(nsys.work["graph_node"]) == [100, 101, 102]
    assert list(nsys.launches["ordinal"]) == [0, 1, 2]


def test_nested_ranges_count_once_in_total(nsys_file):
    file = nsys_file().range("decode", 1000, 2000).range("layer0", 1050, 1500).launch(1100, 11, 5000, 6000)
    nsys = read_nsys(file.write())
    assert sums_by_path(nsys) == {"": 1000, "decode": 1000, "decode/layer0": 1000}
    assert nsys.launches["time_ns"].sum() == 1000
    assert (nsys.launches["phase"][0], nsys.launches["module"][0]) == ("decode", "layer0")


def test_phase_step_and_module_of_our_ranges(nsys_file):
    file = nsys_file().range("prefill", 0, 100).range("step0", 1, 99).range("model.embed", 2, 20)
    file.range("decode", 100, 900).range("step0", 110, 400).range("step1", 410, 800)
    file.range("model.layers.0", 420, 600).range("model.layers.0.self_attn", 430, 500)
    file.range("aten::mm, op_id = 3", 440, 460).range("ncclAllReduce", 470, 480, domain=3)
    file.range("(sample)", 700, 750)
    for number, at in enumerate([10, 50, 120, 425, 450, 475, 710, 850, 950]):
        file.launch(at, number, 1000 + number, 1001 + number)
    table = read_nsys(file.write()).launches
    assert table[["phase", "step", "module"]].astype(object).where(table["step"].notna(), None).values.tolist() == [
        ["prefill", 0, "model.embed"],
        ["prefill", 0, "(root)"],
        ["decode", 0, "(root)"],
        ["decode", 1, "model.layers.0"],
        ["decode", 1, "model.layers.0.self_attn"],
        ["decode", 1, "model.layers.0.self_attn"],
        ["decode", 1, "(sample)"],
        [None, None, None],
        [None, None, None],
    ]
    assert list(table["phase"])[7:] == ["decode", "(unattributed)"]
    assert list(table["module"])[7:] == ["(root)", "(unattributed)"]
    assert table["ranges"][4] == "decode/step1/model.layers.0/model.layers.0.self_attn/aten::mm, op_id = 3"
    assert list(table["ordinal"]) == [0, 1, 0, 0, 1, 2, 3, 0, 0]


def test_other_programs_keep_their_path(nsys_file):
    file = nsys_file().range("Loop", 0, 100).range("Step 0 to 10", 10, 90).launch(20, 1, 200, 300)
    row = read_nsys(file.write()).launches.iloc[0]
    assert (row["phase"], row["module"], row["ranges"]) == ("(unattributed)", "(unattributed)", "Loop/Step 0 to 10")


def test_push_pop_is_per_thread_and_start_end_per_process(nsys_file):
    file = nsys_file().range("pushed", 0, 1000).range("started", 0, 1000, kind=60)
    file.launch(100, 1, 2000, 2100).launch(100, 2, 2100, 2300, tid=102).launch(100, 3, 2300, 2700, pid=78)
    paths = read_nsys(file.write()).launches["ranges"]
    assert list(paths[:2]) == ["pushed/started", "started"]
    assert paths.isna()[2]


def test_edges_of_a_range(nsys_file):
    file = nsys_file().range("r", 100, 200).range("empty", 150, 150)
    for number, at in enumerate([99, 100, 150, 199, 200]):
        file.launch(at, number, 1000 + number, 1001 + number)
    assert list(read_nsys(file.write()).launches["ranges"].fillna("-")) == ["-", "r", "r", "r", "-"]


def test_ranges_that_cross_are_ordered_by_start(nsys_file):
    file = nsys_file().range("a", 0, 100).range("b", 50, 150, kind=60).launch(60, 1, 500, 501).launch(120, 2, 502, 503)
    assert list(read_nsys(file.write()).launches["ranges"]) == ["a/b", "b"]


def test_same_correlation_in_two_processes(nsys_file):
    file = nsys_file().range("prefill", 0, 100).range("decode", 0, 100, pid=78)
    file.launch(10, 5, 200, 300).launch(10, 5, 200, 900, pid=78, deviceId=1)
    nsys = read_nsys(file.write())
    assert list(nsys.launches["phase"]) == ["prefill", "decode"]
    assert list(nsys.launches["device"]) == ["cuda:0", "cuda:1"]
    assert list(nsys.processes["process"]) == [77, 78]
    assert list(nsys.launches["ordinal"]) == [0, 0]
    assert nsys.launches_of(78)["time_ns"].tolist() == [700]


def test_streams_overlap(nsys_file):
    file = nsys_file().range("prefill", 0, 100).launch(10, 1, 200, 300).launch(20, 2, 250, 400, streamId=8)
    file.call(30, 3).copy(390, 450, 3)
    row = phase_sums(read_nsys(file.write())).iloc[0]
    assert (row["kernel_ns"], row["sum_ns"], row["busy_ns"], row["overlap_ns"]) == (250, 310, 250, 60)


def test_unclosed_range_lasts_to_the_end_and_is_said(nsys_file):
    file = nsys_file().range("prefill", 100, None).range("inner", 200, 300).launch(250, 1, 500, 600)
    file.launch(10**9, 2, 2 * 10**9, 2 * 10**9 + 5)
    nsys = read_nsys(file.write())
    assert list(nsys.launches["ranges"]) == ["prefill/inner", "prefill"]
    assert any("ranges never closed: 1;" in note for note in nsys.notes)
    assert nsys.ranges["end_ns"].isna().tolist() == [True, False]


def test_nothing_is_lost_without_a_call_or_a_range(nsys_file):
    file = nsys_file().range("prefill", 0, 100).launch(10, 1, 200, 300).launch(150, 2, 300, 310)
    file.kernel(400, 405, 99).kernel(500, 501, None)
    nsys = read_nsys(file.write())
    lost = nsys.unattributed.set_index("reason")
    assert lost.loc[NO_CALL].tolist() == [2, 6]
    assert lost.loc[NO_RANGE].tolist() == [1, 10]
    assert len(nsys.launches) == 4
    assert nsys.launches["launch_ns"].isna().sum() == 2
    assert sums_by_path(nsys, "launches")[""] == 4


def test_no_runtime_rows_at_all(nsys_file):
    file = nsys_file().range("prefill", 0, 100).kernel(200, 300, 1)
    nsys = read_nsys(file.write())
    assert list(nsys.work["reason"]) == [NO_CALL]
    assert nsys.launches["phase"][0] == "(unattributed)"


def test_recordings_without_ranges(nsys_file):
    nsys = read_nsys(nsys_file().launch(10, 1, 200, 300).write())
    assert list(nsys.work["reason"]) == [NO_RANGE]
    with pytest.raises(NoRangesError, match="nvtx"):
        nsys.require_ranges()


def test_times_count_from_the_first_event(nsys_file):
    nsys = read_nsys(nsys_file().range("r", 1000, 2000).launch(1100, 1, 1500, 1600).write())
    row = nsys.launches.iloc[0]
    assert (nsys.origin_ns, row["start_ns"], row["launch_ns"], row["time_ns"]) == (1000, 500, 100, 100)


def test_launch_table_is_the_schema(nsys_file):
    table = read_nsys(two_kernels(nsys_file()).write()).launches
    assert list(table.columns) == [c.name for c in LAUNCHES]
    row = table.iloc[0]
    assert (row["grid"], row["block"], row["thread"], row["stream"], row["device"]) == (
        "1,1,1",
        "1,1,1",
        101,
        7,
        "cuda:0",
    )
    assert row["time_source"] == "nsys"


def test_columns_that_a_file_lacks_are_null(nsys_file):
    drop = ("graphNodeId", "gridZ", "streamId", "domainId", "demangledName")
    nsys = read_nsys(two_kernels(nsys_file()).write(drop=drop))
    assert nsys.launches["grid"].isna().all()
    assert nsys.launches["stream"].isna().all()
    assert list(nsys.launches["kernel"]) == ["gemm", "copyk"]
    assert list(nsys.launches["phase"]) == ["prefill", "prefill"]


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_version_in_old_and_new_schema(nsys_file, table):
    file = two_kernels(nsys_file())
    file.table("META_DATA_EXPORT").tables[table] = [
        {"name": "EXPORT_PRODUCT_VERSION", "value": "2022.4.2.1"},
        {"name": "EXPORT_SCHEMA_VERSION", "value": "3.0.0"},
    ]
    nsys = read_nsys(file.write())
    assert (nsys.version, nsys.schema_version) == ("2022.4.2.1", "3.0.0")


def test_device_numbers_are_the_process_own(nsys_file):
    file = nsys_file().launch(10, 1, 200, 300).launch(10, 1, 200, 300, pid=78)
    for gpu, name in enumerate(["NVIDIA A100", "NVIDIA H100"]):
        file.table("TARGET_INFO_GPU", id=gpu, name=name, memoryBandwidth=10**12, computeMajor=8 + gpu, computeMinor=0)
        file.table("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=77 + gpu)
    devices = read_nsys(file.write()).devices
    assert devices[["process", "device", "gpu", "name", "cc"]].values.tolist() == [
        [77, "cuda:0", 0, "NVIDIA A100", "8.0"],
        [78, "cuda:0", 1, "NVIDIA H100", "9.0"],
    ]
    assert devices["sms"].isna().all()


def test_ranges_table_places_every_range(nsys_file):
    file = (
        nsys_file().range("prefill", 0, 100).range("step0", 0, 90).range("model.a", 5, 20).range("w", 10, 30, kind=60)
    )
    file.range("cub", 6, 7, domain=4).table(
        "NVTX_EVENTS",
        start=-5,
        end=None,
        eventType=75,
        text="CCCL",
        textId=None,
        globalTid=2**56 + 77 * 2**24,
        domainId=4,
    )
    ranges = read_nsys(file.write(), need_kernels=False).ranges
    assert list(ranges["path"]) == [
        "prefill",
        "prefill/step0",
        "prefill/step0/model.a",
        "prefill/step0/model.a/w",
        "prefill/step0/model.a/cub",
    ]
    assert list(ranges["phase"]) == ["prefill"] * 5
    assert list(ranges["module"]) == ["(root)", "(root)", "model.a", "w", "model.a"]
    assert list(ranges["kind"]) == ["push/pop"] * 3 + ["start/end", "push/pop"]
    assert list(ranges["domain"].fillna("-")) == ["-", "-", "-", "-", "CCCL"]
    assert list(ranges["end_ns"]) == [100, 90, 20, 30, 7]


def test_copies_and_memsets(nsys_file):
    file = two_kernels(nsys_file()).call(1200, 15).copy(7000, 7100, 15, size=4096)
    file.table(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        start=8000, end=8001, deviceId=0, streamId=7, correlationId=16, globalPid=2**56 + 77 * 2**24, bytes=64,
    )  # fmt: skip
    copies = read_nsys(file.write()).copies
    assert list(copies["name"]) == ["[CUDA memcpy Device-to-Host]", "[CUDA memset]"]
    assert list(copies["bytes"]) == [4096, 64]
    assert list(copies["ranges"].fillna("-")) == ["prefill", "-"]


# What must be refused, each in its own way.


def test_no_kernel_table(nsys_file):
    with pytest.raises(NoKernelsError, match="no table of CUDA events"):
        read_nsys(nsys_file().range("prefill", 0, 100).write())
    with pytest.raises(NoKernelsError, match="2 CUDA API calls and no CUDA kernels"):
        read_nsys(nsys_file().call(0, 1).call(50, 2).write())
    with pytest.raises(NoKernelsError, match="its CUDA tables are empty"):
        read_nsys(nsys_file().table("CUPTI_ACTIVITY_KIND_KERNEL").write())


def test_graphs_recorded_as_a_whole(nsys_file):
    file = nsys_file().call(10, 1, name="cudaGraphLaunch_v10000")
    file.table(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        start=20, end=70, deviceId=0, streamId=7, correlationId=1, globalPid=2**56 + 77 * 2**24,
    )  # fmt: skip
    with pytest.raises(GraphTraceOnlyError, match="cuda-graph-trace=node"):
        read_nsys(file.write())
    nsys = read_nsys(file.kernel(100, 110, 9).write())
    assert any("graph launches recorded as a whole, without kernels: 1" in note for note in nsys.notes)
    assert phase_sums(nsys)["busy_ns"].tolist() == [60]


def test_only_a_qdstrm(tmp_path):
    (tmp_path / "run.qdstrm").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "run.qdstrm"):
        with pytest.raises(ImporterMissingError, match="nsight-systems"):
            read_nsys(path)


def test_a_folder_with_one_export_is_that_export(nsys_file, tmp_path):
    two_kernels(nsys_file()).write()
    assert len(read_nsys(tmp_path).launches) == 2
    two_kernels(nsys_file("second")).write()
    with pytest.raises(ReportError, match=r"2 \.sqlite files"):
        read_nsys(tmp_path)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00" + b"\x00" * 100, b"no database at all" * 100])
def test_damaged_files(tmp_path, content):
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(ReportError):
        read_nsys(path)
    assert path.read_bytes() == content


def test_truncated_file(nsys_file):
    path = two_kernels(nsys_file()).write()
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(ReportError, match="not a readable sqlite"):
        read_nsys(path)


def test_another_programs_database(tmp_path):
    with sqlite3.connect(tmp_path / "x.sqlite") as connection:
        connection.execute("CREATE TABLE songs (title)")
    with pytest.raises(ReportError, match="it has songs"):
        read_nsys(tmp_path / "x.sqlite")


def test_values_that_are_no_numbers(nsys_file):
    with pytest.raises(ReportError, match="not a whole number"):
        read_nsys(nsys_file().kernel("soon", 5, 1).kernel(3, 9, 2).write())


def test_a_report_is_not_an_export(tmp_path):
    (tmp_path / "x.nsys-rep").write_bytes(b"x")
    with pytest.raises(ReportError, match="nsys export --type sqlite"):
        read_nsys(tmp_path / "x.nsys-rep")
    with pytest.raises(KernelroofError, match="does not exist"):
        read_nsys(tmp_path / "nothing.sqlite")


def test_the_file_is_not_changed(nsys_file, tmp_path):
    path = two_kernels(nsys_file("with a #?% name")).write()
    path.chmod(0o444)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(read_nsys(path).launches) == 2
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_gzipped_export(nsys_file, tmp_path):
    path = two_kernels(nsys_file()).write()
    packed = tmp_path / "packed.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    nsys = read_nsys(packed)
    assert len(nsys.launches) == 2
    assert nsys.path == packed
    packed.write_bytes(packed.read_bytes()[:200])
    with pytest.raises(ReportError, match="can't be unpacked"):
        read_nsys(packed)


def test_launches_have_shared_memory(nsys_file):
    both = {"staticSharedMemory": 1024, "dynamicSharedMemory": 48 * 1024}
    assert read_nsys(nsys_file().launch(10, 1, 200, 300, **both).write()).launches["shared_bytes"].tolist() == [50_176]
    for drop in (tuple(both), ("dynamicSharedMemory",)):
        table = read_nsys(nsys_file().launch(10, 1, 200, 300, **both).write(drop=drop)).launches
        assert table["shared_bytes"].isna().all()


@pytest.mark.parametrize(("start", "end"), [(None, 300), (200, None), (300, 200), (200, 2**63 - 1), (-(2**63) + 1, 9)])
def test_work_without_a_start_and_an_end_is_left_out(nsys_file, start, end):
    file = nsys_file().launch(10, 1, 200, 300).launch(20, 2, start, end)
    nsys = read_nsys(file.write())
    assert nsys.launches["time_ns"].tolist() == [100]
    assert any("left out: 1" in note for note in nsys.notes)
    with pytest.raises(ReportError, match="not one of its kernels"):
        read_nsys(nsys_file().launch(20, 2, start, end).write())


def test_a_kernel_of_no_length_is_kept(nsys_file):
    assert read_nsys(nsys_file().launch(10, 1, 200, 200).write()).launches["time_ns"].tolist() == [0]


@pytest.mark.parametrize("number", [None, -1])
def test_work_on_no_known_device(nsys_file, number):
    assert read_nsys(nsys_file().launch(10, 1, 200, 300, deviceId=number).write()).launches["device"].tolist() == [
        "cuda"
    ]


@pytest.mark.parametrize("raw", [b"g\xe9mm", memoryview(b"g\xe9mm")])
def test_names_in_another_encoding(nsys_file, raw):
    path = nsys_file().launch(10, 1, 200, 300).write()
    with sqlite3.connect(path) as db:
        cast = "CAST(? AS TEXT)" if isinstance(raw, bytes) else "?"
        db.execute(f"UPDATE StringIds SET value = {cast}", (bytes(raw),))
    db.close()
    assert read_nsys(path).launches["kernel"].tolist() == ["g\ufffdmm"]


def test_rubbish_in_the_table_of_gpus(nsys_file):
    gpu = {
        "id": 0,
        "name": "NVIDIA H100 PCIe",
        "smCount": "many",
        "totalMemory": 1.5,
        "uuid": b"\xff",
        "busLocation": 7,
    }
    devices = read_nsys(nsys_file().launch(10, 1, 200, 300).table("TARGET_INFO_GPU", **gpu).write()).devices
    row = devices.iloc[0]
    assert (row["name"], row["bus"]) == ("NVIDIA H100 PCIe", "7")
    assert row[["sms", "memory_bytes"]].isna().all()
