"""What the metadata store of a world holds, whatever any node knows of it: who leads, who decides, who is in an ISR."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.core.cluster import NO_LEADER, BrokerRecord, PartitionRecord
from headrace.core.tier_pointer import Pointer
from headrace.metadata import records
from headrace.metadata.memory import MemoryData
from headrace.model import TopicPartition


class Shrink(NamedTuple):
    """An ISR that a leader has proposed: it may be written at any time, also when the leader is dead."""

    topic_id: bytes
    partition: int
    partition_epoch: int
    members: frozenset[int]


class Truth:
    def __init__(self, data: MemoryData) -> None:
        self._data = data

    @property
    def rev(self) -> int:
        return self._data.rev

    @property
    def controller(self) -> int | None:
        found = self._data.kvs.get(records.CONTROLLER_KEY)
        if found is None:
            return None
        return records.decode(records.ControllerRecord, found.key, found.value).broker_id

    def is_registered(self, node_id: int) -> bool:
        return records.broker_key(node_id) in self._data.kvs

    def topic_id(self, topic: str) -> bytes | None:
        found = self._data.kvs.get(records.topic_key(topic))
        return None if found is None else bytes.fromhex(records.decode(records.TopicRecord, found.key, found.value).id)

    def partition(self, partition: TopicPartition) -> PartitionRecord | None:
        topic_id = self.topic_id(partition.topic)
        found = None
        if topic_id is not None:
            found = self._data.kvs.get(records.partition_key(topic_id, partition.partition))
        return None if found is None else records.decode(PartitionRecord, found.key, found.value)

    def is_topic(self, topic_id: bytes) -> bool:
        return any(
            bytes.fromhex(records.decode(records.TopicRecord, key, found.value).id) == topic_id
            for key, found in self._data.kvs.items()
            if key.startswith(records.TOPICS)
        )

    def pointer(self, topic_id: bytes, index: int) -> Pointer | None:
        """To the manifest that is in force."""
        found = self._data.kvs.get(records.pointer_key(topic_id, index))
        return None if found is None else records.decode(Pointer, found.key, found.value)

    def pointers(self) -> list[tuple[bytes, Pointer]]:
        """Of all partitions, by their keys."""
        return [
            (key, records.decode(Pointer, key, found.value))
            for key, found in self._data.kvs.items()
            if key.startswith(records.TIER)
        ]

    def tier_topics(self) -> list[tuple[bytes, bytes]]:
        """Keys and ids of topics of which there may be objects."""
        return [
            (key, records.topic_id_in(key, records.TIER_TOPICS))
            for key in self._data.kvs
            if key.startswith(records.TIER_TOPICS)
        ]

    def leader(self, partition: TopicPartition) -> int | None:
        record = self.partition(partition)
        return None if record is None or record.leader == NO_LEADER else record.leader

    def intact_since(self, node_id: int) -> int | None:
        """As the registration says; None if there is none."""
        found = self._data.kvs.get(records.broker_key(node_id))
        if found is None:
            return None
        return records.decode(BrokerRecord, found.key, found.value).intact_since or found.create_rev

    def survivors(
        self, partition: TopicPartition, without: int, losses: dict[int, int], shrinks: Iterable[Shrink]
    ) -> set[int]:
        """Members of the ISR, as far as an acknowledgement counts on them, that have everything and keep it.

        `losses`: the revision up to which each node may have lost something. An entry that was made later is whole.
        """
        record = self.partition(partition)
        topic_id = self.topic_id(partition.topic)
        if record is None:
            return set()
        members = {m.broker_id for m in record.isr if m.broker_epoch > losses.get(m.broker_id, -1)}
        for shrink in shrinks:
            is_of_it = (shrink.topic_id, shrink.partition) == (topic_id, partition.partition)
            if is_of_it and shrink.partition_epoch >= record.partition_epoch:
                members &= shrink.members
        return members - {without}
