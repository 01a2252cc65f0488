"""A leader's proposal to change an ISR, judged check by check in the order in which they are made."""

import pytest

from headrace.core.alter_partition import judge_alter, judge_sender
from headrace.core.cluster import (
    BrokerPut,
    ClusterImage,
    IsrMember,
    OfflineReplicas,
    PartitionRecord,
    RegisteredBroker,
    TopicPut,
)
from headrace.errors import ErrorCode

T = bytes(range(16))
RECORD = PartitionRecord((0, 1, 2), (IsrMember(0, 10), IsrMember(1, 5)), 0, leader_epoch=3, partition_epoch=7)
SAME = RECORD.isr
GROWN = (*SAME, IsrMember(2, 12))


def cluster(record: PartitionRecord = RECORD, *, leaving: bool = False) -> ClusterImage:
    image = ClusterImage(0, {})
    image.apply(
        [
            TopicPut("t", T, [record], [20], 20),
            *(BrokerPut(RegisteredBroker(n, 10 + n, "h", 9092, None, leaving and n == 2)) for n in range(3)),
        ],
        rev=20,
    )
    return image


def judge(
    image: ClusterImage,
    new_isr: tuple[IsrMember, ...] = GROWN,
    *,
    sender: tuple[int, int] = (0, 10),
    topic_id: bytes = T,
    index: int = 0,
    epochs: tuple[int, int] = (3, 7),
    recovering: bool = False,
    resume: bool = False,
) -> PartitionRecord | ErrorCode:
    return judge_alter(image, *sender, topic_id, index, epochs[0], new_isr, recovering, epochs[1], resume)


def test_a_good_proposal_is_the_next_record_and_keeps_the_entries_that_stay() -> None:
    told = (IsrMember(0, 10), IsrMember(1, 11), IsrMember(2, 12))
    written = judge(cluster(), told)
    assert written == PartitionRecord((0, 1, 2), (*SAME, IsrMember(2, 12)), 0, leader_epoch=3, partition_epoch=8)
    shrunk = judge(cluster(), (IsrMember(0, -1),))
    assert isinstance(shrunk, PartitionRecord) and shrunk.isr == (IsrMember(0, 10),)


def test_a_sender_is_known_by_its_registration() -> None:
    image = cluster()
    assert judge_sender(image, 0, 10) == ErrorCode.NONE
    assert judge_sender(image, 0, 9) == judge_sender(image, 5, 20) == ErrorCode.STALE_BROKER_EPOCH
    assert judge_sender(image, 0, 21) == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("epochs", "sender", "code"),
    [
        ((4, 7), (0, 10), ErrorCode.NOT_CONTROLLER),
        ((3, 8), (0, 10), ErrorCode.NOT_CONTROLLER),
        ((2, 8), (0, 10), ErrorCode.NOT_CONTROLLER),
        ((2, 7), (0, 10), ErrorCode.FENCED_LEADER_EPOCH),
        ((2, 7), (1, 11), ErrorCode.FENCED_LEADER_EPOCH),
        ((3, 6), (1, 11), ErrorCode.INVALID_REQUEST),
        ((3, 6), (0, 10), ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_epochs_are_compared_in_order(epochs: tuple[int, int], sender: tuple[int, int], code: ErrorCode) -> None:
    assert judge(cluster(), epochs=epochs, sender=sender) == code


def test_what_is_not_there_is_not_altered() -> None:
    assert judge(cluster(), topic_id=bytes(16)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert judge(cluster(), index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "new_isr",
    [
        (IsrMember(0, 10), IsrMember(4, 14)),
        (IsrMember(1, 11),),
        (),
        (IsrMember(0, 10), IsrMember(0, 10)),
        (IsrMember(0, 10), IsrMember(2, -1)),
    ],
)
def test_an_isr_that_cannot_be_is_an_invalid_request(new_isr: tuple[IsrMember, ...]) -> None:
    assert judge(cluster(), new_isr) == ErrorCode.INVALID_REQUEST


def test_a_partition_recovers_once_and_alone() -> None:
    alone = (IsrMember(0, 10),)
    assert judge(cluster(), alone, recovering=True) == ErrorCode.INVALID_REQUEST
    recovering = PartitionRecord((0, 1, 2), alone, 0, leader_epoch=3, partition_epoch=7, recovering=True)
    assert judge(cluster(recovering), recovering=True) == ErrorCode.INVALID_REQUEST
    written = judge(cluster(recovering), alone)
    assert isinstance(written, PartitionRecord) and not written.recovering and written.partition_epoch == 8


def test_only_a_live_member_of_the_present_registration_is_added() -> None:
    assert judge(cluster(), (*SAME, IsrMember(2, 11))) == ErrorCode.INELIGIBLE_REPLICA
    assert judge(cluster(leaving=True)) == ErrorCode.INELIGIBLE_REPLICA
    image = cluster()
    image.apply([OfflineReplicas(2, frozenset({(T, 0)}))])
    assert judge(image) == ErrorCode.INELIGIBLE_REPLICA


def test_a_proposal_of_what_is_committed_writes_nothing_unless_it_resumes() -> None:
    image = cluster()
    assert judge(image, SAME) is RECORD
    resumed = judge(image, SAME, resume=True)
    assert isinstance(resumed, PartitionRecord)
    assert (resumed.isr, resumed.partition_epoch, resumed.leader_epoch) == (SAME, 8, 3)
