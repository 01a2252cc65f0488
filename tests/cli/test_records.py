import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.outcome import Failure
from headrace.cli.records import Format, Read, Written, reader, writer

BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)


def read(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None = None) -> Read:
    return Read("orders", 2, 7, 1_000, key, value, headers or [])


def test_the_value_format_is_the_value_and_a_newline() -> None:
    assert writer(Format.VALUE, b"\t")(read(b"k", b"v\xff")) == b"v\xff\n"
    assert writer(Format.VALUE, b"\t")(read(None, None)) == b"\n"


def test_the_key_value_format_has_the_separator_between() -> None:
    assert writer(Format.KEY_VALUE, b"\t")(read(b"k", b"v")) == b"k\tv\n"
    assert writer(Format.KEY_VALUE, b": ")(read(None, b"v")) == b": v\n"
    assert reader(Format.KEY_VALUE, b"\t")(b"k\tv\tw") == Written(b"k", b"v\tw")


def test_json_has_every_field_and_text_stays_text() -> None:
    line = writer(Format.JSON, b"\t")(read("schlüssel".encode(), b"v", [("a", b"1"), ("a", None)]))
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1000,
        "key": "schlüssel",
        "value": "v",
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}],
    }


def test_json_says_base64_where_bytes_are_not_text() -> None:
    fields = json.loads(writer(Format.JSON, b"\t")(read(b"\xff", None, [("h", b"\xfe")])))
    assert (fields["key"], fields["key_encoding"], fields["value"]) == ("/w==", "base64", None)
    assert fields["headers"] == [{"key": "h", "value": "/g==", "value_encoding": "base64"}]
    assert "value_encoding" not in fields


@given(BYTES, BYTES, HEADERS)
def test_a_record_survives_json_whatever_its_bytes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = writer(Format.JSON, b"\t")(read(key, value, headers))
    assert line.count(b"\n") == 1
    assert reader(Format.JSON, b"\t")(line.removesuffix(b"\n")) == Written(key, value, headers)


def test_json_needs_no_more_than_a_value() -> None:
    assert reader(Format.JSON, b"\t")(b'{"value": "v"}') == Written(None, b"v", [])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"v",
        b"[]",
        b"3",
        b'{"value": 3}',
        b'{"key": []}',
        b'{"value": "x", "value_encoding": "base64"}',
        b'{"headers": 3}',
        b'{"headers": [{"value": "v"}]}',
        b'{"value": "\\ud800"}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_line_that_is_no_record_is_one_sentence(line: bytes) -> None:
    with pytest.raises(Failure, match="this is not a record"):
        reader(Format.JSON, b"\t")(line)


def test_a_line_without_separator_is_one_sentence() -> None:
    with pytest.raises(Failure, match=r"there is no '\\t' between key and value in 'plain'"):
        reader(Format.KEY_VALUE, b"\t")(b"plain")
