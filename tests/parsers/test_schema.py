"""Tables that do not fit their definition are refused by name, row and value."""

import pandas as pd
import pytest
from kernelroof.models.errors import ReportError
from kernelroof.parsers.schema import Column, conform

COLUMNS = (Column("name", "str", False, ""), Column("time_ns", "Int64", True, "", 0))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "time_ns is -1 in row 1, less than 0"),
        (0.5, "time_ns holds"),
        (1e300, "time_ns holds"),
        ("x", "time_ns holds"),
    ],
)
def test_what_a_column_can_not_hold(value, words):
    frame = pd.DataFrame({"name": ["a", "b"], "time_ns": pd.Series([1, value], dtype=object)})
    with pytest.raises(ReportError, match=words):
        conform(frame, COLUMNS, "launches")


def test_null_and_the_least_value_are_kept():
    frame = pd.DataFrame({"name": ["a", "b"], "time_ns": [0, None]})
    assert conform(frame, COLUMNS, "launches")["time_ns"].tolist() == [0, pd.NA]
