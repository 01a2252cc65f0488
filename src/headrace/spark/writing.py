"""What a task does: its rows into topics, in a transaction that is left open for the driver to commit."""

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.commit_group import CommitGroups, Handle, transactional_id
from headrace.client.errors import BufferFull, Fenced, TransactionFailed
from headrace.client.outside import Outside
from headrace.client.producer import Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.door import Door, door
from headrace.spark.gathering import bytes_aim, gathered
from headrace.spark.kept import cluster_of, forget_cluster, groups_of, offers_groups
from headrace.spark.task import Attempt, Group
from headrace.spark.worker_memory import keep_what_is_loaded
from headrace.spark.write_options import Guarantee, WriteOptions
from headrace.wire.batch import EncodedRecords

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

BUFFER_BYTES = 16 << 20
"""Of a task, on their way."""

AT_LEAST_ONCE = (
    "the cluster at %s cannot commit the tasks of a batch together (it is Apache Kafka, or an old Headrace): rows are "
    "written at least once, and those of a task or a batch that is run again are there again. Option "
    "deliveryGuarantee=at_least_once says that this is fine"
)


class Outcome(NamedTuple):
    rows: int
    handle: Handle | None = None
    """None: nothing was written, or without a transaction."""
    is_skipped: bool = False
    """The batch had been committed before."""


def guarantee_of(options: WriteOptions) -> Guarantee:
    """KafkaError if the cluster cannot do what is asked for."""
    if options.guarantee == "at_least_once":
        return "at_least_once"
    if offers_groups(door(), options.bootstrap):
        return "exactly_once"
    if options.guarantee == "exactly_once":
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the cluster at {options.bootstrap} cannot commit the tasks of a batch together (it is Apache Kafka, or "
            "an old Headrace), so that exactly_once is not possible; deliveryGuarantee=at_least_once is",
        )
    say_at_least_once(options.bootstrap)
    return "at_least_once"


@cache
def say_at_least_once(bootstrap: str) -> None:
    """Once in a process, not with every task."""
    log.warning(AT_LEAST_ONCE, bootstrap)


def write_once(rows: "Iterator[pa.RecordBatch]", options: WriteOptions, group: Group, attempt: Attempt) -> Outcome:
    """Nothing of it can be read before the driver has committed the batch."""
    at = door()
    groups = groups_of(at, options.bootstrap)
    if _is_committed(at, groups, group):
        return _skipped(rows)
    name = transactional_id(
        group.scope, group.query_id, group.batch_id, attempt.partition, group.run_id, attempt.attempt_id
    )
    try:
        with Writing(options, at, name, attempt.partition + group.batch_id) as writing:
            count, handle = writing.write(rows), writing.handle()
            if count and handle is None:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{count} rows were written in no transaction")
            return Outcome(count, handle)
    except (Fenced, TransactionFailed):
        if _is_committed(at, groups, group):  # by another attempt, meanwhile: it fences all others
            return _skipped(rows)
        raise


def write_at_least_once(rows: "Iterator[pa.RecordBatch]", options: WriteOptions, first_turn: int) -> Outcome:
    """All of it can be read when this returns."""
    with Writing(options, door(), None, first_turn) as writing:
        count = writing.write(rows)
        writing.finish()
        return Outcome(count)


def _is_committed(at: Door, groups: CommitGroups, group: Group) -> bool:
    return at.run(groups.last_committed(group.scope, group.query_id)) >= group.batch_id


def _skipped(rows: "Iterator[pa.RecordBatch]") -> Outcome:
    """To the end: Spark does not use a process again that leaves rows unread."""
    return Outcome(sum(batch.num_rows for batch in rows), is_skipped=True)


class Writing:
    """By a producer of its own, which is made when the first row comes: many tasks have none."""

    def __init__(self, options: WriteOptions, at: Door, name: str | None, first_turn: int) -> None:
        from headrace.spark.encode.encoding import BATCH_BYTES, Encoder  # the driver needs no compiler

        keep_what_is_loaded()
        self._options = options
        self._door = at
        self._name = name
        self._clock = Outside().clock
        self._producer: Producer | None = None
        self._counts: dict[str, int] = {}
        self._failure: KafkaError | None = None
        self._encoder = Encoder(
            options.topic,
            self._partition_counts,
            codec=options.codec,
            batch_bytes=BATCH_BYTES if options.batch_bytes is None else options.batch_bytes,
            first_turn=first_turn,
        )

    def __enter__(self) -> "Writing":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        """A transaction that was not handed over is aborted."""
        if self._producer is not None:
            self._door.run(self._left(self._producer, kind, error))

    async def _left(self, producer: Producer, kind: type[BaseException] | None, error: BaseException | None) -> None:
        try:
            await producer.__aexit__(kind, error, None)
        finally:
            if kind is not None:
                await forget_cluster(self._door, self._options.bootstrap, self._options.client_id)

    def write(self, rows: "Iterator[pa.RecordBatch]") -> int:
        """How many."""
        count = 0
        for batch in gathered(rows, self._bytes_aim):
            self._send(self._encoded(batch))
            count += batch.num_rows
        return count

    def _encoded(self, batch: "pa.RecordBatch") -> list[tuple[TopicPartition, EncodedRecords]]:
        """A partition that is named and not known may be one that its topic got since it was asked about."""
        try:
            return list(self._encoder.encode(batch, self._clock.wall_ms()))
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or self._failure is not None:
                raise
        self._door.run(self._asked_again())
        return list(self._encoder.encode(batch, self._clock.wall_ms()))

    async def _asked_again(self) -> None:
        options = self._options
        cluster = await cluster_of(self._door, options.bootstrap, options.client_id)
        await cluster.refresh_patiently(options.request_ms_max)
        self._counts.clear()

    def _bytes_aim(self, batch: "pa.RecordBatch") -> int:
        self._begin()
        topic = self._options.topic
        counts = self._counts if topic is None else self._partition_counts([topic])
        return bytes_aim(batch.schema.names, sum(counts.values()))

    def handle(self) -> Handle | None:
        """The transaction, with everything stored. None if there were no rows."""
        if self._producer is None:
            return None
        self._check()
        return self._door.run(self._producer.handle())

    def finish(self) -> None:
        """Until everything is stored. KafkaError when something is not."""
        if self._producer is not None:
            self._door.run(self._producer.flush())
        self._check()

    def _begin(self) -> None:
        if self._producer is None:
            self._producer = self._door.run(self._begun())

    async def _begun(self) -> Producer:
        options = self._options
        cluster = await cluster_of(self._door, options.bootstrap, options.client_id)
        cluster.lose_interest()
        producer = Producer(
            options.bootstrap,
            acks=options.acks,
            buffer_bytes=max(BUFFER_BYTES, 2 * (options.batch_bytes or 0)),
            delivery_ms_max=options.delivery_ms_max,
            request_ms_max=options.request_ms_max,
            transactional_id=self._name,
            transaction_timeout_ms=options.transaction_ms_max,
            client_id=options.client_id,
            cluster=cluster,
        )
        await producer.__aenter__()
        if self._name is not None:
            try:
                await producer.begin()
            except BaseException:  # whatever it was, nobody else closes it
                await producer.__aexit__(None, None, None)
                raise
        return producer

    def _send(self, batches: Sequence[tuple[TopicPartition, EncodedRecords]]) -> None:
        self._door.run(self._sent(batches))
        self._check()

    async def _sent(self, batches: Sequence[tuple[TopicPartition, EncodedRecords]]) -> None:
        assert self._producer is not None
        for partition, records in batches:
            if self._failure is not None:
                return
            await self._producer.ready()
            try:
                self._producer.send_encoded(partition, records, self._lost)
            except BufferFull:  # a very large one
                await self._producer.flush()
                self._producer.send_encoded(partition, records, self._lost)

    def _lost(self, error: KafkaError) -> None:
        self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        for topic in topics:
            if topic not in self._counts:
                assert self._producer is not None
                try:
                    self._counts[topic] = len(self._door.run(self._producer.partitions_of(topic)))
                except KafkaError as error:  # it was asked for long enough
                    self._lost(error)
                    raise
        return self._counts
