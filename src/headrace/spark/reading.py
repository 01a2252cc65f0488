"""What a task does: the records of its piece, as Arrow batches."""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.client.consumer import Consumer
from headrace.client.fetched import Fetched
from headrace.errors import ErrorCode, KafkaError
from headrace.model import ZERO_UUID
from headrace.spark.door import Door, door
from headrace.spark.options import Connection
from headrace.spark.planning import Piece, Range
from headrace.spark.tier_planning import TierPiece
from headrace.spark.tier_reading import read_tier
from headrace.spark.verdicts import DataLoss, Loss, Place, aged_out, recreated, truncated
from headrace.spark.worker_memory import keep_what_is_loaded

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

CONSUMERS_MAX = 4
"""Sets of brokers to which one process keeps connections and fetch sessions."""

POLL_MS = 1_000
"""How often a task that waits looks whether its topic is still the same."""

RECREATED_WAITS_S = (0.1, 0.3, 0.6)
"""Between questions for metadata, before a topic is believed to have been made anew."""


def read(
    piece: Piece, connection: Connection, schema: "pa.Schema", fails_on_data_loss: bool
) -> "Iterator[pa.RecordBatch]":
    """The seam of the ways to the data: by what kind of piece it is."""
    if isinstance(piece, TierPiece):
        return read_tier(piece, connection, schema, lambda rest: fetch(rest, connection, schema, fails_on_data_loss))
    return fetch(piece.range, connection, schema, fails_on_data_loss)


def fetch(
    wanted: Range, connection: Connection, schema: "pa.Schema", fails_on_data_loss: bool
) -> "Iterator[pa.RecordBatch]":
    """From brokers. DataLoss for what is not there any more, unless that is accepted."""
    from headrace.spark.decode.aborted import Aborted, AbortedRanges  # the driver needs no compiler
    from headrace.spark.decode.decoding import Decoder

    keep_what_is_loaded()
    topic, index = wanted.partition
    decoder = Decoder(schema, topic, index)
    with _Fetching(wanted, connection) as fetching:
        while fetching.position < wanted.end:
            try:
                fetched = fetching.next()
            except DataLoss as error:
                if fails_on_data_loss:
                    raise
                log.warning("%s", error.loss)
                if not fetching.position < error.loss.resume_at < wanted.end:
                    return  # nothing of this range is left
                fetching.move_to(error.loss.resume_at)
                continue
            aborted = None
            if fetched.aborted is not None:
                aborted = AbortedRanges(Aborted(one.first_offset, one.producer_id) for one in fetched.aborted)
            yield from decoder.decode(fetched.data, fetching.position, wanted.end, aborted)
            fetching.position = fetched.end


class _Fetching:
    """One range, by a consumer that this process keeps for its next tasks."""

    def __init__(self, wanted: Range, connection: Connection) -> None:
        self.position = wanted.start
        self._wanted = wanted
        self._connection = connection
        self._door = door()
        self._consumer = _taken(connection, self._door)

    def __enter__(self) -> "_Fetching":
        self._door.call(lambda: self._consumer.assign([self._wanted.partition]))
        self.move_to(self._wanted.start)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        """A consumer that failed is not used again."""
        if kind is None or kind is GeneratorExit:
            self._door.call(lambda: self._consumer.assign([]))
            _give_back(self._connection, self._door, self._consumer)
        else:
            self._door.run(_close(self._consumer))

    def move_to(self, offset: int) -> None:
        self.position = offset
        self._door.call(lambda: self._seek(offset))

    def _seek(self, offset: int) -> None:
        self._consumer.seek(self._wanted.partition, offset, self._wanted.end)

    def next(self) -> Fetched:
        """KafkaError when nothing comes for `poll_ms_max`; DataLoss."""
        return self._door.run(self._next())

    async def _next(self) -> Fetched:
        left_ms = self._connection.poll_ms_max
        while True:
            try:
                fetched = await self._consumer.poll_fetched(min(POLL_MS, left_ms))
            except KafkaError as error:
                loss = await self._loss(error)
                if loss is None:
                    raise
                raise DataLoss(loss) from error
            # Looked at after the fetch: what comes from a topic made anew comes after its id is known.
            if not self._is_meant():
                await self._find_meant()
                self._seek(self.position)  # what came is of another topic
            elif fetched is not None:
                return fetched
            left_ms -= POLL_MS
            if left_ms <= 0:
                waited = f"nothing of {self._wanted.partition} came in {self._connection.poll_ms_max} ms"
                trouble = self._consumer.trouble or f"the log does not reach offset {self.position} any more"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{waited} (kafkaConsumer.pollTimeoutMs): {trouble}")

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
        raise DataLoss(recreated(self._wanted.partition, self.position, 0))

    async def _loss(self, error: KafkaError) -> Loss | None:
        partition = self._wanted.partition
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        await self._find_meant()
        start = (await self._consumer.beginning_offsets([partition]))[partition]
        await self._find_meant()
        if self.position < start:
            return aged_out(partition, self.position, start)
        end = (await self._consumer.end_offsets([partition]))[partition]
        return truncated(partition, Place(self.position, self._wanted.topic_id), end)


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
        gone = _idle.pop((process_id, oldest))
        if process_id == entrance.process_id:
            entrance.run(_close(gone))


async def _close(consumer: Consumer) -> None:
    await consumer.__aexit__(None, None, None)
