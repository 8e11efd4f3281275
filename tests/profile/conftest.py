"""Programs that stand in for the profilers, and where the real ones are."""

import fcntl
import os
import stat
import tempfile
from pathlib import Path

import pytest
from kernelroof.profile.tools import ask_version

NSIGHT = Path(os.environ.get("KERNELROOF_NSIGHT_DIR", Path.home() / ".cache/nsight"))
VERSIONS = {"nsys": ("2022.4", "2023.4"), "ncu": ("2022.3", "2024.2")}


def find_real(name, version):
    """A real tool; without it the test is skipped, or fails where KERNELROOF_REQUIRE_NSIGHT is 1."""
    path = NSIGHT / f"{name}-{version}" / "bin" / name
    if path.exists():
        return ask_version(name, path)
    if os.environ.get("KERNELROOF_REQUIRE_NSIGHT") == "1":
        pytest.fail(f"{path} is not there")
    return pytest.skip(f"{path} is not there")


@pytest.fixture
def real():
    """Find a real tool by name and version, see `find_real`."""
    return find_real


@pytest.fixture
def alone():
    """No other test records with a real nsys meanwhile: recordings of one user end each other's ("End of file")."""
    with open(Path(tempfile.gettempdir()) / f"kernelroof-tests-nsys-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(params=VERSIONS["nsys"])
def nsys_tool(request, alone):
    return find_real("nsys", request.param)


@pytest.fixture(params=VERSIONS["ncu"])
def ncu_tool(request):
    return find_real("ncu", request.param)


@pytest.fixture
def program(tmp_path):
    """Write a shell script; `version` is what it answers to --version."""

    def write(name, body, version="1.2.3"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "Version {version} (build 1)" && exit\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return write


@pytest.fixture
def fake(program):
    """A stand-in for a tool, as the `Tool` that it claims to be."""
    return lambda name, body, version="2024.2.0": ask_version(name, program(name, body, version))
