"""What a run uses, by what was asked for and what the machine has."""

import pytest
from kernelroof.models.errors import UsageError
from kernelroof.profile import backends
from kernelroof.profile.backends import BackendUnavailable, Gpu, Sources, choose_sources, find_gpu
from kernelroof.profile.cli import main
from kernelroof.profile.tool_errors import ToolMissing

H100 = Gpu("NVIDIA H100 PCIe", "9.0")


@pytest.fixture
def tools(monkeypatch):
    """Makes only these tools installed."""

    def install(*names):
        def find(name):
            if name not in names:
                raise ToolMissing(f"{name} is not installed", "Install it.")
            return name

        monkeypatch.setattr(backends, "find_tool", find)

    return install


@pytest.mark.parametrize(
    ("backend", "timeline", "counters", "installed", "expected"),
    [
        ("nsight", None, None, ("nsys", "ncu"), Sources("nsys", "ncu", False)),
        ("auto", None, None, ("nsys", "ncu"), Sources("nsys", "ncu", True)),
        ("auto", None, None, ("ncu",), Sources("torch", "ncu", True)),
        ("auto", None, None, ("nsys",), Sources("nsys", "traced", True)),
        ("auto", None, None, (), Sources("torch", "traced", True)),
        ("auto", "torch", "ncu", ("nsys", "ncu"), Sources("torch", "ncu", False)),
        ("auto", "nsys", "traced", ("nsys", "ncu"), Sources("nsys", "traced", True)),
        ("nsight", "torch", None, ("ncu",), Sources("torch", "ncu", False)),
        ("nsight", None, "traced", ("nsys",), Sources("nsys", "traced", True)),
        ("torch", None, None, ("nsys", "ncu"), Sources("torch", "traced", True)),
    ],
)
def test_any_pair(tools, backend, timeline, counters, installed, expected):
    tools(*installed)
    sources, lines = choose_sources(backend, timeline, counters, H100)
    assert sources[:3] == expected[:3]
    insisted = timeline == "nsys" or (backend == "nsight" and timeline is None)
    assert sources.timeline_may_fall_back != insisted
    missing = {"nsys", "ncu"} - set(installed)
    assert all(any(name in line for name in missing) for line in lines)
    if backend == "auto" and timeline is None and counters is None:
        assert len(lines) == len(missing), "one line for each thing that is lost"


@pytest.mark.parametrize("asked", [("nsight", None, None), ("auto", "nsys", None), ("auto", None, "ncu")])
def test_no_gpu_is_an_error_that_offers_torch(tools, asked):
    tools("nsys", "ncu")
    with pytest.raises(BackendUnavailable, match="--backend torch"):
        choose_sources(*asked, None)


def test_no_gpu_and_auto_is_one_line(tools):
    tools("nsys", "ncu")
    sources, lines = choose_sources("auto", None, None, None)
    assert sources == Sources("torch", "traced", False)
    assert len(lines) == 1
    assert "traced, not counted" in lines[0]
    assert choose_sources("torch", None, None, None) == (Sources(), [])


@pytest.mark.parametrize(("asked", "name"), [(("nsight", None, None), "nsys"), (("auto", None, "ncu"), "ncu")])
def test_a_tool_asked_for_must_be_there(tools, asked, name):
    tools()
    with pytest.raises(ToolMissing, match=name):
        choose_sources(*asked, H100)


def test_contradictions():
    with pytest.raises(UsageError, match="exclude each other"):
        choose_sources("torch", "nsys", None, H100)
    with pytest.raises(UsageError, match="nothing of Nsight"):
        choose_sources("nsight", "torch", "traced", H100)


def test_the_command_fails_early_without_a_gpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(backends, "find_gpu", lambda device: None)
    out = tmp_path / "run"
    assert main(["profile", "tiny-llama", "--backend", "nsight", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "no GPU" in said
    assert "--backend torch" in said
    assert not out.exists(), "nothing was begun"


def test_a_cpu_is_no_gpu():
    assert find_gpu("cpu") is None
