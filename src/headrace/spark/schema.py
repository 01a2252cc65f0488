"""The columns of the source: those of Spark's own Kafka connector. A schema that names fewer sends fewer."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.spark.option_values import OptionRefused

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
}
METADATA = ("leaderEpoch", "producerId")
"""Of the record batch, as it is in the log: -1 where it has none."""

CAN_BE_NULL = ("key", "value", "headers")


def source_schema(includes_headers: bool, includes_metadata: bool = False) -> StructType:
    left_out = (*(() if includes_headers else ("headers",)), *(() if includes_metadata else METADATA))
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if name not in left_out])


def check_schema(schema: StructType) -> None:
    """OptionRefused for a column that there is not, or not of that type, or that is named twice, or that is said never
    to be null and can be: on a row without it, Spark would fail with an error of its own."""
    for column in schema.fields:
        kind = COLUMNS.get(column.name)
        if kind is None:
            raise OptionRefused(f"there is no column {column.name!r}; the columns are {', '.join(COLUMNS)}")
        if column.dataType.simpleString() != kind.simpleString():
            told, right = column.dataType.simpleString(), kind.simpleString()
            raise OptionRefused(f"column {column.name} is {right}, not {told}; cast it in the query")
        if column.name in CAN_BE_NULL and (not column.nullable or column.dataType != kind):
            raise OptionRefused(f"column {column.name} can be null; leave NOT NULL out of the schema")
        if schema.names.count(column.name) > 1:
            raise OptionRefused(f"the schema names column {column.name} twice; select it twice in the query")
    if not schema.fields:
        raise OptionRefused(f"the schema names no column; the columns are {', '.join(COLUMNS)}")
