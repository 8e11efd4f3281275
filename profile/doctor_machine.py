"""What the machine itself says about its GPU, its driver, who may read counters, and room for files.

Every check takes a `Place`, so that another root folder can stand in for the machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kernelroof.parsers.ncu_errors import CounterPermissionError
from kernelroof.profile.tool_disk import free_bytes
from kernelroof.profile.tool_errors import ToolError
from kernelroof.profile.tools import run_tool

_ROOM = 2 * 10**9
_CAP_SYS_ADMIN = 21
_NO_GPU = "Without one use --backend torch on the CPU, or analyze recordings made elsewhere."


class Check(NamedTuple):
    """One line of the doctor. ok: None where it is only worth knowing. remedy: what to do, if anything."""

    name: str
    ok: bool | None
    words: str
    remedy: str = ""


class Place(NamedTuple):
    """The machine that is looked at. kernel: `uname -r`. temporary: where tools put temporary files."""

    root: Path
    environ: Mapping[str, str]
    kernel: str
    temporary: Path

    @property
    def wsl(self) -> bool:
        return bool(re.search(r"microsoft|WSL", self.kernel, re.I))

    @property
    def container(self) -> bool:
        return any((self.root / marker).exists() for marker in (".dockerenv", "run/.containerenv"))

    def text(self, path: str) -> str:
        """A file's content; empty where it can't be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


class Gpu(NamedTuple):
    """One line of nvidia-smi: product name, driver version, compute capability ("8.0")."""

    name: str
    driver: str
    cc: str


def this_place() -> Place:
    """The machine that this process runs on."""
    return Place(Path("/"), os.environ, platform.release(), Path(tempfile.gettempdir()))


def list_gpus(place: Place) -> tuple[list[Gpu], str]:
    """The GPUs that nvidia-smi lists, and why there are none."""
    program = shutil.which("nvidia-smi", path=place.environ.get("PATH", os.defpath))
    if program is None:
        return [], "nvidia-smi is not on PATH"
    try:
        query = ["--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
        status, text = run_tool([program, *query], timeout=60)
    except ToolError as error:
        return [], error.what
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.count(",") >= 2]
    gpus = [Gpu(", ".join(cells[:-2]), *cells[-2:]) for cells in rows]
    return (
        ([], text.strip().splitlines()[-1] if text.strip() else "it lists none") if status or not gpus else (gpus, "")
    )


def check_gpu(gpus: list[Gpu], why: str) -> Check:
    """Whether there is a GPU."""
    if not gpus:
        return Check("GPU", False, f"none ({why})", _NO_GPU)
    return Check("GPU", True, "; ".join(f"{gpu.name} (CC {gpu.cc})" for gpu in gpus))


def check_driver(place: Place, gpus: list[Gpu]) -> Check:
    """The kernel module, or under WSL the Windows driver as nvidia-smi tells it."""
    found = re.search(r"Kernel Module\D*([\d.]+)", place.text("proc/driver/nvidia/version"))
    version = found[1] if found else gpus[0].driver if gpus else ""
    if version:
        return Check("driver", True, f"{version}{', Windows side of WSL' if place.wsl and not found else ''}")
    if place.wsl:
        return Check("driver", False, "none seen under WSL", "Install NVIDIA's Windows driver; none inside WSL.")
    if place.container:
        return Check("driver", False, "none seen in this container", "Start the container with --gpus all.")
    return Check("driver", False, "the NVIDIA kernel module is not loaded", "Install NVIDIA's driver and reboot.")


def check_permission(place: Place, gpus: list[Gpu]) -> Check:
    """Whether the driver's setting lets this user read counters; only a counted kernel proves it."""
    name = "counters"
    if not gpus:
        return Check(name, None, "not asked without a GPU")
    if place.wsl:
        words = "under WSL the Windows driver decides"
        return Check(name, None, words, CounterPermissionError.wsl_hint)
    admin_only = re.search(r"RmProfilingAdminOnly:\s*(\d)", place.text("proc/driver/nvidia/params"))
    if admin_only is None:
        return Check(name, None, "the driver does not say who may read them", CounterPermissionError.default_hint)
    if admin_only[1] == "0":
        return Check(name, True, "every user may read them (RmProfilingAdminOnly 0)")
    if _has_sys_admin(place):
        return Check(name, True, "for administrators only, and this process is one (CAP_SYS_ADMIN)")
    remedy = CounterPermissionError.default_hint
    if place.container:
        remedy = f"Start this container with --cap-add=SYS_ADMIN. Or on the host: {remedy}"
    return Check(name, False, "for administrators only (RmProfilingAdminOnly 1)", remedy)


def check_perf(place: Place) -> Check:
    """perf_event_paranoid: nothing here samples the CPU, so it is only worth knowing."""
    text = place.text("proc/sys/kernel/perf_event_paranoid")
    if not re.fullmatch(r"-?\d+", text):
        return Check("perf events", None, "the kernel does not say (no perf_event_paranoid)")
    if int(text) <= 2:
        return Check("perf events", True, f"perf_event_paranoid {text}: nsys may sample the CPU")
    words = f"perf_event_paranoid {text}: nsys can't sample the CPU; nothing here needs it"
    return Check("perf events", None, words, "To allow it: sudo sysctl kernel.perf_event_paranoid=2.")


def check_temporary(place: Place) -> Check:
    """Whether temporary files can be written, and enough of them."""
    remedy = "Point TMPDIR to a folder that can be written, on a disk with some GB free."
    try:
        with tempfile.NamedTemporaryFile(dir=place.temporary) as file:
            file.write(b"kernelroof")
            file.flush()
    except OSError as error:
        return Check("temporary files", False, f"{place.temporary} can't be written ({error.strerror})", remedy)
    free = free_bytes(place.temporary)
    words = f"{place.temporary}: {free / 1e9:.1f} GB free"
    return Check("temporary files", True, words) if free >= _ROOM else Check("temporary files", False, words, remedy)


def check_locks(place: Place, runs: Path) -> Check:
    """Locks that the profilers or a run left behind and that stop the next one."""
    stuck: list[str] = []
    # ncu keeps this file open to all users; one that belongs to somebody else stops everybody else.
    shared = (place.temporary / "nsight-compute-lock", *(place.temporary / "nvidia").glob("nsight_systems"))
    stuck += [str(path) for path in shared if path.exists() and not os.access(path, os.W_OK)]
    dead = [lock for lock in sorted(runs.glob("*/run.lock")) if _is_dead(lock)]
    if stuck:
        return Check("locks", False, f"not writable: {', '.join(stuck)}", f"Remove: sudo rm -r {' '.join(stuck)}")
    if dead:
        words = f"left by runs that ended: {', '.join(map(str, dead))}"
        return Check("locks", None, words, "The next run into the same folder removes it.")
    return Check("locks", True, "none left behind")


def _has_sys_admin(place: Place) -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", place.text("proc/self/status"), re.M)
    return bool(found and int(found[1], 16) >> _CAP_SYS_ADMIN & 1)


def _is_dead(lock: Path) -> bool:
    try:
        os.kill(int(json.loads(lock.read_text(encoding="utf-8"))["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return False
