"""Large answers leave in slices while others ask for something, and at once while nobody does."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast
from unittest.mock import patch

from headrace.net.connection import Connection
from headrace.net.limits import Limits
from headrace.net.output import Output
from headrace.net.slices import (
    BUSY_REQUESTS,
    BUSY_S,
    PACED_SLICE_BYTES,
    PAUSE_S,
    QUIET_S,
    QUIET_SLICES,
    SLICE_BYTES,
    Slices,
    SliceSize,
)
from headrace.net.slicing import Slicing
from tests.net.loops import on_both_loops, until
from tests.net.serving import Server, echo, framed, serving

LARGE = bytes(range(256)) * (8 << 12)  # 8 MiB


class Loop:
    """Turns when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[object], None], object]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, delay_s: float, call: Callable[[object], None], about: object) -> object:
        self.later.append((delay_s, call, about))
        return call

    def turn(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()


class Sender:
    def __init__(self) -> None:
        self.sent = 0

    def send_slice(self) -> None:
        self.sent += 1


def made() -> tuple[Loop, Slices]:
    loop = Loop()
    return loop, Slices(cast(asyncio.AbstractEventLoop, loop))


def test_one_sends_in_each_turn() -> None:
    loop, slices = made()
    senders = [Sender() for _ in range(3)]
    for sender in senders:
        slices.later(sender)
    sent = []
    for _ in range(4):
        loop.turn()
        sent.append([sender.sent for sender in senders])
    assert sent == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]


def test_what_is_in_no_hurry_waits_between_slices_and_one_sends_in_each_turn_then() -> None:
    loop, slices = made()
    senders = [Sender(), Sender()]
    for sender, size in zip(senders, (8 * PACED_SLICE_BYTES, PACED_SLICE_BYTES // 4), strict=True):
        slices.after_pause(sender, size)
    assert [delay_s for delay_s, _, _ in loop.later] == [PAUSE_S, PAUSE_S / 4] and not loop.soon
    for _, call, about in loop.later:
        call(about)
    sent = []
    for _ in range(3):
        loop.turn()
        sent.append([sender.sent for sender in senders])
    assert sent == [[1, 0], [1, 1], [1, 1]]


def test_slices_are_small_while_others_ask_and_whole_answers_after_a_while() -> None:
    loop, slices = made()
    size = SliceSize(slices)

    def quiet(seconds: float, count: int) -> None:
        loop.now_s += seconds
        for _ in range(count):
            assert size.next(1 << 20, is_paced=False) == SLICE_BYTES

    quiet(0, QUIET_SLICES)
    loop.now_s += 2 * QUIET_S
    assert size.next(1 << 20, is_paced=False) == 1 << 20
    slices.small_requests += 1
    size.own_requests += 1
    assert size.next(1 << 20, is_paced=False) == 1 << 20, "it was its own"
    slices.small_requests += 1
    quiet(0, 2 * QUIET_SLICES)
    loop.now_s += 2 * QUIET_S
    assert size.next(1 << 20, is_paced=False) == 1 << 20
    slices.small_requests += 1
    quiet(0, 1)
    quiet(2 * QUIET_S, QUIET_SLICES - 1)
    assert size.next(1 << 20, is_paced=False) == 1 << 20


def test_what_is_in_no_hurry_has_large_slices_while_others_are_busy_and_small_ones_while_they_ask_for_little() -> None:
    loop, slices = made()
    size = SliceSize(slices)

    def after(seconds: float, requests: int) -> tuple[bool, int]:
        loop.now_s += seconds
        slices.small_requests += requests
        return size.others_are_busy, size.next(8 << 20, is_paced=True)

    long_s = 1.01 * BUSY_S
    busy, few = int(1.01 * BUSY_REQUESTS) + 1, 3
    assert after(0, 1) == (True, PACED_SLICE_BYTES), "before it is known"
    assert after(long_s, busy) == (True, PACED_SLICE_BYTES)
    assert after(long_s / 2, few) == (True, PACED_SLICE_BYTES), "it is too early to tell"
    assert after(long_s / 2, few) == (False, SLICE_BYTES)
    assert after(4 * long_s, busy) == (False, SLICE_BYTES), "in so long a time they are few"
    assert after(long_s / 2, busy) == (True, PACED_SLICE_BYTES), "at once"
    assert after(long_s / 2, few) == (True, PACED_SLICE_BYTES), "they were enough for all of that time"
    size.own_requests += busy
    assert after(long_s, busy) == (False, SLICE_BYTES), "they were its own"


def test_answers_that_are_not_cut_show_as_well_that_nobody_else_asks() -> None:
    """By TLS, say: a reader of the tier is told for ever otherwise that others wait."""
    loop, slices = made()
    size = SliceSize(slices)
    for _ in range(QUIET_SLICES):
        loop.now_s += QUIET_S
        assert size.others_wait
        size.sent()
    assert not size.others_wait
    slices.small_requests += 1
    assert size.others_wait


class Full:
    """A transport whose socket takes nothing before the test says so."""

    def __init__(self) -> None:
        self.waiting_bytes = 0

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, part: bytes) -> None:
        self.waiting_bytes += len(part)


def test_whoever_waits_for_room_is_not_made_to_send_twice_as_often_by_a_small_answer_behind() -> None:
    loop, slices = made()
    slices.small_requests += 1
    output, transport = Output(), Full()
    slicing = Slicing(output, cast(asyncio.Transport, transport), slices, 1 << 20, lambda _: None)

    def pause_over() -> None:
        ((_, call, about),) = loop.later
        loop.later.clear()
        call(about)
        loop.turn()

    with patch("headrace.net.output.os.writev", side_effect=BlockingIOError):
        slicing.is_paced = True
        output.add([bytes(16 << 20)])
        slicing.flush()
        for _ in range(3):
            pause_over()
            assert transport.waiting_bytes and not loop.later
            output.add([b"small"])
            slicing.flush()
            assert not loop.later, "there is no room yet"
            transport.waiting_bytes = 0
            slicing.send_slice()
            assert transport.waiting_bytes and not loop.later
            transport.waiting_bytes = 0
            with patch("headrace.net.output.os.writev", lambda _fd, parts: sum(map(len, parts))):
                slicing.send_slice()


def test_what_is_in_no_hurry_waits_also_where_a_socket_did_not_take_all_of_a_slice() -> None:
    loop, slices = made()
    slices.small_requests += 1
    output, transport = Output(), Full()
    slicing = Slicing(output, cast(asyncio.Transport, transport), slices, 1 << 20, lambda _: None)
    slicing.is_paced = True
    output.add([bytes(16 << 20)])
    with patch("headrace.net.output.os.writev", side_effect=BlockingIOError):
        slicing.flush()
        ((_, call, about),) = loop.later
        loop.later.clear()
        call(about)
        loop.turn()
        assert transport.waiting_bytes == PACED_SLICE_BYTES and not loop.later
        transport.waiting_bytes = 0
        slicing.has_room()
    assert not transport.waiting_bytes and [delay_s for delay_s, _, _ in loop.later] == [PAUSE_S]


def answer_large(connection: Connection, frame: bytearray) -> None:
    """`l` asks for much, `p` for much that is in no hurry, anything else is echoed."""
    if bytes(frame) in (b"l", b"p"):
        if bytes(frame) == b"p":
            connection.pace()
        connection.open_reply().send([framed(LARGE)[:4], LARGE[: 5 << 20], memoryview(LARGE)[5 << 20 :]])
    else:
        echo(connection, frame)


@contextmanager
def writing() -> Iterator[list[int]]:
    """How much is given to sockets at a time."""
    sizes: list[int] = []
    really = os.writev

    def writev(fd: int, parts: list[bytes]) -> int:
        sizes.append(sum(map(len, parts)))
        return really(fd, parts)

    with patch("headrace.net.output.os.writev", writev):
        yield sizes


async def ask_again_and_again(server: Server, answered: list[bytes]) -> None:
    client = await server.open()
    while True:
        client.send(b"small")
        answered.append(await client.receive())


@on_both_loops
async def test_others_are_answered_between_slices() -> None:
    for kind in (b"l", b"p"):
        answered: list[bytes] = []
        async with serving(answer_large, Limits(unsent_bytes_max=64 << 20)) as server:
            asking = asyncio.create_task(ask_again_and_again(server, answered))
            client = await server.open()
            with writing() as sizes:
                client.send(kind, b"next", kind, b"last")
                assert await client.receive() == LARGE and await client.receive() == b"next"
                assert await client.receive() == LARGE and await client.receive() == b"last"
            asking.cancel()
        assert len(answered) > 20
        size_max = PACED_SLICE_BYTES if kind == b"p" else SLICE_BYTES
        assert len(sizes) > len(LARGE) // size_max and max(sizes) <= size_max


@on_both_loops
async def test_an_answer_is_one_slice_where_nobody_else_asks() -> None:
    async with serving(answer_large, Limits(unsent_bytes_max=64 << 20)) as server:
        client = await server.open()
        with writing() as sizes:
            for _ in range(6):
                client.send(b"p")
                assert await client.receive() == LARGE
    assert max(sizes) > len(LARGE) // 2


@on_both_loops
async def test_a_client_that_goes_away_in_the_middle_harms_nobody() -> None:
    async with serving(answer_large) as server:
        gone, other = await server.open(), await server.open()
        gone.send(b"p", b"l")
        await gone.reader.readexactly(3 * SLICE_BYTES)
        gone.writer.transport.abort()
        await server.has_connections(1)
        other.send(b"l")
        assert await other.receive() == LARGE
        assert server.hub.unsent_bytes == 0


def test_what_is_sent_of_a_part_is_held_as_long_as_its_rest() -> None:
    output = Output()
    with patch("headrace.net.output.os.writev", lambda _fd, parts: sum(map(len, parts))):
        output.add([bytes(10), bytes(100), bytes(50)])
        transport = cast(asyncio.Transport, Idle())
        held = []
        for size in (5, 25, 30, 60, 40):
            assert output.give_slice(transport, size)
            held.append((output.unsent_bytes, output.held_bytes))
    assert held == [(155, 160), (130, 150), (100, 150), (40, 50), (0, 0)]


class Idle:
    """A transport that sends whatever it is given at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, _data: bytes) -> None:
        pass


def test_a_socket_that_has_room_again_for_what_it_did_not_take_is_not_waited_for() -> None:
    """The transport tries once more, and says nothing of what left at once."""
    output = Output()
    output.add([bytes(100)])
    with patch("headrace.net.output.os.writev", lambda *_: 10):
        assert output.give_slice(cast(asyncio.Transport, Idle()), 50)
    assert output.unsent_bytes == 50


@on_both_loops
async def test_an_answer_is_counted_whole_until_it_is_read() -> None:
    """Also while its connection may go on asking, and while little of it is left: all of it is in memory."""
    await counted_until_read(b"l")
    await counted_until_read(b"p")


async def counted_until_read(kind: bytes) -> None:
    async with serving(answer_large, Limits(unsent_bytes_max=64 << 20)) as server:
        silent = await server.open()
        reading = cast(asyncio.ReadTransport, silent.writer.transport)
        reading.pause_reading()
        silent.send(*[kind] * 4)  # more than the kernel takes
        await until(lambda: server.hub.unsent_bytes > 2 * len(LARGE))
        reading.resume_reading()
        for _ in range(4):
            assert await silent.receive() == LARGE
        await until(lambda: server.hub.unsent_bytes == 0)
