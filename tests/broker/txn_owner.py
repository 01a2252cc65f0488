"""A transactional producer without opinions of its own, on three nodes in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from headrace.broker.coordinators.kept import Kept
from headrace.client import Consumer
from headrace.core.transaction import Claim, State
from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.net.peer import PeerLost
from headrace.wire.messages.coordinators import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.wire.messages.produce import ProduceResponse
from headrace.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
)
from headrace.wire.struct import Message
from tests.broker.asking import TOPIC, only_partition, produce_request, records_of
from tests.broker.trio import Trio

M = TypeVar("M", bound=Message)

ID = "an id"
TIMEOUT_MS = 60_000
SETTINGS = {"transaction.state.log.num.partitions": "1"}
"""One coordinator for all ids."""
TOO_EARLY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""A client asks again."""
NOBODY = Claim(-1, -1)


async def make_ready(trio: Trio, partitions: int = 1) -> None:
    """Topics, and a coordinator that serves."""
    await trio.topic(*[[2, 3, 1]] * partitions, settings={"min.insync.replicas": "2"})
    await coordinator_of(trio)


async def coordinator_of(trio: Trio) -> int:
    """The node that coordinates, once it serves."""
    asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
    while True:
        for node in trio.world.nodes:
            if not node.is_serving:
                continue
            try:
                client = await trio.client(node.node_id)
                found = (await client.ask(asked, FindCoordinatorResponse)).coordinators[0]
            except PeerLost:
                continue
            client.peer.close()
            if not found.error_code and is_coordinating(trio, found.node_id):
                return found.node_id
        await asyncio.sleep(0.05)


def is_coordinating(trio: Trio, node_id: int) -> bool:
    if not trio.world.nodes[node_id - 1].is_serving:
        return False
    return not isinstance(trio.broker(node_id).transactions.log.led(0), ErrorCode)


def kept_at(trio: Trio, node_id: int, transactional_id: str = ID) -> Kept:
    kept = trio.broker(node_id).transactions.find(transactional_id)
    assert isinstance(kept, Kept), kept
    return kept


async def until_in_state(trio: Trio, state: State, transactional_id: str = ID) -> None:
    """In force, wherever the coordinator is."""

    def is_there() -> bool:
        for node in trio.world.nodes:
            if is_coordinating(trio, node.node_id):
                kept = trio.broker(node.node_id).transactions.find(transactional_id)
                if isinstance(kept, Kept) and kept.transaction is not None and kept.transaction.state is state:
                    return not kept.is_pending
        return False

    await trio.until(is_there)


class Owner:
    """Every request is one that the test wants, at the node that coordinates now, or `at` another one."""

    def __init__(self, trio: Trio, transactional_id: str = ID) -> None:
        self.trio = trio
        self.id = transactional_id
        self.claim = NOBODY
        self.sequences: dict[int, int] = {}
        self.at: int | None = None

    async def ask(self, message: Message, answer: type[M], version: int | None = None, at: int | None = None) -> M:
        at = at or self.at or await coordinator_of(self.trio)
        client = await self.trio.client(at)
        try:
            return await client.ask(message, answer, version)
        finally:
            client.peer.close()

    async def init(self, *, given: Claim = NOBODY, version: int = 5, timeout_ms: int = TIMEOUT_MS) -> int:
        """The code; the claim is this producer's from now on."""
        asked = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=given.producer_id,
            producer_epoch=given.epoch,
        )
        answer = await self.ask(asked, InitProducerIdResponse, version)
        if not answer.error_code:
            if (answer.producer_id, answer.producer_epoch) != self.claim:
                self.sequences.clear()
            self.claim = Claim(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    async def add(self, *partitions: int, version: int = 3, topic: str = TOPIC) -> dict[int, int]:
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.claim.producer_id,
            v3_and_below_producer_epoch=self.claim.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = await self.ask(asked, AddPartitionsToTxnResponse, version)
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        return {result.partition_index: result.partition_error_code for result in results}

    async def end(self, commit: bool, version: int = 4) -> int:
        asked = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.claim.producer_id,
            producer_epoch=self.claim.epoch,
            committed=commit,
        )
        return (await self.ask(asked, EndTxnResponse, version)).error_code

    async def produce(self, values: Sequence[bytes], partition: int = 0, version: int = 11) -> int:
        """The code. A new sequence each time that it is stored."""
        base = self.sequences.get(partition, 0)
        batch = records_of(values, producer=(*self.claim, base), transactional=True)
        request = produce_request({partition: batch})
        request.transactional_id = self.id
        leader = self.trio.world.truth.leader(TopicPartition(TOPIC, partition))
        assert leader is not None
        answer = await self.ask(request, ProduceResponse, version, at=leader)
        code = only_partition(answer).error_code
        if not code:
            self.sequences[partition] = base + len(values)
        return code


async def settled(ask: Callable[[], Awaitable[int]]) -> int:
    """Asked again while it is too early to tell, as a client does."""
    while True:
        try:
            code = await ask()
        except PeerLost:
            code = ErrorCode.NETWORK_EXCEPTION
        if code not in TOO_EARLY:
            return code
        await asyncio.sleep(0.05)


async def opened(trio: Trio, values: Sequence[bytes] = (b"1", b"2"), **fields: Any) -> Owner:
    """A producer with an open transaction, whose records are in the first partition."""
    owner = Owner(trio)
    assert await settled(lambda: owner.init(**fields)) == 0
    assert await settled(lambda: first_of(owner.add(0))) == 0
    assert await settled(lambda: owner.produce(values)) == 0
    return owner


async def first_of(codes: Awaitable[dict[int, int]]) -> int:
    return next(iter((await codes).values()))


async def committed_values(trio: Trio, partition: int = 0) -> list[bytes]:
    """All that somebody reads who reads what is committed, up to the end: waits until nothing is undecided."""
    where = TopicPartition(TOPIC, partition)
    bootstrap, outside = trio.world.bootstrap, trio.outside
    async with (
        Consumer(bootstrap, outside=outside, isolation="read_committed") as committed,
        Consumer(bootstrap, outside=outside) as everything,
    ):
        async with asyncio.timeout(120):
            while True:
                decided, end = await committed.end_offsets([where]), await everything.end_offsets([where])
                if decided == end:
                    break
                await asyncio.sleep(0.1)
        committed.assign([where])
        values: list[bytes] = []
        while await committed.position(where) < end[where]:
            values += [record.value or b"" for record in await committed.poll(100)]
        return values


async def all_values(trio: Trio, partition: int = 0) -> list[bytes | None]:
    leader = trio.world.truth.leader(TopicPartition(TOPIC, partition))
    assert leader is not None
    client = await trio.client(leader)
    return await client.read_all(0, partition)


def other_nodes(node_id: int) -> list[int]:
    return [other for other in (1, 2, 3) if other != node_id]


def alone(trio: Trio, node_id: int) -> None:
    """The node hears nothing from the others and they nothing from it; clients reach all of them."""
    for other in other_nodes(node_id):
        one, another = trio.world.nodes[node_id - 1].host, trio.world.nodes[other - 1].host
        trio.world.network.cut(one, another)
        trio.world.network.cut(another, one)


def no_marker_leaves(trio: Trio, node_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ends that this coordinator decides: somebody else has to send them."""
    monkeypatch.setattr(trio.broker(node_id).transactions.markers, "send", lambda _: None)
