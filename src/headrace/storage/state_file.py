"""What a clean stop knew of every log, in one file of our own, so that the next start opens no partition at all.

Magic, u16 version, u32 CRC-32C of the rest, u32 count; then per partition: topic (u16 length, UTF-8) and the fields of
`Remembered` in their order. Everything is big-endian.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from headrace.model import TopicPartition
from headrace.storage.errors import WrongFormat

MAGIC = b"HRLS"
VERSION = 3
"""1 did not tell where the first undecided transaction begins, 2 not where the log begins on this disk."""

_HEAD = struct.Struct(">4sHII")
_CRC_FROM = 10
_TOPIC_BYTES = struct.Struct(">H")
_FIELDS = {
    1: struct.Struct(">i16sqqqqqq"),
    2: struct.Struct(">i16sqqqqqqq"),
    VERSION: struct.Struct(">i16sqqqqqqqq"),
}


class Remembered(NamedTuple):
    """A log that nobody has to open in order to know this."""

    topic_id: bytes
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    active_base_offset: int
    """With the next field: how to tell that nobody has touched the log since."""
    active_bytes: int
    size_bytes: int
    undecided_from: int = -1
    """Where its first undecided transaction begins; -1 when that is not known."""
    local_log_start_offset: int = -1
    """Later than the log start where the tier has the rest; -1 when that is not known."""


def encode_state(logs: Mapping[TopicPartition, Remembered]) -> bytes:
    out = bytearray(_HEAD.size)
    for (topic, partition), log in logs.items():
        name = topic.encode()
        out += _TOPIC_BYTES.pack(len(name)) + name + _FIELDS[VERSION].pack(partition, *log)
    _HEAD.pack_into(out, 0, MAGIC, VERSION, 0, len(logs))
    _HEAD.pack_into(out, 0, MAGIC, VERSION, crc32c(memoryview(out)[_CRC_FROM:]), len(logs))
    return bytes(out)


def decode_state(data: bytes, path: str) -> dict[TopicPartition, Remembered] | None:
    """None if the file is damaged: then every log is looked at instead."""
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        return None
    _, version, crc, count = _HEAD.unpack_from(data)
    if version > VERSION:
        raise WrongFormat(f"{path} has format version {version}; this program knows {VERSION} and older.")
    layout = _FIELDS.get(version)
    if layout is None or crc != crc32c(memoryview(data)[_CRC_FROM:]):
        return None
    logs = {}
    at = _HEAD.size
    for _ in range(count):
        (length,) = _TOPIC_BYTES.unpack_from(data, at)
        topic = data[at + _TOPIC_BYTES.size : at + _TOPIC_BYTES.size + length].decode()
        at += _TOPIC_BYTES.size + length
        partition, *fields = layout.unpack_from(data, at)
        logs[TopicPartition(topic, partition)] = Remembered(*fields)
        at += layout.size
    return logs
