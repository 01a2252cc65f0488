"""The schema of the values: given as DDL, as Spark's JSON or as an Avro schema, or inferred from a sample.

It is kept beside the table: what was inferred once is not inferred otherwise after a restart.
"""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from headrace.pipeline.avro import avro_type
from headrace.pipeline.outcome import AskedWrongly, PipelineFailed
from headrace.pipeline.place import Records

if TYPE_CHECKING:
    import pyarrow as pa

KEPT = "schema"
META = ("_key", "_topic", "_partition", "_offset", "_timestamp")
EVENT_DATE = "event_date"
CASE_SENSITIVE = "spark.sql.caseSensitive"


class ValueSchema(NamedTuple):
    fields: StructType
    avro: str | None = None
    """The Avro schema, where values are Avro."""

    def ddl(self) -> str:
        """For people."""
        return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in self.fields.fields)

    def to_json(self) -> str:
        return self.avro if self.avro is not None else self.fields.json()


def parse_schema(text: str, spark: SparkSession | None) -> ValueSchema:
    """AskedWrongly for what is none. DDL needs Spark."""
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if isinstance(told, dict) and told.get("type") == "record":
        return checked(ValueSchema(avro_type(text), text))
    if isinstance(told, dict) and told.get("type") == "struct":
        try:
            fields = StructType.fromJson(told)
        except (KeyError, TypeError, ValueError, PySparkException) as error:
            raise AskedWrongly(f"the schema is no JSON of Spark's: {_first_line(error)}") from None
        return checked(ValueSchema(fields))
    if told is not None:
        raise AskedWrongly('the schema is JSON, but neither Avro ("type": "record") nor Spark\'s ("type": "struct")')
    assert spark is not None
    try:
        fields = _of_ddl(text.strip())
    except (PySparkException, ValueError) as error:
        raise AskedWrongly(f"the schema is no DDL such as 'id long, name string': {_first_line(error)}") from None
    return checked(ValueSchema(fields))


def _of_ddl(text: str) -> StructType:
    from pyspark.sql.types import DataType

    found = DataType.fromDDL(text)
    if not isinstance(found, StructType):
        raise ValueError(f"it is one {found.simpleString()}, and no list of columns")
    return found


def checked(schema: ValueSchema) -> ValueSchema:
    names = [field.name for field in schema.fields.fields]
    if not names:
        raise AskedWrongly("the schema has no column")
    lowered = [name.lower() for name in names]
    for name in names:
        if name.lower() in (*META, EVENT_DATE, "_corrupt", "_reason", "_value"):
            raise AskedWrongly(f"the schema has a column {name}, a name that the table has for itself")
        if lowered.count(name.lower()) > 1:
            raise AskedWrongly(f"the schema has two columns {name}, which Spark does not tell apart")
        if "." in name or "`" in name:
            raise AskedWrongly(f"the schema has a column {name}: a name with a dot or a quote is not possible")
    return schema


def inferred(spark: SparkSession, bootstrap: str, topics: tuple[str, ...], rows: int) -> ValueSchema:
    """Of the first records of each partition of each topic. PipelineFailed if they tell nothing."""
    reader = spark.read.format("headrace").schema("value binary")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": ",".join(topics)}
    found = reader.options(**options, **{"kafka.isolation.level": "read_committed"}).load().where("value is not null")
    each = -(-rows // max(found.rdd.getNumPartitions(), 1))
    sample = found.mapInArrow(first_rows(each), "value binary").collect()
    texts = [bytes(row.value).decode(errors="replace") for row in sample]
    if not texts:
        raise PipelineFailed(f"{', '.join(topics)} has no record to infer a schema from: give --schema FILE")
    usable = [text for text in texts if not names_twice(text)]
    fields = [field for field in _fields_of(spark, usable) if field.name != "_corrupt"]
    if not fields:
        raise PipelineFailed(
            f"none of {len(texts)} sampled records of {', '.join(topics)} is a JSON object that names each field once: "
            "give --schema FILE"
        )
    try:
        return checked(ValueSchema(StructType(fields)))
    except AskedWrongly as wrong:
        raise AskedWrongly(
            f"in a sample of {', '.join(topics)} {wrong}: give --schema FILE with the columns that the table is to have"
        ) from None


def _fields_of(spark: SparkSession, texts: list[str]) -> list[StructField]:
    """Where Spark does not look at case, it may infer one column of two such names, and the values of the other one are
    lost."""
    before = str(spark.conf.get(CASE_SENSITIVE))
    spark.conf.set(CASE_SENSITIVE, "true")
    try:
        reader = spark.read.option("columnNameOfCorruptRecord", "_corrupt")
        return reader.json(spark.sparkContext.parallelize(texts, 1)).schema.fields
    finally:
        spark.conf.set(CASE_SENSITIVE, before)


def names_twice(text: str) -> bool:
    """Whether an object of the JSON has two fields of one name: Spark would infer two columns, and one such record of
    the sample would be in the way of all others."""

    def look(pairs: list[tuple[str, Any]]) -> None:
        if len({name for name, _ in pairs}) < len(pairs):
            raise _NamesTwice

    try:
        json.loads(text, object_pairs_hook=look)
    except _NamesTwice:
        return True
    except (ValueError, RecursionError):
        return False
    return False


class _NamesTwice(Exception):
    pass


def first_rows(rows: int) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For mapInArrow: so many of each partition, of which no more is read."""

    def first(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        missing = rows
        for batch in batches:
            yield batch.slice(0, missing)
            missing -= batch.num_rows
            if missing <= 0:
                return

    return first


def kept(records: Records, spark: SparkSession) -> ValueSchema | None:
    """What an earlier run decided for this table."""
    content = records.get(KEPT)
    return None if content is None else parse_schema(content.decode(), spark)


def keep(records: Records, schema: ValueSchema) -> None:
    """AskedWrongly if the table has another one."""
    mine = schema.to_json()
    there = records.put(KEPT, mine.encode()).decode()
    if json.loads(there) != json.loads(mine):
        raise AskedWrongly(
            "the table was begun with another schema: give that one, or another --to; it is kept in "
            "_headrace/records/schema beside the table"
        )


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
