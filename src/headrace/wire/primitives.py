"""Varints and integer arrays, as the generated codecs call them."""

import functools
import struct
from typing import Any, Final

from headrace.wire.struct import ProtocolError


def uvarint_tail(buf: Any, pos: int, first: int) -> tuple[int, int]:
    """The value of an unsigned varint whose first byte, already read, asks for more, and where it ends."""
    byte = buf[pos]
    value = first & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, pos + 1
    byte = buf[pos + 1]
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, pos + 2
    byte = buf[pos + 2]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, pos + 3
    byte = buf[pos + 3]
    if byte > 7:
        raise ProtocolError("a varint is too long")
    return value | byte << 28, pos + 4


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Uvarints(dict[int, bytes]):
    """Small values are looked up, others computed and not kept."""

    def __missing__(self, value: int) -> bytes:
        return uvarint(value)


UVARINTS: Final = _Uvarints((value, uvarint(value)) for value in range(2048))


class _Repeated(dict[int, struct.Struct]):
    """How many items -> how to pack them behind `head`. Short arrays are looked up, long ones not kept."""

    def __init__(self, head: str, item: str) -> None:
        self.head = head
        self.item = item
        super().__init__((count, self._of(count)) for count in range(16))

    def __missing__(self, count: int) -> struct.Struct:
        return self._of(count)

    def _of(self, count: int) -> struct.Struct:
        return struct.Struct(f">{self.head}{count}{self.item}")


@functools.cache
def repeated(head: str, item: str) -> _Repeated:
    return _Repeated(head, item)


def skip_tags(buf: Any, pos: int, count: int) -> int:
    """Walks over `count` tagged fields that nobody here knows; says where they end."""
    if count > 127:
        count, pos = uvarint_tail(buf, pos, count)
    for _ in range(count):
        if buf[pos] > 127:
            _tag, pos = uvarint_tail(buf, pos + 1, buf[pos])
        else:
            pos += 1
        size = buf[pos]
        pos += 1
        if size > 127:
            size, pos = uvarint_tail(buf, pos, size)
        pos += size
    return pos
