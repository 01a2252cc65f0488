"""What the controller makes of a leader's proposal to change an ISR."""

from collections.abc import Sequence

import msgspec

from headrace.core.cluster import ClusterImage, IsrMember, PartitionRecord
from headrace.errors import ErrorCode

UNKNOWN_BROKER_EPOCH = -1


def judge_sender(image: ClusterImage, broker_id: int, broker_epoch: int) -> ErrorCode:
    """The code of the whole request. A registration that this image has not seen yet is no stale one."""
    broker = image.brokers.get(broker_id)
    if broker is not None and broker.epoch == broker_epoch:
        return ErrorCode.NONE
    return ErrorCode.REQUEST_TIMED_OUT if broker_epoch > image.rev else ErrorCode.STALE_BROKER_EPOCH


def judge_alter(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    topic_id: bytes,
    index: int,
    leader_epoch: int,
    new_isr: Sequence[IsrMember],
    recovering: bool,
    partition_epoch: int,
    resume: bool,
) -> PartitionRecord | ErrorCode:
    """The record to write. It is the committed one itself (`is`) when the proposal asks for no change of it."""
    refused = judge_sender(image, broker_id, broker_epoch)
    if refused:
        return refused
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    record = topic.partitions[index]
    refused = _judge_epochs(record, broker_id, leader_epoch, partition_epoch) or _judge_members(
        record, new_isr, recovering
    )
    if refused:
        return refused
    committed = {member.broker_id: member for member in record.isr}
    for member in new_isr:
        if member.broker_id in committed:
            continue
        broker = image.brokers.get(member.broker_id)
        if broker is None or broker.epoch != member.broker_epoch:
            return ErrorCode.INELIGIBLE_REPLICA
        if not image.is_live(member.broker_id, topic_id, index):
            return ErrorCode.INELIGIBLE_REPLICA
    if not resume and recovering == record.recovering and committed.keys() == {m.broker_id for m in new_isr}:
        return record
    return msgspec.structs.replace(
        record,
        isr=tuple(committed.get(member.broker_id, member) for member in new_isr),
        recovering=recovering,
        partition_epoch=record.partition_epoch + 1,
    )


def _judge_epochs(record: PartitionRecord, broker_id: int, leader_epoch: int, partition_epoch: int) -> ErrorCode:
    if leader_epoch > record.leader_epoch or partition_epoch > record.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the sender knows more than this image: another controller told it
    if leader_epoch < record.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != record.leader:
        return ErrorCode.INVALID_REQUEST
    if partition_epoch < record.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _judge_members(record: PartitionRecord, new_isr: Sequence[IsrMember], recovering: bool) -> ErrorCode:
    ids = [member.broker_id for member in new_isr]
    added = set(ids).difference(record.isr_ids)
    if (
        len(set(ids)) != len(ids)
        or not set(ids) <= set(record.replicas)
        or record.leader not in ids
        or (recovering and (len(ids) > 1 or not record.recovering))
        or any(m.broker_epoch == UNKNOWN_BROKER_EPOCH for m in new_isr if m.broker_id in added)
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
