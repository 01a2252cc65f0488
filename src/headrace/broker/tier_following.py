"""What followers read of the tier: the manifest that their image names, and what was known at the end of a segment."""

from headrace.broker.replicator_tier import Known
from headrace.broker.tier_metrics import Counts, TierMetrics
from headrace.core.cluster import ClusterImage
from headrace.core.tier_rows import Manifest, SegmentRow
from headrace.storage.checkpoints import parse_leader_epochs
from headrace.storage.snapshots import decode_snapshot
from headrace.tier.layout import SegmentName, segment_key
from headrace.tier.manifest import load
from headrace.tier.segment_object import read_section
from headrace.tier.store import ObjectStore


class TierFollowing:
    """See broker.replicator_tier.RemoteParts."""

    def __init__(self, image: ClusterImage, store: ObjectStore, metrics: TierMetrics) -> None:
        self._image = image
        self._metrics = metrics
        self._store = store

    async def manifest(self, topic_id: bytes, index: int) -> Manifest | None:
        stored = self._image.tier.get((topic_id, index))
        return None if stored is None else await load(self._store, stored.pointer.manifest)

    def counts(self, topic: str) -> Counts:
        return self._metrics.of(topic)

    async def known_at_end(self, topic_id: bytes, index: int, row: SegmentRow) -> Known:
        """Epochs from the start of the log on, as the leader knew them that copied the segment."""
        name = SegmentName(row.base_offset, row.leader_epoch, row.id)
        key = segment_key(self._image.cluster_id, topic_id, index, name)
        epochs = parse_leader_epochs((await read_section(self._store, key, row.sections.epochs)).decode())
        if not epochs or epochs[-1].epoch != row.leader_epoch or epochs[-1].start_offset > row.end_offset:
            raise ValueError(f"{key} has a list of leader epochs that is not its own.")
        snapshot = await read_section(self._store, key, row.sections.snapshot)
        if snapshot:
            decode_snapshot(snapshot, alive_ms=0)  # before anything is dropped for it
        return Known(epochs, snapshot)
