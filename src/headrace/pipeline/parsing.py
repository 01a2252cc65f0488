"""Records to rows of the table: each has either all columns, or a reason why it has not."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.pipeline.avro import decoder
from headrace.pipeline.json_checks import as_text, is_wrong, with_nulls
from headrace.pipeline.outcome import AskedWrongly
from headrace.pipeline.schemas import EVENT_DATE, META, ValueSchema
from headrace.spark.schema import COLUMNS

CORRUPT = "_corrupt"
PARSED = "_parsed"
REASON = "_reason"
FIRST_DAY, LAST_TIME = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The same. Others are no days to whoever reads the table with Python, nor to us."""
SOURCE = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
"""What is read of a topic."""


def table_schema(schema: ValueSchema) -> StructType:
    """All columns of the table; the last one is in the names of directories, not in the files."""
    fields = [StructField(field.name, with_nulls(field.dataType)) for field in schema.fields.fields]
    meta = [StructField(name, COLUMNS[name.removeprefix("_")]) for name in META]
    return StructType([*fields, *meta, StructField(EVENT_DATE, DateType())])


class Parsing:
    def __init__(self, schema: ValueSchema, event_time: str | None, avro_header: bool) -> None:
        """AskedWrongly if there is no such column for the time, or not of a kind that has one."""
        self._schema = schema
        self._avro_header = avro_header
        if avro_header and schema.avro is None:
            raise AskedWrongly("--avro-header is for values in Avro: give --schema with an Avro schema")
        self._time = None if event_time is None else _time_of(schema.fields, event_time)

    def rows(self, records: DataFrame) -> DataFrame:
        """The columns of the table, and REASON; null for those that are fine."""
        parsed = self._parsed(records)
        time = f.col("timestamp") if self._time is None else self._time
        parsed = parsed.withColumn("_time", time)
        has_day = f.col("_time").between(f.lit(FIRST_DAY).cast("timestamp"), f.lit(LAST_TIME).cast("timestamp"))
        what = "timestamp" if self._time is None else "event time"
        late = f.when(has_day, None).otherwise(f.lit(f"its {what} cannot be read, or is of no year from 1 to 9999"))
        parsed = parsed.withColumn(REASON, f.coalesce(f.col(REASON), late))
        names = [f"`{field.name}`" for field in self._schema.fields.fields]
        return parsed.select(
            *(f.col(f"{PARSED}.{name}") for name in names),
            *(f.col(name.removeprefix("_")).alias(name) for name in META),
            f.to_date("_time").alias(EVENT_DATE),
            f.col(REASON),
            f.col("value").alias("_value"),
        )

    def _parsed(self, records: DataFrame) -> DataFrame:
        if self._schema.avro is not None:
            kept = records.columns
            fields = [
                *records.schema.fields,
                StructField(PARSED, self._schema.fields),
                StructField(REASON, StringType()),
            ]
            return records.mapInArrow(decoder(self._schema.avro, self._avro_header, kept), StructType(fields))
        wanted = self._schema.fields
        read = as_text(wanted)
        assert isinstance(read, StructType)
        full = StructType([*read.fields, StructField(CORRUPT, StringType())])
        how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        text = f.col("value").cast("string")
        parsed = records.withColumn(PARSED, f.from_json(text, full, how))
        is_bad = (
            f.col(PARSED).isNull() | f.col(f"{PARSED}.{CORRUPT}").isNotNull() | is_wrong(text, f.col(PARSED), wanted)
        )
        reason = f.when(f.col("value").isNull(), f.lit("it has no value")).when(
            is_bad, f.lit("it is no JSON of the schema")
        )
        parsed = parsed.withColumn(REASON, reason)
        columns = [_as(f.col(PARSED).getField(one.name), one.dataType).alias(one.name) for one in wanted.fields]
        return parsed.withColumn(PARSED, f.struct(*columns))


def _as(column: Column, kind: DataType) -> Column:
    """What was read as text becomes what it is; it was seen to fit."""
    return column if as_text(kind) == with_nulls(kind) else column.try_cast(with_nulls(kind))


def _time_of(fields: StructType, path: str) -> Column:
    kind: DataType = fields
    for name in path.split("."):
        found = kind[name] if isinstance(kind, StructType) and name in kind.names else None
        if found is None:
            raise AskedWrongly(f"--event-time {path} is no column of the schema: {', '.join(fields.names)}")
        kind = found.dataType
    column = f.col(".".join([PARSED, *(f"`{name}`" for name in path.split("."))]))
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return column.cast("timestamp")
    if isinstance(kind, StringType):
        return column.try_cast("timestamp")
    if isinstance(kind, LongType | IntegerType):
        return f.when(column.between(FIRST_MS, LAST_MS), f.timestamp_millis(column))
    raise AskedWrongly(
        f"--event-time {path} is {kind.simpleString()}: it can be a timestamp, a date, a string, or whole milliseconds"
    )
