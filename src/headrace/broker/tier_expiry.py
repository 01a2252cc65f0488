"""What goes from the tier, by the leader: what retention keeps no longer, what was begun and not finished, and what
nothing names.

The log start is published before anything below it is deleted, and a row leaves the manifest after its object is gone:
a death between leaves something to be deleted again, and never a hole.
"""

import logging
from collections.abc import Sequence

from headrace.broker.broker import Broker
from headrace.broker.tier import Tier, TierLog
from headrace.broker.tier_copier import local_segments
from headrace.broker.tier_publishing import Stopped, publish, settle
from headrace.controller.tier_pointer import Published
from headrace.core.tier_rows import DELETE_STARTED, Manifest, SegmentRow, deleting, without
from headrace.core.tiering import Kept, below, log_start_by_retention, log_start_without_hole, unfinished
from headrace.metadata.store import MetadataStoreError
from headrace.tier.layout import ManifestName, SegmentName, parse_key
from headrace.tier.store import StoreUnavailable

log = logging.getLogger(__name__)

TOLD_WITHIN_MS = 3_000
"""Followers look once a second whether there is something to tell."""


class Expiry:
    def __init__(self, broker: Broker, tier: Tier) -> None:
        self._broker = broker
        self._tier = tier
        self._metrics = tier.metrics

    def found(self, tier_log: TierLog) -> None:
        """The manifest is known: the log begins where it says, and never at a hole. Raises OSError, CorruptLog."""
        partition, manifest = tier_log.partition, tier_log.manifest
        assert manifest is not None
        start = max(partition.log_start_offset, manifest.log_start_offset)
        whole = log_start_without_hole(tier_log.remote, start, partition.local_log_start_offset)
        if whole > start:
            log.warning(
                "%s begins at offset %d now: what was before it is neither on this node nor in the tier, or has "
                "something behind it that is not",
                partition,
                whole,
            )
        self._begin_at(tier_log, whole)

    def _begin_at(self, tier_log: TierLog, offset: int) -> None:
        partition = tier_log.partition
        offset = min(offset, partition.high_watermark)
        if offset > partition.log_start_offset:
            partition.log.advance_log_start(offset)
            self._broker.log_start_moved(partition, offset)

    async def expire(self, tier_log: TierLog) -> None:
        """Raises Stopped, OSError, CorruptLog."""
        await settle(self._tier, tier_log)
        _check_leads(tier_log)
        self.found(tier_log)
        manifest, start = _known(tier_log), self._log_start(tier_log)
        doomed = list(manifest.rows) if self._is_disabled(tier_log) else below(manifest.rows, start)
        doomed += [row for row in unfinished(manifest) if row not in doomed]
        doomed = [row for row in doomed if row.id not in tier_log.uploaded]
        self._metrics.to_delete(tier_log.partition, doomed)
        if not doomed:
            return
        fresh = {row.id for row in doomed if row.state is not DELETE_STARTED}
        if fresh:
            await publish(self._tier, tier_log, deleting(manifest, fresh, start, tier_log.leader_epoch))
            _check_leads(tier_log)
            self._begin_at(tier_log, start)
        await self._delete(tier_log, doomed)

    def _is_disabled(self, tier_log: TierLog) -> bool:
        config = tier_log.partition.config
        return config.remote_log_delete_on_disable and not config.remote_storage_enable

    def _log_start(self, tier_log: TierLog) -> int:
        """Where the log begins by retention; where it begins on all disks, if the tier is to have nothing of it.

        What one replica in sync does not have would be a hole as soon as that one leads. Raises Stopped.
        """
        partition, config = tier_log.partition, tier_log.partition.config
        if self._is_disabled(tier_log):
            return self._start_on_all_disks(tier_log)
        tier_log.given_up_ms = None
        if not config.remote_storage_enable:
            return partition.log_start_offset
        began_ms = self._broker.clock.monotonic_ms()  # the time of a loop may stand still within a turn
        start = log_start_by_retention(
            tier_log.remote,
            local_segments(tier_log),
            Kept(config.retention_ms, config.retention_bytes),
            partition.log_start_offset,
            self._tier.clock.wall_ms(),
        )
        self._metrics.size_computation_ms = self._broker.clock.monotonic_ms() - began_ms
        return start

    def _start_on_all_disks(self, tier_log: TierLog) -> int:
        """Followers are given some time to hear that the tier is given up, and to tell. Raises Stopped."""
        partition, now_ms = tier_log.partition, self._tier.clock.monotonic_ms()
        if tier_log.given_up_ms is None:
            tier_log.given_up_ms = now_ms
        start = self._broker.isr_updates.coverages.log_start_without_tier(partition)
        leadership = partition.leadership
        is_alone = leadership is None or len(leadership.record.isr) == 1
        if start is None or (not is_alone and now_ms - tier_log.given_up_ms < TOLD_WITHIN_MS):
            raise Stopped("its replicas have not said yet what they have on their disks")
        return start

    async def _delete(self, tier_log: TierLog, rows: Sequence[SegmentRow]) -> None:
        gone, failure = set(), ""
        counts = self._metrics.of(tier_log.partition.topic)
        for row in rows:
            _check_leads(tier_log)
            counts.delete_requests += 1
            try:
                await self._tier.store.delete(self._tier.segment_key(tier_log.partition, row))
                gone.add(row.id)
            except StoreUnavailable as error:
                counts.delete_errors += 1
                failure = str(error)
                break
        if gone:
            await publish(self._tier, tier_log, without(_known(tier_log), gone, tier_log.leader_epoch))
        self._metrics.to_delete(tier_log.partition, [row for row in rows if row.id not in gone])
        if failure:
            tier_log.trouble()
            raise Stopped(failure)

    # What nothing names.

    async def sweep(self, tier_log: TierLog) -> None:
        """Raises Stopped."""
        tier_log.rounds_to_sweep -= 1
        if tier_log.rounds_to_sweep > 0 or tier_log.doubt is not None:
            return
        partition = tier_log.partition
        prefix = self._tier.partition_prefix(partition.topic_id, partition.index)
        try:
            listed = [key async for key, _ in self._tier.store.list(prefix)]
            stray = [key for key in listed if self._is_stray(tier_log, key)]
            # What was listed was named before it was stored. If what is in force now does not name it, nothing will.
            if stray and await self._is_in_force(tier_log):
                for key in stray:
                    await self._tier.store.delete(key)
                log.info("%s: deleted %d objects that nothing named", partition, len(stray))
        except (StoreUnavailable, MetadataStoreError) as failure:
            tier_log.trouble()
            raise Stopped(str(failure)) from failure
        tier_log.swept(len(stray))

    async def _is_in_force(self, tier_log: TierLog) -> bool:
        """What this node knows, and that it leads, after the list was made."""
        partition = tier_log.partition
        stored = await self._tier.pointers.read(partition.topic_id, partition.index)
        if (0 if stored is None else stored.rev) != tier_log.rev or tier_log.is_over:
            return False
        return await self._tier.pointers.is_led(partition.topic_id, partition.index, tier_log.leader_epoch)

    def _is_stray(self, tier_log: TierLog, key: str) -> bool:
        name = parse_key(key)
        if name is None or key == tier_log.manifest_key:
            return False
        manifest = _known(tier_log)
        if isinstance(name.object, SegmentName):
            return all(row.id != name.object.id for row in manifest.rows)
        assert isinstance(name.object, ManifestName)
        # Who comes after this leader stores a manifest before it is named.
        return name.object.leader_epoch <= tier_log.leader_epoch

    # No tier any more.

    async def withdraw(self, tier_log: TierLog) -> bool:
        """The topic has no tier, and nothing is left of it there: the pointer goes. Raises Stopped."""
        partition = tier_log.partition
        manifest = _known(tier_log)
        if partition.config.remote_storage_enable or manifest.rows or not tier_log.manifest_key:
            return False
        try:
            outcome = await self._tier.pointers.withdraw(
                partition.topic_id, partition.index, tier_log.leader_epoch, tier_log.rev
            )
        except MetadataStoreError as failure:
            raise Stopped(str(failure)) from failure
        if not isinstance(outcome, Published):
            self._tier.reload(tier_log)
            raise Stopped("it is not known whether its pointer is gone")
        key = tier_log.manifest_key
        tier_log.took(manifest, "", 0)
        try:
            await self._tier.store.delete(key)
        except StoreUnavailable as failure:
            log.warning("%s: %s stays in the object store: %s", partition, key, failure)
        return True


def _check_leads(tier_log: TierLog) -> None:
    """After each wait: the log may be another's to move, or a new one that is empty. Raises Stopped."""
    if tier_log.is_over:
        raise Stopped("this node does not lead it any more")


def _known(tier_log: TierLog) -> Manifest:
    assert tier_log.manifest is not None
    return tier_log.manifest
