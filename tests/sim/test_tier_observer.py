"""What an observer tells of a tier: what is named and not there, there and not named, or not what its row says."""

from headrace.core.cluster import PartitionRecord
from headrace.core.tier_pointer import Pointer
from headrace.core.tier_rows import Manifest
from headrace.metadata import records
from headrace.metadata.store import Cmp, Put
from headrace.model import TopicPartition
from headrace.sim.history import Event, History
from headrace.sim.tier_history import Damaged, Dangling, Orphan
from headrace.sim.tier_observer import EXPIRY_S_MAX, TierObserver
from headrace.sim.world import World
from headrace.tier import layout
from headrace.tier.manifest import encode
from tests.sim.test_truth import TOPIC_ID
from tests.tier.rows import Stored, stored_segment

T0 = TopicPartition("t", 0)
KEY = layout.manifest_key("c", TOPIC_ID, 0, layout.ManifestName(1, 1, "b" * 32))


def segment_key(segment: Stored) -> str:
    name = layout.SegmentName(segment.row.base_offset, segment.row.leader_epoch, segment.row.id)
    return layout.segment_key("c", TOPIC_ID, 0, name)


class Stage:
    """A world in which one segment of a topic is in the tier, and nobody lives."""

    def __init__(self) -> None:
        self.world = World(1)
        self.history = History(self.world.loop.time)
        self.observer = TierObserver(self.world, self.history, [T0])
        self.objects = self.world.objects.bucket.objects
        self.segment = stored_segment()
        self.objects[segment_key(self.segment)] = bytes(self.segment.content)
        self.objects[KEY] = encode(Manifest(TOPIC_ID.hex(), 0, 1, 1, 0, (self.segment.row,)))
        self.put("t", TOPIC_ID)

    def put(self, name: str, topic_id: bytes) -> None:
        record = PartitionRecord((1,), (), 1)
        pointer = Pointer(KEY, 1, 0, 19, 2, 100, 1)
        puts = [
            Put(records.topic_key(name), records.encode(records.TopicRecord(topic_id.hex(), 1))),
            Put(records.partition_key(topic_id, 0), records.encode(record)),
            Put(records.pointer_key(topic_id, 0), records.encode(pointer)),
        ]
        self.world.data.txn([Cmp(put.key, 0) for put in puts], puts, [])

    def events(self) -> list[Event]:
        async def main() -> None:
            self.observer.start()
            await self.world.passing(0.2)
            await self.observer.until_clean()
            await self.observer.verify()

        try:
            self.world.loop.run(main(), 2 * EXPIRY_S_MAX)
            assert self.world.loop.failures == []
        finally:
            self.world.close()
        return self.history.events


def test_a_good_tier_is_nothing_to_tell_of() -> None:
    assert Stage().events() == []


def test_a_manifest_or_a_segment_that_is_named_and_not_there() -> None:
    stage = Stage()
    del stage.objects[segment_key(stage.segment)]
    assert [event[1:] for event in stage.events()] == [(T0, stage.segment.row.id)]
    stage = Stage()
    del stage.objects[KEY]
    first = stage.events()[0]
    assert isinstance(first, Dangling) and first.key == KEY


def test_what_nothing_names_and_what_is_of_no_topic() -> None:
    stage = Stage()
    orphan = layout.segment_key("c", TOPIC_ID, 0, layout.SegmentName(0, 0, "9" * 32))
    stage.objects[orphan] = b"x"
    kv = stage.world.data.kvs[records.topic_key("t")]
    found = stage.events()
    assert [event.key for event in found if isinstance(event, Orphan)] == [orphan]
    stage = Stage()
    stage.world.data.txn([Cmp(kv.key, kv.mod_rev)], [], [kv.key])
    pointer = records.pointer_key(TOPIC_ID, 0).decode()
    assert {event.key for event in stage.events() if isinstance(event, Orphan)} == {
        pointer,
        KEY,
        segment_key(stage.segment),
    }


def test_what_is_gone_in_time_is_no_orphan() -> None:
    stage = Stage()
    orphan = layout.segment_key("c", TOPIC_ID, 0, layout.SegmentName(0, 0, "9" * 32))
    stage.objects[orphan] = b"x"
    loop = stage.world.loop
    loop.at(EXPIRY_S_MAX / 2, loop.outside, lambda: stage.objects.pop(orphan))
    assert stage.events() == []


def test_a_segment_that_was_damaged() -> None:
    stage = Stage()
    content = bytearray(stage.segment.content)
    content[70] ^= 1
    stage.objects[segment_key(stage.segment)] = bytes(content)
    [damaged] = stage.events()
    assert isinstance(damaged, Damaged) and "checksum" in damaged.problem
