"""A log that begins, empty, behind what the tier has: with the epochs and the producers of what came before."""

from collections.abc import Sequence

from headrace.core.epochs import EpochList
from headrace.core.producers import ProducerTable
from headrace.storage import partition_directory
from headrace.storage.files import parent_of
from headrace.storage.log import Log
from headrace.storage.producer_state import SNAPSHOT_SUFFIX
from headrace.storage.segment import file_name
from headrace.storage.snapshots import decode_snapshot
from headrace.storage.unsynced import Unsynced


def begin_from_tier(
    log: Log,
    offset: int,
    log_start_offset: int,
    epochs: Sequence[tuple[int, int]],
    snapshot: bytes,
    *,
    since_ms: int,
    now_ms: int,
) -> None:
    """What is here goes. `epochs` and `snapshot`, which may be empty, are of the log up to `offset`.

    Both are on the disk before the empty segment is, without which the log would begin elsewhere: whoever finds it
    after a crash has all that belongs to it. Until then the records that are here, which the tier has too, fit them.
    """
    assert log_start_offset < offset
    producers = decode_snapshot(snapshot, now_ms) if snapshot else ProducerTable()
    kept = EpochList(epochs)
    kept.truncate_from_end(offset)
    kept.truncate_from_start(log_start_offset)
    files = log.shared.files
    log.shared.changing()
    if not log.exists:
        unsynced = Unsynced((), ())
        partition_directory.make(files, log.directory, log.topic_id, unsynced)
        unsynced.sync_files(files, log.directory)
        files.sync_directory(parent_of(log.directory))
    if snapshot:
        files.replace(f"{log.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}", snapshot)
    log.epochs = kept
    log.save_epochs()
    log.truncate_fully_and_start_at(offset, log_start_offset, since_ms=since_ms)
    log.producers = producers
