"""`Producer`: writes records to topics."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Literal

from headrace.client.batches import Pending, RecordMetadata
from headrace.client.cluster import Cluster, Topic
from headrace.client.errors import BufferFull
from headrace.client.outside import Outside
from headrace.client.sender import Delivery, Sender
from headrace.core.murmur2 import partition_for
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.compression import codec_named
from headrace.wire.records import NewRecord, size_bound

BREATH_BYTES = 256 << 10
"""A loop of `ready()` and `send()` lets the event loop send something every so many bytes."""


class Producer:
    """An async context manager; leaving it sends what is left.

    With `idempotent`, the default when `acks` is "all", each record is stored once and in the order of `send`,
    however often its batch has to be sent.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        acks: int | Literal["all"] = "all",
        idempotent: bool | None = None,
        compression: str = "none",
        linger_ms: int = 5,
        batch_bytes: int = 65_536,
        buffer_bytes: int = 32 << 20,
        delivery_ms_max: int = 120_000,
        request_ms_max: int = 30_000,
        client_id: str = "headrace",
        outside: Outside | None = None,
    ) -> None:
        if acks not in ("all", -1, 0, 1):
            raise ValueError(f"acks is 0, 1 or all, not {acks!r}")
        acks_number = -1 if acks == "all" else int(acks)
        if idempotent and acks_number != -1:
            raise ValueError(f"an idempotent producer needs acks=all, not acks={acks}")
        self._delivery = Delivery(
            acks=acks_number,
            idempotent=acks_number == -1 if idempotent is None else idempotent,
            codec=codec_named(compression),
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            delivery_ms_max=delivery_ms_max,
            request_ms_max=request_ms_max,
        )
        self._outside = outside or Outside()
        self._cluster = Cluster(bootstrap, client_id, self._outside, creates_topics=True)
        self._sender: Sender | None = None
        self._buffer_bytes = buffer_bytes
        self._used_bytes = 0
        self._since_breath = 0
        self._room: list[asyncio.Future[None]] = []
        self._sticky: dict[str, int] = {}
        self._unplaced: dict[str, list[tuple[Pending, int | None]]] = {}
        self._placing: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> "Producer":
        self._sender = Sender(self._cluster, self._delivery, self._settled)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self._close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """Takes the record; the future tells where it was stored, or raises KafkaError. BufferFull: see `ready`."""
        sender = self._running()
        if not (value is None or isinstance(value, bytes)) or not (key is None or isinstance(key, bytes)):
            raise TypeError("key and value of a record are bytes or None")
        timestamp = self._outside.clock.wall_ms() if timestamp_ms is None else timestamp_ms
        record = NewRecord(timestamp, key, value, headers)
        size = size_bound(record)
        if self._used_bytes and self._used_bytes + size > self._buffer_bytes:
            raise BufferFull(f"the producer holds {self._used_bytes} bytes, of {self._buffer_bytes}: await ready()")
        self._used_bytes += size
        self._since_breath += size
        pending = Pending(record, size, asyncio.get_running_loop().create_future())
        known = self._cluster.topics.get(topic)
        if known is None or topic in self._unplaced:
            self._place_later(topic, pending, partition)
        else:
            self._place(sender, known, pending, partition)
        return pending.future

    async def ready(self) -> None:
        """Until there is room for a record."""
        if self._since_breath > BREATH_BYTES:
            self._since_breath = 0
            await asyncio.sleep(0)
        while self._used_bytes * 8 >= self._buffer_bytes * 7:
            room = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room

    async def flush(self) -> None:
        """Until every record that was sent before is stored, or given up: its future knows."""
        sender = self._running()
        if self._placing:
            await asyncio.wait(list(self._placing.values()))
        await sender.flush()

    async def reach(self, timeout_ms: int) -> None:
        """Until a broker answers. NotReachable when none does in that time."""
        await self._cluster.reach(timeout_ms)

    @property
    def trouble(self) -> str | None:
        """What is in the way of records that are being sent again, or cannot be sent yet."""
        return self._cluster.trouble or (None if self._sender is None else self._sender.trouble)

    async def partitions_of(self, topic: str) -> list[int]:
        await self._cluster.know([topic], self._delivery.delivery_ms_max)
        return sorted(self._cluster.topics[topic].leaders)

    def _running(self) -> Sender:
        if self._sender is None:
            raise RuntimeError("use the producer inside `async with Producer(...) as producer`")
        return self._sender

    def _place(self, sender: Sender, topic: Topic, pending: Pending, partition: int | None) -> None:
        key = pending.record.key
        count = len(topic.leaders)
        sticky = False
        if partition is None:
            sticky = key is None
            partition = self._stick(topic) if key is None else partition_for(key, count)
        if partition not in topic.leaders:
            self._settled(pending.size)
            text = f"topic {topic.name!r} has {count} partitions; there is no partition {partition}"
            pending.future.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
            return
        queue = sender.queue(topic.name, partition)
        if queue.add(pending, self._outside.clock):
            sender.has_work(queue)
            if sticky and len(queue.waiting) > 1:
                # A batch was full: the next one goes elsewhere.
                self._sticky[topic.name] = self._next_with_leader(topic, partition + 1)

    def _stick(self, topic: Topic) -> int:
        """Records without a key fill one batch after the other, each in the next partition that has a leader."""
        partition = self._sticky.get(topic.name)
        if partition is None or topic.leaders.get(partition) is None:
            start = self._outside.random.bits(16) if partition is None else partition
            partition = self._sticky[topic.name] = self._next_with_leader(topic, start)
        return partition

    def _next_with_leader(self, topic: Topic, start: int) -> int:
        count = len(topic.leaders)
        for step in range(count):
            partition = (start + step) % count
            if topic.leaders.get(partition) is not None:
                return partition
        return start % count

    def _place_later(self, topic: str, pending: Pending, partition: int | None) -> None:
        self._unplaced.setdefault(topic, []).append((pending, partition))
        if topic not in self._placing:
            self._placing[topic] = asyncio.ensure_future(self._learn_and_place(topic))

    async def _learn_and_place(self, topic: str) -> None:
        failure: KafkaError | None = None
        try:
            await self._cluster.know([topic], self._delivery.delivery_ms_max)
        except KafkaError as error:
            failure = error
        finally:
            del self._placing[topic]
        sender = self._running()
        for pending, partition in self._unplaced.pop(topic):
            if failure is None:
                self._place(sender, self._cluster.topics[topic], pending, partition)
            else:
                self._settled(pending.size)
                if not pending.future.done():
                    pending.future.set_exception(failure)

    def _settled(self, size: int) -> None:
        self._used_bytes -= size
        if self._room and self._used_bytes * 4 <= self._buffer_bytes * 3:
            waiting, self._room = self._room, []
            for room in waiting:
                if not room.done():
                    room.set_result(None)

    async def _close(self) -> None:
        for task in self._placing.values():
            task.cancel()
        await asyncio.gather(*self._placing.values(), return_exceptions=True)
        closed = KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the producer was closed")
        for records in self._unplaced.values():
            for pending, _ in records:
                if not pending.future.done():
                    pending.future.set_exception(closed)
        self._unplaced.clear()
        if self._sender is not None:
            await self._sender.close()
        await self._cluster.close()
