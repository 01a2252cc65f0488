"""`Producer`: writes records to topics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Literal

from headrace.client.batches import Pending, ReadyBatch, RecordMetadata
from headrace.client.cluster import Cluster, Topic
from headrace.client.errors import BufferFull, TransactionFailed
from headrace.client.outside import Outside
from headrace.client.sender import Delivery, Sender
from headrace.client.transactions import Handle, Phase, ProducerTransactions
from headrace.core.murmur2 import partition_for
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.batch import EncodedRecords
from headrace.wire.compression import codec_named
from headrace.wire.records import NewRecord, size_bound

LEAVE_MS_MAX = 5_000
"""How long a producer that is closed tries to abort its transaction."""

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
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        client_id: str = "headrace",
        outside: Outside | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """`cluster`: connections that the caller keeps for one producer after the other, and closes himself."""
        if acks not in ("all", -1, 0, 1):
            raise ValueError(f"acks is 0, 1 or all, not {acks!r}")
        acks_number = -1 if acks == "all" else int(acks)
        if transactional_id is not None and (acks_number != -1 or idempotent is False):
            raise ValueError("a transactional producer is idempotent, and needs acks=all")
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
        self._cluster = cluster or Cluster(bootstrap, client_id, self._outside, creates_topics=True)
        self._is_cluster_kept = cluster is not None
        self._transactions = (
            None
            if transactional_id is None
            else ProducerTransactions(self._cluster, transactional_id, transaction_timeout_ms, delivery_ms_max)
        )
        self._sender: Sender | None = None
        self._buffer_bytes = buffer_bytes
        self._used_bytes = 0
        self._since_breath = 0
        self._room: list[asyncio.Future[None]] = []
        self._sticky: dict[str, int] = {}
        self._unplaced: dict[str, list[tuple[Pending, int | None]]] = {}
        self._placing: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> "Producer":
        self._sender = Sender(self._cluster, self._delivery, self._settled, self._transactions)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._transactions is not None:
                await self._leave_transaction(self._transactions)
            elif kind is None:
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
        if self._transactions is not None:
            self._transactions.expect_open("send")
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

    def send_encoded(
        self, partition: TopicPartition, records: EncodedRecords, on_lost: Callable[[KafkaError], None]
    ) -> None:
        """Takes a batch that the caller has encoded, of a topic whose partitions it has asked for (`partitions_of`).

        Nobody waits for it but `flush`; `on_lost` hears of it when it cannot be stored. BufferFull: see `ready`.
        """
        sender = self._running()
        if self._transactions is not None:
            self._transactions.expect_open("send")
        topic = self._cluster.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        size = len(records.data)
        if self._used_bytes and self._used_bytes + size > self._buffer_bytes:
            raise BufferFull(f"the producer holds {self._used_bytes} bytes, of {self._buffer_bytes}: await ready()")
        self._used_bytes += size
        queue = sender.queue(*partition)
        queue.add_ready(ReadyBatch(self._outside.clock.monotonic_ms(), records, size, on_lost))
        sender.has_work(queue)

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

    # Transactions, for a producer with a transactional id.

    async def init(self) -> None:
        """Fences whoever used the transactional id before, and ends what they left open. `begin` does it if need be."""
        await self._transactional().init()

    async def begin(self) -> None:
        transactions = self._transactional()
        if transactions.phase is Phase.NEW:
            await transactions.init()
        transactions.begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """If the transaction commits, these are the offsets from which the group reads on."""
        await self._transactional().add_offsets(group, offsets)

    async def commit(self) -> None:
        """All records and offsets of the transaction become readable, or none: then it raises.

        TransactionFailed: abort it. Fenced: another producer took over. TimedOut: it is not known, so commit again.
        """
        transactions = self._transactional()
        transactions.expect_open("commit")
        await self.flush()
        transactions.expect_open("commit")
        await transactions.end(commit=True)

    async def handle(self) -> Handle | None:
        """Until everything is stored; then the transaction is left open for whoever gets the handle to commit, and this
        producer is of no further use. None: nothing was written. TransactionFailed: something is lost, abort it."""
        transactions = self._transactional()
        transactions.expect_open("handle")
        await self.flush()
        transactions.expect_open("handle")
        return transactions.hand_over()

    async def abort(self) -> None:
        """Nothing of the transaction will ever be read by those who read what is committed."""
        transactions, sender = self._transactional(), self._running()
        transactions.expect_open("abort", may_have_failed=True)
        if self._placing:
            await asyncio.wait(list(self._placing.values()))
        aborted = KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted")
        needs_epoch = await sender.abandon(aborted)
        await transactions.end(commit=False)
        if needs_epoch:
            await transactions.init()
        sender.resume(needs_epoch)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["Producer"]:
        """`async with producer.transaction():` commits at its end, and aborts when something was raised."""
        await self.begin()
        transactions = self._transactional()
        try:
            yield self
        except BaseException:  # whatever it was, nothing of the transaction may be read
            if transactions.phase is Phase.OPEN:
                await self.abort()
            raise
        if transactions.phase is not Phase.OPEN:
            return  # it was ended inside
        try:
            await self.commit()
        except TransactionFailed:
            await self.abort()
            raise

    def _transactional(self) -> ProducerTransactions:
        self._running()
        if self._transactions is None:
            raise RuntimeError("transactions need a producer with a transactional_id")
        return self._transactions

    async def _leave_transaction(self, transactions: ProducerTransactions) -> None:
        """What is not committed is aborted, so that readers need not wait until its time is over. Not at any price."""
        if transactions.phase is not Phase.OPEN:
            return
        try:
            async with asyncio.timeout(LEAVE_MS_MAX / 1000):
                await self.abort()
        except (KafkaError, TimeoutError):
            pass

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
            text = f"topic {topic.name!r} has {count} partitions; there is no partition {partition}"
            self._lose(pending, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
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
                self._lose(pending, failure)

    def _lose(self, pending: Pending, error: KafkaError) -> None:
        self._settled(pending.size)
        self._tell(pending, error)
        if self._transactions is not None:
            self._transactions.fail(error)

    def _tell(self, pending: Pending, error: KafkaError) -> None:
        if not pending.future.done():
            pending.future.set_exception(error)
            if self._transactions is not None:
                pending.future.exception()  # whoever ends the transaction hears of it, also if nobody asks this future

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
                self._tell(pending, closed)
        self._unplaced.clear()
        if self._sender is not None:
            await self._sender.close()
        if not self._is_cluster_kept:
            await self._cluster.close()
