"""Produce, versions 3-13: one batch per partition, judged by its header and its checksum, never decoded.

8 says why in words, 9 flexible, 10 tells the current leader, 11 knows that a transaction may have to be aborted
(120; 48 before), 13 names topics by id. Versions 0-2 are advertised for old
clients that look for them, and close the connection, as Kafka 4 does.
"""

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.current_leaders import current_leader, endpoints
from headrace.broker.handlers.transactional import may_use
from headrace.broker.ownership_clients import holds_back
from headrace.broker.partitions import Hosted, HostedTopic
from headrace.broker.requests import Request
from headrace.core import acl
from headrace.core.leading import Leadership
from headrace.core.ownership import PRODUCE
from headrace.core.ownership_gate import PRODUCE_ERRORS, Pass
from headrace.core.partition import Appended
from headrace.core.verified import Verified, VerifyFirst
from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.wire.batch import CODEC_BITS, MAGIC, MAGIC_AT, read_header
from headrace.wire.compression import Codec
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.wire.struct import maker

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ZSTD_SINCE = 7
CURRENT_LEADER_SINCE = 10
ABORTABLE_SINCE = 11
FENCED_SINCE = 9
"""Clients of earlier versions do not know error 90; to them 47 is the one that says that they are fenced."""
TOPIC_IDS_SINCE = 13
ATTRIBUTES_LOW_BYTE_AT = 22

MESSAGES = {
    ErrorCode.CORRUPT_MESSAGE: "The checksum of the batch is wrong, or its format is unknown",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic, or it has no such partition",
    ErrorCode.REQUEST_TIMED_OUT: "The records were not stored within the time of the request; they may be later",
    ErrorCode.MESSAGE_TOO_LARGE: "The batch is larger than max.message.bytes of the topic",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks is 0, 1 or -1 (all)",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "This principal may not write to the topic",
    ErrorCode.INVALID_TIMESTAMP: (
        "The timestamps of the batch are further from now than message.timestamp.before.max.ms or "
        "message.timestamp.after.max.ms of the topic allow, or they claim to be the broker's"
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The sequence does not follow on the last batch of this producer",
    ErrorCode.INVALID_PRODUCER_EPOCH: "A producer with the same id and a newer epoch has written to the partition",
    ErrorCode.INVALID_TXN_STATE: "The records belong to no open transaction, or not to the one that is open",
    ErrorCode.TRANSACTION_ABORTABLE: "The partition is not in the transaction: abort it, and begin another",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "This principal may not use the transactional id",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk of this partition has failed; the log of the broker says how",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The compression is unknown, or is zstd in a version before 7",
    ErrorCode.INVALID_RECORD: (
        "A partition takes exactly one whole batch of format 2 that is a client's, with records; in a topic that is "
        "compacted all of them have keys"
    ),
    ErrorCode.PRODUCER_FENCED: "Another process owns the partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "There is no topic with this id",
}
"""One sentence for each refusal (8)."""

# Looking a name up in an enumeration costs more than the comparison.
_NONE = ErrorCode.NONE
_WRITE = acl.Operation.WRITE

Unsettled = tuple[Hosted, Leadership | None, int, PartitionProduceResponse]
"""Appended under that leadership (None: alone), up to that offset."""

# Made for every request.
_response = maker(ProduceResponse)
_answer = maker(PartitionProduceResponse)
_topic_answer = maker(TopicProduceResponse)


def handle(broker: Broker, request: Request[ProduceRequest]) -> None:
    acks = request.body.acks
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        request.reply(_refuse_all(request.body, ErrorCode.INVALID_REQUIRED_ACKS))
        return
    may_wait = broker.ownership.gates or request.connection.claims
    if may_wait and holds_back(broker, request, lambda: _begin_again(broker, request)):
        return
    produce = _Produce(broker, request, acks)
    transactional_id = request.body.transactional_id
    if transactional_id is not None and not may_use(broker, request.principal, _WRITE, transactional_id):
        produce.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif produce.admit():
        broker.appends.after_turn(produce.settle)
    elif not produce.waits_for_coordinators:
        produce.finish()


def _begin_again(broker: Broker, request: Request[ProduceRequest]) -> None:
    """What it waited for is settled. Nobody hears of it on a connection that is cut."""
    if request.connection.closing:
        request.no_reply()
    else:
        broker.loop.call_soon(handle, broker, request)


def _is_zstd(records: Buffer) -> bool:
    return (
        len(records) > ATTRIBUTES_LOW_BYTE_AT
        and records[MAGIC_AT] == MAGIC
        and records[ATTRIBUTES_LOW_BYTE_AT] & CODEC_BITS == Codec.ZSTD
    )


def _refused(index: int, error: ErrorCode, log_start_offset: int = -1) -> PartitionProduceResponse:
    return _answer(
        index=index,
        error_code=error,
        base_offset=-1,
        log_start_offset=log_start_offset,
        error_message=MESSAGES.get(error),
    )


def _refuse_all(body: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(responses=[_refuse(topic, error) for topic in body.topic_data])


def _refuse(topic: TopicProduceData, error: ErrorCode) -> TopicProduceResponse:
    answers = [_refused(data.index, error) for data in topic.partition_data]
    return _topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)


class _Produce:
    """One request: judged at once, answered when every partition covers its batch.

    That is when its log end does for acks=1, and its high watermark for acks=all. A batch that begins a transaction is
    taken when the coordinator has confirmed it; the others of the request do not wait for that.
    """

    __slots__ = (
        "_acks",
        "_broker",
        "_has_leaders",
        "_is_judged",
        "_request",
        "_response",
        "_timer",
        "_unsettled",
        "_verifying",
        "_waits_at",
    )

    def __init__(self, broker: Broker, request: Request[ProduceRequest], acks: int) -> None:
        self._acks = acks
        self._broker = broker
        self._request = request
        self._response = _response(responses=[])
        self._unsettled: list[Unsettled] = []
        self._timer: asyncio.TimerHandle | None = None
        self._waits_at: Hosted | None = None
        self._has_leaders = False
        self._verifying = 0
        self._is_judged = False

    def admit(self) -> bool:
        """Whether there is something to wait for."""
        broker, request = self._broker, self._request
        partitions, principal = broker.partitions, request.connection.principal
        by_id = request.version >= TOPIC_IDS_SINCE
        now_ms = broker.clock.wall_ms()
        answers = self._response.responses
        for topic in request.body.topic_data:
            hosted = partitions.topic_by_id(topic.topic_id) if by_id else partitions.topic_by_name(topic.name)
            if hosted is None or hosted.is_internal or not broker.is_allowed(principal, _WRITE, hosted.resource):
                answers.append(self._refuse(topic, self._refusal(topic, hosted, by_id)))
                continue
            admitted = [self._admit(hosted, data, now_ms) for data in topic.partition_data]
            answers.append(_topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=admitted))
        self._is_judged = True
        return bool(self._unsettled)

    def refuse(self, error: ErrorCode) -> None:
        self._response = _refuse_all(self._request.body, error)
        self.finish()

    @property
    def waits_for_coordinators(self) -> bool:
        return self._verifying > 0

    def _refusal(self, topic: TopicProduceData, hosted: HostedTopic | None, by_id: bool) -> ErrorCode:
        if hosted is not None:
            if self._broker.is_allowed(self._request.principal, _WRITE, hosted.resource):
                return ErrorCode.INVALID_TOPIC_EXCEPTION  # one that is the cluster's own
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        known = self._broker.image.topics_by_id.get(topic.topic_id) if by_id else None
        if by_id and known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        resource = acl.topic(topic.name if known is None else known.name)
        if not self._broker.is_allowed(self._request.principal, _WRITE, resource):
            # Also for a topic that does not exist: that is for those to know who may use it.
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _NONE

    def _refuse(self, topic: TopicProduceData, refusal: ErrorCode) -> TopicProduceResponse:
        """Without a refusal, for a topic of which nothing is here: why differs between its partitions."""
        if refusal:
            return _refuse(topic, refusal)
        key = topic.topic_id if self._request.version >= TOPIC_IDS_SINCE else topic.name
        why_not = self._broker.partitions.why_not
        answers = [self._refused_answer(key, data.index, why_not(key, data.index)) for data in topic.partition_data]
        return _topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)

    def _refused_answer(
        self, topic: str | bytes, index: int, error: ErrorCode, log_start_offset: int = -1
    ) -> PartitionProduceResponse:
        answer = _refused(index, error, log_start_offset)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._request.version >= CURRENT_LEADER_SINCE:
            answer.current_leader = current_leader(self._broker, topic, index)
            self._has_leaders = True
        return answer

    def _admit(self, hosted: HostedTopic, data: PartitionProduceData, now_ms: int) -> PartitionProduceResponse:
        broker, records = self._broker, data.records
        partition = hosted.partitions.get(data.index)
        if partition is None:
            error = broker.partitions.why_not(hosted.topic_id, data.index)
            return self._refused_answer(hosted.topic_id, data.index, error)
        if partition.own is not None and (error := self._barred(partition)):
            return self._refused_answer(hosted.topic_id, data.index, error, partition.log_start_offset)
        if partition.leadership is not None and self._acks == ACKS_ALL and self._lacks_replicas(partition):
            broker.metrics.produce_failed(ErrorCode.NOT_ENOUGH_REPLICAS)
            return _refused(data.index, ErrorCode.NOT_ENOUGH_REPLICAS)
        if records is None:
            records = b""
        if self._request.version < ZSTD_SINCE and _is_zstd(records):
            return _refused(data.index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        # Records of a request are a writable view of its frame: offsets are put in where they lie.
        outcome = broker.admit(partition, memoryview(records), now_ms)
        if not isinstance(outcome, Appended):
            if isinstance(outcome, VerifyFirst):
                return self._verify(partition, data.index, memoryview(records))
            broker.metrics.produce_failed(outcome)
            return self._refused_answer(hosted.topic_id, data.index, outcome, partition.log_start_offset)
        answer = _answer(
            index=data.index,
            error_code=_NONE,
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.append_time_ms,
            log_start_offset=partition.log_start_offset,
        )
        self._admitted(partition, len(records), outcome, answer)
        return answer

    def _barred(self, partition: Hosted) -> ErrorCode:
        """Where offsets are about to be assigned: whether the owner of the partition, or its gate, is in the way."""
        broker, gate = self._broker, partition.own
        if gate is None or partition.error:
            return partition.error
        verdict = gate.judge(PRODUCE, self._request.connection)
        if not verdict:
            return _NONE
        broker.ownership.metrics.denied_produce += verdict is Pass.DENIED
        error = PRODUCE_ERRORS[verdict]
        if error is ErrorCode.PRODUCER_FENCED and self._request.version < FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        broker.metrics.produce_failed(error)
        return error

    def _admitted(self, partition: Hosted, size: int, outcome: Appended, answer: PartitionProduceResponse) -> None:
        metrics = self._broker.metrics
        metrics.bytes_in += size
        metrics.batches_in += 1
        metrics.messages_in += outcome.end_offset - outcome.base_offset
        self._unsettled.append((partition, partition.leadership, outcome.end_offset, answer))
        self._broker.appends.queue(partition)

    # The first batch of a transaction.

    def _verify(self, partition: Hosted, index: int, records: memoryview) -> PartitionProduceResponse:
        header = read_header(records)
        transactional_id = self._request.body.transactional_id
        if not transactional_id:
            self._broker.metrics.produce_failed(ErrorCode.INVALID_TXN_STATE)
            return _refused(index, ErrorCode.INVALID_TXN_STATE, partition.log_start_offset)
        answer = _answer(index=index, error_code=_NONE, base_offset=-1, log_start_offset=partition.log_start_offset)
        self._verifying += 1

        def then(error: ErrorCode, verified: Verified | None) -> None:
            self._verifying -= 1
            self._verified(partition, records, answer, error, verified)
            if self._is_judged and not self._verifying:
                self._broker.appends.after_turn(self.settle)

        self._broker.verification.verify(
            partition, transactional_id, header.producer_id, header.producer_epoch, then, header.base_sequence
        )
        return answer

    def _verified(
        self,
        partition: Hosted,
        records: memoryview,
        answer: PartitionProduceResponse,
        error: ErrorCode,
        verified: Verified | None,
    ) -> None:
        broker = self._broker
        outcome: Appended | ErrorCode | VerifyFirst = error
        if not error and partition.own is not None:
            outcome = error = self._barred(partition)
        if not error and self._acks == ACKS_ALL and self._lacks_replicas(partition):
            outcome = ErrorCode.NOT_ENOUGH_REPLICAS
        elif not error:
            outcome = broker.admit(partition, records, broker.clock.wall_ms(), verified)
        if isinstance(outcome, Appended):
            answer.base_offset, answer.log_append_time_ms = outcome.base_offset, outcome.append_time_ms
            self._admitted(partition, len(records), outcome, answer)
            return
        if isinstance(outcome, VerifyFirst) or outcome in (
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ):
            # The transaction is not open, or has ended while it was asked about.
            is_known = self._request.version >= ABORTABLE_SINCE
            outcome = ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
        self._not_stored(answer, outcome)
        if outcome is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._request.version >= CURRENT_LEADER_SINCE:
            answer.current_leader = current_leader(broker, partition.topic_id, partition.index)
            self._has_leaders = True

    # Waiting.

    @staticmethod
    def _lacks_replicas(partition: Hosted) -> bool:
        return not partition.error and partition.refuses_acks_all()

    def settle(self) -> None:
        if self._verifying:
            return  # this is asked for again then
        unsettled = self._unsettled
        while unsettled and self._is_settled(*unsettled[-1]):
            unsettled.pop()
        if not unsettled:
            self.finish()
            return
        # One place to wait is enough: whoever is woken there goes on with the others.
        partition = self._waits_at = unsettled[-1][0]
        if partition.waiting_acks is None:
            partition.waiting_acks = {}
        partition.waiting_acks[self.settle] = None
        if self._timer is None:
            timeout_s = max(self._request.body.timeout_ms, 0) / 1000
            self._timer = self._broker.loop.call_later(timeout_s, self._timed_out)
            self._request.forget_body()  # what it brought is in the log

    def _is_settled(
        self, partition: Hosted, leadership: Leadership | None, end_offset: int, answer: PartitionProduceResponse
    ) -> bool:
        if partition.leadership is not leadership:
            # While this waited elsewhere, the batch may have been cut, and others may have come to its place.
            self._not_stored(answer, partition.fault or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif (partition.high_watermark if self._acks == ACKS_ALL else partition.log_end_offset) < end_offset:
            # One that has stepped down may still see it through.
            if partition.is_leading and not partition.fault:
                return False
            self._not_stored(answer, partition.fault or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.leadership is not None and self._acks == ACKS_ALL and partition.lacks_acks_all():
            self._not_stored(answer, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def _timed_out(self) -> None:
        """Whether the batches that are still not covered will be is unknown; idempotent producers may send again."""
        if self._waits_at is not None and self._waits_at.waiting_acks is not None:
            self._waits_at.waiting_acks.pop(self.settle, None)
        for unsettled in self._unsettled:
            if not self._is_settled(*unsettled):
                self._not_stored(unsettled[-1], ErrorCode.REQUEST_TIMED_OUT)
        self.finish()

    def _not_stored(self, answer: PartitionProduceResponse, error: ErrorCode) -> None:
        self._broker.metrics.produce_failed(error)
        answer.error_code = error
        answer.error_message = MESSAGES.get(error)
        answer.base_offset = -1
        answer.log_append_time_ms = -1

    def finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._acks != ACKS_NONE:
            if self._request.version >= CURRENT_LEADER_SINCE and self._has_leaders:
                self._response.node_endpoints = endpoints(
                    self._broker,
                    (a.current_leader for topic in self._response.responses for a in topic.partition_responses),
                )
            self._request.reply(self._response)
            return
        self._request.no_reply()
        answers = (answer for topic in self._response.responses for answer in topic.partition_responses)
        if any(answer.error_code for answer in answers):
            self._request.connection.close(
                "a produce request with acks=0 failed, and closing is the only way to say so"
            )
