"""Names from outside: control characters become visible escapes, all else stays."""

import pandas as pd
import pytest
from kernelroof.parsers.plain import plain, plain_texts


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("void gemm<float, 8>(T*) [clone .1]", "void gemm<float, 8>(T*) [clone .1]"),
        ("日本 🔥 é", "日本 🔥 é"),
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("two\r\nlines\tand\x00nul\x9b", r"two\x0d\x0alines\x09and\x00nul\x9b"),
        ("abc\u202eevil\u2066", r"abc\u202eevil\u2066"),
        ("half \udcff", r"half \udcff"),
    ],
)
def test_only_control_characters_are_escaped(name, shown):
    assert plain(name) == shown


def test_a_column_keeps_its_type_and_its_gaps():
    names = pd.Series(["mm", None, "a\x1bb"], dtype="string")
    out = plain_texts(names)
    assert out.dtype == names.dtype
    assert out.tolist()[::2] == ["mm", r"a\x1bb"]
    assert out.isna().tolist() == [False, True, False]
    untouched = names.iloc[:1]
    assert plain_texts(untouched) is untouched
