"""Builders of tiny recordings, and where the captures of real tools lie."""

import os
import sqlite3
from pathlib import Path

import pytest

PID, TID = 77, 101
KERNEL_COLUMNS = {
    "start": 0,
    "end": 0,
    "deviceId": 0,
    "streamId": 7,
    "correlationId": None,
    "globalPid": None,
    "shortName": 1,
    "demangledName": 2,
    "graphNodeId": None,
    **dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), 1),
}
STRINGS = {1: "gemm", 2: "void gemm<float, 4>(int, float const*)", 3: "cudaLaunchKernel_v7000", 5: "copyk"}


def global_tid(pid=PID, tid=TID):
    return 2**56 + pid * 2**24 + tid


class NsysFile:
    """An sqlite export written row by row; a table exists once it has a row or was asked for."""

    def __init__(self, path):
        self.path = path
        self.strings = dict(STRINGS)
        self.tables = {}

    def table(self, name, /, **columns):
        rows = self.tables.setdefault(name, [])
        if columns:
            rows.append(columns)
        return self

    def string(self, text):
        known = {v: k for k, v in self.strings.items()}
        if text not in known:
            self.strings[max(self.strings) + 1] = text
        return known.get(text, max(self.strings))

    def range(self, name, start, end, *, pid=PID, tid=TID, kind=59, by_id=False, domain=0, table="NVTX_EVENTS"):
        text = {"textId": self.string(name), "text": None} if by_id else {"text": name, "textId": None}
        row = {"start": start, "end": end, "eventType": kind, **text, "globalTid": global_tid(pid, tid)}
        return self.table(table, **row, domainId=domain)

    def call(self, start, correlation, *, end=None, pid=PID, tid=TID, name="cudaLaunchKernel_v7000"):
        row = {"start": start, "end": start + 20 if end is None else end, "globalTid": global_tid(pid, tid)}
        return self.table("CUPTI_ACTIVITY_KIND_RUNTIME", **row, correlationId=correlation, nameId=self.string(name))

    def kernel(self, start, end, correlation, *, pid=PID, name=None, **columns):
        names = {} if name is None else {"shortName": self.string(name), "demangledName": self.string(name)}
        row = {"start": start, "end": end, "correlationId": correlation, "globalPid": global_tid(pid, 0)}
        return self.table("CUPTI_ACTIVITY_KIND_KERNEL", **{**KERNEL_COLUMNS, **row, **names, **columns})

    def copy(self, start, end, correlation, *, pid=PID, size=64, kind=2, device=0, stream=7):
        return self.table(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=start,
            end=end,
            deviceId=device,
            streamId=stream,
            correlationId=correlation,
            globalPid=global_tid(pid, 0),
            bytes=size,
            copyKind=kind,
        )

    def launch(self, at, correlation, start, end, *, pid=PID, tid=TID, **columns):
        """A call and the one kernel that it launches."""
        self.call(at, correlation, pid=pid, tid=tid)
        return self.kernel(start, end, correlation, pid=pid, **columns)

    def write(self, drop=()):
        """Write the file, without the columns in `drop`; returns its path."""
        self.path.unlink(missing_ok=True)
        with sqlite3.connect(self.path) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
            connection.executemany("INSERT INTO StringIds VALUES (?, ?)", self.strings.items())
            self.tables.setdefault("META_DATA_EXPORT", [{"name": "EXPORT_PRODUCT_VERSION", "value": "2023.4.4.54"}])
            for name, rows in self.tables.items():
                columns = [c for c in (rows[0] if rows else {"start": 0}) if c not in drop]
                connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
                marks = ", ".join("?" * len(columns))
                connection.executemany(
                    f"INSERT INTO {name} VALUES ({marks})", [[row[c] for c in columns] for row in rows]
                )
        connection.close()
        return self.path


@pytest.fixture
def nsys_file(tmp_path):
    """Makes a new empty recording: `nsys_file()` or `nsys_file("name")`."""
    return lambda name="recording": NsysFile(tmp_path / f"{name}.sqlite")


@pytest.fixture(scope="session")
def captures():
    """The folder of real captures; tests that need it are skipped without it."""
    shared = os.environ.get("KERNELROOF_SHARED") or Path(__file__).parents[3] / "shared"
    folder = Path(shared) / "captures"
    if not folder.is_dir():
        pytest.skip("no captures here")
    return folder
