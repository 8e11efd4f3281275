"""What nsys prints, found as the error that it means. The texts are those of real runs."""

import pytest
from kernelroof.parsers import nsys_errors as errors

IMPORTER = """Importer error status: The importer binary and its dependencies were not found.
Unable to retrieve the importer version: skipping importation of the QDSTRM file.
Generating '/tmp/nsys-report-9777.qdstrm'
Generated:
    /tmp/x.qdstrm
"""
NEWER = "Exporting 230 events: [100%]\nExportation error: Version number is invalid: 2023@4@4@54-234433681190v0\n"
STALE = """WARNING: Existing SQLite export found: s.sqlite
         File is older than input file: s.nsys-rep
         Use --force-export=true to update export file.

usage: nsys stats [<args>] <input-file>
"""
SKIPPED = """Processing [r.sqlite] with [/x/reports/cuda_gpu_kern_sum.py]...
SKIPPED: r.sqlite does not contain CUDA kernel data.
"""
NO_NVTX = "SKIPPED: r.sqlite does not contain NV Tools Extension (NVTX) data.\n"


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (IMPORTER, errors.ImporterMissingError, "QdstrmImporter"),
        (NEWER, errors.OldExporterError, "nsys 2023.4 or newer"),
        (STALE, errors.StaleExportError, "--force-export=true"),
        (SKIPPED, errors.NoReportDataError, "CUDA kernel data"),
        (SKIPPED.replace("...\n", "... "), errors.NoReportDataError, "CUDA kernel data"),
        (NO_NVTX, errors.NoReportDataError, r"nvtx==0\.2\.11"),
    ],
)
def test_outputs(text, kind, says):
    error = errors.error_from_output(text, "run.nsys-rep")
    assert type(error) is kind
    assert says.replace("\\", "") in str(error)
    assert error.hint


def test_an_output_without_problem():
    assert errors.error_from_output("Processing [x.sqlite] with [y.py]...\n\nName\nk\n") is None
