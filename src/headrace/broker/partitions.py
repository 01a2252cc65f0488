"""The partitions that this node hosts, found by name or by id, and the directories that their logs live in."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.config import TopicConfig
from headrace.core import acl
from headrace.core.cluster import ClusterImage, PartitionRecord, Topic
from headrace.core.internal_topics import INTERNAL_TOPICS
from headrace.core.partition import Partition
from headrace.errors import CorruptLog, ErrorCode
from headrace.runtime import Random
from headrace.storage.log import Log
from headrace.storage.log_config import UNLIMITED, LogConfig
from headrace.storage.log_dir import LogDir

log = logging.getLogger(__name__)


class Hosted(Partition[Log]):
    """A partition with its place on this node's disks."""

    __slots__ = ("directory",)

    def __init__(
        self,
        topic: Topic,
        index: int,
        record: PartitionRecord,
        directory: LogDir,
        open_log: Callable[[Partition[Log]], Log],
    ) -> None:
        super().__init__(topic.name, topic.id, index, record.leader_epoch, topic.config, open_log)
        self.directory = directory

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class HostedTopic:
    __slots__ = ("is_internal", "name", "partitions", "resource", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = name in INTERNAL_TOPICS
        self.resource = acl.topic(name)
        self.partitions: dict[int, Hosted] = {}


class Partitions:
    def __init__(self, directories: Sequence[LogDir], random: Random, image: ClusterImage) -> None:
        self.directories = directories
        self._image = image
        for directory in directories:
            directory.high_watermark_of = self._high_watermark_of
        self.truncated_below_high_watermark = 0
        self.has_lost_records = False
        """Whether recovery cut more than a batch in the middle of which the process died, or could not be done."""
        self._random = random
        self._by_name: dict[str, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}
        self._hosted_in = dict.fromkeys(directories, 0)
        self._retired: set[LogDir] = set()
        self._log_configs: dict[TopicConfig, LogConfig] = {}
        self.open: dict[Hosted, None] = {}
        self.on_hosted: Callable[[Hosted], None] = lambda _: None
        """It is here, and nobody has asked for it yet."""

    def __iter__(self) -> Iterator[Hosted]:
        for topic in self._by_id.values():
            yield from topic.partitions.values()

    @property
    def count(self) -> int:
        return sum(self._hosted_in.values())

    def topic_by_name(self, name: str) -> HostedTopic | None:
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> HostedTopic | None:
        return self._by_id.get(topic_id)

    def hosted_of(self, topic_id: bytes) -> list[Hosted]:
        topic = self._by_id.get(topic_id)
        return [] if topic is None else list(topic.partitions.values())

    def find(self, topic_id: bytes, index: int) -> Hosted | ErrorCode:
        topic = self._by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        return self.why_not(topic_id, index) if partition is None else partition

    def find_by_name(self, name: str, index: int) -> Hosted | ErrorCode:
        topic = self._by_name.get(name)
        partition = None if topic is None else topic.partitions.get(index)
        return self.why_not(name, index) if partition is None else partition

    def why_not(self, topic: str | bytes, index: int) -> ErrorCode:
        """What to say of a partition that is not here: others may have it."""
        by_name = isinstance(topic, str)
        known = self._image.topics.get(topic) if isinstance(topic, str) else self._image.topics_by_id.get(topic)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= index < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _high_watermark_of(self, name: str, index: int) -> int | None:
        topic = self._by_name.get(name)
        partition = None if topic is None else topic.partitions.get(index)
        return None if partition is None else partition.high_watermark

    # Hosting.

    def host(self, topic: Topic, indexes: Iterable[int]) -> None:
        hosted = self._by_id.get(topic.id)
        if hosted is None:
            hosted = HostedTopic(topic.name, topic.id)
            self._by_id[topic.id] = self._by_name[topic.name] = hosted
        for index in indexes:
            directory = self._home_of(topic, index)
            partition = Hosted(topic, index, topic.partitions[index], directory, self._open_log)
            is_replicated = len(topic.partitions[index].replicas) > 1
            if is_replicated:
                partition.stop_serving()  # until its role is known
            hosted.partitions[index] = partition
            self._hosted_in[directory] += 1
            self.on_hosted(partition)
            self._recall(partition, is_replicated)

    def _home_of(self, topic: Topic, index: int) -> LogDir:
        """Where its files are, else the emptiest directory."""
        for directory in self.directories:
            if directory in self._retired or not directory.exists(topic.name, index):
                continue
            try:
                owner = directory.topic_id_of(topic.name, index)
            except OSError:
                return directory  # whoever opens it meets the error again, and takes this one partition offline
            if owner is None or owner == topic.id:
                return directory
            self._set_aside(directory, topic.name, index)
        usable = [directory for directory in self.directories if directory not in self._retired]
        return min(usable or self.directories, key=self._hosted_in.__getitem__)

    def retire(self, directory: LogDir) -> None:
        """Nothing new comes to a directory whose disk has failed, while there is another."""
        self._retired.add(directory)

    def _recall(self, partition: Hosted, is_replicated: bool) -> None:
        """After a clean stop nothing is opened; after another one the log says itself what it has."""
        directory, name, index = partition.directory, partition.topic, partition.index
        if not directory.exists(name, index):
            return
        remembered = directory.remembered(name, index)
        remote_log_start = self._remote_log_start(partition)
        is_whole = remembered is not None and remembered.undecided_from >= 0
        if remembered is not None and is_whole and (remote_log_start or 0) <= remembered.log_start_offset:
            committed = directory.checkpointed_high_watermark(name, index)
            partition.log_found(
                remembered.log_start_offset,
                remembered.log_end_offset,
                committed,
                remembered.undecided_from,
                local_log_start=remembered.local_log_start_offset,
            )
            return
        try:
            self._recover(partition, is_replicated)
        except (OSError, CorruptLog) as failure:
            self.has_lost_records = True
            log.error("%s is offline: its log cannot be opened: %s", partition, failure)
            partition.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    def _recover(self, partition: Hosted, is_replicated: bool) -> None:
        try:
            _ = partition.log
        except CorruptLog as failure:
            if not is_replicated:
                raise  # what can still be read is all that there is
            self.has_lost_records = True
            log.warning("%s is cut where it is damaged, and fetched again from there on: %s", partition, failure)
            partition.directory.distrust(partition.topic, partition.index)
            _ = partition.log

    def _tell_loss(self, partition: Hosted) -> None:
        promised = partition.directory.checkpointed_high_watermark(partition.topic, partition.index)
        if partition.log_end_offset < promised:
            self.truncated_below_high_watermark += 1
            log.warning(
                "%s lost %d offsets that were acknowledged: the log ended at %d before the crash, and ends at %d now",
                partition,
                promised - partition.log_end_offset,
                promised,
                partition.log_end_offset,
            )

    def _open_log(self, partition: Partition[Log]) -> Log:
        assert isinstance(partition, Hosted)
        opened = partition.directory.open_log(
            partition.topic,
            partition.index,
            partition.topic_id,
            self._log_config(partition.config),
            self._remote_log_start(partition),
        )
        if opened.needs_flush_before_ack():
            # What a dead process left in the page cache counts no sooner than what is appended now.
            opened.flush_now()
        # Every incarnation appends under an epoch of its own, known before the first record of it.
        if partition.is_leading:
            opened.epochs.assign(partition.leader_epoch, opened.log_end_offset)
        # What was remembered of a clean stop counts no more: the files may have been changed since.
        committed = partition.directory.checkpointed_high_watermark(partition.topic, partition.index)
        local_log_start = opened.local_log_start_offset
        partition.log_found(opened.log_start_offset, opened.log_end_offset, committed, local_log_start=local_log_start)
        self._tell_loss(partition)
        if (lost := opened.lost_beginning) is not None:
            # As in Apache Kafka the log begins where its files do; whoever has the other replicas can put it right.
            log.warning(
                "%s has lost its beginning: offsets %d to %d were not deleted, and are not on this disk any more",
                partition,
                lost.start,
                lost.stop - 1,
            )
        recovery = opened.recovery
        if recovery is not None and recovery.reason is not None and not recovery.is_torn_tail:
            self.has_lost_records = True
        self.open[partition] = None
        return opened

    def _remote_log_start(self, partition: Partition[Log]) -> int | None:
        stored = self._image.tier.get((partition.topic_id, partition.index))
        return None if stored is None else stored.pointer.log_start_offset

    def _log_config(self, config: TopicConfig) -> LogConfig:
        known = self._log_configs.get(config)
        if known is None:
            if len(self._log_configs) >= 1_000:
                self._log_configs.clear()
            is_compacted, is_deleted = (policy in config.cleanup_policy for policy in ("compact", "delete"))
            known = self._log_configs[config] = LogConfig(
                segment_bytes=config.segment_bytes,
                # What is still appended to cannot be compacted.
                segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if is_compacted else config.segment_ms,
                segment_jitter_ms=config.segment_jitter_ms,
                index_interval_bytes=config.index_interval_bytes,
                index_bytes_max=config.segment_index_bytes,
                retention_ms=config.retention_ms if is_deleted else UNLIMITED,
                retention_bytes=config.retention_bytes if is_deleted else UNLIMITED,
                flush_messages=config.flush_messages,
                flush_ms=config.flush_ms,
                file_delete_delay_ms=config.file_delete_delay_ms,
                is_compacted=is_compacted,
                is_tiered=config.remote_storage_enable,
                local_retention_ms=config.kept_locally_ms,
                local_retention_bytes=config.kept_locally_bytes,
            )
        return known

    def drop(self, topic_id: bytes) -> list[Hosted]:
        """The topic is gone: its files get another name now, and are removed later, off the loop."""
        topic = self._by_id.pop(topic_id, None)
        if topic is None:
            return []
        del self._by_name[topic.name]
        for partition in topic.partitions.values():
            self._remove(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return list(topic.partitions.values())

    def drop_one(self, partition: Hosted) -> None:
        """Other nodes hold it from now on."""
        del self._by_id[partition.topic_id].partitions[partition.index]
        self._remove(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _remove(self, partition: Hosted, error: ErrorCode) -> None:
        self.open.pop(partition, None)
        self._hosted_in[partition.directory] -= 1
        partition.fail(error)
        try:
            partition.directory.delete_log(
                partition.topic, partition.index, self._unique(), partition.config.file_delete_delay_ms
            )
        except OSError as failure:
            log.error("the files of %s stay, since renaming them failed: %s", partition, failure)

    def configure(self, topic: Topic) -> None:
        hosted = self._by_id.get(topic.id)
        if hosted is None:
            return
        for partition in hosted.partitions.values():
            partition.config = topic.config
            if partition.log_if_open is not None:
                partition.log_if_open.config = self._log_config(topic.config)

    # Strays.

    def set_strays_aside(self) -> None:
        """Directories that no topic claims are kept for a while, under a name that nobody opens."""
        for directory in self.directories:
            for name, index in directory.partitions:
                hosted = self._by_name.get(name)
                partition = None if hosted is None else hosted.partitions.get(index)
                if partition is None or partition.directory is not directory:
                    self._set_aside(directory, name, index)

    def _set_aside(self, directory: LogDir, name: str, index: int) -> None:
        try:
            aside = directory.set_aside(name, index, self._unique())
        except OSError as failure:
            log.error("%s-%d belongs to no topic, and could not be renamed: %s", name, index, failure)
        else:
            log.warning(
                "%s-%d belongs to no topic of this cluster; its files are in %s, for as long as %s says",
                name,
                index,
                aside,
                "stray.log.retention.ms",
            )

    def _unique(self) -> str:
        return f"{self._random.bits(128):032x}"
