"""Sends the batches of a producer to the leaders of their partitions, until each is settled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from headrace.client.batches import Batch, Identity, PartitionQueue
from headrace.client.beside import Beside
from headrace.client.cluster import Cluster
from headrace.client.errors import TimedOut
from headrace.client.transactions import FENCED, ProducerTransactions
from headrace.errors import ErrorCode, KafkaError
from headrace.model import ZERO_UUID, Buffer, TopicPartition
from headrace.net.peer import Peer, PeerLost
from headrace.wire.compression import Codec
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.coordinators import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

IN_FLIGHT_MAX = 5
"""Requests per broker, and batches per partition: a broker remembers so many batches of a producer."""

REQUEST_BYTES_MAX = 8 << 20
TOPIC_IDS_SINCE = 13
"""Version of Produce."""

TRANSACTIONAL_VERSION_MAX = 11
"""From the next one on, brokers with another protocol of transactions add partitions to them by themselves."""

UNCERTAIN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,  # as when it was written, and syncing it failed
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # as when it was written, and the next leader has it
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the same, and the replica has moved away
    }
)
"""Answers after which the batch may be stored."""

IDENTITY_REFUSED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID})

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Delivery(NamedTuple):
    """How a producer wants its records delivered."""

    acks: int
    idempotent: bool
    codec: Codec
    linger_ms: int
    batch_bytes: int
    delivery_ms_max: int
    request_ms_max: int


Batches = dict[tuple[str | bytes, int], tuple[PartitionQueue, Batch]]
"""Of one request, by topic (its id or its name, as the version has it) and partition."""


class _Sent(NamedTuple):
    node_id: int
    batches: Batches
    timer: asyncio.TimerHandle


class Sender:
    """Works in callbacks of the loop; what takes longer (connections, metadata, identity) runs beside, once each.

    `_pump` looks at the partitions that have something to send and sends what may leave. It runs once after
    whatever could have changed that, and when the earliest linger or back-off ends.
    """

    def __init__(
        self,
        cluster: Cluster,
        delivery: Delivery,
        on_settled: Callable[[int], None],
        transactions: ProducerTransactions | None = None,
    ) -> None:
        """`on_settled` is told how many bytes of records are not held any more."""
        self._cluster = cluster
        self._transactions = transactions
        self._joining: asyncio.Task[None] | None = None
        self._abandoned: KafkaError | None = None  # why nothing more of the open transaction is sent
        self._lacks_numbers = False  # partitions wait for a batch that will not come: the epoch must change
        self._delivery = delivery
        self._on_settled = on_settled
        self._clock = cluster.outside.clock
        self._loop = asyncio.get_running_loop()
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._busy: dict[PartitionQueue, None] = {}  # those that have batches waiting
        self._requests: dict[int, int] = {}  # in flight, by node
        self._identity: Identity | None = None
        self._scheduled = False
        self._given_up = False
        self._timer: asyncio.TimerHandle | None = None
        self._beside = Beside(cluster.outside, self.schedule)
        self._wake_ms = 0

    def queue(self, topic: str, index: int) -> PartitionQueue:
        queue = self._queues.get((topic, index))
        if queue is None:
            partition = TopicPartition(topic, index)
            queue = PartitionQueue(partition, self._delivery.batch_bytes, self._delivery.codec)
            self._queues[partition] = queue
        return queue

    def has_work(self, queue: PartitionQueue) -> None:
        """Something was put into it."""
        self._busy[queue] = None
        self.schedule()

    def schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    @property
    def trouble(self) -> str | None:
        """Why a batch is sent again, or not sent at all."""
        for queue in self._queues.values():
            for batch in queue.batches():
                if batch.attempts:
                    return batch.failure
        return self._beside.trouble if self._busy else None

    async def flush(self) -> None:
        """Until all batches that are there now are settled, whatever became of them."""
        present = [batch for queue in self._queues.values() for batch in queue.batches()]
        for batch in present:
            batch.urgent = True
        while present and not self._given_up:
            self.schedule()
            for batch in present:
                batch.done = batch.done or self._loop.create_future()
            await asyncio.wait([batch.done for batch in present if batch.done is not None])
            # A batch that was too large has become two.
            present = [batch for queue in self._queues.values() for batch in queue.batches() if batch.urgent]

    def give_up(self, error: KafkaError) -> None:
        """What is not settled fails with this, and nothing is sent any more. What is under way may still be stored."""
        self._given_up = True
        self._stop_pumping()
        for queue in self._queues.values():
            for batch in queue.batches():
                self._fail(batch, error)

    async def abandon(self, error: KafkaError) -> bool:
        """Nothing more of the open transaction is sent. Returns when nothing of it is under way any more: whether the
        next one needs another epoch."""
        self._abandon(error)
        await self.flush()
        return self._lacks_numbers

    def resume(self, begins_anew: bool) -> None:
        """With the next transaction; anew if it is under another epoch."""
        self._abandoned = None
        if begins_anew:
            self._lacks_numbers = False
            for queue in self._queues.values():
                queue.begin_anew()

    def _abandon(self, error: KafkaError) -> None:
        if self._abandoned is None:
            self._abandoned = error
        for queue in self._queues.values():
            for batch in queue.take_unsent():
                self._fail(batch, error)

    def _stop_pumping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._scheduled = True

    async def close(self) -> None:
        """What is not settled fails."""
        self._stop_pumping()
        await self._beside.close()
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        for queue in self._queues.values():
            for batch in queue.batches():
                self._fail(batch, TimedOut(f"the producer was closed before {queue.partition} had its records"))

    # Sending.

    def _pump(self) -> None:
        if self._given_up:
            return
        self._scheduled = False
        if self._abandoned is not None:
            self._abandon(self._abandoned)  # also what was placed since
        now_ms = self._clock.monotonic_ms()
        self._wake_ms = now_ms + self._delivery.delivery_ms_max
        ready: dict[int, list[PartitionQueue]] = {}
        for queue in list(self._busy):
            self._expire(queue, now_ms)
            if not queue.waiting:
                del self._busy[queue]
            elif queue.is_due(now_ms, self._delivery.linger_ms):
                node_id = self._destination(queue)
                if node_id is not None:
                    ready.setdefault(node_id, []).append(queue)
            else:
                self._wake_ms = min(self._wake_ms, queue.due_ms(self._delivery.linger_ms))
        for node_id, queues in ready.items():
            peer = self._open_peer(node_id)
            if peer is not None:
                self._send(node_id, peer, queues)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy:
            self._timer = self._loop.call_later(max(1, self._wake_ms - now_ms) / 1000, self.schedule)

    def _destination(self, queue: PartitionQueue) -> int | None:
        """Where the queue's next batch may go now; None if something is missing, which then is under way."""
        if not queue.has_room(self._topic_id(queue.partition.topic), IN_FLIGHT_MAX if self._delivery.idempotent else 1):
            return None
        leader = self._cluster.leader(queue.partition)
        if leader is None:
            self._start("metadata", self._cluster.refresh)
            return None
        if not self._cluster.permits(queue.partition, leader.node_id):
            self._start("metadata", self._cluster.refresh)  # whoever lets us may know of another leader
            return None
        if self._transactions is not None:
            if not self._transactions.has(queue.partition):
                self._join(self._transactions)
                return None
            queue.identity = self._transactions.identity
        elif self._delivery.idempotent and queue.identity is None:
            if self._identity is None or self._identity == queue.broken_identity:
                self._start("identity", self._identify)
                return None
            queue.identity = self._identity
        return leader.node_id if self._requests.get(leader.node_id, 0) < IN_FLIGHT_MAX else None

    def _open_peer(self, node_id: int) -> Peer | None:
        peer = self._cluster.open_peer(node_id)
        if peer is None:
            self._start(f"node {node_id}", lambda: self._connect(node_id))
        return peer

    def _send(self, node_id: int, peer: Peer, queues: list[PartitionQueue]) -> None:
        """In as many requests as are needed and allowed."""
        while queues and self._requests.get(node_id, 0) < IN_FLIGHT_MAX:
            taken: list[tuple[PartitionQueue, Buffer]] = []
            size = 0
            while queues and size < REQUEST_BYTES_MAX:
                queue = queues.pop()
                data = queue.begin()
                size += len(data)
                taken.append((queue, data))
                if not queue.waiting:
                    self._busy.pop(queue, None)
            try:
                self._send_request(node_id, peer, taken)
            except (PeerLost, ProtocolError) as error:
                for queue, _ in taken:
                    self._retry(queue, queue.in_flight.pop(), str(error), refresh=True)
                    self._put_back(queue)
                return
        if self._busy:
            self.schedule()

    def _send_request(self, node_id: int, peer: Peer, taken: list[tuple[PartitionQueue, Buffer]]) -> None:
        topics: dict[str, TopicProduceData] = {}
        batches: Batches = {}
        ids = {queue.partition.topic: self._topic_id(queue.partition.topic) for queue, _ in taken}
        by_id = all(topic_id != ZERO_UUID for topic_id in ids.values())
        newest = 0x7FFF if by_id else TOPIC_IDS_SINCE - 1
        if self._transactions is not None:
            newest = TRANSACTIONAL_VERSION_MAX
        version = peer.version_of(ProduceRequest, newest)
        for queue, data in taken:
            name, index = queue.partition
            if name not in topics:
                topics[name] = TopicProduceData(name=name, topic_id=ids[name], partition_data=[])
            topics[name].partition_data.append(PartitionProduceData(index=index, records=data))
            batches[ids[name] if version >= TOPIC_IDS_SINCE else name, index] = (queue, queue.in_flight[-1])
        request = ProduceRequest(
            transactional_id=None if self._transactions is None else self._transactions.transactional_id,
            acks=self._delivery.acks,
            timeout_ms=self._delivery.request_ms_max,
            topic_data=list(topics.values()),
        )
        if self._delivery.acks == 0:
            self._tell(peer, request, version, batches)
            return
        self._ask(node_id, peer, request, version, batches)

    def _ask(self, node_id: int, peer: Peer, request: ProduceRequest, version: int, batches: Batches) -> None:
        answer = peer.send(request, ProduceResponse, version)
        timer = self._loop.call_later(self._delivery.request_ms_max / 1000, peer.close, "Produce was not answered")
        sent = _Sent(node_id, batches, timer)
        self._requests[node_id] = self._requests.get(node_id, 0) + 1
        answer.add_done_callback(lambda future: self._answered(sent, future))

    def _tell(self, peer: Peer, request: ProduceRequest, version: int, batches: Batches) -> None:
        peer.tell(request, version)
        self._beside.forget_trouble()
        for queue, batch in batches.values():
            queue.in_flight.remove(batch)
            self._succeed(queue, batch, -1, -1)

    def _topic_id(self, name: str) -> bytes:
        topic = self._cluster.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    # Answers.

    def _answered(self, sent: _Sent, future: "asyncio.Future[ProduceResponse]") -> None:
        sent.timer.cancel()
        self._requests[sent.node_id] -= 1
        unanswered = dict(sent.batches)
        failure = "the answer did not name it"
        if future.cancelled():
            failure = "the producer was closed"
        elif (error := future.exception()) is not None:
            failure = str(error)
            if not isinstance(error, PeerLost | ProtocolError):
                raise error
        else:
            self._beside.forget_trouble()
            for topic in future.result().responses:
                for partition in topic.partition_responses:
                    key: str | bytes = topic.name or topic.topic_id
                    queue_and_batch = unanswered.pop((key, partition.index), None)
                    if queue_and_batch is not None:
                        self._settle(*queue_and_batch, partition)
        for queue, batch in unanswered.values():
            batch.uncertain = True
            queue.in_flight.remove(batch)
            self._retry(queue, batch, failure, refresh=True)
            self._put_back(queue)
        self.schedule()

    def _settle(self, queue: PartitionQueue, batch: Batch, answer: PartitionProduceResponse) -> None:
        why = f": {answer.error_message}" if answer.error_message else ""
        error = KafkaError(answer.error_code, f"{queue.partition} did not take the records{why}")
        code = error.code
        was_oldest = queue.is_oldest(batch)
        queue.in_flight.remove(batch)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            queue.was_stored()
            self._succeed(queue, batch, answer.base_offset, answer.log_append_time_ms)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (queue.gap or not was_oldest):
            self._retry(queue, batch, str(error), refresh=False)  # it only came before its turn
        elif self._transactions is not None and code in FENCED:
            self._fail(batch, self._transactions.fenced(code))
        elif code in IDENTITY_REFUSED and self._delivery.idempotent and self._transactions is None:
            queue.gap = str(error)
            self._retry(queue, batch, str(error), refresh=False)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            for half in batch.halves():
                self._retry(queue, half, str(error), refresh=False)
            if batch.done is not None:
                batch.done.set_result(None)  # who flushes looks again, and finds the halves
        elif code.retriable:
            batch.uncertain = batch.uncertain or code in UNCERTAIN
            self._retry(queue, batch, str(error), refresh=code in STALE_METADATA)
        else:
            if self._delivery.idempotent and self._transactions is None:
                queue.gap = str(error)  # its number is missing to what follows
            self._fail(batch, error)
        self._put_back(queue)

    def _retry(self, queue: PartitionQueue, batch: Batch, failure: str, *, refresh: bool) -> None:
        if self._abandoned is not None:
            self._fail(batch, self._abandoned)
            return
        batch.attempts += 1
        batch.failure = failure
        queue.failed.append(batch)
        queue.retry_at_ms = self._clock.monotonic_ms() + self._cluster.outside.backoff_ms(batch.attempts)
        if refresh:
            self._start("metadata", self._cluster.refresh)

    def _put_back(self, queue: PartitionQueue) -> None:
        """Once all is answered: what failed is sent again, if it must under another identity."""
        if queue.in_flight:
            return
        queue.put_back()
        if queue.gap:
            gap = queue.gap
            for batch in queue.change_identity():
                text = f"{queue.partition} may or may not have the records: {gap}"
                self._fail(batch, KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text))
        if queue.waiting:
            self.has_work(queue)

    def _expire(self, queue: PartitionQueue, now_ms: int) -> None:
        oldest_ms = now_ms - self._delivery.delivery_ms_max
        while queue.waiting and queue.waiting[0].born_ms <= oldest_ms:
            batch = queue.waiting.popleft()
            if batch.base_sequence >= 0:
                queue.gap = "an earlier batch was given up"
            reason = batch.failure or self._obstacle(queue)
            wait_ms = self._delivery.delivery_ms_max
            self._fail(batch, TimedOut(f"{queue.partition} did not take the records in {wait_ms} ms: {reason}"))
        if queue.gap:
            self._put_back(queue)

    def _obstacle(self, queue: PartitionQueue) -> str:
        fault = self._cluster.faults.get(queue.partition.topic)
        return f"no leader is known{'' if fault is None else f' ({fault.name})'}"

    def _succeed(self, queue: PartitionQueue, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        batch.stored(*queue.partition, base_offset, append_time_ms)
        self._finish(batch)

    def _fail(self, batch: Batch, error: KafkaError) -> None:
        batch.lost(error, self._transactions is not None)  # whoever commits hears of it
        self._finish(batch)
        if self._transactions is not None:
            self._lacks_numbers = self._lacks_numbers or batch.base_sequence >= 0
            self._transactions.fail(error)
            if self._abandoned is None:
                self._abandon(error)

    def _finish(self, batch: Batch) -> None:
        self._on_settled(batch.size)
        if batch.done is not None and not batch.done.done():
            batch.done.set_result(None)

    # Beside.

    def _join(self, transactions: ProducerTransactions) -> None:
        """The partitions that want it become a part of the transaction."""
        if self._joining is None or self._joining.done():
            self._joining = asyncio.ensure_future(transactions.join())
            self._joining.add_done_callback(lambda _: self._joined(transactions))

    def _joined(self, transactions: ProducerTransactions) -> None:
        if transactions.failure is not None and self._abandoned is None:
            self._abandon(transactions.failure)
        self.schedule()

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        again_ms = self._beside.start(name, work)
        if again_ms:
            self._wake_ms = min(self._wake_ms, again_ms)

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.peer(node_id)
        except PeerLost:
            self._start("metadata", self._cluster.refresh)
            raise

    async def _identify(self) -> None:
        question = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=self._delivery.request_ms_max)
        answer = await self._cluster.ask(question, InitProducerIdResponse)
        if answer.error_code:
            raise KafkaError(answer.error_code, "no producer id was given")
        self._identity = Identity(answer.producer_id, answer.producer_epoch)
