"""Requests of all connections share one memory: who gets how much of it, who waits, and who gives it back."""

from struct import pack

from headrace.net.limits import Limits
from tests.net.loops import on_both_loops, until
from tests.net.serving import Desk, echo, serving


@on_both_loops
async def test_the_node_wide_budget_is_served_first_come_first_served() -> None:
    desk = Desk()
    async with serving(desk.on_frame, request_bytes_max=1000) as server:
        clients = [await server.open() for _ in range(4)]
        for index, client in enumerate(clients):
            client.send(bytes([index]) * 600)
            await server.holds(604 * index)
        assert len(desk.frames) == 1
        for index in range(4):
            await desk.has(index + 1)
            assert desk.frames[index][0] == index
            desk.answer(index)
            assert len(await clients[index].receive()) == 600
        assert (server.hub.budget.taken, server.hub.budget.held) == (0, 0)


@on_both_loops
async def test_a_frame_larger_than_the_whole_budget_still_passes_alone() -> None:
    async with serving(echo, request_bytes_max=1000) as server:
        client = await server.open()
        client.send(bytes(500_000))
        assert len(await client.receive()) == 500_000


@on_both_loops
async def test_clients_that_vanish_give_the_budget_back() -> None:
    desk = Desk()
    async with serving(desk.on_frame, request_bytes_max=1_000_000) as server:
        clients = [await server.open() for _ in range(4)]
        clients[0].send(bytes(900_000))
        await until(lambda: desk.frames)
        clients[1].send(bytes(400_000))  # has to wait
        clients[2].writer.write(pack(">i", 300_000) + bytes(200_000))  # has to wait behind it
        await until(lambda: server.hub.budget.scarce and server.hub.budget.held > 130_000)
        for client in clients:
            client.writer.close()
        await server.has_connections(0)
        await until(lambda: (server.hub.budget.taken, server.hub.budget.held) == (0, 0))
        last = await server.open()
        last.send(bytes(1_000_000))
        await until(lambda: len(desk.frames) == 2)


@on_both_loops
async def test_a_waiting_fetch_can_give_its_request_bytes_back() -> None:
    desk = Desk()
    async with serving(desk.on_frame, request_bytes_max=1000) as server:
        client = await server.open()
        client.send(bytes(900), bytes(900))
        await until(lambda: desk.replies)
        desk.replies[0].forget_request()
        await until(lambda: len(desk.replies) == 2)
        desk.answer(0)
        desk.answer(1)
        assert [len(await client.receive()) for _ in range(2)] == [900, 900]
        assert server.hub.budget.taken == 0


@on_both_loops
async def test_a_length_alone_reserves_no_memory() -> None:
    async with serving(echo, Limits(frame_bytes_max=100 << 20), request_bytes_max=50 << 20) as server:
        client = await server.open()
        client.writer.write(pack(">i", 100 << 20) + bytes(1000))
        await server.holds(1004)
        assert server.hub.budget.taken == 0


@on_both_loops
async def test_clients_that_announce_much_and_send_little_keep_no_large_request_waiting() -> None:
    async with serving(echo, Limits(frame_bytes_max=30 << 20), request_bytes_max=32 << 20) as server:
        for _ in range(20):
            slow = await server.open()
            slow.writer.write(pack(">i", 30 << 20) + bytes(100_000))
        await until(lambda: server.hub.budget.taken >= 20 * 100_000)
        other = await server.open()
        other.send(bytes(2 << 20), bytes(3 << 20))
        assert [len(await other.receive()) for _ in range(2)] == [2 << 20, 3 << 20]
        assert len(server.listener.connections) == 21
        assert server.hub.budget.taken < 28 << 20


@on_both_loops
async def test_large_requests_that_fill_all_memory_together_do_not_wait_for_each_other_for_ever() -> None:
    async with serving(echo, request_bytes_max=2_000_000) as server:
        clients = [await server.open() for _ in range(6)]
        for number, client in enumerate(clients):
            client.writer.write(pack(">i", 1_500_000) + bytes([number]) * 600_000)
        await until(lambda: server.hub.budget.scarce)
        for number, client in enumerate(clients):
            client.writer.write(bytes([number]) * 900_000)
        for number, client in enumerate(clients):
            assert await client.receive() == bytes([number]) * 1_500_000
        await until(lambda: (server.hub.budget.taken, server.hub.budget.held) == (0, 0))


@on_both_loops
async def test_an_unfinished_request_does_not_keep_memory_from_others_for_ever() -> None:
    async with serving(echo, Limits(idle_ms_max=400), request_bytes_max=500_000) as server:
        slow, other = await server.open(), await server.open()
        slow.writer.write(pack(">i", 450_000) + bytes(200_000))
        await until(lambda: server.hub.budget.taken == 450_000)
        other.send(bytes(100_000))
        assert len(await other.receive()) == 100_000
        await slow.ended()
