"""Reports of real captures, opened in a browser: no errors, no network, the figures of the table beside them."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from kernelroof.profile.cli import main

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"
FILES = (
    "ncu_rep/a100_silu_set-full.ncu-rep",
    "ncu_raw/h100_rmsnorm_set-full.base.csv",
    "ncu_raw/rtx3070_nvtx_nested.ncu-2024.2.base.csv",
    "kineto/h100_qwen1.5-0.5b-chat.json.gz",
    "nsys_sqlite/t4_cupy_nvtx_2025.3.1.sqlite",
)


@pytest.fixture(scope="module")
def browser():
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("browser", Path(__file__).parents[1] / "browser.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.open_browser() as chromium:
        yield lambda: module.Visit(chromium)


@pytest.mark.parametrize("name", FILES)
def test_the_report_of_a_capture(name, browser, tmp_path, capsys):
    if not (CAPTURES / name).exists():
        pytest.skip(f"{CAPTURES / name} is not there")
    out = tmp_path / "look"
    assert main(["analyze", str(CAPTURES / name), "--out", str(out)]) == 0
    assert "report.html" in capsys.readouterr().out
    text = (out / "report.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
    table = pd.read_csv(out / "kernels.csv", low_memory=False)
    # One phase of the page for each phase of the table, on each clock that it has.
    clocks = {"inside ncu": "ncu_time_ns", "on the timeline": "timeline_ns"}
    roles = data["roles"]
    assert data["phases"]
    for i, phase in enumerate(data["phases"]):
        own = table[table["phase"] == phase["name"].partition(",")[0]]
        rows = own if len(own) else table
        total = (rows[clocks[phase["clock"]]] * rows["count"]).sum()
        assert phase["kernel_ns"] == pytest.approx(total, rel=1e-5)
        shown = sum(t for t, p in zip(roles["time_ns"], roles["phase"], strict=True) if p == i)
        assert shown == pytest.approx(total, rel=1e-5)
        assert phase["wall_ns"] is None
        assert phase["waterfall"] is None
    assert [m for m in data["missing"] if m[0] == "the waterfall"]
    visit = browser()
    page = visit(out / "report.html")
    first = page.evaluate("window.kernelroof.shown()")["roles"]
    assert first
    assert page.locator("#kernel-table tbody tr").count() > 0
    visit.close()
    assert visit.errors == []
    assert visit.asked == []
