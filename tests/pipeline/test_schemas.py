"""Schemas of values: DDL and Spark's JSON are Spark's; Avro and names are ours."""

import json
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimeType,
)

from headrace.pipeline.avro import avro_type, decoder
from headrace.pipeline.column_types import check_types
from headrace.pipeline.outcome import AskedWrongly
from headrace.pipeline.schemas import first_rows, names_twice, parse_schema


def record(*fields: tuple[str, Any]) -> str:
    return json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    )


def test_avro_has_a_type_for_each_of_sparks() -> None:
    inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "int"}]}
    found = avro_type(
        record(
            ("a", "long"),
            ("b", ["null", "string"]),
            ("c", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
            ("d", {"type": "int", "logicalType": "date"}),
            ("e", {"type": "long", "logicalType": "timestamp-micros"}),
            ("f", {"type": "enum", "name": "colour", "symbols": ["RED"]}),
            ("g", {"type": "array", "items": inner}),
            ("h", {"type": "map", "values": "inner"}),
            ("i", {"type": "fixed", "name": "four", "size": 4}),
        )
    )
    assert [field.dataType.simpleString() for field in found.fields] == [
        *("bigint", "string", "decimal(9,2)", "date", "timestamp", "string"),
        *("array<struct<x:int>>", "map<string,struct<x:int>>", "binary"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (record(("a", ["int", "string"])), "a union of 2 types at a"),
        (record(("a", ["null", "r"])), "a type r at a that no table can have"),
        (
            record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})),
            "a decimal at a of 39 digits, and 38 is the most",
        ),
        (record(("a", {"type": "bytes", "logicalType": "decimal"})), "cannot be read: a type of it has no 'precision'"),
        ('{"type": "record", "name": "r"}', "a record at the top that has no fields"),
        (record(("a", {"type": "record", "name": "e", "fields": []})), "a record at a that has no fields"),
        (record(("_offset", "int")), "a column _offset, a name that the table has for itself"),
        (record(("_value", "int")), "a column _value, a name that the table has for itself"),
        (record(("a", "int"), ("A", "int")), "two columns a, which Spark does not tell apart"),
        (record(), "no column"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "money"}]}', "cannot be read"),
        ("[1]", "neither Avro"),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "no JSON of Spark's"),
    ],
)
def test_what_no_table_can_have_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(AskedWrongly, match=sentence):
        parse_schema(text, None)


def test_a_name_that_no_column_can_have_is_told_of_as_such() -> None:
    text = StructType().add("a.b", "long").json()
    with pytest.raises(AskedWrongly, match=r"^the schema has a column a\.b: a name with a dot"):
        parse_schema(text, None)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (CharType(3), r"a column c of type char\(3\), which no table can have"),
        (ArrayType(CalendarIntervalType()), r"a column c\[\] of type interval, which no table can have"),
        (MapType(IntegerType(), StringType()), "a map c with keys of type int: they can only be strings"),
        (MapType(StringType(), StructType()), r"a structure c\{\} without fields"),
        (
            ArrayType(StructType().add("d", "integer").add("D", "long")),
            r"two fields c\[\]\.d, which neither Spark nor Delta",
        ),
        (StructType().add("d", StringType("UNICODE_CI")), r"a column c\.d with a collation, which no table has"),
    ],
)
def test_a_type_that_no_column_can_have_is_one_sentence(kind: DataType, sentence: str) -> None:
    with pytest.raises(AskedWrongly, match=f"the schema has {sentence}"):
        check_types(StructType().add("id", "long").add("c", kind), "parquet")


@pytest.mark.parametrize("kind", [TimeType(), DayTimeIntervalType()])
def test_a_type_that_delta_does_not_know_is_one_sentence(kind: DataType) -> None:
    fields = StructType().add("c", kind)
    check_types(fields, "parquet")
    with pytest.raises(AskedWrongly, match=r"a column c of type .*, which Delta does not know: string would hold it"):
        check_types(fields, "delta")


def test_types_that_avro_and_json_give_are_possible() -> None:
    plain = (
        "boolean byte short integer long float double decimal(38,18) string binary date timestamp timestamp_ntz void"
    )
    fields = StructType()
    for at, kind in enumerate(plain.split()):
        fields = fields.add(f"c{at}", kind)
    for format in ("parquet", "delta"):
        check_types(StructType().add("m", MapType(StringType(), ArrayType(fields))), format)


@pytest.mark.parametrize(
    ("text", "is_twice"),
    [
        ('{"a": 1, "b": {"a": 2}}', False),
        ('{"a": 1, "a": 1}', True),
        ('[{"b": [{"a": 1, "a": 2}]}]', True),
        ('{"a": 1, "a": 2', False),
        ("no JSON", False),
        ("[" * 100_000, False),
    ],
)
def test_json_that_names_a_field_twice_is_known(text: str, is_twice: bool) -> None:
    assert names_twice(text) is is_twice


def test_a_sample_has_the_first_rows_of_a_partition_and_reads_no_more() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for begin in (0, 3):
            yield pa.RecordBatch.from_pydict({"value": [begin, begin + 1, begin + 2]})
        raise AssertionError("it was read on")

    taken = [value for batch in first_rows(5)(batches()) for value in batch.column("value").to_pylist()]
    assert taken == [0, 1, 2, 3, 4]


def test_sparks_json_is_taken_as_it_is() -> None:
    schema = StructType().add("id", "long").add("name", "string")
    found = parse_schema(schema.json(), None)
    assert found.fields == schema and found.avro is None and found.ddl() == "id bigint, name string"


def decoded(schema: str, values: list[bytes | None], has_header: bool = False) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
    return [row for found in decoder(schema, has_header, ["value"])(iter([batch])) for row in found.to_pylist()]


def encoded(schema: str, **row: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), row)
    return stream.getvalue()


def test_a_value_that_its_column_cannot_hold_stops_no_other() -> None:
    large = encoded(record(("a", "long")), a=1 << 40)
    rows = decoded(record(("a", "int")), [encoded(record(("a", "int")), a=3), large, None])
    assert [row["_parsed"] for row in rows] == [{"a": 3}, None, None]
    assert [row["_reason"] for row in rows] == [None, "it has a value that its column cannot hold", "it has no value"]

    def decimal(precision: int) -> str:
        return record(("a", {"type": "bytes", "logicalType": "decimal", "precision": precision}))

    few, many = (encoded(decimal(20), a=Decimal(number)) for number in (12, 123_456))
    assert [row["_reason"] is None for row in decoded(decimal(4), [many, few])] == [False, True]


@pytest.mark.parametrize(
    ("kind", "logical"),
    [
        *(("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-nanos")),
        *(("long", "local-timestamp-millis"), ("long", "local-timestamp-micros"), ("long", "made-up")),
    ],
)
def test_a_logical_type_that_no_column_has_is_the_number_that_it_is_made_of(kind: str, logical: str) -> None:
    schema = record(("a", ["null", {"type": kind, "logicalType": logical}]))
    assert avro_type(schema).simpleString() == f"struct<a:{'int' if kind == 'int' else 'bigint'}>"
    assert decoded(schema, [encoded(record(("a", ["null", kind])), a=5)])[0]["_parsed"] == {"a": 5}


def test_types_of_one_name_in_two_namespaces_are_two_types() -> None:
    def item(namespace: str, column: str) -> dict[str, Any]:
        fields = [{"name": column, "type": "int"}]
        return {"type": "record", "name": "item", "namespace": namespace, "fields": fields}

    schema = record(("a", item("x", "left")), ("b", item("y", "right")), ("c", "x.item"))
    row = {"a": {"left": 1}, "b": {"right": 2}, "c": {"left": 3}}
    assert decoded(schema, [encoded(schema, **row)])[0]["_parsed"] == row


def test_a_task_decodes_avro_with_and_without_the_header_of_a_registry() -> None:
    schema = record(("id", "long"), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
    value = encoded(schema, id=5, at=1_000)
    plain = decoded(schema, [value, None, b"\x80", value + b"x"])
    assert [row["_parsed"] and row["_parsed"]["id"] for row in plain] == [5, None, None, None]
    assert [row["_reason"] is None for row in plain] == [True, False, False, False]
    framed = decoded(schema, [b"\0\0\0\0\7" + value, value, b"\0"], True)
    assert [row["_reason"] is None for row in framed] == [True, False, False]


def test_a_header_of_a_registry_that_nobody_spoke_of_is_named() -> None:
    schema = record(("a", "long"), ("b", "string"))
    value = encoded(schema, a=1, b="x")
    with_header, other = decoded(schema, [b"\0\0\0\0\7" + value, b"\0\0\0\0\7" + value + b"!"])
    assert with_header["_reason"] == "it begins with the 5 bytes of a schema registry: --avro-header leaves them out"
    assert other["_reason"] == "it is longer than Avro of the schema"
    assert with_header["_parsed"] is None and other["_parsed"] is None
