"""The tool's own lines: each text becomes the error it speaks of, causes before consequences."""

import pytest
from kernelroof.parsers import ncu_errors as e
from kernelroof.parsers.ncu import read_ncu
from kernelroof.parsers.ncu_log import read_log

PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"
    'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nRuntimeError: boom\n'
    "==ERROR== The application returned an error code (1).\n==WARNING== No kernels were profiled.\n"
)
NOTHING = (
    "==WARNING== No kernels were profiled.\n"
    "==WARNING== Profiling kernels launched by child processes requires the --target-processes all option.\n"
    "==WARNING== Note that specified NVTX include expressions match only push/pop ranges.\n"
)


def test_nothing_profiled():
    with pytest.raises(e.NoKernelsError) as caught:
        read_ncu(NOTHING)
    assert "--target-processes all" in str(caught.value)
    assert "trailing slash" in str(caught.value)
    assert len(caught.value.evidence) == 1


def test_permission_before_crash():
    with pytest.raises(e.CounterPermissionError) as caught:
        read_ncu(PERMISSION)
    for words in ("NVreg_RestrictProfilingToAdminUsers=0", "reboot", "--cap-add=SYS_ADMIN", "--backend torch"):
        assert words in caught.value.hint
    assert [type(p) for p in read_log(PERMISSION).problems] == [
        *(e.CounterPermissionError, e.ProgramFailedError, e.NoKernelsError)
    ]


@pytest.mark.parametrize(
    ("release", "text"),
    [("5.15.153.1-microsoft-standard-WSL2", PERMISSION), ("", "Linux 5.15-microsoft-standard-WSL2\n" + PERMISSION)],
)
def test_permission_under_wsl(release, text):
    with pytest.raises(e.CounterPermissionError) as caught:
        read_ncu(text, kernel_release=release)
    assert "Windows" in caught.value.hint
    assert "modprobe" not in caught.value.hint
    assert "--backend torch" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("b200_flashinfer_paged_decode__gqa_fp8_b64_ctx4k_p64.ncu.csv", e.ProgramFailedError),
        ("err_dcgm_driver_resource.txt", e.CountersBusyError),
        ("err_driver_incompatible_exit11_2025.txt", e.DriverError),
        ("err_failed_to_prepare_2021.txt", e.ProfilingFailedError),
        ("err_failed_to_prepare_2025_h100.txt", e.ProfilingFailedError),
        ("err_killed_mid_replay_v100.txt", e.ReplayInterruptedError),
        ("err_libcuda_stub.txt", e.DriverError),
        ("err_library_not_loaded.txt", e.DriverError),
        ("err_mig_clock_lock.txt", e.ClockLockError),
        ("err_not_supported_on_device.txt", e.UnsupportedDeviceError),
        ("err_nvgpuctrperm_trtllm_llama7b.txt", e.CounterPermissionError),
        ("err_single_lines.txt", e.OptionError),
        ("err_unknown_error_device0_2025.txt", e.ProfilingFailedError),
        ("flash_attn_varlen_ncu_progress.log", e.NoTableError),
        ("ok_progress_report_2025.txt", e.NoTableError),
        ("warn_no_kernels_available_list.txt", e.NoKernelsError),
        ("warn_no_metrics_in_sections_exit0.txt", e.NoMetricsError),
        ("warn_nvtx_include_no_kernels_2024.txt", e.NoKernelsError),
        ("warn_unable_to_access_metrics_2024.txt", e.NoTableError),
    ],
)
def test_captured_texts(captures, name, kind):
    with pytest.raises(e.NcuError) as caught:
        read_ncu(captures / "errors" / name)
    assert type(caught.value) is kind
    assert caught.value.hint


def test_every_captured_text_is_listed(captures):
    listed = {mark.args[1][k][0] for mark in test_captured_texts.pytestmark for k in range(len(mark.args[1]))}
    assert {p.name for p in (captures / "errors").iterdir()} == listed


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("==ERROR== unrecognised option '--attach'. Use --help for further details.", e.OptionError),
        ("==ERROR== the argument for option '--kernel-name-base' is invalid.", e.OptionError),
        ("==ERROR== Option '--section .*' did not match any section.", e.OptionError),
        ("==ERROR== Failed to access the following 2 metrics: a__b.sum, c__d.avg", e.UnknownMetricError),
        ("==ERROR== Failed to find metric regex:^flop_count_sp\\.(sum)$", e.UnknownMetricError),
        ("==WARNING== No ranges were profiled.", e.NoRangesError),
        ("==PROF== No kernels were profiled", e.NoKernelsError),
        ("==ERROR== option '--page' cannot be specified more than once", e.OptionError),
        ("==ERROR== something nobody has seen before", e.NcuError),
        ("tokens/s 3.1 ==ERROR== Cannot lock GPU clock frequencies on MIG!", e.ClockLockError),
    ],
)
def test_single_lines(line, kind):
    assert type(read_log(line).cause) is kind


def test_passes_and_metrics(captures):
    log = read_log((captures / "errors" / "err_killed_mid_replay_v100.txt").read_text())
    assert [(x.index, x.passes, x.complete) for x in log.launches] == [(17, 19, True), (18, 19, False)]
    assert log.passes == {17: 19}
    assert log.exit_code == 15
    assert log.reports == ("/root/DeepBench/code/bin/./gemm/gemm_prof_15.ncu-rep",)
    log = read_log((captures / "errors" / "warn_unable_to_access_metrics_2024.txt").read_text())
    assert len(log.unavailable) == 6
    assert "ctc__rx_bytes_data_user.sum" in log.unavailable
    log = read_log((captures / "errors" / "flash_attn_varlen_ncu_progress.log").read_text())
    assert set(log.passes.values()) == {13}
    assert log.cause is None


def test_a_name_in_a_profiling_line_is_no_message():
    assert read_log('==PROF== Profiling "No kernels were profiled" - 0: 0%....100% - 1 pass').cause is None


def test_problems_do_not_hide_a_table(texts):
    report = read_ncu(PERMISSION + texts.raw(texts.traffic))
    assert len(report.counters) == 1
    assert isinstance(report.log.cause, e.CounterPermissionError)
