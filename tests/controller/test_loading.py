"""From snapshots of the store to changes of the image, and what of them is left over."""

from headrace.controller.loading import Loaded, StoredPartition, changes_since, decode_snapshot, leftover
from headrace.controller.topics import NewTopic
from headrace.core.cluster import (
    BrokerPut,
    ClusterImage,
    ControllerIs,
    IsrMember,
    PartitionPut,
    PartitionRecord,
    TopicGone,
)
from headrace.metadata.memory import MemoryStore
from headrace.metadata.records import UnfinishedRecord
from tests.controller.world import started

ID = bytes(range(16))
RECORD = PartitionRecord(replicas=(1,), isr=(IsrMember(1, 2),), leader=1)


def test_only_records_that_no_topic_counts_are_left_over() -> None:
    loaded = Loaded(topics={"t": (ID, 3, 9)}, partitions={ID: {n: StoredPartition(RECORD, 10 + n) for n in range(5)}})
    assert leftover(loaded, ID, UnfinishedRecord(0, 9)) == {3: 13, 4: 14}
    assert leftover(loaded, ID, UnfinishedRecord(4, 9)) == {4: 14}
    assert leftover(loaded, bytes(16), UnfinishedRecord(0, 9)) == {}
    loaded.topics.clear()
    assert leftover(loaded, ID, UnfinishedRecord(0, 2)) == {0: 10, 1: 11}


async def test_equal_partitions_are_decoded_into_one_object() -> None:
    store = MemoryStore()
    await (await started(store)).create_topics([NewTopic("t", 300)])
    loaded = decode_snapshot(store.data.load(b"/").kvs)
    (partitions,) = loaded.partitions.values()
    assert len({id(partition.record) for partition in partitions.values()}) == 1


async def test_an_image_follows_a_topic_through_everything_that_happens_to_it() -> None:
    store = MemoryStore()
    controller = await started(store)
    image = ClusterImage(1, {})

    def follow() -> list[object]:
        changes = list(changes_since(image, decode_snapshot(store.data.load(b"/").kvs)))
        image.apply(changes)
        assert list(changes_since(image, decode_snapshot(store.data.load(b"/").kvs))) == []
        return list(changes)

    follow()
    assert image.cluster_id == controller.image.cluster_id
    await controller.create_topics([NewTopic("t", 2)])
    assert len(follow()) == 1
    controller = await started(MemoryStore(store.data))
    assert [type(change) for change in follow()] == [BrokerPut, ControllerIs, PartitionPut, PartitionPut]
    await controller.delete_topics([image.topics["t"].id])
    await controller.create_topics([NewTopic("t", 1, settings={"retention.ms": "5"})])
    assert isinstance(follow()[0], TopicGone)
    assert image.topics["t"].config.retention_ms == 5
