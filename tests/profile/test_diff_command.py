"""`kernelroof diff` on written run folders: what it says, its exit status, its page, its errors."""

import json
from pathlib import Path

import pandas as pd
import pytest
from kernelroof.parsers.schema import KERNELS
from kernelroof.profile.cli import main
from kernelroof.profile.diff_command import GATE_CLOSED
from kernelroof.roofline.ceilings import Ceilings, to_json
from kernelroof.roofline.spread import all_steps, role_steps
from kernelroof.roofline.waterfall import TERMS

STEPS, LAYERS = 6, 2
NS = {"self_attn.q_proj": 2_000_000, "mlp.up_proj": 3_000_000, "mlp.down_proj": 3_000_000, "mlp.act_fn": 500_000}
IDLE_NS = 50_000
IDENTITY = {"model": "m", "batch": 1, "prompt": 8, "output": STEPS, "dtype": "float32", "device": "cpu",
            "attn": "sdpa", "cache": "dynamic",
            "driver": {"config": {}}, "machine": {"cpu": "c"}}  # fmt: skip


def kernels(factor):
    """`factor` times the time of a module, or of all of them ("*")."""
    rows = [
        {"phase": "decode", "step": step, "module": f"model.layers.{layer}.{module}", "kernel": "mm", "op": "mm",
         "kind": "mlp" if "mlp" in module else "projection", "count": 1, "idle_before_ns": IDLE_NS,
         "time_ns": int(time * factor.get(module, factor.get("*", 1))),
         "flops": 10**6, "dram_read_bytes": 10**6, "dram_write_bytes": 10**3, "bound": "memory"}
        for step in range(STEPS) for layer in range(LAYERS) for module, time in NS.items()
    ]  # fmt: skip
    typed = {c.name: "string" if c.dtype == "str" else c.dtype for c in KERNELS}
    return pd.DataFrame(rows).reindex(columns=list(typed)).astype(typed)


def write_run(
    folder, factor=None, status="complete", roof_byte_s=2e10, doubts=(), repeats=(0.99, 1.0, 1.01), **identity
):
    """A run folder whose modules take `factor` times their time, and whose bare repeats `repeats` times the whole."""
    folder.mkdir()
    rows = kernels(factor or {})
    wall = int(rows["time_ns"].sum() + rows["idle_before_ns"].sum())
    rows.to_csv(folder / "kernels.csv", index=False)
    all_steps([role_steps(rows, n) for n in range(3)]).to_csv(folder / "repeats.csv", index=False)
    terms = {**dict.fromkeys(TERMS, 0), "ideal_ns": wall // 2, "kernels_ns": wall - wall // 2}
    pd.DataFrame([{"phase": "decode", "scope": "phase", "name": "decode", **terms, "total_ns": wall}]).to_csv(
        folder / "waterfall.csv", index=False
    )
    record = {"status": status, "identity": {**IDENTITY, **identity}, "sources": {}, "environment": {}}
    (folder / "run.json").write_text(json.dumps(record))
    phase = {"bare_ns": wall, "bare_min_ns": int(wall * 0.99), "bare_max_ns": int(wall * 1.01), "doubts": list(doubts)}
    (folder / "wall.json").write_text(json.dumps({"decode": phase}))
    bare = {"prefill_ns": [], "decode_step_ns": [[int(r * wall / STEPS)] * STEPS for r in repeats]}
    (folder / "bare.json").write_text(json.dumps(bare))
    roofs = Ceilings("made up", 1e11, roof_byte_s, None, "float32", "measured", 2**34, "written by a test")
    (folder / "ceilings.json").write_text(to_json(roofs))
    return str(folder)


@pytest.fixture
def pair(tmp_path):
    """B's up_proj takes 1.5 times as long as A's."""
    return write_run(tmp_path / "a"), write_run(tmp_path / "b", {"mlp.up_proj": 1.5})


def test_the_slower_module_is_named_with_its_size(pair, capsys):
    assert main(["diff", *pair, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    changed = [(line["module"], line["says"], line["delta_ns"]) for line in found["lines"] if line["changed"]]
    assert changed == [("model.layers.*.mlp.up_proj", "slower", LAYERS * 1_500_000)]
    assert found["phases"]["decode"]["change_pct"] == pytest.approx(100 * 1.5 / 8.7, rel=1e-4)
    assert sum(line["b_time_ns"] for line in found["lines"]) == LAYERS * 10_200_000 == found["phases"]["decode"]["b_ns"]
    idle = [line["a_time_ns"] for line in found["lines"] if line["kind"] == "idle"]
    assert idle == [LAYERS * IDLE_NS] * len(NS)


def test_swapped_and_against_itself(pair, capsys):
    assert main(["diff", pair[1], pair[0]]) == 0
    text = capsys.readouterr().out
    assert "faster" in text
    assert max(map(len, text.splitlines()[2:])) <= 100
    assert main(["diff", pair[0], pair[0]]) == 0
    assert "none changed by more than noise" in capsys.readouterr().out


@pytest.mark.parametrize(("limit", "status"), [("5%", GATE_CLOSED), ("17", GATE_CLOSED), ("18 %", 0), ("50%", 0)])
def test_the_gate(pair, limit, status, capsys):
    assert main(["diff", *pair, "--fail-over", limit]) == status
    assert ("FAIL: decode is 17.2 % slower" in capsys.readouterr().out) == bool(status)
    assert main(["diff", *reversed(pair), "--fail-over", limit]) == 0, "faster is no failure"


def test_the_gate_stops_at_what_all_work_is_slower_by_unless_told_otherwise(tmp_path, capsys):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", {"*": 1.3})
    assert main(["diff", a, b]) == 0
    assert "no change beyond the noise floor; all its work +30.0 % alike" in " ".join(capsys.readouterr().out.split())
    assert main(["diff", a, b, "--fail-over", "5%"]) == GATE_CLOSED
    assert "all its work is 30.0 % slower alike" in capsys.readouterr().out
    assert main(["diff", a, b, "--fail-over", "5%", "--allow-drift"]) == 0
    assert main(["diff", a, b, "--fail-over", "40%"]) == 0
    assert main(["diff", a, b, "--allow-drift"]) == 2


def test_a_gate_that_noise_keeps_open_says_so(pair, tmp_path, capsys):
    """The second run's repeats lie 25 % apart, either way, and its memory roof was measured at half."""
    shaky = write_run(tmp_path / "shaky", {"mlp.up_proj": 1.5}, repeats=(0.8, 1.0, 1.3), roof_byte_s=1e10)
    assert main(["diff", pair[0], shaky, "--fail-over", "5%"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "noise floor 39 % (repeats within each run): no change beyond the noise floor" in said
    assert "memory 20.0 GB/s -> 10.0 GB/s (-50.0 %)" in said
    assert "PASS: no phase is slower by more than 5 % and noise; but noise would hide a slow-down of decode" in said
    once = write_run(tmp_path / "once", {"mlp.up_proj": 1.5}, repeats=(0.99, 0.99, 1.0, 1.01, 1.01, 3.0))
    assert main(["diff", pair[0], once, "--fail-over", "5%"]) == GATE_CLOSED, "one disturbed pass of many is no noise"
    capsys.readouterr()
    assert main(["diff", pair[1], pair[1], "--fail-over", "5%"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "PASS: no phase is slower by more than 5 % and noise"


@pytest.mark.parametrize("limit", ["-1", "x", "inf", "nan"])
def test_a_limit_that_is_none(pair, limit, capsys):
    assert main(["diff", *pair, f"--fail-over={limit}"]) == 2
    assert "--fail-over" in capsys.readouterr().err


def test_the_gate_refuses_other_work(pair, tmp_path, capsys):
    longer = write_run(tmp_path / "longer", prompt=16)
    assert main(["diff", pair[0], longer]) == 0
    said = capsys.readouterr().out
    assert "prompt 8 against 16" in said
    assert "other work, neither slower nor faster" in said
    assert main(["diff", pair[0], write_run(tmp_path / "more", {"mlp.up_proj": 2}, prompt=16), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [line["says"] for line in record["lines"] if line["changed"]] == ["more time"]
    assert main(["diff", pair[0], longer, "--fail-over", "5%"]) == 2
    assert "other work" in capsys.readouterr().err


def test_folders_that_are_no_finished_run(pair, tmp_path, capsys):
    cut = write_run(tmp_path / "cut", status="running")
    for other, words in ((cut, "no finished run"), (str(tmp_path / "none"), "holds no run")):
        assert main(["diff", pair[0], other]) == 2
        assert words in capsys.readouterr().err


def test_the_page_opens(tmp_path, capsys):
    import importlib.util

    place = Path(__file__).parents[1] / "browser.py"
    spec = importlib.util.spec_from_file_location("browser", place)
    browser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(browser)
    out = tmp_path / "diff.html"
    pair = (
        write_run(tmp_path / "a", doubts=["a busy machine?", "roofs not confirmed"]),
        write_run(tmp_path / "b", {"mlp.up_proj": 1.5}, doubts=["a busy machine?"]),
    )
    assert main(["diff", *pair, "--out", str(out)]) == 0
    with browser.open_browser() as chromium:
        visit = browser.Visit(chromium)
        page = visit(out)
        assert "model.layers.*.mlp.up_proj (mlp)" in page.evaluate("window.kernelroof.lines()")
        assert "17.2 %" in page.inner_text("#sentences")
        assert page.locator("#warnings li").all_inner_texts() == [
            "A: a busy machine?",
            "A: roofs not confirmed",
            "B: a busy machine?",
        ]
        assert page.locator("#terms-table th").all_inner_texts() == ["term", "A", "B", "B - A"]
        assert page.locator("#terms-table tbody td").first.inner_text() == "the model's ideal"
        heads = page.locator("#lines-table th").all_inner_texts()
        cells = page.locator("#lines-table tbody tr").first.locator("td").all_inner_texts()
        assert cells[heads.index("bytes, A\u00a0→\u00a0B")] == "2.00 MB"
        drawn = page.evaluate(
            """() => rooflineOptions().series.filter((s) => s.type === "scatter").flatMap((s) =>
              s.data.map((d, dataIndex) => (s.label.formatter ?? d.label.formatter)({ dataIndex })))"""
        )
        assert {"A: float32 100 GFLOP/s", "B: float32 100 GFLOP/s", "A: DRAM 20.0 GB/s", "mlp.up_proj (mlp)"} <= set(
            drawn
        )
        assert (visit.errors, visit.asked) == ([], [])
        visit.close()
