"""Frames arrive whole and in order, answers leave in order, and every bound holds: on sockets, on both loops."""

import asyncio
import logging
from struct import pack

import pytest

from headrace.net.connection import FRAMES_PER_TURN_MAX, Connection
from headrace.net.limits import Limits
from headrace.net.reply import Reply
from headrace.wire.errors import ProtocolError
from tests.net.loops import on_both_loops, until
from tests.net.serving import Desk, echo, framed, serving


@on_both_loops
async def test_frames_of_every_size_come_back_as_they_were_sent() -> None:
    sizes = [0, 1, 4, 100, 65_531, 65_532, 65_536, 200_000, 262_139, 262_140, 262_141, 262_145, 1_100_000, 9_000_000]
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    async with serving(echo) as server:
        client = await server.open()
        for body in [*bodies, *reversed(bodies)]:
            client.send(body)
            assert await client.receive() == body


@on_both_loops
async def test_a_stream_cut_anywhere_gives_the_same_frames() -> None:
    bodies = [bytes([n]) * n for n in range(1, 40)]
    stream = b"".join(map(framed, bodies))
    async with serving(echo) as server:
        for step in (1, 3, 7, 64):
            client = await server.open()
            for at in range(0, len(stream), step):
                client.writer.write(stream[at : at + step])
                await asyncio.sleep(0)
            assert [await client.receive() for _ in bodies] == bodies


@on_both_loops
async def test_a_receiver_owns_its_frame_while_others_are_read() -> None:
    """Also large frames, whose memory is used again: never while somebody holds a view of it."""
    kept: list[memoryview] = []

    def keep_a_view(connection: Connection, frame: bytearray) -> None:
        kept.append(memoryview(frame)[1:])
        connection.open_reply().send([framed(b"")])

    bodies = [bytes([n]) * (100 if n % 3 else 300_000) for n in range(60)]
    async with serving(keep_a_view) as server:
        client = await server.open()
        for body in bodies:
            client.send(body)
        for _ in bodies:
            await client.receive()
    assert [bytes(view) for view in kept] == [body[1:] for body in bodies]


@on_both_loops
async def test_memory_of_large_frames_is_used_again() -> None:
    addresses: list[int] = []

    def note(connection: Connection, frame: bytearray) -> None:
        addresses.append(id(frame))
        connection.open_reply().send([framed(b"")])

    async with serving(note) as server:
        client = await server.open()
        for size in (1_000_000, 1_000_010, 999_000):
            client.send(bytes(size))
            await client.receive()
    assert len(set(addresses)) == 1


@on_both_loops
async def test_answers_leave_in_the_order_of_requests() -> None:
    desk = Desk()
    async with serving(desk.on_frame) as server:
        client = await server.open()
        client.send(b"a", b"b", b"c", b"d")
        await until(lambda: len(desk.replies) == 4)
        for index in (2, 1, 3, 0):
            desk.answer(index)
        assert [await client.receive() for _ in range(4)] == [b"a", b"b", b"c", b"d"]


@on_both_loops
async def test_a_request_without_an_answer_holds_nobody_up() -> None:
    desk = Desk()
    async with serving(desk.on_frame) as server:
        client = await server.open()
        client.send(b"acks=0", b"b")
        await until(lambda: len(desk.replies) == 2)
        desk.answer(1)
        desk.replies[0].skip()
        assert await client.receive() == b"b"


@on_both_loops
async def test_answers_of_one_turn_leave_after_the_work_of_that_turn() -> None:
    queued: list[Reply] = []
    turns: list[int] = []

    def on_frame(connection: Connection, _frame: bytearray) -> None:
        queued.append(connection.open_reply())
        server.hub.turn.schedule()

    def append_all() -> None:
        turns.append(len(queued))
        for reply in queued:
            reply.send([framed(b"done")])
        queued.clear()

    async with serving(on_frame) as server:
        server.hub.turn.before_writes.append(append_all)
        client = await server.open()
        client.send(*[b"x"] * 50)
        assert [await client.receive() for _ in range(50)] == [b"done"] * 50
    assert len(turns) < 50


@on_both_loops
async def test_large_answers_arrive_whole_when_the_client_is_slow() -> None:
    def large(connection: Connection, frame: bytearray) -> None:
        body = bytes(frame) * 3_000_000
        connection.open_reply().send([pack(">i", len(body) + 5), b"small", body])

    async with serving(large) as server:
        client = await server.open()
        client.send(b"a", b"b", b"c")
        await asyncio.sleep(0.05)
        for letter in (b"a", b"b", b"c"):
            assert await client.receive() == b"small" + letter * 3_000_000


@on_both_loops
async def test_a_client_that_does_not_read_is_not_served_without_end() -> None:
    limits = Limits(unsent_bytes_max=1 << 20)
    served = 0

    def large(connection: Connection, _frame: bytearray) -> None:
        nonlocal served
        served += 1
        connection.open_reply().send([framed(bytes(1 << 20))])

    async with serving(large, limits) as server:
        client = await server.open()
        client.send(*[b"x"] * 200)
        neighbour = await server.open()
        for _ in range(3):
            neighbour.send(b"y")
            assert len(await neighbour.receive()) == 1 << 20
        assert served < 100
        for _ in range(200):
            await client.receive()
        assert served == 203


@on_both_loops
async def test_answers_get_short_while_too_much_lies_unsent_and_long_again_after() -> None:
    limits = Limits(unsent_bytes_max=20 << 20, all_unsent_bytes_max=40 << 20)
    lengths: list[int] = []

    def long(connection: Connection, _frame: bytearray) -> None:
        lengths.append(connection.answer_bytes_max)
        connection.open_reply(alone=True).send([framed(bytes(lengths[-1]))])

    async with serving(long, limits) as server:
        vanishing, reading, neighbour = [await server.open() for _ in range(3)]
        for stuck in (vanishing, reading):
            stuck.send(b"x")
            await until(lambda: server.hub.unsent_bytes > 20 << 20)
            neighbour.send(b"y")
            assert len(await neighbour.receive()) == 1 << 20
            if stuck is vanishing:
                vanishing.writer.transport.abort()
            else:
                assert len(await reading.receive()) == 40 << 20
            await until(lambda: server.hub.unsent_bytes == 0)
        assert lengths == [40 << 20, 1 << 20] * 2


@on_both_loops
async def test_requests_in_flight_are_bounded_by_number_and_bytes() -> None:
    for limits in (Limits(requests_in_flight_max=3), Limits(request_bytes_in_flight_max=25)):
        desk = Desk()
        async with serving(desk.on_frame, limits) as server:
            client = await server.open()
            client.send(*[b"0123456789"] * 10)
            await desk.has(3)
            await asyncio.sleep(0.05)
            assert len(desk.frames) == 3
            for index in range(10):
                await desk.has(index + 1)
                desk.answer(index)
            assert [await client.receive() for _ in range(10)] == [b"0123456789"] * 10


@on_both_loops
async def test_an_answer_that_frees_too_little_lets_nobody_in() -> None:
    desk = Desk()
    async with serving(desk.on_frame, Limits(request_bytes_in_flight_max=25)) as server:
        client = await server.open()
        client.send(bytes(5), bytes(10), bytes(15), bytes(5))
        await desk.has(3)
        desk.answer(0)
        assert len(await client.receive()) == 5
        await asyncio.sleep(0.02)
        assert len(desk.frames) == 3
        desk.answer(1)
        await desk.has(4)


@on_both_loops
async def test_a_request_that_wants_to_be_alone_is_followed_only_after_its_answer() -> None:
    desk = Desk(alone=True)
    async with serving(desk.on_frame) as server:
        client = await server.open()
        client.send(b"fetch", b"metadata")
        await until(lambda: desk.replies)
        await asyncio.sleep(0.05)
        assert len(desk.replies) == 1
        desk.answer(0)
        await until(lambda: len(desk.replies) == 2)
        desk.answer(1)
        assert [await client.receive() for _ in range(2)] == [b"fetch", b"metadata"]


async def test_whoever_waits_is_called_before_the_next_frame_and_only_then() -> None:
    heard: list[str] = []

    def on_frame(connection: Connection, frame: bytearray) -> None:
        heard.append(frame.decode())
        if frame.startswith(b"wait"):
            undo = connection.before_next_frame(lambda: heard.append("called"))
            if frame == b"wait not":
                undo()
        echo(connection, frame)

    async with serving(on_frame) as server:
        client = await server.open()
        client.send(b"wait", b"one", b"two", b"wait not", b"three")
        for _ in range(5):
            await client.receive()
        assert heard == ["wait", "called", "one", "two", "wait not", "three"]


@on_both_loops
async def test_a_request_that_is_held_back_later_is_followed_only_after_its_answer() -> None:
    desk = Desk()

    def on_frame(connection: Connection, frame: bytearray) -> None:
        desk.on_frame(connection, frame)
        if frame == b"hold":
            connection.hold_back()

    async with serving(on_frame) as server:
        client = await server.open()
        client.send(b"first", b"hold", b"next")
        await until(lambda: len(desk.replies) == 2)
        desk.answer(0)
        await asyncio.sleep(0.05)
        assert len(desk.replies) == 2
        desk.answer(1)
        await until(lambda: len(desk.replies) == 3)
        desk.answer(2)
        assert [await client.receive() for _ in range(3)] == [b"first", b"hold", b"next"]


@on_both_loops
async def test_a_client_that_leaves_while_its_request_waits_is_noticed() -> None:
    desk = Desk(alone=True)
    async with serving(desk.on_frame) as server:
        client = await server.open()
        client.send(b"fetch")
        await until(lambda: desk.replies)
        client.writer.close()
        await server.has_connections(0)
        desk.answer(0)  # too late, and harmless


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, (1 << 20) + 1])
async def test_an_impossible_length_closes_the_connection_with_one_line(
    length: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(echo, Limits(frame_bytes_max=1 << 20)) as server:
        with caplog.at_level(logging.INFO):
            for _ in range(20):
                client = await server.open()
                client.send(b"good")
                assert await client.receive() == b"good"
                client.writer.write(pack(">i", length))
                await client.ended()
    assert len(caplog.records) == 1
    assert str(length) in caplog.text and "Traceback" not in caplog.text


@on_both_loops
async def test_an_impossible_length_behind_many_small_frames_reserves_nothing() -> None:
    async with serving(echo, Limits(frame_bytes_max=1 << 20)) as server:
        client = await server.open()
        client.writer.write(framed(b"x") * FRAMES_PER_TURN_MAX + pack(">i", 2**31 - 1) + bytes(150_000))
        assert [await client.receive() for _ in range(FRAMES_PER_TURN_MAX)] == [b"x"] * FRAMES_PER_TURN_MAX
        await client.ended()


async def test_malformed_requests_cost_one_line_and_our_bugs_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_connection: Connection, frame: bytearray) -> None:
        if frame == b"malformed":
            raise ProtocolError("a string of -5 bytes")
        raise KeyError("bug")

    async with serving(fail) as server:
        client, neighbour = await server.open(), await server.open()
        client.send(b"malformed")
        await client.ended()
        assert "a string of -5 bytes" in caplog.text and "Traceback" not in caplog.text
        client = await server.open()
        client.send(b"unlucky", b"never handed over")
        await client.ended()
        assert caplog.text.count("Traceback") == 1
        assert len(server.listener.connections) == 1
        neighbour.writer.close()


@on_both_loops
async def test_draining_answers_what_is_in_flight_and_takes_nothing_new() -> None:
    desk = Desk()
    async with serving(desk.on_frame) as server:
        client, idle = await server.open(), await server.open()
        client.send(b"last")
        await until(lambda: desk.replies)
        drained = asyncio.ensure_future(server.listener.drain(30))
        await idle.ended()
        client.send(b"too late")
        with pytest.raises(OSError):
            await server.open()
        desk.answer(0)
        assert await client.receive() == b"last"
        await client.ended()
        await drained
    assert len(desk.frames) == 1


@on_both_loops
async def test_draining_ends_with_a_request_that_needs_no_answer() -> None:
    desk = Desk()
    async with serving(desk.on_frame) as server:
        client = await server.open()
        client.send(b"acks=0")
        await desk.has(1)
        drained = asyncio.ensure_future(server.listener.drain(30))
        await asyncio.sleep(0.01)
        desk.replies[0].skip()
        await client.ended()
        await drained


@on_both_loops
async def test_draining_cuts_off_what_is_not_answered_in_time() -> None:
    desk = Desk()
    async with serving(desk.on_frame) as server:
        client = await server.open()
        client.send(b"never answered")
        await until(lambda: desk.replies)
        await server.listener.drain(0.05)
        await client.ended()


@on_both_loops
async def test_connections_are_bounded_per_node_and_per_address() -> None:
    for limits in (Limits(connections_max=2), Limits(connections_per_ip_max=2)):
        async with serving(echo, limits) as server:
            first, second = await server.open(), await server.open()
            second.send(b"here")
            assert await second.receive() == b"here"
            third = await server.open()
            await third.ended()
            first.writer.close()
            await server.has_connections(1)
            fourth = await server.open()
            fourth.send(b"room again")
            assert await fourth.receive() == b"room again"


@on_both_loops
async def test_idle_connections_are_closed_and_busy_or_waiting_ones_are_not() -> None:
    def park_or_echo(connection: Connection, frame: bytearray) -> None:
        if frame == b"long poll":
            connection.open_reply()
        else:
            echo(connection, frame)
        if frame == b"keep me":
            connection.keep()

    async with serving(park_or_echo, Limits(idle_ms_max=300)) as server:
        idle, waiting, busy, kept = [await server.open() for _ in range(4)]
        waiting.send(b"long poll")
        kept.send(b"keep me")
        ended = asyncio.ensure_future(idle.ended())
        while not ended.done():
            busy.send(b"x")
            assert await busy.receive() == b"x"
            await asyncio.sleep(0.01)
        assert len(server.listener.connections) == 3


@on_both_loops
async def test_five_hundred_silent_connections_cost_the_others_nothing() -> None:
    async with serving(echo) as server:
        clients = [await server.open() for _ in range(500)]
        for client in clients:
            client.writer.write(b"\0\0")
        last = await server.open()
        last.send(b"hello")
        assert await last.receive() == b"hello"
        assert len(server.listener.connections) == 501
        for client in clients:
            client.writer.close()


@on_both_loops
async def test_a_flood_of_small_requests_leaves_turns_to_others() -> None:
    handled = 0

    def count(connection: Connection, frame: bytearray) -> None:
        nonlocal handled
        handled += len(frame) == 1
        echo(connection, frame)

    async with serving(count) as server:
        flooding, other = await server.open(), await server.open()
        flood = framed(b"x") * 50_000
        flooding.writer.write(flood)
        await until(lambda: handled > 0)
        other.send(b"hello")
        assert await other.receive() == b"hello"
        assert handled < 25_000, "the flood was served first"
        assert await flooding.reader.readexactly(len(flood)) == flood
