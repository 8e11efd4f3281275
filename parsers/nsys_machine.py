"""What an nsys export says of the machine: GPUs, processes and their ranks, the tool's warnings."""

from __future__ import annotations

import re

import pandas as pd
from kernelroof.parsers import nsys_schema as schema
from kernelroof.parsers.nsys_attribution import pid_of
from kernelroof.parsers.nsys_schema import NULL, Ints, Recording

_GPU = {
    "name": "name",
    "bus": "busLocation",
    "uuid": "uuid",
    "chip": "chipName",
    "sms": "smCount",
    "clock_hz": "clockRate",
    "memory_bytes": "totalMemory",
    "memory_byte_s": "memoryBandwidth",
    "l2_bytes": "l2CacheSize",
    "cc_major": "computeMajor",
    "cc_minor": "computeMinor",
}
_INTEGERS = ("gpu", "sms", "clock_hz", "memory_bytes", "memory_byte_s", "l2_bytes")
_WARNING = 2


def read_devices(recording: Recording, global_pid: Ints, device: Ints) -> pd.DataFrame:
    """The GPUs that work ran on, one row per process and device number.

    Columns: process (pid), device ("cuda:0"; the number is the process's own), gpu (the machine's
    number), name, bus, uuid, chip, cc ("9.0"), sms, clock_hz, memory_bytes, memory_byte_s, l2_bytes;
    null where the export does not say.
    """
    gpus = {row["id"]: row for row in schema.rows_of(recording, "TARGET_INFO_GPU", "id", *_GPU.values())}
    seen = schema.rows_of(recording, "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid")
    numbers = {(row["pid"], row["cudaId"]): row["gpuId"] for row in seen}
    used = pd.DataFrame({"process": pid_of(global_pid), "device": device}).drop_duplicates()
    used = used[used["device"] != NULL].sort_values(["process", "device"])
    rows = []
    for process, number in zip(used["process"].tolist(), used["device"].tolist(), strict=True):
        gpu = numbers.get((process, number), None if numbers else number)
        found = gpus.get(gpu, {}) if isinstance(gpu, int) else {}
        row = {name: found.get(source) for name, source in _GPU.items()}
        row |= {name: _whole(row.get(name)) for name in _INTEGERS[1:]}
        row |= {name: schema.text_of(row[name]) for name in ("name", "bus", "uuid", "chip")}
        major, minor = row.pop("cc_major"), row.pop("cc_minor")
        cc = None if major is None or minor is None else f"{major}.{minor}"
        owner = None if process == NULL else process
        rows.append({"process": owner, "device": f"cuda:{number}", "gpu": _whole(gpu), "cc": cc, **row})
    columns = ["process", "device", "gpu", "name", "bus", "uuid", "chip", "cc", *_INTEGERS[1:]]
    frame = pd.DataFrame(rows, columns=columns)
    whole = dict.fromkeys(("process", *_INTEGERS), "Int64")
    table: pd.DataFrame = frame.astype({**whole, **{n: "string" for n in columns if n not in whole}})
    return table


def _whole(value: object) -> int | None:
    """A cell that should be a whole number of 64 bits; None for anything else."""
    return value if isinstance(value, int) else None


def read_processes(recording: Recording, threads: Ints, global_pid: Ints) -> pd.DataFrame:
    """Processes that called CUDA or pushed ranges.

    Columns: process (pid), name, rank (null unless an MPI rank was recorded), kernels (pieces of GPU
    work). A system has hundreds of processes; those without an event here are left out.
    """
    names = {int(str(r["pid"])): r["name"] for r in schema.rows_of(recording, "PROCESSES", "pid", "name") if r["pid"]}
    ranks = {
        int(str(r["globalPid"])) >> 24 & 0xFFFFFF: r["rank"]
        for r in schema.rows_of(recording, "MPI_RANKS", "globalPid", "rank")
        if r["globalPid"] is not None
    }
    work = pd.Series(pid_of(global_pid)).value_counts()
    pids = sorted({int(p) for p in (*pd.unique(pid_of(threads)), *work.index)} - {NULL})
    frame = pd.DataFrame(
        {
            "process": pids,
            "name": [names.get(p) for p in pids],
            "rank": [ranks.get(p) for p in pids],
            "kernels": [int(work.get(p, 0)) for p in pids],
        }
    )
    table: pd.DataFrame = frame.astype({"process": "Int64", "name": "string", "rank": "Int64", "kernels": "Int64"})
    return table


def read_diagnostics(recording: Recording) -> list[str]:
    """The warnings and errors that nsys itself left in the recording, as single lines."""
    rows = schema.rows_of(recording, "DIAGNOSTIC_EVENT", "severity", "text")
    return [
        "nsys: " + re.sub(r"\s+", " ", str(row["text"])).strip()
        for row in rows
        if isinstance(row["severity"], int) and row["severity"] >= _WARNING
    ]
