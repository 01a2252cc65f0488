"""Produce, versions 3-13: one batch per partition, judged by its header and its checksum, never decoded.

9 flexible, 10 tells the current leader, 13 names topics by id. Versions 0-2 are advertised for old clients that look
for them, and close the connection, as Kafka 4 does.
"""

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.partition import Appended
from headrace.errors import ErrorCode
from headrace.wire.batch import CODEC_BITS, MAGIC, MAGIC_AT
from headrace.wire.compression import Codec
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13
ATTRIBUTES_LOW_BYTE_AT = 22

Unsettled = tuple[Hosted, int, PartitionProduceResponse]


def handle(broker: Broker, request: Request[ProduceRequest]) -> None:
    body = request.body
    if body.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        request.reply(_refuse_all(body, ErrorCode.INVALID_REQUIRED_ACKS))
        return
    now_ms = broker.clock.wall_ms()
    unsettled: list[Unsettled] = []
    response = ProduceResponse(
        responses=[_produce_topic(broker, request, topic, now_ms, unsettled) for topic in body.topic_data]
    )
    if not unsettled:
        _reply(request, body.acks, response)
        return
    broker.appends.after_turn(_Answer(broker, request, response, unsettled).settle)


def _produce_topic(
    broker: Broker, request: Request[ProduceRequest], topic: TopicProduceData, now_ms: int, unsettled: list[Unsettled]
) -> TopicProduceResponse:
    by_id = request.version >= TOPIC_IDS_SINCE
    hosted = broker.partitions.topic_by_id(topic.topic_id) if by_id else broker.partitions.topic_by_name(topic.name)
    refusal = ErrorCode.NONE
    if hosted is None and by_id:
        refusal = ErrorCode.UNKNOWN_TOPIC_ID
    elif not broker.allowed(request.principal, Operation.WRITE, topic.name if hosted is None else hosted.name):
        # Also for a topic that does not exist: that is for those to know who may use it.
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif hosted is None:
        refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = []
    for data in topic.partition_data:
        answer = PartitionProduceResponse(index=data.index, error_code=refusal, base_offset=-1)
        answers.append(answer)
        if hosted is None or refusal:
            continue
        partition = hosted.partitions.get(data.index)
        if partition is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            _produce_partition(broker, request.version, partition, data, now_ms, answer, unsettled)
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)


def _produce_partition(
    broker: Broker,
    version: int,
    partition: Hosted,
    data: PartitionProduceData,
    now_ms: int,
    answer: PartitionProduceResponse,
    unsettled: list[Unsettled],
) -> None:
    records = memoryview(data.records) if data.records is not None else memoryview(b"")
    if version < ZSTD_SINCE and _is_zstd(records):
        answer.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return
    outcome = broker.admit(partition, records, now_ms)
    broker.metrics.produced(outcome, len(records))
    if not isinstance(outcome, Appended):
        answer.error_code = outcome
        answer.log_start_offset = partition.log_start_offset
        return
    answer.base_offset = outcome.base_offset
    answer.log_append_time_ms = outcome.append_time_ms
    answer.log_start_offset = partition.log_start_offset
    unsettled.append((partition, outcome.end_offset, answer))
    broker.appends.queue(partition)


def _is_zstd(records: memoryview) -> bool:
    return (
        len(records) > ATTRIBUTES_LOW_BYTE_AT
        and records[MAGIC_AT] == MAGIC
        and records[ATTRIBUTES_LOW_BYTE_AT] & CODEC_BITS == Codec.ZSTD
    )


def _refuse_all(body: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ]
    )


def _reply(request: Request[ProduceRequest], acks: int, response: ProduceResponse) -> None:
    if acks != ACKS_NONE:
        request.reply(response)
        return
    request.no_reply()
    if any(answer.error_code for topic in response.responses for answer in topic.partition_responses):
        request.connection.close("a produce request with acks=0 failed, and closing is the only way to say so")


class _Answer:
    """Waits until every partition covers its batch: by its log end for acks=1, by its high watermark for acks=all."""

    __slots__ = ("_acks", "_broker", "_request", "_response", "_timer", "_unsettled", "_waits_at")

    def __init__(
        self, broker: Broker, request: Request[ProduceRequest], response: ProduceResponse, unsettled: list[Unsettled]
    ) -> None:
        self._acks = request.body.acks
        self._broker = broker
        self._request = request
        self._response = response
        self._unsettled = unsettled
        self._timer: asyncio.TimerHandle | None = None
        self._waits_at: Hosted | None = None

    def settle(self) -> None:
        self._look()
        if not self._unsettled:
            self._finish()
            return
        # One place to wait is enough: whoever is woken looks at all of them.
        partition = self._waits_at = self._unsettled[0][0]
        if partition.waiting_acks is None:
            partition.waiting_acks = {}
        partition.waiting_acks[self.settle] = None
        if self._timer is None:
            timeout_s = max(self._request.body.timeout_ms, 0) / 1000
            self._timer = self._broker.loop.call_later(timeout_s, self._timed_out)
            self._request.forget_body()  # what it brought is in the log

    def _look(self) -> None:
        for_all = self._acks == ACKS_ALL
        waiting = []
        for unsettled in self._unsettled:
            partition, end_offset, answer = unsettled
            if (partition.high_watermark if for_all else partition.log_end_offset) >= end_offset:
                continue
            if partition.error:
                self._not_stored(answer, partition.error)
            else:
                waiting.append(unsettled)
        self._unsettled = waiting

    def _timed_out(self) -> None:
        """Whether the batches that are still not covered will be is unknown; idempotent producers may send again."""
        if self._waits_at is not None and self._waits_at.waiting_acks is not None:
            self._waits_at.waiting_acks.pop(self.settle, None)
        self._look()
        for _, _, answer in self._unsettled:
            self._not_stored(answer, ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _not_stored(self, answer: PartitionProduceResponse, error: ErrorCode) -> None:
        self._broker.metrics.produce_failed(error)
        answer.error_code = error
        answer.base_offset = -1
        answer.log_append_time_ms = -1

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        _reply(self._request, self._acks, self._response)
