"""Connections to other nodes: shared, replaced when broken, and never the reason of a traceback."""

import asyncio
import gc
from collections.abc import Mapping

import pytest

from headrace.broker.peers import Peers
from headrace.core.cluster import ClusterImage, RegisteredBroker
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import PeerLost
from headrace.net.transport import Address, LoopNetwork
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.net.loops import until
from tests.net.test_peer import answer_metadata, serving


def peers_of(brokers: Mapping[int, Address]) -> Peers:
    image = ClusterImage(1, {})
    for broker_id, (host, port) in brokers.items():
        image.brokers[broker_id] = RegisteredBroker(id=broker_id, epoch=1, host=host, port=port, rack=None)
    return Peers(LoopNetwork(), Hub(asyncio.get_running_loop(), Limits()), image)


async def ask(peers: Peers, broker_id: int = 2) -> MetadataResponse:
    return await peers.ask(broker_id, MetadataRequest(topics=None), MetadataResponse, 9, 10_000, "node-1")


async def test_all_questions_share_one_connection() -> None:
    async with serving(answer_metadata) as (listener, address):
        peers = peers_of({2: address})
        answers = await asyncio.gather(*(ask(peers) for _ in range(20)))
        assert all(answer.cluster_id and answer.cluster_id.endswith("/node-1") for answer in answers)
        assert len(listener.connections) == 1
        peers.close()


async def test_a_connection_that_broke_is_made_again() -> None:
    async with serving(answer_metadata) as (listener, address):
        peers = peers_of({2: address})
        await ask(peers)
        for connection in list(listener.connections):
            connection.abort()
        await until(lambda: not listener.connections and peers_are_broken(peers))
        assert (await ask(peers)).cluster_id
        peers.close()


def peers_are_broken(peers: Peers) -> bool:
    return all(future.result().closed for future in peers._shared.values())


async def test_a_node_that_is_not_registered_or_not_there_is_lost() -> None:
    async with serving(answer_metadata) as (_, address):
        peers = peers_of({2: Address(address.host, 1)})
        with pytest.raises(PeerLost, match="node 3 is not registered"):
            await ask(peers, 3)
        with pytest.raises(PeerLost):
            await ask(peers)
        peers._image.brokers[2] = RegisteredBroker(id=2, epoch=2, host=address.host, port=address.port, rack=None)
        assert (await ask(peers)).cluster_id
        peers.close()


async def test_one_who_gives_up_does_not_take_the_connection_from_others() -> None:
    async with serving(answer_metadata) as (listener, address):
        peers = peers_of({2: address})
        first, second = asyncio.ensure_future(ask(peers)), asyncio.ensure_future(ask(peers))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).cluster_id
        assert len(listener.connections) == 1
        peers.close()


async def test_nobody_has_to_hear_of_a_connection_that_failed_after_its_only_waiter_left() -> None:
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with serving(answer_metadata) as (_, address):
        peers = peers_of({2: Address(address.host, 1)})
        asking = asyncio.ensure_future(ask(peers))
        await asyncio.sleep(0)
        asking.cancel()
        (connecting,) = peers._shared.values()
        await asyncio.wait([connecting])
        del connecting, asking
        peers.close()
        gc.collect()
        await asyncio.sleep(0)
        assert unheard == []
