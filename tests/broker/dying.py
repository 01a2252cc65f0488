"""The coordinator of transactions dies when what it decides is committed, only copied, or only written by itself."""

import asyncio
from collections.abc import Awaitable, Callable

from headrace.core.internal_topics import TRANSACTION_STATE
from tests.broker.trio import Trio
from tests.broker.txn_owner import alone, coordinator_of, is_coordinating, other_nodes

COMMITTED, COPIED, WRITTEN = "committed", "copied", "written"
HOWS = (COMMITTED, COPIED, WRITTEN)

Ask = Callable[[], Awaitable[object]]


def deaf(trio: Trio, node_id: int) -> None:
    """What the node writes reaches the others, who wait for it; that it did does not reach the node."""
    for other in other_nodes(node_id):
        trio.world.network.cut(trio.world.nodes[other - 1].host, trio.world.nodes[node_id - 1].host)


async def die_in(trio: Trio, how: str, begin: Callable[[], object], is_in_force: Callable[[], bool]) -> None:
    """The coordinator dies when what `begin` begins has come as far as `how` says."""
    node_id = await coordinator_of(trio)
    log = trio.partition(node_id, 0, TRANSACTION_STATE)
    before = log.log_end_offset
    # Whoever waits for news does so by now.
    await asyncio.sleep(0.2)
    if how == COPIED:
        deaf(trio, node_id)
    elif how == WRITTEN:
        alone(trio, node_id)
    begin()
    if how == COMMITTED:
        await trio.until(is_in_force)
    else:
        await trio.until(lambda: log.log_end_offset > before)
        if how == COPIED:
            copies = [trio.partition(other, 0, TRANSACTION_STATE) for other in other_nodes(node_id)]
            await trio.until(lambda: all(copy.log_end_offset > before for copy in copies))
        assert log.high_watermark == before
    if how == WRITTEN:
        trio.world.nodes[node_id - 1].lose_power()  # a process that dies leaves its machine to send what it had to say
    else:
        trio.world.nodes[node_id - 1].kill()
    trio.world.network.heal_all()
    await trio.until(lambda: any(is_coordinating(trio, other) for other in other_nodes(node_id)))


def begins(ask: Ask) -> Callable[[], object]:
    """Asked, and nobody waits for the answer, which never comes."""

    def begin() -> object:
        task = asyncio.ensure_future(ask())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    return begin
