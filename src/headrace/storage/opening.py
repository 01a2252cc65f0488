"""From a partition directory to a `Log`, whoever wrote the directory and however it was left."""

from collections.abc import Sequence

from headrace.core.epochs import EpochList
from headrace.errors import CorruptLog
from headrace.storage import producer_state
from headrace.storage.contents import Contents
from headrace.storage.epoch_file import read_epochs
from headrace.storage.local_part import LocalPart, read_local_part
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.recovery import Recovery, recover
from headrace.storage.segment import (
    BESIDE_SUFFIXES,
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    file_name,
    offsets_of,
)
from headrace.storage.segments import Segments
from headrace.storage.shared import DELETED_SUFFIX, Shared
from headrace.storage.swapping import finish_swaps

LEFTOVER_SUFFIXES = (".tmp", CLEANED_SUFFIX, SWAP_SUFFIX)


def open_log(
    shared: Shared,
    directory: str,
    topic_id: bytes,
    config: LogConfig,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    is_clean: bool = False,
    known_end_offset: int | None = None,
    remote_log_start: int | None = None,
) -> Log:
    """`is_clean` promises that whoever wrote the files last closed them; then nothing is scanned.

    `remote_log_start` is where the tier says that the log begins; None if it has nothing of it.
    `known_end_offset` spares even the look for the last batch. CorruptLog if what was on the disk is there no longer.
    """
    try:
        names = shared.files.names(directory)
    except FileNotFoundError:
        return Log(shared, directory, topic_id, config, None)
    names = _tidy(shared, directory, names)
    segments = _segments(shared, directory, names, config)
    entries = read_epochs(shared.files, directory)
    epochs = _epochs_of(segments) if entries is None and len(segments) else EpochList(entries or ())
    local = read_local_part(shared.files, directory, names)
    # What batches tell begins where records begin, which the power may have taken.
    _drop_deleted(segments, epochs if entries is not None else EpochList(), local.start_offset)
    if entries is None and local.start_offset > 0 and segments.size_bytes and remote_log_start is not None:
        _require_epochs(segments, remote_log_start)
    recovery: Recovery | None = None
    scanned: list[Segment] = []
    if not len(segments):
        end_offset = log_start_offset
    elif is_clean:
        end_offset = _known_end(segments[-1], known_end_offset)
    else:
        first = segments.index_of(recovery_point)
        recovery = recover(segments, recovery_point, epochs)
        scanned = list(segments)[first:]
        end_offset = recovery.end_offset
    _require_no_hole(segments)
    first_offset = _log_start(segments, epochs, log_start_offset, remote_log_start) if len(segments) else end_offset
    _fit(epochs, segments, first_offset, end_offset)
    snapshots = _drop_snapshots_above(shared, directory, producer_state.snapshot_offsets(names), end_offset)
    producers = producer_state.load(shared.files, directory, snapshots, segments, end_offset, reindex=scanned)
    synced = end_offset if is_clean else min(recovery_point, end_offset)
    contents = Contents(
        segments, epochs, epochs.latest, producers, first_offset, end_offset, synced, recovery, scanned[:-1], local
    )
    contents.lost_beginning = _lost_beginning(segments, entries, local) if remote_log_start is None else None
    log = Log(shared, directory, topic_id, config, contents)
    if (entries is None or recovery is not None) and epochs.entries != (entries or ()):
        log.save_epochs(durable=first_offset > 0 or local.start_offset > 0)
    if first_offset > end_offset:
        # Records were deleted up to an offset that the log, after a crash, does not reach any more.
        log.truncate_fully_and_start_at(first_offset)
    return log


def _log_start(segments: Segments, epochs: EpochList, log_start_offset: int, remote_log_start: int | None) -> int:
    """A log start that had moved, and that a crash came between before the tier heard of it, is known by the epochs:
    they begin with it, and what is in the tier before them is of no use."""
    if remote_log_start is None:
        return max(log_start_offset, segments[0].base_offset)
    known_from = epochs.entries[0].start_offset if epochs.entries else 0
    return max(log_start_offset, remote_log_start, min(known_from, segments[0].base_offset))


def _known_end(active: Segment, known_end_offset: int | None) -> int:
    active.end_offset = active.find_end() if known_end_offset is None else known_end_offset
    return active.end_offset


def _lost_beginning(segments: Segments, entries: Sequence[tuple[int, int]] | None, local: LocalPart) -> range | None:
    """Offsets that nobody has deleted, and that are not there. The list of epochs is cut, durably, before a segment
    goes, so that it never begins before the first one; where the tier has the rest, the local part is told instead."""
    if not len(segments) or not entries or local.start_offset >= 0:
        return None
    (_, known_from), first = entries[0], segments[0].base_offset
    return range(known_from, first) if known_from < first else None


def _tidy(shared: Shared, directory: str, names: list[str]) -> list[str]:
    """Removes what a crash left half done; the names that stay."""
    names = finish_swaps(shared, directory, names)
    logs = {name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)}
    kept = []
    for name in names:
        stem, dot, suffix = name.rpartition(".")
        if name.endswith(DELETED_SUFFIX):
            shared.trash.put(f"{directory}/{name}", 0)
        elif name.endswith(LEFTOVER_SUFFIXES) or (dot + suffix in BESIDE_SUFFIXES and stem not in logs):
            shared.files.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _fit(epochs: EpochList, segments: Segments, first_offset: int, end_offset: int) -> None:
    epochs.truncate_from_end(end_offset)
    if len(segments):
        epochs.truncate_from_start(min(first_offset, segments[0].base_offset))


def _drop_snapshots_above(shared: Shared, directory: str, offsets: list[int], end_offset: int) -> list[int]:
    """They tell of batches that were lost. For good, before others come in their place."""
    kept = [offset for offset in offsets if offset <= end_offset]
    for offset in offsets[len(kept) :]:
        shared.files.remove(f"{directory}/{file_name(offset, producer_state.SNAPSHOT_SUFFIX)}")
    if len(kept) < len(offsets):
        shared.files.sync_directory(directory)
    return kept


def _segments(shared: Shared, directory: str, names: list[str], config: LogConfig) -> Segments:
    bases = offsets_of(names, LOG_SUFFIX)
    segments = Segments(shared, directory, config)
    for at, base_offset in enumerate(bases):
        size = shared.files.size(f"{directory}/{base_offset:020d}{LOG_SUFFIX}")
        end_offset = bases[at + 1] if at + 1 < len(bases) else base_offset
        segments.add(base_offset, size=size, end_offset=end_offset, created_ms=None)
    return segments


def _require_no_hole(segments: Segments) -> None:
    """A segment that another one follows was once full. Only Apache Kafka's compaction leaves nothing of it."""
    for segment in list(segments)[:-1]:
        if not segment.size and not segments.config.is_compacted:
            raise CorruptLog(f"{segment.log.path} is empty, although the log goes on behind it.")


def _require_epochs(segments: Segments, remote_log_start: int) -> None:
    """They were on the disk before the first segment left it for the tier: somebody has lost or spoilt them since.

    Without them nobody knows which remote segments are of this log, and they would be taken for missing.
    """
    first = segments[0]
    if remote_log_start < first.base_offset:
        raise CorruptLog(f"{first.log.path} follows what is in the tier, but the list of leader epochs is lost.")


def _epochs_of(segments: Segments) -> EpochList:
    """The list as the batches have it."""
    epochs = EpochList()
    try:
        for _, header in segments.headers_from(segments[0].base_offset):
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
    except CorruptLog:
        pass  # Where the log ends, and whether it may end there, is for recovery to say.
    return epochs


def _drop_deleted(segments: Segments, epochs: EpochList, local_start: int) -> None:
    """Of segments that were being deleted when the power went, any may be back. The epoch list was cut before them.

    Where the tier has them it was not, and the local start was moved instead.
    """
    begins_at = max(epochs.entries[0].start_offset if epochs.entries else 0, local_start)
    deleted = [at for at in range(1, len(segments)) if segments[at].base_offset <= begins_at]
    if deleted:
        segments.drop_first(deleted[-1])
