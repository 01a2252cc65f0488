"""The pointer to a manifest: who may move it, and from what."""

from collections.abc import Sequence

import msgspec

from headrace.controller.loading import changes_since, decode_snapshot
from headrace.controller.tier_pointer import NotPublished, Published, TierPointers
from headrace.controller.topics import NewTopic
from headrace.core.cluster import ClusterImage
from headrace.core.epochs import EpochList
from headrace.core.tier_pointer import Pointer, StoredPointer
from headrace.metadata import records
from headrace.metadata.memory import MemoryStore
from headrace.metadata.store import Cmp, OutcomeUnknown, Put, TxnResult
from tests.controller.world import check_image, started


class Doubtful(MemoryStore):
    """Does what it is told, and does not say so."""

    is_silent = False

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        done = await super().txn(when, puts, deletes)
        if self.is_silent:
            raise OutcomeUnknown
        return done


def pointer(number: int, leader_epoch: int = 0) -> Pointer:
    return Pointer(f"m{number}", leader_epoch, 0, number * 10 - 1, 0, number, number)


class Stage:
    """Partition t-0, which this node leads; `pointers` are those of a leader whose image stands still."""

    def __init__(self, store: Doubtful, image: ClusterImage, pointers: TierPointers) -> None:
        self.store = store
        self.pointers = pointers
        self.topic_id = image.topics["t"].id

    @classmethod
    async def set(cls) -> "Stage":
        store = Doubtful()
        controller = await started(store)
        await controller.create_topics([NewTopic("t", 1)])
        stale = ClusterImage(1, {})
        loaded = store.data.load(b"/")
        stale.apply(changes_since(stale, decode_snapshot(loaded.kvs)), loaded.rev)
        return cls(store, stale, TierPointers(store, stale, controller.ledger))

    async def publish(self, pointer: Pointer, known_rev: int) -> Published | NotPublished:
        return await self.pointers.publish(self.topic_id, 0, pointer.leader_epoch, pointer, known_rev)

    async def change_record(self, **changed: object) -> None:
        key = records.partition_key(self.topic_id, 0)
        (kv,) = (await self.store.load(key)).kvs
        record = msgspec.json.decode(kv.value) | changed
        assert (await self.store.txn([Cmp(key, kv.mod_rev)], [Put(key, msgspec.json.encode(record))])).ok

    async def stored(self) -> StoredPointer | None:
        return await self.pointers.read(self.topic_id, 0)


async def test_its_leader_moves_it_from_the_manifest_that_it_knows() -> None:
    stage = await Stage.set()
    first = await stage.publish(pointer(1), 0)
    assert isinstance(first, Published)
    second = await stage.publish(pointer(2), first.rev)
    assert isinstance(second, Published)
    assert await stage.publish(pointer(3), first.rev) is NotPublished.MOVED
    assert await stage.publish(pointer(3), 0) is NotPublished.MOVED
    assert await stage.stored() == StoredPointer(pointer(2), second.rev)


async def test_a_deposed_leader_that_reads_the_pointer_again_cannot_move_it() -> None:
    """T8-6."""
    stage = await Stage.set()
    first = await stage.publish(pointer(1), 0)
    assert isinstance(first, Published)
    await stage.change_record(leader=2, leader_epoch=1, partition_epoch=1)
    known = await stage.stored()
    assert known is not None and known.rev == first.rev
    assert await stage.publish(pointer(2), known.rev) is NotPublished.NOT_LEADER
    assert not await stage.pointers.is_led(stage.topic_id, 0, 0)
    assert await stage.pointers.withdraw(stage.topic_id, 0, 0, known.rev) is NotPublished.NOT_LEADER
    await stage.change_record(leader=1, leader_epoch=2, partition_epoch=2)
    assert await stage.publish(pointer(2), known.rev) is NotPublished.NOT_LEADER, "it leads again, in another epoch"
    assert await stage.stored() == known


async def test_a_change_of_the_isr_alone_is_no_hindrance() -> None:
    stage = await Stage.set()
    await stage.change_record(partition_epoch=5)
    assert isinstance(await stage.publish(pointer(1), 0), Published)


async def test_what_is_in_doubt_is_told_apart_from_what_was_refused() -> None:
    stage = await Stage.set()
    stage.store.is_silent = True
    assert await stage.publish(pointer(1), 0) is NotPublished.IN_DOUBT
    stage.store.is_silent = False
    stored = await stage.stored()
    assert stored is not None and stored.pointer == pointer(1)


async def test_a_watch_and_a_snapshot_bring_the_same_pointers_into_the_image() -> None:
    store = MemoryStore()
    controller = await started(store)
    await controller.create_topics([NewTopic("t", 1)])
    topic_id, pointers = controller.image.topics["t"].id, controller.tier_pointers
    assert await pointers.announce(topic_id, 0, 0) and await pointers.announce(topic_id, 0, 0)
    assert not await pointers.announce(topic_id, 0, 1)
    published = await pointers.publish(topic_id, 0, 0, pointer(1), 0)
    assert isinstance(published, Published)
    await controller.feed.reached(published.rev)
    assert controller.image.tier == {(topic_id, 0): StoredPointer(pointer(1), published.rev)}
    assert controller.image.tier_topics.keys() == {topic_id}
    check_image(controller.image, store.data)
    assert isinstance(await pointers.withdraw(topic_id, 0, 0, published.rev), Published)
    assert await pointers.forget_topic(topic_id, controller.image.tier_topics[topic_id])
    await controller.feed.reached(store.data.rev)
    assert not controller.image.tier and not controller.image.tier_topics
    check_image(controller.image, store.data)


def test_a_replica_knows_by_one_epoch_whether_the_tier_has_its_records() -> None:
    known = Pointer("m", 3, 0, 19, 2, 1, 1)
    assert known.is_of(EpochList([(0, 0), (2, 15)]), 20)
    assert not known.is_of(EpochList([(0, 0), (2, 15)]), 19), "it ends before"
    assert not known.is_of(EpochList([(0, 0), (2, 15), (3, 19)]), 30), "its record there is another leader's"
    assert not known.is_of(EpochList([(0, 0)]), 30)
