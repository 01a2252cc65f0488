"""Who may lose its disk, by what the metadata store holds."""

from collections.abc import Iterable

from headrace.core.cluster import IsrMember, PartitionRecord
from headrace.metadata import records
from headrace.metadata.memory import MemoryData
from headrace.metadata.store import Cmp, Put
from headrace.model import TopicPartition
from headrace.sim.truth import Shrink, Truth
from headrace.system import SystemClock

T0 = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))


def truth(*isr: tuple[int, int], leader: int = 1) -> Truth:
    data = MemoryData(SystemClock())
    record = PartitionRecord((1, 2, 3), tuple(IsrMember(*member) for member in isr), leader, 0, 4)
    puts = [
        Put(records.topic_key("t"), records.encode(records.TopicRecord(TOPIC_ID.hex(), 1))),
        Put(records.partition_key(TOPIC_ID, 0), records.encode(record)),
    ]
    data.txn([Cmp(put.key, 0) for put in puts], puts, [])
    return Truth(data)


def survivors(known: Truth, losses: dict[int, int] | None = None, shrinks: Iterable[Shrink] = ()) -> set[int]:
    return known.survivors(T0, 1, losses or {}, shrinks)


def test_members_that_have_lost_nothing_since_they_joined_survive() -> None:
    known = truth((1, 10), (2, 20), (3, 30))
    assert known.leader(T0) == 1
    assert survivors(known) == {2, 3}
    assert survivors(known, {2: 20}) == {3}
    assert survivors(known, {2: 19, 3: 31}) == {2}


def test_who_is_left_out_of_a_proposal_may_be_left_out_by_the_next_record() -> None:
    known = truth((1, 10), (2, 20), (3, 30))
    assert survivors(known, shrinks=[Shrink(TOPIC_ID, 0, 4, frozenset({1, 3}))]) == {3}
    assert survivors(known, shrinks=[Shrink(TOPIC_ID, 0, 3, frozenset({1}))]) == {2, 3}


def test_a_topic_that_is_not_there_has_no_leader() -> None:
    known = truth()
    assert known.leader(TopicPartition("u", 0)) is None
    assert known.controller is None and not known.is_registered(1) and known.intact_since(1) is None
