"""What is told of a change of leaders: who could lead, who was thin, and what nobody could know for sure."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.core.cluster import NO_LEADER, BrokerRecord, IsrMember, PartitionRecord
from headrace.core.coverage import CoverageRecord, LocalCoverage, ReplicaCoverage
from headrace.metadata import records
from headrace.metadata.store import Cmp, Put
from headrace.sim.electing import MUDDLED_S, SETTLED_S, ElectionObserver
from headrace.sim.history import History
from headrace.sim.tier_history import Elected
from headrace.sim.world import START_WALL_MS, World
from tests.sim.test_truth import TOPIC_ID

TIERED = {"remote.storage.enable": "true", "leader.election.eligible.local.log.ms": "5000"}


class Stage:
    """Nodes 1 to 3 are registered, and 2 leads."""

    def __init__(self) -> None:
        self.world = World(1, 3)
        self.history = History(self.world.loop.time)
        self.muddled_s = -100.0
        self.observer = ElectionObserver(self.world, self.history, ("t",), lambda: self.muddled_s)
        self.epochs = {node: self.write(records.broker_key(node), BrokerRecord("i", "h", 1)) for node in (1, 2, 3)}
        self.write(records.topic_key("t"), records.TopicRecord(TOPIC_ID.hex(), 1), partition=self.led_by(2))
        self.write(records.topic_settings_key("t"), records.OverridesRecord(TIERED))

    def led_by(self, leader: int, recovering: bool = False) -> PartitionRecord:
        isr = tuple(IsrMember(node, self.epochs[node]) for node in (1, 2, 3))
        return PartitionRecord((1, 2, 3), isr, leader, recovering=recovering)

    def write(self, key: bytes, value: Any, partition: PartitionRecord | None = None) -> int:
        puts = [Put(key, records.encode(value))]
        if partition is not None:
            puts.append(Put(records.partition_key(TOPIC_ID, 0), records.encode(partition)))
        data = self.world.data
        result = data.txn([Cmp(p.key, data.kvs[p.key].mod_rev if p.key in data.kvs else 0) for p in puts], puts, [])
        assert result.ok
        return result.rev

    def thin(self, node: int, since_ms: int) -> None:
        local = LocalCoverage(10, START_WALL_MS + since_ms, 1, False)
        record = CoverageRecord(0, (ReplicaCoverage(node, self.epochs[node], local),))
        self.write(records.coverage_key(TOPIC_ID, 0), record)

    def gone(self, node: int) -> None:
        key = records.broker_key(node)
        self.world.data.txn([Cmp(key, self.world.data.kvs[key].mod_rev)], [], [key])

    async def elect(self, leader: int, recovering: bool = False) -> Elected:
        self.write(records.partition_key(TOPIC_ID, 0), self.led_by(leader, recovering))
        await asyncio.sleep(0.1)
        [*_, elected] = self.history.events
        assert isinstance(elected, Elected) and elected.after == leader
        return elected


@pytest.fixture
def stage() -> Stage:
    return Stage()


def play(stage: Stage, main: Coroutine[Any, Any, None]) -> None:
    try:
        stage.world.loop.run(main, 100)
        assert stage.world.loop.failures == []
    finally:
        stage.world.close()


def test_who_is_known_to_be_able_and_thin(stage: Stage) -> None:
    async def main() -> None:
        stage.observer.start()
        stage.thin(1, since_ms=0)
        stage.gone(2)
        await asyncio.sleep(SETTLED_S + 0.1)
        elected = await stage.elect(3)
        assert elected.before == 2 and elected.replicas == (1, 2, 3) and not elected.is_unclean
        assert elected.able == {1, 3} == elected.perhaps_able
        assert elected.thin == {1} and not elected.perhaps_thin
        await asyncio.sleep(5)
        elected = await stage.elect(1)
        assert not elected.thin and not elected.perhaps_thin

    play(stage, main())


def test_what_changed_a_moment_ago_is_not_known(stage: Stage) -> None:
    async def main() -> None:
        stage.observer.start()
        await asyncio.sleep(SETTLED_S + 0.1)
        stage.gone(2)
        stage.thin(1, since_ms=0)
        elected = await stage.elect(3)
        assert elected.able == {1, 3} and elected.perhaps_able == {1, 2, 3}
        assert not elected.thin and elected.perhaps_thin == {1, 2, 3}

    play(stage, main())


def test_nothing_is_known_while_controllers_are_disturbed(stage: Stage) -> None:
    async def main() -> None:
        stage.observer.start()
        await asyncio.sleep(MUDDLED_S)
        stage.muddled_s = stage.world.loop.now_s
        elected = await stage.elect(NO_LEADER)
        assert not elected.able and elected.perhaps_able == {1, 2, 3}
        assert (await stage.elect(1, recovering=True)).is_unclean

    play(stage, main())
