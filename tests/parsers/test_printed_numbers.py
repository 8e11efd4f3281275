"""Separators: the role of comma and dot comes from the whole file; what stays open is refused."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.parsers.ncu_errors import AmbiguousNumberError
from kernelroof.parsers.printed_numbers import C_LOCALE, MISSING, check_style, evidence, parse_cell, parse_column

SPACES = [" ", "\u00a0", "\u202f", "'", "\u2019"]


def read(cells):
    style = evidence(cells)
    check_style(style)
    return [parse_cell(c, style) for c in cells]


def grouped(number, mark):
    return f"{number:,}".replace(",", mark)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["25,170,048"], [25170048]),
        (["129,977", "5.79"], [129977, 5.79]),
        (["129,977"], [129977]),
        (["239.008"], [239.008]),
        (["239.008", "25.170048"], [239.008, 25.170048]),
        (["129,977", "5,79"], [129.977, 5.79]),
        (["1.234.567", "129.977", "5,79"], [1234567, 129977, 5.79]),
        (["4,963,609,951.19"], [4963609951.19]),
        (["4.963.609.951,19", "12.288"], [4963609951.19, 12288]),
        (["2,51,70,048"], [25170048]),
        (["25 170 048,5"], [25170048.5]),
        (["-221", "1e+06", "0.00", "+3"], [-221, 1e6, 0, 3]),
        (["1234.567", "129,977"], [1234.567, 129977]),
        (["12 (4; 4; 4)", "1,024 (512; 512)", "1,234,567"], [12, 1024, 1234567]),
    ],
)
def test_readings(cells, values):
    assert read(cells) == values


@pytest.mark.parametrize(
    "cells",
    [["129.977", "5,79"], ["129.977", "129,977"], ["129,977", "5,79", "5.79"], ["1.234.567", "5.79", "129.977"]],
)
def test_refusals(cells):
    with pytest.raises(AmbiguousNumberError, match="LC_ALL=C"):
        read(cells)


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from(SPACES))
def test_spaced_groups(numbers, mark):
    assert read([grouped(n, mark) for n in numbers]) == numbers


@given(st.lists(st.integers(10**6, 10**12), min_size=1), st.sampled_from(",."), st.integers(0, 99))
def test_groups_with_evidence(numbers, mark, cents):
    """With a group of six digits and a decimal in the file, every other number has one reading."""
    point = "." if mark == "," else ","
    cells = [grouped(n, mark) for n in numbers] + [f"7{point}{cents:02d}", grouped(12345, mark)]
    assert read(cells) == [*numbers, float(f"7.{cents:02d}"), 12345]


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_c_locale_is_never_ambiguous(value):
    assert parse_cell(repr(value), C_LOCALE) == value


@pytest.mark.parametrize("cell", [*MISSING, " n/a ", "CachePreferNone", "1_000", "0x10", "infinity"])
def test_no_number(cell):
    assert math.isnan(parse_cell(cell, C_LOCALE))


def test_column():
    values, numeric = parse_column(pd.Series(["1,024", "n/a", None, "1,024"]), evidence(["1,024"]))
    assert values.tolist()[::3] == [1024, 1024]
    assert numeric
    assert not parse_column(pd.Series(["1", "all"]), C_LOCALE)[1]
