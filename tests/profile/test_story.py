"""The lines of a run's story on what to do."""

from kernelroof.profile.story import to_do


def test_what_to_do_and_the_odd_layers():
    lines = to_do(["1. do this.", "2. do that."], ["a is slow", "b is slow", "c is slow", "d is slow"])
    assert lines == [
        *("what to do:", "1. do this.", "2. do that."),
        *("! a is slow", "! b is slow", "! c is slow", "! and 1 other layer"),
    ]


def test_advice_wraps_under_itself_and_lines_end_with_a_letter(capsys, monkeypatch):
    from kernelroof.profile import story
    from kernelroof.roofline.text import new_console, wrapped

    monkeypatch.setenv("COLUMNS", "40")
    for line in story.to_do(["1. do this and do that"], ["one layer is slower than its siblings are"]):
        wrapped(new_console(), line * 2, indent="" if line == story.WHAT_TO_DO else "  ")
    lines = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    assert any(line.startswith("    ") for line in lines[1:])
