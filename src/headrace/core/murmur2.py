"""The hash by which Kafka's Java client, and so everybody else, gives a key its partition."""

import struct

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    length = len(data)
    hashed = _SEED ^ length
    words = length // 4
    for (word,) in struct.iter_unpack("<I", memoryview(data)[: words * 4]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    rest = data[words * 4 :]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_for(key: bytes, partition_count: int) -> int:
    """The partition of a key. Java masks the sign off instead of taking the absolute value."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
