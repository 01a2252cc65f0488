"""One fetcher: a task with a connection of its own that replicates partitions from one node.

One request is on the way at a time. It lists what changed since the last one, and the leader answers with what has
news, so that a fetcher without news costs two small messages per `replica.fetch.wait.max.ms`. Trouble of a partition
is that partition's alone. The task ends when nothing is left to replicate.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.broker.disk import SYNC, DiskFaults
from headrace.broker.local_coverage import Coverages
from headrace.broker.partitions import Hosted
from headrace.broker.replicator_answers import Answers
from headrace.broker.replicator_asking import FETCH_VERSION, Leader, Leaders, fetch_request
from headrace.broker.replicator_logs import FollowerLogs
from headrace.broker.replicator_tier import Outcome, RemoteParts, TierStarts
from headrace.config import BrokerConfig
from headrace.core.cluster import RegisteredBroker
from headrace.core.fetching import Ask, Verdict
from headrace.core.following import FailedPartitions, FetcherPartitions, Position
from headrace.errors import CorruptLog
from headrace.net.peer import PeerLost
from headrace.runtime import Clock
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState

log = logging.getLogger(__name__)

OPENED_PER_TURN = 20
"""Logs that are opened between two turns of the loop: a new leader may come with ten thousand partitions."""

REGISTERED_EVERY_MS = 100
"""How often a node without a registration looks whether it has one."""

GOODBYE_MS_MAX = 1_000
RATE_EVERY_MS = 5_000
RATE_MARKS = 13


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What all fetchers of a node share."""

    node_id: int
    broker_epoch: Callable[[], int]
    clock: Clock
    config: Callable[[], BrokerConfig]
    leaders: Leaders
    logs: FollowerLogs
    faults: DiskFaults
    failed: FailedPartitions[Hosted]
    on_failed: Callable[[Hosted, str, int], None]
    on_fenced: Callable[[Hosted], None]
    """The partition is in the failed set, and its fetcher has it no longer."""
    on_lost: Callable[[int], None]
    """A leader has stopped answering."""
    coverages: Coverages = field(default_factory=Coverages)
    tier: RemoteParts | None = None


class Fetcher:
    def __init__(
        self, leader: RegisteredBroker, index: int, around: Surroundings, on_ended: Callable[["Fetcher"], None]
    ) -> None:
        self.leader = leader
        self.index = index
        self.partitions: FetcherPartitions[Hosted] = FetcherPartitions(
            around.failed, around.config().replica_fetch_backoff_ms
        )
        self.rate = Rate(around.clock.monotonic_ms())
        self._around = around
        self._on_ended = on_ended
        self._starts = TierStarts(
            leader,
            around.leaders,
            f"broker-{around.node_id}-tier-{index}",
            around.node_id,
            lambda: around.tier,
            around.config,
            self._begun,
        )
        self._answers = Answers(
            self.partitions,
            around.failed,
            around.logs,
            around.faults,
            around.clock,
            around.on_failed,
            around.on_fenced,
            self._starts,
        )
        self._new: dict[Hosted, int] = {}  # leader epochs of partitions whose logs are to be opened
        self._news = asyncio.Event()
        self._named: dict[tuple[bytes, int], Hosted] = {}  # what the leader's session has
        self._connection: Leader | None = None
        self._is_lost = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __str__(self) -> str:
        return f"ReplicaFetcherThread-{self.index}-{self.leader.id}"

    @property
    def is_dead(self) -> bool:
        return self._task.done()

    def lags(self) -> dict[Hosted, int]:
        """Offsets behind the leader's high watermark."""
        return {partition: lag for partition in self.partitions if (lag := self.partitions.lag(partition)) is not None}

    # Which partitions.

    def add(self, partition: Hosted, leader_epoch: int) -> None:
        """From the end of its log on, read now or when the log is open. Nobody else appends to it any more."""
        opened = partition.log_if_open
        if opened is not None and not opened.needs_flush_before_ack():
            self._adopt(partition, leader_epoch)  # at once: answers to the epoch before count no more
        else:
            self.partitions.remove(partition)
            self._new[partition] = leader_epoch
        self._news.set()

    def list_again(self, partition: Hosted) -> None:
        """The next request tells the leader of it although nothing was fetched."""
        self.partitions.list_again(partition)

    def remove(self, partition: Hosted) -> None:
        self._new.pop(partition, None)
        self._starts.forget(partition)
        self.partitions.remove(partition)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, self._starts.close(), return_exceptions=True)

    def _begun(self, partition: Hosted, leader_epoch: int, outcome: Outcome) -> None:
        self._answers.begun(partition, leader_epoch, outcome)
        self._news.set()

    async def _adopt_new(self) -> None:
        for count, partition in enumerate(list(self._new), 1):
            leader_epoch = self._new.get(partition)
            is_synced = leader_epoch is not None and await self._is_synced(partition)
            # Meanwhile it may have got another role, or another epoch.
            if leader_epoch is not None and is_synced and self._new.get(partition) == leader_epoch:
                del self._new[partition]
                self._adopt(partition, leader_epoch)
            if count % OPENED_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _is_synced(self, partition: Hosted) -> bool:
        """Where records count only once they are synced, the leader hears of no others. False: the disk failed."""
        logs = self._around.logs
        try:
            opened = partition.log
        except Exception:  # whoever opens it next meets it again, and deals with it
            return True
        if opened.needs_flush_before_ack():
            try:
                await logs.sync(partition, opened)
            except OSError as error:
                if self._new.pop(partition, None) is not None:
                    self._around.faults.lost(partition, SYNC, error)
                return False
        return True

    def _adopt(self, partition: Hosted, leader_epoch: int) -> None:
        try:
            position = self._around.logs.position(partition, leader_epoch)
        except (OSError, CorruptLog) as error:
            self._around.faults.lost(partition, "opening the log", error)
        except Exception as error:  # any other trouble is this partition's own too
            log.debug("%s cannot be followed", partition, exc_info=True)
            self._around.failed.add(partition, str(error), self._around.clock.monotonic_ms(), leader_epoch)
            self._around.on_failed(partition, str(error), leader_epoch)
        else:
            self.partitions.add(partition, position)

    # The task.

    async def _run(self) -> None:
        try:
            while self._new or len(self.partitions):
                try:
                    await self._round()
                except (PeerLost, ProtocolError, TimeoutError) as error:
                    self._lost(error)
                except Exception:  # whatever it is, it must not end the replication of all these partitions
                    log.exception("%s: a round failed", self)
                    self._hang_up()
                    self._start_over()
                    await asyncio.sleep(self._around.config().replica_fetch_backoff_ms / 1000)
            # In one step with the look: whoever comes after this gets a new fetcher.
            self._on_ended(self)
            await self._starts.close()
            await self._say_goodbye()
        finally:
            self._hang_up()

    async def _round(self) -> None:
        self._news.clear()
        await self._adopt_new()
        now_ms = self._around.clock.monotonic_ms()
        if not self.partitions.has_something_to_ask:
            wake_ms = self.partitions.wake_ms
            if wake_ms is None or wake_ms > now_ms:
                await self._wait(wake_ms, now_ms)
                return
        if self._around.broker_epoch() <= 0:
            await asyncio.sleep(REGISTERED_EVERY_MS / 1000)  # nobody answers a node that is not registered
            return
        if self._connection is None:
            client_id = f"broker-{self._around.node_id}-fetcher-{self.index}"
            self._connection = await self._around.leaders.connect(self.leader, client_id)
        await self._fetch(self._connection)

    async def _wait(self, wake_ms: int | None, now_ms: int) -> None:
        """Until a delay ends or a partition comes."""
        if not len(self.partitions):
            return
        wait_ms = self._around.config().replica_fetch_backoff_ms if wake_ms is None else wake_ms - now_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _fetch(self, connection: Leader) -> None:
        config, clock = self._around.config(), self._around.clock
        response = await connection.request(
            self._next_request(config),
            FetchResponse,
            FETCH_VERSION,
            config.replica_fetch_wait_max_ms + config.replica_socket_timeout_ms,
        )
        self.rate.mark(clock.monotonic_ms())
        if self._is_lost:
            self._is_lost = False
            log.info("%s: node %d answers again", self, self.leader.id)
        parts = self._parts_of(response)
        session = self.partitions.session
        if parts is None:
            verdict = session.lost()
        else:
            keys = [partition for partition, _ in parts]
            verdict = session.answered(response.error_code, response.session_id, keys, response.throttle_time_ms > 0)
        if verdict is Verdict.USE and parts is not None:
            self.partitions.request_answered()
            await self._answers.take(parts, connection, self._around.node_id, config.replica_socket_timeout_ms)
        elif verdict is not Verdict.AGAIN:
            log.debug("%s: node %d answers with error %d", self, self.leader.id, response.error_code)
            self.partitions.request_failed(clock.monotonic_ms())

    def _next_request(self, config: BrokerConfig) -> FetchRequest:
        ask = self.partitions.next(self._around.clock.monotonic_ms())
        if ask.epoch == 0:
            self._named.clear()
        self._named.update(((partition.topic_id, partition.index), partition) for partition, _ in ask.listed)
        # One that left and came back under another object is listed: what is also forgotten would be gone.
        forgotten = [p for p in ask.forgotten if self._named.get((p.topic_id, p.index)) is p]
        for partition in forgotten:
            del self._named[partition.topic_id, partition.index]
        return self._request(Ask(ask.session_id, ask.epoch, ask.listed, forgotten), config)

    def _request(self, ask: Ask[Hosted, Position], config: BrokerConfig) -> FetchRequest:
        around = self._around
        replica = ReplicaState(replica_id=around.node_id, replica_epoch=around.broker_epoch())
        return fetch_request(ask, replica, config, around.coverages.told)

    def _parts_of(self, response: FetchResponse) -> list[tuple[Hosted, PartitionData]] | None:
        """None when it tells of a partition that nobody asked for."""
        parts = []
        for topic in response.responses:
            for part in topic.partitions:
                partition = self._named.get((topic.topic_id, part.partition_index))
                if partition is None:
                    return None
                parts.append((partition, part))
        return parts

    # Trouble and the end.

    def _lost(self, error: Exception) -> None:
        if not self._is_lost:
            self._around.on_lost(self.leader.id)
            backoff_ms = self._around.config().replica_fetch_backoff_ms
            log.warning(
                "%s: node %d does not answer, tried at least every %d ms: %s", self, self.leader.id, backoff_ms, error
            )
        self._is_lost = True
        self._hang_up()
        self._start_over()

    def _start_over(self) -> None:
        self.partitions.session.lost()
        self.partitions.request_failed(self._around.clock.monotonic_ms())

    async def _say_goodbye(self) -> None:
        """The leader need not keep the session."""
        ask = self.partitions.session.closing()
        if ask is None or self._connection is None:
            return
        try:
            request = self._request(ask, self._around.config())
            await self._connection.request(request, FetchResponse, FETCH_VERSION, GOODBYE_MS_MAX)
        except (PeerLost, ProtocolError, TimeoutError):
            pass  # then the leader finds out by itself

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("nothing more to fetch")


class Rate:
    """How often something happened per second, over about the last minute."""

    def __init__(self, now_ms: int) -> None:
        self._count = 0
        self._marks = deque([(now_ms, 0)], maxlen=RATE_MARKS)

    def mark(self, now_ms: int) -> None:
        self._count += 1
        if now_ms - self._marks[-1][0] >= RATE_EVERY_MS:
            self._marks.append((now_ms, self._count))

    def per_second(self, now_ms: int) -> float:
        since_ms, count = self._marks[0]
        return (self._count - count) * 1000 / max(now_ms - since_ms, 1000)
