"""What a run was made on: versions, machine, memory, build flags, variables, command line."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

_PACKAGES = ("kernelroof", "torch", "transformers", "nvtx", "pandas", "numpy", "matplotlib")
_VARIABLES = re.compile(
    r"(OMP|MKL|KMP|GOMP|OPENBLAS|ONEDNN|DNNL|ATEN|TORCH|PYTORCH|CUDA|NVIDIA|CUBLAS|NCCL|NVTX|KINETO)_\w+"
    r"|LD_PRELOAD|MALLOC_CONF|LC_ALL"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY|CREDENTIAL")
_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def describe(device: str = "cpu") -> dict[str, Any]:
    """The environment of this process, ready for JSON; imports torch, starts no process.

    Sizes are bytes. What can't be read is null, and `reasons` says why.
    """
    reasons: dict[str, str] = {}
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name, reasons) for name in _PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu(reasons),
        "memory_bytes": _total_memory(reasons),
        "available_memory_bytes": available_memory_bytes(),
        # Other programs on the same cores are the commonest cause of a wide spread.
        "load_average": _load(reasons),
        "torch": _torch_build(),
        "gpu": _gpu(device, reasons),
        "variables": _variables(),
        "command": list(sys.orig_argv),
        "working_directory": os.getcwd(),
        "reasons": reasons,
    }


def available_memory_bytes() -> int | None:
    """Memory that this process can still take: what the kernel calls available, or what is left of
    the container's limit if that is less; None where neither can be read."""
    found = [_meminfo("MemAvailable")]
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        # Page cache counts as used but is given back on demand.
        found.append(limit - used + (_cgroup_file_cache() or 0))
    known = [n for n in found if n is not None]
    return min(known) if known else None


def _version(package: str, reasons: dict[str, str]) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        reasons[f"packages.{package}"] = "not installed"
        return None


def _load(reasons: dict[str, str]) -> list[float] | None:
    """Runnable processes over the last 1, 5 and 15 minutes."""
    try:
        return [round(x, 2) for x in os.getloadavg()]
    except (OSError, AttributeError):
        reasons["load_average"] = f"{sys.platform} does not tell it"
        return None


def _cpu(reasons: dict[str, str]) -> dict[str, Any]:
    import torch

    model = _cpu_model()
    if model is None:
        reasons["cpu.model"] = "/proc/cpuinfo has no model name and platform.processor() is empty"
    cores = _physical_cores()
    if cores is None:
        reasons["cpu.cores"] = f"{_CPU} has no topology"
    caches = _caches()
    if caches is None:
        reasons["cpu.caches"] = f"{_CPU}/cpu0/cache can't be read"
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    if affinity is None:
        reasons["cpu.usable"] = f"{sys.platform} does not tell a process's CPU affinity"
    return {
        "model": model,
        "machine": platform.machine(),
        "cores": cores,
        "logical": os.cpu_count(),
        "usable": affinity,
        "threads": torch.get_num_threads(),
        "caches": caches,
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def _cpu_model() -> str | None:
    text = _text(Path("/proc/cpuinfo")) or ""
    match = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or None


def _physical_cores() -> int | None:
    """Distinct (package, core) pairs; SMT siblings share one."""
    pairs = {(_text(cpu / "physical_package_id"), _text(cpu / "core_id")) for cpu in _CPU.glob("cpu[0-9]*/topology")}
    return len(pairs) or None


def _caches() -> dict[str, dict[str, int]] | None:
    """Per cache level ("L1d", "L2", "L3"): bytes of one instance, and instances on the machine."""
    shared_by: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    for index in sorted(_CPU.glob("cpu[0-9]*/cache/index[0-9]*")):
        level, kind, size = (_text(index / f) for f in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if level is None or kind is None or match is None:
            continue
        name = f"L{level}" + {"Data": "d", "Instruction": "i"}.get(kind, "")
        sizes[name] = int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]
        shared_by.setdefault(name, set()).add(_text(index / "shared_cpu_list") or str(index))
    if not sizes:
        return None
    return {name: {"bytes": sizes[name], "instances": len(shared_by[name])} for name in sorted(sizes)}


def _total_memory(reasons: dict[str, str]) -> int | None:
    total = _meminfo("MemTotal")
    if total is None:
        reasons["memory_bytes"] = "/proc/meminfo can't be read"
    limit = _number(_CGROUP / "memory.max")
    return total if limit is None or total is None else min(total, limit)


def _torch_build() -> dict[str, Any]:
    import torch

    flags = torch.__config__.show()
    found = re.findall(r"(BLAS_INFO|LAPACK_INFO|USE_MKLDNN|USE_OPENMP|USE_MKL|BUILD_TYPE)=(\w+)", flags)
    return {
        "version": str(torch.__version__),
        "git": getattr(torch.version, "git_version", None),
        "cuda": torch.version.cuda,
        "mkldnn": torch.backends.mkldnn.is_available(),
        "mkl": torch.backends.mkl.is_available(),
        "openmp": torch.backends.openmp.is_available(),
        "flags": dict(found),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "allow_tf32": bool(torch.backends.cuda.matmul.allow_tf32),
    }


def _gpu(device: str, reasons: dict[str, str]) -> dict[str, Any] | None:
    import torch

    if not device.startswith("cuda"):
        reasons["gpu"] = f"the run is on {device}"
        return None
    if not torch.cuda.is_available():
        reasons["gpu"] = "torch sees no CUDA device"
        return None
    chip = torch.cuda.get_device_properties(torch.device(device))
    driver = _text(Path("/proc/driver/nvidia/version"))
    match = re.search(r"Kernel Module[^\d]*([\d.]+)", driver or "")
    if match is None:
        reasons["gpu.driver"] = "/proc/driver/nvidia/version can't be read"
    return {
        "name": chip.name,
        "compute_capability": f"{chip.major}.{chip.minor}",
        "multiprocessors": chip.multi_processor_count,
        "memory_bytes": chip.total_memory,
        "l2_bytes": getattr(chip, "L2_cache_size", None),
        "driver": match.group(1) if match else None,
        "count": torch.cuda.device_count(),
    }


def _variables() -> dict[str, str]:
    """The set variables that change how torch, its libraries or the profilers behave; no secrets."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
    }


def _meminfo(field: str) -> int | None:
    match = re.search(rf"^{field}:\s*(\d+) kB$", _text(Path("/proc/meminfo")) or "", re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def _cgroup_file_cache() -> int | None:
    match = re.search(r"^file (\d+)$", _text(_CGROUP / "memory.stat") or "", re.MULTILINE)
    return int(match.group(1)) if match else None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdigit() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
