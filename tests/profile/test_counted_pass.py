"""The capture of a counting run is open around the planned calls and nothing else."""

import json
import subprocess
import sys

import pytest
from kernelroof.models.errors import OutputError
from kernelroof.profile.counted_pass import capture_sink, innermost, read_plan, write_plan
from kernelroof.profile.ranges import Ranges
from kernelroof.profile.window import Window


def replay(windows, path):
    """What a sink does while ranges open and close: "name" opens one, None closes the innermost."""
    said = []
    sink = capture_sink(windows, lambda: said.append("start"), lambda: said.append("stop"))
    for name in path:
        if name is None:
            sink.pop()
        else:
            sink.push(name)
        said.append(name)
    return said


def test_open_only_while_the_call_is_innermost():
    window = Window("decode", 1, "model.layers.0.self_attn")
    walk = ["decode", "step1", "model.layers.0.self_attn", "model.layers.0.self_attn.q_proj", None, None, None, None]
    said = replay([window], walk)
    assert said == [
        "decode", "step1", "start", "model.layers.0.self_attn", "stop", "model.layers.0.self_attn.q_proj",
        "start", None, "stop", None, None, None,
    ]  # fmt: skip


def test_another_step_and_phase_stay_closed():
    window = Window("decode", 1, "lm_head")
    assert "start" not in replay([window], ["decode", "step0", "lm_head", None, None, None])
    assert "start" not in replay([window], ["prefill", "step1", "lm_head", None, None, None])


def test_root_is_the_step_itself():
    assert innermost(["prefill", "step0"]) == Window("prefill", 0, "(root)")
    assert innermost(["prefill"]) is None
    assert innermost(["prefill", "model"]) is None
    assert innermost([]) is None


def test_neighbouring_windows_need_no_toggle():
    windows = [Window("prefill", 0, "a"), Window("prefill", 0, "a.b")]
    assert replay(windows, ["prefill", "step0", "a", "a.b", None, None]) == [
        "prefill", "step0", "start", "a", "a.b", None, "stop", None,
    ]  # fmt: skip


def test_an_exception_closes_the_capture():
    said = []
    ranges = Ranges([capture_sink([Window("prefill", 0, "a")], lambda: said.append(1), lambda: said.append(0))])
    with pytest.raises(ValueError, match="boom"), ranges.phase("prefill"), ranges.step(0):
        ranges.push("a")
        raise ValueError("boom")
    assert said == [1, 0]


def test_plan_travels_as_json(tmp_path):
    windows = [Window("decode", 3, "model.layers.1.mlp"), Window("prefill", 0, "(root)")]
    write_plan(tmp_path / "plan.json", windows)
    assert read_plan(tmp_path / "plan.json") == windows


@pytest.mark.parametrize("text", ["", "[]", '{"windows": [1]}', '{"windows": [["decode", "x", "m"]]}'])
def test_a_broken_plan_is_said(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(OutputError, match="count plan"):
        read_plan(tmp_path / "plan.json")


def test_the_driver_runs_a_plan(tmp_path):
    write_plan(tmp_path / "plan.json", [Window("decode", 0, "lm_head")])
    command = [sys.executable, "-m", "kernelroof.profile.driver", "--model", "tiny-llama", "--prompt", "4"]
    command += ["--output", "1", "--threads", "1", "--count-plan", str(tmp_path / "plan.json")]
    done = subprocess.run([*command, "--out", str(tmp_path / "t.json")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "t.json").read_text())["mode"] == "counted"
