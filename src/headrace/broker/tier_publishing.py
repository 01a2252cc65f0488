"""A new manifest comes into force: its object is stored first, and then the pointer in the metadata store is moved.

What was not published for certain has not happened: nothing is served, deleted or counted by it.
"""

import logging
from collections.abc import Sequence

from headrace.broker.tier import Doubt, Tier, TierLog
from headrace.controller.tier_pointer import NotPublished, Published
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_pointer import Pointer
from headrace.core.tier_rows import COPY_FINISHED, Manifest, starting_at
from headrace.metadata.store import MetadataStoreError, OutcomeUnknown
from headrace.tier.manifest import encode
from headrace.tier.store import ObjectExists, ObjectMissing, ObjectStore, Source, StoreUnavailable, source_bytes

log = logging.getLogger(__name__)


class Stopped(Exception):
    """This round of work on a partition ends here; the text says why, as a clause. The next one goes on."""


async def store_new(store: ObjectStore, key: str, parts: Sequence[Source]) -> None:
    """Under a name that nobody else chose: if it is taken, an answer was lost, and the adapter has tried again.

    Raises StoreUnavailable, SourceUnreadable.
    """
    try:
        await store.put(key, parts)
    except ObjectExists:
        try:
            size = await store.size(key)
        except ObjectMissing:
            size = -1
        if size != sum(map(source_bytes, parts)):
            raise StoreUnavailable(f"An answer to the put of {key} was lost.") from None


async def publish(tier: Tier, tier_log: TierLog, manifest: Manifest) -> None:
    """`manifest` follows the one that is in force. Raises Stopped; then it is not known to be in force."""
    if tier_log.is_over:
        raise Stopped("this node does not lead it any more")
    assert tier_log.doubt is None and tier_log.manifest is not None
    partition, before = tier_log.partition, tier_log.manifest_key
    manifest = starting_at(manifest, partition.log_start_offset, tier_log.leader_epoch)
    key = tier.manifest_key(partition, manifest)
    if not tier_log.rev:
        await _announce(tier, tier_log)
    try:
        await store_new(tier.store, key, [encode(manifest)])
    except StoreUnavailable as failure:
        tier_log.trouble()
        raise Stopped(str(failure)) from failure
    pointer = _pointer(tier_log, manifest, key)
    tier_log.is_publishing = True
    try:
        outcome = await tier.pointers.publish(
            partition.topic_id, partition.index, tier_log.leader_epoch, pointer, tier_log.rev
        )
    except MetadataStoreError as failure:
        await discard(tier, tier_log, key)
        raise Stopped(str(failure)) from failure
    finally:
        tier_log.is_publishing = False
    if isinstance(outcome, Published):
        tier_log.took(manifest, key, outcome.rev)
        if before:
            await discard(tier, tier_log, before)
        return
    if outcome is NotPublished.IN_DOUBT:
        tier_log.doubt = Doubt(manifest, key)
        tier_log.trouble()
        raise Stopped("it is not known whether the metadata store has its new manifest")
    await discard(tier, tier_log, key)
    if outcome is NotPublished.MOVED:
        tier.reload(tier_log)
        raise Stopped("its manifest is another one than this node knew")
    raise Stopped("another node leads it")


async def _announce(tier: Tier, tier_log: TierLog) -> None:
    partition = tier_log.partition
    try:
        is_led = await tier.pointers.announce(partition.topic_id, partition.index, tier_log.leader_epoch)
    except (MetadataStoreError, OutcomeUnknown) as failure:
        raise Stopped(str(failure)) from failure
    if not is_led:
        raise Stopped("another node leads it")


async def settle(tier: Tier, tier_log: TierLog) -> None:
    """Ends the doubt about an earlier publication, if there is one. Raises Stopped."""
    doubt, partition = tier_log.doubt, tier_log.partition
    if doubt is None:
        return
    try:
        stored = await tier.pointers.read(partition.topic_id, partition.index)
    except MetadataStoreError as failure:
        raise Stopped(str(failure)) from failure
    before = tier_log.manifest_key
    if stored is not None and stored.pointer.manifest == doubt.key:
        tier_log.took(doubt.manifest, doubt.key, stored.rev)
        tier_log.doubt = None
        if before:
            await discard(tier, tier_log, before)
        return
    if (0 if stored is None else stored.rev) != tier_log.rev:
        tier_log.doubt = None
        await discard(tier, tier_log, doubt.key)
        tier.reload(tier_log)
        raise Stopped("its manifest is another one than this node knew")
    # It may be written yet. Another one that follows the same manifest makes that impossible.
    tier_log.doubt = None
    manifest = tier_log.manifest
    assert manifest is not None
    try:
        await publish(tier, tier_log, starting_at(manifest, manifest.log_start_offset, tier_log.leader_epoch))
    except Stopped:
        tier_log.doubt = tier_log.doubt or doubt
        tier_log.trouble()
        raise
    await discard(tier, tier_log, doubt.key)


async def discard(tier: Tier, tier_log: TierLog, key: str) -> None:
    """Nothing in force names it. What cannot be deleted now is found later."""
    try:
        await tier.store.delete(key)
    except StoreUnavailable as failure:
        log.info("%s: %s is deleted later: %s", tier_log.partition, key, failure)
        tier_log.trouble()


def _pointer(tier_log: TierLog, manifest: Manifest, key: str) -> Pointer:
    partition = tier_log.partition
    epochs = partition.log.epochs
    remote = RemoteLog(manifest.rows, epochs.entries, partition.log_end_offset)
    highest = remote.highest_offset(manifest.log_start_offset)
    finished = [row for row in manifest.rows if row.state is COPY_FINISHED]
    return Pointer(
        manifest=key,
        leader_epoch=manifest.leader_epoch,
        log_start_offset=manifest.log_start_offset,
        highest_remote_offset=highest,
        highest_remote_epoch=epochs.epoch_at(highest) if highest >= 0 else -1,
        bytes=manifest.bytes,
        segments=len(finished),
        finished_ms=max((row.finished_ms for row in finished), default=-1),
    )
