"""A node that leads, as a follower sees it: logs in memory, answers in sessions, and trouble on demand."""

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.core.cluster import RegisteredBroker
from headrace.core.epochs import EpochList
from headrace.core.tier_start import earliest_pending_upload
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from headrace.wire.struct import Message
from tests.storage.batches import batch

Key = tuple[bytes, int]
Change = Callable[[PartitionData], PartitionData]


class LedLog:
    """What the leader has of one partition."""

    def __init__(self, leader_epoch: int = 0) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # base offset, last offset, bytes
        self.epochs = EpochList()
        self.leader_epoch = leader_epoch
        self.log_start = 0
        self.local_log_start = 0
        """What lies below is in the tier alone."""
        self.highest_remote: int | None = None
        """As the leader knows it."""
        self.log_end = 0
        self.high_watermark = 0
        self.next_changes: list[Change] = []
        """Each changes one answer."""
        self.error = ErrorCode.NONE

    def append(self, records: int = 1, *, commit: bool = True, **how: Any) -> bytes:
        if self.leader_epoch != self.epochs.latest:
            self.epochs.assign(self.leader_epoch, self.log_end)
        built, header = batch(self.log_end, records, epoch=self.leader_epoch, **how)
        self.batches.append((header.base_offset, header.last_offset, bytes(built)))
        self.log_end = header.last_offset + 1
        if commit:
            self.high_watermark = self.log_end
        return bytes(built)

    def bytes_from(self, offset: int, bytes_max: int = 1 << 30) -> bytes:
        found = b""
        for _, last, content in self.batches:
            if last >= offset and (not found or len(found) + len(content) <= bytes_max):
                found += content
        return found

    def answer(self, asked: FetchPartition) -> PartitionData:
        part = PartitionData(
            partition_index=asked.partition,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start,
            records=None,
        )
        part.error_code = self._error(asked)
        if part.error_code:
            return part
        if asked.last_fetched_epoch >= 0:
            epoch, end = self.epochs.end_offset_for(asked.last_fetched_epoch, self.log_end)
            if epoch < 0:
                part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return part
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                part.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
                return part
        if asked.fetch_offset > self.log_end:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return part
        part.records = self.bytes_from(asked.fetch_offset, asked.partition_max_bytes)
        return part

    def _error(self, asked: FetchPartition) -> ErrorCode:
        if self.error:
            return self.error
        if asked.current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked.current_leader_epoch > self.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if asked.fetch_offset < self.log_start:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        is_moved = asked.fetch_offset < self.local_log_start
        return ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE if is_moved else ErrorCode.NONE

    def offset_at(self, timestamp: int) -> tuple[int, int]:
        """With the epoch of the record there."""
        local = max(self.local_log_start, self.log_start)
        pending = earliest_pending_upload(True, self.highest_remote, self.log_start, local)
        offset = {-1: self.log_end, -2: self.log_start, -4: local, -6: pending}[timestamp]
        return offset, self.epochs.epoch_at(offset) if offset >= 0 else -1


class ScriptedLeader:
    """`connect` makes the one connection that its follower has."""

    def __init__(self) -> None:
        self.logs: dict[Key, LedLog] = {}
        self.names: dict[str, bytes] = {}
        self.requests: list[FetchRequest] = []
        self.offsets_asked: list[ListOffsetsRequest] = []
        self.before_offsets: Callable[[], None] = lambda: None
        """Runs when offsets are asked for."""
        self.is_down = False
        self.connections = 0
        self.session_id = 0
        self._entries: dict[Key, FetchPartition] = {}
        self._told: dict[Key, tuple[int, int]] = {}
        self._changed = asyncio.Event()

    async def connect(self, broker: RegisteredBroker, client_id: str) -> "ScriptedLeader":
        del broker, client_id
        self._refuse_if_down()
        self.connections += 1
        return self

    def close(self, reason: str = "") -> None:
        del reason

    def changed(self) -> None:
        """Whoever waits looks again."""
        self._changed.set()

    def _refuse_if_down(self) -> None:
        if self.is_down:
            raise PeerLost("down")

    async def request(self, message: Message, answer: type[Any], version: int | None, timeout_ms: int) -> Any:
        del answer, version, timeout_ms
        await asyncio.sleep(0)
        self._refuse_if_down()
        if isinstance(message, ListOffsetsRequest):
            return self._list_offsets(message)
        if isinstance(message, OffsetForLeaderEpochRequest):
            return self._ends_of_epochs(message)
        assert isinstance(message, FetchRequest)
        return await self._fetch(message)

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        self.requests.append(request)
        if request.session_epoch == -1:
            return FetchResponse(responses=[])
        is_full = request.session_epoch == 0
        if is_full:
            self._entries, self._told = {}, {}
            self.session_id += 1
        elif request.session_id != self.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        for topic in request.topics:
            for asked in topic.partitions:
                self._entries[topic.topic_id, asked.partition] = asked
                self._told.pop((topic.topic_id, asked.partition), None)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._entries.pop((forgotten.topic_id, index), None)
        parts = self._news(is_full)
        if not parts:
            await self._wait(request.max_wait_ms)
            self._refuse_if_down()
            parts = self._news(is_full)
        topics: dict[bytes, FetchableTopicResponse] = {}
        for (topic_id, _), part in parts.items():
            found = topics.setdefault(topic_id, FetchableTopicResponse(topic_id=topic_id, partitions=[]))
            found.partitions.append(part)
        return FetchResponse(session_id=self.session_id, responses=list(topics.values()))

    async def _wait(self, wait_ms: int) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _news(self, is_full: bool) -> dict[Key, PartitionData]:
        parts = {}
        for key, asked in self._entries.items():
            led = self.logs.get(key)
            if led is None:
                part = PartitionData(partition_index=key[1], error_code=100, high_watermark=-1, records=None)
            else:
                part = led.answer(asked)
                if led.next_changes:
                    part = led.next_changes.pop(0)(part)
            told = part.high_watermark, part.log_start_offset
            if is_full or part.records or part.error_code or part.diverging_epoch or self._told.get(key) != told:
                self._told[key] = told
                parts[key] = part
        return parts

    def _ends_of_epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            found = []
            for asked in topic.partitions:
                led = self.logs[self.names[topic.topic], asked.partition]
                epoch, end = led.epochs.end_offset_for(asked.leader_epoch, led.log_end)
                found.append(
                    OffsetForLeaderEpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=found))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        self.offsets_asked.append(request)
        self.before_offsets()
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                led = self.logs[self.names[topic.name], asked.partition_index]
                offset, epoch = led.offset_at(asked.timestamp)
                part = ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, offset=offset, leader_epoch=epoch
                )
                if asked.current_leader_epoch != led.leader_epoch:
                    is_old = asked.current_leader_epoch < led.leader_epoch
                    part.error_code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
                    part.offset = -1
                answers.append(part)
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)
