"""The settings of a node, each once; those that topics inherit as their defaults among them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.settings import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    InvalidSetting,
    Setting,
    declared,
    flag,
    parse_all,
    real,
    whole,
    word,
    words,
)

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000

COMPRESSION = ("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip")
NO_RECOMPRESSION = dict.fromkeys(
    COMPRESSION[1:], "the broker stores what producers send and never compresses anew, only producer is possible"
)
NO_PREALLOCATION = {"true": "files grow as they are written, only false is possible"}
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The effective settings of a node. Those marked dynamic change while it runs, by a new BrokerConfig."""

    auto_create_topics_enable: bool = flag(True, "Whether asking for an unknown topic creates it.")
    auto_leader_rebalance_enable: bool = flag(
        True, "Whether leaderships go back to the first replica of a partition by themselves.", dynamic=True
    )
    broker_heartbeat_interval_ms: int = whole(2_000, "How often a node renews its registration.", low=100)
    broker_rack: str | None = word(None, "The rack of this node: the replicas of a partition are spread over racks.")
    broker_session_timeout_ms: int = whole(
        9_000, "How long a node that nobody hears of counts as running.", low=1_000, high=INT_MAX
    )
    commit_group_max_attempts: int = whole(
        20_000, "How many attempts at one batch of a Spark query may be open at one time.", low=1, high=INT_MAX
    )
    commit_group_retention_ms: int = whole(
        -1,
        "How long the last committed batch of a Spark query is remembered; -1: for ever. An older checkpoint that is "
        "started again after that time writes its batches once more. Where a checkpoint lies is remembered for as long "
        "after its query was last heard of, which may be ten minutes before its end.",
        low=-1,
    )
    compression_type: str = word(
        "producer",
        "Default of the topic setting compression.type.",
        choices=COMPRESSION,
        not_yet=NO_RECOMPRESSION,
        dynamic=True,
    )
    connections_max_idle_ms: int = whole(600_000, "A connection that is silent for so long is closed.", low=1)
    default_replication_factor: int = whole(
        1, "How many replicas a partition gets when nobody says.", low=1, high=32_767
    )
    delete_topic_enable: bool = flag(True, "Whether topics can be deleted.")
    disk_reserve_bytes: int = whole(
        256 << 20,
        "Space kept aside in the data directory, so that checkpoints can be written when the disk is full. "
        "A setting of Headrace.",
    )
    fetch_max_bytes: int = whole(57_671_680, "The most that one fetch response holds.", low=1024, high=INT_MAX)
    follower_fetch_last_tiered_offset_enable: bool = flag(
        False,
        "Whether a follower that has nothing begins behind what is in the tier, not where its leader's disk does.",
        dynamic=True,
    )
    group_initial_rebalance_delay_ms: int = whole(
        3_000, "How long a new group waits for more members before its first rebalance.", high=INT_MAX, dynamic=True
    )
    group_max_session_timeout_ms: int = whole(
        1_800_000, "The longest session timeout that a member of a group may ask for.", high=INT_MAX, dynamic=True
    )
    group_max_size: int = whole(INT_MAX, "How many members a group may have.", low=1, high=INT_MAX, dynamic=True)
    group_min_session_timeout_ms: int = whole(
        6_000, "The shortest session timeout that a member of a group may ask for.", high=INT_MAX, dynamic=True
    )
    leader_election_eligible_local_log_bytes: int = whole(
        -1,
        "Default of the topic setting leader.election.eligible.local.log.bytes. A setting of Headrace.",
        low=-1,
        dynamic=True,
    )
    leader_election_eligible_local_log_ms: int = whole(
        -1,
        "Default of the topic setting leader.election.eligible.local.log.ms. A setting of Headrace.",
        low=-1,
        dynamic=True,
    )
    leader_election_local_log_report_interval_ms: int = whole(
        30_000,
        "How long a leader waits between two reports to the controller of what the replicas of a tiered partition have "
        "on their own disks. A setting of Headrace.",
        dynamic=True,
    )
    leader_imbalance_check_interval_seconds: int = whole(
        300, "How often leaderships are moved back to the first replicas.", low=1, dynamic=True
    )
    list_offsets_guard_scope: str = word(
        "all",
        "Which lookups of offsets are refused while a new leader does not know how far the log is committed: all, "
        "or only those of the latest offset as in Kafka. A setting of Headrace.",
        choices=("all", "latest"),
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = whole(15_000, "How long compaction waits when no log is dirty enough.", dynamic=True)
    log_cleaner_dedupe_buffer_size: int = whole(
        128 << 20,
        "How much memory all compactions together use to know the newest record of each key. A key takes about 160 "
        "bytes, in Kafka 24; a log with more keys takes several rounds.",
        low=1 << 20,
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = whole(
        DAY_MS, "Default of the topic setting delete.retention.ms.", dynamic=True
    )
    log_cleaner_enable: bool = flag(True, "Whether topics are compacted.")
    log_cleaner_io_buffer_load_factor: float = real(
        0.9, "How full the memory for keys may become.", low=0.01, high=1, dynamic=True
    )
    log_cleaner_io_buffer_size: int = whole(
        512 << 10, "How much a compaction reads at a time; a larger batch is read whole.", high=INT_MAX, dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = real(
        DOUBLE_MAX, "How much compaction reads and writes per second.", low=1, high=DOUBLE_MAX, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = whole(
        LONG_MAX, "Default of the topic setting max.compaction.lag.ms.", low=1, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = real(
        0.5, "Default of the topic setting min.cleanable.dirty.ratio.", low=0, high=1, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = whole(
        0, "Default of the topic setting min.compaction.lag.ms.", dynamic=True
    )
    log_cleaner_threads: int = whole(
        1, "How many logs are compacted at a time; at most one per data directory.", low=1, high=64
    )
    log_cleanup_policy: tuple[str, ...] = words(
        ("delete",),
        "Default of the topic setting cleanup.policy.",
        choices=("delete", "compact"),
        dynamic=True,
    )
    log_flush_interval_messages: int = whole(
        LONG_MAX, "Default of the topic setting flush.messages.", low=1, dynamic=True
    )
    log_flush_interval_ms: int | None = whole(None, "Default of the topic setting flush.ms.", dynamic=True)
    log_flush_offset_checkpoint_interval_ms: int = whole(
        60_000, "How often recovery points are written to disk.", low=1, high=INT_MAX
    )
    log_flush_scheduler_interval_ms: int = whole(
        1_000, "How often partitions are looked through for a flush by age. Kafka's default is never.", low=1
    )
    log_flush_start_offset_checkpoint_interval_ms: int = whole(
        60_000,
        "How often log start offsets are written to disk; here with the recovery points.",
        low=1,
        high=INT_MAX,
        unused=True,
    )
    log_index_interval_bytes: int = whole(
        4096, "Default of the topic setting index.interval.bytes.", high=INT_MAX, dynamic=True
    )
    log_index_size_max_bytes: int = whole(
        10 << 20, "Default of the topic setting segment.index.bytes.", low=4, high=INT_MAX, dynamic=True
    )
    log_local_retention_bytes: int = whole(
        -2, "Default of the topic setting local.retention.bytes.", low=-2, dynamic=True
    )
    log_local_retention_ms: int = whole(-2, "Default of the topic setting local.retention.ms.", low=-2, dynamic=True)
    log_message_timestamp_after_max_ms: int = whole(
        HOUR_MS, "Default of the topic setting message.timestamp.after.max.ms.", dynamic=True
    )
    log_message_timestamp_before_max_ms: int = whole(
        LONG_MAX, "Default of the topic setting message.timestamp.before.max.ms.", dynamic=True
    )
    log_message_timestamp_type: str = word(
        "CreateTime",
        "Default of the topic setting message.timestamp.type.",
        choices=TIMESTAMP_TYPES,
        dynamic=True,
    )
    log_preallocate: bool = flag(
        False, "Default of the topic setting preallocate.", not_yet=NO_PREALLOCATION, dynamic=True
    )
    log_retention_bytes: int = whole(-1, "Default of the topic setting retention.bytes.", low=-1, dynamic=True)
    log_retention_check_interval_ms: int = whole(300_000, "How often retention is enforced.", low=1)
    log_retention_hours: int = whole(
        168, "Default of retention.ms in hours, when neither ms nor minutes are set.", low=-1, high=INT_MAX
    )
    log_retention_minutes: int | None = whole(
        None, "Default of retention.ms in minutes, when log.retention.ms is not set.", low=-1, high=INT_MAX
    )
    log_retention_ms: int | None = whole(None, "Default of the topic setting retention.ms.", low=-1, dynamic=True)
    log_roll_hours: int = whole(168, "Default of segment.ms in hours.", low=1, high=INT_MAX)
    log_roll_jitter_hours: int = whole(0, "Default of segment.jitter.ms in hours.", high=INT_MAX)
    log_roll_jitter_ms: int | None = whole(None, "Default of the topic setting segment.jitter.ms.", dynamic=True)
    log_roll_ms: int | None = whole(None, "Default of the topic setting segment.ms.", low=1, dynamic=True)
    log_segment_bytes: int = whole(
        1 << 30, "Default of the topic setting segment.bytes.", low=14, high=INT_MAX, dynamic=True
    )
    log_segment_delete_delay_ms: int = whole(60_000, "Default of the topic setting file.delete.delay.ms.", dynamic=True)
    max_connections: int = whole(
        10_000,
        "How many connections the node takes at once. Kafka has no limit by default.",
        low=1,
        high=INT_MAX,
        dynamic=True,
    )
    max_connections_per_ip: int = whole(
        INT_MAX, "How many connections one address may hold.", high=INT_MAX, dynamic=True
    )
    max_incremental_fetch_session_cache_slots: int = whole(
        1_000, "How many fetch sessions the node remembers.", high=INT_MAX
    )
    message_max_bytes: int = whole(
        1_048_588, "Default of the topic setting max.message.bytes.", high=INT_MAX, dynamic=True
    )
    min_insync_replicas: int = whole(
        1, "Default of the topic setting min.insync.replicas.", low=1, high=INT_MAX, dynamic=True
    )
    num_partitions: int = whole(1, "How many partitions a topic gets when nobody says.", low=1, high=INT_MAX)
    num_replica_fetchers: int = whole(
        1, "How many connections to each other node this node replicates over.", low=1, high=1_000
    )
    own_advertise: bool = flag(True, "Whether clients are told that ownership can be asked for. A setting of Headrace.")
    own_client_id_enable: bool = flag(
        True,
        "Whether a client.id own--GROUP--NUMBER--INSTANCE owns what it reads and writes. A setting of Headrace.",
        dynamic=True,
    )
    own_enable: bool = flag(True, "Whether partitions and names can be owned. A setting of Headrace.")
    own_generation_retention_max_ms: int = whole(
        604_800_000,
        "The longest time that a generation may be remembered after its owner was lost. A setting of Headrace.",
        dynamic=True,
    )
    own_generation_retention_ms: int = whole(
        0,
        "How long a generation is remembered after its owner was lost, when the owner did not say. "
        "A setting of Headrace.",
        dynamic=True,
    )
    own_max_entries: int = whole(
        1_000_000,
        "How many resources may have an owner on one node. A setting of Headrace.",
        high=INT_MAX,
        dynamic=True,
    )
    own_max_resources_per_connection: int = whole(
        10_000, "How many resources one connection may own. A setting of Headrace.", high=INT_MAX, dynamic=True
    )
    own_max_retained: int = whole(
        100_000, "How many generations the metadata store remembers. A setting of Headrace.", high=INT_MAX, dynamic=True
    )
    offset_metadata_max_bytes: int = whole(
        4_096, "How long the text may be that a consumer commits with an offset.", high=INT_MAX, dynamic=True
    )
    offsets_commit_timeout_ms: int = whole(
        5_000, "How long a coordinator waits for replicas before it answers a commit.", low=1, high=INT_MAX
    )
    offsets_retention_check_interval_ms: int = whole(
        600_000, "How often committed offsets that have expired are looked for.", low=1
    )
    offsets_retention_minutes: int = whole(
        10_080, "How long committed offsets stay after the last use of their group.", low=1, high=INT_MAX, dynamic=True
    )
    offsets_topic_compression_codec: int = whole(
        0, "How batches of __consumer_offsets are compressed; here they are not.", high=4, unused=True
    )
    offsets_topic_num_partitions: int = whole(
        50, "How many partitions __consumer_offsets gets when it is created.", low=1, high=INT_MAX
    )
    offsets_topic_replication_factor: int = whole(
        3,
        "How many replicas the partitions of __consumer_offsets have; fewer while there are fewer nodes.",
        low=1,
        high=32_767,
    )
    offsets_topic_segment_bytes: int = whole(
        100 << 20, "The segment.bytes that __consumer_offsets gets when it is created.", low=14, high=INT_MAX
    )
    producer_id_expiration_check_interval_ms: int = whole(
        600_000, "How often producers that fell silent are looked for.", low=1, high=INT_MAX
    )
    producer_id_expiration_ms: int = whole(
        DAY_MS,
        "A producer that is silent for so long is forgotten by a partition.",
        low=1,
        high=INT_MAX,
        dynamic=True,
    )
    queued_max_request_bytes: int = whole(
        256 << 20,
        "How many bytes of requests the node holds at once before it stops reading. Kafka has no limit by default.",
        low=1024,
    )
    remote_fetch_max_wait_ms: int = whole(
        500, "How long a fetch waits for records from the tier.", low=1, high=INT_MAX, dynamic=True
    )
    remote_list_offsets_request_timeout_ms: int = whole(
        30_000,
        "How long a lookup by time waits for the tier, when the client does not say.",
        low=1,
        dynamic=True,
    )
    remote_log_manager_task_interval_ms: int = whole(
        30_000, "How often leaders look for segments that are to be copied to the tier, or to be deleted there.", low=1
    )
    remote_log_reader_max_pending_tasks: int = whole(
        100, "How many reads from the tier may wait; what comes beyond fails, for its partition alone.", low=1
    )
    remote_log_reader_threads: int = whole(10, "How many reads from the tier run at once.", low=1, high=1_000)
    remote_log_storage_system_enable: bool = flag(
        False, "Whether this node has a tier: an object store for segments, which remote.storage.url names."
    )
    remote_read_cache_bytes: int = whole(
        128 << 20,
        "How much memory reads from the tier use, what is read ahead included. A setting of Headrace.",
        low=1 << 20,
    )
    remote_storage_url: str = word(
        "",
        "Where the tier is, and the same for all nodes: a directory, file:///DIRECTORY, s3://BUCKET/PREFIX, "
        "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. Credentials come from the environment. A setting of Headrace.",
    )
    replica_fetch_backoff_ms: int = whole(
        1_000, "How long a follower waits after trouble before it asks again.", low=1, high=INT_MAX
    )
    replica_fetch_max_bytes: int = whole(
        1 << 20, "How much a follower asks for of one partition at a time; a larger batch comes whole.", high=INT_MAX
    )
    replica_fetch_min_bytes: int = whole(
        1, "How much there must be before a leader answers a follower that can wait.", high=INT_MAX
    )
    replica_fetch_response_max_bytes: int = whole(
        10 << 20, "How much a follower asks for of all partitions together.", high=INT_MAX
    )
    replica_fetch_wait_max_ms: int = whole(
        500, "How long a leader lets a follower wait when there is nothing new.", low=1, high=INT_MAX
    )
    replica_high_watermark_checkpoint_interval_ms: int = whole(
        5_000, "How often high watermarks that have moved are written to disk.", low=1
    )
    replica_socket_receive_buffer_bytes: int = whole(
        65_536, "SO_RCVBUF of a connection to a leader; -1 leaves it to the system.", low=-1, high=INT_MAX, unused=True
    )
    replica_socket_timeout_ms: int = whole(30_000, "How long a follower waits for an answer.", low=1, high=INT_MAX)
    replica_lag_time_max_ms: int = whole(
        30_000, "A follower that was not caught up for so long leaves the ISR.", low=1, high=INT_MAX
    )
    socket_receive_buffer_bytes: int = whole(
        102_400, "SO_RCVBUF of a connection; -1 leaves it to the system.", low=-1, high=INT_MAX, unused=True
    )
    socket_request_max_bytes: int = whole(104_857_600, "The largest request.", low=1024, high=INT_MAX)
    socket_send_buffer_bytes: int = whole(
        102_400, "SO_SNDBUF of a connection; -1 leaves it to the system.", low=-1, high=INT_MAX, unused=True
    )
    stray_log_retention_ms: int = whole(
        HOUR_MS,
        "How long the files of a partition that no topic claims are kept, counted anew from each start; -1 is for "
        "ever. A setting of Headrace.",
        low=-1,
        dynamic=True,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = whole(
        10_000, "How often open transactions are looked through for those whose time is over.", low=1, high=INT_MAX
    )
    transaction_max_timeout_ms: int = whole(
        900_000, "The longest time that a producer may ask for to end a transaction in.", low=1, high=INT_MAX
    )
    transaction_partition_verification_enable: bool = flag(
        True, "Whether the coordinator is asked before a partition takes the first records of a transaction."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = whole(
        3_600_000, "How often transactional ids that fell silent are looked for.", low=1, high=INT_MAX
    )
    transaction_state_log_min_isr: int = whole(
        2, "The min.insync.replicas that __transaction_state gets when it is created.", low=1, high=INT_MAX
    )
    transaction_state_log_num_partitions: int = whole(
        50, "How many partitions __transaction_state gets when it is created.", low=1, high=INT_MAX
    )
    transaction_state_log_replication_factor: int = whole(
        3,
        "How many replicas the partitions of __transaction_state have; fewer while there are fewer nodes.",
        low=1,
        high=32_767,
    )
    transaction_state_log_segment_bytes: int = whole(
        100 << 20, "The segment.bytes that __transaction_state gets when it is created.", low=14, high=INT_MAX
    )
    transactional_id_expiration_ms: int = whole(
        604_800_000,
        "A transactional id that nobody used for so long is forgotten.",
        low=1,
        high=INT_MAX,
    )
    unclean_leader_election_enable: bool = flag(
        False, "Default of the topic setting unclean.leader.election.enable.", dynamic=True
    )
    unclean_leader_election_interval_ms: int = whole(
        300_000, "How often partitions without a leader are looked at again.", low=100, dynamic=True
    )

    @classmethod
    def parse(cls, *layers: Mapping[str, str]) -> "BrokerConfig":
        """Later layers win. Raises InvalidSetting for the first that is unknown or not allowed."""
        values: dict[str, Any] = {}
        for layer in layers:
            values |= parse_all(BROKER_SETTINGS, layer, "broker")
        config = cls(**values)
        if config.queued_max_request_bytes < config.socket_request_max_bytes:
            raise InvalidSetting(
                f"queued.max.request.bytes ({config.queued_max_request_bytes}) is below socket.request.max.bytes "
                f"({config.socket_request_max_bytes}): the largest request could never be read"
            )
        if config.remote_log_storage_system_enable and not config.remote_storage_url:
            raise InvalidSetting("remote.log.storage.system.enable needs remote.storage.url: where the tier is")
        return config


BROKER_SETTINGS: Mapping[str, Setting] = declared(BrokerConfig)
