"""Every setting of a topic once, and those of a node (broker_config.py). Names are Kafka's, with underscores for dots;
defaults are Kafka's unless the text says why not.

A topic's effective value comes from, strongest first: the topic's own setting, the node's, the cluster's,
what the node was started with, the default. Nothing else in the program reads files or the environment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from headrace.broker_config import BROKER_SETTINGS as BROKER_SETTINGS
from headrace.broker_config import (
    COMPRESSION,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    NO_PREALLOCATION,
    NO_RECOMPRESSION,
    TIMESTAMP_TYPES,
)
from headrace.broker_config import BrokerConfig as BrokerConfig
from headrace.settings import (
    INT_MAX,
    LONG_MAX,
    InvalidSetting,
    Setting,
    Value,
    attribute,
    declared,
    flag,
    parse,
    parse_all,
    real,
    whole,
    word,
    words,
)

INHERITED = -2
"""Of local retention: that of the whole log."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class TopicConfig:
    """The effective settings of a topic. Topics with equal overrides share one (TopicConfigs)."""

    cleanup_policy: tuple[str, ...] = words(
        ("delete",),
        "What happens to old records: delete them by age and size, or compact: keep the newest record of each key.",
        choices=("delete", "compact"),
        inherits=(("log.cleanup.policy", 1),),
    )
    compression_type: str = word(
        "producer",
        "How batches are stored: as the producer sent them.",
        choices=COMPRESSION,
        not_yet=NO_RECOMPRESSION,
        inherits=(("compression.type", 1),),
    )
    delete_retention_ms: int = whole(
        DAY_MS,
        "How long a compacted topic keeps the last word on a key that was deleted, after compaction first met it.",
        inherits=(("log.cleaner.delete.retention.ms", 1),),
    )
    file_delete_delay_ms: int = whole(
        60_000,
        "How long the files of a deleted segment or partition stay on disk.",
        inherits=(("log.segment.delete.delay.ms", 1),),
    )
    flush_messages: int = whole(
        LONG_MAX,
        "After how many records a partition is fsynced; 1 means before every acknowledgement.",
        low=1,
        inherits=(("log.flush.interval.messages", 1),),
    )
    flush_ms: int = whole(
        LONG_MAX, "How long a record may wait for its fsync.", inherits=(("log.flush.interval.ms", 1),)
    )
    follower_replication_throttled_replicas: tuple[str, ...] = words(
        (), "Replicas whose replication is throttled on the follower.", unused=True
    )
    index_interval_bytes: int = whole(
        4096,
        "How many bytes of a segment lie between two index entries.",
        high=INT_MAX,
        inherits=(("log.index.interval.bytes", 1),),
    )
    leader_election_eligible_local_log_bytes: int = whole(
        -1,
        "On a tiered topic, how many bytes a replica must have on its own disk before it is preferred as a leader like "
        "any other; -1 and 0: bytes do not count. It leads all the same where nobody else can. A setting of Headrace.",
        low=-1,
        inherits=(("leader.election.eligible.local.log.bytes", 1),),
    )
    leader_election_eligible_local_log_ms: int = whole(
        -1,
        "On a tiered topic, how far back in time a replica's own disk must reach before it is preferred as a leader "
        "like any other; -1 and 0: time does not count. Where bytes are set too, either one suffices. "
        "A setting of Headrace.",
        low=-1,
        inherits=(("leader.election.eligible.local.log.ms", 1),),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = words(
        (), "Replicas whose replication is throttled on the leader.", unused=True
    )
    local_retention_bytes: int = whole(
        -2,
        "How many bytes of a tiered partition stay on the brokers' disks once they are in the tier; -2 is as many as "
        "retention.bytes says, -1 is no limit.",
        low=-2,
        inherits=(("log.local.retention.bytes", 1),),
    )
    local_retention_ms: int = whole(
        -2,
        "How long records of a tiered topic stay on the brokers' disks once they are in the tier; -2 is as long as "
        "retention.ms says, -1 is for ever.",
        low=-2,
        inherits=(("log.local.retention.ms", 1),),
    )
    max_compaction_lag_ms: int = whole(
        LONG_MAX,
        "How long a record may stay uncompacted.",
        low=1,
        inherits=(("log.cleaner.max.compaction.lag.ms", 1),),
    )
    max_message_bytes: int = whole(
        1_048_588,
        "The largest batch that the topic takes, as it comes from the producer.",
        high=INT_MAX,
        inherits=(("message.max.bytes", 1),),
    )
    message_timestamp_after_max_ms: int = whole(
        HOUR_MS,
        "How far in the future a record's timestamp may lie (CreateTime only).",
        inherits=(("log.message.timestamp.after.max.ms", 1),),
    )
    message_timestamp_before_max_ms: int = whole(
        LONG_MAX,
        "How far in the past a record's timestamp may lie (CreateTime only).",
        inherits=(("log.message.timestamp.before.max.ms", 1),),
    )
    message_timestamp_type: str = word(
        "CreateTime",
        "Whether a record keeps the producer's timestamp or gets the time of its append.",
        choices=TIMESTAMP_TYPES,
        inherits=(("log.message.timestamp.type", 1),),
    )
    min_cleanable_dirty_ratio: float = real(
        0.5,
        "The share of uncompacted bytes from which a log is compacted.",
        low=0,
        high=1,
        inherits=(("log.cleaner.min.cleanable.ratio", 1),),
    )
    min_compaction_lag_ms: int = whole(
        0,
        "How long a record stays uncompacted at least.",
        inherits=(("log.cleaner.min.compaction.lag.ms", 1),),
    )
    min_insync_replicas: int = whole(
        1,
        "How many replicas must be in sync for a produce request with acks=all; more than there are replicas acts "
        "as all of them.",
        low=1,
        high=INT_MAX,
        inherits=(("min.insync.replicas", 1),),
    )
    own_fetch_group: str = word(
        "",
        "Only the owner of a partition in this group may read it; empty: everybody. A setting of Headrace.",
    )
    own_produce_group: str = word(
        "",
        "Only the owner of a partition in this group may write to it; empty: everybody. A setting of Headrace.",
    )
    preallocate: bool = flag(
        False,
        "Whether segment files are allocated in full when they are created.",
        not_yet=NO_PREALLOCATION,
        inherits=(("log.preallocate", 1),),
    )
    remote_log_copy_disable: bool = flag(
        False, "Whether nothing more is copied to the tier; what is there is read, and goes when its time is over."
    )
    remote_log_delete_on_disable: bool = flag(
        False, "Whether what is in the tier is deleted when remote.storage.enable becomes false, which needs it."
    )
    remote_storage_enable: bool = flag(False, "Whether old segments go to the tier.")
    retention_bytes: int = whole(
        -1,
        "How many bytes a partition keeps; -1 is no limit.",
        low=-1,
        inherits=(("log.retention.bytes", 1),),
    )
    retention_ms: int = whole(
        7 * DAY_MS,
        "How long records are kept; -1 is for ever.",
        low=-1,
        inherits=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    segment_bytes: int = whole(
        1 << 30,
        "The size at which a new segment file begins. Kafka asks for at least 1 MB; small ones serve tests here.",
        low=14,
        high=INT_MAX,
        inherits=(("log.segment.bytes", 1),),
    )
    segment_index_bytes: int = whole(
        10 << 20,
        "The size of an offset index at which a new segment begins.",
        low=4,
        high=INT_MAX,
        inherits=(("log.index.size.max.bytes", 1),),
    )
    segment_jitter_ms: int = whole(
        0,
        "The most that is taken at random from segment.ms, so that partitions do not roll together.",
        inherits=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = whole(
        7 * DAY_MS,
        "The age at which a new segment begins though the old one is not full.",
        low=1,
        inherits=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    )
    unclean_leader_election_enable: bool = flag(
        False,
        "Whether a replica that lost records may lead when no other is left.",
        inherits=(("unclean.leader.election.enable", 1),),
    )

    @property
    def kept_locally_ms(self) -> int:
        """Of a tiered topic; -1 is for ever. What is not copied any more is kept as if there were no tier."""
        is_own = self.local_retention_ms != INHERITED and not self.remote_log_copy_disable
        return self.local_retention_ms if is_own else self.retention_ms

    @property
    def kept_locally_bytes(self) -> int:
        is_own = self.local_retention_bytes != INHERITED and not self.remote_log_copy_disable
        return self.local_retention_bytes if is_own else self.retention_bytes

    @classmethod
    def resolve(cls, broker: "BrokerConfig", overrides: Mapping[str, str]) -> "TopicConfig":
        """Raises InvalidSetting for an override that is unknown or not allowed."""
        return replace(topic_defaults(broker), **_checked_topic(parse_all(TOPIC_SETTINGS, overrides, "topic")))


TOPIC_SETTINGS: Mapping[str, Setting] = declared(TopicConfig)

OWN_GROUP_CHARACTERS_MAX = 249
"""A claim cannot name a longer group."""


def topic_defaults(broker: BrokerConfig) -> TopicConfig:
    """What a topic without settings of its own has on this broker."""
    inherited = {name: inherit(setting, broker) for name, setting in TOPIC_SETTINGS.items()}
    values: dict[str, Any] = {attribute(name): value for name, value in inherited.items()}
    return TopicConfig(**values)


def inherit(setting: Setting, broker: BrokerConfig) -> Value:
    """A topic setting's value on this broker when the topic does not set it."""
    for name, factor in setting.inherits:
        value: Value = getattr(broker, attribute(name))
        if value is not None:
            return value if factor == 1 or not isinstance(value, int) else -1 if value < 0 else value * factor
    return setting.default


def valid_only(known: Mapping[str, Setting], stored: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Stored settings without those that this program cannot read: another version may have written them."""
    readable = {}
    for name, text in stored:
        setting = known.get(name)
        if setting is None:
            continue
        try:
            parse(setting, text)
        except InvalidSetting:
            continue
        readable[name] = text
    return readable


class TopicConfigs:
    """One TopicConfig per distinct set of overrides, however many topics have it."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._default = topic_defaults(broker)
        self._shared: WeakValueDictionary[frozenset[tuple[str, str]], TopicConfig] = WeakValueDictionary()

    def get(self, overrides: Mapping[str, str]) -> TopicConfig:
        """For stored overrides: what cannot be read counts as not set."""
        if not overrides:
            return self._default
        key = frozenset(overrides.items())
        config = self._shared.get(key)
        if config is None:
            config = TopicConfig.resolve(self._broker, valid_only(TOPIC_SETTINGS, overrides.items()))
            self._shared[key] = config
        return config


def _checked_topic(values: dict[str, Any]) -> dict[str, Any]:
    lag_min, lag_max = values.get("min_compaction_lag_ms"), values.get("max_compaction_lag_ms")
    if lag_min is not None and lag_max is not None and lag_min > lag_max:
        raise InvalidSetting(f"min.compaction.lag.ms ({lag_min}) is above max.compaction.lag.ms ({lag_max})")
    for name in ("own_produce_group", "own_fetch_group"):
        if len(values.get(name, "")) > OWN_GROUP_CHARACTERS_MAX:
            raise InvalidSetting(f"{name.replace('_', '.')} is longer than {OWN_GROUP_CHARACTERS_MAX} characters")
    return values
