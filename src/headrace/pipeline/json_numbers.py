"""Numbers of JSON as they are written. Where Spark makes text of one that has a point or an exponent, that is the text
of the double nearest to it: of more than 15 digits, or of a size that no double has, it may be another number."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StringType, StructType

from headrace.pipeline.json_checks import anywhere, with_nulls

RISKY_NUMBER = r"\d[\d.]{15}|\d[eE][+-]?\d{3}"
MADE_TEXT = r"""^(-?\d+\.\d+(E-?\d+)?|"-?Infinity")$|^[\[{]"""
"""Text that Spark may have made of a number, which it writes as Java does, or of something with numbers in it."""
MARK = "\ufdd0"
"""Of the numbers that were made strings: it is no character, so that hardly any text has it."""
HAS_MARK = rf"{MARK}|(?<!\\)(?:\\\\)*\\u(?i:{ord(MARK):x})"
"""As it is, or escaped by a backslash that is not itself escaped."""
WITH_POINT = (
    r"""\G((?:[^"'\d-]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+'|-?\d++(?![.eE])|-(?!\d))*+)"""
    r"(-?\d++(?:\.\d++(?:[eE][+-]?\d++)?+|[eE][+-]?\d++))(?![\w.+-])"
)
"""Whatever comes before it, whole strings among it, and the number."""


def is_at_risk(text: Column, parsed: Column, kind: DataType) -> Column | None:
    """Whether a number of the text may be another one where `parsed`, which is of that type, has it as text; None if it
    has no text. The rest is worth while for few records."""
    looks_made = anywhere(
        parsed, kind, lambda value, one: value.rlike(MADE_TEXT) if isinstance(one, StringType) else None
    )
    return None if looks_made is None else text.rlike(RISKY_NUMBER) & looks_made


def in_strings(text: Column) -> Column:
    """The same JSON, with each number that has a point or an exponent in a string that begins with the mark."""
    return f.regexp_replace(text, WITH_POINT, f'$1"{MARK}$2"')


def has_mark(text: Column) -> Column:
    """Then nobody can tell it from ours."""
    return text.rlike(HAS_MARK)


def as_written(kind: DataType) -> DataType:
    """The type to read it by: what has such numbers is text."""
    return with_nulls(kind, lambda one: StringType() if isinstance(one, DoubleType | FloatType) else one)


def holds_text(kind: DataType) -> bool:
    """Whether anything in it is read as text."""
    if isinstance(kind, StructType):
        return any(holds_text(one.dataType) for one in kind.fields)
    if isinstance(kind, ArrayType):
        return holds_text(kind.elementType)
    if isinstance(kind, MapType):
        return holds_text(kind.valueType)
    return isinstance(kind, StringType)


def without_marks(value: Column, kind: DataType) -> Column:
    """What was read by `as_written`, as what it is."""
    return _each(value, kind, _unmarked)


def _unmarked(value: Column, kind: DataType) -> Column:
    if isinstance(kind, DoubleType | FloatType):
        return f.regexp_replace(value, f'[{MARK}"]', "").try_cast(kind)  # NaN comes in quotes
    if isinstance(kind, StringType):  # and an object as text has marks within
        return f.regexp_replace(f.regexp_replace(value, f'"{MARK}([^"]*+)"', "$1"), f"^{MARK}", "")
    return value


def _each(value: Column, kind: DataType, change: Callable[[Column, DataType], Column]) -> Column:
    if isinstance(kind, StructType):
        fields = (_each(value.getField(one.name), one.dataType, change).alias(one.name) for one in kind.fields)
        return f.when(value.isNotNull(), f.struct(*fields))
    if isinstance(kind, ArrayType):
        return f.transform(value, lambda one: _each(one, kind.elementType, change))
    if isinstance(kind, MapType):
        return f.transform_values(value, lambda _, one: _each(one, kind.valueType, change))
    return change(value, kind)
