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


def test_nothing_to_recover_is_no_line():
    assert to_do(table(0.0, None), []) == []
