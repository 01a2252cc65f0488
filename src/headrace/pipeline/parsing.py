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
from headrace.pipeline.json_checks import FIRST_DAY, LAST_TIME, anywhere, as_text, is_wrong, with_nulls
from headrace.pipeline.json_numbers import as_written, has_mark, holds_text, in_strings, is_at_risk, without_marks
from headrace.pipeline.outcome import AskedWrongly
from headrace.pipeline.schemas import EVENT_DATE, META, ValueSchema
from headrace.spark.schema import COLUMNS

CORRUPT = "_corrupt"
PARSED = "_parsed"
REASON = "_reason"
WRITTEN = "_written"
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""Of FIRST_DAY and LAST_TIME."""
JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "enableDateTimeParsingFallback": "false",  # that takes "20240101" for so many days
}
TIME_OF_DAY = r"^\s*T?\d{1,2}:"
"""Spark would take it for one of today."""
TOO_MANY_SECONDS = r"^-?\d{13,}$"
"""Spark makes microseconds of them, of which only the last 64 bits count: it would be another time."""
MAYBE_ANOTHER_TIME = r'"\s*T?\d{1,2}:|[:,\[]\s*-?\d{13}'
"""The same two, in the whole record."""
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
        text = f.col("value").cast("string")
        parsed = _read(records, text, wanted)
        is_bad = (
            f.col(PARSED).isNull()
            | f.col(f"{PARSED}.{CORRUPT}").isNotNull()
            | is_wrong(text, f.col(PARSED), wanted)
            | _has_another_time(text, wanted)
        )
        reason = f.when(f.col("value").isNull(), f.lit("it has no value")).when(
            is_bad, f.lit("it is no JSON of the schema")
        )
        parsed = parsed.withColumn(REASON, reason)
        columns = [_as(f.col(PARSED).getField(one.name), one.dataType).alias(one.name) for one in wanted.fields]
        return parsed.withColumn(PARSED, f.struct(*columns))


def _read(records: DataFrame, text: Column, wanted: StructType) -> DataFrame:
    """PARSED is what is wanted, `as_text`, and CORRUPT."""
    read = as_text(wanted)
    assert isinstance(read, StructType)
    parsed = records.withColumn(PARSED, _from_json(text, read))
    at_risk = is_at_risk(text, f.col(PARSED), read)
    if at_risk is None:
        return parsed
    written = parsed.withColumn(WRITTEN, f.when(at_risk, _from_json(in_strings(text), as_written(read))))
    exact = [
        without_marks(f.col(WRITTEN).getField(one.name), one.dataType).alias(one.name)
        if holds_text(one.dataType)
        else f.col(PARSED).getField(one.name).alias(one.name)
        for one in read.fields
    ]
    corrupt = f.coalesce(
        f.col(PARSED).getField(CORRUPT), f.col(WRITTEN).getField(CORRUPT), f.when(has_mark(text), text)
    ).alias(CORRUPT)
    return written.withColumn(
        PARSED, f.when(f.col(WRITTEN).isNotNull(), f.struct(*exact, corrupt)).otherwise(f.col(PARSED))
    )


def _has_another_time(text: Column, wanted: StructType) -> Column:
    """Whether a timestamp is not what was written: a time of day alone, or seconds of no year. Parsed a second time
    only where there is such a text."""
    nullable = with_nulls(wanted)
    read = with_nulls(wanted, lambda kind: StringType() if isinstance(kind, TimestampType) else kind)
    if read == nullable:
        return f.lit(False)

    def is_another(value: Column, kind: DataType) -> Column | None:
        return value.rlike(f"{TIME_OF_DAY}|{TOO_MANY_SECONDS}") if isinstance(kind, TimestampType) else None

    found = anywhere(_from_json(text, read), nullable, is_another)
    assert found is not None
    return f.coalesce(text.rlike(MAYBE_ANOTHER_TIME) & found, f.lit(False))


def _from_json(text: Column, kind: DataType) -> Column:
    assert isinstance(kind, StructType)
    return f.from_json(text, StructType([*kind.fields, StructField(CORRUPT, StringType())]), JSON_OPTIONS)


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
        return f.when(~column.rlike(TIME_OF_DAY), column.try_cast("timestamp"))
    if isinstance(kind, LongType | IntegerType):
        return f.when(column.between(FIRST_MS, LAST_MS), f.timestamp_millis(column))
    raise AskedWrongly(
        f"--event-time {path} is {kind.simpleString()}: it can be a timestamp, a date, a string, or whole milliseconds"
    )
