"""Who asks for leaders while one dies is told of its successor, if that comes soon, and loses nobody too early."""

import asyncio

from headrace.broker.absences import ELECTION_MS, LISTED_MS, LOOKED_AT_MAX, Absences
from headrace.config import BrokerConfig, TopicConfig
from headrace.core.cluster import ClusterImage, IsrMember, PartitionRecord, RegisteredBroker, Topic
from tests.broker.stepped import SteppedClock

NODES = {number: RegisteredBroker(number, 10 + number, "h", number, None) for number in (1, 2, 3)}


def led_by(leader: int) -> Topic:
    record = PartitionRecord((1, 2, 3), (IsrMember(leader, 10 + leader),), leader)
    return Topic("t", bytes(16), [record], 1, [1], {}, 0, TopicConfig.resolve(BrokerConfig(), {}))


class Case:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.image = ClusterImage(1, {})
        self.image.brokers.update(NODES)
        self.absences = Absences(self.image, self.clock)

    def goes(self, node: int) -> None:
        del self.image.brokers[node]
        self.absences.nodes_changed({node})

    def pass_ms(self, ms: int) -> None:
        self.clock.now_ms += ms

    def listed(self) -> list[int]:
        return sorted(broker.id for broker in self.absences.listed())


def test_while_all_is_well_nobody_waits() -> None:
    case = Case()
    assert not case.absences.awaiting_election([led_by(1), led_by(2)])
    assert case.listed() == [1, 2, 3]


def test_a_leader_that_has_gone_is_about_to_be_replaced() -> None:
    case = Case()
    case.goes(2)
    assert case.absences.awaiting_election([led_by(1), led_by(2)])
    assert not case.absences.awaiting_election([led_by(1)])
    case.pass_ms(ELECTION_MS)
    assert not case.absences.awaiting_election([led_by(2)])


def test_a_leader_that_stopped_answering_may_be_dead() -> None:
    case = Case()
    case.absences.stopped_answering(2)
    assert case.absences.awaiting_election([led_by(2)])
    case.pass_ms(ELECTION_MS)
    assert not case.absences.awaiting_election([led_by(2)])


def test_a_node_that_has_gone_is_listed_for_a_while_and_not_twice_when_it_is_back() -> None:
    case = Case()
    case.goes(3)
    assert case.listed() == [1, 2, 3]
    case.pass_ms(LISTED_MS)
    assert case.listed() == [1, 2]
    case.goes(2)
    back = case.image.brokers[2] = NODES[2]._replace(epoch=99)
    case.absences.nodes_changed({2})
    assert case.listed() == [1, 2]
    assert back in case.absences.listed()


async def test_nobody_waits_longer_than_that_though_nodes_go_on_falling_silent() -> None:
    case = Case()
    case.absences.stopped_answering(2)
    waiting = asyncio.ensure_future(case.absences.await_election([led_by(2)]))
    async with asyncio.timeout(30):
        for _ in range(ELECTION_MS // 20):
            await asyncio.sleep(0.001)
            assert not waiting.done()
            case.pass_ms(20)
            case.absences.stopped_answering(2)
        await waiting


async def test_who_asks_for_very_many_partitions_is_answered_at_once() -> None:
    case = Case()
    case.goes(2)
    topic = led_by(2)
    topic.partitions[:] = topic.partitions * (LOOKED_AT_MAX + 1)
    async with asyncio.timeout(30):
        await case.absences.await_election([topic])  # time stands still


async def test_waiting_ends_with_the_election() -> None:
    case = Case()
    topic = led_by(2)
    case.goes(2)
    waiting = asyncio.ensure_future(case.absences.await_election([topic]))
    await asyncio.sleep(0)
    assert not waiting.done()
    topic.partitions[0] = led_by(3).partitions[0]
    async with asyncio.timeout(30):
        await waiting
