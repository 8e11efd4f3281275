"""Tiny Nsight Compute texts, built from values, and where the captures of the real tool lie."""

import csv
import io
import os
from pathlib import Path
from typing import ClassVar

import pytest

IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream")
LAUNCH = ("Block Size", "Grid Size", "Device", "CC")


class Texts:
    """Raw and details pages as ncu prints them, and the noise around them."""

    gemm = "void gemm<float, 4>(int, float const*)"
    before = "loading\n==PROF== Connected to process 77 (/usr/bin/python3)\n==WARNING== mind the gap\nstep 1, ok\n"
    after = "==PROF== Disconnected from process 77\n"
    traffic: ClassVar = {
        "dram__bytes_read.sum": ("byte", 25170048),
        "dram__bytes_write.sum": ("byte", 4096),
        "gpu__time_duration.sum": ("nsecond", 239008),
    }

    def lines(self, rows):
        """Rows with every cell quoted."""
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
        return out.getvalue()

    def raw(self, metrics, kernels=None, cc="8.0", order=None, values=None, extra=None):
        """A raw page: `metrics` gives unit and cell by name; `values` a row of cells for each kernel instead."""
        extra = extra or {}
        header = [*IDENTITY, *extra, *LAUNCH, *metrics]
        rows = [header, ["" for _ in (*IDENTITY, *extra, *LAUNCH)] + [unit for unit, _ in metrics.values()]]
        for number, kernel in enumerate(kernels or [self.gemm]):
            cells = values[number] if values is not None else [cell for _, cell in metrics.values()]
            place = ["(256, 1, 1)", "(64, 2, 1)", 0, cc]
            rows.append([number, 77, "python3", "127.0.0.1", kernel, 1, 7, *extra.values(), *place, *cells])
        if order is not None:
            rows = [[row[k] for k in order] for row in rows]
        return self.lines(rows)

    def details(self, rows, kernel=None, old=False, tail=(), rules=()):
        """A details page of one kernel: (section, metric, unit, cell) a row; `tail` adds header cells for rules."""
        launch = ["Kernel Time", "Context", "Stream"] if old else ["Context", "Stream", *LAUNCH]
        header = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", *launch, "Section Name"]
        out = [[*header, "Metric Name", "Metric Unit", "Metric Value", *tail]]
        place = ["2022-Nov-17 14:13:26", 1, 7] if old else [1, 7, "(256, 1, 1)", "(64, 2, 1)", 0, "8.0"]
        start = [0, 77, "python3", "127.0.0.1", kernel or self.gemm, *place]
        out += [[*start, *row] for row in rows]
        out += [[*start, section, "", "", "", *cells] for section, *cells in rules]
        return self.lines(out)


@pytest.fixture(scope="session")
def texts():
    return Texts()


@pytest.fixture(scope="session")
def captures():
    """The folder of real captures; tests that need it are skipped where it is absent."""
    shared = os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[4] / "shared"
    folder = Path(shared) / "captures"
    if not folder.is_dir():
        pytest.skip("no captures here")
    return folder
