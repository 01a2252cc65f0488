"""Copying of segments to the tier, by the leader: those that are complete, committed and decided, oldest first.

A copy is begun in the manifest, stored, and finished in the manifest; whatever ends it between leaves a row that says
so, and whose object is deleted. Nothing counts as copied before the manifest that finishes it is in force.
"""

import logging

from headrace.broker.tier import Tier, TierLog
from headrace.broker.tier_publishing import Stopped, discard, publish, settle, store_new
from headrace.core.tier_rows import COPY_STARTED, Manifest, SegmentRow, adding, deleting, finishing, without
from headrace.core.tiering import LocalSegment, epochs_up_to, epochs_within, to_copy
from headrace.storage.checkpoints import format_leader_epochs
from headrace.storage.segment_files import Part, SegmentFiles, segment_files
from headrace.tier.segment_object import SegmentObject, segment_object
from headrace.tier.store import FilePart, SourceUnreadable, StoreUnavailable

log = logging.getLogger(__name__)


def local_segments(tier_log: TierLog) -> list[LocalSegment]:
    """May open the log. Raises OSError, CorruptLog."""
    segments = list(tier_log.partition.log.segments)
    ends = [segment.base_offset for segment in segments[1:]] + [tier_log.partition.log.log_end_offset]
    return [LocalSegment(segment.base_offset, end, segment.size) for segment, end in zip(segments, ends, strict=False)]


def candidates(tier_log: TierLog) -> list[LocalSegment]:
    """What is to be copied now, oldest first. Raises OSError, CorruptLog."""
    partition = tier_log.partition
    highest = tier_log.highest_remote_offset
    assert highest is not None
    return to_copy(local_segments(tier_log), max(highest + 1, partition.log_start_offset), partition.last_stable_offset)


def copies(tier_log: TierLog) -> bool:
    """Whether anything is to be copied at all, as things stand."""
    config = tier_log.partition.config
    return not tier_log.is_over and config.remote_storage_enable and not config.remote_log_copy_disable


class Copier:
    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._metrics = tier.metrics

    async def copy(self, tier_log: TierLog) -> None:
        """All that is to be copied now. Raises Stopped, OSError, CorruptLog."""
        await settle(self._tier, tier_log)
        await self._finish(tier_log)
        for segment in self.measure(tier_log):
            files = segment_files(tier_log.partition.log, segment.base_offset) if copies(tier_log) else None
            if files is None:
                break  # it was deleted meanwhile, or nothing more is to be copied
            await self._copy_one(tier_log, files)
        await self._finish(tier_log)
        self.measure(tier_log)

    def measure(self, tier_log: TierLog) -> list[LocalSegment]:
        """What is to be copied now, which is the lag too. Raises OSError, CorruptLog."""
        todo = candidates(tier_log) if copies(tier_log) else []
        if not tier_log.is_over:
            self._metrics.lags(tier_log.partition, todo)
        return todo

    async def _copy_one(self, tier_log: TierLog, files: SegmentFiles) -> None:
        """One manifest begins this copy, and finishes the one before."""
        partition, counts = tier_log.partition, self._metrics.of(tier_log.partition.topic)
        made = self._object(tier_log, files)
        row = self._row(tier_log, files, made)
        key = self._tier.segment_key(partition, row)
        await self._publish(tier_log, adding(self._finished(tier_log), row, tier_log.leader_epoch))
        counts.copy_requests += 1
        try:
            await store_new(self._tier.store, key, made.parts)
        except (StoreUnavailable, SourceUnreadable) as failure:
            # A source that is gone was deleted, or this node follows already: that is no error.
            counts.copy_errors += not isinstance(failure, SourceUnreadable)
            await self._give_up(tier_log, row)
            raise Stopped(str(failure)) from failure
        if tier_log.is_over:
            await discard(self._tier, tier_log, key)
            raise Stopped("this node does not lead it any more")
        tier_log.uploaded.add(row.id)
        counts.copied_bytes += made.bytes
        log.debug("%s: offsets %d to %d are in the tier", partition, row.base_offset, row.end_offset)

    def _finished(self, tier_log: TierLog) -> Manifest:
        """The manifest in force, with the copies finished whose objects are stored."""
        manifest = tier_log.manifest
        assert manifest is not None
        # Some may be finished already, by a manifest that was in doubt; or be gone with one that was read again.
        tier_log.uploaded &= {row.id for row in manifest.rows if row.state is COPY_STARTED}
        for row_id in sorted(tier_log.uploaded):
            manifest = finishing(manifest, row_id, self._tier.clock.wall_ms(), tier_log.leader_epoch)
        return manifest

    async def _publish(self, tier_log: TierLog, manifest: Manifest) -> None:
        """A manifest that finishes all that is stored."""
        await publish(self._tier, tier_log, manifest)
        tier_log.uploaded.clear()

    async def _finish(self, tier_log: TierLog) -> None:
        if tier_log.uploaded:
            await self._publish(tier_log, self._finished(tier_log))

    async def _give_up(self, tier_log: TierLog, row: SegmentRow) -> None:
        """Its object may be there, or come yet. Raises Stopped."""
        tier_log.trouble()
        manifest = tier_log.manifest
        if tier_log.is_over or manifest is None:
            return
        ids = {row.id}
        await publish(self._tier, tier_log, deleting(manifest, ids, 0, tier_log.leader_epoch))
        try:
            await self._tier.store.delete(self._tier.segment_key(tier_log.partition, row))
        except StoreUnavailable:
            return  # the row stays, and says that it is to be deleted
        assert tier_log.manifest is not None
        await publish(self._tier, tier_log, without(tier_log.manifest, ids, tier_log.leader_epoch))

    def _object(self, tier_log: TierLog, files: SegmentFiles) -> SegmentObject:
        epochs = epochs_up_to(tier_log.partition.log.epochs.entries, files.end_offset)
        return segment_object(
            _source(files.log),
            _source(files.offset_index),
            _source(files.time_index),
            None if files.txn_index is None else _source(files.txn_index),
            files.snapshot,
            format_leader_epochs(epochs).encode(),
        )

    def _row(self, tier_log: TierLog, files: SegmentFiles, made: SegmentObject) -> SegmentRow:
        entries = tier_log.partition.log.epochs.entries
        return SegmentRow(
            id=self._tier.new_id(),
            base_offset=files.base_offset,
            end_offset=files.end_offset - 1,
            bytes=made.bytes,
            max_timestamp_ms=files.max_timestamp_ms,
            epochs=epochs_within(entries, files.base_offset, files.end_offset),
            state=COPY_STARTED,
            finished_ms=-1,
            sections=made.sections,
        )


def _source(part: Part) -> FilePart:
    return FilePart(part.path, 0, part.bytes)
