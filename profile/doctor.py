"""`kernelroof doctor`: what works on this machine and what to do where it does not, one line each."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelroof.models.errors import KernelroofError
from kernelroof.parsers.ncu_errors import CounterPermissionError
from kernelroof.parsers.nsys_errors import NVTX_HINT
from kernelroof.profile import doctor_machine as machine
from kernelroof.profile import ncu, nsys
from kernelroof.profile.doctor_machine import Check, Gpu, Place
from kernelroof.profile.ncu_chips import chip_of
from kernelroof.profile.tool_errors import ToolError
from kernelroof.profile.tools import Tool, find_tool, run_tool

RANGES = ("kernelroof one", "kernelroof two", "kernelroof three")
_PUSH = f"import nvtx\nfor name in {RANGES!r}:\n    nvtx.push_range(name)\n    nvtx.pop_range()"
_KERNEL = "import torch\nx = torch.ones(1024, device='cuda')\nx.add_(1)\ntorch.cuda.synchronize()"
_PROBE_TIMEOUT_S = 180
_MARKS = {True: "ok", False: "NO", None: "--"}


def run(args: argparse.Namespace) -> int:
    """Print every check; 0 where nothing stands in the way of the nsight backend, 1 otherwise."""
    checks = []
    for check in all_checks(machine.this_place(), Path("runs")):
        checks.append(check)
        if not args.json:
            print(line_of(check), flush=True)
    if args.json:
        print(json.dumps([check._asdict() for check in checks], indent=2))
    return exit_status(checks)


def exit_status(checks: list[Check]) -> int:
    """1 if any check says no."""
    return int(any(check.ok is False for check in checks))


def line_of(check: Check) -> str:
    """A check as one line."""
    text = f"{_MARKS[check.ok]:<3} {check.name:<16} {check.words}"
    return f"{text}. {check.remedy}" if check.remedy else text


def all_checks(place: Place, runs: Path) -> Iterator[Check]:
    """Every check, each as soon as it is known. runs: the folder of run folders, for stale locks."""
    gpus, why = machine.list_gpus(place)
    yield machine.check_gpu(gpus, why)
    yield machine.check_driver(place, gpus)
    yield check_torch(bool(gpus))
    recorder, check = check_tool("nsys", place)
    yield check
    if recorder is not None:
        yield check_importer(recorder)
        yield check_nvtx(recorder)
    counter, check = check_tool("ncu", place)
    yield check
    if counter is not None and gpus:
        yield check_chip(counter, gpus[0])
    permission = machine.check_permission(place, gpus)
    if counter is not None and gpus and permission.ok is not False:
        permission = check_counting(counter, permission)
    yield permission
    yield machine.check_perf(place)
    yield machine.check_temporary(place)
    yield machine.check_locks(place, runs)


def check_torch(has_gpu: bool) -> Check:
    """The torch build, and whether it sees the GPU."""
    import torch

    cuda = torch.version.cuda
    words = f"{torch.__version__}, {f'CUDA {cuda}' if cuda else 'no CUDA'}"
    if cuda and torch.cuda.is_available():
        return Check("torch", True, f"{words}, sees {torch.cuda.device_count()} GPU(s)")
    if not has_gpu:
        return Check("torch", None, f"{words}; runs on the CPU")
    if cuda:
        remedy = "Check CUDA_VISIBLE_DEVICES, and that the driver is new enough for this CUDA (nvidia-smi)."
        return Check("torch", False, f"{words}, but it sees no GPU", remedy)
    return Check("torch", False, f"{words}: a CPU build", "Install a CUDA build: see https://pytorch.org/get-started.")


def check_tool(name: str, place: Place) -> tuple[Tool | None, Check]:
    """Whether a profiler is installed, where, and which version."""
    try:
        tool = find_tool(name, environ=place.environ)
    except ToolError as error:
        return None, Check(name, False, error.what, error.hint)
    return tool, Check(name, True, f"{'.'.join(map(str, tool.version))} at {tool.found or tool.path}")


def check_importer(tool: Tool) -> Check:
    """Whether raw streams of nsys can be imported."""
    importer = nsys.find_importer(tool)
    if importer is None:
        remedy = "Needed where nsys leaves only a .qdstrm: install the package with host-linux-x64/QdstrmImporter."
        return Check("importer", False, "no QdstrmImporter beside nsys", remedy)
    _, text = run_tool([str(importer), "--help"], timeout=60)
    if library := re.search(r"error while loading shared libraries: (\S+):", text):
        return Check("importer", False, f"{importer} lacks {library[1]}", f"Install the package with {library[1]}.")
    return Check("importer", True, str(importer))


def check_nvtx(tool: Tool, python: str = sys.executable) -> Check:
    """Whether this nsys sees ranges of the installed nvtx package: records three and looks."""
    try:
        version = importlib.metadata.version("nvtx")
    except importlib.metadata.PackageNotFoundError:
        return Check("nvtx", False, "the Python package nvtx is not installed", "pip install nvtx")
    from kernelroof.parsers.nsys_sqlite import read_nsys

    pair = f"nvtx {version} under nsys {'.'.join(map(str, tool.version[:2]))}"
    with tempfile.TemporaryDirectory(prefix="kernelroof-") as name:
        folder = Path(name)
        try:
            target = [python, "-c", _PUSH]
            report = nsys.record(tool, target, folder, capture_range=False, traces=("nvtx",), timeout=_PROBE_TIMEOUT_S)
            sqlite = nsys.export_sqlite(tool, report, folder / "timeline.sqlite")
            seen = list(read_nsys(sqlite, need_kernels=False).ranges["name"])
        except KernelroofError as error:
            return Check("nvtx", False, f"{pair}: {error.what}", error.hint)
    if seen == list(RANGES):
        return Check("nvtx", True, f"{pair}: three ranges pushed, three recorded")
    return Check("nvtx", False, f"{pair}: three ranges pushed, {len(seen)} recorded", NVTX_HINT)


def check_chip(tool: Tool, gpu: Gpu) -> Check:
    """Whether this ncu knows the GPU."""
    chip = chip_of(gpu.cc, gpu.name)
    status, text = run_tool([str(tool.path), "--list-chips"], timeout=60)
    known = re.findall(r"\b[a-z]{2}\d{2,3}[a-z]?\b", text)
    if not chip or status or not known:
        return Check("chip", None, f"ncu's name of {gpu.name} (CC {gpu.cc}) is not known here")
    if chip in known:
        return Check("chip", True, f"ncu knows {gpu.name} as {chip}")
    return Check("chip", False, f"this ncu does not know {gpu.name} ({chip})", "Install a newer Nsight Compute.")


def check_counting(tool: Tool, said: Check, python: str = sys.executable) -> Check:
    """Count one kernel: the driver's setting is not the last word, a virtual GPU may refuse even root."""
    counting = ncu.Counting(metrics=("dram__bytes_read.sum",), clock_control="none", launch_count=1)
    with tempfile.TemporaryDirectory(prefix="kernelroof-") as folder:
        try:
            ncu.count(tool, [python, "-c", _KERNEL], Path(folder), counting, timeout=_PROBE_TIMEOUT_S)
        except CounterPermissionError as error:
            return Check(said.name, False, f"{said.words}; but counting a kernel was refused", error.hint)
        except KernelroofError as error:
            return Check(said.name, False, f"{said.words}; counting a kernel failed: {error.what}", error.hint)
    return Check(said.name, True, f"{said.words}; one kernel was counted")
