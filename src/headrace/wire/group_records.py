"""The records of `__consumer_offsets`, in Kafka's schemas: its own tools read them, and we read Kafka's.

There are two kinds, told apart by the version of the key: a committed offset (0, 1) and the state of a group (2).
Offsets are many, and most of them are only kept: their values stay as they are until somebody asks for them.
"""

import struct
from typing import Final, NamedTuple

from headrace.wire.compiler import decode, encode
from headrace.wire.errors import ProtocolError
from headrace.wire.primitives import uvarint_tail
from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bytes, Int32, Int64, String, field

_NO_API: Final = -1
"""They are stored, not sent."""
OFFSET_KEYS: Final = frozenset({b"\0\0", b"\0\1"})
"""How the key of an offset begins."""
GROUP_KEY: Final = b"\0\2"
_OFFSET_KEY: Final = b"\0\1"

_GROUP_VERSION: Final = 3
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_V3: Final = struct.Struct(">hqih")
_OFFSET_V1: Final = struct.Struct(">hqh")
_TIMES_V1: Final = struct.Struct(">qq")
NO_EXPIRY: Final = -1
_VERSIONS_MAX: Final = 4


class GroupMember(Struct):
    member_id: String
    group_instance_id: String | None = field(default=None, since=3)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field(default=-1, since=1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class GroupMetadataValue(Message, api=_NO_API, versions=(0, 4), flexible=4):
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field(default=-1, since=2)
    members: list[GroupMember]


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY
    """Only where an old client asked for a retention of its own."""


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """All but the partition, which is the last four bytes."""
    return _OFFSET_KEY + _string(group_id) + _string(topic)


def offset_key(prefix: bytes, partition: int) -> bytes:
    return prefix + _INT32.pack(partition)


def read_offset_prefix(prefix: bytes) -> tuple[str, str]:
    """Group and topic. ProtocolError if it is none."""
    try:
        group_id, pos = _read_string(prefix, 2)
        topic, pos = _read_string(prefix, pos)
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"the key of an offset is malformed: {error}") from error
    if pos != len(prefix):
        raise ProtocolError("the key of an offset has another length than it says")
    return group_id, topic


def offset_value(committed: CommittedOffset) -> bytes:
    text = committed.metadata.encode()
    if committed.expire_ms != NO_EXPIRY:
        times = _TIMES_V1.pack(committed.commit_ms, committed.expire_ms)
        return _OFFSET_V1.pack(1, committed.offset, len(text)) + text + times
    head = _OFFSET_V3.pack(3, committed.offset, committed.leader_epoch, len(text))
    return head + text + _INT64.pack(committed.commit_ms)


def read_offset_value(value: bytes) -> CommittedOffset:
    """ProtocolError for what cannot be read."""
    try:
        version, offset = _INT16.unpack_from(value)[0], _INT64.unpack_from(value, 2)[0]
        if not 0 <= version <= _VERSIONS_MAX:
            raise ProtocolError(f"a committed offset has version {version}, which is not known here")
        pos, leader_epoch, expire_ms = 10, -1, NO_EXPIRY
        if version >= 3:
            leader_epoch, pos = _INT32.unpack_from(value, pos)[0], pos + 4
        metadata, pos = _read_string(value, pos) if version < 4 else _read_compact(value, pos)
        commit_ms = _INT64.unpack_from(value, pos)[0]
        if version == 1:
            expire_ms = _INT64.unpack_from(value, pos + 8)[0]
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ProtocolError(f"a committed offset is malformed: {error}") from error
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms)


def group_key(group_id: str) -> bytes:
    return GROUP_KEY + _string(group_id)


def read_group_key(key: bytes) -> str:
    """ProtocolError if it is none."""
    try:
        return _read_string(key, 2)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"the key of a group is malformed: {error}") from error


def group_value(value: GroupMetadataValue) -> bytes:
    return _INT16.pack(_GROUP_VERSION) + encode(value, _GROUP_VERSION)


def read_group_value(value: bytes) -> GroupMetadataValue:
    """ProtocolError for what cannot be read."""
    if len(value) < _INT16.size:
        raise ProtocolError("the record of a group is too short for its version")
    version: int = _INT16.unpack_from(value)[0]
    if version not in GroupMetadataValue.versions:
        raise ProtocolError(f"the record of a group has version {version}, which is not known here")
    return decode(GroupMetadataValue, version, value, _INT16.size)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _read_string(buf: bytes, pos: int) -> tuple[str, int]:
    end = pos + 2 + max(_INT16.unpack_from(buf, pos)[0], 0)
    if end > len(buf):
        raise ProtocolError("a record of __consumer_offsets ends within a text")
    return buf[pos + 2 : end].decode(), end


def _read_compact(buf: bytes, pos: int) -> tuple[str, int]:
    length, pos = buf[pos], pos + 1
    if length >= 128:
        length, pos = uvarint_tail(buf, pos, length)
    end = pos + max(length - 1, 0)
    return buf[pos:end].decode(), end
