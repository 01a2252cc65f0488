"""The options of the source: those of Spark's own Kafka connector, and a few more.

Their names come in lower case from Spark, and may be written in any.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.model import TopicPartition
from headrace.spark import option_values as values
from headrace.spark.given import Given
from headrace.spark.option_values import EARLIEST, LATEST, OptionRefused
from headrace.spark.verdicts import Query

log = logging.getLogger(__name__)

Mode = Literal["batch", "stream"]

STRATEGIES = ("subscribe", "subscribePattern", "assign")
ONLY_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "filterPushdown")
ONLY_STREAM = ("maxBytesPerTrigger", "commitGroupOffsets")
IGNORED_IN_BATCH = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Spark's own connector says so, and goes on."""
KNOWN = (
    *(*STRATEGIES, *ONLY_BATCH, *ONLY_STREAM, *IGNORED_IN_BATCH),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "includeMetadata"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("groupIdPrefix", "partition.metadata.cache.ttl.ms", "readTier", "tierUrl"),
)

REFUSED = {
    "path": "load() takes no path here, option subscribe names the topics",
    "kafka.auto.offset.reset": "where to begin is said by startingOffsets",
    "kafka.enable.auto.commit": "Spark's checkpoint says how far a query is; see commitGroupOffsets",
    "kafka.key.deserializer": "keys are binary; deserialize them in the query",
    "kafka.value.deserializer": "values are binary; deserialize them in the query",
    "kafka.interceptor.classes": "records are not handed to Java classes",
}

POLL_MS_MAX = 120_000
METADATA_TTL_MS = 5_000
END_PATIENCE_MS = 5_000
TRIGGER_DELAY_MS_MAX = 15 * 60_000
FETCH_BYTES_MAX = 8 << 20
PARTITION_FETCH_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class Selection:
    """Which partitions are read: exactly one of the three says it."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def named(self) -> set[str]:
        """Topics, unless a pattern says which."""
        return set(self.topics) | {one.topic for one in self.partitions}

    def is_matched(self, topic: str) -> bool:
        """By the pattern, if there is one: somewhere in the name is enough, as in Spark's own connector."""
        return self.pattern is not None and re.search(self.pattern, topic) is not None


@dataclass(frozen=True)
class Bound:
    """Where reading begins or ends: the first of these that is given."""

    time_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    end: int = LATEST
    """EARLIEST or LATEST."""
    option: str = ""
    """Which option said it, for who has to be told."""

    def is_all(self, end: int) -> bool:
        """Whether it is that end of every partition."""
        return self.end == end and self.time_ms is None and self.times_ms is None and self.offsets is None

    def is_at(self, end: int, partition: TopicPartition) -> bool:
        """Whether it is that end of this partition."""
        return self.is_all(end) or (self.offsets is not None and self.offsets.get(partition) == end)

    def has(self, end: int) -> bool:
        """Whether it is that end of any."""
        return self.is_all(end) or end in (self.offsets or {}).values()


@dataclass(frozen=True)
class Connection:
    """How brokers are reached and fetched from. Tasks get it with their ranges."""

    bootstrap: str
    client_id: str = "headrace-spark"
    is_read_committed: bool = False
    fetch_bytes_max: int = FETCH_BYTES_MAX
    partition_fetch_bytes_max: int = PARTITION_FETCH_BYTES_MAX
    fetch_wait_ms: int = 500
    fetch_bytes_min: int = 1
    ask_ms_max: int = 60_000
    poll_ms_max: int = POLL_MS_MAX
    reads_tier: bool = True
    """Whether tasks read objects of the tier themselves."""
    tier_url: str | None = None
    """Where they find it, if not where brokers do."""


@dataclass(frozen=True)
class SourceOptions:
    query: Query
    connection: Connection
    selection: Selection
    starting: Bound
    ending: Bound
    is_time_miss_an_error: bool = True
    fails_on_data_loss: bool = True
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = TRIGGER_DELAY_MS_MAX
    bytes_per_trigger_max: int | None = None
    metadata_ttl_ms: int = METADATA_TTL_MS
    end_patience_ms: int = END_PATIENCE_MS
    """How long a log that ends before what was read of it may come up to that again."""
    includes_headers: bool = False
    includes_metadata: bool = False
    takes_filters: bool | None = None
    """Whether what filters leave out is not read; not for who uses one DataFrame in several ways (`batch_reader`). None
    if that was not said."""
    group: str | None = None
    commits_group_offsets: bool = False

    @property
    def may_begin_at_latest(self) -> bool:
        """Where that is, is another place each time it is asked for."""
        starting = self.starting
        is_by_time = starting.time_ms is not None or starting.times_ms is not None
        return starting.has(LATEST) or (is_by_time and not self.is_time_miss_an_error)


def includes_headers(given: Mapping[str, str]) -> bool:
    """For the schema, which Spark asks for before it says whether this is a batch or a stream."""
    return Given(given).flag("includeHeaders", False)


def includes_metadata(given: Mapping[str, str]) -> bool:
    """As above."""
    return Given(given).flag("includeMetadata", False)


def read_options(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """OptionRefused, with one sentence, for whatever is unknown, wrong or contradicts something else."""
    options = Given(given)
    options.check_known(KNOWN, REFUSED)
    _check_mode(options, mode)
    retry_ms = _retry_ms(options)
    connection = _connection(options, retry_ms)
    ttl_ms = options.whole_or("partition.metadata.cache.ttl.ms", METADATA_TTL_MS, smallest=-1)
    selection = _selection(options)
    parsed = SourceOptions(
        query=_query(mode, selection),
        connection=connection,
        selection=selection,
        starting=_bound(options, "starting", LATEST if mode == "stream" else EARLIEST),
        ending=_bound(options, "ending", LATEST),
        is_time_miss_an_error=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) != "latest",
        fails_on_data_loss=options.flag("failOnDataLoss", True),
        partitions_min=options.whole("minPartitions"),
        records_per_partition_max=options.whole("maxRecordsPerPartition"),
        offsets_per_trigger_max=options.whole("maxOffsetsPerTrigger"),
        offsets_per_trigger_min=options.whole("minOffsetsPerTrigger"),
        trigger_delay_ms_max=options.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS_MAX),
        bytes_per_trigger_max=options.size_bytes("maxBytesPerTrigger"),
        metadata_ttl_ms=max(0, ttl_ms),
        end_patience_ms=END_PATIENCE_MS if retry_ms is None else retry_ms,
        includes_headers=options.flag("includeHeaders", False),
        includes_metadata=options.flag("includeMetadata", False),
        takes_filters=options.flag_if_given("filterPushdown"),
        group=options.text("kafka.group.id") or options.text("groupIdPrefix"),
        commits_group_offsets=options.flag("commitGroupOffsets", False),
    )
    _check_together(parsed, mode)
    return parsed


def _check_together(options: SourceOptions, mode: Mode) -> None:
    least, most = options.offsets_per_trigger_min, options.offsets_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionRefused(f"option minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
    if options.commits_group_offsets and options.group is None:
        raise OptionRefused("option commitGroupOffsets needs kafka.group.id, the group whose offsets are committed")
    if mode == "batch":
        if options.starting.is_all(LATEST):
            raise OptionRefused("option startingOffsets is latest, from which a batch would read nothing")
        if options.starting.has(LATEST):
            raise OptionRefused("option startingOffsets holds -1 (latest), from which a batch would read nothing")
        if options.ending.is_all(EARLIEST):
            raise OptionRefused("option endingOffsets is earliest, up to which a batch would read nothing")
        if options.ending.has(EARLIEST):
            raise OptionRefused("option endingOffsets holds -2 (earliest), up to which a batch would read nothing")
        _check_times(options.starting, options.ending)


def _check_times(starting: Bound, ending: Bound) -> None:
    pairs = []
    if starting.time_ms is not None and ending.time_ms is not None:
        pairs = [("", starting.time_ms, ending.time_ms)]
    elif starting.times_ms is not None and ending.times_ms is not None:
        both = sorted(starting.times_ms.keys() & ending.times_ms.keys())
        pairs = [(f" of {one}", starting.times_ms[one], ending.times_ms[one]) for one in both]
    for where, begin_ms, end_ms in pairs:
        if begin_ms > end_ms:
            raise OptionRefused(
                f"option {starting.option}{where} ({begin_ms}) is later than {ending.option} ({end_ms})"
            )


def _selection(options: Given) -> Selection:
    chosen = [name for name in STRATEGIES if options.text(name) is not None]
    if len(chosen) != 1:
        what = f"{' and '.join(chosen)} contradict each other" if chosen else "no option says which topics to read"
        raise OptionRefused(f"{what}: give one of subscribe, subscribePattern and assign")
    text = options.text(chosen[0]) or ""
    if chosen[0] == "subscribe":
        return Selection(topics=values.names("subscribe", text))
    if chosen[0] == "subscribePattern":
        return Selection(pattern=values.pattern("subscribePattern", text))
    return Selection(partitions=values.assignment("assign", text))


def _query(mode: Mode, selection: Selection) -> Query:
    if mode == "batch":
        return Query.BATCH
    return Query.NAMED if selection.pattern is None else Query.PATTERN


def _bound(options: Given, side: str, otherwise: int) -> Bound:
    """The timestamp of all beats those by partition, which beat offsets, as in Spark's own connector."""
    time, times, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (text := options.text(time)) is not None:
        return Bound(time_ms=values.whole(time, text, 0), option=time)
    if (text := options.text(times)) is not None:
        return Bound(times_ms=values.by_partition(times, text, 0), option=times)
    text = options.text(offsets)
    if text is None:
        return Bound(end=otherwise, option=offsets)
    if text.strip().lower() in ("earliest", "latest"):
        return Bound(end=EARLIEST if text.strip().lower() == "earliest" else LATEST, option=offsets)
    return Bound(offsets=values.by_partition(offsets, text, EARLIEST), option=offsets)


def _retry_ms(options: Given) -> int | None:
    """How long offsets are asked for again, if anybody says so; what is not said is as in Spark's own connector."""
    retries = options.whole("fetchOffset.numRetries", 0)
    interval_ms = options.whole("fetchOffset.retryIntervalMs", 0)
    if retries is None and interval_ms is None:
        return None
    return (3 if retries is None else retries) * (10 if interval_ms is None else interval_ms)


def _connection(options: Given, retry_ms: int | None) -> Connection:
    bootstrap = options.bootstrap()
    isolation = options.choice("kafka.isolation.level", ("read_uncommitted", "read_committed"))
    ask_ms = max(Connection.ask_ms_max, retry_ms or 0)
    reads_tier, tier_url = options.flag("readTier", True), options.text("tierUrl")
    if tier_url is not None and not reads_tier:
        raise OptionRefused(
            "option tierUrl says where tasks read the tier, and readTier=false that they do not: leave one of them out"
        )
    return Connection(
        bootstrap=bootstrap,
        client_id=options.text("kafka.client.id") or Connection.client_id,
        is_read_committed=isolation == "read_committed",
        fetch_bytes_max=options.whole_or("kafka.fetch.max.bytes", FETCH_BYTES_MAX),
        partition_fetch_bytes_max=options.whole_or("kafka.max.partition.fetch.bytes", PARTITION_FETCH_BYTES_MAX),
        fetch_wait_ms=options.whole_or("kafka.fetch.max.wait.ms", Connection.fetch_wait_ms, smallest=0),
        fetch_bytes_min=options.whole_or("kafka.fetch.min.bytes", Connection.fetch_bytes_min, smallest=0),
        ask_ms_max=options.whole_or("kafka.default.api.timeout.ms", ask_ms),
        poll_ms_max=options.whole_or("kafkaConsumer.pollTimeoutMs", POLL_MS_MAX),
        reads_tier=reads_tier,
        tier_url=tier_url,
    )


def _check_mode(options: Given, mode: Mode) -> None:
    wrong, right = (ONLY_STREAM, "readStream") if mode == "batch" else (ONLY_BATCH, "read")
    for name in wrong:
        if options.text(name) is not None:
            raise OptionRefused(f"option {name} is one of spark.{right}; a {mode} has no use for it")
    for name in IGNORED_IN_BATCH if mode == "batch" else ():
        if options.text(name) is not None:
            log.warning("option %s is ignored: it is one of spark.readStream, and this is a batch", name)
