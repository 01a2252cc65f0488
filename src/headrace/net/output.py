"""What a connection has to send: small parts are sent together, large ones as they are, in as few calls as possible."""

import asyncio
import os
from collections.abc import Iterator

from headrace.model import Buffer

JOIN_BYTES_MAX = 32 << 10
"""Parts up to this size are copied together, since a system call costs more; larger ones are written as they are."""

IOV_MAX = 1024
"""Parts that one system call takes."""


class Output:
    """Parts in the order in which they leave. `socket_fd` is that of a plain socket, or -1 where there is none."""

    __slots__ = ("_parts", "_sent_of_first", "socket_fd", "unsent_bytes")

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self._sent_of_first = 0  # bytes; they stay in memory for as long as the rest of their part
        self.unsent_bytes = 0  # that the transport was not given yet
        self.socket_fd = -1

    def add(self, parts: list[Buffer]) -> None:
        self._parts += parts
        size = self.unsent_bytes
        for part in parts:
            size += len(part)
        self.unsent_bytes = size

    @property
    def held_bytes(self) -> int:
        """What is kept in memory for what is unsent."""
        return self.unsent_bytes + self._sent_of_first

    def clear(self) -> None:
        self._parts.clear()
        self.unsent_bytes = self._sent_of_first = 0

    def give_to(self, transport: asyncio.Transport) -> None:
        """All of it."""
        parts, self._parts = self._parts, []
        size, self.unsent_bytes, self._sent_of_first = self.unsent_bytes, 0, 0
        if len(parts) == 1:
            transport.write(parts[0])
        elif size <= JOIN_BYTES_MAX:
            transport.write(b"".join(parts))
        else:
            self._give_large(transport, parts)

    def is_sliceable(self, transport: asyncio.Transport) -> bool:
        """Where the socket can be used directly, and nothing is before what is here."""
        return self.socket_fd >= 0 and not transport.get_write_buffer_size()

    def give_slice(self, transport: asyncio.Transport, size: int) -> bool:
        """About so many bytes, straight to the socket. False if it is full: then the transport has what it did not
        take of them, says when that is gone, and is given nothing of the rest before."""
        if transport.get_write_buffer_size():
            return False
        parts, rest, of_first = _split(self._parts, size)
        given = sum(map(len, parts))
        self._sent_of_first = of_first + self._sent_of_first if of_first == given else of_first
        try:
            written = os.writev(self.socket_fd, parts)
        except OSError:
            written = 0  # full, or broken: then the transport finds out
        self._parts = rest
        self.unsent_bytes -= given
        for part in _without_first(parts, written):
            transport.write(part)
        return not transport.get_write_buffer_size()  # it may have found room after all, and would never say so

    def _give_large(self, transport: asyncio.Transport, parts: list[Buffer]) -> None:
        """Straight to the socket where there is one: one call, and nothing is copied that the socket takes."""
        if self.is_sliceable(transport):
            try:
                written = os.writev(self.socket_fd, parts[:IOV_MAX])
            except OSError:
                written = 0  # full, or broken: then the transport finds out
            parts = _without_first(parts, written)
        for part in _join_small(parts):
            transport.write(part)


def _split(parts: list[Buffer], size: int) -> tuple[list[Buffer], list[Buffer], int]:
    """The first `size` bytes, if one call takes as many parts, what is behind them, and how many of the former belong
    to the part that the latter begins with."""
    for index, part in enumerate(parts):
        if index == IOV_MAX:
            return parts[:index], parts[index:], 0
        if size < len(part):
            if not size:
                return parts[:index], parts[index:], 0
            view = memoryview(part)
            return [*parts[:index], view[:size]], [view[size:], *parts[index + 1 :]], size
        size -= len(part)
    return parts, [], 0


def _without_first(parts: list[Buffer], count: int) -> list[Buffer]:
    for index, part in enumerate(parts):
        if count < len(part):
            return [memoryview(part)[count:], *parts[index + 1 :]] if count else parts[index:]
        count -= len(part)
    return []


def _join_small(parts: list[Buffer]) -> Iterator[Buffer]:
    """Runs of small parts as one each, large ones untouched."""
    run: list[Buffer] = []
    for part in parts:
        if len(part) <= JOIN_BYTES_MAX:
            run.append(part)
            continue
        if run:
            yield b"".join(run)
            run = []
        yield part
    if run:
        yield b"".join(run)
