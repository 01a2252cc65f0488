"""DeleteRecords, versions 0-2: moves the log start; -1 stands for the high watermark."""

import asyncio

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import CorruptLog, ErrorCode
from headrace.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UP_TO_HIGH_WATERMARK = -1


def handle(broker: Broker, request: Request[DeleteRecordsRequest]) -> None:
    _Deletion(broker, request).start()


class _Deletion:
    """Answered when the replicas that are there have moved their log starts too, so that none brings records back."""

    def __init__(self, broker: Broker, request: Request[DeleteRecordsRequest]) -> None:
        self._broker = broker
        self._request = request
        self._response = DeleteRecordsResponse(topics=[])
        self._unsettled: dict[Hosted, DeleteRecordsPartitionResult] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        for topic in self._request.body.topics:
            results = [self._delete(topic.name, asked) for asked in topic.partitions]
            self._response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        self._keep()
        self._settle()

    def _keep(self) -> None:
        """In the same turn: nobody has been told of log starts that could be forgotten."""
        for directory in {partition.directory for partition in self._unsettled if partition.log.starts_inside}:
            try:
                directory.keep_log_starts()
            except OSError as error:
                self._broker.faults.directory_failed(directory, f"a checkpoint could not be written: {error}")

    def _delete(self, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        broker = self._broker
        partition = broker.partitions.find_by_name(topic, asked.partition_index)
        low_watermark = -1
        if not broker.allowed(self._request.principal, Operation.DELETE, topic):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif isinstance(partition, ErrorCode):
            error = partition
        else:
            error, low_watermark = _delete(broker, partition, asked.offset)
        result = DeleteRecordsPartitionResult(
            partition_index=asked.partition_index, low_watermark=low_watermark, error_code=error
        )
        if not error and isinstance(partition, Hosted):
            self._unsettled[partition] = result
        return result

    def _settle(self) -> None:
        for partition, result in list(self._unsettled.items()):
            if partition.fault or not partition.is_leading:
                error = partition.fault or ErrorCode.NOT_LEADER_OR_FOLLOWER
                result.error_code, result.low_watermark = error, -1
            elif self._lags(partition, result.low_watermark):
                self._broker.commits.follower_waits.setdefault(partition, {})[self._settle] = None
                continue
            del self._unsettled[partition]
        if not self._unsettled:
            self._finish()
        elif self._timer is None:
            timeout_s = max(self._request.body.timeout_ms, 0) / 1000
            self._timer = self._broker.loop.call_later(timeout_s, self._timed_out)

    def _lags(self, partition: Hosted, low_watermark: int) -> bool:
        """Whether a replica that is there still holds what was deleted."""
        if partition.leadership is None:
            return False
        image = self._broker.image
        return any(
            follower.log_start < low_watermark and image.is_live(broker_id, partition.topic_id, partition.index)
            for broker_id, follower in partition.leadership.followers.items()
        )

    def _timed_out(self) -> None:
        for partition, result in self._unsettled.items():
            waits = self._broker.commits.follower_waits.get(partition, {})
            waits.pop(self._settle, None)
            result.error_code, result.low_watermark = ErrorCode.REQUEST_TIMED_OUT, -1
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._request.reply(self._response)


def _delete(broker: Broker, partition: Hosted, offset: int) -> tuple[ErrorCode, int]:
    error = partition.gate(-1)
    if error:
        return error, -1
    if "delete" not in partition.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION, -1
    if offset == UP_TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE, -1
    if offset > partition.log_start_offset:
        try:
            partition.log.advance_log_start(offset)
        except (OSError, CorruptLog) as failure:
            broker.faults.failed(partition, "deleting records", failure)
            return ErrorCode.KAFKA_STORAGE_ERROR, -1
        broker.log_start_moved(partition, offset)
    return ErrorCode.NONE, partition.log_start_offset
