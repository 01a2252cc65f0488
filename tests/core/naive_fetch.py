"""Fetch sessions the slow way: every answer looks at every partition, and nothing is remembered but what was told.

This is the O(N) twin that the real sessions are compared with. It shares with them only the fake replicas.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.core.fetch_entries import Entry, TopicKey
from headrace.core.fetch_session import Fetcher
from headrace.errors import ErrorCode
from headrace.wire.messages.fetch import FetchRequest, PartitionData
from tests.core.fetch_world import FakeReplica, World

Key = tuple[TopicKey, int]
NOBODY_HURRIES = (3, 29, 100)


class NaiveFault(NamedTuple):
    error: int
    diverging: tuple[int, int] | None = None


@dataclass
class NaiveEntry:
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    told: tuple[int, int] = (-1, -1)


@dataclass
class NaiveFetch:
    bytes_min: int
    bytes_max: int
    wait_ms: int
    was_complete: bool = False


@dataclass
class NaiveSession:
    world: World
    fetcher: Fetcher
    by_id: bool
    isolation: int = 0
    entries: dict[Key, NaiveEntry] = field(default_factory=dict)
    verdicts: dict[Key, tuple[FakeReplica | None, bool]] = field(default_factory=dict)

    def request(self, body: FetchRequest, acl_changed: bool) -> NaiveFetch:
        looked_up_again = acl_changed or body.isolation_level != self.isolation
        self.isolation = body.isolation_level
        for topic in body.topics:
            key: TopicKey = topic.topic_id if self.by_id else topic.topic
            for asked in topic.partitions:
                entry = NaiveEntry(
                    asked.fetch_offset,
                    asked.partition_max_bytes,
                    asked.current_leader_epoch,
                    asked.last_fetched_epoch,
                )
                known = self.entries.get((key, asked.partition))
                if known is not None:
                    entry.told = known.told
                self.entries[key, asked.partition] = entry
        for forgotten in body.forgotten_topics_data:
            key = forgotten.topic_id if self.by_id else forgotten.topic
            for index in forgotten.partitions:
                self.entries.pop((key, index), None)
                self.verdicts.pop((key, index), None)
        if looked_up_again:
            self.verdicts.clear()
        bytes_max = max(min(body.max_bytes, 57_671_680), 0)
        return NaiveFetch(min(body.min_bytes, bytes_max), bytes_max, body.max_wait_ms)

    # One partition.

    def replica(self, key: Key) -> FakeReplica | None:
        topic, index = key
        return (
            self.world.by_name.get((topic, index)) if isinstance(topic, str) else self.world.by_id.get((topic, index))
        )

    def allowed(self, key: Key) -> bool:
        """Asked once for every place that the partition has had, and again when a request comes after a change."""
        replica, name = self.replica(key), key[0]
        if isinstance(name, bytes):
            if replica is None:
                return True
            name = replica.topic
        if key not in self.verdicts or self.verdicts[key][0] is not replica:
            self.verdicts[key] = (replica, (self.fetcher.principal, name) not in self.world.denied)
        return self.verdicts[key][1]

    def fault(self, key: Key) -> NaiveFault | None:
        entry, replica = self.entries[key], self.replica(key)
        if not self.allowed(key):
            return NaiveFault(29)
        if replica is None:
            return NaiveFault(100 if self.by_id else 3)
        if entry.leader_epoch != -1 and entry.leader_epoch != replica.leader_epoch:
            return NaiveFault(74 if entry.leader_epoch < replica.leader_epoch else 75)
        if replica.error:
            return NaiveFault(replica.error)
        if entry.last_fetched_epoch != -1:
            epoch, end = replica.epochs.end_offset_for(entry.last_fetched_epoch, replica.log_end_offset)
            if epoch == -1 or end == -1 or entry.offset < replica.log_start_offset:
                return NaiveFault(1)
            if epoch < entry.last_fetched_epoch or end < entry.offset:
                return NaiveFault(0, (epoch, end))
        if entry.offset < replica.log_start_offset or entry.offset > replica.log_end_offset:
            return NaiveFault(1)
        if self.fetcher.replica_id >= 0 and entry.offset < replica.local_log_start_offset:
            return NaiveFault(109)
        return None

    def limit(self, replica: FakeReplica) -> int:
        if self.fetcher.replica_id >= 0:
            return replica.log_end_offset
        return replica.last_stable_offset if self.isolation == 1 else replica.high_watermark

    def held(self, key: Key) -> bool:
        return self.fetcher.replica_id >= 0 and self.world.held_back and key[1] == 0

    def has_data(self, key: Key) -> bool:
        replica = self.replica(key)
        return replica is not None and self.fault(key) is None and self.entries[key].offset < self.limit(replica)

    def readable(self, key: Key) -> bool:
        return self.has_data(key) and not self.held(key)

    def is_remote(self, key: Key) -> bool:
        replica = self.replica(key)
        return replica is not None and self.entries[key].offset < replica.local_log_start_offset

    def counted(self, key: Key) -> int:
        """At least one byte, if it may return any."""
        replica, entry = self.replica(key), self.entries[key]
        assert replica is not None
        limit = self.limit(replica)
        if entry.offset < replica.local_log_start_offset:
            return 1 << 40 if replica.is_at_hand else 0
        if entry.offset < replica.segment_start < limit:
            return 1 << 40
        return min(max(sum(batch.size for batch in replica.between(entry.offset, limit)), 1), entry.max_bytes)

    def records(self, key: Key, at_least_one: bool) -> bytes | ErrorCode:
        """What it would return in an answer without a budget."""
        if not self.readable(key):
            return b""
        replica, entry = self.replica(key), self.entries[key]
        assert replica is not None
        found = replica.read(entry.offset, entry.max_bytes, self.limit(replica), at_least_one)
        return found if isinstance(found, ErrorCode) else bytes(found)

    # The whole session.

    def available_bytes(self) -> int:
        return sum(self.counted(key) for key in self.entries if self.readable(key))

    def complete(self, fetch: NaiveFetch) -> bool:
        faults = [fault for key in self.entries if (fault := self.fault(key)) is not None]
        return (
            fetch.wait_ms <= 0
            or len(faults) == len(self.entries)
            or any(fault.error not in NOBODY_HURRIES for fault in faults)
            or self.available_bytes() >= fetch.bytes_min
        )

    def news(self, key: Key) -> bool:
        """Whether an incremental answer must hold it, records aside."""
        replica = self.replica(key)
        if self.fault(key) is not None or replica is None:
            return True
        return self.entries[key].told != (replica.high_watermark, replica.log_start_offset)

    def check(self, parts: dict[Key, PartitionData], *, full: bool, bytes_max: int) -> None:
        """Compares an answer with what has to be in it."""
        served_beyond_limits = 0
        sent = 0
        for key in self.entries:
            part = parts.get(key)
            readable = self.readable(key)
            if part is None:
                assert not full and not self.news(key), f"{key} is missing"
                continue
            assert part.records is not None
            assert full or self.news(key) or readable, f"{key} is no news"
            if readable and part.error_code:
                assert part.error_code == self.records(key, at_least_one=True)
                self._check_offsets(key, part, told=False)
                continue
            self._check_offsets(key, part, told=True)
            if part.records:
                sent += len(part.records)
                served_beyond_limits += not self._within_limits(key, bytes(part.records))
        assert parts.keys() <= self.entries.keys()
        assert served_beyond_limits <= 1
        if sent > bytes_max:
            assert sum(1 for part in parts.values() if part.records) == 1
        self._check_nobody_was_forgotten(parts, bytes_max)

    def _check_offsets(self, key: Key, part: PartitionData, *, told: bool) -> None:
        fault, replica = self.fault(key), self.replica(key)
        offsets = (part.high_watermark, part.last_stable_offset, part.log_start_offset)
        if not told or (fault is not None and fault.error):
            expected = (-1, -1, -1)
            if told and fault is not None and fault.error == 109 and replica is not None:
                expected = (replica.high_watermark, -1, replica.log_start_offset)
            assert offsets == expected
            assert not part.records
            assert not told or (fault is not None and part.error_code == fault.error)
            return
        assert replica is not None
        assert offsets == (replica.high_watermark, replica.last_stable_offset, replica.log_start_offset)
        assert part.error_code == 0
        diverging = part.diverging_epoch and (part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
        assert diverging == (fault.diverging if fault is not None else None)

    def _within_limits(self, key: Key, records: bytes) -> bool:
        """A prefix of what it may return; a budget may have cut it shorter."""
        allowed = self.records(key, at_least_one=False)
        if isinstance(allowed, bytes) and records and allowed.startswith(records):
            return True
        assert self.records(key, at_least_one=True) == records, f"{key} returned something else"
        return False

    def _check_nobody_was_forgotten(self, parts: dict[Key, PartitionData], bytes_max: int) -> None:
        returned = {key for key, part in parts.items() if part.records}
        willing = {
            key for key in self.entries if (found := self.records(key, at_least_one=True)) and isinstance(found, bytes)
        }
        assert bool(returned) == bool(willing)
        if bytes_max >= 1 << 20:  # more than these replicas hold: nobody had to wait for the next answer
            assert {key for key in willing if self.records(key, at_least_one=False)} <= returned

    def told(self, parts: dict[Key, PartitionData]) -> None:
        for key, part in parts.items():
            if key in self.entries:
                is_cut = part.diverging_epoch is not None and part.diverging_epoch.epoch >= 0
                hw = -1 if is_cut else part.high_watermark
                self.entries[key].told = (-1, -1) if part.error_code else (hw, part.log_start_offset)


def keys_of(entries: Iterable[Entry | Key]) -> set[Key]:
    return {(entry.topic, entry.index) if isinstance(entry, Entry) else entry for entry in entries}


def sorted_like(order: list[tuple[TopicKey, int]], twin: NaiveSession) -> list[tuple[TopicKey, int]]:
    """A full answer groups by topic; within a topic, and of topics, it keeps the order of the request."""
    return sorted(order, key=list(twin.entries).index)
