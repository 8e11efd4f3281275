"""Tables stay within a terminal's width by shortening names, and nothing else."""

from kernelroof.roofline.text_table import WIDTH, text_table


def test_long_names_lose_their_beginning():
    rows = [["a-vendor--A-Model-Of-A-Very-Long-Name-30B-A3B", "rtx-pro-6000-workstation", "1" * 40, "2" * 20]]
    lines = text_table(["model", "gpu", "x", "y"], rows, left=(0, 1), names=(0, 1)).splitlines()
    assert [len(line) for line in lines[1:]] == [WIDTH, WIDTH]
    assert lines[2].startswith("…")
    assert "30B-A3B" in lines[2]
    assert lines[2].split()[1:] == ["rtx-pro-6000-workstation", "1" * 40, "2" * 20]


def test_what_fits_and_what_is_no_name_stay_whole():
    rows = [["short", "9" * 120]]
    assert text_table(["model", "x"], rows, left=(0,), names=(0,)).splitlines()[2] == f"short  {'9' * 120}"
    assert "…" not in text_table(["model", "x"], [["m" * 60, "1"]], left=(0,), names=(0,))
