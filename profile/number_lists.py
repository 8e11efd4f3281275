"""Lists of whole numbers on the command line."""

from __future__ import annotations

from collections.abc import Callable

from kernelroof.models.errors import UsageError
from kernelroof.models.fields import MOST, shortened

MOST_NUMBERS = 1_000_000


def numbers(text: str) -> list[int]:
    """Whole numbers of a list: "1,8,32", "1:256" (powers of two), "0:100:25" (every 25th).

    Raises:
        UsageError: not such a list.
    """
    found: list[int] = []
    for part in text.split(","):
        room = MOST_NUMBERS - len(found)
        pieces = part.strip().split(":")
        try:
            values = [int(p) for p in pieces]
        except ValueError:
            values = []
        if len(values) == 1:
            found += values
        elif len(values) == 2 and 1 <= values[0] <= values[1]:
            value = values[0]
            while value <= values[1]:
                found.append(value)
                value *= 2
        elif len(values) == 3 and values[0] <= values[1] and values[2] >= 1:
            found += range(values[0], values[1] + 1, values[2])[: room + 1]
        else:
            raise UsageError(
                f"{shortened(part.strip())} is no number and no range", "Write 1,8,32 or 1:256 or 1:100:10."
            )
        if len(found) > MOST_NUMBERS:
            raise UsageError(f"{shortened(part.strip())} is too long a list", f"Give {MOST_NUMBERS:,} numbers at most.")
        if any(not 1 <= v <= MOST for v in found[MOST_NUMBERS - room :]):
            raise UsageError(
                f"{shortened(part.strip())} holds a number that is not from 1 to {MOST:,}",
                "Give whole numbers in between.",
            )
    return list(dict.fromkeys(found))


def numbers_of(option: str) -> Callable[[str], list[int]]:
    """`numbers` whose errors name the option."""

    def parse(text: str) -> list[int]:
        try:
            return numbers(text)
        except UsageError as error:
            raise UsageError(f"{option}: {error.what}", error.hint) from error

    return parse
