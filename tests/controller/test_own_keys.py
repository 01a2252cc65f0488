"""Generations that outlive their owners: keys of the store in the image, and the sweep of what belongs to nothing."""

from headrace.controller.loading import changes_since, decode_snapshot
from headrace.controller.topics import NewTopic
from headrace.core.cluster import ClusterImage, Owned, OwnedRecord
from headrace.metadata.memory import MemoryStore
from headrace.metadata.store import Cmp
from tests.controller.world import started
from tests.net.loops import until

RECORD = OwnedRecord(generation=3, principal="User:me", holder="h", retain_ms=1000)


async def test_a_watch_and_a_snapshot_bring_the_same_keys_into_the_image() -> None:
    store = MemoryStore()
    controller = await started(store)
    keys, watched = controller.own_keys, controller.image
    fence = keys.office_fence(controller.ledger.epoch)
    assert fence is not None
    snapshot = ClusterImage(9, {})

    async def look() -> None:
        """Both images as the store is now."""
        loaded = store.data.load(b"/")
        snapshot.apply(changes_since(snapshot, decode_snapshot(loaded.kvs)), loaded.rev)
        await controller.feed.reached(loaded.rev)
        assert snapshot.owned == watched.owned
        assert snapshot.owned_count == watched.owned_count == sum(len(groups) for groups in watched.owned.values())

    first = await keys.put("g/1", "a name", RECORD, 0, fence)
    await look()
    assert watched.owned == {"a name": {"g/1": Owned(RECORD, first.rev)}}
    assert not (await keys.put("g/1", "a name", RECORD, 0, fence)).ok, "it is there already"
    second = await keys.put("g/1", "a name", RECORD, first.rev, fence)
    assert (await keys.put("other", "a name", RECORD, 0, fence)).ok
    await look()
    assert watched.owned_of("g/1", "a name") == Owned(RECORD, second.rev)
    assert await keys.read("g/1", "a name") == (RECORD, second.rev)
    assert (await keys.delete("g/1", "a name", second.rev, fence)).ok
    await look()
    assert watched.owned_of("g/1", "a name") is None and watched.owned_count == 1
    assert await keys.read("g/1", "a name") == (None, 0)


async def test_only_the_leader_and_the_controller_can_write() -> None:
    store = MemoryStore()
    controller = await started(store)
    await controller.create_topics([NewTopic("t", 1)])
    keys, topic = controller.own_keys, controller.image.topics["t"]
    epoch = topic.partitions[0].leader_epoch
    fence = keys.partition_fence(topic.id, 0, epoch)
    assert fence is not None and fence == await keys.read_partition_fence(topic.id, 0, epoch)
    assert keys.partition_fence(topic.id, 0, epoch + 1) is None
    assert await keys.read_partition_fence(topic.id, 0, epoch + 1) is None
    assert keys.partition_fence(bytes(16), 0, epoch) is None
    assert not (await keys.put("g", "t-0", RECORD, 0, Cmp(fence.key, fence.rev + 1))).ok
    assert (await keys.put("g", "t-0", RECORD, 0, fence)).ok
    assert keys.office_fence(controller.ledger.epoch + 1) is None


async def test_what_belongs_to_no_topic_is_swept_and_names_are_not() -> None:
    store = MemoryStore()
    controller = await started(store)
    await controller.create_topics([NewTopic("t", 1)])
    topic = controller.image.topics["t"]
    fence = controller.own_keys.office_fence(controller.ledger.epoch)
    assert fence is not None
    of_topic = OwnedRecord(generation=3, principal="User:me", holder="h", retain_ms=1000, topic_id=topic.id.hex())
    await controller.own_keys.put("g", "t-0", of_topic, 0, fence)
    await controller.own_keys.put("g", "a name", RECORD, 0, fence)
    await until(lambda: controller.image.owned_count == 2)
    await controller.delete_topics([topic.id])
    await until(lambda: list(controller.image.owned) == ["a name"])
