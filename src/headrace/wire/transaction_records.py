"""The records of `__transaction_state`, in Kafka's schemas: its own tools read them, and we read Kafka's.

Values are written in version 1, which has room for tags. One tag is ours, and others skip it: the epoch whose owner
asked for the current one, so that a coordinator that has just been elected can answer it again.

One kind of records is ours: which batch of a query was committed last. Its keys have a version that Kafka does not
know, and passes over.
"""

import struct
from typing import Final

from headrace.model import Buffer
from headrace.wire.compiler import decode, encode
from headrace.wire.errors import ProtocolError
from headrace.wire.struct import Message, Struct
from headrace.wire.types import Int8, Int16, Int32, Int64, String, tagged

_NO_API: Final = -1
"""They are stored, not sent."""
_VERSION: Final = struct.Struct(">h")
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 18_201
_GROUP_KEY_LAYOUT: Final = 0
_GROUP_VALUE_VERSION: Final = 0


class TransactionLogKey(Message, api=_NO_API, versions=(0, 0)):
    transactional_id: String


class TransactionLogPartitions(Struct):
    topic: String
    partition_ids: list[Int32]


class TransactionLogValue(Message, api=_NO_API, versions=(0, 1), flexible=1):
    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, default=-1, since=1)
    next_producer_id: Int64 = tagged(1, default=-1, since=1)
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionLogPartitions] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, default=0, since=1)
    last_producer_epoch: Int16 = tagged(10_016, default=-1, since=1)


class CommitGroupKey(Message, api=_NO_API, versions=(0, 0)):
    """What the transactional ids of all attempts of the query begin with."""

    query: String


class CommitGroupLogHandle(Struct):
    producer_id: Int64
    producer_epoch: Int16


class CommitGroupValue(Message, api=_NO_API, versions=(0, 0), flexible=0):
    batch_id: Int64
    run_id: String
    decided_timestamp_ms: Int64
    handles: list[CommitGroupLogHandle]


def key_bytes(transactional_id: str) -> bytes:
    return _VERSION.pack(_KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def value_bytes(value: TransactionLogValue) -> bytes:
    return _VERSION.pack(_VALUE_VERSION) + encode(value, _VALUE_VERSION)


def read_key(key: Buffer) -> str | None:
    """The transactional id; None for a kind of record that a later version may write. ProtocolError if it is none."""
    version = _version(key)
    if version not in TransactionLogKey.versions:
        return None
    return decode(TransactionLogKey, version, key, _VERSION.size).transactional_id


def read_value(value: Buffer) -> TransactionLogValue:
    """ProtocolError for what cannot be read."""
    version = _version(value)
    if version not in TransactionLogValue.versions:
        raise ProtocolError(f"a transaction's record has version {version}, which is not known here")
    return decode(TransactionLogValue, version, value, _VERSION.size)


def group_key_bytes(query: str) -> bytes:
    return _VERSION.pack(_GROUP_KEY_VERSION) + encode(CommitGroupKey(query=query), _GROUP_KEY_LAYOUT)


def group_value_bytes(value: CommitGroupValue) -> bytes:
    return _VERSION.pack(_GROUP_VALUE_VERSION) + encode(value, _GROUP_VALUE_VERSION)


def read_group_key(key: Buffer) -> str | None:
    """The query; None for another kind of record."""
    if _version(key) != _GROUP_KEY_VERSION:
        return None
    return decode(CommitGroupKey, _GROUP_KEY_LAYOUT, key, _VERSION.size).query


def read_group_value(value: Buffer) -> CommitGroupValue:
    """ProtocolError for what cannot be read."""
    version = _version(value)
    if version not in CommitGroupValue.versions:
        raise ProtocolError(f"the record of a committed batch has version {version}, which is not known here")
    return decode(CommitGroupValue, version, value, _VERSION.size)


def _version(buf: Buffer) -> int:
    if len(buf) < _VERSION.size:
        raise ProtocolError("a transaction's record is too short for its version")
    version: int = _VERSION.unpack_from(buf)[0]
    return version
