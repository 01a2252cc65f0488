"""`Ownership`: what a claim gives to a program."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.client import ConsumerRecord
from headrace.client.cluster import Cluster
from headrace.model import TopicPartition
from headrace.net.transport import Address
from headrace.own.clients import OwnedConsumer, OwnedProducer
from headrace.own.errors import OwnershipLost
from headrace.own.holdings import Holdings
from headrace.own.link import UNHEARD_MS_MAX

POLL_MS = 1_000


class Ownership:
    """Of one or several resources, by one group. `lost` is set while not all of them are held.

    A loss may be temporary: a leader moved, a connection broke. Then the library asks for the same generations again,
    which is granted only if nobody else has had them meanwhile; `lost` is cleared, and `fence_offsets` are new.
    """

    def __init__(self, bootstrap: str, holdings: Holdings) -> None:
        self._bootstrap = bootstrap
        self._holdings = holdings
        self._outside = replace(holdings.outside, gate=self)
        self.cluster = Cluster(bootstrap, self.client_id, self._outside, creates_topics=True)
        """The connections of its producers, which share them."""
        self.lost = holdings.lost
        self.listeners: list[Callable[[], None]] = holdings.listeners

    @property
    def group(self) -> str:
        return self._holdings.claimer.group

    @property
    def client_id(self) -> str:
        """Of all its connections: a stock client with this client.id belongs to it, too."""
        return self._holdings.claimer.client_id

    @property
    def generations(self) -> Mapping[str, int]:
        """By resource. They rise with every owner: a fencing token for work that no broker sees."""
        return self._holdings.generations

    @property
    def fence_offsets(self) -> Mapping[str, int]:
        """By partition: nothing of an earlier owner is at or after it. -1 for what is no partition."""
        return self._holdings.fence_offsets

    @property
    def generation(self) -> int:
        """Where one resource was claimed."""
        (generation,) = self.generations.values()
        return generation

    @property
    def fence_offset(self) -> int:
        """Where one partition was claimed."""
        (offset,) = self.fence_offsets.values()
        return offset

    @property
    def reason(self) -> str:
        """Of the last loss, for a person; empty when there was none."""
        return self._holdings.reason

    def producer(self, **settings: Any) -> OwnedProducer:
        """A `headrace.client.Producer`, with its settings: `async with ownership.producer() as producer`."""
        return OwnedProducer(self, self._bootstrap, outside=self._outside, cluster=self.cluster, **settings)

    def consumer(self, **settings: Any) -> OwnedConsumer:
        """A `headrace.client.Consumer`, with its settings: `async with ownership.consumer() as consumer`."""
        return OwnedConsumer(self, self._bootstrap, client_id=self.client_id, outside=self._outside, **settings)

    async def backlog(
        self, resource: str | TopicPartition, start: int | None = None, **settings: Any
    ) -> AsyncIterator[ConsumerRecord]:
        """The records of an owned partition before its fence, from the first or from `start` on: all that earlier
        owners wrote."""
        name = str(resource)
        partition = self._holdings.places.partition(name) if name in self.generations else None
        if partition is None:
            raise ValueError(f"{name} is not a partition that is owned here")
        async with self.consumer(**settings) as consumer:
            consumer.assign([partition])
            if start is not None:
                consumer.seek(partition, start)
            while await consumer.position(partition) < (fence := self.fence_offsets[name]):
                for record in await consumer.poll(POLL_MS):
                    if record.offset < fence:
                        yield record

    async def regained(self) -> None:
        """Until it is held again; at once while it is held. OwnershipLost when it is lost for good."""
        if not self.lost.is_set():
            return
        again, gone = (asyncio.ensure_future(e.wait()) for e in (self._holdings.regained, self._holdings.gone))
        try:
            await asyncio.wait((again, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            again.cancel()
            gone.cancel()
        if self.is_gone:
            raise self.loss()

    # What its clients ask.

    def check(self) -> None:
        """OwnershipLost unless all of it is held, as far as can be known: a process that was paused for long notices
        here, before anything else does."""
        now_ms = self._outside.clock.monotonic_ms()
        for link in self._holdings.links():
            if now_ms - link.heard_ms > UNHEARD_MS_MAX:
                link.fall_silent(now_ms - link.heard_ms)
        if self.lost.is_set():
            raise self.loss()

    @property
    def is_gone(self) -> bool:
        """Lost for good: somebody else has had it, or the claim was left."""
        return self._holdings.gone.is_set()

    def loss(self) -> OwnershipLost:
        return OwnershipLost(f"group {self.group!r} does not hold what it claimed any more: {self.reason}")

    async def admit(self, address: Address) -> None:
        """A new connection of a client belongs to the ownership, and is severed with it, once the broker that it leads
        to has shown, later than it was made, that something is held there."""
        for link in self._holdings.links():
            if link.address == address:
                await link.prove()

    def permits(self, partition: TopicPartition, node_id: int) -> bool:
        """An owned partition may be used where it is held; a new leader may have another owner."""
        if self.lost.is_set():
            return False
        resource = str(partition)
        return resource not in self.generations or self._holdings.node_of(resource) == node_id
