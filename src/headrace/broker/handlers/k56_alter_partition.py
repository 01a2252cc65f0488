"""AlterPartition, versions 2-3, between nodes: a leader proposes another ISR to the controller.

3 names the members with their broker epochs; in 2 they have none, so that nobody can be added.
"""

from collections import Counter
from collections.abc import Iterator

from headrace.broker.broker import Broker
from headrace.broker.local_coverage import coverage_told
from headrace.broker.requests import Request
from headrace.controller.isr_changes import Proposal
from headrace.core.acl import Operation
from headrace.core.cluster import IsrMember, PartitionRecord
from headrace.errors import ErrorCode
from headrace.wire.messages.replication import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
)

EPOCHS_SINCE = 3
NO_EPOCH = -1
RECOVERED, RECOVERING = 0, 1


async def handle(broker: Broker, request: Request[AlterPartitionRequest]) -> AlterPartitionResponse:
    body = request.body
    if not broker.allowed_on_cluster(request.principal, Operation.CLUSTER_ACTION):
        return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    times = Counter((topic.topic_id, asked.partition_index) for topic in body.topics for asked in topic.partitions)
    proposals = [_proposal(key, asked, request.version) for key, asked in _asked(body) if times[key] == 1]
    outcome = await broker.controller.alter_partitions(body.broker_id, body.broker_epoch, proposals)
    if isinstance(outcome, ErrorCode):
        return AlterPartitionResponse(error_code=outcome)
    settled = dict(zip(((p.topic_id, p.partition) for p in proposals), outcome, strict=True))
    topics = [
        AlterPartitionTopicResult(
            topic_id=topic.topic_id,
            partitions=[
                _result(
                    asked.partition_index,
                    settled.get((topic.topic_id, asked.partition_index), ErrorCode.INVALID_REQUEST),
                )
                for asked in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return AlterPartitionResponse(topics=topics)


def _asked(body: AlterPartitionRequest) -> Iterator[tuple[tuple[bytes, int], AlterPartitionPartitionData]]:
    for topic in body.topics:
        for asked in topic.partitions:
            yield (topic.topic_id, asked.partition_index), asked


def _proposal(key: tuple[bytes, int], asked: AlterPartitionPartitionData, version: int) -> Proposal:
    if version >= EPOCHS_SINCE:
        isr = [IsrMember(member.broker_id, member.broker_epoch) for member in asked.new_isr_with_epochs]
    else:
        isr = [IsrMember(broker_id, NO_EPOCH) for broker_id in asked.new_isr]
    return Proposal(
        *key,
        asked.leader_epoch,
        isr,
        asked.leader_recovery_state == RECOVERING,
        asked.partition_epoch,
        asked.resume,
        {m.broker_id: told for m in asked.new_isr_with_epochs if (told := coverage_told(m)) is not None},
        asked.log_start_offset,
    )


def _result(index: int, settled: PartitionRecord | ErrorCode) -> AlterPartitionPartitionResult:
    if isinstance(settled, ErrorCode):
        return AlterPartitionPartitionResult(partition_index=index, error_code=settled)
    return AlterPartitionPartitionResult(
        partition_index=index,
        leader_id=settled.leader,
        leader_epoch=settled.leader_epoch,
        isr=settled.isr_ids,
        leader_recovery_state=RECOVERING if settled.recovering else RECOVERED,
        partition_epoch=settled.partition_epoch,
    )
