"""The offsets that a group has committed, and those that wait for the end of a transaction.

Values are kept as the log holds them: there may be millions, and few are ever asked for.

The last one in the log counts, so that compaction, which keeps the last, changes nothing. Each commit therefore takes
a position when it is appended: what waits for a transaction loses to whatever was appended after it.
"""

from collections.abc import Iterable, Iterator

from headrace.wire.group_records import NO_EXPIRY, CommittedOffset, offset_key_prefix, read_offset_value

TopicPartition = tuple[str, int]


class GroupOffsets:
    __slots__ = ("_group_id", "_next_position", "_positions", "_prefixes", "by_topic", "in_flight", "pending")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.by_topic: dict[str, dict[int, bytes]] = {}
        self.pending: dict[int, dict[TopicPartition, tuple[int, bytes]]] = {}
        """By producer: what its open transaction would commit."""
        self.in_flight: dict[TopicPartition, int] = {}
        """How many plain commits are in the log, and not known to be committed yet."""
        self._next_position = 0
        self._positions: dict[TopicPartition, int] = {}
        """Of offsets that a transaction has committed: a plain commit that is told late may be older."""
        self._prefixes: dict[str, bytes] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_topic.values()))

    def __bool__(self) -> bool:
        return bool(self.by_topic or self.pending or self.in_flight)

    def key_prefix(self, topic: str) -> bytes:
        """What the keys of a topic's records begin with."""
        prefix = self._prefixes.get(topic)
        if prefix is None:
            prefix = self._prefixes[topic] = offset_key_prefix(self._group_id, topic)
        return prefix

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """ProtocolError when the log holds something that cannot be read."""
        value = self.by_topic.get(topic, {}).get(partition)
        return None if value is None else read_offset_value(value)

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether a transaction that is still open has something to say about it."""
        return any((topic, partition) in waiting for waiting in self.pending.values())

    # Plain commits: appended, and later committed.

    def appended(self, partitions: Iterable[TopicPartition]) -> int:
        """Their position; what waits for transactions at these partitions has lost."""
        self._next_position += 1
        for key in partitions:
            self.in_flight[key] = self.in_flight.get(key, 0) + 1
            if self.pending:
                self._supersede(key, self._next_position)
        return self._next_position

    def commit(self, topic: str, partition: int, value: bytes | None, position: int) -> None:
        """What was appended counts now. None is a deletion."""
        left = self.in_flight.get((topic, partition), 0) - 1
        if left > 0:
            self.in_flight[topic, partition] = left
        else:
            self.in_flight.pop((topic, partition), None)
        if self._positions and self._positions.get((topic, partition), 0) > position:
            return
        if value is None:
            self.remove(topic, partition)
        else:
            self.by_topic.setdefault(topic, {})[partition] = value

    def remove(self, topic: str, partition: int) -> None:
        """Also one that is not there."""
        partitions = self.by_topic.get(topic)
        if partitions is None:
            return
        partitions.pop(partition, None)
        if self._positions:
            self._positions.pop((topic, partition), None)
        if not partitions:
            del self.by_topic[topic]
            self._prefixes.pop(topic, None)

    # Transactions.

    def pend(self, producer_id: int, values: Iterable[tuple[str, int, bytes | None]]) -> None:
        """Appended in the producer's transaction. What it said before about the same partitions is replaced."""
        self._next_position += 1
        waiting = self.pending.setdefault(producer_id, {})
        for topic, partition, value in values:
            if value is None:
                waiting.pop((topic, partition), None)
            else:
                waiting[topic, partition] = self._next_position, value

    def end(self, producer_id: int, is_committed: bool) -> int:
        """The transaction is over. Returns how many offsets it has committed."""
        waiting = self.pending.pop(producer_id, {})
        if not is_committed:
            return 0
        for key, (position, value) in waiting.items():
            if self._positions.get(key, 0) < position:
                self._positions[key] = position
                self.by_topic.setdefault(key[0], {})[key[1]] = value
        return len(waiting)

    def _supersede(self, key: TopicPartition, position: int) -> None:
        for producer_id, waiting in list(self.pending.items()):
            if key in waiting and waiting[key][0] < position:
                del waiting[key]
                if not waiting:
                    del self.pending[producer_id]

    # Deletion and expiry.

    def all_keys(self) -> set[TopicPartition]:
        """Also those that are only on their way: all of which the log holds something."""
        kept = {(topic, partition) for topic, partitions in self.by_topic.items() for partition in partitions}
        return kept.union(self.in_flight, *self.pending.values())

    def expired(
        self, now_ms: int, retention_ms: int, unused_since_ms: int | None, kept: frozenset[str]
    ) -> Iterator[TopicPartition]:
        """By the wall clock: since the group is unused, or, if that is not said, since each commit.

        Topics in `kept` are in use. An expiry that a client asked for counts whatever the group does.
        """
        for topic, partitions in self.by_topic.items():
            if topic in kept:
                continue
            for partition, value in partitions.items():
                committed = read_offset_value(value)
                if committed.expire_ms != NO_EXPIRY:
                    is_over = now_ms >= committed.expire_ms
                else:
                    since_ms = committed.commit_ms if unused_since_ms is None else unused_since_ms
                    is_over = now_ms - since_ms >= retention_ms
                key = topic, partition
                if is_over and key not in self.in_flight and not self.is_unstable(topic, partition):
                    yield topic, partition
