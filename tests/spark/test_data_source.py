"""The data source as Spark finds and asks it."""

import importlib
import sys
from collections.abc import Callable

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from headrace.spark import data_source
from headrace.spark.batch_reader import BatchReader
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.option_values import OptionRefused
from headrace.spark.schema import HEADER, check_schema, source_schema
from headrace.spark.stream_reader import StreamReader

LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def test_spark_finds_it_by_the_name_of_a_module() -> None:
    assert importlib.import_module("pyspark_headrace").DefaultSource is HeadraceDataSource
    assert HeadraceDataSource.name() == "headrace"


def test_the_module_does_not_raise_where_spark_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that raises hides all other data sources."""
    monkeypatch.delitem(sys.modules, "pyspark_headrace", raising=False)
    monkeypatch.setitem(sys.modules, "headrace.spark.data_source", None)
    assert not hasattr(importlib.import_module("pyspark_headrace"), "DefaultSource")
    monkeypatch.delitem(sys.modules, "pyspark_headrace")


def test_readers_are_made_without_a_broker() -> None:
    source = HeadraceDataSource(LEAST)
    assert isinstance(source.reader(source.schema()), BatchReader)
    assert isinstance(source.streamReader(source.schema()), StreamReader)


def test_headers_are_a_column_on_request() -> None:
    assert HeadraceDataSource(LEAST).schema() == source_schema(False)
    assert HeadraceDataSource({**LEAST, "includeheaders": "true"}).schema().names[-1] == "headers"


def test_metadata_are_the_last_columns_on_request() -> None:
    schema = HeadraceDataSource({**LEAST, "includeheaders": "true", "includemetadata": "true"}).schema()
    assert schema.simpleString().endswith(">>,leaderEpoch:int,producerId:bigint>")
    check_schema(StructType([StructField("producerId", LongType(), False), StructField("leaderEpoch", IntegerType())]))
    with pytest.raises(OptionRefused, match="column leaderEpoch is int, not bigint; cast it in the query"):
        check_schema(StructType([StructField("leaderEpoch", LongType())]))
    with pytest.raises(OptionRefused, match="option includeMetadata is true or false, not 'some'"):
        HeadraceDataSource({**LEAST, "includemetadata": "some"}).schema()


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.partitions({}, {}),
        lambda reader: reader.getDefaultReadLimit(),
    ],
)
def test_a_stream_with_wrong_options_says_so_whatever_it_is_asked(ask: Callable[[object], object]) -> None:
    reader = HeadraceDataSource({**LEAST, "endingoffsets": "latest"}).streamReader(source_schema(False))
    with pytest.raises(OptionRefused, match=r"option endingOffsets is one of spark\.read"):
        ask(reader)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_source, "NEEDED", ("pyarrow", "no_such_thing"))
    with pytest.raises(OptionRefused, match=r"no_such_thing cannot be imported: install headrace\[spark\]"):
        HeadraceDataSource(LEAST).reader(source_schema(False))


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (StructType([StructField("valeu", StringType())]), "there is no column 'valeu'; the columns are key, value"),
        (StructType([StructField("value", StringType())]), "column value is binary, not string; cast it in the query"),
        (StructType([StructField("offset", IntegerType())]), "column offset is bigint, not int"),
        (StructType([]), "the schema names no column"),
        (StructType([StructField("key", BinaryType())] * 2), "the schema names column key twice; select it twice"),
        (StructType([StructField("value", BinaryType(), False)]), "column value can be null; leave NOT NULL out"),
        (StructType([StructField("headers", ArrayType(HEADER, False))]), "column headers can be null; leave NOT NULL"),
    ],
)
def test_a_schema_names_columns_that_there_are(schema: StructType, sentence: str) -> None:
    with pytest.raises(OptionRefused, match=sentence):
        check_schema(schema)


def test_what_is_never_null_may_be_said_to_be_so() -> None:
    check_schema(StructType([StructField("offset", LongType(), False), StructField("value", BinaryType())]))
