"""One range from brokers, by a consumer that its process keeps; and what became of what does not come."""

import asyncio

from headrace.client.consumer import Consumer
from headrace.client.fetched import Fetched
from headrace.errors import ErrorCode, KafkaError
from headrace.model import ZERO_UUID
from headrace.spark.door import Door, door
from headrace.spark.options import Connection
from headrace.spark.planning import Range
from headrace.spark.verdicts import DataLoss, Loss, Place, Query, aged_out, gone, recreated, truncated
from headrace.wire.batch import headers

CONSUMERS_MAX = 4
"""Sets of brokers to which one process keeps connections and fetch sessions."""

POLL_MS = 1_000
"""How often a task that waits looks whether its log is still the same."""

TRY_AGAIN_S = 0.1

NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""A consumer says so after it has waited for what may be new."""

RECREATED_WAITS_S = (0.1, 0.3, 0.6)
"""Between questions for metadata, before a topic is believed to have been made anew."""


class Fetching:
    def __init__(self, wanted: Range, connection: Connection, query: Query) -> None:
        self.position = wanted.start
        self.end = wanted.end  # or where the log turned out to be another than the one that was planned
        self._query = query
        self._wanted = wanted
        self._connection = connection
        self._door = door()
        self._consumer = _taken(connection, self._door)

    def __enter__(self) -> "Fetching":
        self._door.post(lambda: self._consumer.assign([self._wanted.partition]))
        self.move_to(self._wanted.start)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        """A consumer that failed is not used again."""
        if kind is None or kind is GeneratorExit:
            self._door.post(lambda: self._consumer.assign([]))
            _give_back(self._connection, self._door, self._consumer)
        else:
            self._door.run(_close(self._consumer))

    def move_to(self, offset: int) -> None:
        self.position = offset
        self._door.post(self._seek)

    def _seek(self) -> None:
        self._consumer.seek(self._wanted.partition, self.position, self._wanted.end)

    def next(self) -> Fetched:
        """Only what is before `end` is meant. KafkaError when nothing comes for `poll_ms_max`; DataLoss."""
        if self.position >= self.end:
            raise DataLoss(self._truncated(self.end))
        return self._door.run(self._next())

    async def _next(self) -> Fetched:
        clock = asyncio.get_running_loop()
        deadline_s = clock.time() + self._connection.poll_ms_max / 1000
        while (left_s := deadline_s - clock.time()) > 0:
            try:
                fetched = await self._consumer.poll_fetched(min(POLL_MS, int(left_s * 1000) + 1))
            except KafkaError as error:
                await self._judge(error)
                await asyncio.sleep(TRY_AGAIN_S)
                self._seek()
                continue
            # Looked at after the fetch: what comes from a topic made anew comes after its id is known.
            if not self._is_meant():
                await self._find_meant()
                self._seek()  # what came is of another topic
            elif fetched is not None:
                self.end = min(self.end, await self._cut_within(fetched))
                return fetched
            else:
                await self._check_cut()
        raise await self._nothing_came()

    def _is_meant(self) -> bool:
        """Whether the topic that the consumer knows by that name is the one of the range; so is one without an id."""
        known, meant = self._consumer.topic_id(self._wanted.partition.topic), self._wanted.topic_id
        return known in (None, ZERO_UUID, meant) or meant == ZERO_UUID

    async def _find_meant(self) -> None:
        """Until the consumer knows the topic of the range. DataLoss if that was made anew.

        A consumer that was idle knows the topic of then, and brokers hear of a new one at different times.
        """
        for wait_s in (0.0, *RECREATED_WAITS_S):
            await asyncio.sleep(wait_s)
            await self._consumer.ask_for_metadata()
            if self._is_meant():
                return
        raise DataLoss(recreated(self._wanted.partition, self.position, 0, self._query))

    async def _judge(self, error: KafkaError) -> None:
        """DataLoss or the error itself, unless it has passed.

        By metadata of now: a leader that was replaced has not all that was planned.
        """
        partition = self._wanted.partition
        if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, *NOT_THERE):
            raise error
        await self._find_meant()
        if error.code in NOT_THERE:
            raise DataLoss(gone(partition, self.position, self._wanted.end, self._query)) from error
        start = (await self._consumer.beginning_offsets([partition]))[partition]
        await self._find_meant()
        if self.position < start:
            raise DataLoss(aged_out(partition, self.position, start)) from error
        epoch_end = await self._epoch_end()
        if epoch_end is None:
            mark = (await self._consumer.high_watermarks([partition]))[partition]
            if mark < self.position:
                raise DataLoss(self._truncated(mark)) from error
        elif epoch_end <= self.position:
            raise DataLoss(self._truncated(epoch_end)) from error

    async def _cut_within(self, fetched: Fetched) -> int:
        """Where the log was cut and has grown again since, by the epochs in which records were written; else the end of
        the range. What the planner will have read from there on would be read twice."""
        epoch, end = self._wanted.epoch, self._wanted.end
        if not 0 <= epoch < fetched.leader_epoch:
            return end
        later = next(header.base_offset for _, header in headers(fetched.data) if header.leader_epoch > epoch)
        if later >= end:
            return end
        epoch_end = await self._epoch_end()
        return later if epoch_end is None else min(later, epoch_end)

    async def _check_cut(self) -> None:
        """DataLoss if nothing more of the range can come. Where the log ends for readers does not tell: after a clean
        election that may be behind for a while."""
        epoch_end = await self._epoch_end()
        if epoch_end is not None and epoch_end <= self.position:
            raise DataLoss(self._truncated(epoch_end))

    async def _epoch_end(self) -> int | None:
        """Up to where the log is still the one that was planned; None if nobody knows it now."""
        partition, epoch = self._wanted.partition, self._wanted.epoch
        if epoch < 0:
            return None
        try:
            return (await self._consumer.epoch_ends({partition: epoch}, POLL_MS))[partition]
        except KafkaError:  # without a leader, for example, which is waited for
            return None

    async def _nothing_came(self) -> Exception:
        partition = self._wanted.partition
        if await self._epoch_end() is None and self._consumer.trouble is None:
            mark = (await self._consumer.high_watermarks([partition]))[partition]
            if mark <= self.position:
                return DataLoss(self._truncated(mark))
        waited = f"nothing of {partition} came in {self._connection.poll_ms_max} ms"
        trouble = self._consumer.trouble or f"readers are not shown offset {self.position}"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{waited} (kafkaConsumer.pollTimeoutMs): {trouble}")

    def _truncated(self, cut_at: int) -> Loss:
        return truncated(self._wanted.partition, Place(self._wanted.end, self._wanted.topic_id), cut_at, self._query)


_idle: dict[tuple[int, Connection], Consumer] = {}
"""Of this process: consumers that no task uses now."""


def _taken(connection: Connection, entrance: Door) -> Consumer:
    consumer = _idle.pop((entrance.process_id, connection), None)
    if consumer is not None:
        return consumer
    return entrance.call(
        lambda: Consumer(
            connection.bootstrap,
            isolation="read_committed" if connection.is_read_committed else "read_uncommitted",
            auto_offset_reset="none",
            max_wait_ms=connection.fetch_wait_ms,
            min_bytes=connection.fetch_bytes_min,
            max_bytes=connection.fetch_bytes_max,
            max_partition_bytes=connection.partition_fetch_bytes_max,
            timeout_ms=connection.ask_ms_max,
            client_id=connection.client_id,
        )
    )


def _give_back(connection: Connection, entrance: Door, consumer: Consumer) -> None:
    _idle[entrance.process_id, connection] = consumer
    while len(_idle) > CONSUMERS_MAX:
        process_id, oldest = next(iter(_idle))
        dropped = _idle.pop((process_id, oldest))
        if process_id == entrance.process_id:
            entrance.run(_close(dropped))


async def _close(consumer: Consumer) -> None:
    await consumer.__aexit__(None, None, None)
