"""The terminal's tables and verdicts."""

from __future__ import annotations

import io
import subprocess
import sys

import pandas as pd
import pytest
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.place import place
from kernelroof.roofline.summary import PhaseSummary, kernel_table, module_table, phase_summary
from kernelroof.roofline.text import conventions, facts, new_console, print_conventions, print_phase, verdict

MACHINE = Ceilings("test", 1e12, 1e11, 4e11, "float32", "measured", None, "")
NAMES = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "self_attn.q_proj", "post_attention_layernorm")


def run(steps: int = 4) -> pd.DataFrame:
    rows = [
        {
            "phase": "decode", "step": step, "module": f"model.layers.{layer}.{name}", "kind": "mlp",
            "kernel": "aten::mm", "op": "aten::mm", "count": 1, "reason": None,
            "time_ns": 1_000_000 * (1 + NAMES.index(name)), "flops": 10_000_000,
            "dram_read_bytes": 80_000_000, "dram_write_bytes": 0,
        }
        for step in range(steps) for layer in range(2) for name in NAMES
    ]  # fmt: skip
    return place(pd.DataFrame(rows), MACHINE)


def summary(steps: int = 4, **changes: object) -> PhaseSummary:
    wall_ns = 40_000_000 * steps
    got = phase_summary(run(steps), "decode", wall_ns=wall_ns, steps=steps, ceilings=MACHINE)
    return got._replace(**changes)  # type: ignore[arg-type]


def rendered(width: int | None, top: int = 12) -> str:
    file = io.StringIO()
    console = new_console(file, width)
    kw = {"wall_ns": 160_000_000, "ceilings": MACHINE}
    placed = run()
    print_phase(
        console,
        summary(),
        module_table(placed, "decode", **kw),  # type: ignore[arg-type]
        kernel_table(placed, "decode", **kw),  # type: ignore[arg-type]
        top=top,
    )
    print_conventions(console, MACHINE)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_tables_fit_the_width_and_cut_no_number(width: int) -> None:
    text = rendered(width)
    assert max(len(line) for line in text.splitlines()) <= width
    table = [line for line in text.splitlines() if "down_proj" in line and "recoverable" not in line]
    assert len(table) == 2
    # 3 ms each, two layers a step: cells are whole or not there at all.
    assert all("6" in line.split() for line in table) or all("6.00" in line.split() for line in table)
    assert all("…" not in line for line in table)


def test_wider_shows_more_columns() -> None:
    def heads(width: int) -> str:
        return rendered(width).partition("roofs:")[0]

    assert "launches" not in heads(70)
    assert "launches" in heads(160)


def test_plain_text_when_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    text = rendered(None)
    assert "\x1b" not in text
    assert 80 < max(len(line) for line in text.splitlines()) <= 100


def test_amounts_are_per_step_and_rows_sorted_by_what_is_recoverable() -> None:
    text = rendered(100)
    order = [text.index(f"*.{name}") for name in reversed(NAMES)]
    assert order == sorted(order)
    # 5 ms x 2 layers = 10 ms of 40 per step: 25 %.
    line = next(line for line in text.splitlines() if "*.post_attention_layernorm" in line)
    assert line.split()[1:4] == ["10.0", "25.0", "8.40"]


def test_rest_is_summed_not_dropped() -> None:
    text = rendered(100, top=2)
    line = next(line for line in text.splitlines() if "and 3 more" in line)
    # (1 + 2 + 3) ms x 2 layers.
    assert line.split()[3:5] == ["12.0", "30.0"]


def test_ideal_is_that_of_the_rows_own_figures() -> None:
    """The traced op's ideal is another one where kernels move other bytes than it does."""
    kw = {"wall_ns": 160_000_000, "ceilings": MACHINE}
    placed = run()
    kernels = kernel_table(placed, "decode", **kw)  # type: ignore[arg-type]
    kernels = kernels.assign(est_ideal_ns=1e6, est_flops=kernels["flops"], est_bytes=kernels["bytes"])
    file = io.StringIO()
    print_phase(new_console(file, 120), summary(), kernels, kernels, top=12)
    cells = next(line for line in file.getvalue().splitlines() if line.startswith("post_attention_layernorm")).split()
    time, _, gain, ideal = map(float, cells[2:6])
    assert time - ideal == pytest.approx(gain)
    assert "is not time minus ideal" not in file.getvalue()


def test_marks_and_notes_of_rows_above_the_roof_or_without_figures() -> None:
    placed = run()
    placed.loc[placed["module"].str.endswith("gate_proj"), "time_ns"] = 400_000
    placed.loc[placed["module"].str.endswith("q_proj"), "flops"] = None
    placed = place(placed, MACHINE)
    kw = {"wall_ns": 160_000_000, "ceilings": MACHINE}
    kernels = kernel_table(placed, "decode", **kw)  # type: ignore[arg-type]
    file = io.StringIO()
    print_phase(new_console(file, 120), summary(), kernels, kernels, top=3)
    text = file.getvalue()
    assert "200!" not in text.partition("and 2 more")[0]
    # Without a verdict, but a sixth of the time: it is among the three.
    assert "self_attn.q_proj" in text.partition("and 2 more")[0]
    file.truncate(0)
    print_phase(new_console(file, 120), summary(), kernels, kernels, top=12)
    assert "200!" in file.getvalue()
    assert "above 105 % of the roof" in file.getvalue()
    assert "is not time minus ideal" in file.getvalue()
    assert all(line == line.rstrip() for line in file.getvalue().splitlines())


def test_verdict_in_one_line() -> None:
    words = verdict(summary(mbu_pct=64.2, bound="memory", top_role="mlp.down_proj mm"))
    assert words == (
        "decode: 40.0 ms/step, 75 % in kernels; bound by memory; MBU 64 %; "
        "most recoverable: mlp.down_proj mm 8.40 ms/step"
    )
    one = verdict(summary(1, mfu_pct=31.0, mbu_pct=5.0, bound="compute", phase="prefill"))
    assert one.startswith("prefill: 40.0 ms, 75 % in kernels; bound by compute; MFU 31 %")


def test_facts_add_up_and_name_what_has_no_numbers() -> None:
    lines = "\n".join(facts(summary(unplaced=3, unplaced_ns=4_000_000.0)))
    assert "wall 40.0 ms/step = kernels 30.0 ms/step + gaps 10.0 ms/step" in lines
    assert "3 of 40 launches" in lines
    assert "1.00 ms/step" in lines
    assert "MFU" not in lines
    known = facts(summary(model=(4 * 10**9, 4 * 10**8), model_ns=16e6, mfu_pct=2.5, mbu_pct=10.0))
    assert "model per step: 1.00 GFLOP, 100 MB, ideal 4.00 ms/step; MFU 2.5 %, MBU 10 %" in known


def test_conventions_say_units_and_origin() -> None:
    words = " ".join(conventions(MACHINE))
    for part in ("FMA = 2 FLOP", "GB = 10^9", "dense", "measured", "MFU =", "MBU =", "100 GB/s", "400 GB/s"):
        assert part in words


def test_unknown_numbers_are_dashes() -> None:
    placed = place(run(1).assign(flops=pd.NA, reason="no counter"), MACHINE)
    kw = {"wall_ns": 40_000_000, "ceilings": MACHINE}
    file = io.StringIO()
    print_phase(
        new_console(file, 100),
        phase_summary(placed, "decode", steps=1, **kw),  # type: ignore[arg-type]
        module_table(placed, "decode", **kw),  # type: ignore[arg-type]
        kernel_table(placed, "decode", **kw),  # type: ignore[arg-type]
    )
    line = next(line for line in file.getvalue().splitlines() if "*.mlp.up_proj" in line)
    assert "unknown" in line
    assert "–" in line
    assert "nan" not in file.getvalue().lower().replace("no", "")


def test_rich_is_imported_only_to_render() -> None:
    code = "import sys, kernelroof.roofline.text; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
