"""Rows of manifests, and whole segment objects, as tests need them."""

import struct
from typing import NamedTuple

from headrace.core.producers import ProducerTable
from headrace.core.tier_rows import COPY_FINISHED, COPY_STARTED, Sections, SegmentRow, SegmentState
from headrace.storage.checkpoints import format_leader_epochs
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY
from headrace.storage.snapshots import encode_snapshot
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
    content, log_bytes = bytearray(), 0
    index, times, epochs = b"", b"", [(1, base_offset)]
    for n in range(batches):
        first, epoch = base_offset + 2 * n, 1 if n < batches // 2 else 2
        if epoch != epochs[-1][0]:
            epochs.append((epoch, first))
        index += OFFSET_ENTRY.pack(2 * n + 1, log_bytes)
        times += TIME_ENTRY.pack(1_000 + n, 2 * n + 1)
        records = [NewRecord(1_000 + n, b"k", b"v" * 50)] * 2
        batch = build(records, base_offset=first, leader_epoch=epoch)
        content += batch
        log_bytes += len(batch)
    places = [(0, log_bytes)]
    snapshot = encode_snapshot(ProducerTable())
    aborted = struct.pack(">hqqqq", 0, 7, base_offset, base_offset + 1, base_offset + 2)
    listed = format_leader_epochs([(0, 0), *((epoch, max(start, 5)) for epoch, start in epochs)]).encode()
    for part in (index, times, aborted, snapshot, listed):
        places.append((len(content), len(part)))
        content += part
    log, at_index, at_times, at_aborted, at_snapshot, at_epochs = places
    sections = Sections(log, at_index, at_times, at_aborted, at_snapshot, at_epochs)
    end = base_offset + 2 * batches - 1
    made = SegmentRow(
        "a" * 32, base_offset, end, len(content), 999 + batches, tuple(epochs), COPY_FINISHED, 1_000, sections
    )
    return Stored(content, made)
