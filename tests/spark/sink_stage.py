"""Tasks and drivers of the sink as plain Python: what Spark would tell them is told by a test."""

import asyncio
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client import Consumer
from headrace.spark import task
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.messages import Written
from headrace.spark.stream_sink import StreamSink

VALUE = StructType([StructField("value", BinaryType())])
T = TypeVar("T")
SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class Spark:
    """In the place of `TaskContext`, for the task that runs now."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.partition = 0
        self.attempts = 0

    def partitionId(self) -> int:
        return self.partition

    def taskAttemptId(self) -> int:
        self.attempts += 1
        return self.attempts

    def getLocalProperty(self, key: str) -> str | None:
        return self.properties.get(key)


class Query:
    """One run of a query with the sink `headrace`."""

    def __init__(
        self, spark: Spark, run: str, options: dict[str, str], *, started_ms: int = 1_000, query_id: str = "query-1"
    ) -> None:
        self._spark = spark
        self._run = run
        self._query_id = query_id
        self._started_ms = started_ms
        self._options = {key.lower(): text for key, text in options.items()}

    def sink(self) -> StreamSink:
        """A new one for each step, as Spark has it."""
        sink = HeadraceDataSource(self._options).streamWriter(schema=VALUE, overwrite=False)
        assert isinstance(sink, StreamSink)
        return pickled(sink)

    def task(self, batch_id: int, partition: int, *values: bytes) -> Written:
        self._spark.properties = {
            task.QUERY_ID: self._query_id,
            task.BATCH_ID: str(batch_id),
            task.RUN_ID: self._run,
            task.APP_START: str(self._started_ms),
        }
        self._spark.partition = partition
        return wrote(self.sink().write(batches(values)))

    def batch(self, batch_id: int, tasks: int = 2) -> list[Written]:
        """Each task writes one value that names the batch, itself and the run."""
        return [self.task(batch_id, at, b"%d.%d %s" % (batch_id, at, self._run.encode())) for at in range(tasks)]

    def commit(self, messages: list[Any], batch_id: int) -> None:
        self.sink().commit(messages, batch_id)


def wrote(message: Any) -> Written:
    assert isinstance(message, Written)
    return pickled(message)


def pickled(thing: T) -> T:
    copy: T = pickle.loads(pickle.dumps(thing))
    return copy


def batches(values: Iterable[bytes]) -> "Iterator[pa.RecordBatch]":
    yield pa.RecordBatch.from_arrays([pa.array(list(values), pa.binary())], ["value"])


def readable(bootstrap: str, topic: str = "t") -> list[bytes]:
    """What is committed, once no transaction is open."""

    async def read() -> list[bytes]:
        async with Consumer(bootstrap, isolation="read_committed") as decided, Consumer(bootstrap) as other:
            partitions = await decided.partitions_of(topic)
            async with asyncio.timeout(60):
                while await decided.end_offsets(partitions) != await other.end_offsets(partitions):  # noqa: ASYNC110  # nobody tells when
                    await asyncio.sleep(0.01)
                ends = await decided.end_offsets(partitions)
                decided.assign(partitions)
                values: list[bytes] = []
                while any([await decided.position(p) < ends[p] for p in partitions]):
                    values += [record.value or b"" for record in await decided.poll(200)]
        return sorted(values)

    return asyncio.run(read())


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    told = Spark()
    monkeypatch.setattr(task, "current", lambda: told)
    return told
