"""How report.html looks and is used: what is cut off, what lies over what, what paper has, where one is led."""

import copy
import random
from itertools import combinations

from kernelroof.roofline import palette
from kernelroof.roofline.html import sentence
from kernelroof.roofline.steady import named_doubts

DECODE = 1


def role_of(data, phase, keep):
    columns = data["roles"]
    labels = columns["label"]
    return next(i for i in range(len(labels)) if columns["phase"][i] == phase and keep(i, columns))


def comes_into_sight(view, name):
    """Whether the top of an element is in the window, once it is done scrolling."""
    for _ in range(60):
        top = view.evaluate("(id) => document.getElementById(id).getBoundingClientRect().top", name)
        if -10 < top < 600:
            return True
        view.wait_for_timeout(50)
    return False


def state(view):
    return view.evaluate("kernelroof.shown().state")


# ---- what is cut off, what lies over what ----
def test_a_table_that_goes_on_behind_its_edge_shows_it(visit, report):
    view = visit(report, width=700)
    box = view.locator("#kernel-table .scroll")
    view.locator("#kernel-table .scroll.cut").wait_for()
    assert view.evaluate("getComputedStyle(document.querySelector('#kernel-table .scroll'), '::after').width") != "auto"
    assert box.get_attribute("tabindex") == "0"
    box.evaluate("(e) => { e.scrollLeft = e.scrollWidth; }")
    view.locator("#kernel-table .scroll:not(.cut)").wait_for()
    assert visit(report, width=1500).locator("#kernel-table .scroll.cut").count() == 0


def test_names_beside_marks_are_in_the_frame_and_over_no_other(visit, report):
    view = visit(report)
    dice = random.Random(3)
    for size in ([900, 450], [300, 280]):
        points = [{"x": dice.uniform(0, size[0]), "y": dice.uniform(0, size[1]), "size": 12} for _ in range(40)]
        names = [{**p, "words": "self_attn scaled_dot_product"[: dice.randint(5, 28)]} for p in points[:12]]
        roofs = [[0, 100, size[0] / 2, 118]]
        placed, boxes = view.evaluate(
            """([names, marks, taken, size]) => [placeNames(names, marks, taken, size).map((n) => n.side), taken]""",
            [names, points, roofs, size],
        )
        assert len(placed) + 1 == len(boxes) > 4
        for left, top, right, bottom in boxes:
            assert left >= 0
            assert top >= 0
            assert right <= size[0]
            assert bottom <= size[1]
        for a, b in combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_names_break_behind_their_separators(visit, report):
    view = visit(report)
    parts = view.evaluate("breakable('self_attn graph_1_cpp::add').map((p) => p.nodeName ?? p)")
    assert parts == ["self_", "WBR", "attn graph_", "WBR", "1_", "WBR", "cpp::", "WBR", "add"]


def test_colours_are_those_of_the_theme(visit, report):
    view = visit(report, scheme="dark")
    dots = "[...document.querySelectorAll('#filters .dot')].map((d) => d.getAttribute('style').slice(11))"
    assert palette.KINDS_ON_DARK["sampling"] in view.evaluate(dots)
    view.locator("#theme").click()
    assert palette.KINDS["sampling"] in view.evaluate(dots)
    assert view.evaluate("kindEdge('embedding')") == palette.kind_edge("embedding")


# ---- paper ----
def test_paper_has_every_phase_and_no_hints_for_hands(visit, data, report):
    view = visit(report)
    hints = ("click one", "Drag the handles", "Choose a kernel")
    chart_words = "JSON.stringify(layers.chart.instance.getOption().xAxis)"
    words = view.locator("main").inner_text() + view.evaluate(chart_words)
    assert all(hint in words for hint in hints)
    assert data["phases"][0]["answers"][1][1] not in words
    view.emulate_media(media="print")
    view.locator("html.paper").wait_for()
    words = view.locator("main").inner_text() + view.evaluate(chart_words)
    assert not any(hint in words for hint in hints)
    for phase in data["phases"]:
        assert all(answer in words for _, answer in phase["answers"])
    assert "All that follows is of decode" in words
    assert "decode: clocks were not locked" in words
    heads = view.locator("#kernel-table th").all_inner_texts()
    assert heads[:3] == ["kernel", "kind", "time per step"]
    assert not view.locator("#kernel-table th button").first.is_visible()


# ---- where one is led ----
def test_an_address_of_a_kernel_leads_to_it(visit, data, report):
    role = role_of(data, DECODE, lambda i, c: c["flops"][i])
    view = visit(report, part=f"#phase=decode&kernel={role}")
    assert comes_into_sight(view, "roofline")
    narrow = visit(report, part=f"#phase=decode&kernel={role}", width=420)
    assert comes_into_sight(narrow, "detail")


def test_a_click_on_the_timeline_leads_to_what_it_chose(visit, report):
    view = visit(report)
    view.locator("#timeline-chart").scroll_into_view_if_needed()
    at = view.evaluate(
        """() => { const r = line.rows.reduce((a, b) => (b.ns > a.ns ? b : a)), scale = scaleOf(line.length)[0];
          const middle = [(r.start + r.ns / 2) / scale, r.lane];
          return line.chart.instance.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, middle); }"""
    )
    box = view.locator("#timeline-chart").bounding_box()
    view.mouse.click(box["x"] + at[0], box["y"] + at[1])
    assert comes_into_sight(view, "roofline")
    assert state(view)["role"] is not None
    view.keyboard.press("Escape")
    assert (state(view)["module"], state(view)["role"]) == (None, None)


def test_filters_show_the_module_and_what_a_mark_is(visit, data, report):
    view = visit(report, part="#phase=decode&module=lm_head")
    pressed = view.locator("#filters [aria-label=points] [aria-pressed=true]")
    assert pressed.all_inner_texts() == ["kernels"]
    assert view.locator("#filters select").evaluate("(e) => e.value") == "lm_head"
    view.locator("#kernel-table tbody button.link").first.click()
    assert pressed.all_inner_texts() == ["launches"]


def test_what_matches_nothing_says_so_and_can_be_cleared(visit, report):
    view = visit(report)
    view.get_by_role("searchbox").fill("no such kernel")
    assert view.locator("#detail").inner_text().startswith("Nothing matches")
    view.locator("#detail button").click()
    assert state(view)["text"] == ""
    assert view.evaluate("kernelroof.shown().roles.length") == 22


def test_a_kernel_without_flops_says_why_it_has_no_mark(visit, data, report):
    role = role_of(data, DECODE, lambda i, c: c["flops"][i] == 0 and c["bytes"][i] > 0)
    view = visit(report, part=f"#phase=decode&kernel={role}")
    note = view.locator("#roofline-note").inner_text()
    rate, share = view.evaluate(f"[byteRate(roles[{role}].attained_byte_s), percent(roles[{role}].pct_of_roof)]")
    assert f"No FLOPs: only its bytes/s count, {rate}, {share} of the DRAM roof." in note


def test_how_kernels_are_sorted_is_in_the_address(visit, report):
    first = visit(report)
    first.locator("#kernel-table th button").nth(9).click()
    rows = first.locator("#kernel-table tbody").inner_text()
    second = visit(report, part=first.evaluate("location.hash"))
    assert second.locator("#kernel-table tbody").inner_text() == rows
    assert second.locator("#kernel-table th").nth(9).get_attribute("aria-sort") == "descending"


def test_roofs_are_named_once(visit, data, write):
    own = copy.deepcopy(data)
    own["roofs"]["note"] = "2 threads, NVIDIA H200"
    note = visit(write(own)).locator("#roofline-note").inner_text()
    assert "Roofs: 2 threads, NVIDIA H200." in note
    assert "shape: bound (" in note


# ---- doubts ----
def test_a_doubt_names_its_phase_unless_all_have_it() -> None:
    said = named_doubts({"prefill": ["busy?", "roofs low"], "decode": ["roofs low", "clocks"]})
    assert said == ["prefill: busy?", "roofs low", "decode: clocks"]
    assert named_doubts({"decode": ["busy?"]}) == ["busy?"]
    assert named_doubts({}) == []


def test_a_sentence_begins_large_unless_it_is_a_command() -> None:
    assert [sentence(w) for w in ("give --gpu", "kernelroof doctor", "Why?", "")] == [
        "Give --gpu.",
        "kernelroof doctor.",
        "Why?",
        ".",
    ]
