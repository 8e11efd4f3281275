"""Text that came from outside, made safe to show: control characters become visible escapes.

A name may hold terminal escapes, line breaks or marks that turn the direction of text. None of them is part of what
anybody calls a kernel or a module; shown as they are, they would rewrite the terminal or the page around them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line and paragraph separators, marks of direction, halves of surrogate pairs."""


def plain(text: str) -> str:
    """The text with each control character written as an escape, such as \\x1b."""
    return _UNSEEN.sub(lambda found: _escaped(found.group()), text)


def plain_texts(values: pd.Series[str]) -> pd.Series[str]:
    """A column of texts with `plain` names; the very same column where there is nothing to write otherwise."""
    odd = {name: plain(name) for name in values.dropna().unique() if _UNSEEN.search(name)}
    return values.replace(odd) if odd else values


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
