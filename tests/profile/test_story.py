"""The lines of a run's story on what to do."""

import pandas as pd
from kernelroof.profile.story import to_do


def table(*recoverable):
    labels = [f"k{i}" for i in range(len(recoverable))]
    return pd.DataFrame({"label": labels, "advice": [f"do {x}" for x in labels], "recoverable_ns": recoverable})


def test_the_first_three_with_something_to_recover_and_the_odd_layers():
    lines = to_do(table(5.0, 4.0, 3.0, 2.0), ["a is slow", "b is slow", "c is slow", "d is slow"])
    assert lines == [
        "what to do:",
        *("1. k0: do k0", "2. k1: do k1", "3. k2: do k2"),
        *("! a is slow", "! b is slow", "! c is slow", "! and 1 other layer"),
    ]


def test_advice_on_doubtful_figures_begins_with_that():
    lines = to_do(table(5.0), [], ["NOT STEADY: scaled by 1.3; a busy machine"])
    first = "1. first run again on a quiet machine, the figures are in doubt (NOT STEADY)"
    assert lines == ["what to do:", first, "2. k0: do k0"]
    assert to_do(table(0.0), [], ["NOT STEADY: a busy machine"]) == []


def test_advice_wraps_under_itself_and_lines_end_with_a_letter(capsys, monkeypatch):
    from kernelroof.profile import story
    from kernelroof.roofline.text import new_console, wrapped

    monkeypatch.setenv("COLUMNS", "40")
    for line in story.to_do(table(5.0), ["one layer is slower than its siblings are"]):
        wrapped(new_console(), line * 2, indent="" if line == story.WHAT_TO_DO else "  ")
    lines = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    assert any(line.startswith("    ") for line in lines[1:])


def test_nothing_to_recover_is_no_line():
    assert to_do(table(0.0, None), []) == []
