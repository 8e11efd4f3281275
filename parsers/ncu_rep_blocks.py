"""Whether a `.ncu-rep` file is whole, told from its own block lengths.

NVIDIA's reader gives the kernels before a cut and says nothing of the rest. A file is a magic, a header and
blocks; each is a 32-bit length, a protobuf message of that length and, where it says so, a payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_PAYLOAD_SIZE = 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def is_cut(path: Path) -> bool:
    """Whether the file ends inside its header or inside a block; a message that makes no sense counts as one."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(4)
        end = 4 + _length(file) + 4
        while end < size:
            file.seek(end)
            length = _length(file)
            start = end + 4
            if not length or start + length > size:
                return True
            end = start + length + _payload(file.read(length))
        return end != size


def _length(file: BinaryIO) -> int:
    """The 32-bit length that comes next; 0 where the file ends in it."""
    data = file.read(4)
    return int(struct.unpack("<I", data)[0]) if len(data) == 4 else 0


def _payload(message: bytes) -> int:
    """The payload's size as a block's message gives it."""
    return next((value for number, value in _integers(message) if number == _PAYLOAD_SIZE), 0)


def _integers(message: bytes) -> Iterator[tuple[int, int]]:
    """Numbers and values of a message's integer fields; ends at what is no field."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == _BYTES:
            length, at = _varint(message, at)
            at += length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, seven bits a byte, and where it ends."""
    value = shift = 0
    for index in range(at, len(message)):
        value |= (message[index] & 0x7F) << shift
        shift += 7
        at = index + 1
        if message[index] < 0x80:
            break
    return value, at
