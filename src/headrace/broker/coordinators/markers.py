"""Ends of transactions on their way to the partitions: sent to the leaders until each has stored its marker.

There is no giving up: a transaction whose end is decided and not marked holds back all who read its partitions. One
request is under way to a node at a time, with up to MARKERS_MAX partitions of any number of transactions in it; nodes
answer when the markers are committed. A partition that could not commit its last one goes by a connection of its own
lane, so that it holds up nobody else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from headrace.core.cluster import NO_LEADER, ClusterImage
from headrace.core.transaction import TopicPartition, Transaction
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

MARKERS_MAX: Final = 1_000
"""Partitions in one request."""
RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 1.0
VERSION: Final = 1
ANSWER_MS_MAX: Final = 40_000
"""Longer than a leader waits for its followers before it says that they did not answer."""
CLIENT_IDS: Final = ("headrace-markers", "headrace-markers-slow")

SETTLED: Final = frozenset(
    {
        ErrorCode.NONE,
        # The partition has heard of a later coordinator, or a later epoch: this marker is not wanted there any more.
        # Should it be this coordinator that is over, then what it writes next is never committed.
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
SLOW: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


class Ending:
    """A transaction whose end is decided."""

    __slots__ = ("coordinator_epoch", "done", "index", "is_over", "remaining", "transaction")

    def __init__(self, index: int, coordinator_epoch: int, transaction: Transaction, done: Callable[[], None]) -> None:
        """`index` is the partition of `__transaction_state`; `done` is called once, when no marker is missing."""
        self.index = index
        self.coordinator_epoch = coordinator_epoch
        self.transaction = transaction
        self.remaining = set(transaction.partitions)
        self.done = done
        self.is_over = False


class Ask(Protocol):
    """One request to a node, by one of the two lanes. Raises PeerLost."""

    def __call__(
        self, node_id: int, request: WriteTxnMarkersRequest, client_id: str, /
    ) -> Awaitable[WriteTxnMarkersResponse]: ...


Lane = tuple[int, bool]
"""A node, and whether it is the lane for slow partitions."""
Due = dict[Ending, dict[TopicPartition, None]]
"""In an order that is the same in every run."""


class Markers:
    def __init__(self, loop: asyncio.AbstractEventLoop, image: ClusterImage, ask: Ask) -> None:
        self._loop = loop
        self._image = image
        self._ask = ask
        self._endings: dict[int, dict[Ending, None]] = {}
        self._due: dict[Lane, Due] = {}
        self._senders: dict[Lane, asyncio.Task[None]] = {}
        self._later: Due = {}
        self._retry_s = RETRY_S
        self._retry: asyncio.TimerHandle | None = None
        self._slow: set[TopicPartition] = set()
        self.sent = 0
        self.failed = 0
        """Markers that had to be sent again."""

    @property
    def waiting(self) -> int:
        """Partitions whose marker has no place to go to, or was refused and is about to be sent again."""
        return sum(map(len, self._later.values()))

    @property
    def endings(self) -> int:
        return sum(map(len, self._endings.values()))

    def send(self, ending: Ending) -> None:
        self._endings.setdefault(ending.index, {})[ending] = None
        self._route(ending, sorted(ending.remaining))
        self._settle(ending)

    def drop(self, index: int) -> None:
        """This node is not the coordinator of these transactions any more: the next one sends their markers."""
        for ending in self._endings.pop(index, ()):
            ending.is_over = True

    async def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)

    # Where to.

    def _route(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        topics = self._image.topics
        for partition in partitions:
            name, index = partition
            topic = topics.get(name)
            if topic is None or index >= len(topic.partitions):
                self._settled(ending, partition)  # deleted, and its transactions with it
                continue
            leader = self._image.leader_of(topic.partitions[index])
            if leader == NO_LEADER:
                self._again(ending, partition)
                continue
            lane = leader, partition in self._slow
            self._due.setdefault(lane, {}).setdefault(ending, {})[partition] = None
            if lane not in self._senders:
                self._senders[lane] = self._loop.create_task(self._drain(lane))

    def _again(self, ending: Ending, partition: TopicPartition) -> None:
        self._later.setdefault(ending, {})[partition] = None
        if self._retry is None:
            self._retry = self._loop.call_later(self._retry_s, self._reroute)

    def _reroute(self) -> None:
        self._retry = None
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
        later, self._later = self._later, {}
        for ending, partitions in later.items():
            if not ending.is_over:
                self._route(ending, partitions)
                self._settle(ending)

    # There and back.

    async def _drain(self, lane: Lane) -> None:
        try:
            while due := self._due.get(lane):
                batch = _taken(due)
                if not batch:
                    continue
                node_id, is_slow = lane
                self.sent += sum(map(len, batch.values()))
                try:
                    answer = await self._ask(node_id, _request(batch), CLIENT_IDS[is_slow])
                except PeerLost as error:
                    log.info("markers for node %d are sent again: %s", node_id, error)
                    self._lost(batch)
                    await asyncio.sleep(self._retry_s)
                else:
                    self._judge(batch, answer)
        finally:
            del self._senders[lane]
            self._due.pop(lane, None)

    def _lost(self, batch: Due) -> None:
        for ending, partitions in batch.items():
            if not ending.is_over:
                for partition in partitions:
                    self.failed += 1
                    self._again(ending, partition)

    def _judge(self, batch: Due, answer: WriteTxnMarkersResponse) -> None:
        codes = {
            (result.producer_id, topic.name, partition.partition_index): partition.error_code
            for result in answer.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        for ending, partitions in batch.items():
            if ending.is_over:
                continue
            for partition in partitions:
                code = codes.get((ending.transaction.producer_id, *partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                if code in SETTLED:
                    self._settled(ending, partition)
                    self._retry_s = RETRY_S
                else:
                    self.failed += 1
                    if code in SLOW:
                        self._slow.add(partition)
                    self._again(ending, partition)
            self._settle(ending)

    def _settled(self, ending: Ending, partition: TopicPartition) -> None:
        self._slow.discard(partition)
        ending.remaining.discard(partition)

    def _settle(self, ending: Ending) -> None:
        if ending.remaining or ending.is_over:
            return
        ending.is_over = True
        endings = self._endings[ending.index]
        del endings[ending]
        if not endings:
            del self._endings[ending.index]
        ending.done()


def _taken(due: Due) -> Due:
    """Up to MARKERS_MAX partitions, which leave the queue."""
    batch: Due = {}
    room = MARKERS_MAX
    while due and room:
        ending = next(iter(due))
        partitions = due[ending]
        if ending.is_over:
            del due[ending]
        elif len(partitions) <= room:
            room -= len(partitions)
            batch[ending] = due.pop(ending)
        else:
            batch[ending] = dict.fromkeys(list(partitions)[:room])
            for partition in batch[ending]:
                del partitions[partition]
            room = 0
    return batch


def _request(batch: Due) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=[_marker(ending, partitions) for ending, partitions in batch.items()])


def _marker(ending: Ending, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    transaction = ending.transaction
    return WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_result=transaction.commits,
        coordinator_epoch=ending.coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
    )
