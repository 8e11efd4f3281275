"""One run, seen four ways: the tables, the page, the drawn points and the terminal show the same numbers."""

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from kernelroof.models.presets import load_config
from kernelroof.profile.cli import main
from kernelroof.roofline.units import seconds

from_tests = Path(__file__).parents[1]
SMALL = {"num_hidden_layers": 3, "hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 1024}  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The folder of a finished run and what the terminal said of it."""
    folder = tmp_path_factory.mktemp("agreement")
    config = folder / "small.json"
    config.write_text(json.dumps({**load_config("tiny-llama"), **SMALL}))
    said = StringIO()
    options = ["--prompt", "64", "--output", "6", "--repeats", "2", "--top", "4", "--out", str(folder / "run")]
    with redirect_stdout(said):
        assert main(["profile", str(config), *options]) == 0
    return folder / "run", said.getvalue()


@pytest.fixture(scope="module")
def page(seen):
    """The data that the page draws."""
    text = (seen[0] / "report.html").read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


@pytest.fixture(scope="module")
def kernels(seen):
    table = pd.read_csv(seen[0] / "kernels.csv")
    return table.assign(total_ns=table["time_ns"] * table["count"])


def column(table, name):
    found = table[name]
    return [found["names"][c] if c >= 0 else None for c in found["codes"]] if isinstance(found, dict) else found


def test_phases_end_at_the_bare_wall_time(seen, page, kernels):
    walls = json.loads((seen[0] / "wall.json").read_text())
    waterfall = pd.read_csv(seen[0] / "waterfall.csv")
    assert [p["name"] for p in page["phases"]] == list(walls)
    for phase in page["phases"]:
        wall = walls[phase["name"]]
        row = waterfall[(waterfall["scope"] == "phase") & (waterfall["phase"] == phase["name"])].iloc[0]
        terms = {t["term"]: t["ns"] for t in phase["waterfall"]}
        assert phase["wall_ns"] == wall["bare_ns"] == row["total_ns"] == sum(terms.values())
        assert all(row[term] == ns for term, ns in terms.items())
        busy = kernels.loc[kernels["phase"] == phase["name"], "total_ns"].sum()
        assert phase["kernel_ns"] == busy == phase["wall_ns"] - terms["idle_ns"]
        assert phase["gap_ns"] == terms["idle_ns"]
        assert terms["ideal_ns"] == pytest.approx(phase["ideal_ns"], rel=0.02, abs=2)


def test_roles_of_the_page_are_sums_of_the_table(page, kernels):
    roles = page["roles"]
    phases = [page["phases"][i]["name"] for i in roles["phase"]]
    wild = kernels["module"].str.replace(r"(?<=\.)\d+(?=\.|$)", "*", regex=True)
    sums = kernels.assign(role=wild).groupby(["phase", "role", "kind", "kernel"], sort=False).agg(
        time_ns=("total_ns", "sum"), launches=("count", "sum"), recoverable_ns=("recoverable_ns", "sum")
    )  # fmt: skip
    keys = zip(phases, column(roles, "module"), column(roles, "kind"), column(roles, "kernel"), strict=True)
    shown = dict(zip(keys, range(len(phases)), strict=True))
    assert len(shown) == len(sums)
    for key, row in sums.iterrows():
        at = shown[key]
        assert roles["time_ns"][at] == row["time_ns"]
        assert roles["launches"][at] == row["launches"]
        assert roles["recoverable_ns"][at] == pytest.approx(row["recoverable_ns"], rel=1e-5, abs=1e-3)


def test_launches_of_the_page_are_those_of_the_table(page, kernels):
    launches = page["launches"]
    assert page["launches_note"] is None
    assert sum(launches["count"]) == kernels["count"].sum()
    assert sorted(launches["time_ns"]) == sorted(kernels["time_ns"])


def test_the_terminal_says_what_the_page_says(seen, page):
    said = " ".join(seen[1].split())
    for phase in page["phases"]:
        each = "/step" if phase["steps"] > 1 else ""
        for figure in ("wall_ns", "kernel_ns", "ideal_ns", "recoverable_ns"):
            assert seconds(phase[figure] / phase["steps"] / 1e9, 3) + each in said, figure
        assert phase["verdict"] in said
        for line in phase["facts"]:
            assert line in said
        for term in phase["waterfall"]:
            if term["ns"]:
                assert term["words"] in said
    roles = page["roles"]
    for i in range(len(page["phases"])):
        order = [at for at, p in enumerate(roles["phase"]) if p == i]
        for at in order[:4]:  # as many as --top
            name = roles["label"][at][-12:]
            line = next(
                line for line in seen[1].splitlines() if name in line and f"{roles['pct_of_roof'][at]:.1f}" in line
            )
            assert roles["bound"]["names"][roles["bound"]["codes"][at]] in line
    assert page["estimate"]["text"].splitlines()[0] in seen[1]


def test_the_points_drawn_are_the_roles_placed(seen, page):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("browser", from_tests / "browser.py")
    browser = module_from_spec(spec)
    spec.loader.exec_module(browser)
    with browser.open_browser() as chromium:
        visit = browser.Visit(chromium)
        opened = visit(seen[0] / "report.html")
        drawn = opened.evaluate("window.kernelroof.shown()")
        visit.close()
    assert visit.errors == []
    assert visit.asked == []
    roles = page["roles"]
    decode = next(i for i, p in enumerate(page["phases"]) if p["name"] == "decode")
    placed = {
        at for at, p in enumerate(roles["phase"])
        if p == decode and roles["flops"][at] and roles["bytes"][at] and roles["time_ns"][at]
    }  # fmt: skip
    assert set(drawn["points"]) == placed
    assert set(drawn["roles"]) == {at for at, p in enumerate(roles["phase"]) if p == decode}
    for at in placed:
        assert roles["intensity"][at] == pytest.approx(roles["flops"][at] / roles["bytes"][at], rel=1e-4)
        rate = roles["flops"][at] / roles["time_ns"][at] * 1e9
        assert roles["attained_flop_s"][at] == pytest.approx(rate, rel=1e-4)
