"""Fetches from one broker, in one incremental session, ahead of the consumer."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.client.assigned import Assigned, Key
from headrace.client.cluster import Cluster
from headrace.client.fetched import Aborted, Fetched, last_of
from headrace.core.fetching import Ask, FetchingSession, Verdict
from headrace.errors import ErrorCode, KafkaError
from headrace.model import ZERO_UUID, TopicIdPartition, TopicPartition
from headrace.net.peer import REQUEST_MS_MAX, Peer, PeerLost
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

TOPIC_IDS_SINCE = 13
"""Version of Fetch."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CLOSE_MS_MAX = 1_000

RECORD_BYTES_ASSUMED = 1_024.0
"""Until the first are there."""
REST_BYTES_MIN = 64 << 10
REST_SPARE = 1.25
"""Records are not all of one size."""


class FetchLimits(NamedTuple):
    isolation: int
    max_wait_ms: int
    min_bytes: int
    bytes_max: int
    partition_bytes_max: int


class Fetcher:
    """`on_news` is called with a partition that has data, or whose answer was an error; None: the broker is away."""

    def __init__(
        self, cluster: Cluster, node_id: int, limits: FetchLimits, on_news: Callable[[Assigned | None, int], None]
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._limits = limits
        self._on_news = on_news
        self._session: FetchingSession[Key, FetchPartition] = FetchingSession()
        self._keys: dict[Assigned, Key] = {}
        self._members: dict[Key, Assigned] = {}
        self._told: dict[Key, int] = {}  # offsets that the session has
        self._epochs: dict[Key, int] = {}  # and leader epochs
        self._by_id = True
        self._asking = False
        self._held_bytes = 0  # fetched and not handed out
        self._record_bytes = RECORD_BYTES_ASSUMED  # of those that came last
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.trouble: str | None = None  # why the last fetch was not answered

    def want(self, assigned: Assigned) -> None:
        """From its `fetch_offset` on."""
        key = self._key(assigned)
        old = self._keys.get(assigned)
        if old is not None and old != key:
            self.drop(assigned)  # the topic was made anew
        members_before = len(self._members)
        self._keys[assigned] = key
        self._members[key] = assigned
        self._list(key, assigned)
        if members_before == 1 < len(self._members):
            first_key, first = next(iter(self._members.items()))
            if first.until is not None:  # while it was alone, not all of it was asked for
                self._list(first_key, first)
        self.wake()
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def refresh(self, assigned: Assigned) -> None:
        """Metadata was asked for anew: the session hears of it only where leader epoch or topic id changed."""
        key = self._key(assigned)
        leader = self._cluster.leader(assigned.partition)
        epoch = -1 if leader is None else leader.epoch
        if key != self._keys.get(assigned) or epoch != self._epochs.get(key):
            self.want(assigned)

    def drop(self, assigned: Assigned) -> None:
        key = self._keys.pop(assigned, None)
        if key is not None:
            del self._members[key]
            self._told.pop(key, None)
            self._epochs.pop(key, None)
            self._session.drop(key)

    def wake(self) -> None:
        """There may be room, or something new to ask for."""
        self._wake.set()

    async def close(self) -> None:
        """Frees the broker's session; not at any price."""
        was_asking = self._asking
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        ask = self._session.closing()
        peer = self._cluster.open_peer(self._node_id)
        if ask is None or peer is None:
            return
        try:
            async with asyncio.timeout(CLOSE_MS_MAX / 1000):
                # Behind a fetch that waits, a broker would not look at it.
                closer = await self._cluster.another_peer(self._node_id) if was_asking else peer
                await closer.request(self._request(ask, waits=False), FetchResponse, self._version(closer))
                if was_asking:
                    closer.close()
        except (OSError, ProtocolError):
            pass  # the broker forgets the session by itself, later

    async def _run(self) -> None:
        failures = 0
        while True:
            while not self._members or self._held_bytes >= self._limits.bytes_max:
                self._wake.clear()
                await self._wake.wait()
            try:
                verdict = await self._fetch()
                self.trouble = None
            except (PeerLost, TimeoutError, ProtocolError) as error:
                self.trouble = str(error) or f"broker {self._node_id} does not answer a fetch"
                self._session.lost()
                self._on_news(None, self._node_id)
                verdict = Verdict.BACK_OFF
            failures = failures + 1 if verdict in (Verdict.BACK_OFF, Verdict.FAILED) else 0
            if failures:
                await asyncio.sleep(self._cluster.outside.backoff_ms(failures) / 1000)

    def _released(self, size: int) -> None:
        self._held_bytes -= size
        self.wake()

    async def _fetch(self) -> Verdict:
        peer = await self._cluster.peer(self._node_id)
        version = self._version(peer)
        if (version >= TOPIC_IDS_SINCE) != self._by_id:
            self._start_again(by_id=version >= TOPIC_IDS_SINCE)
        ask = self._session.next()
        for key, partition in ask.listed:
            self._told[key] = partition.fetch_offset
        self._asking = True
        timeout_ms = self._limits.max_wait_ms + REQUEST_MS_MAX
        try:
            answer = await peer.request(self._request(ask), FetchResponse, version, timeout_ms)
        finally:
            self._asking = False
        parts: list[tuple[Key, PartitionData]] = [
            (self._named(topic.topic_id, topic.topic, part.partition_index), part)
            for topic in answer.responses
            for part in topic.partitions
        ]
        throttled = answer.throttle_time_ms > 0
        verdict = self._session.answered(answer.error_code, answer.session_id, [key for key, _ in parts], throttled)
        if verdict is Verdict.USE:
            for key, part in parts:
                self._apply(key, part)
            for key, _ in ask.listed:
                assigned = self._members.get(key)
                if assigned is not None:
                    assigned.trouble = None
        elif verdict is Verdict.FAILED:
            error = KafkaError(answer.error_code, f"broker {self._node_id} refused to fetch")
            for assigned in list(self._members.values()):
                self._refused(assigned, error)
        return verdict

    def _version(self, peer: Peer) -> int:
        ids = all(topic.topic_id != ZERO_UUID for topic in self._cluster.topics.values())
        return peer.version_of(FetchRequest, 0x7FFF if ids else TOPIC_IDS_SINCE - 1)

    def _start_again(self, *, by_id: bool) -> None:
        """The broker names topics in the other way now, which ends a session."""
        self._by_id = by_id
        self._session = FetchingSession()
        members = list(self._keys)
        self._keys.clear()
        self._members.clear()
        self._told.clear()
        self._epochs.clear()
        for assigned in members:
            self.want(assigned)

    def _key(self, assigned: Assigned) -> Key:
        name, index = assigned.partition
        topic = self._cluster.topics.get(name)
        return self._named(ZERO_UUID if topic is None else topic.topic_id, name, index)

    def _named(self, topic_id: bytes, name: str, index: int) -> Key:
        return TopicIdPartition(topic_id, index) if self._by_id else TopicPartition(name, index)

    def _list(self, key: Key, assigned: Assigned) -> None:
        leader = self._cluster.leader(assigned.partition)
        self._epochs[key] = -1 if leader is None else leader.epoch
        partition = FetchPartition(
            partition=key.partition,
            current_leader_epoch=self._epochs[key],
            fetch_offset=assigned.fetch_offset,
            partition_max_bytes=self._bytes_for(assigned),
        )
        self._session.want(key, partition)

    def _bytes_for(self, assigned: Assigned) -> int:
        """About what is left of it up to where it is wanted: what lies behind that would be sent for nothing. Only of a
        session's one partition: of that one a broker sends a whole batch, however small the limit is."""
        bytes_max = self._limits.partition_bytes_max
        if assigned.until is None or len(self._members) > 1:
            return bytes_max
        rest = (assigned.until - assigned.fetch_offset) * self._record_bytes * REST_SPARE
        # With less than the broker waits for, it would wait as long as it may.
        return min(bytes_max, max(REST_BYTES_MIN, self._limits.min_bytes, int(rest)))

    def _request(self, ask: Ask[Key, FetchPartition], *, waits: bool = True) -> FetchRequest:
        topics: dict[str | bytes, FetchTopic] = {}
        for key, partition in ask.listed:
            if key[0] not in topics:
                name, topic_id = _both_names(key)
                topics[key[0]] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            topics[key[0]].partitions.append(partition)
        return FetchRequest(
            max_wait_ms=self._limits.max_wait_ms if waits else 0,
            min_bytes=self._limits.min_bytes if waits else 0,
            max_bytes=self._limits.bytes_max,
            isolation_level=self._limits.isolation,
            session_id=ask.session_id,
            session_epoch=ask.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=_forgotten(ask.forgotten),
        )

    def _apply(self, key: Key, part: PartitionData) -> None:
        assigned = self._members.get(key)
        if assigned is None or assigned.fetch_offset != self._told.get(key):
            return  # meanwhile the consumer wants something else of it
        if part.error_code:
            self._refused(assigned, KafkaError(part.error_code, self._why_refused(assigned, part.error_code)))
            return
        assigned.high_watermark = part.high_watermark
        assigned.log_start_offset = part.log_start_offset
        if not part.records:
            return
        try:
            last = last_of(part.records)
        except ProtocolError as error:
            self._refused(assigned, KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{assigned.partition}: {error}"))
            return
        if last is None:
            text = (
                f"{assigned.partition}: a batch is larger than the {self._limits.partition_bytes_max} bytes asked for"
            )
            self._refused(assigned, KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text))
            return
        aborted = None
        if self._limits.isolation == READ_COMMITTED:
            aborted = [Aborted(one.first_offset, one.producer_id) for one in part.aborted_transactions or ()]
        end = max(last.last_offset + 1, assigned.fetch_offset)
        fetched = Fetched(assigned.partition, part.records, assigned.fetch_offset, aborted, end, last.leader_epoch)
        self._held_bytes += fetched.size
        self._record_bytes = fetched.size / max(1, end - assigned.fetch_offset)
        assigned.add(fetched, end, self._released)
        if assigned.is_done:
            self.drop(assigned)
        else:
            self._list(key, assigned)
        self._on_news(assigned, self._node_id)

    def _why_refused(self, assigned: Assigned, code: int) -> str:
        text = f"{assigned.partition} cannot be fetched"
        if code != ErrorCode.KAFKA_STORAGE_ERROR:
            return text
        return (
            f"{text} at offset {assigned.fetch_offset}: broker {self._node_id} cannot read its disk or the tier, and "
            f"its log says why; `headrace tier verify {assigned.partition.topic}` checks what is in the tier"
        )

    def _refused(self, assigned: Assigned, error: KafkaError) -> None:
        """It leaves this session; the consumer decides what becomes of it."""
        assigned.error = error
        self.drop(assigned)
        self._on_news(assigned, self._node_id)


def _both_names(key: Key) -> tuple[str, bytes]:
    """The topic's name and id, of which a version carries one."""
    return ("", key.topic_id) if isinstance(key, TopicIdPartition) else (key.topic, ZERO_UUID)


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[str | bytes, ForgottenTopic] = {}
    for key in keys:
        if key[0] not in topics:
            name, topic_id = _both_names(key)
            topics[key[0]] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
        topics[key[0]].partitions.append(key.partition)
    return list(topics.values())
