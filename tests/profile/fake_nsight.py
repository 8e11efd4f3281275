"""Programs that act as nsys and ncu, and the made-up GPU run that they record.

`install` writes two executables. They answer --version, take the command lines that kernelroof builds, and
leave what the real tools leave: a report, an sqlite export, a log, a CSV page. The run is that of a
two-layer Llama, with every kernel's time, bytes and FLOPs given by `launches`, so right answers are known.
What they should do wrong is said by the JSON file that KERNELROOF_FAKE names: {"ncu": "denied"}.

Imports only the standard library: the stubs must start at once.
"""

import csv
import gzip
import json
import os
import sqlite3
import sys
from pathlib import Path

LAYERS = 2
TID = 2**56 + 77 * 2**24 + 101
PID = 2**56 + 77 * 2**24
GEMM = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_128x128>(T1::Params)"
NORM = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::MulFunctor<float>>(long)"
CAT = "void at::native::CatArrayBatchedCopy<unsigned int, (int)2>(unsigned int const*)"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_traits<(int)64>>(Flash_fwd_params)"
MAX = "void at::native::reduce_kernel<(int)512, (int)1>(float)"


def launches(steps=3, layers=LAYERS):
    """Every launch in order: phase, step, module, kernel, grid, block, time_ns, read, write, flops."""
    out = []

    def add(phase, step, module, kernel, grid, time_ns, read, write, flops):
        row = {"phase": phase, "step": step, "module": module, "kernel": kernel, "grid": grid, "block": (128, 1, 1)}
        out.append({**row, "time_ns": time_ns, "read": read, "write": write, "flops": flops})

    for phase, count in (("prefill", 1), ("decode", steps)):
        tokens = 48 if phase == "prefill" else 1
        for step in range(count):
            context = 48 if phase == "prefill" else 49 + step
            at = (phase, step)
            add(*at, "model.embed_tokens", NORM, (tokens, 1, 1), 3000, 64 * tokens * 100, 512 * tokens, 0)
            for layer in range(layers):
                name = f"model.layers.{layer}"
                norm = (NORM, (tokens, 2, 1), 4000, 512 * tokens, 512 * tokens, 1000 * tokens)
                add(*at, f"{name}.input_layernorm", *norm)
                for which in "qkv":
                    gemm = (GEMM, (4, 1, 1), 9000, 4_000_000, 512 * tokens, 2 * 65536 * tokens)
                    add(*at, f"{name}.self_attn.{which}_proj", *gemm)
                add(*at, f"{name}.self_attn", CAT, (8, 1, 1), 5000, 100_000 * context, 100_000 * context, 0)
                flash = (FLASH, (1, 8, 1), 6000, 200_000 * context, 512 * tokens, 4000 * context * tokens)
                add(*at, f"{name}.self_attn", *flash)
                add(*at, f"{name}.self_attn.o_proj", GEMM, (4, 1, 1), 9000, 4_000_000, 512 * tokens, 131072 * tokens)
                for which in ("gate", "up", "down"):
                    gemm = (GEMM, (8, 1, 1), 20_000, 20_000_000, 1024 * tokens, 2 * 131072 * tokens)
                    add(*at, f"{name}.mlp.{which}_proj", *gemm)
            add(*at, "lm_head", GEMM, (16, 1, 1), 40_000, 50_000_000, 2048, 2 * 262144)
            add(*at, "(sample)", MAX, (1, 2, 1), 3500, 2048, 8, 0)
    return out


def bare(steps=3):
    """bare.json of a run whose kernels leave a tenth of the time idle."""
    spent = {}
    for row in launches(steps):
        key = (row["phase"], row["step"])
        spent[key] = spent.get(key, 0) + row["time_ns"]
    step_ns = [round(spent["decode", k] * 1.1) for k in range(steps)]
    return {"prefill_ns": [round(spent["prefill", 0] * 1.1)] * 2, "decode_step_ns": [step_ns] * 2, "cache_bytes": 1,
            "parameter_bytes": 1, "threads": 1, "device": "cuda", "repeats": 2}  # fmt: skip


def write_sqlite(path, rows, *, processes=1, ranges=True):
    """The export of a recording of these launches; every process runs the same."""
    events, calls, kernels = [], [], []
    texts = {}

    def text(value):
        return texts.setdefault(value, len(texts) + 1)

    for process in range(processes):
        now = 1_000_000
        gpu = now + 5000
        open_, begun = [], {}

        def close(depth, now, open_=open_, begun=begun):
            while len(open_) > depth:
                name = open_.pop()
                start, tid = begun.pop((len(open_), name))
                events.append((start, now, 59, name, None, tid, 0))

        for number, row in enumerate(rows):
            other = (row.get("process", 77) - 77 + process) * 2**24
            tid, pid, device = TID + other, PID + other, row.get("device", process)
            if open_ and begun[0, open_[0]][1] != tid:
                close(0, now)
            wanted = [row["phase"], f"step{row['step']}", row["module"]] if row["phase"] else list(row["ranges"])
            shared = 0
            while shared < min(len(open_), len(wanted) - 1) and open_[shared] == wanted[shared]:
                shared += 1
            close(shared, now)
            now += 10
            for name in wanted[shared:]:
                begun[len(open_), name] = now, tid
                open_.append(name)
            now += 10
            calls.append((now, now + 5, tid, number + 1, text("cudaLaunchKernel_v7000")))
            gpu = max(gpu, now + 100)
            name = text(row["kernel"])
            kernels.append(
                (gpu, gpu + row["time_ns"], device, 7, number + 1, pid, name, name, *row["grid"], *row["block"])
            )
            gpu += row["time_ns"] + 50
            now += 10
        close(0, now)
    Path(path).unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in texts.items()])
        db.execute("CREATE TABLE META_DATA_EXPORT (name, value)")
        db.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId)")
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?)", sorted(events) if ranges else [])
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId)")
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", calls)
        columns = "start, end, deviceId, streamId, correlationId, globalPid, shortName, demangledName"
        columns += ", gridX, gridY, gridZ, blockX, blockY, blockZ"
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        db.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 14)})", kernels)
    db.close()


def write_kineto(path, rows):
    """The trace that torch.profiler would make of these launches: an op for each, under the ranges around it."""
    events = []
    open_, now, gpu = [], 1000.0, 1005.0

    def add(category, name, start, end, tid, **args):
        event = {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": start, "dur": end - start}
        events.append({**event, "args": args})

    def close(depth):
        while len(open_) > depth:
            name, start = open_.pop()
            add("user_annotation", name, start, now, 7)

    for number, row in enumerate(rows):
        wanted = [row["phase"], f"step{row['step']}", row["module"]]
        shared = 0
        while shared < min(len(open_), 2) and open_[shared][0] == wanted[shared]:
            shared += 1
        close(shared)
        for name in wanted[shared:]:
            now += 1
            open_.append((name, now))
        now += 1
        op = {"mlp": "aten::mm", "lm_head": "aten::mm"}.get(
            row["module"].split(".")[-2 if "mlp" in row["module"] else -1]
        )
        add("cpu_op", op or "aten::mul", now, now + 3, 7, **{"External id": number + 1})
        add("cuda_runtime", "cudaLaunchKernel", now + 1, now + 2, 7, correlation=number + 1)
        gpu = max(gpu, now + 5)
        sizes = {"grid": list(row["grid"]), "block": list(row["block"])}
        end = gpu + row["time_ns"] / 1000
        add("kernel", row["kernel"], gpu, end, 99, device=0, stream=7, correlation=number + 1, **sizes)
        gpu = end + 0.05
        now += 4
    close(0)
    with gzip.open(path, "wt") as out:
        json.dump(
            {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 PCIe"}], "traceEvents": events},
            out,
        )


METRICS = {
    "gpu__time_duration.sum": ("ns", lambda r: round(r["time_ns"] * 1.2)),
    "dram__bytes_read.sum": ("byte", lambda r: r["read"]),
    "dram__bytes_write.sum": ("byte", lambda r: r["write"]),
    "dram__cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", lambda r: 50),
    "dram__bytes.sum.peak_sustained": ("byte/cycle", lambda r: 1280),
    "dram__cycles_elapsed.avg.per_second": ("hz", lambda r: 1_500_000_000),
    "sm__cycles_elapsed.avg.per_second": ("hz", lambda r: 1_000_000_000),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", lambda r: 30),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": ("inst", lambda r: r["flops"] // 2),
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": ("inst", lambda r: r["flops"] % 2),
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": ("inst", lambda r: 0),
    "sm__pipe_tensor_cycles_active.sum": ("cycle", lambda r: 0),
    "launch__registers_per_thread": ("register/thread", lambda r: 64),
    "launch__waves_per_multiprocessor": ("", lambda r: 2),
    "launch__sm_count": ("", lambda r: 114),
}
NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def print_csv(rows, asked, out, *, ranges=True):
    """The raw page of these launches."""
    names = [m for m in METRICS if m in asked] if asked else list(METRICS)
    table = csv.writer(out, quoting=csv.QUOTE_ALL)
    head = ["ID", "Process ID", "Process Name", "Host Name", NVTX, "Kernel Name", "Context", "Stream", "Block Size"]
    head += ["Grid Size", "Device", "CC"]
    table.writerow([*head, *names])
    table.writerow([""] * len(head) + [METRICS[m][0] for m in names])
    for number, row in enumerate(rows):
        path = [row["phase"], f"step{row['step']}", row["module"]] if row["phase"] else row["ranges"]
        cell = "101 " + " ".join(f'"<default domain>:{name}:none:none:none:none:none:none"' for name in path)
        kernel = row["kernel"].replace("at::native::", "").replace("(int)", "").replace("cutlass::Kernel2", "Kernel2")
        start = [number, row.get("process", 77), "python", "host", cell if ranges else "", kernel, 1, 7]
        table.writerow(
            [
                *start,
                str(tuple(row["block"])),
                str(tuple(row["grid"])),
                row.get("device", 0),
                "9.0",
                *(METRICS[m][1](row) for m in names),
            ]
        )


def behaviour():
    path = os.environ.get("KERNELROOF_FAKE")
    return json.loads(Path(path).read_text()) if path else {}


def after(words, option):
    return words[words.index(option) + 1]


def nsys(words):
    """What the stub does for one command line; returns its exit status."""
    how = behaviour()
    if "--version" in words:
        print("NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0")
        return 0
    if words[0] == "profile":
        stem = after(words, "--output")
        if how.get("nsys") == "no-capture":
            print("Generated:\n\tNo reports were generated")
            return 0
        if how.get("nsys") == "die":
            os.kill(os.getpid(), 9)
        Path(f"{stem}.nsys-rep").write_text("recorded")
        print(f"Generated:\n    {stem}.nsys-rep")
        return 0
    if words[0] == "export":
        rows = how.get("recorded") or how.get("launches") or launches(how.get("steps", 3))
        ranges = how.get("nsys") != "no-ranges"
        write_sqlite(after(words, "--output"), rows, processes=how.get("processes", 1), ranges=ranges)
        if how.get("nsys") == "no-kernels":
            write_sqlite(after(words, "--output"), [])
        if how.get("nsys") == "cut-export":
            os.truncate(after(words, "--output"), 9000)
        return 0
    print(f"unrecognised option {words[0]}")
    return 1


def ncu(words):
    """What the stub does for one command line; returns its exit status."""
    how = behaviour()
    kind = how.get("ncu")
    if "--version" in words:
        print("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2024.2.1.0 (build 34372528)")
        return 0
    if "--query-metrics" in words:
        return 1
    if "--import" in words:
        content = json.loads(Path(after(words, "--import")).read_text())
        print_csv(content["rows"], content["metrics"], sys.stdout, ranges=kind != "no-ranges")
        return 0
    log = Path(after(words, "--log-file"))
    if kind == "denied":
        log.write_text(
            "==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to "
            "access NVIDIA GPU Performance Counters on the target device 0.\n"
        )
        return 1
    if kind == "no-clocks" and after(words, "--clock-control") == "base":
        log.write_text("==ERROR== Cannot lock GPU clock frequencies on MIG! (see '--clock-control').\n")
        return 9
    if kind == "nothing":
        log.write_text("==WARNING== No kernels were profiled.\n")
        return 0
    rows = how.get("launches") or launches(how.get("steps", 3))
    if "--count-plan" in words:
        windows = [tuple(w) for w in json.loads(Path(after(words, "--count-plan")).read_text())["windows"]]
        rows = [r for r in rows if (r["phase"], r["step"], r["module"]) in windows]
    if "--kernel-name" in words:
        import re

        wanted = re.compile(after(words, "--kernel-name").removeprefix("regex:"))
        rows = [r for r in rows if wanted.search(r["kernel"].replace("at::native::", "").replace("(int)", ""))]
    if "--launch-count" in words:
        rows = rows[: int(after(words, "--launch-count"))]
    if kind == "another-kernel":
        rows = [{**r, "kernel": "other_kernel"} if r["module"] == "lm_head" else r for r in rows]
    passes = 3 if kind == "two-passes" and after(words, "--cache-control") == "none" else 1
    lines = ["==PROF== Connected to process 77"]
    if kind == "die":
        rows = rows[: len(rows) // 2]
    lines += [f'==PROF== Profiling "k" - {i}: 0%....50%....100% - {passes} passes' for i in range(len(rows))]
    if kind == "die":
        lines += [
            '==PROF== Profiling "k" - 99: 0%....50%.... - 1 passes',
            "==ERROR== The application returned an error code (15).",
        ]
    report = Path(after(words, "--export"))
    metrics = after(words, "--metrics").split(",") if "--metrics" in words else []
    if kind == "no-metrics":
        metrics = ["none of them"]
    report.write_text(json.dumps({"rows": rows, "metrics": metrics}))
    if kind == "killed":
        report.write_text("cut")
        os.kill(os.getpid(), 9)
    lines.append(f"==PROF== Report: {report}")
    log.write_text("\n".join(lines) + "\n")
    return 0 if kind != "die" else 15


def install(folder):
    """Write the two programs into `folder`; returns their paths by name."""
    made = {}
    for name in ("nsys", "ncu"):
        path = Path(folder) / name
        path.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            f"import fake_nsight\nsys.exit(fake_nsight.{name}(sys.argv[1:]))\n"
        )
        path.chmod(0o755)
        made[name] = path
    return made
