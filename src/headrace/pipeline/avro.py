"""Values in Avro: which types Spark has for them, and how a task decodes them. Spark has no Avro without a jar."""

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructField, StructType

from headrace.pipeline.outcome import AskedWrongly

if TYPE_CHECKING:
    import pyarrow as pa

REGISTRY_HEADER_BYTES = 5
"""A zero byte and the number of the schema, as clients of a schema registry write them."""

_PLAIN: dict[str, type[DataType]] = {
    "boolean": spark_types.BooleanType,
    "int": spark_types.IntegerType,
    "long": spark_types.LongType,
    "float": spark_types.FloatType,
    "double": spark_types.DoubleType,
    "bytes": spark_types.BinaryType,
    "fixed": spark_types.BinaryType,
    "string": spark_types.StringType,
    "enum": spark_types.StringType,
}
_LOGICAL: dict[tuple[str, str], type[DataType]] = {
    ("int", "date"): spark_types.DateType,
    ("long", "timestamp-millis"): spark_types.TimestampType,
    ("long", "timestamp-micros"): spark_types.TimestampType,
    ("string", "uuid"): spark_types.StringType,
}
DECIMAL_DIGITS_MAX = 38
"""Of Spark's."""


def avro_type(text: str) -> StructType:
    """AskedWrongly for a schema that is none, or that no table can have."""
    try:
        import fastavro
    except ImportError:
        raise AskedWrongly("an Avro schema needs fastavro: install headrace[lake]") from None
    try:
        found = _Types().of(fastavro.parse_schema(json.loads(text)), "")
    except AskedWrongly:
        raise
    except KeyError as error:
        raise AskedWrongly(f"the Avro schema cannot be read: a type of it has no {error.args[0]!r}") from None
    except (fastavro.schema.SchemaParseException, ValueError, TypeError) as error:
        raise AskedWrongly(f"the Avro schema cannot be read: {error}") from None
    assert isinstance(found, StructType)
    return found


class _Types:
    """Types that a schema has named so far: later it may call them by their names, all of which are given in full."""

    def __init__(self) -> None:
        self._named: dict[str, DataType | None] = {}

    def of(self, schema: Any, where: str) -> DataType:
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema]()
            found = self._named.get(schema)
            if found is None:
                raise AskedWrongly(
                    f"the Avro schema has a type {schema} at {where or 'the top'} that no table can have"
                )
            return found
        kind = schema["type"]
        if kind == "record":
            return self._record(schema, where)
        if kind == "array":
            return spark_types.ArrayType(self.of(schema["items"], f"{where}[]"))
        if kind == "map":
            return spark_types.MapType(spark_types.StringType(), self.of(schema["values"], f"{where}{{}}"))
        if _is_decimal(schema):
            if schema["precision"] > DECIMAL_DIGITS_MAX:
                digits = f"{schema['precision']} digits, and {DECIMAL_DIGITS_MAX} is the most"
                raise AskedWrongly(f"the Avro schema has a decimal at {where or 'the top'} of {digits}")
            return self._name(schema, spark_types.DecimalType(schema["precision"], schema.get("scale", 0)))
        logical = _LOGICAL.get((str(kind), str(schema.get("logicalType"))))
        return self._name(
            schema, self.of(kind, where) if logical is None and kind not in _PLAIN else (logical or _PLAIN[kind])()
        )

    def _name(self, schema: Any, found: DataType) -> DataType:
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _record(self, schema: Any, where: str) -> DataType:
        name = schema["name"]
        if not schema["fields"]:
            raise AskedWrongly(f"the Avro schema has a record at {where or 'the top'} that has no fields: no column")
        self._named[name] = None  # a type within itself has no end
        fields = [
            StructField(field["name"], self.of(field["type"], f"{where}.{field['name']}".lstrip(".")))
            for field in schema["fields"]
        ]
        self._named[name] = StructType(fields)
        return StructType(fields)

    def _union(self, schema: list[Any], where: str) -> DataType:
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise AskedWrongly(
                f"the Avro schema has a union of {len(others)} types at {where}: only null and one other"
            )
        return self.of(others[0], where)


def _is_decimal(schema: Any) -> bool:
    return schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed")


def _without_unknown(schema: Any) -> Any:
    """As it is read: a logical type that no column has is what it is made of, as Avro says."""
    if isinstance(schema, list):
        return [_without_unknown(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = _is_decimal(schema) or (str(schema.get("type")), str(schema.get("logicalType"))) in _LOGICAL
    return {key: _without_unknown(one) for key, one in schema.items() if known or key != "logicalType"}


def decoder(
    schema: str, has_header: bool, kept: list[str]
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For mapInArrow: the columns `kept`, and besides `_parsed` and `_reason`, of which one is null."""
    fields = avro_type(schema)

    def decode(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import fastavro
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        kind = to_arrow_type(fields, timezone="UTC")
        parsed_schema = fastavro.parse_schema(_without_unknown(json.loads(schema)))
        for batch in batches:
            rows = [_row(value.as_py(), parsed_schema, has_header) for value in batch.column("value")]
            try:
                parsed = _array([row for row, _ in rows], kind)
            except (ValueError, TypeError, OverflowError):  # of one of them, which must not stop all others
                rows = [_held(row, reason, kind) for row, reason in rows]
                parsed = _array([row for row, _ in rows], kind)
            reasons = pa.array([reason for _, reason in rows], pa.string())
            columns = [batch.column(name) for name in kept]
            yield pa.RecordBatch.from_arrays([*columns, parsed, reasons], [*kept, "_parsed", "_reason"])

    return decode


def _array(rows: list[dict[str, Any] | None], kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    return pa.array(rows, kind)


def _held(
    row: dict[str, Any] | None, reason: str | None, kind: "pa.DataType"
) -> tuple[dict[str, Any] | None, str | None]:
    try:
        _array([row], kind)
    except (ValueError, TypeError, OverflowError):
        return None, "it has a value that its column cannot hold"
    return row, reason


def _row(value: bytes | None, schema: Any, has_header: bool) -> tuple[dict[str, Any] | None, str | None]:
    if value is None:
        return None, "it has no value"
    if has_header and not _begins_as_of_a_registry(value):
        return None, "it does not begin as values of a schema registry do"
    row, reason = _read(value[REGISTRY_HEADER_BYTES:] if has_header else value, schema)
    is_header_left_out = reason is not None and not has_header and _begins_as_of_a_registry(value)
    if is_header_left_out and _read(value[REGISTRY_HEADER_BYTES:], schema)[1] is None:
        reason = "it begins with the 5 bytes of a schema registry: --avro-header leaves them out"
    return row, reason


def _begins_as_of_a_registry(value: bytes) -> bool:
    return len(value) >= REGISTRY_HEADER_BYTES and not value[0]


def _read(data: bytes, schema: Any) -> tuple[dict[str, Any] | None, str | None]:
    import fastavro

    stream = BytesIO(data)
    try:
        row = fastavro.schemaless_reader(stream, schema, None)
    except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, UnicodeDecodeError) as error:
        return None, f"it is no Avro of the schema: {type(error).__name__}"
    if stream.read(1):
        return None, "it is longer than Avro of the schema"
    assert isinstance(row, dict)
    return _plain(row), None


def _plain(value: Any) -> Any:
    """What Arrow does not take by itself."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value) if type(value).__name__ == "UUID" else value
