"""A scripted leader's older records in an object store, with all that a follower needs to begin behind them."""

from headrace.broker.tier_following import TierFollowing
from headrace.broker.tier_metrics import TierMetrics
from headrace.core.cluster import ClusterImage
from headrace.core.epochs import EpochList
from headrace.core.producers import ProducerTable
from headrace.core.tier_pointer import Pointer, StoredPointer
from headrace.core.tier_rows import COPY_FINISHED, Manifest, SegmentRow
from headrace.storage.checkpoints import format_leader_epochs
from headrace.storage.memory_files import MemoryFiles
from headrace.storage.snapshots import encode_snapshot
from headrace.tier.layout import ManifestName, SegmentName, manifest_key, segment_key
from headrace.tier.manifest import encode
from headrace.tier.memory import MemoryBucket, MemoryStore
from headrace.tier.segment_object import segment_object
from headrace.wire.batch import read_header
from tests.broker.scripted_leader import LedLog

FINISHED_MS = 5_000


class Remote:
    """Of one partition."""

    def __init__(
        self, image: ClusterImage, topic_id: bytes, index: int = 0, bucket: MemoryBucket | None = None
    ) -> None:
        self.bucket = MemoryBucket() if bucket is None else bucket
        self.metrics = TierMetrics()
        self.following = TierFollowing(image, MemoryStore(self.bucket, MemoryFiles()), self.metrics)
        self.rows: list[SegmentRow] = []
        self._image = image
        self._topic_id = topic_id
        self._index = index
        self._number = 0

    def copy(self, led: LedLog, base_offset: int, end_offset: int, *, publish: bool = True) -> SegmentRow:
        """One segment of the leader's log, up to and with `end_offset`."""
        content, producers = b"", ProducerTable()
        for first, last, batch in led.batches:
            if last <= end_offset and (header := read_header(batch)).producer_id >= 0:
                producers.record(header, first, 0)
            if base_offset <= first and last <= end_offset:
                content += batch
        epochs = EpochList(led.epochs.entries)
        epochs.truncate_from_end(end_offset + 1)
        listed = format_leader_epochs(epochs.entries).encode()
        made = segment_object(content, b"", b"", None, encode_snapshot(producers), listed)
        own = EpochList(epochs.entries)
        own.truncate_from_start(base_offset)
        self._number += 1
        row_id = f"{self._number:032x}"
        row = SegmentRow(
            row_id,
            base_offset,
            end_offset,
            made.bytes,
            0,
            tuple((epoch, start) for epoch, start in own.entries),
            COPY_FINISHED,
            FINISHED_MS,
            made.sections,
        )
        name = SegmentName(base_offset, row.leader_epoch, row_id)
        key = segment_key(self._image.cluster_id, self._topic_id, self._index, name)
        self.bucket.put(key, b"".join(part for part in made.parts if isinstance(part, bytes)))
        self.rows.append(row)
        if publish:
            self.publish(led)
        return row

    def publish(self, led: LedLog) -> None:
        """From here on the leader and this node know of all that was copied."""
        self._number += 1
        name = ManifestName(led.leader_epoch, self._number, f"{self._number:032x}")
        key = manifest_key(self._image.cluster_id, self._topic_id, self._index, name)
        manifest = Manifest(
            self._topic_id.hex(), self._index, led.leader_epoch, self._number, led.log_start, tuple(self.rows)
        )
        self.bucket.put(key, encode(manifest))
        led.highest_remote = max(row.end_offset for row in self.rows)
        pointer = Pointer(key, led.leader_epoch, led.log_start, led.highest_remote, led.leader_epoch, 0, len(self.rows))
        self._image.tier[self._topic_id, self._index] = StoredPointer(pointer, self._number)
