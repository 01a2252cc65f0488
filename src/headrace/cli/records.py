"""Records as lines: what `consume` writes and `produce` reads, so that one can be piped into the other. Pure."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from headrace.cli.outcome import Failure

Headers = Sequence[tuple[str, bytes | None]]


class Format(Enum):
    """The words of --format."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


class Read(NamedTuple):
    """A record that was read from a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Written(NamedTuple):
    """A record that is to be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def writer(form: Format, separator: bytes) -> Callable[[Read], bytes]:
    """A line per record, newline included. An absent key or value is written as nothing, in JSON as null."""
    match form:
        case Format.VALUE:
            return lambda record: (record.value or b"") + b"\n"
        case Format.KEY_VALUE:
            return lambda record: (record.key or b"") + separator + (record.value or b"") + b"\n"
        case Format.JSON:
            return _json_line


def reader(form: Format, separator: bytes) -> Callable[[bytes], Written]:
    """The opposite of writer: a line without its newline. Failure says what is wrong with it."""
    match form:
        case Format.VALUE:
            return lambda line: Written(None, line)
        case Format.KEY_VALUE:
            return lambda line: _key_value(line, separator)
        case Format.JSON:
            return _from_json


def _json_line(record: Read) -> bytes:
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_as_text("key", record.key),
        **_as_text("value", record.value),
        "headers": [{"key": name, **_as_text("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _as_text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), f"{name}_encoding": "base64"}


def _key_value(line: bytes, separator: bytes) -> Written:
    key, found, value = line.partition(separator)
    if not found:
        raise Failure(f"there is no {separator.decode()!r} between key and value in {_shown(line)}")
    return Written(key, value)


def _from_json(line: bytes) -> Written:
    try:
        fields = json.loads(line)
        headers = [(str(header["key"]), _as_bytes(header, "value")) for header in fields.get("headers", ())]
        return Written(_as_bytes(fields, "key"), _as_bytes(fields, "value"), headers)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        raise Failure(f"this is not a record as consume --format json writes it: {_shown(line)}") from None


def _as_bytes(fields: dict[str, Any], name: str) -> bytes | None:
    text = fields.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(name)
    if fields.get(f"{name}_encoding") == "base64":
        return base64.b64decode(text, validate=True)
    return text.encode()


def _shown(line: bytes) -> str:
    text = line[:80].decode(errors="replace")
    return repr(text) + ("..." if len(line) > 80 else "")
