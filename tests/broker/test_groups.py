"""Groups of one node, as clients of every version see them."""

import asyncio
from unittest.mock import patch

import pytest

from headrace.core.internal_topics import CONSUMER_OFFSETS, partition_of
from headrace.errors import ErrorCode
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from headrace.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from tests.broker.asking import TOPIC
from tests.broker.grouped import GROUP, SESSION_MS, SETTINGS, Group, Member, coordinator_of, group_at, stable
from tests.broker.trio import Scenario, Trio, play

NONE = ErrorCode.NONE


def run(scenario: Scenario, **settings: str) -> None:
    more = {name.replace("_", "."): value for name, value in settings.items()}

    async def main(trio: Trio) -> None:
        await trio.topic([1], [1], [1])
        await coordinator_of(trio)
        await scenario(trio)

    play(main, {**SETTINGS, **more}, nodes=1)


@pytest.mark.parametrize(
    ("key", "index"),
    # Computed with Java: Math.abs(key.hashCode()) % 50, where the last hash has no absolute value.
    [("", 0), ("a", 47), ("test-group", 12), ("polygenelubricants", 0)],
)
def test_a_key_is_kept_where_kafka_keeps_it(key: str, index: int) -> None:
    assert partition_of(key, 50) == index


def test_rare_characters_count_as_two_units_as_in_java() -> None:
    assert partition_of("\U0001f600", 1 << 31) == (0xD83D * 31 + 0xDE00) % (1 << 31)


def test_the_first_who_asks_for_a_coordinator_has_the_topic_made() -> None:
    async def scenario(trio: Trio) -> None:
        client = await trio.client(1)
        for version in range(4):
            asked = FindCoordinatorRequest(key=GROUP)
            found = await client.ask(asked, FindCoordinatorResponse, version)
            if version == 0:
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                await trio.until(lambda: CONSUMER_OFFSETS in trio.broker(1).image.topics)
            else:
                assert (found.error_code, found.node_id) == (0, 1)
        many = FindCoordinatorRequest(coordinator_keys=[GROUP, "", "another"])
        found = await client.ask(many, FindCoordinatorResponse, 4)
        assert [(one.key, one.error_code, one.node_id) for one in found.coordinators] == [
            (GROUP, 0, 1),
            ("", 0, 1),
            ("another", 0, 1),
        ]
        unknown = FindCoordinatorRequest(coordinator_keys=["x"], key_type=9)
        answer = await client.ask(unknown, FindCoordinatorResponse, 4)
        assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
        assert len(trio.broker(1).image.topics[CONSUMER_OFFSETS].partitions) == 50

    play(scenario, {}, nodes=1)


def test_members_of_every_version_get_their_parts() -> None:
    async def scenario(trio: Trio) -> None:
        for version in JoinGroupRequest.versions:
            member = Member(trio, f"group {version}")
            assert await member.join(version) == NONE
            assert member.leads and member.members == [member.member_id] and member.generation == 1
            assert await member.sync(version=min(version, SyncGroupRequest.versions[-1])) == NONE
            assert member.assignment == member.member_id.encode()
            assert await member.beat(min(version, HeartbeatRequest.versions[-1])) == NONE
            assert await member.leave(min(version, LeaveGroupRequest.versions[-1])) == NONE
            assert await member.beat() == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_second_member_joins_and_both_have_their_own_part() -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        assert first.leads and not second.leads
        assert first.generation == second.generation == 2
        assert (first.assignment, second.assignment) == (first.member_id.encode(), second.member_id.encode())

    run(scenario)


def test_sessions_are_kept_by_heartbeats_and_end_without() -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        for _ in range(5):
            await asyncio.sleep(SESSION_MS / 1000 * 0.6)
            assert await first.beat() in (NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        assert await first.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await second.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await first.join() == NONE and await first.sync() == NONE
        assert list(group_at(trio).members) == [first.member_id]

    run(scenario)


def test_a_member_whose_connection_closes_while_its_join_waits_does_not_hold_up_the_others() -> None:
    async def scenario(trio: Trio) -> None:
        (first,) = await stable(trio)
        second = Member(trio)
        waiting = asyncio.create_task(second.join())
        await trio.until(lambda: len(group_at(trio).members) == 2)
        assert trio.broker(1).groups.parked == 1
        second.drop()
        waiting.cancel()
        await trio.until(lambda: trio.broker(1).groups.parked == 0)
        began_s = trio.world.loop.now_s
        assert await first.join() == NONE
        assert trio.world.loop.now_s - began_s <= SESSION_MS / 1000 + 1
        assert list(group_at(trio).members) == [first.member_id]

    run(scenario)


@pytest.mark.parametrize(("session_ms", "error"), [(5_999, 26), (6_000, 0), (1_800_000, 0), (1_800_001, 26)])
def test_a_session_has_bounds(session_ms: int, error: int) -> None:
    async def scenario(trio: Trio) -> None:
        assert await Member(trio, session_ms=session_ms).join() == error

    run(scenario)


def test_a_group_without_a_name_takes_offsets_and_no_members() -> None:
    async def scenario(trio: Trio) -> None:
        member = Member(trio, "")
        assert await member.join() == ErrorCode.INVALID_GROUP_ID
        assert await member.beat() == await member.sync() == await member.leave() == ErrorCode.INVALID_GROUP_ID
        assert await member.commit({0: 5}) == [NONE]
        assert await member.committed(0) == [(NONE, 5)]

    run(scenario)


def test_nobody_knows_a_group_before_its_first_member() -> None:
    async def scenario(trio: Trio) -> None:
        member = Member(trio)
        member.member_id, member.generation = "somebody", 3
        assert await member.beat() == await member.sync() == await member.leave() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.join() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.commit({0: 1}, member=member) == [ErrorCode.ILLEGAL_GENERATION]
        assert await member.committed(0) == [(NONE, -1)]
        assert len(trio.broker(1).groups) == 0

    run(scenario)


def test_offsets_are_committed_and_fetched_in_every_version() -> None:
    async def scenario(trio: Trio) -> None:
        group = Group(trio)
        for version in range(2, 10):
            assert await group.commit({0: version, 2: 100 + version}, version=version, metadata="é") == [NONE, NONE]
            assert await group.committed(0, 1, 2) == [(NONE, version), (NONE, -1), (NONE, 100 + version)]
        topic_id = trio.broker(1).image.topics[TOPIC].id
        for version in range(1, 8):
            asked = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]
            answer = await group.ask(OffsetFetchRequest(group_id=GROUP, topics=asked), OffsetFetchResponse, version)
            told = answer.topics[0].partitions
            assert [(one.committed_offset, one.metadata) for one in told] == [(9, "é"), (-1, "")]
        by_id = OffsetFetchRequestTopic(topic_id=topic_id, partition_indexes=[2])
        unknown = OffsetFetchRequestTopic(topic_id=bytes(range(16)), partition_indexes=[2])
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=[by_id, unknown])]
        answer = await group.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, 10)
        first, second = answer.groups[0].topics
        assert first.partitions[0].committed_offset == 109
        assert second.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario)


def test_several_groups_are_fetched_at_once_and_everything_of_a_group() -> None:
    async def scenario(trio: Trio) -> None:
        one, other = Group(trio, "one"), Group(trio, "other")
        await one.commit({0: 1, 1: 2})
        await other.commit({2: 3})
        asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("one", "other", "none")]
        answer = await one.ask(OffsetFetchRequest(groups=asked), OffsetFetchResponse, 9)
        told = {
            group.group_id: {p.partition_index: p.committed_offset for t in group.topics for p in t.partitions}
            for group in answer.groups
        }
        assert told == {"one": {0: 1, 1: 2}, "other": {2: 3}, "none": {}}
        everything = await one.ask(OffsetFetchRequest(group_id="one", topics=None), OffsetFetchResponse, 7)
        assert [p.committed_offset for t in everything.topics for p in t.partitions] == [1, 2]

    run(scenario)


def test_a_commit_is_refused_partition_by_partition() -> None:
    """KAFKA-16371: what was refused leaves nothing behind that waits."""

    async def scenario(trio: Trio) -> None:
        group = Group(trio)
        assert await group.commit({0: 1}, topic="nothing") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await group.commit({0: 1, 3: 1, -1: 1}) == [NONE, 3, 3]
        assert await group.commit({1: 1}, metadata="x" * 4_096) == [NONE]
        assert await group.commit({2: 1}, metadata="x" * 4_097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert await group.committed(0, 1, 2, 3) == [(0, 1), (0, 1), (0, -1), (0, -1)]
        assert not group_at(trio).offsets.in_flight
        assert await group.commit({2: 2}) == [NONE]

    run(scenario)


def test_only_members_of_this_generation_commit_while_there_are_members() -> None:
    """Tgrp-4."""

    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio)
        assert await member.commit({0: 5}, member=member) == [NONE]
        old = member.generation - 1
        assert await member.commit({0: 6}, member=member, generation=old) == [ErrorCode.ILLEGAL_GENERATION]
        assert await member.commit({0: 7}) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await member.committed(0) == [(NONE, 5)]
        await member.leave()
        assert await member.commit({0: 8}) == [NONE]
        assert await member.commit({0: 9}, member=member) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await member.committed(0) == [(NONE, 8)]

    run(scenario)


def test_groups_are_described_and_listed() -> None:
    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio, instance_id="static")
        await Group(trio, "simple").commit({0: 1})
        for version in DescribeGroupsRequest.versions:
            asked = DescribeGroupsRequest(groups=[GROUP, "simple", "none"], include_authorized_operations=True)
            known, simple, none = (await member.ask(asked, DescribeGroupsResponse, version)).groups
            assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
            (told,) = known.members
            assert (told.member_id, told.client_id) == (member.member_id, "tester")
            assert told.member_assignment == member.assignment and told.client_host.startswith("/")
            assert told.group_instance_id == ("static" if version >= 4 else None)
            assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])
            assert (none.group_state, none.error_code) == ("Dead", 69 if version >= 6 else 0)
        for version in ListGroupsRequest.versions:
            listed = (await member.ask(ListGroupsRequest(), ListGroupsResponse, version)).groups
            assert {(g.group_id, g.protocol_type) for g in listed} == {(GROUP, "consumer"), ("simple", "")}
        for states, types, found in (
            (["stable"], [], {GROUP}),
            (["Empty", "Dead"], [], {"simple"}),
            ([], ["Classic"], {GROUP, "simple"}),
            ([], ["consumer"], set()),
        ):
            filtered = ListGroupsRequest(states_filter=states, types_filter=types)
            listed = (await member.ask(filtered, ListGroupsResponse, 5)).groups
            assert {g.group_id for g in listed} == found

    run(scenario)


async def deleted(group: Group, *names: str) -> list[int]:
    answer = await group.ask(DeleteGroupsRequest(groups_names=list(names)), DeleteGroupsResponse)
    return [result.error_code for result in answer.results]


def test_a_group_is_deleted_when_nobody_is_in_it_with_all_its_offsets() -> None:
    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio)
        await member.commit({0: 5}, member=member)
        assert await deleted(member, GROUP, "none") == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
        await member.leave()
        assert await deleted(member, GROUP) == [NONE]
        assert await member.committed(0) == [(NONE, -1)]
        assert await deleted(member, GROUP) == [ErrorCode.GROUP_ID_NOT_FOUND]
        await trio.restart(1)
        assert await Group(trio).committed(0) == [(NONE, -1)]
        assert len(trio.broker(1).groups) == 0

    run(scenario)


async def offsets_deleted(group: Group, *partitions: int, topic: str = TOPIC) -> tuple[int, list[int]]:
    asked = OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    )
    request = OffsetDeleteRequest(group_id=group.group_id, topics=[asked])
    answer = await group.ask(request, OffsetDeleteResponse)
    return answer.error_code, [told.error_code for t in answer.topics for told in t.partitions]


def test_offsets_are_deleted_of_topics_that_nobody_reads() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1], name="unread")
        (member,) = await stable(trio)
        await member.commit({0: 5}, member=member)
        await member.commit({0: 6}, member=member, topic="unread")
        assert await offsets_deleted(member, 0) == (NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        assert await offsets_deleted(member, 0, 7, topic="unread") == (NONE, [0, 3])
        assert await member.committed(0, topic="unread") == [(NONE, -1)]
        assert await member.committed(0) == [(NONE, 5)]
        await member.leave()
        assert await offsets_deleted(member, 0) == (NONE, [NONE])
        assert await offsets_deleted(Group(trio, "none"), 0) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    run(scenario)


def test_offsets_of_members_that_are_no_consumers_are_deleted_when_they_have_left() -> None:
    """Nobody knows what they read."""

    async def scenario(trio: Trio) -> None:
        (worker,) = await stable(trio, protocol_type="connect")
        await worker.commit({0: 5}, member=worker)
        assert await offsets_deleted(worker, 0) == (ErrorCode.NON_EMPTY_GROUP, [])
        await worker.leave()
        assert await offsets_deleted(worker, 0) == (NONE, [NONE])
        assert await worker.committed(0) == [(NONE, -1)]

    run(scenario)


def test_the_offsets_of_a_deleted_topic_go_with_it() -> None:
    async def scenario(trio: Trio) -> None:
        await trio.topic([1], name="doomed")
        group = Group(trio)
        await group.commit({0: 5}, topic="doomed")
        await group.commit({0: 6})
        client = await trio.client(1)
        await client.delete_topic("doomed")
        await trio.until(lambda: "doomed" not in group_at(trio).offsets.by_topic)
        await trio.topic([1], name="doomed")
        assert await group.committed(0, topic="doomed") == [(NONE, -1)]
        assert await group.committed(0) == [(NONE, 6)]

    run(scenario)


def test_a_group_that_is_too_large_takes_nobody_more() -> None:
    async def scenario(trio: Trio) -> None:
        await stable(trio, 2)
        assert await Member(trio).join() == ErrorCode.GROUP_MAX_SIZE_REACHED

    run(scenario, group_max_size="2")


def test_there_are_as_many_groups_as_a_node_can_keep() -> None:
    async def scenario(trio: Trio) -> None:
        with patch("headrace.broker.coordinators.groups.GROUPS_MAX", 1):
            assert await Group(trio, "one").commit({0: 1}) == [NONE]
            assert await Group(trio, "two").commit({0: 1}) == [ErrorCode.POLICY_VIOLATION]
            assert await Member(trio, "three").join() == ErrorCode.POLICY_VIOLATION
            assert await Group(trio, "one").commit({0: 2}) == [NONE]
        assert await Group(trio, "x" * 32_768).commit({0: 1}, version=9) == [ErrorCode.INVALID_GROUP_ID]

    run(scenario)


def test_what_members_say_to_their_assignors_is_counted_and_bounded() -> None:
    async def scenario(trio: Trio) -> None:
        groups = trio.broker(1).groups
        (member,) = await stable(trio)
        assert groups.metadata_bytes == group_at(trio).metadata_bytes > 0
        with patch("headrace.broker.coordinators.groups.METADATA_BYTES_MAX", 1):
            assert await Member(trio).join() == ErrorCode.GROUP_MAX_SIZE_REACHED
        await member.leave()
        await trio.until(lambda: groups.metadata_bytes == 0)

    run(scenario)


def test_offsets_expire_with_their_group_and_those_with_an_expiry_of_their_own_before() -> None:
    """Tgrp-6."""

    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio)
        await member.commit({0: 5}, member=member)
        simple = Group(trio, "simple")
        await simple.commit({0: 1})
        own = Group(trio, "own")
        await own.commit({0: 1}, version=2, retention_ms=10_000)
        await own.commit({1: 1}, version=2, retention_ms=3_600_000)
        began_s = trio.world.loop.now_s

        async def beat_until(s: float) -> None:
            while trio.world.loop.now_s < began_s + s:
                await member.beat()
                await asyncio.sleep(3)

        await beat_until(30)
        assert await own.committed(0, 1) == [(0, -1), (0, 1)]
        assert await simple.committed(0) == [(0, 1)]
        await beat_until(80)
        assert await simple.committed(0) == [(0, -1)]
        assert await member.committed(0) == [(0, 5)]
        await member.leave()
        await asyncio.sleep(50)
        assert await member.committed(0) == [(0, 5)]
        await asyncio.sleep(20)
        assert await member.committed(0) == [(0, -1)]
        names = {group.group_id for group in trio.broker(1).groups}
        assert names == {"own"}
        await trio.restart(1)
        await coordinator_of(trio)
        assert {group.group_id for group in trio.broker(1).groups} == {"own"}

    run(scenario, offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")
