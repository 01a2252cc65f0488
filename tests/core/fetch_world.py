"""A small broker without disk or network for the tests of fetch sessions: replicas made of numbers, and one caller."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headrace.core.cluster import ClusterImage, IsrMember, PartitionRecord
from headrace.core.epochs import EpochList
from headrace.core.fetch_answer import Answer, Fetch, handed_over
from headrace.core.fetch_entries import Entry, Replica, TopicKey
from headrace.core.fetch_session import Fetcher
from headrace.core.fetch_sessions import FetchSessions, Refusal
from headrace.core.leading import Leadership
from headrace.core.ownership_gate import Gate
from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

BY_NAME, BY_ID = 12, 13
ALICE = Fetcher("User:alice", -1, -1)
BOB = Fetcher("User:bob", -1, -1)
FOLLOWER = Fetcher("User:node", 7, 70)
BATCH_BYTES = 100


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    size: int

    def content(self, topic: str, index: int) -> bytes:
        return f"{topic}-{index}@{self.base_offset}:".encode().ljust(self.size, b".")


class FakeReplica:
    """A log as a list of batches. Offsets are moved by the test, which also tells the sessions of it."""

    def __init__(self, topic: str, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = 0
        self.log_start_offset = 0
        self.local_log_start_offset = 0
        self.is_at_hand = True
        self.log_end_offset = 0
        self.high_watermark = 0
        self.last_stable_offset = 0
        self.subscribers: Entry | None = None
        self.leadership: Leadership | None = None
        self.own: Gate | None = None
        self.error = ErrorCode.NONE
        self.read_error = ErrorCode.NONE
        self.batches: list[Batch] = []
        self.epochs = EpochList([(0, 0)])
        self.segment_start = 0
        self.reads = 0
        self.now_ms: Callable[[], int] = lambda: 0
        # What a naive leader notes of its follower, for the time since the leader epoch began.
        self.epoch_began_ms = 0
        self.caught_up_ms = 0
        self.reached = 0
        self.ends: dict[int, int] = {}

    def gate(self, current_leader_epoch: int, by_follower: bool = False, debugs: bool = False) -> ErrorCode:
        assert {by_follower, debugs} <= {False, True}
        if 0 <= current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > self.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return self.error

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def between(self, offset: int, limit_offset: int) -> list[Batch]:
        return [batch for batch in self.batches if batch.end_offset > offset and batch.base_offset < limit_offset]

    def readable_bytes(self, offset: int, limit_offset: int) -> int | None:
        if offset < self.segment_start < limit_offset:
            return None
        return sum(batch.size for batch in self.between(offset, limit_offset))

    def read(self, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool) -> Buffer | ErrorCode:
        self.reads += 1
        if self.read_error:
            return self.read_error
        if offset < self.local_log_start_offset and not self.is_at_hand:
            return b""
        found = b""
        for batch in self.between(offset, limit_offset):
            if len(found) + batch.size > bytes_max and (found or not at_least_one):
                break
            found += batch.content(self.topic, self.index)
        return found

    def append(self, records: int = 1, size: int = BATCH_BYTES) -> None:
        end = self.log_end_offset + records
        self.batches.append(Batch(self.log_end_offset, end, size))
        self.log_end_offset = end

    def commit(self) -> None:
        self.high_watermark = self.last_stable_offset = self.log_end_offset

    def lead(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.epochs.assign(leader_epoch, self.log_end_offset)
        if self.leadership is not None:
            record = self.leadership.record
            bumped = msgspec.structs.replace(
                record, leader_epoch=leader_epoch, partition_epoch=record.partition_epoch + 1
            )
            self.leadership.adopt(bumped, self.log_end_offset, self.now_ms())
            self.begin_epoch()

    def lead_follower(self, nodes: ClusterImage, now_ms: Callable[[], int]) -> None:
        """It is a leader with FOLLOWER in its ISR, from now on."""
        self.now_ms = now_ms
        members = (IsrMember(0, 10), IsrMember(FOLLOWER.replica_id, FOLLOWER.broker_epoch))
        record = PartitionRecord((0, FOLLOWER.replica_id), members, 0)
        self.leadership = Leadership(record, self.topic_id, self.index, nodes, self.log_end_offset, now_ms())
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.epoch_began_ms = self.caught_up_ms = self.now_ms()
        self.reached = 0
        self.ends = {}

    def fetched_by_follower(self, offset: int, now_ms: int) -> None:
        """As a leader that looks at every partition of every fetch."""
        self.reached = max(self.reached, offset)
        if offset >= self.log_end_offset:
            self.caught_up_ms = now_ms

    def truncate(self, offset: int) -> None:
        """As a follower, to lead again afterwards."""
        self.batches = [batch for batch in self.batches if batch.end_offset <= offset]
        self.log_end_offset = self.batches[-1].end_offset if self.batches else min(self.log_start_offset, offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.local_log_start_offset = min(self.local_log_start_offset, self.log_end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.last_stable_offset = min(self.last_stable_offset, self.high_watermark)
        self.epochs.truncate_from_end(self.log_end_offset)
        self.segment_start = min(self.segment_start, self.log_end_offset)
        self.lead(self.leader_epoch + 1)


def read(replica: Replica, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool) -> Buffer | ErrorCode:
    assert isinstance(replica, FakeReplica)
    return replica.read(offset, bytes_max, limit_offset, at_least_one)


def at_hand(replica: Replica, offset: int, is_committed: bool) -> bool:
    assert isinstance(replica, FakeReplica) and offset < replica.local_log_start_offset
    assert is_committed in (False, True)
    return replica.is_at_hand


class Ask(NamedTuple):
    """One partition of a request."""

    topic: TopicKey
    partition: int
    offset: int = 0
    max_bytes: int = 1 << 20
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


def request(
    session_id: int = 0,
    epoch: int = -1,
    asks: Iterable[Ask] = (),
    forget: Iterable[tuple[TopicKey, int]] = (),
    *,
    wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 30,
    isolation: int = 0,
    rack: str = "",
) -> FetchRequest:
    topics: dict[TopicKey, list[FetchPartition]] = {}
    for ask in asks:
        topics.setdefault(ask.topic, []).append(
            FetchPartition(
                partition=ask.partition,
                current_leader_epoch=ask.leader_epoch,
                fetch_offset=ask.offset,
                last_fetched_epoch=ask.last_fetched_epoch,
                partition_max_bytes=ask.max_bytes,
            )
        )
    forgotten: dict[TopicKey, list[int]] = {}
    for key, index in forget:
        forgotten.setdefault(key, []).append(index)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=epoch,
        rack_id=rack,
        topics=[
            FetchTopic(topic=key, partitions=partitions)
            if isinstance(key, str)
            else FetchTopic(topic_id=key, partitions=partitions)
            for key, partitions in topics.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=key, partitions=indexes)
            if isinstance(key, str)
            else ForgottenTopic(topic_id=key, partitions=indexes)
            for key, indexes in forgotten.items()
        ],
    )


Told = dict[tuple[TopicKey, int], PartitionData]


@dataclass
class Reply:
    """What a client sees."""

    error: int
    session_id: int
    parts: Told
    order: list[tuple[TopicKey, int]] = field(default_factory=list)

    @property
    def with_records(self) -> list[tuple[TopicKey, int]]:
        return [key for key in self.order if self.parts[key].records]


class World:
    """Replicas, sessions, a clock that the test moves, and the answers that went out."""

    def __init__(self, *, slots_max: int = 1000, partitions_max: int = 1_000_000, ids: Sequence[int] = ()) -> None:
        self.now_ms = 1_000_000
        self.by_name: dict[tuple[str, int], FakeReplica] = {}
        self.by_id: dict[tuple[bytes, int], FakeReplica] = {}
        self.denied: set[tuple[str, str]] = set()
        self.held_back = False  # a replication quota
        self._ids = iter(ids) if ids else iter(range(1, 2**31))
        self.sessions = FetchSessions(
            slots_max=slots_max,
            partitions_max=partitions_max,
            fetch_bytes_max=57_671_680,
            draw_id=lambda: next(self._ids),
            find_by_name=lambda topic, index: self.by_name.get((topic, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            find_by_id=lambda topic, index: self.by_id.get((topic, index), ErrorCode.UNKNOWN_TOPIC_ID),
            allowed=lambda principal, topic: (principal, topic) not in self.denied,
            throttled=lambda entry: self.held_back and entry.index == 0,
        )
        self.sessions.at_hand = at_hand
        self.replies: dict[Fetch, Reply] = {}

    # Partitions.

    def host(self, topic: str, topic_id: bytes, index: int) -> FakeReplica:
        replica = FakeReplica(topic, topic_id, index)
        self.by_name[topic, index] = self.by_id[topic_id, index] = replica
        self.answer(self.sessions.placed(topic, topic_id, index))
        return replica

    def drop(self, replica: FakeReplica) -> None:
        del self.by_name[replica.topic, replica.index]
        del self.by_id[replica.topic_id, replica.index]
        self.answer(self.sessions.removed(replica))

    def produce(self, replica: FakeReplica, records: int = 1, size: int = BATCH_BYTES) -> None:
        replica.append(records, size)
        replica.commit()
        self.answer(self.sessions.advanced(replica))

    # Requests.

    def fetch(self, body: FetchRequest, fetcher: Fetcher = ALICE, version: int = BY_NAME) -> Reply | Fetch:
        """Its reply, or the fetch that was parked."""
        verdict, woken, _ = self.sessions.receive(body, version, fetcher, self.now_ms)
        self.answer(woken)
        if isinstance(verdict, Refusal):
            return Reply(verdict.error, 0, {})
        if self.sessions.park(verdict):
            return verdict
        return self.finish(verdict)

    def reply(self, body: FetchRequest, fetcher: Fetcher = ALICE, version: int = BY_NAME) -> Reply:
        """For a request that must not be parked."""
        outcome = self.fetch(body, fetcher, version)
        assert isinstance(outcome, Reply), "parked"
        return outcome

    def parked(self, body: FetchRequest, fetcher: Fetcher = ALICE, version: int = BY_NAME) -> Fetch:
        """For a request that must be."""
        outcome = self.fetch(body, fetcher, version)
        assert isinstance(outcome, Fetch), f"answered: {outcome}"
        return outcome

    def answer(self, woken: Iterable[Fetch]) -> None:
        for fetch in woken:
            self.finish(fetch)

    def finish(self, fetch: Fetch, *, hand_over: bool = True, throttle_ms: int = 0) -> Reply:
        """Also what the timer of a parked fetch does."""
        answer = self.sessions.build(fetch, read, self.now_ms, throttle_ms)
        if hand_over:
            handed_over(answer)
        reply = self.replies[fetch] = reply_of(answer)
        self.answer(answer.woken)
        return reply

    def open(
        self,
        asks: Iterable[Ask],
        fetcher: Fetcher = ALICE,
        version: int = BY_NAME,
        *,
        isolation: int = 0,
        rack: str = "",
    ) -> Reply:
        """A session, or at least the answer to a full fetch that asks for one."""
        body = request(0, 0, asks, wait_ms=0, isolation=isolation, rack=rack)
        return self.reply(body, fetcher, version)


def reply_of(answer: Answer) -> Reply:
    parts = {(entry.topic, entry.index): data for entry, data in answer.parts}
    assert len(parts) == len(answer.parts), "a partition twice in one answer"
    return Reply(answer.error, answer.session_id, parts, list(parts))
