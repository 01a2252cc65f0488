"""What a planner asks of the brokers. Tests hand in one of their own."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from headrace.client.cluster import Cluster
from headrace.client.epochs import epoch_ends
from headrace.client.fetcher import READ_UNCOMMITTED
from headrace.client.offsets import OffsetAndTimestamp, list_offsets
from headrace.client.outside import Outside
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.door import Door, door
from headrace.spark.option_values import EARLIEST, LATEST
from headrace.spark.options import Connection, Selection
from headrace.spark.record_sizes import Local, RecordSizes
from headrace.spark.tier_view import Remote, RemoteViews
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse

EARLIEST_LOCAL = -4
LOOK_AGAIN_S = 0.1
LOCAL_STARTS_MS_MAX = 5_000
"""How long it is believed where the leaders' disks begin. Who believes it too long fetches from brokers what is in the
tier."""
CLUSTERS_MAX = 4
"""Sets of brokers to which one process keeps its connections."""


class TopicNow(NamedTuple):
    topic_id: bytes
    partitions: tuple[int, ...]


class Ends(NamedTuple):
    """Of a partition: where it begins, where what may be read ends, and its leader's epoch."""

    start: int
    end: int
    epoch: int


class LogView(Protocol):
    def topics(self, selection: Selection, ttl_ms: int) -> dict[str, TopicNow]:
        """As brokers told it at most so long ago. KafkaError for one that is named and is not there."""
        ...

    def missing(self, topics: Iterable[str]) -> set[str]:
        """Those that no broker has come to know in the time that a new topic may take."""
        ...

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Ends]:
        """KafkaError for one that is not there."""
        ...

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time; None where no record is that new."""
        ...

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Where each epoch, or the last one before it, ends; None where it is not known."""
        ...

    def high_watermarks(self, reached: Mapping[TopicPartition, int], patience_ms: int) -> dict[TopicPartition, int]:
        """Asked for again for so long while one is below what it had reached: a leader of now may learn it late."""
        ...

    def bytes_per_record(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        """About; those of which nothing is known are left out."""
        ...


class BrokerView:
    """Waits and asks again as the client does: OFFSET_NOT_AVAILABLE without new metadata, other errors with it."""

    def __init__(self, connection: Connection, door: Door, cluster: Cluster) -> None:
        self._door = door
        self._cluster = cluster
        self._isolation = int(connection.is_read_committed)
        self._ask_ms_max = connection.ask_ms_max
        self._asked_at_ms: dict[Selection, int] = {}
        self._local_starts: dict[TopicPartition, tuple[int, int]] = {}  # and when they were told
        self._remote = RemoteViews(cluster)
        self._sizes = RecordSizes(cluster, self._remote)
        self._may_have_tier = True

    def topics(self, selection: Selection, ttl_ms: int) -> dict[str, TopicNow]:
        return self._door.run(self._topics(selection, ttl_ms))

    async def _topics(self, selection: Selection, ttl_ms: int) -> dict[str, TopicNow]:
        now_ms = self._cluster.outside.clock.monotonic_ms()
        asked_at_ms = self._asked_at_ms.get(selection)
        is_fresh = asked_at_ms is not None and now_ms - asked_at_ms < ttl_ms
        named = selection.named
        if named:
            if not is_fresh and named <= self._cluster.topics.keys():
                await self._cluster.refresh_patiently(self._ask_ms_max)
            await self._cluster.know(named, self._ask_ms_max)
        elif not is_fresh:
            everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            answer = await self._cluster.ask(everything, MetadataResponse, self._ask_ms_max)
            matched = [one for one in answer.topics if one.name and selection.is_matched(one.name)]
            chosen = [one for one in matched if not one.is_internal]
            gone = set(filter(selection.is_matched, self._cluster.topics)) - {one.name for one in chosen}
            answer.topics = chosen
            for name in gone:
                del self._cluster.topics[name]
            self._cluster.learn(answer)
        if not is_fresh:
            self._asked_at_ms[selection] = now_ms
        names = named or set(filter(selection.is_matched, self._cluster.topics))
        return {
            name: TopicNow(self._cluster.topics[name].topic_id, tuple(sorted(self._cluster.topics[name].leaders)))
            for name in sorted(names)
        }

    def missing(self, topics: Iterable[str]) -> set[str]:
        return {topic for topic in topics if not self._door.run(self._is_known(topic))}

    async def _is_known(self, topic: str) -> bool:
        try:
            await self._cluster.know([topic], self._ask_ms_max)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        return True

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Ends]:
        wanted = list(partitions)

        async def both() -> list[dict[TopicPartition, OffsetAndTimestamp]]:
            return await asyncio.gather(*(self._list(dict.fromkeys(wanted, end)) for end in (EARLIEST, LATEST)))

        starts, ends = self._door.run(both())
        return {one: Ends(starts[one].offset, ends[one].offset, ends[one].leader_epoch) for one in wanted}

    def high_watermarks(self, reached: Mapping[TopicPartition, int], patience_ms: int) -> dict[TopicPartition, int]:
        return self._door.run(self._high_watermarks(reached, patience_ms))

    async def _high_watermarks(
        self, reached: Mapping[TopicPartition, int], patience_ms: int
    ) -> dict[TopicPartition, int]:
        clock = self._cluster.outside.clock
        deadline_ms = clock.monotonic_ms() + patience_ms
        while True:
            told = await list_offsets(self._cluster, dict.fromkeys(reached, LATEST), READ_UNCOMMITTED, self._ask_ms_max)
            is_there = all(told[one].offset >= offset for one, offset in reached.items())
            if is_there or clock.monotonic_ms() >= deadline_ms:
                return {one: told[one].offset for one in reached}
            await asyncio.sleep(LOOK_AGAIN_S)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = self._door.run(self._list(times_ms))
        return {one: found[one].offset if found[one].offset >= 0 else None for one in times_ms}

    async def _list(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        return await list_offsets(self._cluster, wanted, self._isolation, self._ask_ms_max) if wanted else {}

    def local_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._door.run(self._fresh_local_starts(list(partitions))) if self._may_have_tier else {}

    async def _fresh_local_starts(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        now_ms = self._cluster.outside.clock.monotonic_ms()
        asked = {
            one: EARLIEST_LOCAL
            for one in partitions
            if one not in self._local_starts or now_ms - self._local_starts[one][1] >= LOCAL_STARTS_MS_MAX
        }
        try:
            for one, told in (await self._list(asked)).items():
                self._local_starts[one] = told.offset, now_ms
        except KafkaError as error:
            self._note_no_tier(error)
            return {}
        return {one: self._local_starts[one][0] for one in partitions}

    def remote(self, local_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, Remote]:
        try:
            return self._door.run(self._remote.ask(local_starts)) if self._may_have_tier else {}
        except KafkaError as error:
            self._note_no_tier(error)
            return {}

    def _note_no_tier(self, error: KafkaError) -> None:
        """Raises any other error."""
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise error
        self._may_have_tier = False

    def close(self) -> None:
        self._door.run(self._cluster.close())

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._door.run(epoch_ends(self._cluster, epochs, self._ask_ms_max)) if epochs else {}

    def bytes_per_record(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        return self._door.run(self._bytes_per_record(list(partitions)))

    async def _bytes_per_record(self, partitions: list[TopicPartition]) -> dict[TopicPartition, float]:
        starts = await self._fresh_local_starts(partitions) if self._may_have_tier else {}
        if not starts:
            starts = {one: told.offset for one, told in (await self._list(dict.fromkeys(partitions, EARLIEST))).items()}
        ends = await self._list(dict.fromkeys(partitions, LATEST))
        return await self._sizes.ask({one: Local(starts[one], ends[one].offset) for one in partitions})


_views: dict[tuple[int, Connection], BrokerView] = {}
"""Of this process, the one that was used last at the end; CLUSTERS_MAX at most."""


def view_of(connection: Connection) -> BrokerView:
    entrance = door()
    key = (entrance.process_id, connection)
    view = _views.pop(key, None)
    if view is None:
        cluster = entrance.call(
            lambda: Cluster(connection.bootstrap, connection.client_id, Outside(), creates_topics=False)
        )
        view = BrokerView(connection, entrance, cluster)
    _views[key] = view
    while len(_views) > CLUSTERS_MAX:
        _views.pop(next(iter(_views))).close()
    return view
