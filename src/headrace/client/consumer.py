"""`Consumer`: reads the records of partitions that the caller names."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import chain
from types import TracebackType
from typing import Any, Literal

from headrace.client.assigned import Assigned
from headrace.client.beside import Beside
from headrace.client.cluster import ASK_MS_MAX, UNKNOWN_TOPIC_MS_MAX, Cluster
from headrace.client.epochs import epoch_ends
from headrace.client.errors import NotReachable
from headrace.client.fetched import ConsumerRecord, Fetched
from headrace.client.fetcher import READ_COMMITTED, READ_UNCOMMITTED, Fetcher, FetchLimits
from headrace.client.leaders import check_exists
from headrace.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from headrace.client.outside import Outside
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.wire.errors import ProtocolError

RECORDS_MAX = 500
RESET_TO: dict[str, int | None] = {"earliest": EARLIEST, "latest": LATEST, "none": None}
Isolation = Literal["read_uncommitted", "read_committed"]
Reset = Literal["earliest", "latest", "none"]


class Consumer:
    """An async context manager. Fetches ahead while it is used, at most `max_bytes` and one answer per broker.

    What no broker answers is asked again for `timeout_ms`; a fetch is, for as long as the consumer is used.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        isolation: Isolation = "read_uncommitted",
        auto_offset_reset: Reset = "earliest",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 16 << 20,
        max_partition_bytes: int = 1 << 20,
        timeout_ms: int = ASK_MS_MAX,
        client_id: str = "headrace",
        outside: Outside | None = None,
    ) -> None:
        if isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation is read_uncommitted or read_committed, not {isolation!r}")
        if auto_offset_reset not in RESET_TO:
            raise ValueError(f"auto_offset_reset is earliest, latest or none, not {auto_offset_reset!r}")
        self._isolation = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
        self._limits = FetchLimits(self._isolation, max_wait_ms, min_bytes, max_bytes, max_partition_bytes)
        self._timeout_ms = timeout_ms
        self._reset_to = RESET_TO[auto_offset_reset]
        self._clock = (outside or Outside()).clock
        self._cluster = Cluster(bootstrap, client_id, outside or Outside(), creates_topics=False)
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._unsettled: dict[Assigned, None] = {}  # not fetched: wants a position, a leader, or patience
        self._routes: dict[Assigned, Fetcher] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._ready: deque[Assigned] = deque()  # those with records, each once, whose turn it is first
        self._news = asyncio.Event()
        self._beside = Beside(self._cluster.outside, self._news.set)
        self._failure: KafkaError | None = None
        self._wake_ms = 0

    async def __aenter__(self) -> "Consumer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._beside.close()
        await asyncio.gather(*[fetcher.close() for fetcher in self._fetchers.values()])
        await self._cluster.close()

    # What is read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on these, and no others. Those that stay keep their positions."""
        wanted = dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        for partition in [partition for partition in self._assigned if partition not in wanted]:
            self._stop(self._assigned.pop(partition))
        for partition in wanted:
            if partition not in self._assigned:
                assigned = Assigned(partition, reset_to=self._reset_to)
                self._assigned[partition] = assigned
                self._unsettled[assigned] = None
        self._failure = None  # of what was assigned before; of what is still, it shows again

    def assignment(self) -> list[TopicPartition]:
        return list(self._assigned)

    def seek(self, partition: TopicPartition, offset: int, until: int | None = None) -> None:
        """The next record of that partition is the one at or after that offset. Once the record before `until` is
        fetched, none is fetched ahead any more."""
        if offset < 0:
            raise ValueError(f"an offset is not negative, as {offset} is")
        assigned = self._find(partition)
        self._stop(assigned)
        assigned.move_to(offset)
        assigned.until = until
        self._unsettled[assigned] = None
        self._failure = None
        self._news.set()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """They keep their positions, and are neither fetched nor handed out."""
        for partition in partitions:
            assigned = self._find(partition)
            assigned.paused = True
            self._stop(assigned)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            assigned = self._find(partition)
            if assigned.paused:
                assigned.paused = False
                self._unsettled[assigned] = None
        self._news.set()

    async def position(self, partition: TopicPartition) -> int:
        """Of the next record that `poll` hands out."""
        assigned = self._find(partition)
        if assigned.position is None and assigned.reset_to is not None:
            offsets = await self._list_offsets({assigned.partition: assigned.reset_to})
            if assigned.position is None:
                assigned.move_to(offsets[assigned.partition].offset)
        if assigned.position is None:
            raise _no_position(assigned)
        return assigned.position

    def lag(self, partition: TopicPartition) -> int | None:
        """Records behind the end, as the last fetch told it; None before the first."""
        assigned = self._find(partition)
        if assigned.position is None or assigned.high_watermark < 0:
            return None
        return max(0, assigned.high_watermark - assigned.position)

    async def poll(self, timeout_ms: int, records_max: int = RECORDS_MAX) -> list[ConsumerRecord]:
        """Records, in order within each partition; none if there are none in that time.

        KafkaError for a partition that cannot be read on: again in each call, until it is moved or unassigned.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        await asyncio.sleep(0)  # a caller that polls in a loop lets the fetching go on
        while True:
            records = self._take(records_max)
            if records:
                return records
            if not await self._wait_for_news(deadline_ms):
                return []

    async def _wait_for_news(self, deadline_ms: int) -> bool:
        """Until something happens to a partition, or it is time to look; False when the time is up."""
        self._news.clear()
        self._prepare()
        self._raise_failure()
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            return False
        try:
            async with asyncio.timeout(min(left_ms, self._wake_ms) / 1000):
                await self._news.wait()
        except TimeoutError:
            pass
        return True

    async def poll_fetched(self, timeout_ms: int) -> Fetched | None:
        """For who decodes by itself: one fetch as it came, of whole batches. None, and KafkaError, as in `poll`."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while not self._ready:
            if not await self._wait_for_news(deadline_ms):
                return None
        assigned = self._ready.popleft()
        fetched = assigned.take_fetched()
        assigned.is_ready = assigned.has_fetched
        if assigned.is_ready:
            self._ready.append(assigned)
        return fetched

    def topic_id(self, topic: str) -> bytes | None:
        """As the last metadata had it; None if it is not known. A topic that was made anew has another one."""
        known = self._cluster.topics.get(topic)
        return None if known is None else known.topic_id

    async def ask_for_metadata(self) -> None:
        """Anew, of all topics that were read; without waiting for one that is not there."""
        await self._cluster.refresh_patiently(self._timeout_ms)

    async def reach(self, timeout_ms: int) -> None:
        """Until a broker answers. NotReachable when none does in that time."""
        await self._cluster.reach(timeout_ms)

    @property
    def trouble(self) -> str | None:
        """What is in the way of fetching, or of a call, that is being tried again."""
        troubles = chain(
            [self._cluster.trouble],
            (fetcher.trouble for fetcher in self._fetchers.values()),
            (assigned.trouble for assigned in self._assigned.values()),
            [self._beside.trouble if self._unsettled else None],
        )
        return next(filter(None, troubles), None)

    # Offsets of any partitions, assigned or not.

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """With read_committed: the end of what is decided."""
        return await self._ends(partitions, LATEST)

    async def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of what is replicated, whatever is committed of it."""
        wanted = {TopicPartition(*partition): LATEST for partition in partitions}
        found = await list_offsets(self._cluster, wanted, READ_UNCOMMITTED, self._timeout_ms)
        return {partition: found[partition].offset for partition in wanted}

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, int | None]:
        """Where each leader epoch, or the last one before it, ends; None where its leader does not know."""
        return await epoch_ends(self._cluster, epochs, timeout_ms)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None where there is none."""
        found = await self._list_offsets(times_ms)
        return {partition: None if found[partition].offset < 0 else found[partition] for partition in times_ms}

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        await self._cluster.know([topic], self._timeout_ms)
        return [TopicPartition(topic, index) for index in sorted(self._cluster.topics[topic].leaders)]

    async def _ends(self, partitions: Iterable[TopicPartition], which: int) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*partition): which for partition in partitions}
        found = await self._list_offsets(wanted)
        return {partition: found[partition].offset for partition in wanted}

    # How it works.

    async def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        return await list_offsets(self._cluster, wanted, self._isolation, self._timeout_ms)

    def _find(self, partition: TopicPartition) -> Assigned:
        assigned = self._assigned.get(TopicPartition(*partition))
        if assigned is None:
            raise ValueError(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return assigned

    def _stop(self, assigned: Assigned) -> None:
        fetcher = self._routes.pop(assigned, None)
        if fetcher is not None:
            fetcher.drop(assigned)
        self._unsettled.pop(assigned, None)
        assigned.forget_fetched()
        if assigned.is_ready:
            assigned.is_ready = False
            self._ready.remove(assigned)

    def _take(self, records_max: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        while self._ready and len(records) < records_max:
            assigned = self._ready.popleft()
            assigned.is_ready = False
            try:
                assigned.take(records_max, records)
            except ProtocolError as error:
                self._stop(assigned)
                text = f"{assigned.partition} cannot be read at offset {assigned.position}: {error}"
                assigned.error = KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
                self._unsettled[assigned] = None
                continue
            if assigned.has_fetched:
                assigned.is_ready = True
                if len(records) < records_max:
                    self._ready.append(assigned)
                else:
                    self._ready.appendleft(assigned)
        return records

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        for assigned in self._unsettled:
            if assigned.error is not None and not assigned.has_fetched:
                raise assigned.error

    def _prepare(self) -> None:
        """Sees to it that every partition that is not fetched soon is."""
        now_ms = self._clock.monotonic_ms()
        self._wake_ms = 60_000
        unknown = False
        resets: list[Assigned] = []
        for assigned in list(self._unsettled):
            if assigned.error is not None and not self._is_forgiven(assigned, now_ms):
                continue
            if assigned.retry_at_ms > now_ms:
                self._wake_ms = min(self._wake_ms, assigned.retry_at_ms - now_ms)
            elif assigned.reset_to is not None:
                if not assigned.has_fetched:
                    resets.append(assigned)
            elif assigned.position is None:
                assigned.error = _no_position(assigned)
            elif not self._route(assigned):
                unknown = True
        if unknown:
            self._start("metadata", self._learn)
        if resets:
            self._start("positions", lambda: self._reset(resets))

    def _is_forgiven(self, assigned: Assigned, now_ms: int) -> bool:
        """Whether its error is one that time, metadata or a reset will mend."""
        assert assigned.error is not None
        code = assigned.error.code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reset_to is not None:
            assigned.reset_to = self._reset_to
        elif assigned.error.retriable and code != ErrorCode.CORRUPT_MESSAGE:
            assigned.failures += 1
            assigned.trouble = str(assigned.error)
            assigned.retry_at_ms = now_ms + self._cluster.outside.backoff_ms(assigned.failures)
            if code != ErrorCode.OFFSET_NOT_AVAILABLE:
                self._start("metadata", self._learn)
        else:
            return False
        assigned.error = None
        return True

    def _route(self, assigned: Assigned) -> bool:
        """Fetches it from its leader from now on; False if none is known, or not as one that we may fetch from."""
        topic = self._cluster.topics.get(assigned.partition.topic)
        leader = self._cluster.leader(assigned.partition)
        if leader is not None and not self._cluster.permits(assigned.partition, leader.node_id):
            return False
        if leader is None:
            if topic is not None and assigned.partition.partition not in topic.leaders:
                self._note_missing(assigned)
            return False
        assigned.missing_since_ms = None
        fetcher = self._fetchers.get(leader.node_id)
        if fetcher is None:
            fetcher = Fetcher(self._cluster, leader.node_id, self._limits, self._heard)
            self._fetchers[leader.node_id] = fetcher
        del self._unsettled[assigned]
        self._routes[assigned] = fetcher
        fetcher.want(assigned)
        return True

    def _note_missing(self, assigned: Assigned) -> None:
        """A topic may have got more partitions since it was asked about, and not all brokers hear of them at once."""
        now_ms = self._clock.monotonic_ms()
        if assigned.missing_since_ms is None:
            assigned.missing_since_ms = now_ms
        left_ms = assigned.missing_since_ms + UNKNOWN_TOPIC_MS_MAX - now_ms
        self._wake_ms = min(self._wake_ms, max(1, left_ms))
        if left_ms <= 0:
            try:
                check_exists(self._cluster, assigned.partition)
            except KafkaError as error:
                self._failure = error

    def _heard(self, assigned: Assigned | None, _node_id: int) -> None:
        """A fetcher has something: records, an error, or no broker any more."""
        if assigned is None:
            self._start("metadata", self._learn)
            return
        if assigned.error is not None:
            self._routes.pop(assigned, None)
            self._unsettled[assigned] = None
        elif not assigned.is_ready:
            assigned.is_ready = True
            self._ready.append(assigned)
        self._news.set()

    def _start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        again_ms = self._beside.start(name, work)
        if again_ms:
            self._wake_ms = min(self._wake_ms, max(1, again_ms - self._clock.monotonic_ms()))

    async def _learn(self) -> None:
        """Metadata anew; then every partition is fetched from the leader that it has now."""
        topics = self._assigned_topics()
        try:
            known = set(self._cluster.topics)
            await self._cluster.know(topics, self._timeout_ms)
            if known == set(self._cluster.topics):
                await self._cluster.refresh()
        except NotReachable as error:
            if not self._cluster.brokers:
                self._failure = error
            raise
        except KafkaError as error:
            if topics <= self._assigned_topics():  # else it may be of one that nobody wants any more
                self._failure = error
            raise
        for assigned, fetcher in list(self._routes.items()):
            if assigned.is_done:
                continue
            leader = self._cluster.leader(assigned.partition)
            if leader is not None and self._fetchers.get(leader.node_id) is fetcher:
                fetcher.refresh(assigned)
            else:
                del self._routes[assigned]
                fetcher.drop(assigned)
                self._unsettled[assigned] = None

    def _assigned_topics(self) -> set[str]:
        return {partition.topic for partition in self._assigned}

    async def _reset(self, resets: list[Assigned]) -> None:
        wanted = {assigned.partition: assigned.reset_to for assigned in resets if assigned.reset_to is not None}
        try:
            offsets = await self._list_offsets(wanted)
        except KafkaError as error:
            if all(self._assigned.get(assigned.partition) is assigned for assigned in resets):
                self._failure = error
            raise
        for assigned in resets:
            if assigned.reset_to is not None and self._assigned.get(assigned.partition) is assigned:
                assigned.move_to(offsets[assigned.partition].offset)


def _no_position(assigned: Assigned) -> KafkaError:
    text = f"{assigned.partition} has no position: seek, or choose auto_offset_reset earliest or latest"
    return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
