"""Records of JSON to rows: what Spark would change without a word is a dead letter."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, StructType

from headrace.pipeline.parsing import SOURCE, Parsing
from headrace.pipeline.schemas import ValueSchema, parse_schema

AT = datetime(2026, 1, 31, tzinfo=UTC)


def rows(spark: SparkSession, schema: ValueSchema, values: list[bytes]) -> list[dict[str, Any] | None]:
    """None for what is no row."""
    records = spark.createDataFrame([(None, value, "t", 0, at, AT) for at, value in enumerate(values)], SOURCE)
    found = Parsing(schema, None, False).rows(records).orderBy("_offset").collect()
    columns = [row.asDict(recursive=True) for row in found]
    return [{name: row[name] for name in schema.fields.names} if row["_reason"] is None else None for row in columns]


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        (
            "decimal(10,2)",
            {b"12.34": Decimal("12.34"), b'"9.9900"': Decimal("9.99"), b"1.5e1": 15, b"-150e-1": -15, b"null": None},
            [b"12.345", b'"9.999"', b"123456789.01", b"1e-3", b"true", b'"x"', b"{}", b"1e99999999999"],
        ),
        ("decimal(38,10)", {b"1.0123456789": Decimal("1.0123456789")}, [b"1.01234567891"]),
        ("array<decimal(3,1)>", {b"[1.5, null]": [Decimal("1.5"), None]}, [b"[1.5, 1.25]"]),
        (
            "map<string,struct<d:decimal(3,1)>>",
            {b'{"a":{"d":1.5}}': {"a": {"d": Decimal("1.5")}}},
            [b'{"a":{"d":1.25}}'],
        ),
        ("double", {b"1e300": 1e300, b'"-Infinity"': float("-inf"), b"Infinity": float("inf")}, [b"1e400", b"-1e400"]),
        ("struct<f:double>", {b'{"f":-Infinity}': {"f": float("-inf")}}, [b'{"f":1e400}', b'{"f":Infinite}']),
        ("array<float>", {b"[1.5]": [1.5]}, [b"[1.5, 1e40]"]),
        (
            "int",
            {b"7": 7},
            [b"3000000000", b"1.7", b"7}", b"7} junk ", b'7}, {"c": 7', b'7}],[{"c":7', b'7}} {"c":{"c":7}'],
        ),
        ("string", {'"ä }{ \\ud83d\\ude00"'.encode(): "ä }{ 😀", b'"}"': "}"}, [b'"\xff\xfe"', b'"\xc3"']),
        ("struct<b:int not null>", {b'{"b":1}': {"b": 1}, b"null": None}, [b"{}", b'{"b":null}']),
        ("array<struct<b:int not null>>", {b'[{"b":1}]': [{"b": 1}], b"[null]": [None]}, [b'[{"b":1},{}]']),
    ],
)
def test_a_value_is_what_was_written_or_a_dead_letter(
    spark: SparkSession, column: str, good: dict[bytes, Any], bad: list[bytes]
) -> None:
    schema = parse_schema(f"c {column}", spark)
    values = [b'{"c": %s}' % one for one in (*good, *bad)]
    expected = [{"c": one} for one in good.values()] + [None for _ in bad]
    assert dict(zip(values, rows(spark, schema, values), strict=True)) == dict(zip(values, expected, strict=True))


def test_a_null_that_the_schema_does_not_allow_is_a_dead_letter(spark: SparkSession) -> None:
    whole = StructType().add("id", IntegerType(), nullable=False).add("a", ArrayType(IntegerType(), containsNull=False))
    values = [b'{"id": 1, "a": [1]}', b'{"id": 1}', b'{"a": [1]}', b'{"id": 1, "a": [1, null]}', b"{}"]
    found = rows(spark, ValueSchema(whole), values)
    assert found == [{"id": 1, "a": [1]}, {"id": 1, "a": None}, None, None, None]
