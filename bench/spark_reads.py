"""The same rows read in every way, in turn: ours from brokers and from the tier, Spark's connector, Parquet."""

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.spark_floor import FLOOR, Floor
from bench.spark_rows import KINDS, PARTITIONS, RECORD_BYTES, Rows, all_columns, cold_ends, fill, write_parquet
from bench.spark_session import Spent, spent
from headrace.spark.decode.decoding import BYTES_AIM, ROWS_AIM
from headrace.spark.schema import source_schema
from tests.servers.process import BrokerProcess

HOT, COLD, STOCK_HERE, STOCK, TUNED, PARQUET = (
    "headrace",
    "headrace, tier",
    "kafka on Headrace",
    "kafka on Kafka",
    "kafka on Kafka, tuned",
    "Parquet",
)
WAYS = (HOT, COLD, STOCK_HERE, STOCK, TUNED, PARQUET)
IN_PYTHON = (HOT, COLD, FLOOR)
WARM_UP_ROUNDS = 3
FIRST_ROWS = 10
"""Of each partition, that are read before what counts."""
TUNING = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(16 << 20),
    "kafka.receive.buffer.bytes": str(4 << 20),
}
ALL = source_schema(False)
COUNT, SUM, COLUMNS, TO_PARQUET = "count()", "sum(length(value))", "all columns", "to Parquet"
ACTIONS = (COUNT, SUM, COLUMNS, TO_PARQUET)
JUDGED = (SUM, COLUMNS)
"""What targets are for: read twice in each round, since one time differs from the next by a third."""


@dataclass
class Reads:
    counts: dict[int, int]
    """Rows by their size."""
    spent: dict[tuple[Rows, str, str], list[Spent]] = field(default_factory=dict)
    """By rows, action and way."""
    cold_counts: dict[Rows, int] = field(default_factory=dict)

    def rows(self, kind: Rows, way: str) -> int:
        return self.cold_counts[kind] if way == COLD else self.counts[kind.record_bytes]

    def us_per_row(self, kind: Rows, action: str, way: str) -> float:
        """CPU of Spark, the median."""
        return self._median(kind, action, way, lambda one: one.cpu_s) * 1e6

    def python_us_per_row(self, kind: Rows, action: str, way: str) -> float:
        return self._median(kind, action, way, lambda one: one.python_s) * 1e6

    def broker_us_per_row(self, kind: Rows, action: str, way: str) -> float:
        return self._median(kind, action, way, lambda one: one.broker_s) * 1e6

    def rows_per_s(self, kind: Rows, action: str, way: str) -> float:
        return 1 / self._median(kind, action, way, lambda one: one.wall_s)

    def _median(self, kind: Rows, action: str, way: str, figure: Callable[[Spent], float]) -> float:
        rows = self.rows(kind, way)
        return statistics.median(figure(one) / rows for one in self.spent[kind, action, way])


class Reading:
    def __init__(
        self, spark: SparkSession, scratch: Path, headrace: BrokerProcess, kafka: BrokerProcess, counts: dict[int, int]
    ) -> None:
        self._spark = spark
        self._scratch = scratch
        self._brokers = {HOT: headrace, COLD: headrace, STOCK_HERE: headrace, STOCK: kafka, TUNED: kafka}
        self._cold_ends: dict[Rows, list[int]] = {}
        self.reads = Reads(counts)

    def prepare(self) -> None:
        for record_bytes in RECORD_BYTES:
            count = self.reads.counts[record_bytes]
            path = write_parquet(self._spark, self._scratch, record_bytes, count)
            all_columns(self._spark, self._scratch, record_bytes)
            _say(f"{count:,} rows of {record_bytes} B are made")
            rows = self._spark.read.parquet(str(path))
            for kind in KINDS:
                if kind.record_bytes == record_bytes:
                    fill(rows, self._brokers[HOT], kind, is_cold=False)
                    fill(rows, self._brokers[HOT], kind, is_cold=True)
                    fill(rows, self._brokers[STOCK], kind, is_cold=False)
                    ends = self._cold_ends[kind] = cold_ends(self._brokers[COLD], kind.cold_topic)
                    self.reads.cold_counts[kind] = sum(ends)

    def run(self, rounds: int) -> Reads:
        """Rows that are not compressed are read more often, after rounds that warm the JVM up."""
        self._spark.dataSource.register(Floor)
        for kind in KINDS:
            if kind.codec == "none":
                for _ in range(WARM_UP_ROUNDS):
                    self._round(kind, ACTIONS, counts=False)
                for _ in range(rounds):
                    self._round(kind, ACTIONS)
                    self._round(kind, JUDGED)
            else:
                self._round(kind, ACTIONS)
            for action in ACTIONS:
                told = ", ".join(f"{way} {self.reads.us_per_row(kind, action, way):.2f}" for way in WAYS)
                _say(f"{kind.label}, {action} | CPU us/row: {told}")
        return self.reads

    def _round(self, kind: Rows, actions: Sequence[str], *, counts: bool = True) -> None:
        for action in actions:
            for way in (*WAYS, FLOOR) if kind.codec == "none" and action == COLUMNS else WAYS:
                one = self._read(kind, action, way)
                if counts:
                    self.reads.spent.setdefault((kind, action, way), []).append(one)

    def _read(self, kind: Rows, action: str, way: str) -> Spent:
        columns = "value binary" if action == SUM else ""
        if way in IN_PYTHON:
            # Spark ends Python processes that were idle for a minute, as they are here while others have their turn.
            act(self._frame(kind, way, columns, FIRST_ROWS), COLUMNS, self._scratch)
        frame = self._frame(kind, way, columns)
        broker = self._brokers.get(way, self._brokers[HOT])
        expected, counted = self.reads.rows(kind, way), expected_rows(action, kind.record_bytes)

        def job() -> None:
            found = act(frame, action, self._scratch / "out.parquet")
            assert found is None or found == expected * counted, f"{way}: {found} of {expected * counted}"

        return spent(self._spark, job, broker, [one.pid for one in self._brokers.values()])

    def _frame(self, kind: Rows, way: str, columns: str, rows_max: int | None = None) -> DataFrame:
        """Of Parquet, Spark reads the columns that it needs, of its connector all; ours is told them by a schema. What
        is in Python can be had with so many rows of each partition at most."""
        if way == FLOOR:
            batch_rows = min(ROWS_AIM, BYTES_AIM // kind.record_bytes)
            rows = self.reads.counts[kind.record_bytes] if rows_max is None else PARTITIONS * rows_max
            sizes = {"rows": rows, "recordBytes": kind.record_bytes}
            return self._spark.read.format(Floor.name()).options(**sizes, batchRows=batch_rows).schema(ALL).load()
        if way == PARQUET:
            return self._spark.read.parquet(str(self._scratch / f"columns-{kind.record_bytes}.parquet"))
        options = {"kafka.bootstrap.servers": self._brokers[way].bootstrap, "subscribe": kind.topic}
        if way == TUNED:
            options |= TUNING
        if way == COLD:
            options |= _up_to(kind.cold_topic, self._cold_ends[kind])
        if rows_max is not None:
            options |= _up_to(options["subscribe"], [rows_max] * PARTITIONS)
        if way not in (HOT, COLD):
            return self._spark.read.format("kafka").options(**options).load()
        reader = self._spark.read.format("headrace").options(**options)
        return reader.schema(columns).load() if columns else reader.load()


def _up_to(topic: str, ends: list[int]) -> dict[str, str]:
    by_partition = {str(index): end for index, end in enumerate(ends)}
    return {"subscribe": topic, "endingOffsets": json.dumps({topic: by_partition})}


def act(frame: DataFrame, action: str, out: Path) -> int | None:
    if action == COUNT:
        return frame.count()
    if action == SUM:
        total: int = frame.selectExpr("sum(length(value)) total").collect()[0].total
        return total
    if action == COLUMNS:
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.mode("overwrite").parquet(str(out))
    return None


def expected_rows(action: str, record_bytes: int) -> int:
    return record_bytes if action == SUM else 1


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
