"""Records of JSON to rows: what Spark would change without a word is a dead letter."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from headrace.pipeline.json_numbers import is_at_risk
from headrace.pipeline.parsing import SOURCE, Parsing
from headrace.pipeline.schemas import ValueSchema, parse_schema

AT = datetime(2026, 1, 31, tzinfo=UTC)
AT_HERE = AT.astimezone().replace(tzinfo=None)
"""As Spark gives it to Python."""


def rows(spark: SparkSession, schema: ValueSchema, values: list[bytes]) -> list[dict[str, Any] | None]:
    """None for what is no row."""
    records = spark.createDataFrame([(None, value, "t", 0, at, AT) for at, value in enumerate(values)], SOURCE)
    found = Parsing(schema, None, False).rows(records).where("_reason is null").select("_offset", *schema.fields.names)
    by_offset = {row["_offset"]: row.asDict(recursive=True) for row in found.collect()}
    some = [by_offset.get(at) for at in range(len(values))]
    return [row and {name: row[name] for name in schema.fields.names} for row in some]


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        (
            "decimal(10,2)",
            {b"12.34": Decimal("12.34"), b'"9.9900"': Decimal("9.99"), b"1.5e1": 15, b"-150e-1": -15, b"null": None},
            [b"12.345", b'"9.999"', b"123456789.01", b"1e-3", b"true", b'"x"', b"{}", b"1e99999999999"],
        ),
        ("decimal(38,10)", {b"1.0123456789": Decimal("1.0123456789")}, [b"1.01234567891"]),
        (
            "decimal(38,18)",
            {
                b"12345678901234567.123456789012345678": Decimal("12345678901234567.123456789012345678"),
                b"-1.2345678901234567890123e19": Decimal("-12345678901234567890.123"),
                b'"0.123456789012345678"': Decimal("0.123456789012345678"),
            },
            [
                b"1.0000000000000000001",
                b"1.00000000000000001e-2",
                b"1.000000000000000000.1",
                b"1.0000000000000000e999999",
                b"1e-400",
                b"-1E+400",
            ],
        ),
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
        (
            "string",
            {
                b"1e-400": "1e-400",
                b"-1E+400": "-1E+400",
                b'{"a":[1e400,0.5,"1e400"]}': '{"a":[1e400,0.5,"1e400"]}',
                b'"Infinity 1e400"': "Infinity 1e400",
            },
            [],
        ),
        (
            "string",
            {
                rb'"\ud83d\ude00\uD83D\uDE00"': "😀😀",
                rb'"\\ud83d \\\\ude00"': r"\ud83d \\ude00",
                rb'"\ue000\ud7ff"': "\ue000\ud7ff",
            },
            [
                rb'"cut \ud83d"',
                rb'"\ud83d \ude00"',
                rb'"\uDE00\uD83D"',
                rb'"\\\uD83D"',
                rb'"\ud83d\ude00\udE00"',
                rb'"\ud83d\ud83d\ude00"',
            ],
        ),
        ("string", {'"ä }{ \\ud83d\\ude00"'.encode(): "ä }{ 😀", b'"}"': "}"}, [b'"\xff\xfe"', b'"\xc3"']),
        (
            "struct<s:string,a:array<struct<d:double,n:decimal(20,18)>>>",
            {
                b'{"s":1.23456789012345678,"a":[{"d":0.30000000000000004,"n":1.00000000000000001},{"d":Infinity}]}': {
                    "s": "1.23456789012345678",
                    "a": [
                        {"d": 0.30000000000000004, "n": Decimal("1.00000000000000001")},
                        {"d": float("inf"), "n": None},
                    ],
                },
                rb'{"s": {"x": ["\\", 1.23456789012345678]}, "a": [{"d": 5}, null]}': {
                    "s": r'{"x":["\\",1.23456789012345678]}',
                    "a": [{"d": 5.0, "n": None}, None],
                },
                b'{"s": "it\'s \\"1.23456789012345678\\", 1.5", "a": [{"n": 1.5}]}': {
                    "s": 'it\'s "1.23456789012345678", 1.5',
                    "a": [{"d": None, "n": Decimal("1.5")}],
                },
            },
            [b'{"s": "1.23456789012345678", "a": [{"d": "0.5"}]}', b'{"s": 1.234567890123456.78}'],
        ),
        (
            "struct<s:string,t:string>",
            {
                b'{"s":"\\ufdd0","t":1.5}': {"s": "\ufdd0", "t": "1.5"},
                '{"s":1.23456789012345678,"t":"\ufdd1"}'.encode(): {"s": "1.23456789012345678", "t": "\ufdd1"},
                rb'{"s":1.23456789012345678,"t":"\\ufdd0"}': {"s": "1.23456789012345678", "t": r"\ufdd0"},
            },
            [
                '{"s":1.23456789012345678,"t":"\ufdd0"}'.encode(),
                rb'{"s":1.23456789012345678,"t":"\ufdd0"}',
                rb'{"s":1.23456789012345678,"t":"\\\uFdD0"}',
                rb'{"s":1.23456789012345678,"t":"\n \\ \nx\uFDD0"}',
            ],
        ),
        ("tinyint", {b"127": 127, b"-128": -128, b"null": None}, [b"128", b"255", b"-129"]),
        ("array<tinyint>", {b"[1, null]": [1, None]}, [b"[1, 200]"]),
        ("date", {b'"2024-01-31"': date(2024, 1, 31)}, [b'"20240131"', b'"18000"', b'"+12345-01-01"', b"20240131"]),
        (
            "timestamp",
            {b'"2026-01-31T00:00:00Z"': AT_HERE, b"1769817600": AT_HERE},
            [
                b"1769817600000",
                b"1770825600000000",
                b"-1770825600000000",
                b"1770825600000000000",
                b"18446744073709",
                b'"+12345-01-01T00:00:00Z"',
                b'"12:30"',
                b'"T12:30:15"',
                b'" 2:30:00Z"',
            ],
        ),
        (
            "struct<a:array<timestamp>,s:string,n:long>",
            {
                b'{"a":["2026-01-31T00:00:00Z"],"s":"12:30","n":1770825600000000}': {
                    "a": [AT_HERE],
                    "s": "12:30",
                    "n": 1770825600000000,
                }
            },
            [b'{"a":["2026-01-31T00:00:00Z","12:30"]}', b'{"a":[1769817600,\n-1770825600000000]}'],
        ),
        ("timestamp_ntz", {b'"2026-01-31T00:00:00"': AT.replace(tzinfo=None)}, [b'"+12345-01-01T00:00:00"']),
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


def test_text_that_spark_has_not_made_of_a_number_is_no_reason_to_read_a_record_again(spark: SparkSession) -> None:
    made = ["0.0", "-1.5", "1.0E-310", "1.23456E22", '"-Infinity"', '[1.5,"a"]', '{"a":1}']
    plain = ["2026-01-31T12:30:15.123Z", "10.0.0.1", "1.5 EUR", "7", "-", "3.", "1.5E", "Infinity", 'a {"b":1.5}', None]
    kind = StructType().add("s", StringType())
    for number in ("1770825600000000", "1e400", "1e-400", "12345.67890123456"):
        texts = spark.createDataFrame([(one, '{"n":' + number + "}") for one in made + plain], "s string, value string")
        found = texts.select("s", f.coalesce(_at_risk(kind), f.lit(False)).alias("is_at_risk")).collect()
        assert [row.s for row in found if row.is_at_risk] == made


def _at_risk(kind: StructType) -> Column:
    found = is_at_risk(f.col("value"), f.struct("s"), kind)
    assert found is not None
    return found


def test_a_null_that_the_schema_does_not_allow_is_a_dead_letter(spark: SparkSession) -> None:
    whole = StructType().add("id", IntegerType(), nullable=False).add("a", ArrayType(IntegerType(), containsNull=False))
    values = [b'{"id": 1, "a": [1]}', b'{"id": 1}', b'{"a": [1]}', b'{"id": 1, "a": [1, null]}', b"{}"]
    found = rows(spark, ValueSchema(whole), values)
    assert found == [{"id": 1, "a": [1]}, {"id": 1, "a": None}, None, None, None]


def test_an_event_time_has_a_day_in_utc_or_is_a_dead_letter(spark: SparkSession) -> None:
    days = {
        b'"2026-01-31T23:30:00-02:00"': "2026-02-01",
        b'" 2026-01-31 00:30:00"': "2026-01-31",
        b'"2026-01-31T00:30:00+09:00"': "2026-01-30",
        b'"0001-01-01"': "0001-01-01",
    }
    bad = [b"null", b'"never"', b'"12:30"', b'"T12:30:15"', b'" 2:30:00Z"', b'"+10000-01-01"', b'"1770000000000"']
    values = [b'{"at": %s}' % one for one in (*days, *bad)]
    records = spark.createDataFrame([(None, value, "t", 0, at, AT) for at, value in enumerate(values)], SOURCE)
    parsing = Parsing(parse_schema("at string", spark), "at", False)
    found = parsing.rows(records).orderBy("_offset").selectExpr("string(event_date) day", "_reason reason").collect()
    expected = dict(zip(values, [*days.values(), *[None] * len(bad)], strict=True))
    assert {
        value: row.day if row.reason is None else None for value, row in zip(values, found, strict=True)
    } == expected
