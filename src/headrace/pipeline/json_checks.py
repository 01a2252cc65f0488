"""What Spark's JSON parser changes or leaves out without a word, found again: such a record is no row.

It rounds decimals, makes numbers that are too large infinite, or negative, or times of the year 55840, takes the first
of several values, replaces bytes that are no UTF-8 and halves of characters, and gives nulls where none is allowed.
"""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

FIRST_DAY, LAST_TIME = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
"""Others are no days to whoever reads the table with Python, nor to us."""

OBJECT_AT_END = r"\}\s*\z"
TWO_ENDS = r"(?s)\}.*\}"
"""Only then can an object end before the text does, and is it worth while to look."""
ESCAPED = r"\u"
"""Few texts have any, and to look for it costs less than a regex."""
HALF = (
    r"(?<!\\)(?:\\\\)*\\u[dD][89abAB][\da-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\)(?<!\\u[dD][89abAB][\da-fA-F]{2})(?:\\\\)*\\u[dD][c-fC-F]"
)
"""One surrogate without the other, as who cuts a text between them writes it. Spark makes a question mark of it."""
SAYS_INFINITE = r'[:,\[]\s*"?[+-]?INF(inity)?\b|[:,\[]\s*"?[+-]?Infinity\b'
NO_NUMBER = r"[+-]?(NaN|Infinity|INF)"
WITH_EXPONENT = r"^[+-]?\d*(?:\.(\d*?)0*)?[eE]([+-]?\d+)$"

Check = Callable[[Column, DataType], Column | None]
"""Whether a value of the type is not as it should be; None for types that it does not look at."""


def with_nulls(kind: DataType, replace: Callable[[DataType], DataType] = lambda kind: kind) -> DataType:
    """The same type with nulls everywhere, as what Spark parses has them; `replace` is for what has no parts."""
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, with_nulls(one.dataType, replace)) for one in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(with_nulls(kind.elementType, replace))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, with_nulls(kind.valueType, replace))
    return replace(kind)


def as_text(kind: DataType) -> DataType:
    """Decimals are read as they are written, to see whether their columns can hold them; so are bytes, of which Spark
    takes 255 for -1."""
    return with_nulls(kind, _as_read)


def _as_read(kind: DataType) -> DataType:
    if isinstance(kind, DecimalType):
        return StringType()
    return ShortType() if isinstance(kind, ByteType) else kind


def is_wrong(text: Column, parsed: Column, fields: StructType) -> Column:
    """Whether the text is more than one object, or `parsed`, read of it `as_text`, not what the fields allow."""
    found = [~f.is_valid_utf8(text), ~text.rlike(OBJECT_AT_END), text.rlike(TWO_ENDS) & ~_is_one_value(text)]
    found.append(text.contains(ESCAPED) & text.rlike(HALF))
    found += [one for one in (anywhere(parsed, fields, _is_inexact),) if one is not None]
    infinite = anywhere(parsed, fields, _is_infinite)
    if infinite is not None:
        found.append(infinite & ~text.rlike(SAYS_INFINITE))
    return reduce(Column.__or__, (_surely(one) for one in found))


def _is_one_value(text: Column) -> Column:
    """Both functions stop where what was put around the text ends: none ends both early. And they are stricter than who
    parsed it: numbers that are no numbers are none to them."""
    text = f.regexp_replace(text, NO_NUMBER, "0")
    in_array = f.json_array_length(f.concat(f.lit("["), text, f.lit("]")))
    in_object = f.size(f.json_object_keys(f.concat(f.lit('{"":'), text, f.lit("}"))))
    return _surely(in_array == 1) & _surely(in_object == 1)


def anywhere(value: Column, kind: DataType, check: Check) -> Column | None:
    """Whether the check finds something, or a null that is not allowed, anywhere within the value."""
    if isinstance(kind, StructType):
        fields = [_part(value.getField(one.name), one.dataType, one.nullable, check) for one in kind.fields]
        found = [one for one in fields if one is not None]
        return value.isNotNull() & reduce(Column.__or__, map(_surely, found)) if found else None
    if isinstance(kind, ArrayType):
        return _any_of(value, kind.elementType, kind.containsNull, check)
    if isinstance(kind, MapType):
        return _any_of(f.map_values(value), kind.valueType, kind.valueContainsNull, check)
    return check(value, kind)


def _any_of(values: Column, kind: DataType, nullable: bool, check: Check) -> Column | None:
    if _part(f.lit(None), kind, nullable, check) is None:
        return None
    return f.exists(values, lambda one: _surely(_part(one, kind, nullable, check)))


def _part(value: Column, kind: DataType, nullable: bool, check: Check) -> Column | None:
    within = anywhere(value, kind, check)
    if nullable:
        return within
    return value.isNull() if within is None else value.isNull() | within


def _surely(condition: Column | None) -> Column:
    """Of what is not known nothing is claimed."""
    return f.lit(False) if condition is None else f.coalesce(condition, f.lit(False))


def _is_infinite(value: Column, kind: DataType) -> Column | None:
    return f.abs(value) == float("inf") if isinstance(kind, DoubleType | FloatType) else None


def _is_inexact(value: Column, kind: DataType) -> Column | None:
    """Of the text of a decimal: it is too large, or has more digits behind the point than the column."""
    if isinstance(kind, ByteType):
        return value.try_cast(kind).isNull() & value.isNotNull()
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return ~value.between(f.lit(FIRST_DAY).cast(kind), f.lit(LAST_TIME).cast(kind))
    if not isinstance(kind, DecimalType):
        return None
    plain = value.rlike(rf"^[+-]?\d*\.?\d{{0,{kind.scale}}}0*$")
    digits = f.length(f.regexp_extract(value, WITH_EXPONENT, 1)) - f.regexp_extract(value, WITH_EXPONENT, 2).try_cast(
        "int"
    )
    is_exact = plain | (value.rlike(WITH_EXPONENT) & (digits <= kind.scale))
    return value.isNotNull() & (value.try_cast(kind).isNull() | ~_surely(is_exact))
