"""Leaderships that are moved on purpose: whom the controller asks, and when it moves nothing."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.controller import moves
from headrace.controller.controller import Controller, Elected
from headrace.core.cluster import NO_LEADER
from headrace.errors import ErrorCode
from headrace.metadata.memory import Fault
from tests.controller.cluster import Nodes


async def led_by_the_second(nodes: Nodes, partitions: int = 1) -> Controller:
    """Partitions of t with replicas 0 and 1, led by 1; 2 is the controller."""
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1]] * partitions)
    await nodes.kill(0, lease_ends=True)
    await nodes.settled()
    await nodes.start(0)
    await nodes.settled()
    assert nodes.record().leader == 1
    return await nodes.controller()


async def test_a_preferred_election_asks_the_leader_and_moves() -> None:
    nodes = Nodes()
    controller = await led_by_the_second(nodes)
    record = nodes.record()
    assert await controller.elect_leaders("preferred", [("t", 0), ("t", 7), ("u", 0)]) == [
        Elected("t", 0, ErrorCode.NONE),
        Elected("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        Elected("u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert [(broker, of.partition_epoch) for broker, of in nodes.stepped_down] == [(1, record.partition_epoch)]
    assert (nodes.record().leader, nodes.record().leader_epoch) == (0, record.leader_epoch + 1)
    assert await controller.elect_leaders("preferred", [("t", 0)]) == [Elected("t", 0, ErrorCode.ELECTION_NOT_NEEDED)]
    assert await controller.elect_leaders("preferred", None) == []
    await nodes.stop()


async def test_without_an_answer_nothing_moves() -> None:
    """T7-3."""
    nodes = Nodes()
    controller = await led_by_the_second(nodes)
    nodes.answer = lambda _: None
    record = nodes.record()
    outcome = await controller.elect_leaders("preferred", [("t", 0)])
    assert outcome == [Elected("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    assert nodes.record() == record
    assert controller.moves.counts["step downs without answer"] == 1
    await nodes.stop()


async def test_many_leaderships_move_in_batches_and_a_silent_leader_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stops serving all that it is asked about, and has two seconds for it."""
    monkeypatch.setattr(moves, "MOVES_AT_ONCE", 2)
    nodes = Nodes()
    controller = await led_by_the_second(nodes, partitions=5)
    nodes.answer = lambda _: None
    outcome = await controller.elect_leaders("preferred", None)
    assert outcome == [Elected("t", index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE) for index in range(5)]
    assert [of.partition for _, of in nodes.stepped_down] == [0, 1]
    nodes.stepped_down.clear()
    led: list[list[int]] = []

    def note(_: int) -> ErrorCode:
        led.append([nodes.record(index).leader for index in range(5)])
        return ErrorCode.NONE

    nodes.answer = note
    outcome = await controller.elect_leaders("preferred", None)
    assert outcome == [Elected("t", index, ErrorCode.NONE) for index in range(5)]
    assert [of.partition for _, of in nodes.stepped_down] == [0, 1, 2, 3, 4]
    assert led == [[1] * 5, [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]]
    await nodes.stop()


async def test_a_leader_that_says_no_is_not_moved() -> None:
    nodes = Nodes()
    controller = await led_by_the_second(nodes)
    nodes.answer = lambda _: ErrorCode.INVALID_UPDATE_VERSION
    record = nodes.record()
    (outcome,) = await controller.elect_leaders("preferred", [("t", 0)])  # type: ignore[misc]  # it is the controller
    assert outcome.error is not ErrorCode.NONE
    assert nodes.record() == record
    await nodes.stop()


async def test_a_preferred_replica_out_of_sync_leaves_the_leader_alone() -> None:
    """T7-1."""
    nodes = Nodes()
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1]])
    await nodes.kill(0, lease_ends=True)
    await nodes.start(0, is_intact=False)
    await nodes.settled()
    controller = await nodes.controller()
    assert (nodes.record().leader, nodes.record().isr_ids) == (1, [1])
    outcome = await controller.elect_leaders("preferred", [("t", 0)])
    assert outcome == [Elected("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    assert nodes.stepped_down == []
    await nodes.stop()


async def test_without_a_valid_replica_there_is_no_leader_unless_records_may_be_lost() -> None:
    """T7-2."""
    for unclean in (False, True):
        nodes = Nodes()
        more = {"unclean_leader_election_enable": "true"} if unclean else {}
        await nodes.start(2, 0, 1)
        await nodes.topic([[0, 1]], **more)
        await nodes.kill(1)
        await nodes.start(1, is_intact=False)  # drops out of the ISR
        await nodes.settled()
        await nodes.kill(0, lease_ends=True)
        await nodes.settled()
        record = nodes.record()
        assert (record.leader, record.recovering) == ((1, True) if unclean else (NO_LEADER, False))
        controller = await nodes.controller()
        if not unclean:
            assert await controller.elect_leaders("unclean", None) == [Elected("t", 0, ErrorCode.NONE)]
            await nodes.settled()
            assert (nodes.record().leader, nodes.record().recovering) == (1, True)
        assert controller.elections.held["unclean"] == 1  # whether or not somebody asked for it
        await nodes.stop()


async def test_the_rebalancer_gives_leaderships_back() -> None:
    nodes = Nodes({"leader.imbalance.check.interval.seconds": "1"})
    await led_by_the_second(nodes)
    await nodes.until(lambda: nodes.record().leader == 0)
    await nodes.stop()


async def test_leaders_that_do_not_answer_keep_nobody_else_from_giving_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are of them: a pass of the rebalancer begins with those that the last one did not try."""
    monkeypatch.setattr("headrace.controller.duties.MOVES_MAX", 1)
    nodes = Nodes({"leader.imbalance.check.interval.seconds": "1"})
    nodes.answer = lambda broker_id: None if broker_id == 1 else ErrorCode.NONE
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1], [0, 2]])
    await nodes.kill(0, lease_ends=True)
    await nodes.settled()
    assert [nodes.record(index).leader for index in (0, 1)] == [1, 2]
    await nodes.start(0)
    await nodes.until(lambda: nodes.record(1).leader == 0)
    assert nodes.record(0).leader == 1 and nodes.stepped_down[0][0] == 1
    await nodes.stop()


async def test_a_move_in_doubt_is_settled_before_anything_is_said_of_it() -> None:
    """T7-4: the late write does not apply once another has."""
    for fault in (Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_DROPPED, Fault.UNKNOWN_LATE):
        nodes = Nodes()
        controller = await led_by_the_second(nodes)
        nodes.stores[2].faults.append(fault)
        assert await controller.elect_leaders("preferred", [("t", 0)]) == [Elected("t", 0, ErrorCode.NONE)]
        assert nodes.record().leader == 0
        assert True not in nodes.stores[2].apply_late()
        await nodes.settled()
        assert nodes.record().leader == 0
        await nodes.stop()


fates = st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from([None, *Fault])), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(fates)
def test_whatever_the_store_hides_no_member_with_all_records_is_passed_over(
    script: list[tuple[int, Fault | None]],
) -> None:
    """T6-8: nodes 0 and 1 come and go, losing nothing; every write of the controller may be late. The ISR stays."""
    asyncio.run(come_and_go(script))


async def come_and_go(script: list[tuple[int, Fault | None]]) -> None:
    nodes = Nodes()
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1]])
    nodes.stores[2].late_ms = 20
    epochs = [nodes.record().leader_epoch]
    for node_id, fault in script:
        nodes.stores[2].faults.extend([fault, None, fault])
        await nodes.kill(node_id, lease_ends=True)
        await nodes.settled()
        record = nodes.record()
        assert record.leader == 1 - node_id
        await nodes.start(node_id)
        await nodes.settled()
        assert nodes.record().isr_ids == [0, 1]
        assert nodes.entry(nodes.record().leader) in nodes.record().isr
        epochs.append(nodes.record().leader_epoch)
        nodes.stores[2].faults.clear()
        nodes.stores[2].apply_late()
    await asyncio.sleep(0.03)
    await nodes.settled()
    assert nodes.record().isr_ids == [0, 1]
    assert nodes.entry(nodes.record().leader) in nodes.record().isr
    assert epochs == sorted(epochs)
    await nodes.stop()
