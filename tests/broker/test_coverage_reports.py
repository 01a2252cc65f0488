"""KIP-1303 between nodes: followers tell leaders, leaders tell the controller, and only when something changed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from headrace.broker import replicator_fetcher
from headrace.broker.partitions import Hosted
from headrace.broker.replicator_asking import fetch_request
from headrace.config import BrokerConfig
from headrace.controller.configs import Edit, EditKind
from headrace.core.coverage import LocalCoverage
from headrace.core.fetching import Ask
from headrace.core.following import Position
from headrace.core.thin import thin_of
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, ReplicaState
from tests.broker.asking import TOPIC
from tests.broker.trio import Trio, play

MS = "leader.election.eligible.local.log.ms"
BYTES = "leader.election.eligible.local.log.bytes"
HOUR = 3_600_000
TIERED = {"remote.storage.enable": "true", MS: str(HOUR), BYTES: "1000"}
GAP = {
    "leader.election.local.log.report.interval.ms": "2000",
    "remote.log.storage.system.enable": "true",
    "remote.storage.url": "/objects",
}
OLD = LocalCoverage(0, 0, 5_000, False)


class Disks:
    """What each node says of its own disk, as the test scripts it."""

    def __init__(self, trio: Trio) -> None:
        self.of = {1: OLD, 2: OLD, 3: OLD}
        self._trio = trio
        for node_id in self.of:
            self.attach(node_id)

    def attach(self, node_id: int) -> None:
        self._trio.broker(node_id).isr_updates.coverages.report = lambda _: self.of[node_id]

    def fresh(self) -> LocalCoverage:
        return LocalCoverage(500, self._trio.broker(self._trio.controller_id).clock.wall_ms(), 0, False)


def thin(trio: Trio) -> frozenset[int]:
    broker = trio.broker(trio.controller_id)
    return thin_of(broker.image, broker.image.topics[TOPIC], 0, broker.clock.wall_ms())


def remembered(trio: Trio) -> dict[int, LocalCoverage]:
    image = trio.broker(trio.controller_id).image
    stored = image.coverage.get((image.topics[TOPIC].id, 0))
    return {} if stored is None else {known.broker_id: known.local for known in stored.record.replicas}


@contextmanager
def listing() -> Iterator[list[FetchPartition]]:
    """What followers list from here on."""
    listed: list[FetchPartition] = []

    def noting(
        ask: Ask[Hosted, Position],
        replica: ReplicaState,
        config: BrokerConfig,
        coverage: Callable[[Hosted], LocalCoverage | None],
    ) -> FetchRequest:
        request = fetch_request(ask, replica, config, coverage)
        listed.extend(part for topic in request.topics for part in topic.partitions)
        return request

    with patch.object(replicator_fetcher, "fetch_request", noting):
        yield listed


def test_what_a_follower_says_reaches_the_controller_and_the_record_stays() -> None:
    """T1303-1 from end to end, T1303-11."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=TIERED)
        disks = Disks(trio)
        disks.of[2] = disks.fresh()
        rev = trio.rev()
        await trio.until(lambda: thin(trio) == {2} and remembered(trio) == disks.of)
        assert trio.rev() == rev
        disks.of[2] = disks.of[2]._replace(at_local_retention=True)
        await trio.until(lambda: thin(trio) == frozenset())
        disks.of[2] = disks.fresh()
        await trio.until(lambda: thin(trio) == {2})
        trio.world.nodes[0].kill()
        await trio.leads(3)

    play(scenario, GAP, replicates=True)


def test_growth_is_not_told_before_it_crosses_the_threshold() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=TIERED)
        disks = Disks(trio)
        disks.of[2] = disks.fresh()
        await trio.until(lambda: remembered(trio) == disks.of)
        rev = trio.world.data.rev
        with listing() as listed:
            for local_bytes in range(1, 999, 100):
                disks.of[2] = disks.of[2]._replace(local_bytes=local_bytes)
                await asyncio.sleep(1)
            assert (listed, trio.world.data.rev) == ([], rev)
            disks.of[2] = disks.of[2]._replace(local_bytes=1_000)
            await trio.until(lambda: thin(trio) == frozenset())
            assert [part.local_bytes for part in listed] == [1_000]

    play(scenario, GAP, replicates=True)


def test_a_topic_that_is_not_tiered_tells_nothing() -> None:
    """T1303-6."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings={MS: "1000"})
        disks = Disks(trio)
        await asyncio.sleep(5)
        assert remembered(trio) == {}
        leadership = trio.partition(1).leadership
        assert leadership is not None
        assert [follower.coverage for follower in leadership.followers.values()] == [None, None]
        assert disks.of[1] is OLD and trio.broker(1).coverage_reports.sent == 0

    play(scenario, GAP, replicates=True)


def test_reports_of_one_partition_keep_their_distance() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=TIERED)
        disks = Disks(trio)
        await trio.until(lambda: remembered(trio) == disks.of)
        sent = trio.broker(1).coverage_reports.sent
        for start in range(1, 21):
            disks.of[1] = disks.of[1]._replace(local_log_start=start)
            await asyncio.sleep(1)
        assert trio.broker(1).coverage_reports.sent - sent <= 3
        await trio.until(lambda: remembered(trio)[1].local_log_start == 20)

    play(scenario, {**GAP, "leader.election.local.log.report.interval.ms": "10000"}, replicates=True)


def test_a_replica_that_comes_back_with_little_is_known_for_it() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=TIERED)
        disks = Disks(trio)
        await trio.until(lambda: remembered(trio) == disks.of)
        node = trio.world.nodes[1]
        node.kill()
        await trio.until(lambda: trio.record().isr_ids == [1, 3])
        disks.of[2] = disks.fresh()
        node.start()
        await trio.serves(2)
        disks.attach(2)
        await trio.until(lambda: 2 in trio.record().isr_ids and thin(trio) == {2})

    play(scenario, GAP, replicates=True)


def test_another_threshold_makes_everybody_tell_once() -> None:
    """T1303-20."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=TIERED)
        disks = Disks(trio)
        disks.of[2] = disks.fresh()._replace(local_bytes=10)
        await trio.until(lambda: remembered(trio) == disks.of)
        disks.of[2] = disks.of[2]._replace(local_bytes=50)  # nobody needs to know
        with listing() as listed:
            edit = Edit(BYTES, EditKind.SET, "40")
            await trio.broker(trio.controller_id).controller.alter_topic_settings(TOPIC, lambda _: [edit])
            await trio.until(lambda: thin(trio) == frozenset() and remembered(trio) == disks.of)
            await asyncio.sleep(5)
            assert sorted(part.local_bytes for part in listed) == [50, 5_000]

    play(scenario, GAP, replicates=True)


def test_a_node_that_restarts_whole_is_judged_as_before() -> None:
    """T1303-21, as far as the cluster remembers it: nothing is told by the node before its report is there again."""

    async def scenario(trio: Trio) -> None:
        await trio.topic([1, 2, 3], settings=TIERED)
        disks = Disks(trio)
        disks.of[2] = disks.fresh()
        await trio.until(lambda: thin(trio) == {2})
        await trio.restart(2)
        assert thin(trio) == {2}
        disks.attach(2)
        await trio.until(lambda: len(trio.record().isr) == 3)
        trio.world.nodes[0].kill()
        await trio.leads(3)

    play(scenario, GAP, replicates=True)
