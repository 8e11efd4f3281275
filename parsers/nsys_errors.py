"""What can be missing from an Nsight Systems recording or its exports, one error for each.

Every message says what was seen; every hint says what to do. `error_from_output` finds the error in
what `nsys` printed: its exit status says little (a report without data exits 0).
"""

from __future__ import annotations

import re

from kernelroof.models.errors import ReportError

NODE_TRACE_HINT = "Record again with --cuda-graph-trace=node."
EXPORT_HINT = "Export again: nsys export --type sqlite --force-overwrite true RECORDING.nsys-rep."
NVTX_HINT = (
    "Record with -t cuda,nvtx. If ranges were pushed by the Python package nvtx 0.2.12 or newer, "
    "nsys 2023.4 and older record none of them: use a newer nsys, or pip install nvtx==0.2.11."
)


class NsysError(ReportError):
    """Base of the errors of Nsight Systems recordings."""


class NoKernelsError(NsysError):
    """The recording has no CUDA kernel."""


class GraphTraceOnlyError(NoKernelsError):
    """CUDA graphs were recorded as a whole: one interval for a graph and no kernels."""


class NoRangesError(NsysError):
    """The recording has no NVTX range."""


class NoReportDataError(NsysError):
    """`nsys stats` had no data for the report that was asked for; it exits 0 and says SKIPPED."""


class ImporterMissingError(NsysError):
    """Only a `.qdstrm` was left: nsys did not find its importer."""


class OldExporterError(NsysError):
    """The report was written by a newer nsys than the one that exports it."""


class StaleExportError(NsysError):
    """A sqlite beside a report is older than the report; nsys stats refuses both."""


def no_kernels(where: str, *, runtime_calls: int, graphs: int, cuda_tables: bool) -> NoKernelsError:
    """The error for a recording without kernels, by what else it holds.

    Args:
        where: the file.
        runtime_calls: CUDA API calls in it.
        graphs: CUDA graphs recorded as a whole.
        cuda_tables: whether it has any table of CUDA events.
    """
    if graphs:
        return GraphTraceOnlyError(
            f"{where} has no CUDA kernels, only graph launches recorded as a whole ({graphs:,})",
            NODE_TRACE_HINT,
        )
    if runtime_calls:
        return NoKernelsError(
            f"{where} has {runtime_calls:,} CUDA API calls and no CUDA kernels",
            "Record until the program has synchronised with the GPU, or stop the capture after it; "
            "if it uses CUDA graphs, record with --cuda-graph-trace=node.",
        )
    seen = "its CUDA tables are empty" if cuda_tables else "it has no table of CUDA events"
    return NoKernelsError(
        f"{where} has no CUDA kernels ({seen})",
        "Record with -t cuda,nvtx, and check that the process that uses the GPU was the one recorded "
        "(a child needs --trace-fork-before-exec=true) and that a capture range, if any, was opened.",
    )


def importer_missing(where: str) -> ImporterMissingError:
    """The error for a recording that never became a report."""
    return ImporterMissingError(
        f"{where} is a raw recording (.qdstrm) that was not imported",
        "Install the nsight-systems package that has host-linux-x64/QdstrmImporter and run "
        "QdstrmImporter -i RECORDING.qdstrm -o RECORDING.nsys-rep, then "
        "nsys export --type sqlite RECORDING.nsys-rep.",
    )


def no_ranges(where: str) -> NoRangesError:
    """The error for a recording that was wanted for its ranges and has none."""
    return NoRangesError(f"{where} has no NVTX range", NVTX_HINT)


def no_report_data(skipped: str) -> NoReportDataError:
    """The error for what nsys stats skipped; `skipped` is what follows the word."""
    lacks = re.search(r"does not contain (.+?) data", skipped)
    kind = lacks.group(1) if lacks else ""
    if "NV Tools Extension" in kind or "NVTX" in kind:
        hint = NVTX_HINT
    elif kind:
        hint = f"Record {kind.removesuffix(' API').removesuffix(' kernel')} events, or ask for another report."
    else:
        hint = "Ask for another report."
    return NoReportDataError(f"nsys stats made no table: {skipped.strip().rstrip('.')}", hint)


def error_from_output(text: str, where: str = "nsys") -> NsysError | None:
    """The error that `nsys profile`, `export` or `stats` reported in its output, or None.

    Args:
        text: standard output and error together.
        where: the command or file, for the message.
    """
    if "importer binary and its dependencies were not found" in text:
        return importer_missing(where)
    if found := re.search(r"Version number is invalid: (\d+)@(\d+)", text):
        newer = f"{found.group(1)}.{found.group(2)}"
        return OldExporterError(
            f"{where}: the report was written by nsys {newer}, newer than the nsys that exports it",
            f"Export it with nsys {newer} or newer.",
        )
    if "Existing SQLite export found" in text and "older than input file" in text:
        return StaleExportError(
            f"{where}: the sqlite beside the report is older than the report",
            "Use nsys stats --force-export=true.",
        )
    # With --output it stands behind "Processing [...] with [...]... " on the same line.
    if found := re.search(r"\bSKIPPED: (.+)$", text, re.MULTILINE):
        return no_report_data(found.group(1))
    return None
