"""Which types of Spark's a column of a table can have: others are refused before anything is begun, and kept."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
)

from headrace.pipeline.outcome import AskedWrongly

NOT_IN_DELTA = (DayTimeIntervalType, TimeType)
PLAIN = (
    *(BinaryType, BooleanType, DateType, DecimalType, NullType, NumericType, TimestampNTZType, TimestampType),
    *(VariantType, *NOT_IN_DELTA),
)


def check_types(fields: StructType, format: str) -> None:
    """AskedWrongly, with the first column that no table of the format can have."""
    for one in fields.fields:
        found = _not_possible(one.dataType, one.name, format)
        if found is not None:
            raise AskedWrongly(f"the schema has {found}")


def _not_possible(kind: DataType, where: str, format: str) -> str | None:
    if isinstance(kind, StructType):
        parts = [(one.dataType, f"{where}.{one.name}") for one in kind.fields]
        if not parts:
            return f"a structure {where} without fields"
        lowered = [one.name.lower() for one in kind.fields]
        for one in kind.fields:
            if lowered.count(one.name.lower()) > 1:
                return f"two fields {where}.{one.name}, which neither Spark nor Delta tells apart"
        return next((text for part in parts if (text := _not_possible(*part, format)) is not None), None)
    if isinstance(kind, ArrayType):
        return _not_possible(kind.elementType, f"{where}[]", format)
    if isinstance(kind, MapType):
        if not _is_plain_text(kind.keyType):
            return f"a map {where} with keys of type {kind.keyType.simpleString()}: they can only be strings"
        return _not_possible(kind.valueType, f"{where}{{}}", format)
    if isinstance(kind, StringType):
        return None if _is_plain_text(kind) else f"a column {where} with a collation, which no table has"
    if not isinstance(kind, PLAIN):
        return f"a column {where} of type {kind.simpleString()}, which no table can have"
    if format == "delta" and isinstance(kind, NOT_IN_DELTA):
        return f"a column {where} of type {kind.simpleString()}, which Delta does not know: string would hold it"
    return None


def _is_plain_text(kind: DataType) -> bool:
    return isinstance(kind, StringType) and kind.isUTF8BinaryCollation()
