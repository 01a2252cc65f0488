"""KIP-1303 at the controller: what leaders report of replicas' own disks, and what elections make of it."""

import time
from collections.abc import Mapping

import pytest

from headrace.controller.config_changes import DONE, EditsOf
from headrace.controller.configs import Edit, EditKind
from headrace.controller.controller import Controller, Elected
from headrace.controller.isr_changes import Proposal
from headrace.core.cluster import PartitionRecord
from headrace.core.coverage import LocalCoverage
from headrace.core.thin import thin_of, why
from headrace.errors import ErrorCode
from headrace.metadata import records
from headrace.metadata.memory import Fault
from tests.controller.cluster import Nodes

MS = "leader.election.eligible.local.log.ms"
BYTES = "leader.election.eligible.local.log.bytes"
HOUR = 3_600_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def fresh(since_ms: int | None = None, local_bytes: int = 0, at_local_retention: bool = False) -> LocalCoverage:
    return LocalCoverage(500, wall_ms() if since_ms is None else since_ms, local_bytes, at_local_retention)


OLD = LocalCoverage(0, 0, 1 << 30, False)


async def tiered(settings: Mapping[str, str], leader: int = 1, **topic: str) -> tuple[Nodes, Controller]:
    """Partition t-0 with replicas 1, 2, 3, all in sync; 0 is the controller."""
    slow = {"leader.imbalance.check.interval.seconds": "1", "auto.leader.rebalance.enable": "false"}
    with_tier = {"remote.log.storage.system.enable": "true", "remote.storage.url": "/objects"}
    nodes = Nodes({**slow, **with_tier, **settings})
    await nodes.start(0, 1, 2, 3)
    replicas = [leader, *(n for n in (1, 2, 3) if n != leader)]
    await nodes.topic([replicas], remote_storage_enable="true", **topic)
    return nodes, await nodes.controller()


async def report(nodes: Nodes, coverage: Mapping[int, LocalCoverage], log_start: int = 0) -> ErrorCode:
    """By the leader, with nothing else to change."""
    controller, record = await nodes.controller(), nodes.record()
    return await propose(nodes, controller, record, record, coverage, log_start)


async def propose(
    nodes: Nodes,
    controller: Controller,
    record: PartitionRecord,
    wanted: PartitionRecord,
    coverage: Mapping[int, LocalCoverage],
    log_start: int = 0,
) -> ErrorCode:
    topic, epoch = controller.image.topics["t"], nodes.nodes[record.leader].registration.epoch
    proposal = Proposal(
        topic.id, 0, record.leader_epoch, wanted.isr, False, record.partition_epoch, False, coverage, log_start
    )
    outcome = await controller.alter_partitions(record.leader, epoch, [proposal])
    assert isinstance(outcome, list)
    return outcome[0] if isinstance(outcome[0], ErrorCode) else ErrorCode.NONE


def setting(name: str, text: str) -> EditsOf:
    return lambda _: [Edit(name, EditKind.SET, text)]


def thin_at(controller: Controller, now_ms: int | None = None) -> frozenset[int]:
    return thin_of(controller.image, controller.image.topics["t"], 0, wall_ms() if now_ms is None else now_ms)


async def test_a_report_changes_no_partition_record_and_the_same_one_twice_writes_once() -> None:
    """T1303-11: the next change of the ISR finds the partition epoch that it knows."""
    nodes, controller = await tiered({MS: str(HOUR)})
    record, told = nodes.record(), {1: OLD, 2: fresh(), 3: OLD}
    assert await report(nodes, told) is ErrorCode.NONE
    assert nodes.record() == record
    assert thin_at(controller) == {2}
    rev = nodes.data.rev
    assert await report(nodes, told) is ErrorCode.NONE
    assert (nodes.data.rev, controller.coverage_reports) == (rev, 1)
    shrunk = PartitionRecord(record.replicas, record.isr[:2], record.leader)
    assert await propose(nodes, controller, record, shrunk, {}) is ErrorCode.NONE
    assert nodes.record().isr_ids == record.isr_ids[:2]
    await nodes.stop()


async def test_the_leader_dies_and_the_thin_replica_is_passed_over() -> None:
    """T1303-1; and a replica that stands alone leads, T1303-5."""
    nodes, controller = await tiered({MS: str(HOUR)})
    assert await report(nodes, {1: OLD, 2: fresh(), 3: OLD}) is ErrorCode.NONE
    await nodes.kill(1, lease_ends=True)
    await nodes.settled()
    assert (nodes.record().leader, controller.elections.deprioritized) == (3, 1)
    await nodes.kill(3, lease_ends=True)
    await nodes.settled()
    assert (nodes.record().leader, controller.elections.deprioritized) == (2, 1)
    await nodes.stop()


async def test_a_topic_that_is_not_tiered_or_has_no_threshold_is_led_as_ever() -> None:
    """T1303-6, T1303-7."""
    nodes, controller = await tiered({MS: str(HOUR)}, leader_election_eligible_local_log_ms="-1")
    assert await report(nodes, {1: OLD, 2: fresh(), 3: OLD}) is ErrorCode.NONE
    assert thin_at(controller) == frozenset()
    await nodes.kill(1, lease_ends=True)
    await nodes.settled()
    assert (nodes.record().leader, controller.elections.deprioritized) == (2, 0)
    await nodes.stop()


async def test_the_next_controller_knows_what_was_reported() -> None:
    """T1303-12."""
    nodes, _ = await tiered({MS: str(HOUR)})
    assert await report(nodes, {1: OLD, 2: fresh(), 3: OLD}) is ErrorCode.NONE
    await nodes.kill(0, lease_ends=True)
    successor = await nodes.controller()
    await nodes.settled()
    assert thin_at(successor) == {2}
    await nodes.start(4)
    await nodes.until(lambda: nodes.nodes[4].image.coverage == successor.image.coverage)
    await nodes.kill(1, lease_ends=True)
    await nodes.settled()
    assert nodes.record().leader == 3
    await nodes.stop()


async def test_the_first_replica_waits_until_it_is_not_thin_any_more_and_gets_leadership_back() -> None:
    """T1303-2, T1303-13: nothing moves before, and then it moves once."""
    nodes, controller = await tiered({MS: "1500", "auto.leader.rebalance.enable": "true"})
    assert await report(nodes, {1: fresh(wall_ms() + HOUR), 2: OLD, 3: OLD}) is ErrorCode.NONE
    await nodes.kill(1, lease_ends=True)
    await nodes.settled()
    assert nodes.record().leader == 2
    await nodes.start(1)
    await nodes.settled()
    outcome = await controller.elect_leaders("preferred", [("t", 0)])
    assert outcome == [Elected("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    assert why(controller.image, controller.image.topics["t"], 0, wall_ms())["held_back"]
    epoch = nodes.record().leader_epoch
    assert await report(nodes, {1: fresh(), 2: OLD, 3: OLD}) is ErrorCode.NONE
    await nodes.until(lambda: nodes.record().leader == 1)
    assert nodes.record().leader_epoch == epoch + 1
    await nodes.stop()


async def test_a_thin_leader_gives_way_at_the_next_check_to_one_that_is_not() -> None:
    """T1303-14."""
    nodes, controller = await tiered({MS: str(HOUR)})
    for gone in (1, 2):
        await nodes.kill(gone, lease_ends=True)
        await nodes.settled()
    await nodes.start(1, 2)
    await nodes.settled()
    assert nodes.record().leader == 3
    assert await report(nodes, {1: fresh(), 2: OLD, 3: fresh()}) is ErrorCode.NONE
    assert nodes.record().leader == 3, "nobody is demoted for a report"
    assert await controller.elect_leaders("preferred", [("t", 0)]) == [Elected("t", 0, ErrorCode.NONE)]
    assert nodes.record().leader == 2
    await nodes.stop()


async def test_a_threshold_that_changes_acts_on_the_next_election() -> None:
    """T1303-20."""
    nodes, controller = await tiered({})
    assert await report(nodes, {1: OLD, 2: fresh(local_bytes=10), 3: OLD}) is ErrorCode.NONE
    assert thin_at(controller) == frozenset()

    assert await controller.alter_topic_settings("t", setting(BYTES, "11")) == DONE
    assert thin_at(controller) == {2}
    await nodes.stop()


async def test_what_rides_on_a_joining_replica_is_known_before_it_can_be_elected() -> None:
    nodes, controller = await tiered({MS: str(HOUR)})
    record = nodes.record()
    without = PartitionRecord(record.replicas, (record.isr[0], record.isr[2]), record.leader)
    assert await propose(nodes, controller, record, without, {1: OLD, 3: OLD}) is ErrorCode.NONE
    record = nodes.record()
    joined = PartitionRecord(record.replicas, (*record.isr, nodes.entry(2)), record.leader)
    key = controller.image.topics["t"].id, 0
    assert await propose(nodes, controller, record, joined, {1: OLD, 2: fresh(), 3: OLD}) is ErrorCode.NONE
    record_rev = controller.image.topics["t"].partition_revs[0]
    assert record_rev == controller.image.coverage[key].rev, "both are written by one transaction"
    assert thin_at(controller) == {2}
    await nodes.stop()


async def test_values_of_a_replica_that_lost_its_log_are_deleted_and_with_the_topic_the_key() -> None:
    nodes, controller = await tiered({MS: str(HOUR)})
    assert await report(nodes, {1: OLD, 2: fresh(), 3: fresh()}) is ErrorCode.NONE
    await nodes.kill(2, lease_ends=True)
    await nodes.kill(3, lease_ends=True)
    await nodes.start(3)
    await nodes.start(2, is_intact=False)
    topic = controller.image.topics["t"]

    def remembered() -> list[int]:
        return [known.broker_id for known in controller.image.coverage[topic.id, 0].record.replicas]

    await nodes.until(lambda: remembered() == [1, 3])
    assert thin_at(controller) == {3}
    await controller.delete_topics([topic.id])
    await nodes.until(lambda: not nodes.data.load(records.COVERAGE).kvs)
    await nodes.stop()


async def test_a_report_of_unknown_outcome_does_no_harm() -> None:
    nodes, controller = await tiered({MS: str(HOUR)})
    nodes.stores[0].faults.append(Fault.UNKNOWN_APPLIED)
    told = {1: OLD, 2: fresh(), 3: OLD}
    assert await report(nodes, told) is ErrorCode.REQUEST_TIMED_OUT, "the leader tells it again"
    assert await report(nodes, told) is ErrorCode.NONE
    assert thin_at(controller) == {2}
    await nodes.stop()


async def test_why_tells_who_leads_and_who_is_passed_over_for_what_and_until_when() -> None:
    nodes, controller = await tiered({MS: str(HOUR), BYTES: "1000"})
    since_ms = wall_ms()
    assert await report(nodes, {1: fresh(since_ms, local_bytes=7), 2: OLD, 3: fresh(at_local_retention=True)}) is (
        ErrorCode.NONE
    )
    image, topic = controller.image, controller.image.topics["t"]
    told = why(image, topic, 0, since_ms + 60_000)
    assert (told["leader"], told["because"], told["held_back"]) == (1, "it is the first replica", False)
    await nodes.kill(1, lease_ends=True)
    await nodes.settled()
    await nodes.start(1)
    await nodes.settled()
    told = why(image, topic, 0, since_ms + 60_000)
    assert (told["leader"], told["held_back"]) == (2, True)
    assert told["because"] == "1 is passed over: its own disk covers 60000 of 3600000 ms, 7 of 1000 bytes"
    assert [(r["id"], r["verdict"], r["ends_ms"]) for r in told["replicas"]] == [
        (1, "thin", since_ms + HOUR),
        (2, "complete", None),
        (3, "full", None),
    ]
    await nodes.stop()


async def test_the_names_of_the_first_draft_are_refused_as_any_unknown_setting_is() -> None:
    """T1303-19."""
    nodes, controller = await tiered({})
    for name in (
        "leader.election.prefer.early.local.log.start.offset",
        "leader.election.local.log.start.offset.threshold",
    ):
        of_topic = await controller.alter_topic_settings("t", setting(name, "1"))
        of_cluster = await controller.alter_broker_settings(None, setting(name, "1"))
        assert of_topic is not None and of_topic.code is ErrorCode.INVALID_CONFIG
        assert of_cluster is not None and of_cluster.code is ErrorCode.INVALID_CONFIG
    await nodes.stop()


async def test_a_threshold_above_what_disks_keep_is_warned_of_wherever_it_is_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By a new topic, by one that is altered, and once by a default for all topics."""
    kept = {"local_retention_bytes": "10", "local_retention_ms": "10"}
    nodes, controller = await tiered({}, 1, leader_election_eligible_local_log_bytes="1000", **kept)
    await nodes.topic([[1, 2, 3]], name="u", remote_storage_enable="true", **kept)
    assert [text.split(":")[0] for text in warnings(caplog)] == ["topic t"]
    caplog.clear()
    assert await controller.alter_topic_settings("t", setting(BYTES, "500")) == DONE
    assert [text.split(":")[0] for text in warnings(caplog)] == ["topic t"]
    caplog.clear()
    assert await controller.alter_broker_settings(None, setting(MS, str(HOUR))) == DONE
    assert [text.split(":")[0] for text in warnings(caplog)] == ["topic t (and 1 others)"]
    caplog.clear()
    assert await controller.alter_broker_settings(None, setting("log.segment.bytes", "1000000")) == DONE
    assert warnings(caplog) == []
    await nodes.stop()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "what the brokers' disks keep" in record.getMessage()]


async def test_the_clusters_threshold_can_change_while_it_runs() -> None:
    nodes, controller = await tiered({})
    assert await report(nodes, {1: OLD, 2: fresh(), 3: OLD}) is ErrorCode.NONE
    for value, expected in ((str(HOUR), {2}), ("-1", set())):
        assert await controller.alter_broker_settings(None, setting(MS, value)) == DONE
        assert thin_at(controller) == expected
    await nodes.stop()
