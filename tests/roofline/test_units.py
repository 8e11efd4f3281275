"""Numbers for people."""

import pytest
from kernelroof.roofline.units import counted


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [(1, "kernel", "1 kernel"), (0, "row", "0 rows"), (1721, "launch", "1,721 launches"), (1, "launch", "1 launch")],
)
def test_a_number_of_things(number, noun, words):
    assert counted(number, noun) == words
