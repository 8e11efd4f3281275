"""The shape of the repository: who imports whom, what must not exist, what must stay importable."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
MAY_IMPORT = {
    "models": {"models"},
    "parsers": {"parsers"},
    "roofline": {"roofline", "models", "parsers"},
    "profile": {"profile", "roofline", "models", "parsers"},
}
SHARED_BY_ALL = {"kernelroof.models.errors"}


def imports_of(path):
    """Modules of ours that a file imports, anywhere in it, as full dotted names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("kernelroof"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            if (node.module or "").startswith("kernelroof"):
                yield str(node.module)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_import_direction(room):
    files = sorted((REPO / room).rglob("*.py"))
    assert files, f"{room} has no modules"
    for path in files:
        for name in imports_of(path):
            if name not in SHARED_BY_ALL:
                assert name.split(".")[1] in MAY_IMPORT[room], f"{path.relative_to(REPO)} imports {name}"


def test_profile_never_shadows_the_standard_library():
    assert not (REPO / "profile" / "__init__.py").exists()
    done = subprocess.run(
        [sys.executable, "-c", "import cProfile, torch, profile; print(profile.__file__)"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).name == "profile.py"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_every_room_is_typed(room):
    assert (REPO / room / "py.typed").exists()


def test_package_data_is_declared():
    """What the code opens beside itself must travel with an installation."""
    declared = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    for pattern in ("preset_configs/*.json", "gpus.csv"):
        assert pattern in declared
