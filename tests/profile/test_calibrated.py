"""`estimate --calibrate` on a real run of this machine, and on what is none."""

import json

import pytest
from kernelroof.profile.cli import main


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run of a small model: one layer, short prompt."""
    folder = tmp_path_factory.mktemp("calibrate")
    from kernelroof.models.presets import load_config

    config = {**load_config("tiny-qwen"), "num_hidden_layers": 1, "vocab_size": 512, "layer_types": None}
    path = folder / "small.json"
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    out = folder / "run"
    words = [
        "profile",
        str(path),
        "--device",
        "cpu",
        "--prompt",
        "32",
        "--output",
        "2",
        "--repeats",
        "1",
        "--threads",
        "1",
    ]
    assert main([*words, "--out", str(out)]) == 0
    return path, out


def test_a_run_predicts_itself_and_more_work_takes_longer(finished, capsys):
    config, run = finished
    capsys.readouterr()
    found = {}
    for prompt in ("32", "128"):
        words = ["estimate", str(config), "--calibrate", str(run), "--prompt", prompt, "--output", "2", "--json"]
        assert main(words) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["workload"]["dtype"] == "float32"
        found[prompt] = record["calibrated"]
    wall = json.loads((run / "wall.json").read_text())
    assert found["32"]["prefill"]["wall_ms"] == pytest.approx(wall["prefill"]["bare_ns"] / 1e6, rel=0.35)
    assert found["128"]["prefill"]["kernels_ms"] > found["32"]["prefill"]["kernels_ms"]
    assert found["32"]["prefill"]["low_ms"] <= found["32"]["prefill"]["wall_ms"] <= found["32"]["prefill"]["high_ms"]
    assert main(["estimate", str(config), "--calibrate", str(run)]) == 0
    assert "expected error" in capsys.readouterr().out


def test_what_can_not_calibrate(finished, tmp_path, capsys):
    config, run = finished
    words = ["estimate", str(config), "--calibrate"]
    assert main([*words, str(tmp_path)]) == 2
    assert "--overwrite" not in capsys.readouterr().err
    assert main([*words, str(run), "--dtype", "bfloat16"]) == 2
    assert "float32" in capsys.readouterr().err
    assert main([*words, str(run), "--weights-dtype", "int4"]) == 2
    assert main([*words, str(run), "--cache", "ideal"]) == 2
    part = tmp_path / "part"
    part.mkdir()
    (part / "run.json").write_text(json.dumps({"status": "running", "identity": {"dtype": "float32"}}))
    assert main([*words, str(part)]) == 2
    assert "no finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("run.json", lambda text: text.replace('"dtype"', '"dtypes"'), "dtype"),
        ("ceilings.json", lambda text: text.replace('"flop_s"', '"flops"'), "flop_s"),
        ("ceilings.json", lambda text: text.replace('"name"', '"names"'), "name"),
        ("wall.json", lambda text: text.replace('"bare_ns"', '"bare"'), "bare_ns"),
        ("wall.json", lambda text: "{", "can't be read"),
        ("kernels.csv", lambda text: text.replace("time_ns", "time", 1), "time_ns"),
        ("kernels.csv", lambda text: text[:-30], "cut short"),
        ("kernels.csv", lambda text: "", "cut short"),
        ("kernels.csv", lambda text: text.split("\n")[0] + "\n" + "-1," * 20 + "-1\n", "line 2"),
    ],
)
def test_a_damaged_run_is_named(finished, tmp_path, capsys, name, damage, said):
    config, run = finished
    for file in ("run.json", "ceilings.json", "wall.json", "kernels.csv"):
        text = (run / file).read_text()
        (tmp_path / file).write_text(damage(text) if file == name else text)
    capsys.readouterr()
    assert main(["estimate", str(config), "--dtype", "float32", "--calibrate", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert name.split(".")[0] in message
    assert said in message
    assert message.count("\n") == 1
