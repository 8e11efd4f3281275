"""The scripts around Nsight: what they would run, and that asking for help installs and starts nothing."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
NAMES = ("profile_decode.sh", "profile_prefill.sh", "profile_vllm.sh")


def run(name, *words, folder):
    environment = {**os.environ, "KERNELROOF": "/nowhere/kernelroof", "VENV": str(folder / "venv")}
    return subprocess.run(
        [SCRIPTS / name, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("words", [["--help"], ["-h"], ["tiny-llama", "--help"]])
def test_help_is_the_scripts_own(name, words, tmp_path):
    done = run(name, *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"scripts/{name}" in done.stdout
    assert "This runs" not in done.stdout
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("words", [["--dry-run", "tiny-llama", "--x", "5"], ["tiny-llama", "--x", "5", "--dry-run"]])
def test_a_dry_run_is_asked_for_anywhere(name, words, tmp_path):
    done = run(name, *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    command = next(line for line in done.stdout.splitlines() if line.startswith(" /nowhere/kernelroof profile"))
    assert "tiny-llama" in command
    assert command.endswith("--x 5")
    assert "--dry-run" not in command
