"""Nodes that come, go, and come back with or without their records: who leads, and who is dropped."""

import asyncio
from functools import partial

import pytest

from headrace.controller.controller import NOT_CONTROLLER, Controller
from headrace.controller.isr_changes import Proposal
from headrace.controller.registration import NotRegistered
from headrace.controller.topics import NewTopic, Refusal
from headrace.core.cluster import NO_LEADER, Diff, IsrMember, PartitionRecord
from headrace.errors import ErrorCode
from headrace.metadata import records
from tests.controller.cluster import Nodes

SHORT = {"broker.session.timeout.ms": "1000"}
"""For those who wait for its end."""


async def test_the_next_node_takes_over_when_the_controller_is_gone() -> None:
    nodes = Nodes()
    await nodes.start(0, 1, 2)
    await nodes.topic([[0, 1], [1, 2]])
    first = nodes.nodes[0]
    assert first.is_controller
    await nodes.kill(0, lease_ends=True)
    second = await nodes.controller()
    assert second.ledger.epoch > 0
    await nodes.settled()
    record = nodes.record()
    assert (record.leader, record.leader_epoch, record.isr_ids) == (1, 1, [0, 1])  # the dead one stays in the ISR
    assert await first.create_topics([NewTopic("u")]) == [NOT_CONTROLLER]
    await nodes.stop()


async def test_a_lease_that_runs_out_is_noticed_without_anybody_telling() -> None:
    nodes = Nodes(SHORT)
    await nodes.start(0, 1)
    await nodes.topic([[0, 1]])
    await nodes.kill(0)
    assert (await nodes.controller()).image.node_id == 1
    await nodes.settled()
    assert nodes.record().leader == 1
    await nodes.stop()


async def test_a_deposed_controller_that_does_not_know_it_yet_writes_nothing() -> None:
    """T6-15: it is paused, sees nothing, and decides on the image that it had."""
    nodes = Nodes()
    await nodes.start(0, 1)
    await nodes.topic([[0, 1]])
    old = nodes.nodes[0]
    nodes.stores[0].hold_watch()
    nodes.data.revoke(nodes.pasts[0].lease_id)
    await nodes.until(lambda: nodes.nodes[1].is_controller)
    rev = nodes.data.rev
    assert old.is_controller  # as far as it knows
    outcome = (await old.create_topics([NewTopic("u")], timeout_ms=500))[0]
    assert outcome == NOT_CONTROLLER
    assert not [kv for kv in nodes.data.load(records.TOPICS).kvs if kv.key.endswith(b"u")]
    assert nodes.data.rev >= rev
    nodes.stores[0].hold_watch(False)
    await nodes.stop()


@pytest.mark.parametrize("lease_ends", [True, False])
async def test_a_follower_that_returns_without_its_tail_is_dropped_and_not_elected(lease_ends: bool) -> None:
    """T6-18: also by a controller that was not there when it happened."""
    nodes = Nodes()
    await nodes.start(0, 1, 2)
    await nodes.topic([[0, 1]])
    await nodes.kill(2, lease_ends=True)
    await nodes.kill(1, lease_ends=lease_ends)
    nodes.stores[0].unavailable = True  # the controller writes nothing of it
    await nodes.start(1, is_intact=False)
    await nodes.kill(0)
    nodes.data.revoke(nodes.pasts[0].lease_id)
    assert (await nodes.controller()).image.node_id == 1
    await nodes.settled()
    record = nodes.record()
    assert (record.leader, record.isr_ids) == (NO_LEADER, [0])
    await nodes.start(0)
    await nodes.settled()
    assert (nodes.record().leader, nodes.record().isr) == (0, (nodes.entry(0),))
    await nodes.stop()


async def test_a_follower_that_was_killed_and_kept_its_log_stays_and_may_lead() -> None:
    """T6-22, with the page cache of the same boot."""
    nodes = Nodes()
    await nodes.start(0, 1)
    await nodes.topic([[0, 1]])
    for _ in range(3):  # also again and again
        await nodes.kill(1)
        await nodes.start(1)
    await nodes.settled()
    assert nodes.record().isr_ids == [0, 1]
    await nodes.kill(0, lease_ends=True)
    await nodes.controller()
    await nodes.settled()
    assert nodes.record().leader == 1
    assert nodes.entry(1) in nodes.record().isr
    await nodes.stop()


@pytest.mark.parametrize("step", range(3))
async def test_a_start_that_dies_at_any_step_does_not_change_the_verdict(step: int) -> None:
    """T6-22: before its lease is noted down, before its key, and before its epoch is noted down."""
    nodes = Nodes()
    await nodes.start(0, 1)
    await nodes.topic([[0, 1]])
    await nodes.kill(1)
    remembered = 0

    def remember_and_die(past: object) -> None:
        nonlocal remembered
        remembered += 1
        if remembered > step:
            raise OSError("it died here")
        nodes.pasts[1] = past  # type: ignore[assignment]  # what a directory is given

    with pytest.raises(OSError):
        await start_with(nodes, 1, remember_and_die)
    await nodes.start(1)
    await nodes.settled()
    assert nodes.record().isr_ids == [0, 1]
    await nodes.kill(0, lease_ends=True)
    await nodes.settled()
    assert nodes.record().leader == 1
    await nodes.stop()


async def start_with(nodes: Nodes, node_id: int, remember: object) -> None:
    original = Controller.register

    async def register(self: Controller, *args: object, **more: object) -> None:
        self.registration.remember = remember  # type: ignore[assignment]  # it may raise
        await original(self, *args, **more)  # type: ignore[arg-type]  # passed on as they came

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Controller, "register", register)
        try:
            await nodes.start(node_id)
        except OSError:
            await nodes.nodes.pop(node_id).abandon()
            await nodes.stores[node_id].close()
            raise


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("first", [0, 1])
async def test_a_whole_log_that_is_away_is_waited_for(first: int, at_once: bool) -> None:
    """T6-19 in either order, event by event and in one pass: 0's lease ends, 1 returns without its tail."""
    nodes = Nodes()
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1]])
    nodes.stores[2].hold_watch(at_once)
    if first == 0:
        await nodes.kill(0, lease_ends=True)
        await nodes.kill(1)
        await nodes.start(1, is_intact=False)
    else:
        await nodes.kill(1)
        await nodes.start(1, is_intact=False)
        await nodes.kill(0, lease_ends=True)
    nodes.stores[2].hold_watch(False)
    await nodes.settled()
    assert (nodes.record().leader, nodes.record().isr_ids) == (NO_LEADER, [0])
    await nodes.start(0)
    await nodes.settled()
    assert nodes.record().leader == 0
    await nodes.stop()


async def test_members_that_shut_down_leave_the_isr_to_its_leader() -> None:
    """T6-20: 0's machine is dead, its lease runs on; it comes back first, without its tail."""
    nodes = Nodes()
    await nodes.start(3, 0, 1, 2)
    await nodes.topic([[0, 1, 2]])
    nodes.answer = lambda broker_id: None if broker_id == 0 else ErrorCode.NONE
    await nodes.kill(0)
    for node_id in (1, 2):
        await nodes.nodes[node_id].leave(0.05)
        await nodes.kill(node_id, lease_ends=True)
    assert nodes.record().isr_ids == [0, 1, 2]
    await nodes.start(0, is_intact=False)
    await nodes.settled()
    assert (nodes.record().leader, nodes.record().isr_ids) == (NO_LEADER, [1, 2])
    await nodes.stop()


@pytest.mark.parametrize("how", ["lost leases", "stopped, then killed"])
async def test_two_intact_registrations_in_a_row_are_as_good_as_one(how: str) -> None:
    """T6-21, and the other member is reborn meanwhile; no controller is there to write anything."""
    nodes = Nodes()
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1]])
    await nodes.settled()
    entry = nodes.entry(1)
    await nodes.kill(2)  # its lease runs on, so that nobody else decides
    for n in range(2):
        before = nodes.nodes[1].registration.epoch
        if how == "lost leases":
            nodes.data.revoke(nodes.pasts[1].lease_id)
        elif n == 0:
            await nodes.nodes.pop(1).stop()
            await nodes.start(1)
        else:
            await nodes.kill(1)
            await nodes.start(1)
        await nodes.until(partial(lambda old: nodes.nodes[1].registration.epoch > old, before))
    await nodes.kill(0, lease_ends=True)
    await nodes.start(0, is_intact=False)
    assert entry in nodes.record().isr and nodes.entry(1) != entry
    nodes.data.revoke(nodes.pasts[2].lease_id)
    await nodes.controller()
    await nodes.settled()
    assert (nodes.record().leader, nodes.record().isr) == (1, (nodes.entry(1),))
    await nodes.stop()


async def test_a_directory_put_back_from_a_copy_is_not_intact() -> None:
    """T6-24: it remembers an older epoch than the entries name."""
    nodes = Nodes()
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1]])
    await nodes.kill(1, lease_ends=True)
    copied = nodes.pasts[1]
    await nodes.start(1)
    await nodes.settled()
    controller = nodes.nodes[2]
    # Node 1 leaves the ISR and joins it again, under its present epoch.
    for isr in ([nodes.entry(0)], [nodes.entry(0), nodes.entry(1)]):
        record = nodes.record()
        (outcome,) = await propose(nodes, 0, isr, record)
        assert isinstance(outcome, PartitionRecord)
    await nodes.settled()
    await nodes.kill(1, lease_ends=True)
    nodes.pasts[1] = copied
    await nodes.start(1)
    await nodes.settled()
    assert nodes.record().isr_ids == [0]
    assert controller.is_controller
    await nodes.stop()


async def propose(
    nodes: Nodes, leader: int, isr: list[IsrMember], record: PartitionRecord, resume: bool = False
) -> list[PartitionRecord | ErrorCode]:
    controller = await nodes.controller()
    topic = controller.image.topics["t"]
    proposal = Proposal(topic.id, 0, record.leader_epoch, isr, False, record.partition_epoch, resume)
    epoch = nodes.nodes[leader].registration.epoch
    outcome = await controller.alter_partitions(leader, epoch, [proposal])
    assert isinstance(outcome, list), outcome
    await nodes.nodes[min(nodes.nodes)].feed.reached(nodes.data.rev)
    return outcome


async def test_of_a_proposal_and_its_resumption_only_one_is_written() -> None:
    """T6-16: a delayed copy comes after its 107."""
    nodes = Nodes()
    await nodes.start(0, 1)
    await nodes.topic([[0, 1]])
    await nodes.settled()
    record = nodes.record()
    (record_without,) = await propose(nodes, 0, [nodes.entry(0)], record)
    assert isinstance(record_without, PartitionRecord)
    stale = IsrMember(1, 1)
    assert await propose(nodes, 0, [nodes.entry(0), stale], record_without) == [ErrorCode.INELIGIBLE_REPLICA]
    (resumed,) = await propose(nodes, 0, [nodes.entry(0)], record_without, resume=True)
    assert isinstance(resumed, PartitionRecord)
    assert resumed.partition_epoch == record_without.partition_epoch + 1
    copy = await propose(nodes, 0, [nodes.entry(0), nodes.entry(1)], record_without)
    assert copy == [ErrorCode.INVALID_UPDATE_VERSION]
    await nodes.stop()


@pytest.mark.parametrize("next_controller", [False, True])
@pytest.mark.parametrize("copy_first", [False, True])
async def test_a_late_copy_of_a_proposal_and_its_resumption_are_not_both_written(
    next_controller: bool, copy_first: bool
) -> None:
    """T6-16: the member may join by then, and the copy may reach another controller."""
    nodes = Nodes()
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1]])
    await nodes.settled()
    (alone,) = await propose(nodes, 0, [nodes.entry(0)], nodes.record())
    assert isinstance(alone, PartitionRecord)
    joining = [nodes.entry(0), nodes.entry(1)]
    assert await propose(nodes, 0, [nodes.entry(0), IsrMember(1, 1)], alone) == [ErrorCode.INELIGIBLE_REPLICA]
    if next_controller:
        await nodes.kill(2, lease_ends=True)
    ways = [(joining, False), ([nodes.entry(0)], True)]
    outcomes = []
    for isr, resume in ways if copy_first else reversed(ways):
        outcomes += await propose(nodes, 0, isr, alone, resume=resume)
    written, refused = outcomes
    assert isinstance(written, PartitionRecord) and refused is ErrorCode.INVALID_UPDATE_VERSION
    assert written.isr_ids == ([0, 1] if copy_first else [0])
    assert written.partition_epoch == alone.partition_epoch + 1
    await nodes.stop()


async def test_two_processes_with_one_number_never_run_together() -> None:
    """T6-7: the second, on a copied directory, gives up; the first never notices."""
    nodes, copy = Nodes(SHORT), Nodes(SHORT)
    await nodes.start(0)
    epoch = nodes.nodes[0].registration.epoch
    copy.data, copy.pasts = nodes.data, dict(nodes.pasts)
    with pytest.raises(NotRegistered, match="registered as node 0"):
        await copy.start(0, origin="another machine")
    assert nodes.nodes[0].registration.epoch == epoch
    assert nodes.nodes[0].lease_valid()
    assert nodes.usurped == []
    await copy.nodes[0].abandon()
    await nodes.stop()


async def test_a_node_whose_lease_was_lost_registers_again_and_leads_under_a_new_epoch() -> None:
    nodes = Nodes()
    await nodes.start(0)
    await nodes.topic([[0]])
    node = nodes.nodes[0]
    before = node.registration.epoch
    nodes.data.revoke(nodes.pasts[0].lease_id)
    await nodes.until(lambda: node.registration.epoch > before and node.is_controller)
    await nodes.settled()
    assert nodes.record().isr == (nodes.entry(0),)
    assert nodes.record().leader_epoch > 0
    assert node.registration.past.intact_since == nodes.pasts[0].intact_since <= before
    await nodes.stop()


async def test_an_office_that_falls_vacant_while_a_node_registers_again_is_taken() -> None:
    """Its registration and the vacancy come to its notice before it counts as registered."""
    nodes = Nodes()
    await nodes.start(0, 1)
    node, before = nodes.nodes[1], nodes.nodes[1].registration.epoch
    nodes.stores[1].hold_watch()
    await nodes.kill(0, lease_ends=True)
    nodes.data.revoke(nodes.pasts[1].lease_id)
    await nodes.until(lambda: nodes.pasts[1].broker_epoch > before)  # it waits to see its own key
    nodes.stores[1].hold_watch(False)
    await nodes.until(lambda: node.is_controller)
    await nodes.stop()


async def test_a_node_that_cannot_follow_the_metadata_any_more_ends() -> None:
    """Otherwise it would keep its lease, and be elected, and never know of it."""
    nodes = Nodes(SHORT)
    await nodes.start(0)
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))

    def fail(_: Diff) -> None:
        raise ZeroDivisionError("on purpose")

    nodes.nodes[0].listen(fail)
    await nodes.nodes[0].create_topics([NewTopic("t")], timeout_ms=1)
    await nodes.until(lambda: nodes.usurped)
    assert "on purpose" in nodes.usurped[0] and reported
    await nodes.stop()


async def test_a_node_that_finds_another_incarnation_under_its_number_ends() -> None:
    nodes = Nodes(SHORT)
    await nodes.start(0)
    other = Nodes(SHORT)
    other.data = nodes.data
    lease_id = nodes.pasts[0].lease_id
    nodes.stores[0].hold_watch()
    nodes.stores[0].beats_lost = True
    nodes.data.revoke(lease_id)
    await other.start(0, origin="another machine")
    nodes.stores[0].hold_watch(False)
    await nodes.until(lambda: nodes.usurped)
    assert not nodes.nodes[0].lease_valid()
    assert other.usurped == []
    await nodes.stop()
    await other.stop()


async def test_a_node_whose_number_is_taken_ends_and_does_not_wait_until_it_is_free_again() -> None:
    """It was registered, and lost that: whoever has its number since then has what came since."""
    nodes, other = Nodes(), Nodes()
    await nodes.start(0)
    other.data = nodes.data
    nodes.stores[0].hold_watch()
    nodes.data.revoke(nodes.pasts[0].lease_id)
    await other.start(0, origin="another machine")
    nodes.stores[0].hold_watch(False)
    await nodes.until(lambda: nodes.usurped)
    await other.kill(0, lease_ends=True)
    await asyncio.sleep(0.3)
    assert not nodes.nodes[0].registration.epoch
    assert not nodes.data.load(records.broker_key(0)).kvs
    await nodes.stop()


async def test_replicas_on_a_failed_disk_lose_their_leaderships_and_are_told_again_after_a_lost_lease() -> None:
    nodes = Nodes()
    await nodes.start(2, 0, 1)
    await nodes.topic([[0, 1], [0, 1]])
    topic_id = nodes.nodes[0].image.topics["t"].id
    nodes.nodes[0].lost_data()
    await nodes.nodes[0].announce_offline(frozenset({(topic_id, 1)}))
    await nodes.settled()
    assert (nodes.record(0).leader, nodes.record(1).leader) == (0, 1)
    before = nodes.nodes[0].registration.epoch
    nodes.data.revoke(nodes.pasts[0].lease_id)
    await nodes.until(lambda: nodes.nodes[0].registration.epoch > before)
    await nodes.until(lambda: nodes.nodes[2].image.offline == {0: frozenset({(topic_id, 1)})})
    await nodes.settled()
    assert nodes.record(0).isr_ids == [1]  # not intact any more, while an intact one is there
    await nodes.stop()


async def test_a_controlled_shutdown_moves_leaderships_after_asking() -> None:
    nodes = Nodes()
    await nodes.start(0, 1, 2)
    await nodes.topic([[0, 1], [0, 2]])
    await nodes.settled()
    await nodes.nodes[0].leave(10)
    assert [nodes.record(n).leader for n in range(2)] == [1, 2]
    assert {(broker, of.partition) for broker, of in nodes.stepped_down} == {(0, 0), (0, 1)}
    await nodes.nodes.pop(0).stop()
    await nodes.settled()
    assert [nodes.record(n).isr_ids for n in range(2)] == [[0, 1], [0, 2]]  # only leaders shrink an ISR
    await nodes.stop()


async def test_a_node_that_is_alone_leaves_at_once() -> None:
    nodes = Nodes()
    await nodes.start(0)
    await nodes.topic([[0]])
    await nodes.nodes[0].leave(60)
    assert nodes.record().leader == 0
    assert not nodes.nodes[0].image.brokers[0].is_shutting_down
    await nodes.stop()


async def test_a_request_to_a_controller_that_the_store_does_not_answer_is_not_known() -> None:
    nodes = Nodes()
    await nodes.start(0, 1)
    await nodes.topic([[0, 1]])
    nodes.stores[0].unavailable = True
    (outcome,) = await nodes.nodes[0].create_topics([NewTopic("u")], timeout_ms=100)
    assert outcome is None or isinstance(outcome, Refusal)
    await asyncio.sleep(0)
    await nodes.stop()
