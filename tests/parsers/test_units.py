"""Units as printed by any version, brought to base units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelroof.parsers.printed_numbers import scaled
from kernelroof.parsers.units import base_unit


@pytest.mark.parametrize(
    ("printed", "factor", "name"),
    [
        ("byte", 1, "byte"), ("Kbyte", 1e3, "byte"), ("Mbyte", 1e6, "byte"), ("Gbyte", 1e9, "byte"),
        ("Tbyte", 1e12, "byte"), ("ns", 1, "ns"), ("nsecond", 1, "ns"), ("us", 1e3, "ns"), ("usecond", 1e3, "ns"),
        ("ms", 1e6, "ns"), ("msecond", 1e6, "ns"), ("s", 1e9, "ns"), ("second", 1e9, "ns"),
        ("hz", 1, "hz"), ("Khz", 1e3, "hz"), ("Mhz", 1e6, "hz"), ("Ghz", 1e9, "hz"),
        ("cycle/second", 1, "hz"), ("cycle/nsecond", 1e9, "hz"), ("cycle/us", 1e6, "hz"),
        ("byte/second", 1, "byte/s"), ("Gbyte/second", 1e9, "byte/s"), ("Gbyte/s", 1e9, "byte/s"),
        ("Tbyte/s", 1e12, "byte/s"), ("Kbyte/cycle", 1e3, "byte/cycle"), ("Kbyte/block", 1e3, "byte/block"),
        ("1/ns", 1e9, "1/s"), ("sector/ms", 1e3, "sector/s"), ("sectors", 1, "sector"), ("%", 1, "%"), ("", 1, ""),
        ("register/thread", 1, "register/thread"), ("furlong", 1, "furlong"), ("%/Kbyte", 1e-3, "%/byte"),
    ],
)  # fmt: skip
def test_base_units(printed, factor, name):
    assert base_unit(printed) == (pytest.approx(factor, rel=1e-15), name)


@given(st.integers(0, 10**12), st.sampled_from([("Kbyte", 3), ("Mbyte", 6), ("Gbyte", 9)]))
def test_a_whole_count_survives_its_scaling(count, unit):
    """A count printed with all its decimals comes back exactly."""
    name, places = unit
    text = f"{count // 10**places}.{count % 10**places:0{places}d}"
    assert scaled(np.array([float(text)]), base_unit(name).factor)[0] == count
