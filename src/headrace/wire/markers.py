"""The control batch that ends a transaction in a partition."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headrace.model import Buffer
from headrace.wire.batch import NewRecord, Record, build, read_header, read_records
from headrace.wire.errors import ProtocolError

_KEY = struct.Struct(">hh")
"""Version, type."""
_VALUE = struct.Struct(">hi")
"""Version, coordinator epoch."""
_VERSION = 0
_ABORT = 0
_COMMIT = 1


class Marker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def read_marker(batch: Buffer, pos: int = 0) -> Marker | None:
    """The marker in the batch at `pos`; None if it holds no end of a transaction, as data or an emptied batch."""
    return marker_of(read_records(batch, pos)) if read_header(batch, pos).is_control else None


def marker_of(records: Sequence[Record]) -> Marker | None:
    """The same, of the records of a control batch."""
    if not records:
        return None
    key, value = records[0].key, records[0].value
    # Later versions may add fields behind these.
    if key is None or len(key) < _KEY.size:
        raise ProtocolError("A control record has no type.")
    kind = _KEY.unpack_from(key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise ProtocolError("The end of a transaction names no coordinator epoch.")
    return Marker(kind == _COMMIT, _VALUE.unpack_from(value)[1])


def build_marker(
    producer_id: int, producer_epoch: int, committed: bool, coordinator_epoch: int, now_ms: int
) -> bytearray:
    """The batch that ends the producer's transaction, to the byte as Kafka writes it."""
    key = _KEY.pack(_VERSION, _COMMIT if committed else _ABORT)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return build(
        [NewRecord(now_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
