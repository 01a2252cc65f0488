"""ListOffsets, versions 1-11: latest (-1), earliest (-2), max timestamp (-3, v7), first record at or after a time.

Where nothing is tiered, earliest local (-4, v8) is the earliest, and there is no latest tiered (-5, v9) or pending
upload (-6, v11): offset -1. Clients are told no offsets that a leader before may have gone beyond (78; 5 below
v5), nor any by a node that may have been deposed and does not know it (6).

Only lookups by time, and -3, wait for the tier, and only if the answer may be there; the request waits with them, for
as long as it says (v10). All that could forbid the answer is asked before and after the wait.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from headrace.broker.broker import Broker
from headrace.broker.local_coverage import is_short
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.broker.tier_lookups import Lookup
from headrace.core.acl import Operation
from headrace.core.tier_start import earliest_pending_upload
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SENTINEL_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}
CONSUMER, DEBUG_REPLICA = -1, -2
READ_COMMITTED = 1
NOT_AVAILABLE_SINCE = 5
TIMEOUT_SINCE = 10
AT_ONCE = frozenset({LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD})

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""
NOTHING: Found = (-1, -1, -1)


def handle(broker: Broker, request: Request[ListOffsetsRequest]) -> None:
    body = request.body
    forged = body.replica_id >= 0 and not broker.may_be_node(request.principal, body.replica_id)
    lookup = _Lookup(broker, request)
    response = ListOffsetsResponse(topics=[])
    for topic in body.topics:
        if forged:
            answers = [_refused(p, ErrorCode.CLUSTER_AUTHORIZATION_FAILED) for p in topic.partitions]
        else:
            answers = lookup.topic(topic)
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    lookup.answer(response)


def _refused(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1, leader_epoch=-1
    )


def _tell(answer: ListOffsetsPartitionResponse, error: ErrorCode, found: Found = NOTHING) -> None:
    answer.error_code = error
    answer.timestamp, answer.offset, answer.leader_epoch = found


class _Lookup:
    def __init__(self, broker: Broker, request: Request[ListOffsetsRequest]) -> None:
        self._broker = broker
        self._request = request
        self._of_consumer = request.body.replica_id == CONSUMER
        self._of_node = request.body.replica_id >= 0
        self._debugs = request.body.replica_id == DEBUG_REPLICA
        self._not_available = (
            ErrorCode.OFFSET_NOT_AVAILABLE if request.version >= NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
        )
        self._committed = request.body.isolation_level == READ_COMMITTED
        self._asked = Counter((t.name, p.partition_index) for t in request.body.topics for p in t.partitions)
        self._sentinels: dict[int, Callable[[Hosted], Found]] = {
            LATEST: self._latest,
            EARLIEST: self._earliest,
            MAX_TIMESTAMP: self._max_timestamp,
            EARLIEST_LOCAL: self._earliest_local,
            LATEST_TIERED: self._latest_tiered,
            PENDING_UPLOAD: self._pending_upload,
        }
        self._unsettled: dict[Lookup, ListOffsetsPartitionResponse] = {}
        self._response: ListOffsetsResponse | None = None
        self._timer: asyncio.TimerHandle | None = None

    # The whole request.

    def answer(self, response: ListOffsetsResponse) -> None:
        """Now, or when the tier has been asked."""
        if not self._unsettled:
            self._request.reply(response)
            return
        self._response = response
        body, config = self._request.body, self._broker.config
        is_told = self._request.version >= TIMEOUT_SINCE and body.timeout_ms > 0
        timeout_ms = body.timeout_ms if is_told else config.remote_list_offsets_request_timeout_ms
        self._timer = self._broker.loop.call_later(timeout_ms / 1000, self._give_up)
        assert self._broker.tier_lookups is not None
        for lookup in list(self._unsettled):
            self._broker.tier_lookups.begin(lookup)

    def _give_up(self) -> None:
        for lookup, answer in self._unsettled.items():
            assert self._broker.tier_lookups is not None
            self._broker.tier_lookups.cancel(lookup)
            _tell(answer, self._gate(lookup.partition, lookup.leader_epoch) or ErrorCode.REQUEST_TIMED_OUT)
        self._unsettled.clear()
        self._settle()

    def _settle(self) -> None:
        if self._unsettled or self._response is None or self._timer is None:
            return
        self._timer.cancel()
        self._request.reply(self._response)

    # One partition.

    def topic(self, topic: ListOffsetsTopic) -> list[ListOffsetsPartitionResponse]:
        allowed = self._broker.allowed(self._request.principal, Operation.DESCRIBE, topic.name)
        answers = []
        for asked in topic.partitions:
            if not allowed:
                answers.append(_refused(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif self._asked[topic.name, asked.partition_index] > 1:
                answers.append(_refused(asked, ErrorCode.INVALID_REQUEST))
            else:
                answers.append(self._partition(topic.name, asked))
        return answers

    def _partition(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if asked.timestamp < 0 and self._request.version < SENTINEL_SINCE.get(asked.timestamp, 1 << 15):
            return _refused(asked, ErrorCode.UNSUPPORTED_VERSION)
        partition = self._broker.partitions.find_by_name(topic, asked.partition_index)
        if isinstance(partition, ErrorCode):
            return _refused(asked, partition)
        error = self._gate(partition, asked.current_leader_epoch)
        if error:
            return _refused(asked, error)
        answer = _refused(asked, ErrorCode.NONE)
        if self._misses_tier(partition, asked.timestamp):
            return _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            if self._needs_tier(partition, asked.timestamp):
                self._ask_tier(partition, asked, answer)
            else:
                self._found(partition, asked.timestamp, answer, self._find(partition, asked.timestamp))
        except (OSError, CorruptLog) as failure:
            self._broker.faults.failed(partition, "offset lookup", failure)
            return _refused(asked, ErrorCode.KAFKA_STORAGE_ERROR)
        return answer

    def _gate(self, partition: Hosted, current_leader_epoch: int) -> ErrorCode:
        error = partition.gate(current_leader_epoch, by_follower=self._of_node, debugs=self._debugs)
        if not error and self._of_consumer and not self._broker.controller.lease_valid():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def _found(self, partition: Hosted, timestamp: int, answer: ListOffsetsPartitionResponse, found: Found) -> None:
        if self._is_withheld(partition, timestamp, found[1]):
            self._broker.guards.refused += 1
            _tell(answer, self._not_available)
        else:
            _tell(answer, ErrorCode.NONE, found)

    def _is_withheld(self, partition: Hosted, timestamp: int, offset: int) -> bool:
        return self._of_consumer and partition.leadership is not None and self._is_guarded(partition, timestamp, offset)

    # In the tier.

    def _misses_tier(self, partition: Hosted, timestamp: int) -> bool:
        """The answer may lie in what this node cannot read: it has no tier."""
        return self._broker.tier_lookups is None and timestamp not in AT_ONCE and is_short(partition)

    def _needs_tier(self, partition: Hosted, timestamp: int) -> bool:
        lookups = self._broker.tier_lookups
        return lookups is not None and timestamp not in AT_ONCE and lookups.is_needed(partition, timestamp)

    def _ask_tier(self, partition: Hosted, asked: ListOffsetsPartition, answer: ListOffsetsPartitionResponse) -> None:
        # What will be found is not known; whether anything at all may be told is.
        if self._is_withheld(partition, asked.timestamp, partition.log_start_offset):
            self._broker.guards.refused += 1
            _tell(answer, self._not_available)
            return

        def done(found: Found | ErrorCode | None) -> None:
            if self._unsettled.pop(lookup, None) is None:
                return
            error = self._gate(partition, asked.current_leader_epoch)
            if error:
                _tell(answer, error)
            elif isinstance(found, ErrorCode):
                _tell(answer, found)
            else:
                is_readable = found is not None and found[1] < self._limit(partition)
                self._found(partition, asked.timestamp, answer, found if is_readable and found else NOTHING)
            self._settle()

        lookup = Lookup(partition, asked.timestamp, self._limit(partition), asked.current_leader_epoch, done)
        self._unsettled[lookup] = answer

    def _is_guarded(self, partition: Hosted, timestamp: int, offset: int) -> bool:
        scope = self._broker.config.list_offsets_guard_scope
        found = None if offset < 0 else offset
        return partition.list_guard_refuses(scope, timestamp, found, self._limit(partition))

    def _find(self, partition: Hosted, timestamp: int) -> Found:
        if timestamp < 0:
            return self._sentinels[timestamp](partition)
        if partition.log_start_offset == partition.log_end_offset:
            return NOTHING
        return partition.log.find_time(timestamp, self._limit(partition)) or NOTHING

    def _limit(self, partition: Hosted) -> int:
        """The first offset that this caller may not see."""
        if not self._of_consumer:
            return partition.log_end_offset
        return partition.last_stable_offset if self._committed else partition.high_watermark

    def _latest(self, partition: Hosted) -> Found:
        return -1, self._limit(partition), partition.leader_epoch

    def _earliest(self, partition: Hosted) -> Found:
        return self._told(partition, partition.log_start_offset)

    def _earliest_local(self, partition: Hosted) -> Found:
        return self._told(partition, partition.local_log_start_offset)

    def _latest_tiered(self, partition: Hosted) -> Found:
        highest = self._highest_remote(partition)
        return NOTHING if highest is None or highest < 0 else self._told(partition, highest)

    def _pending_upload(self, partition: Hosted) -> Found:
        """Where a follower may begin that leaves to the tier what is there. It may be where the log ends."""
        is_tiered = partition.config.remote_storage_enable and self._broker.tier is not None
        start, local_start = partition.log_start_offset, partition.local_log_start_offset
        offset = earliest_pending_upload(is_tiered, self._highest_remote(partition), start, local_start)
        return NOTHING if offset < 0 else self._told(partition, offset)

    def _highest_remote(self, partition: Hosted) -> int | None:
        """As this leader knows it from the manifest; None while it does not."""
        tier_log = None if self._broker.tier is None else self._broker.tier.log_of(partition)
        return None if tier_log is None else tier_log.highest_remote_offset

    @staticmethod
    def _told(partition: Hosted, offset: int) -> Found:
        if offset == partition.log_end_offset:
            return -1, offset, partition.leader_epoch
        return -1, offset, partition.log.epochs.epoch_at(offset)

    def _max_timestamp(self, partition: Hosted) -> Found:
        if partition.log_start_offset == partition.log_end_offset:
            return NOTHING
        return partition.log.max_timestamp(self._limit(partition)) or NOTHING
