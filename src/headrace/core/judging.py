"""A client's batch by itself: by its header and checksum, and by the settings of its topic."""

from headrace.config import TopicConfig
from headrace.errors import ErrorCode
from headrace.wire.batch import (
    CODEC_BITS,
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC,
    SIZE_AHEAD_OF_LENGTH,
    TRANSACTIONAL,
    crc_of,
    read_header,
)
from headrace.wire.key_check import have_keys

CODEC_MAX = 4
NO_TIMESTAMP = -1
APPEND_TIME = "LogAppendTime"
COMPACT = "compact"

# Looking a name up in an enumeration costs more than the comparison.
_NONE = ErrorCode.NONE


def judge(records: memoryview, size: int, fields: tuple[int, ...], config: TopicConfig, now_ms: int) -> ErrorCode:
    """Why a client may not append this, whatever the partition holds. `fields` are those of its header."""
    (
        base_offset,
        batch_length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_ms,
        max_ms,
        producer_id,
        epoch,
        seq,
        count,
    ) = fields
    if magic != MAGIC:
        return ErrorCode.INVALID_RECORD if magic < MAGIC else ErrorCode.CORRUPT_MESSAGE
    if batch_length + SIZE_AHEAD_OF_LENGTH != size:
        # Exactly one whole batch per partition: a longer one is cut off, a shorter one has company.
        return ErrorCode.INVALID_RECORD
    if size > config.max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    if crc_of(records, 0, size) != crc:
        return ErrorCode.CORRUPT_MESSAGE
    if count != last_offset_delta + 1 or count <= 0 or attributes & CONTROL or base_offset:
        return ErrorCode.INVALID_RECORD
    if attributes & CODEC_BITS > CODEC_MAX:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if producer_id >= 0:
        if epoch < 0 or seq < 0:
            return ErrorCode.INVALID_RECORD
    elif attributes & TRANSACTIONAL:
        return ErrorCode.INVALID_RECORD
    if attributes & LOG_APPEND_TIME or (
        config.message_timestamp_type != APPEND_TIME
        and (
            max_ms - now_ms > config.message_timestamp_after_max_ms
            or (now_ms - base_ms > config.message_timestamp_before_max_ms and base_ms != NO_TIMESTAMP)
        )
    ):
        return ErrorCode.INVALID_TIMESTAMP
    if COMPACT in config.cleanup_policy and not have_keys(records, read_header(records)):
        return ErrorCode.INVALID_RECORD
    return _NONE
