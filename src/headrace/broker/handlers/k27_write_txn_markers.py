"""WriteTxnMarkers, versions 1-2: a coordinator ends transactions in the partitions that this node leads.

Answered when every marker is committed. A marker of a coordinator (52) or of a producer's epoch (47) whose time is over
is not written; everything else that goes wrong, the coordinator tries again, and a marker that comes twice does no
harm. 2 tells the version of the transaction, which is not used.
"""

import asyncio
from typing import NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.internal_topics import CONSUMER_OFFSETS
from headrace.core.leading import Leadership
from headrace.core.partition import Appended
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.markers import build_marker
from headrace.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

COMMIT_MS_MAX = 30_000
"""A marker that its followers have not copied by then is answered with 7: it may be committed later."""


def handle(broker: Broker, request: Request[WriteTxnMarkersRequest]) -> None:
    marking = _Marking(broker, request)
    # An administrator ends hanging transactions in the same way.
    allowed = (Operation.CLUSTER_ACTION, Operation.ALTER)
    if any(broker.allowed_on_cluster(request.principal, operation) for operation in allowed):
        marking.write()
    else:
        marking.write(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker.appends.after_turn(marking.settle)


class _Unsettled(NamedTuple):
    """Appended under that leadership (None: alone), up to that offset."""

    partition: Hosted
    leadership: Leadership | None
    end_offset: int
    marker: WritableTxnMarker
    result: WritableTxnMarkerPartitionResult


class _Marking:
    """One request."""

    __slots__ = ("_broker", "_request", "_response", "_timer", "_unsettled", "_waits_at")

    def __init__(self, broker: Broker, request: Request[WriteTxnMarkersRequest]) -> None:
        self._broker = broker
        self._request = request
        self._response = WriteTxnMarkersResponse(markers=[])
        self._unsettled: list[_Unsettled] = []
        self._timer: asyncio.TimerHandle | None = None
        self._waits_at: Hosted | None = None

    def write(self, refusal: ErrorCode = ErrorCode.NONE) -> None:
        now_ms = self._broker.clock.wall_ms()
        for marker in self._request.body.markers:
            topics = [
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        self._write(marker, topic.name, index, refusal, now_ms) for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ]
            self._response.markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        # The last ones are looked at first, and groups wait for theirs.
        self._unsettled.sort(key=lambda unsettled: unsettled.partition.topic == CONSUMER_OFFSETS)
        self._request.forget_body()

    def _write(
        self, marker: WritableTxnMarker, topic: str, index: int, refusal: ErrorCode, now_ms: int
    ) -> WritableTxnMarkerPartitionResult:
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=refusal)
        if refusal:
            return result
        partition = self._broker.partitions.find_by_name(topic, index)
        outcome = partition if isinstance(partition, ErrorCode) else self._append(partition, marker, now_ms)
        if isinstance(outcome, ErrorCode) or isinstance(partition, ErrorCode):
            result.error_code = outcome if isinstance(outcome, ErrorCode) else ErrorCode.NONE
            return result
        self._broker.appends.queue(partition)
        self._unsettled.append(_Unsettled(partition, partition.leadership, outcome.end_offset, marker, result))
        return result

    def _append(self, partition: Hosted, marker: WritableTxnMarker, now_ms: int) -> Appended | ErrorCode:
        if not partition.error and partition.refuses_acks_all():
            return ErrorCode.NOT_ENOUGH_REPLICAS
        batch = build_marker(
            marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch, now_ms
        )
        try:
            return partition.admit_own(batch, now_ms)
        except (OSError, CorruptLog) as failure:
            self._broker.faults.failed(partition, "opening the log", failure)
            return ErrorCode.KAFKA_STORAGE_ERROR

    # Waiting.

    def settle(self) -> None:
        unsettled = self._unsettled
        while unsettled and self._is_settled(unsettled[-1]):
            unsettled.pop()
        if not unsettled:
            self._finish()
            return
        # One place to wait is enough: whoever is woken there goes on with the others.
        partition = self._waits_at = unsettled[-1].partition
        if partition.waiting_acks is None:
            partition.waiting_acks = {}
        partition.waiting_acks[self.settle] = None
        if self._timer is None:
            self._timer = self._broker.loop.call_later(COMMIT_MS_MAX / 1000, self._timed_out)

    def _is_settled(self, unsettled: _Unsettled) -> bool:
        partition, leadership, end_offset, marker, result = unsettled
        if partition.leadership is not leadership or not partition.is_leading or partition.fault:
            result.error_code = partition.fault or ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.high_watermark < end_offset:
            return False
        elif partition.topic == CONSUMER_OFFSETS:
            self._broker.groups.transaction_ended(partition.index, marker.producer_id, marker.transaction_result)
        return True

    def _timed_out(self) -> None:
        if self._waits_at is not None and self._waits_at.waiting_acks is not None:
            self._waits_at.waiting_acks.pop(self.settle, None)
        for unsettled in self._unsettled:
            if not self._is_settled(unsettled):
                unsettled.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._request.reply(self._response)
