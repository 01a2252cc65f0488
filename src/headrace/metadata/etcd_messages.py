"""The few messages of etcd's API that a metadata store needs, written and read by hand.

Protobuf's own classes would register names that clash with those of any other etcd client in the process.
Field numbers are those of etcd 3.4 to 3.6.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.metadata.store import KV, Cmp, Event, MetadataStoreError, Put, prefix_end

_BYTES = 2
_COMPARE_TARGET = {"create": 1, "mod": 2}
_COMPARE_REVISION_FIELD = {"create": 5, "mod": 6}


class BadMessage(MetadataStoreError):
    """What came is no message of etcd's."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"etcd sent what cannot be read: {reason}")


class RangeAnswer(NamedTuple):
    rev: int
    kvs: list[KV]
    has_more: bool


class WatchAnswer(NamedTuple):
    is_canceled: bool
    compact_rev: int
    cancel_reason: str
    events: list[Event]


def key_range(prefix: bytes) -> tuple[bytes, bytes]:
    """etcd has no empty key; an end of one zero byte means: all that follow."""
    return prefix or b"\0", prefix_end(prefix) or b"\0"


def range_request(key: bytes, end: bytes, limit: int, rev: int) -> bytes:
    return _data(1, key) + _data(2, end) + _number(3, limit) + _number(4, rev)


def txn_request(when: Sequence[Cmp], puts: Sequence[Put], deletes: Sequence[bytes]) -> bytes:
    parts = [_data(1, _compare(compare)) for compare in when]
    for put in puts:
        request = _data(1, put.key) + _data(2, put.value) + _number(3, put.lease)
        parts.append(_data(2, _data(2, request)))
    parts += [_data(2, _data(3, _data(1, key))) for key in deletes]
    return b"".join(parts)


def watch_request(prefix: bytes, from_rev: int) -> bytes:
    key, end = key_range(prefix)
    return _data(1, _data(1, key) + _data(2, end) + _number(3, from_rev))


PROGRESS_REQUEST = b"\x1a\x00"


def compaction_request(rev: int) -> bytes:
    return _number(1, rev)


def grant_request(ttl_s: int) -> bytes:
    return _number(1, ttl_s)


def lease_request(lease_id: int) -> bytes:
    """To revoke it, or to keep it alive."""
    return _number(1, lease_id)


def read_range(answer: bytes) -> RangeAnswer:
    rev, kvs, has_more = 0, [], False
    for field, value in _fields(answer):
        if field == 1:
            rev = _revision(value)
        elif field == 2:
            kvs.append(_key_value(value))
        elif field == 3:
            has_more = bool(value)
    return RangeAnswer(rev, kvs, has_more)


def read_txn(answer: bytes) -> tuple[bool, int]:
    """Whether it was done, and the store's revision after it."""
    fields = dict(_fields(answer))
    return bool(fields.get(2, 0)), _revision(fields.get(1, b""))


def read_watch(answer: bytes) -> WatchAnswer:
    is_canceled, compact_rev, cancel_reason, events = False, 0, "", []
    for field, value in _fields(answer):
        if field == 4:
            is_canceled = bool(value)
        elif field == 5:
            compact_rev = _as_number(value)
        elif field == 6:
            cancel_reason = _as_bytes(value).decode(errors="replace")
        elif field == 11:
            events.append(_event(value))
    return WatchAnswer(is_canceled, compact_rev, cancel_reason, events)


def read_lease(answer: bytes) -> tuple[int, int]:
    """(id, seconds to live) of a grant or of a beat; without time to live it is gone."""
    fields = dict(_fields(answer))
    return _as_number(fields.get(2, 0)), _as_number(fields.get(3, 0))


def _compare(compare: Cmp) -> bytes:
    # The revision is written also when it is 0: it is one of several that may stand there.
    revision = _tag(_COMPARE_REVISION_FIELD[compare.field], 0) + _varint(compare.rev)
    return _number(2, _COMPARE_TARGET[compare.field]) + _data(3, compare.key) + revision


def _event(value: int | bytes) -> Event:
    fields = dict(_fields(_as_bytes(value)))
    kv = _key_value(fields.get(2, b""))
    is_deleted = fields.get(1, 0) == 1
    return Event(kv.key, None, kv.mod_rev) if is_deleted else Event(kv.key, kv.value, kv.mod_rev, kv.create_rev)


def _key_value(value: int | bytes) -> KV:
    fields = dict(_fields(_as_bytes(value)))
    return KV(
        _as_bytes(fields.get(1, b"")),
        _as_bytes(fields.get(5, b"")),
        _as_number(fields.get(2, 0)),
        _as_number(fields.get(3, 0)),
    )


def _revision(header: int | bytes) -> int:
    return _as_number(dict(_fields(_as_bytes(header))).get(3, 0))


def _as_number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise BadMessage("bytes where a number should be")
    return value - (1 << 64) if value >> 63 else value


def _as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise BadMessage("a number where bytes should be")
    return value


def _fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """A list, and short numbers without a call: loads of many keys spend their time here."""
    found: list[tuple[int, int | bytes]] = []
    place, end = 0, len(message)
    while place < end:
        tag = message[place]
        place += 1
        if tag > 0x7F:
            tag, place = _read_varint(message, place - 1)
        kind = tag & 7
        if kind in (1, 5):
            size = 8 if kind == 1 else 4
        elif kind not in (0, _BYTES):
            raise BadMessage(f"wire type {kind}")
        elif place < end and message[place] < 0x80:
            size = message[place]
            place += 1
        else:
            size, place = _read_varint(message, place)
        if kind == 0:
            found.append((tag >> 3, size))
            continue
        if place + size > end:
            raise BadMessage("it ends too early")
        found.append((tag >> 3, message[place : place + size]))
        place += size
    return found


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        if place >= len(message):
            raise BadMessage("it ends too early")
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & ((1 << 64) - 1), place
        shift += 7
    raise BadMessage("a number has no end")


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, number: int) -> bytes:
    return _tag(field, 0) + _varint(number) if number else b""


def _data(field: int, value: bytes) -> bytes:
    return _tag(field, _BYTES) + _varint(len(value)) + value
