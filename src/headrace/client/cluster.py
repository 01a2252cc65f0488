"""What a client knows of a cluster, and its connections to the brokers."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from headrace.client.errors import NotReachable, TimedOut, topic_error
from headrace.client.outside import Outside
from headrace.client.tries import Tries
from headrace.errors import ErrorCode, KafkaError
from headrace.model import ZERO_UUID, TopicPartition
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import REQUEST_MS_MAX, Peer, PeerLost
from headrace.net.transport import Address
from headrace.wire.errors import ProtocolError, Unencodable
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

UNKNOWN_TOPIC_MS_MAX = 5_000
"""How long a topic may be unknown: brokers learn of a new one a little after its creator."""

ASK_MS_MAX = 60_000

NEXT_S = 0.5
"""A broker that takes longer to answer the first time may hang: the next one is asked besides."""

PLAINLY_WRONG = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Of a topic: asking again would not help."""


class Leader(NamedTuple):
    node_id: int
    epoch: int


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    leaders: dict[int, Leader | None]  # by partition; None while there is none


class Cluster:
    """Shared by everything that one client does. Connections are opened when they are needed first."""

    def __init__(self, bootstrap: str, client_id: str, outside: Outside, *, creates_topics: bool) -> None:
        self.bootstrap = bootstrap
        self.outside = outside
        self.topics: dict[str, Topic] = {}
        self.brokers: dict[int, Address] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.faults: dict[str, ErrorCode] = {}  # of topics, as the last metadata said
        self._seeds = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._creates_topics = creates_topics
        self._hub: Hub | None = None
        self._peers: dict[Address, Peer] = {}
        self._connecting: dict[Address, asyncio.Task[Peer]] = {}
        self._interest: set[str] = set()
        self._troubles: dict[Tries, str] = {}
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def hub(self) -> Hub:
        if self._hub is None:
            self._hub = Hub(asyncio.get_running_loop(), Limits())
        return self._hub

    async def close(self) -> None:
        tasks: list[asyncio.Task[Peer] | asyncio.Task[None]] = list(self._connecting.values())
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    # Connections.

    async def peer(self, node_id: int) -> Peer:
        """PeerLost when that broker is unknown or does not answer."""
        address = self.brokers.get(node_id)
        if address is None:
            raise PeerLost(f"broker {node_id} is not in the metadata")
        return await self.peer_at(address)

    def adopt(self, address: Address, peer: Peer) -> None:
        """A connection that stands already. It is closed with the others."""
        self._peers[address] = peer

    async def another_peer(self, node_id: int) -> Peer:
        """A connection beside the one that others use. The caller closes it."""
        return await self._connected(self.brokers[node_id])

    def open_peer(self, node_id: int) -> Peer | None:
        """The connection to that broker if there is one now."""
        address = self.brokers.get(node_id)
        peer = None if address is None else self._peers.get(address)
        return None if peer is None or peer.closed else peer

    async def any_peer(self) -> Peer:
        """NotReachable when none of the brokers that we know of answers."""
        for peer in self._peers.values():
            if not peer.closed:
                return peer
        reasons = []
        left = deque(dict.fromkeys([*self.brokers.values(), *self._seeds]))
        asked: list[asyncio.Task[Peer]] = []
        while left or asked:
            if left:
                asked.append(self._connection_to(left.popleft()))
            await asyncio.wait(asked, timeout=NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in asked if task.done()]:
                asked.remove(task)
                try:
                    return task.result()
                except PeerLost as error:
                    reasons.append(str(error))
        raise NotReachable(f"no broker of bootstrap {self.bootstrap} answers: {'; '.join(reasons)}")

    async def peer_at(self, address: Address) -> Peer:
        """PeerLost when nobody answers there."""
        peer = self._peers.get(address)
        if peer is not None and not peer.closed:
            return peer
        return await asyncio.shield(self._connection_to(address))

    def _connection_to(self, address: Address) -> asyncio.Task[Peer]:
        """Shared by all who wait for it: whoever gives up does not take it from the others."""
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.ensure_future(self._connect(address))
            task.add_done_callback(_heed)
            self._connecting[address] = task
        return task

    async def _connect(self, address: Address) -> Peer:
        try:
            peer = self._peers[address] = await self._connected(address)
            return peer
        finally:
            del self._connecting[address]

    async def _connected(self, address: Address) -> Peer:
        peer = await Peer.connect(self.outside.network, self.hub, *address, self._client_id)
        if self.outside.gate is not None:
            try:
                await self.outside.gate.admit(address)
            except BaseException:  # whatever ends the asking, a cancellation too, nobody would close it
                peer.close("it is not to be used")
                raise
        return peer

    async def reach(self, timeout_ms: int) -> None:
        """Until a broker answers. NotReachable when none does in that time."""
        with self.tries(timeout_ms) as tries:
            while True:
                try:
                    await tries.attempt(self.any_peer(), f"no broker of bootstrap {self.bootstrap} answers")
                    return
                except TimedOut as error:
                    raise NotReachable(error.message) from None
                except NotReachable as error:
                    await tries.again(error)

    async def ask(
        self, message: Message, answer: type[M], timeout_ms: int = ASK_MS_MAX, node_id: int | None = None
    ) -> M:
        """Of whichever broker answers, or of that one; asked again when nobody does, or when a connection is lost.

        So the request must be one that may be done twice, or whose second answer tells that it was.
        """
        what = f"{_name(message)} was not answered by {self.bootstrap}"
        with self.tries(timeout_ms) as tries:
            while True:
                try:
                    return await tries.attempt(self._ask_once(message, answer, node_id), what)
                except NotReachable as error:
                    await tries.again(error)

    async def _ask_once(self, message: Message, answer: type[M], node_id: int | None = None) -> M:
        if node_id is not None and node_id not in self.brokers:
            await self.refresh()
            if node_id not in self.brokers:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.bootstrap} has no broker {node_id}")
        try:
            peer = await (self.any_peer() if node_id is None else self.peer(node_id))
            return await peer.request(message, answer)
        except Unencodable as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except ProtocolError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.bootstrap}: {error}") from error
        except (PeerLost, TimeoutError) as error:
            reason = str(error) or f"nothing came in {REQUEST_MS_MAX} ms"
            raise NotReachable(f"{_name(message)} was not answered by {self.bootstrap}: {reason}") from error

    def tries(self, timeout_ms: int) -> Tries:
        return Tries(self.outside, self._troubles, timeout_ms)

    @property
    def trouble(self) -> str | None:
        """What is in the way of something that is being tried again."""
        return next(iter(self._troubles.values()), None)

    # Metadata.

    def leader(self, partition: TopicPartition) -> Leader | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.leaders.get(partition.partition)

    def permits(self, partition: TopicPartition, node_id: int) -> bool:
        gate = self.outside.gate
        return gate is None or gate.permits(partition, node_id)

    async def know(self, topics: Iterable[str], timeout_ms: int = ASK_MS_MAX) -> None:
        """Until the partitions of all these topics are known. KafkaError for what cannot be."""
        names = set(topics)
        self._interest |= names
        unknown_since_ms: int | None = None
        with self.tries(timeout_ms) as tries:
            while not names <= self.topics.keys():
                await self._refresh_within(tries)
                missing = sorted(name for name in names if name not in self.topics)
                now_ms = self.outside.clock.monotonic_ms()
                unknown_since_ms = now_ms if unknown_since_ms is None else unknown_since_ms
                for name in missing:
                    code = self.faults.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    if code in PLAINLY_WRONG or now_ms - unknown_since_ms >= UNKNOWN_TOPIC_MS_MAX:
                        raise topic_error(code, name, f"topic {name!r} of {self.bootstrap} cannot be used")
                if missing:
                    await tries.again(f"topic {missing[0]!r} is not known")

    def lose_interest(self) -> None:
        """Somebody else begins to use it. A topic that is asked for may be created by that, also one that was deleted
        since anybody needed it."""
        self._interest.clear()

    async def refresh(self) -> None:
        """Asks anew for all topics of interest, once. Callers at the same time share one request."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(_heed)
        await asyncio.shield(self._refreshing)

    async def refresh_patiently(self, timeout_ms: int) -> None:
        """The same, while brokers may be away for a moment."""
        with self.tries(timeout_ms) as tries:
            await self._refresh_within(tries)

    async def _refresh_within(self, tries: Tries) -> None:
        while True:
            try:
                await tries.attempt(self.refresh(), f"Metadata was not answered by {self.bootstrap}")
                return
            except NotReachable as error:
                await tries.again(error)

    async def _refresh(self) -> None:
        names = sorted(self._interest)
        question = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._creates_topics,
        )
        self.learn(await self._ask_once(question, MetadataResponse))

    def inherit(self, answer: MetadataResponse) -> None:
        """What another client was told. The topics that it found are of interest here too."""
        self._interest |= {topic.name for topic in answer.topics if topic.name is not None and not topic.error_code}
        self.learn(answer)

    def learn(self, answer: MetadataResponse) -> None:
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code:
                self.faults[topic.name] = KafkaError(topic.error_code).code
                if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                    self.topics.pop(topic.name, None)
            else:
                self.faults.pop(topic.name, None)
                self.topics[topic.name] = _newer(self.topics.get(topic.name), topic.name, topic)


def _name(message: Message) -> str:
    return type(message).__name__.removesuffix("Request")


def _heed(task: "asyncio.Task[Peer] | asyncio.Task[None]") -> None:
    """Whoever waited for a shared task may be gone when it fails; then nobody has to hear of it."""
    if not task.cancelled():
        task.exception()


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port`, several with commas between them, or after them, as Kafka's clients take it. ValueError with one
    sentence."""
    addresses = []
    for item in text.split(","):
        if not item.strip() and text.strip(" ,"):
            continue
        host, colon, port = item.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap {text!r} is not host:port, or several with commas between them")
        addresses.append(Address(host.strip("[]"), int(port)))
    return addresses


def _newer(known: Topic | None, name: str, told: MetadataResponseTopic) -> Topic:
    """A broker that lags behind must not bring an old leader back; another topic id is another topic."""
    same = known is not None and known.topic_id == told.topic_id
    leaders: dict[int, Leader | None] = {}
    for partition in told.partitions:
        leader = None if partition.leader_id < 0 else Leader(partition.leader_id, partition.leader_epoch)
        before = known.leaders.get(partition.partition_index) if same and known is not None else None
        if before is not None and leader is not None and 0 <= leader.epoch < before.epoch:
            leader = before
        leaders[partition.partition_index] = leader
    return Topic(name, told.topic_id or ZERO_UUID, leaders)


def group_by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
