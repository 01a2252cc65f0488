"""Rows of manifests, and whole segment objects, as tests need them."""

import struct
from typing import NamedTuple

from headrace.core.producers import ProducerTable
from headrace.core.tier_rows import COPY_FINISHED, COPY_STARTED, Sections, SegmentRow, SegmentState
from headrace.storage.checkpoints import format_leader_epochs
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY
from headrace.storage.snapshots import encode_snapshot
from headrace.tier.segment_object import segment_object
from headrace.wire.batch import NewRecord, build

NOWHERE = Sections((0, 0), (0, 0), (0, 0), None, None, (0, 0))


def row(
    number: int, base_offset: int, end_offset: int, *epochs: tuple[int, int], state: SegmentState = COPY_FINISHED
) -> SegmentRow:
    """Without epochs, all of it is of epoch 0."""
    finished_ms = -1 if state is COPY_STARTED else 1_000
    named = epochs or ((0, base_offset),)
    return SegmentRow(f"{number:032x}", base_offset, end_offset, 100, 5, named, state, finished_ms, NOWHERE)


class Stored(NamedTuple):
    content: bytearray
    row: SegmentRow


def stored_segment(batches: int = 5, base_offset: int = 10) -> Stored:
    """A segment of batches of two records, the later half of them in epoch 2, and each in both indexes."""
    log, index, times, epochs = bytearray(), b"", b"", [(1, base_offset)]
    for n in range(batches):
        first, epoch = base_offset + 2 * n, 1 if n < batches // 2 else 2
        if epoch != epochs[-1][0]:
            epochs.append((epoch, first))
        index += OFFSET_ENTRY.pack(2 * n + 1, len(log))
        times += TIME_ENTRY.pack(1_000 + n, 2 * n + 1)
        log += build([NewRecord(1_000 + n, b"k", b"v" * 50)] * 2, base_offset=first, leader_epoch=epoch)
    aborted = struct.pack(">hqqqq", 0, 7, base_offset, base_offset + 1, base_offset + 2)
    listed = format_leader_epochs([(0, 0), (1, 5), *epochs[1:]]).encode()
    made = segment_object(bytes(log), index, times, aborted, encode_snapshot(ProducerTable()), listed)
    end = base_offset + 2 * batches - 1
    named = SegmentRow(
        "a" * 32, base_offset, end, made.bytes, 999 + batches, tuple(epochs), COPY_FINISHED, 1_000, made.sections
    )
    content = bytearray()
    for part in made.parts:
        assert isinstance(part, bytes)
        content += part
    return Stored(content, named)
