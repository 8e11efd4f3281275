"""Sets of modules given by name, as the lists in checkpoints give them: exact names, parts of names, globs, regexes.

Names inside a checkpoint have a prefix that differs between families and wrappers (`model.`,
`model.language_model.`); here a module of a layer is `layers.3.mlp.down_proj`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

_PREFIXES = ("model.", "", "model.language_model.", "language_model.model.", "backbone.")
_IN_LAYER = r"(?:\w+\.)*?(layers\.\d+(?:\.[\w-]+)*)"
_PLAIN_NAME = r"[\w.-]+"


class Modules(NamedTuple):
    """names: modules whose whole subtree is meant; regexes: matched from the start of a full name."""

    names: frozenset[str] = frozenset()
    regexes: tuple[str, ...] = ()

    def holds(self, path: str) -> bool:
        """Whether the module at `path`, without the model's prefix, is in the set."""
        if self.names:
            end = len(path)
            while end > 0:
                if path[:end] in self.names:
                    return True
                end = path.rfind(".", 0, end)
        if not self.regexes:
            return False
        patterns = _compiled(self.regexes)
        return any(pattern.match(name) for name in _full_names(path) for pattern in patterns)


def listed(names: Iterable[object]) -> Modules:
    """Modules of lists such as modules_to_not_convert: a name, a part of one (`mlp.gate`), or a regex from its start.

    A part matches whole dotted components: `gate` is not `gate_proj`.
    """
    exact, regexes = set(), []
    for item in names:
        name = str(item)
        inside = re.fullmatch(_IN_LAYER, name)
        if inside:
            exact.add(inside[1])
        elif re.fullmatch(_PLAIN_NAME, name):
            regexes.append(rf"(?:.*\.)?{re.escape(name)}(?:\..*)?$")
        else:
            regexes.append(_checked(name, rf"(?:{name})(?:(?<=\.)|(?=\.|$))"))
    return Modules(frozenset(exact), tuple(regexes))


def globbed(patterns: Iterable[object]) -> Modules:
    """Modules of modelopt's exclude_modules: shell patterns, or names whose subtree is meant."""
    plain, regexes = [], []
    for item in patterns:
        text = str(item)
        if re.fullmatch(_PLAIN_NAME, text):
            plain.append(text)
        else:
            translated = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in text)
            regexes.append(rf"{translated}(?:\..*)?$")
    names = listed(plain)
    return Modules(names.names, names.regexes + tuple(regexes))


def targeted(targets: Iterable[object]) -> Modules:
    """Modules of compressed-tensors' `ignore` and `targets`: names, or `re:` and a regex from their start."""
    plain, regexes = [], []
    for item in targets:
        text = str(item)
        if text.startswith("re:"):
            regexes.append(_checked(text, text[3:]))
        else:
            plain.append(text)
    names = listed(plain)
    return Modules(names.names, names.regexes + tuple(regexes))


def matching(regexes: Iterable[str]) -> Modules:
    """Modules whose full name matches a regex from its start."""
    return Modules(regexes=tuple(_checked(r, r) for r in regexes))


def _checked(shown: str, regex: str) -> str:
    try:
        re.compile(regex)
    except re.error as error:
        raise ValueError(f"{shown!r} is no regular expression ({error})") from None
    return regex


@functools.lru_cache(maxsize=256)
def _compiled(regexes: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    # Each by itself: flags at its start, names and numbers of its groups would clash in one joined pattern.
    return tuple(re.compile(r) for r in regexes)


def _full_names(path: str) -> Iterable[str]:
    paths = [path]
    if ".experts." in path:  # checkpoints may number what is one module here
        paths.append(path.replace(".experts.", ".experts.0."))
    return (prefix + p for p in paths for prefix in _PREFIXES)
