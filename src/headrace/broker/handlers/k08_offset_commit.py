"""OffsetCommit, versions 2-10: how far a group has read. Answered when it is committed.

2 to 4 may name a retention of their own, 6 the leader epoch, 7 a static member, 10 topics by id.
"""

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_commits import Committer, NewOffset, commit
from headrace.broker.handlers.groups import is_allowed, topic_named
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.cluster import Topic
from headrace.errors import ErrorCode
from headrace.wire.group_records import NO_EXPIRY, CommittedOffset, offset_value
from headrace.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.wire.struct import maker

NO_RETENTION = -1
IDS_SINCE = 10

_answer = maker(OffsetCommitResponsePartition)


def handle(broker: Broker, request: Request[OffsetCommitRequest]) -> None:
    body = request.body
    _Commit(broker, request).begin(
        Committer(body.member_id, body.group_instance_id, body.generation_id_or_member_epoch)
    )


class _Commit:
    """One request: judged at once, answered when what it may commit is."""

    __slots__ = ("_answers", "_broker", "_expire_ms", "_now_ms", "_offsets", "_request", "_waiting")

    def __init__(self, broker: Broker, request: Request[OffsetCommitRequest]) -> None:
        self._broker = broker
        self._request = request
        self._now_ms = broker.clock.wall_ms()
        retention_ms = request.body.retention_time_ms
        self._expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION else self._now_ms + retention_ms
        self._answers: list[OffsetCommitResponseTopic] = []
        self._offsets: list[NewOffset] = []
        self._waiting: list[OffsetCommitResponsePartition] = []

    def begin(self, by: Committer) -> None:
        broker, request = self._broker, self._request
        group_id = request.body.group_id
        may_commit = is_allowed(broker, request, Operation.READ, group_id)
        for asked in request.body.topics:
            answer = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=[])
            self._answers.append(answer)
            topic = topic_named(broker, asked.name, asked.topic_id)
            error = self._refused(asked, topic) if may_commit else ErrorCode.GROUP_AUTHORIZATION_FAILED
            if error or topic is None:
                answer.partitions = [
                    _answer(partition_index=p.partition_index, error_code=error) for p in asked.partitions
                ]
            else:
                answer.partitions = self._judge(asked, topic)
        request.forget_body()
        if may_commit:
            commit(broker, group_id, by, self._offsets, self._finish)
        else:
            self._finish(ErrorCode.NONE)

    def _refused(self, asked: OffsetCommitRequestTopic, topic: Topic | None) -> ErrorCode:
        by_id = self._request.version >= IDS_SINCE
        name = asked.name if topic is None else topic.name
        if topic is None and by_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._broker.allowed(self._request.principal, Operation.READ, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE

    def _judge(self, asked: OffsetCommitRequestTopic, topic: Topic) -> list[OffsetCommitResponsePartition]:
        metadata_max = self._broker.config.offset_metadata_max_bytes
        answers = []
        for told in asked.partitions:
            answer = _answer(partition_index=told.partition_index, error_code=0)
            answers.append(answer)
            text = told.committed_metadata or ""
            if not 0 <= told.partition_index < len(topic.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(text) > metadata_max:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = CommittedOffset(
                    told.committed_offset, told.committed_leader_epoch, text, self._now_ms, self._expire_ms
                )
                self._offsets.append((topic.name, told.partition_index, offset_value(committed)))
                self._waiting.append(answer)
        return answers

    def _finish(self, error: ErrorCode) -> None:
        if error:
            for answer in self._waiting:
                answer.error_code = error
        self._request.reply(OffsetCommitResponse(topics=self._answers))
