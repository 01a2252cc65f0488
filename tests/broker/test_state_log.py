"""What coordinators keep in their topics: loaded in slices, appended and committed, and what goes wrong with it."""

import asyncio
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_metrics import families
from headrace.broker.coordinators.loading import SLICE_MS, Loading
from headrace.broker.partitions import Hosted
from headrace.core.group_effects import GroupState
from headrace.core.internal_topics import CONSUMER_OFFSETS
from headrace.errors import CorruptLog, ErrorCode
from headrace.model import Buffer
from headrace.wire.batch import BatchHeader, NewRecord, build
from headrace.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.broker.asking import TOPIC
from tests.broker.grouped import GROUP, SETTINGS, Group, Member, comes_to, coordinator_of, copies_of, group_at, stable
from tests.broker.trio import Scenario, Trio, play

LOGS = f"*/{CONSUMER_OFFSETS}-0/*.log"


def run(scenario: Scenario, *, nodes: int = 1, **settings: str) -> None:
    more = {name.replace("_", "."): value for name, value in settings.items()}

    async def main(trio: Trio) -> None:
        await trio.topic([1], [1])
        await coordinator_of(trio)
        await trio.until(lambda: len(copies_of(trio)) == nodes)
        await scenario(trio)

    play(main, {**SETTINGS, **more}, nodes=nodes, replicates=nodes > 1)


# Loading, by itself.


class Reading:
    """A partition of so many batches, and how far somebody has read it."""

    def __init__(self, batches: int) -> None:
        self._raw = b""
        for offset in range(batches):
            batch = build([NewRecord(1, b"key %03d" % offset, bytes(8_000))], base_offset=offset)
            self._raw += bytes(batch)
        self._size = len(self._raw) // max(batches, 1)
        self.log_end_offset = batches
        self.reads = 0
        self.began = 0
        self.end_offset: int | None = None
        self.is_over = False
        self.failures: list[OSError] = []
        self.hosted = cast(Hosted, SimpleNamespace(log=self, log_start_offset=0, index=3))

    def read(self, offset: int, bytes_max: int, limit_offset: int, at_least_one: bool) -> Buffer:
        assert at_least_one and limit_offset == self.log_end_offset
        self.reads += 1
        if self.failures:
            raise self.failures.pop()
        return self._raw[offset * self._size : max(bytes_max // self._size, 1) * self._size + offset * self._size]

    def begin(self) -> None:
        self.began += 1

    def was_read(self, end_offset: int) -> None:
        self.end_offset = end_offset


class Desk:
    """A loop that is turned by hand, and a clock that ticks whenever somebody looks."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.due: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []
        self.faults: list[Exception] = []
        self.replayed: list[int] = []

    def loading(self) -> Loading:
        broker = SimpleNamespace(
            clock=SimpleNamespace(monotonic_ms=self._look),
            loop=SimpleNamespace(call_soon=self.due.append, call_later=self._later),
            faults=SimpleNamespace(failed=lambda _hosted, _doing, failure: self.faults.append(failure)),
        )
        return Loading(cast(Broker, broker), self._replay)

    def _look(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def _later(self, _delay_s: float, work: Callable[..., None], *args: Any) -> None:
        self.later.append(lambda: work(*args))

    def _replay(self, index: int, header: BatchHeader, chunk: Buffer, pos: int) -> None:
        assert index == 3 and chunk[pos + 16] == 2
        self.replayed.append(header.base_offset)

    def turn(self) -> bool:
        due, self.due[:] = list(self.due), []
        for work in due:
            work()
        return bool(due)


def test_a_large_partition_is_read_in_many_turns_of_the_loop() -> None:
    desk, large, small = Desk(), Reading(400), Reading(3)
    loading = desk.loading()
    loading.start(large)
    loading.start(small)
    turns = 0
    while desk.turn():
        turns += 1
        assert desk.now_ms <= turns * (SLICE_MS + 3)
    assert turns > 20
    assert desk.replayed == [*range(400), *range(3)]
    assert (large.end_offset, small.end_offset) == (400, 3)


def test_what_is_over_is_read_no_further_and_the_next_is() -> None:
    """KAFKA-10614: the order of leaderships is that of the loads."""
    desk, moved, other = Desk(), Reading(400), Reading(3)
    loading = desk.loading()
    loading.start(moved)
    loading.start(other)
    desk.turn()
    moved.is_over = True
    while desk.turn():
        pass
    assert moved.end_offset is None and other.end_offset == 3


def test_an_empty_partition_is_read_at_once() -> None:
    desk, empty = Desk(), Reading(0)
    desk.loading().start(empty)
    desk.turn()
    assert empty.end_offset == 0 and not empty.reads


def test_after_a_shortage_of_the_machine_it_begins_anew() -> None:
    desk, reading = Desk(), Reading(5)
    reading.failures.append(OSError(errno.EMFILE, "too many files"))
    desk.loading().start(reading)
    desk.turn()
    assert [failure.errno for failure in desk.faults if isinstance(failure, OSError)] == [errno.EMFILE]
    assert reading.end_offset is None and len(desk.later) == 1
    desk.later.pop()()
    while desk.turn():
        pass
    assert reading.end_offset == 5 and reading.began == 2


def test_a_batch_that_cannot_be_read_is_a_fault_of_the_log() -> None:
    desk, reading = Desk(), Reading(2)
    reading._raw = reading._raw[: reading._size] + reading._raw[:8] + bytes(4) + reading._raw[12 : reading._size]
    desk.loading().start(reading)
    while desk.turn():
        pass
    assert [type(failure) for failure in desk.faults] == [CorruptLog]
    assert reading.end_offset is None


def test_a_batch_that_is_not_whole_is_not_waited_for() -> None:
    desk, reading = Desk(), Reading(1)
    reading._raw = reading._raw[:-1]
    desk.loading().start(reading)
    while desk.turn():
        pass
    assert [type(failure) for failure in desk.faults] == [CorruptLog]


# In a node.


def test_a_disk_that_fails_while_groups_are_loaded_costs_those_groups_and_nothing_else() -> None:
    """KAFKA-16030."""

    async def scenario(trio: Trio) -> None:
        assert await Group(trio).commit({0: 5}) == [0]
        node = trio.world.nodes[0]
        node.kill()
        node.machine.files.fail("read", LOGS, errno.EIO, times=100)
        node.start()
        await trio.serves(1)
        await trio.until(lambda: trio.partition(1, name=CONSUMER_OFFSETS).fault)
        client = await trio.client(1)
        assert (await client.produce()).error_code == 0
        found = trio.broker(1).groups.find(GROUP)
        assert found is ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_a_disk_that_fails_under_a_commit_sends_members_to_look_for_another_coordinator() -> None:
    async def scenario(trio: Trio) -> None:
        first, second = await stable(trio, 2)
        waiting = asyncio.create_task(first.join())
        await trio.until(lambda: group_at(trio).state is GroupState.PREPARING)
        trio.world.nodes[0].machine.files.fail("write", LOGS, errno.EIO)
        assert await second.commit({0: 5}, member=second) == [ErrorCode.NOT_COORDINATOR]
        assert await waiting == ErrorCode.NOT_COORDINATOR
        assert await second.beat() == ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_with_too_few_replicas_nothing_is_taken_and_everything_works_again_later() -> None:
    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio)
        node_id = await coordinator_of(trio)
        for other in {1, 2, 3} - {node_id}:
            trio.world.nodes[other - 1].kill()
        await trio.until(lambda: len(copies_of(trio)) == 1)
        end = trio.partition(node_id, name=CONSUMER_OFFSETS).log_end_offset
        assert await member.commit({0: 5}, member=member) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert trio.partition(node_id, name=CONSUMER_OFFSETS).log_end_offset == end
        for other in {1, 2, 3} - {node_id}:
            trio.world.nodes[other - 1].start()
        await comes_to([0], lambda: member.commit({0: 5}, member=member))

    run(scenario, nodes=3, min_insync_replicas="2")


def test_what_does_not_fit_into_a_record_is_refused_and_nothing_is_left_of_it() -> None:
    async def scenario(trio: Trio) -> None:
        group = Group(trio)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="x" * 4_000)
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition] * 300)
        request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
        answer = await group.ask(request, OffsetCommitResponse, 9)
        codes = {told.error_code for told in answer.topics[0].partitions}
        assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert len(trio.broker(1).groups) == 0
        large = Member(trio, topics=["t" * 32_000] * 40)
        assert await large.join() == 0
        assert await large.sync() == ErrorCode.UNKNOWN_SERVER_ERROR
        assert group_at(trio).state is GroupState.PREPARING

    run(scenario)


def test_a_node_that_stops_does_not_wait_for_members_that_wait_for_others() -> None:
    async def scenario(trio: Trio) -> None:
        first, _ = await stable(trio, 2, rebalance_ms=300_000, session_ms=300_000)
        waiting = asyncio.create_task(first.join())
        await trio.until(lambda: group_at(trio).state is GroupState.PREPARING)
        node = trio.world.nodes[0].node
        assert node is not None
        began_s = trio.world.loop.now_s
        await node.stop()
        assert trio.world.loop.now_s - began_s < 5
        assert await waiting == ErrorCode.NOT_COORDINATOR

    run(scenario)


@pytest.mark.parametrize("name", ["numgroups", "numoffsets", "numgroupsstable", "partition_load_time_max"])
def test_there_are_metrics_of_groups(name: str) -> None:
    async def scenario(trio: Trio) -> None:
        (member,) = await stable(trio)
        await member.commit({0: 5, 1: 6}, member=member)
        found = {family.name: family.samples[0].value for family in families(trio.broker(1))}
        (value,) = [value for known, value in found.items() if known.endswith("_" + name)]
        assert value == {"numgroups": 1, "numgroupsstable": 1, "numoffsets": 2}.get(name, value)
        assert found["kafka_server_group_coordinator_metrics_offset_commit_total"] == 2
        assert found["kafka_server_group_coordinator_metrics_group_completed_rebalance_total"] == 1

    run(scenario)
