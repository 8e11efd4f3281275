"""report.html in a real browser: what it shows is compared with the data by brute force, and with Python's formats."""

import copy
import json
import re

import pytest
from kernelroof.roofline import text, units
from kernelroof.roofline.html import WEB

DECODE = 1
LOOK = "#phase=decode&module=model.layers.*.self_attn&part=layer%3Amodel.layers.3"
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>&amp;{{7*7}}${1}\u2028'"


def rows_of(columns):
    plain = {
        k: [v["names"][c] if c >= 0 else None for c in v["codes"]] if isinstance(v, dict) else v
        for k, v in columns.items()
    }
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def indices(rows, keep):
    return [i for i, row in enumerate(rows) if keep(row)]


def shown(view):
    return view.evaluate("kernelroof.shown()")


def table(view, selector, column):
    return view.locator(f"{selector} tbody tr td:nth-child({column})").all_inner_texts()


def show_all(view, selector):
    more = view.locator(f"{selector} button.more")
    if more.count():
        more.click()


def column_of(view, selector, head):
    return [h.strip() for h in view.locator(f"{selector} thead th").all_inner_texts()].index(head) + 1


def per_step(value, data, phase):
    return None if value is None else value / data["phases"][phase]["steps"]


def time_text(ns):
    return "–" if ns is None else units.seconds(ns / 1e9, 3)


# ---- numbers ----
def values():
    """Around every change of digits and prefix, exact ties, and odd sizes."""
    found = [0.0, 0.5, 1.5, 2.5, 0.125, 0.375, 1.25, 12.5, 112.5, 0.0625, 2.675, 1 / 3, 2 / 3, 4.9996, 99.95, 99.949]
    found += [m * 10.0**e for e in range(-13, 20) for m in (1, 1.0005, 1.2345, 9.994, 9.995, 9.9949, 9.9995, 9.99949)]
    found += [k + 0.5 for k in range(0, 2000, 13)] + [k / 8 for k in range(1, 4000, 37)]
    return found + [-v for v in found if v]


def test_numbers_are_written_as_python_writes_them(visit, report):
    view = visit(report)
    numbers = values()
    wanted = {
        **{f"fixed {d}": [units.fixed(v, d) for v in numbers] for d in (2, 3, 4)},
        **{f"quantity {d}": [units.quantity(v, "B", d) for v in numbers] for d in (3, 4)},
        **{f"seconds {d}": [units.seconds(v, d) for v in numbers] for d in (3, 4)},
        "oneDigit": [text._one_digit(v) for v in numbers],
        "number": [text._number(v) for v in numbers],
    }
    got = view.evaluate(
        """(numbers) => {
          const f = kernelroof.format, out = {};
          for (const d of [2, 3, 4]) out[`fixed ${d}`] = numbers.map((v) => f.fixed(v, d));
          for (const d of [3, 4]) out[`quantity ${d}`] = numbers.map((v) => f.quantity(v, "B", d));
          for (const d of [3, 4]) out[`seconds ${d}`] = numbers.map((v) => f.seconds(v, d));
          out.oneDigit = numbers.map((v) => f.oneDigit(v));
          out.number = numbers.map((v) => f.number(v));
          return out;
        }""",
        numbers,
    )
    for name, texts in wanted.items():
        differ = [(v, a, b) for v, a, b in zip(numbers, texts, got[name], strict=True) if a != b]
        assert differ == [], name


def test_a_missing_number_is_a_dash(visit, report):
    view = visit(report)
    got = view.evaluate(
        "['quantity', 'seconds', 'oneDigit', 'percent', 'number'].map((n) => kernelroof.format[n](null, 'B'))"
    )
    assert got == ["–"] * 5
    assert units.quantity(None, "B") == units.seconds(None) == "–"


# ---- what is shown ----
def test_the_first_look_is_decode_with_every_role_drawn_or_listed(visit, data, report):
    view = visit(report)
    now, roles = shown(view), rows_of(data["roles"])
    mine = indices(roles, lambda r: r["phase"] == DECODE)
    placed = indices(roles, lambda r: r["phase"] == DECODE and (r["flops"] or 0) > 0 and (r["bytes"] or 0) > 0)
    assert now["state"]["phase"] == DECODE
    assert sorted(now["points"]) == placed
    assert sorted(now["points"] + now["unplaced"]) == mine == sorted(now["roles"])
    assert now["odd"] == indices(roles, lambda r: r["phase"] == DECODE and (r["reason"] or "").startswith("impossible"))
    listed = view.locator("#unplaced").inner_text()
    for i in now["unplaced"]:
        assert f"{roles[i]['label']} {time_text(per_step(roles[i]['time_ns'], data, DECODE))}" in listed.replace(
            "\n", " "
        )


def test_the_headline_is_of_the_phase_and_its_ideal(visit, data, report):
    view = visit(report)
    for i, phase in enumerate(data["phases"]):
        words = view.locator("button.phase").nth(i).inner_text().replace("\n", " ")
        assert phase["name"] in words
        assert time_text(per_step(phase["wall_ns"], data, i)) in words
        assert f"the model's ideal is {time_text(per_step(phase['ideal_ns'], data, i))}" in words
    summary = view.locator("#summary").inner_text()
    for question, answer in data["phases"][DECODE]["answers"]:
        assert question in summary
        assert answer in summary
    for doubt in [*data["doubts"], *data["phases"][DECODE]["doubts"]]:
        assert doubt in summary


def test_every_figure_of_the_kernel_table_is_the_datas(visit, data, report):
    view = visit(report)
    show_all(view, "#kernel-table")
    roles = rows_of(data["roles"])
    mine = [r for r in roles if r["phase"] == DECODE]
    mine.sort(key=lambda r: (r["recoverable_ns"] is None, -(r["recoverable_ns"] or 0)))

    def column(head):
        return table(view, "#kernel-table", column_of(view, "#kernel-table", head))

    assert [c.split("\n")[0] for c in column("kernel")] == [r["label"] for r in mine]
    assert [c.split("\n")[1] for c in column("kernel")] == [r["kernel"] for r in mine]
    for head, name in (("time per step", "time_ns"), ("recoverable", "recoverable_ns"), ("at its roof", "ideal_ns")):
        assert column(head) == [time_text(per_step(r[name], data, DECODE)) for r in mine], head
    for head, name, unit in (("FLOPs", "flops", "FLOP"), ("bytes", "bytes", "B")):
        assert column(head) == [units.quantity(per_step(r[name], data, DECODE), unit, 3) for r in mine], head
    for head, name in (("share", "share_pct"), ("of roof", "pct_of_roof")):
        assert column(head) == ["–" if r[name] is None else f"{text._one_digit(r[name])} %" for r in mine], head
    assert column("FLOP/B") == ["–" if r["intensity"] is None else text._number(r["intensity"]) for r in mine]
    assert column("launches") == [f"{r['launches'] / 4:g}" for r in mine]
    assert column("bound") == [r["bound"] for r in mine]
    assert column("median step") == [time_text(r["step_median_ns"]) for r in mine]


def test_every_figure_of_the_module_table_is_the_datas(visit, data, report):
    view = visit(report)
    show_all(view, "#module-table")
    mine = [m for m in rows_of(data["modules"]) if m["phase"] == DECODE]
    mine.sort(key=lambda r: (r["recoverable_ns"] is None, -(r["recoverable_ns"] or 0)))
    assert table(view, "#module-table", 1) == [m["module"] for m in mine]
    at = column_of(view, "#module-table", "time per step")
    assert table(view, "#module-table", at) == [time_text(per_step(m["time_ns"], data, DECODE)) for m in mine]


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("kernel", "label"),
        ("time per step", "time_ns"),
        ("bytes", "bytes"),
        ("bound", "bound"),
        ("of roof", "pct_of_roof"),
    ],
)
def test_a_head_sorts_both_ways_with_the_missing_last(visit, data, report, head, name):
    view = visit(report)
    show_all(view, "#kernel-table")
    mine = [r for r in rows_of(data["roles"]) if r["phase"] == DECODE]
    at = column_of(view, "#kernel-table", head)
    button = view.locator(f"#kernel-table thead th:nth-child({at}) button")
    directions = []
    for _ in range(2):
        button.click()
        directions.append(view.locator(f"#kernel-table thead th:nth-child({at})").get_attribute("aria-sort"))
        known = sorted(
            (r for r in mine if r[name] is not None), key=lambda r: r[name], reverse=directions[-1] == "descending"
        )
        got = [c.split("\n")[0] for c in table(view, "#kernel-table", 1)]
        by_label = {r["label"]: [q[name] for q in mine if q["label"] == r["label"]] for r in mine}
        wanted = [r[name] for r in known]
        assert len(got) == len(mine)
        # Of roles with one label and of equal values the order is not told apart: the values must fit in place.
        assert all(value in by_label[label] for label, value in zip(got, wanted, strict=False))
        assert all(None in by_label[label] for label in got[len(wanted) :])
    assert sorted(directions) == ["ascending", "descending"]
    assert (
        view.locator("#kernel-table thead th[aria-sort=none]").count() == view.locator("#kernel-table th").count() - 1
    )


# ---- filters ----
def test_filters_act_on_roofline_tables_and_timeline_together(visit, data, report):
    view = visit(report)
    roles, modules = rows_of(data["roles"]), rows_of(data["modules"])
    filters = view.locator("#filters")

    def check(keep):
        now = shown(view)
        wanted = indices(roles, lambda r: r["phase"] == DECODE and keep(r))
        assert sorted(now["roles"]) == wanted
        assert sorted(now["points"] + now["unplaced"]) == wanted
        kept = {roles[i]["module"] for i in wanted}
        assert sorted(now["modules"]) == indices(modules, lambda m: m["phase"] == DECODE and m["module"] in kept)
        assert now["timeline"] == [role in wanted for role in data["phases"][DECODE]["timeline"]["role"]]
        show_all(view, "#kernel-table") if view.locator(
            "#kernel-table button.more[aria-expanded=false]"
        ).count() else None
        assert len(table(view, "#kernel-table", 1)) == len(wanted)
        total = sum(roles[i]["time_ns"] for i in wanted) / 4
        everything = sum(r["time_ns"] for r in roles if r["phase"] == DECODE) / 4
        count = f"{len(wanted)} of 22 kernels, {time_text(total)} of {time_text(everything)}"
        assert filters.locator(".count").inner_text() == count

    check(lambda r: True)
    filters.get_by_role("button", name="mlp", exact=True).click()
    check(lambda r: r["kind"] == "mlp")
    filters.get_by_role("button", name="norm", exact=True).click()
    check(lambda r: r["kind"] in ("mlp", "norm"))
    filters.get_by_role("button", name="latency").click()
    check(lambda r: r["kind"] in ("mlp", "norm") and r["bound"] == "latency")
    filters.get_by_role("button", name="clear all").click()
    check(lambda r: True)
    filters.get_by_role("combobox").select_option("model.layers.*.self_attn")
    check(lambda r: (r["module"] + ".").startswith("model.layers.*.self_attn."))
    filters.get_by_role("searchbox").fill("GEMVX")
    check(lambda r: ".self_attn." in r["module"] and "gemvx" in r["kernel"])
    assert view.evaluate("document.activeElement.type") == "search"


def test_a_filter_that_nothing_passes_says_so(visit, report):
    view = visit(report)
    view.get_by_role("searchbox").fill("no such kernel")
    assert shown(view)["points"] == []
    assert view.locator("#kernel-table tbody").inner_text() == "Nothing passes the filters."


def test_kinds_sum_what_has_both_figures(visit, data, report):
    view = visit(report, part="#phase=decode&view=kinds")
    roles = [r for r in rows_of(data["roles"]) if r["phase"] == DECODE]
    placed = {r["kind"] for r in roles if r["flops"]}
    now = shown(view)
    assert set(now["points"]) == placed
    assert set(now["unplaced"]) == {r["kind"] for r in roles} - placed
    summed = {k["kind"]: k for k in view.evaluate("shownKinds().map(({roles, ...k}) => k)")}
    known = [r for r in roles if r["kind"] == "attention" and r["flops"] is not None]
    everything = [r for r in roles if r["kind"] == "attention"]
    assert len(everything) > len(known) > 0
    found = summed["attention"]
    assert found["time_ns"] == sum(r["time_ns"] for r in everything)
    assert found["flops"] == sum(r["flops"] for r in known)
    assert found["intensity"] == pytest.approx(found["flops"] / sum(r["bytes"] for r in known))
    assert found["attained_flop_s"] == pytest.approx(found["flops"] / sum(r["time_ns"] for r in known) * 1e9)
    assert "no FLOPs or bytes" in found["reason"]


# ---- the way down ----
def pixel(view, series, index):
    """Where on the page a mark of the roofline is."""
    at = view.evaluate(
        """([series, index]) => {
          const chart = roofline.chart.instance, p = roofline[series][index];
          return chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, [p.x, p.y]);
        }""",
        [series, index],
    )
    box = view.locator("#roofline-chart").bounding_box()
    return box["x"] + at[0], box["y"] + at[1]


def test_clicks_lead_from_the_model_to_single_launches_and_back(visit, data, report):
    view = visit(report)
    crumbs = view.locator("#crumbs")
    roles = rows_of(data["roles"])

    def click(series, index):
        view.locator("#roofline-chart").scroll_into_view_if_needed()
        x, y = pixel(view, series, index)
        view.mouse.move(x, y)
        view.mouse.click(x, y)

    # The whole model stands on the roof; below, marks that lie under no other are clicked.
    star = shown(view)["marks"].index("decode, the whole model")
    view.evaluate("(i) => goDown({ mark: roofline.marks[i] })", star)
    assert shown(view)["state"]["view"] == "kinds"
    click("points", shown(view)["points"].index("sampling"))
    assert crumbs.inner_text().split("\n")[-1] == "sampling"
    assert shown(view)["state"]["kinds"] == ["sampling"]
    click("points", 0)
    assert shown(view)["state"]["module"] == "(sample)"
    click("points", 0)
    now = shown(view)
    [role] = indices(roles, lambda r: r["phase"] == DECODE and r["module"] == "(sample)")
    assert now["state"]["role"] == role
    wanted = [i for i, r in enumerate(data["launches"]["role"]) if r == role]
    assert len(wanted) == 4
    assert sorted(now["points"]) == wanted
    detail = view.locator("#detail").inner_text()
    assert roles[role]["kernel"] in detail
    assert roles[role]["advice"] in detail
    assert roles[role]["reason"] in detail
    assert view.locator("#detail tbody tr").count() == 4
    assert view.locator("#kernel-table tr.chosen").inner_text().startswith(roles[role]["label"])
    assert now["timeline"] == [r == role for r in data["phases"][DECODE]["timeline"]["role"]]
    crumbs.get_by_role("button", name="← back").click()
    assert shown(view)["state"]["role"] is None
    view.go_back()
    assert shown(view)["state"]["role"] == role
    crumbs.get_by_role("button", name="decode").click()
    assert shown(view)["state"]["module"] is None


def test_a_hover_tells_kernel_module_and_sources(visit, data, report):
    view = visit(report, part="#phase=decode&view=kernels&kinds=sampling")
    view.locator("#roofline-chart").scroll_into_view_if_needed()
    x, y = pixel(view, "points", 0)
    view.mouse.move(x - 3, y)
    view.mouse.move(x, y)
    view.locator(".tip").wait_for()
    words = view.locator(".tip").inner_text()
    [role] = [r for r in rows_of(data["roles"]) if r["phase"] == DECODE and r["kind"] == "sampling"]
    for wanted in (
        role["label"],
        role["module"],
        role["reason"],
        "(nsys)",
        "(ncu)",
        units.quantity(role["bytes"] / 4, "B", 3),
    ):
        assert wanted in words


def test_a_row_chooses_its_kernel_and_the_launches_are_its_own(visit, data, report):
    view = visit(report)
    roles = rows_of(data["roles"])
    role = next(i for i, r in enumerate(roles) if r["phase"] == DECODE and r["label"] == "mlp.down_proj mm")
    view.locator("#kernel-table").get_by_role("button", name="mlp.down_proj mm").click()
    assert shown(view)["state"]["role"] == role
    assert shown(view)["points"]
    assert {data["launches"]["role"][i] for i in shown(view)["points"]} == {role}
    launches = rows_of(data["launches"])
    slowest = max((x for x in launches if x["role"] == role), key=lambda x: x["time_ns"])
    first = view.locator("#detail .launches tbody tr").first.inner_text()
    assert time_text(slowest["time_ns"]) in first
    assert view.locator("#detail .launches tbody tr").count() == 8
    view.locator("#detail .launches button.more").click()
    assert view.locator("#detail .launches tbody tr").count() == 24


# ---- waterfall, layers, timeline ----
def test_the_waterfall_is_the_phases_and_that_of_a_chosen_part(visit, data, report):
    view = visit(report)
    phase = data["phases"][DECODE]
    wanted = [[t["words"], t["ns"]] for t in phase["waterfall"] if t["ns"] or t["term"] == "ideal_ns"]
    assert shown(view)["waterfall"] == [*wanted, ["bare wall time", phase["wall_ns"]]]
    assert any(ns < 0 for _, ns in wanted)
    view.locator("#waterfall-table summary").click()
    cells = view.locator("#waterfall-table tbody").inner_text()
    overlap = next(ns for words, ns in wanted if words == "at the same time as another")
    assert f"−{time_text(-overlap / 4)}" in cells
    parts = [p for p in rows_of(data["parts"]) if p["phase"] == "decode"]
    view.locator("#part").select_option("layer:model.layers.5")
    [layer] = [p for p in parts if p["name"] == "model.layers.5"]
    assert shown(view)["waterfall"][-1] == ["kernels and idle before", layer["total_ns"]]
    view.locator("#part").select_option("module:model.layers.*.mlp.down_proj")
    copies = [p for p in parts if p["name"].endswith("mlp.down_proj")]
    assert len(copies) == 6
    assert shown(view)["waterfall"][0] == ["the model's ideal", sum(p["ideal_ns"] for p in copies)]
    assert shown(view)["waterfall"][-1] == ["kernels and idle before", sum(p["total_ns"] for p in copies)]


def test_what_was_not_recorded_by_itself_is_no_choice_of_a_time(visit, data, write):
    """The estimate has it, its time is in another's: "0 s" would say that it took none."""
    other = copy.deepcopy(data)
    parts = other["parts"]
    gone = [i for i, row in enumerate(rows_of(parts)) if (row["name"] or "").endswith("mlp.gate_proj")]
    for i in gone:
        parts["kernels_ns"][i] -= parts["total_ns"][i]
        parts["total_ns"][i] = 0
    choices = visit(write(other)).locator("#part option").all_inner_texts()
    assert any("mlp.down_proj" in words for words in choices)
    assert not [words for words in choices if "gate_proj" in words or "0 s" in words.split(": ")[-1:]]


def test_layers_unlike_their_siblings_are_pointed_out(visit, data, report):
    view = visit(report)
    assert data["siblings"][0]["words"] in view.locator("#layers").inner_text()
    view.locator("#phases").get_by_role("button").first.click()
    assert "No layer is reported to differ" in view.locator("#layers").inner_text()


def test_gaps_are_what_no_event_covers(visit, data, report):
    view = visit(report)
    line = data["phases"][DECODE]["timeline"]
    # Brute force: every nanosecond of the step, covered or not.
    covered = bytearray(line["length_ns"])
    for start, took in zip(line["start_ns"], line["time_ns"], strict=True):
        covered[start : start + took] = b"\1" * min(took, line["length_ns"] - start)
    blank = covered.count(0)
    gaps = [len(g) for g in bytes(covered).split(b"\1") if g]
    note = view.locator("#timeline-note").inner_text()
    assert f"{time_text(line['length_ns'])} as recorded" in note
    assert (
        f"{time_text(blank)} ({text._one_digit(100 * blank / line['length_ns'])} %) without, in {len(gaps)} gaps"
        in note
    )
    view.locator("#gaps summary").click()
    assert table(view, "#gaps", 1)[:3] == [time_text(g) for g in sorted(gaps, reverse=True)[:3]]


# ---- address, keyboard, medium ----
def test_the_address_restores_what_was_looked_at(visit, report):
    first = visit(report)
    first.get_by_role("button", name="prefill", exact=True).click()
    first.locator("#filters").get_by_role("button", name="modules", exact=True).click()
    first.locator("#filters").get_by_role("button", name="projection", exact=True).click()
    first.locator("#filters").get_by_role("searchbox").fill("proj & mm?#=%")
    first.locator("#filters").get_by_role("searchbox").fill("o_proj")
    first.locator("#part").select_option("layer:model.layers.2")
    first.locator("#module-table tbody button.link").first.click()
    first.locator("#kernel-table tbody button.link").first.click()
    part = first.evaluate("location.hash")
    second = visit(report, part=part)
    assert shown(second) == shown(first)
    assert shown(second)["state"]["role"] is not None
    assert shown(second)["state"]["text"] == "o_proj"


def test_an_address_of_something_else_shows_the_report(visit, report):
    for part in ("#phase=<b>&kernel=999999&module=x&kinds=none", "#kernel=__proto__&view=constructor", "#%%%=1"):
        now = shown(visit(report, part=part))
        assert now["state"]["role"] is None
        assert now["roles"]


def test_all_can_be_done_from_the_keyboard(visit, data, report):
    view = visit(report)
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.textContent") == "Skip to the summary"
    seen, walked = set(), 0
    for _ in range(400):
        view.keyboard.press("Tab")
        walked += 1
        where = view.evaluate(
            """() => { const e = document.activeElement;
              const outline = getComputedStyle(e).outlineStyle;
              return [e.closest('section, #filters, header, nav')?.id || e.tagName, e.tagName, outline]; }"""
        )
        if where[1] == "BODY":
            break
        assert where[2] != "none", where
        seen.add(where[0])
    assert walked < 400
    assert {
        "sections",
        "summary",
        "waterfall",
        "layers",
        "filters",
        "roofline",
        "kernels",
        "modules",
        "timeline",
    } <= seen
    # A filter, a sort and a kernel by keys alone; the focus stays where one is.
    view.locator("#filters").get_by_role("button", name="head", exact=True).focus()
    view.keyboard.press("Enter")
    assert shown(view)["state"]["kinds"] == ["head"]
    assert view.evaluate("document.activeElement.textContent") == "head"
    view.keyboard.press("Space")
    assert shown(view)["state"]["kinds"] is None
    view.locator("#kernel-table th button").nth(2).focus()
    view.keyboard.press("Enter")
    assert view.locator("#kernel-table th").nth(2).get_attribute("aria-sort") == "descending"
    view.keyboard.press("Enter")
    assert view.locator("#kernel-table th").nth(2).get_attribute("aria-sort") == "ascending"
    view.locator("#kernel-table tbody button").first.focus()
    view.keyboard.press("Enter")
    assert shown(view)["state"]["role"] is not None


@pytest.mark.parametrize(
    ("scheme", "width", "part"),
    [
        ("light", 1400, ""),
        ("dark", 1400, "#phase=decode&kernel=24"),
        ("dark", 400, "#phase=prefill"),
        ("light", 400, LOOK),
    ],
)
def test_axe_finds_no_violation(visit, report, scheme, width, part):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    view = visit(report, scheme=scheme, width=width, part=part)
    assert view.evaluate("document.documentElement.dataset.theme") == scheme
    view.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    found = axe.run(view)
    assert [(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in found.response["violations"]] == []


@pytest.mark.parametrize("width", [400, 700, 1000, 1500, 2560])
def test_no_width_makes_the_page_scroll_sideways(visit, report, width):
    view = visit(report, width=width)
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("#roofline-chart", "#waterfall-chart", "#timeline-chart", "#layer-chart"):
        box = view.locator(name).bounding_box()
        assert box["width"] > 200
        assert box["x"] + box["width"] <= width


def test_the_theme_can_be_switched(visit, report):
    view = visit(report, scheme="dark")
    button = view.locator("#theme")
    assert button.inner_text() == "light page"
    before = view.evaluate("getComputedStyle(document.body).backgroundColor")
    button.click()
    assert view.evaluate("document.documentElement.dataset.theme") == "light"
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_paper_is_light_and_all_on_it_is_open(visit, report):
    view = visit(report, scheme="dark")
    view.emulate_media(media="print", color_scheme="dark")
    view.locator("html.paper").wait_for()
    assert view.evaluate("document.documentElement.dataset.theme") == "light"
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.locator("details:not([open])").count() == 0
    assert view.locator("#roofline-chart svg").count() == 1
    assert view.locator("#roofline-chart svg").bounding_box()["width"] < 1030
    for hidden in ("#filters", "nav.sections", "#theme", "button.copy"):
        assert not view.locator(hidden).first.is_visible()
    assert view.locator("#environment dl").is_visible()
    assert len(view.pdf()) > 50_000
    view.emulate_media(media="screen", color_scheme="dark")
    view.locator("html:not(.paper)").wait_for()
    assert view.evaluate("document.documentElement.dataset.theme") == "dark"
    assert view.locator("#roofline-chart canvas").count() == 1
    assert view.locator("details[open]").count() == 0


# ---- odd data ----
def test_hostile_names_are_text_everywhere(visit, data, write):
    bad = copy.deepcopy(data)
    for key in ("title", "made_by"):
        bad[key] = HOSTILE
    for name in ("subject", "environment", "commands", "files"):
        bad[name] = [[HOSTILE, HOSTILE]]
    bad["doubts"], bad["conventions"], bad["missing"] = [HOSTILE], [HOSTILE], [[HOSTILE, HOSTILE, HOSTILE]]
    bad["estimate"] = {"text": HOSTILE}
    bad["roofs"].update(name=HOSTILE, note=HOSTILE, dtype=HOSTILE)
    for roof in (*bad["roofs"]["memory"], *bad["roofs"]["compute"]):
        roof["name"] = HOSTILE
    bad["siblings"][0]["words"] = HOSTILE
    bad["roles"]["label"] = [HOSTILE] * len(bad["roles"]["label"])
    for table_ in (bad["roles"], bad["modules"], bad["launches"], bad["parts"]):
        for column in table_.values():
            if isinstance(column, dict):
                column["names"] = [f"{n}{HOSTILE}" for n in column["names"]]
    for phase in bad["phases"]:
        phase.update(verdict=HOSTILE, facts=[HOSTILE], doubts=[HOSTILE], answers=[[HOSTILE, HOSTILE]], clock=HOSTILE)
        phase["name"] += HOSTILE
        phase["timeline"].update(notes=[HOSTILE], lane=[HOSTILE] * len(phase["timeline"]["lane"]))
        for term in phase["waterfall"]:
            term["words"] = HOSTILE
        for estimate in phase["estimates"]:
            estimate["kind"] += HOSTILE
    view = visit(write(bad))
    view.locator("#kernel-table tbody button.link").first.click()
    assert view.locator("img, b:not(.tip b)").count() == 0
    view.locator("#crumbs button").nth(1).click()
    view.locator("#roofline-chart").scroll_into_view_if_needed()
    view.mouse.move(0, 0)
    for series in ("points", "marks"):
        x, y = pixel(view, series, 0)
        view.mouse.move(x - 2, y)
        view.mouse.move(x, y)
        view.locator(".tip").first.wait_for()
    assert HOSTILE.replace("\u2028", "").strip()[:40] in view.locator(".tip").first.inner_text()
    assert view.locator("img").count() == 0
    assert view.title() == HOSTILE.replace("\u2028", "\u2028")
    assert "owned" not in view.title().split("<")[0]


def test_parts_that_are_missing_are_said_to_be_missing(visit, data, write):
    bare = copy.deepcopy(data)
    bare.update(roofs=None, parts=None, estimate=None, siblings=[], doubts=[], commands=[], files=[], environment=[])
    bare["missing"] = [
        ["the waterfall", "ncu ran the kernels one at a time", "profile the model"],
        ["a timeline", "the file holds no start times", ""],
        ["roofs", "no such GPU is known", "give --gpu"],
    ]
    bare["roles"].update(
        {name: [None] * len(bare["roles"]["label"]) for name in ("recoverable_ns", "ideal_ns", "pct_of_roof")}
    )
    for phase in bare["phases"]:
        for name in ("wall_ns", "wall_low_ns", "wall_high_ns", "gap_ns", "overlap_ns", "ideal_ns", "recoverable_ns"):
            phase[name] = None
        phase.update(waterfall=None, model=None, timeline=None, estimates=[], step_ns=[], answers=[], repeats=None)
    view = visit(write(bare))
    words = view.locator("main").inner_text()
    assert "No waterfall of decode: ncu ran the kernels one at a time. Profile the model." in words
    assert "No timeline of decode: the file holds no start times." in words
    assert "No roofs: no such GPU is known. Give --gpu." in words
    assert "No estimate of the model: the data holds none." in words
    kernels = bare["phases"][DECODE]["kernel_ns"] / 4
    assert f"{time_text(kernels)} in kernels per step" in view.locator("button.phase").nth(1).inner_text()
    assert "the model's ideal is not known" in words
    assert bare["phases"][DECODE]["verdict"] in words
    assert re.search(r"\b(null|undefined|NaN|Infinity)\b", words) is None
    for hidden in ("#waterfall-chart", "#timeline-chart", "#layers", "#steps"):
        assert not view.locator(hidden).is_visible()
    assert shown(view)["points"]
    assert shown(view)["odd"] != []
    assert set(table(view, "#kernel-table", column_of(view, "#kernel-table", "recoverable"))) == {"–"}


def test_nothing_placed_and_no_roofs_leave_no_empty_chart(visit, data, write):
    bare = copy.deepcopy(data)
    bare["roofs"] = None
    for name in ("flops", "bytes", "intensity", "attained_flop_s", "attained_byte_s", "ideal_ns", "recoverable_ns"):
        bare["roles"][name] = [None] * len(bare["roles"]["label"])
    view = visit(write(bare))
    assert not view.locator("#roofline-chart").is_visible()
    assert sorted(shown(view)["unplaced"]) == sorted(shown(view)["roles"])
    assert "FLOPs or bytes not known: 22" in view.locator("#unplaced").inner_text()


def test_a_phase_may_have_roofs_of_its_own(visit, data, write, made):
    own = copy.deepcopy(data)
    own["phases"][DECODE]["roofs"] = {
        **copy.deepcopy(data["roofs"]),
        "name": "clocks of ncu",
        "memory": [{"name": "DRAM", "byte_s": 1e15}],
    }
    view = visit(write(own))
    assert "Roofs of clocks of ncu" in view.locator("#roofline-note").inner_text()
    assert view.evaluate("roofAt(0.001)") == pytest.approx(1e12)
    view.locator("#phases button").first.click()
    assert "Roofs of NVIDIA H200" in view.locator("#roofline-note").inner_text()
    assert view.evaluate("roofAt(0.001)") == pytest.approx(made.CACHE_S * 0.001)


def test_a_page_with_one_phase_and_one_step_does_without_steps(visit, data, write):
    one = copy.deepcopy(data)
    one["phases"] = one["phases"][:1]
    for table_ in (one["roles"], one["modules"]):
        keep = [i for i, p in enumerate(table_["phase"]) if p == 0]
        for name, column in table_.items():
            if isinstance(column, dict):
                column["codes"] = [column["codes"][i] for i in keep]
            else:
                table_[name] = [column[i] for i in keep]
    view = visit(write(one))
    assert shown(view)["state"]["phase"] == 0
    assert "per step" not in view.locator("main").inner_text()


# ---- size ----
def test_twenty_thousand_launches_fit_and_can_be_looked_at(visit, made, write):
    large = made.made_report(launches_of_role=455)
    assert len(large["launches"]["role"]) > 20_000
    path = write(large)
    assert path.stat().st_size < 6_000_000
    view = visit(path)
    role = shown(view)["roles"][0]
    view.evaluate("(r) => chooseRow(roles[r])", role)
    assert len(shown(view)["points"]) == 455


def test_the_chart_code_is_small_and_everything_is_inside(report):
    scripts = [f for f in WEB.glob("*.js") if not f.name.startswith("diff")]
    assert sum(f.stat().st_size for f in scripts) < 1_200_000
    words = report.read_text(encoding="utf-8")
    library = (WEB / "echarts.min.js").read_text(encoding="utf-8")
    assert library in words
    words = words.replace(library, "")
    assert re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"'](?!data:)", words) is None
    own = "".join(f.read_text(encoding="utf-8") for f in WEB.glob("*.js") if f.name != "echarts.min.js")
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in own
    assert json.loads(re.search(r'id="data">(.*?)</script>', words, re.DOTALL).group(1))["made_by"]
