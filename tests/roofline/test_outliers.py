"""A role whose time is that of a few launches, or of one recording, is told from one that is slow throughout."""

import pandas as pd
import pytest
from kernelroof.roofline.outliers import outlier

ROW = {"recordings": 1, "step_median_ns": None}


def launches(*times, step=0):
    rows = [{"module": f"model.layers.{i}", "step": step, "count": 1, "time_ns": t} for i, t in enumerate(times)]
    return pd.DataFrame(rows).astype({"time_ns": "Int64", "step": "Int64"})


def test_one_launch_of_many_is_named():
    words = outlier(ROW, launches(*[1_000_000] * 95, 150_000_000), 1)
    assert words is not None
    assert words.startswith("1 of its 96 launches took most of its time: the longest 150 ms (model.layers.95, step 0)")
    assert "the median 1.00 ms" in words


@pytest.mark.parametrize(
    "times",
    [
        [1_000_000] * 96,
        [1_000_000] * 95 + [50_000_000],  # much, but the rest is more
        [1_000_000] * 4 + [9_000_000] * 3,  # not few: they are of another kind
        [5_000_000],
    ],
)
def test_what_is_slow_throughout_is_none(times):
    assert outlier(ROW, launches(*times), 1) is None


def test_a_recording_unlike_the_others_is_said():
    row = {"recordings": 3, "step_median_ns": 4e6}
    words = outlier(row, launches(5_000_000, 5_000_000), 1)
    assert words is not None
    assert "it took 10.0 ms in the recording shown, and 4.00 ms in the median of 3 recordings" in words
    two = outlier(row, launches(10_000_000, 10_000_000), 2)
    assert two is not None
    assert "it took 10.0 ms a step in the recording shown" in two
    assert outlier({**row, "step_median_ns": 6e6}, launches(5_000_000, 5_000_000), 1) is None
    assert outlier({**row, "recordings": 1}, launches(5_000_000, 5_000_000), 1) is None
    assert outlier({"recordings": pd.NA, "step_median_ns": float("nan")}, launches(5_000_000), 1) is None
