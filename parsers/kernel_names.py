"""Demangled kernel names: shortened for people, and normalised to join one profiler with another.

Nsight Compute drops namespaces and prints `4` where nsys keeps them and prints `(int)4`; CUDA versions
differ on `const float *` and `float const*`, on spaces, and on how they write lambdas and unnamed namespaces.
"""

from __future__ import annotations

import re
from functools import lru_cache

_CAST = re.compile(r"\((?:(?:un)?signed |long |short |enum )*[A-Za-z_][\w:<>, ]*\)(?=-?[\w.])")
_SUFFIX = re.compile(r"(?<=\d)(?:ull|ul|ll|u|l)\b", re.I)
_LAMBDA = re.compile(r"\[(lambda\(.*?\)) \(instance (\d+)\)\]|\{(lambda\([^{}]*\))#(\d+)\}")
_ANONYMOUS = re.compile(r"(?:\(anonymous(?: namespace)?\)|<unnamed>|\{anonymous\}|<?unnamed>)::")
_QUALIFIER = re.compile(r"(?:\b[A-Za-z_]\w*|\]|\})::(?=[A-Za-z_~\[{(])")
_WORDS = {"true": "1", "false": "0"}
_TRUTH = re.compile(r"\b(?:true|false)\b")
_CONST = re.compile(r"\bconst\b")
_SPACE = re.compile(r"\s+")
_GENERIC = re.compile(r"(?:kernel\d*|device_kernel|Kernel\d*|execute_kernel|.*elementwise_kernel.*|reduce_kernel)$")
_FUNCTORS = ("ReduceOp", "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor")
_WRAPPER = re.compile(r"\b(gpu_(?:index_)?kernel(?:_impl)?(?:_nocast)?)<")
_OWNER = re.compile(r"([A-Za-z_]\w*)(?:<[^()]*>)?\([^()]*\)::[\[{]lambda")
_BORING = re.compile(
    r"(?:\(.*\))?-?\d+\w*|(?:un)?signed(?: \w+)*|int|long(?: \w+)*|bool|char|float|double|__half|half|__nv_bfloat16|"
    r"BFloat16|Half|T\d+|void|true|false|std::.*|array<.*|TrivialOffsetCalculator.*|.*OffsetCalculator.*"
)


@lru_cache(maxsize=65536)
def normalise(name: str) -> str:
    """A key that is the same for one kernel in ncu, nsys and Kineto; not meant to be read.

    Casts (`(int)7`), number suffixes, namespaces, `const`, spaces and the spelling of lambdas go;
    template arguments and parameter types stay, so overloads remain apart.
    """
    text = _LAMBDA.sub(lambda m: f"lambda#{m[2] or m[4]}", name.strip())
    text = _ANONYMOUS.sub("", text)
    text = _CAST.sub("", text)
    text = _TRUTH.sub(lambda m: _WORDS[m[0]], text)
    text = _SUFFIX.sub("", text)
    text = _CONST.sub("", text)
    text = text.replace("unsigned int", "unsigned").replace("long int", "long")
    before = ""
    while before != text:
        before, text = text, _QUALIFIER.sub("", text)
    text = _SPACE.sub("", text)
    return text.removeprefix("void")


@lru_cache(maxsize=65536)
def function_name(name: str) -> str:
    """The bare function, without return type, namespaces, template arguments and parameters."""
    head = _ANONYMOUS.sub("", _without_parameters(name.strip()))
    base, _ = _split_template(head)
    base = base.split("::")[-1] if "::" in base else base
    return base.split(" ")[-1].strip("*& ") or name.strip()


@lru_cache(maxsize=65536)
def shorten(name: str, width: int = 60) -> str:
    """A name for people: the function, and where that says nothing, the template argument that does.

    Args:
        name: demangled name.
        width: longest answer; longer ones lose their middle (tile sizes stand at the end).
    """
    base = function_name(name)
    if _GENERIC.match(base):
        argument = _telling_argument(_ANONYMOUS.sub("", _without_parameters(name.strip())))
        if argument.startswith("cutlass"):
            base = argument
        elif argument:
            base = f"{base}<{argument}>"
    return cut(base, width)


def cut(words: str, width: int) -> str:
    """Words of at most `width` letters, with one gap: one that is there already grows, and keeps its right side."""
    if len(words) <= width:
        return words
    left, gap, right = words.partition("…")
    tail = min(len(right), width // 2) if gap else width // 3
    return f"{left[: width - 1 - tail]}…{words[len(words) - tail :]}"


def _without_parameters(name: str) -> str:
    """The name up to the parameter list that closes it."""
    text = re.sub(r"\s*\[clone [^\]]*\]$", "", name)
    if not text.endswith(")"):
        return text
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[at], 0)
        if depth == 0:
            return text[:at] if at else text
    return text


def _split_template(name: str) -> tuple[str, str]:
    """The name before its last top-level `<...>`, and what is inside it; return types fall away."""
    text = name.rstrip()
    inside = ""
    if text.endswith(">"):
        depth = 0
        for at in range(len(text) - 1, -1, -1):
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                text, inside = text[:at], text[at + 1 : -1]
                break
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += {">": 1, ")": 1, "]": 1, "<": -1, "(": -1, "[": -1}.get(text[at], 0)
        if text[at] == " " and depth == 0 and not text[:at].endswith("operator"):
            return text[at + 1 :], inside
    return text, inside


def _arguments(inside: str) -> list[str]:
    out, depth, begin = [], 0, 0
    for at, char in enumerate(inside):
        depth += {"<": 1, "(": 1, "[": 1, "{": 1, ">": -1, ")": -1, "]": -1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            out.append(inside[begin:at].strip())
            begin = at + 1
    return [*out, inside[begin:].strip()]


def _telling_argument(head: str) -> str:
    """The template argument that says what a generic kernel does."""
    _, inside = _split_template(head)
    for argument in _arguments(inside) if inside else []:
        plain = argument.removeprefix("void ")
        if _is_boring(plain):
            continue
        wrapped = _WRAPPER.search(plain)
        if wrapped:
            return _telling_argument(f"kernel<{_inside(plain[wrapped.end() :])}>") or wrapped[1]
        owner = _OWNER.search(plain)
        if owner:
            return owner[1]
        base, deeper = _split_template(plain)
        short = base.split("::")[-1]
        if short in _FUNCTORS and deeper:
            functors = [a for a in _arguments(deeper) if "<" in a and not _is_boring(a)]
            short = _split_template(functors[-1])[0].split("::")[-1] if functors else short
        return short
    return ""


def _is_boring(argument: str) -> bool:
    return bool(_BORING.fullmatch(argument) or _BORING.fullmatch(argument.split("::")[-1]))


def _inside(text: str) -> str:
    """What stands before the `>` that closes an already opened `<`."""
    depth = 1
    for at, char in enumerate(text):
        depth += {"<": 1, ">": -1}.get(char, 0)
        if depth == 0:
            return text[:at]
    return text
