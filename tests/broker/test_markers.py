"""Markers are sent to the leaders, together, and again until each is stored."""

import asyncio
from collections.abc import Callable, Mapping

from headrace.broker.coordinators.markers import MARKERS_MAX, Ending, Markers
from headrace.core.cluster import (
    BrokerPut,
    ClusterImage,
    IsrMember,
    PartitionPut,
    PartitionRecord,
    RegisteredBroker,
    TopicGone,
    TopicPut,
)
from headrace.core.transaction import State, TopicPartition, Transaction
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TOPIC_ID = b"t" * 16


def led_by(leader: int, epoch: int = 0) -> PartitionRecord:
    return PartitionRecord((1, 2), (IsrMember(1, 1), IsrMember(2, 2)), leader, epoch, epoch)


def image_of(*leaders: int) -> ClusterImage:
    """Topic `t`, its partitions led by these."""
    image = ClusterImage(1, {})
    for node_id in (1, 2):
        image.apply([BrokerPut(RegisteredBroker(node_id, node_id, f"node{node_id}", 9092, None))])
    image.apply([TopicPut("t", TOPIC_ID, [led_by(leader) for leader in leaders], [1] * len(leaders), 1)])
    return image


def ending_of(
    *partitions: int, producer_id: int = 5, commits: bool = True, index: int = 0, done: Callable[[], None]
) -> Ending:
    state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
    joined: frozenset[TopicPartition] = frozenset(("t", partition) for partition in partitions)
    known = Transaction(
        producer_id=producer_id, epoch=3, timeout_ms=1, state=state, updated_ms=0, partitions=joined, started_ms=0
    )
    return Ending(index, 9, known, done)


class Leaders:
    """Answer as the test says; by default that all is stored."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, WriteTxnMarkersRequest, str]] = []
        self.codes: dict[tuple[int, int], list[int]] = {}
        """By producer and partition, one after another."""
        self.gone: set[int] = set()
        self.held: asyncio.Event | None = None

    async def __call__(
        self, node_id: int, request: WriteTxnMarkersRequest, client_id: str, /
    ) -> WriteTxnMarkersResponse:
        self.asked.append((node_id, request, client_id))
        if self.held is not None:
            await self.held.wait()
        if node_id in self.gone:
            raise PeerLost("nobody there")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=self._code(marker.producer_id, index)
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def _code(self, producer_id: int, index: int) -> int:
        codes = self.codes.get((producer_id, index))
        return codes.pop(0) if codes else 0

    def marked(self) -> list[tuple[int, int, int]]:
        """Node, producer and partition of everything that was sent."""
        return [
            (node_id, marker.producer_id, index)
            for node_id, request, _ in self.asked
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  # anything may make it true
            await asyncio.sleep(0.001)


class Setup:
    def __init__(self, *leaders: int, codes: Mapping[tuple[int, int], list[int]] | None = None) -> None:
        self.image = image_of(*leaders)
        self.leaders = Leaders()
        self.leaders.codes.update(codes or {})
        self.markers = Markers(asyncio.get_running_loop(), self.image, self.leaders)
        self.done: list[int] = []

    def send(self, *partitions: int, producer_id: int = 5, index: int = 0, commits: bool = True) -> Ending:
        ending = ending_of(
            *partitions,
            producer_id=producer_id,
            index=index,
            commits=commits,
            done=lambda: self.done.append(producer_id),
        )
        self.markers.send(ending)
        return ending


async def test_each_leader_gets_one_request_with_all_that_is_its_own() -> None:
    setup = Setup(1, 2, 1)
    setup.send(0, 1, 2)
    setup.send(0, producer_id=6, commits=False)
    await until(lambda: len(setup.done) == 2)
    assert sorted(setup.leaders.marked()) == [(1, 5, 0), (1, 5, 2), (1, 6, 0), (2, 5, 1)]
    assert len(setup.leaders.asked) == 2
    (first,) = [request for node_id, request, _ in setup.leaders.asked if node_id == 1]
    results = {(m.producer_id, m.producer_epoch, m.coordinator_epoch, m.transaction_result) for m in first.markers}
    assert results == {(5, 3, 9, True), (6, 3, 9, False)}
    assert setup.markers.endings == 0


async def test_a_partition_that_refuses_is_asked_again_and_holds_up_no_other_transaction() -> None:
    refusals = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
    setup = Setup(1, 1, codes={(5, 0): [int(code) for code in refusals]})
    setup.send(0, 1)
    setup.send(1, producer_id=6)
    await until(lambda: setup.done)
    assert setup.done == [6]
    await until(lambda: len(setup.done) == 2)
    assert setup.leaders.marked().count((1, 5, 0)) == 1 + len(refusals)
    assert setup.leaders.marked().count((1, 5, 1)) == 1
    assert setup.markers.failed == len(refusals)


async def test_a_partition_that_cannot_commit_goes_by_a_lane_of_its_own() -> None:
    setup = Setup(1, codes={(5, 0): [int(ErrorCode.REQUEST_TIMED_OUT)]})
    setup.send(0)
    await until(lambda: setup.done)
    setup.send(0, producer_id=6)
    await until(lambda: len(setup.done) == 2)
    lanes = [client_id for _, _, client_id in setup.leaders.asked]
    assert lanes == ["headrace-markers", "headrace-markers-slow", "headrace-markers"]


async def test_a_marker_that_is_not_wanted_any_more_counts_as_stored() -> None:
    codes = {
        (5, 0): [int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)],
        (5, 1): [int(ErrorCode.INVALID_PRODUCER_EPOCH)],
    }
    setup = Setup(1, 1, codes=codes)
    setup.send(0, 1)
    await until(lambda: setup.done)
    assert len(setup.leaders.asked) == 1


async def test_a_node_that_is_gone_is_asked_again_and_the_next_leader_if_there_is_one() -> None:
    setup = Setup(1)
    setup.leaders.gone.add(1)
    setup.send(0)
    await until(lambda: len(setup.leaders.asked) >= 2)
    setup.image.apply([PartitionPut(TOPIC_ID, 0, led_by(2, 1), 2)])
    await until(lambda: setup.done)
    assert setup.leaders.marked()[-1] == (2, 5, 0)


async def test_a_partition_without_a_leader_waits_for_one() -> None:
    setup = Setup(-1)
    setup.send(0)
    await until(lambda: setup.markers.waiting == 1)
    assert not setup.leaders.asked
    setup.image.apply([PartitionPut(TOPIC_ID, 0, led_by(2, 1), 2)])
    await until(lambda: setup.done)


async def test_a_deleted_topic_needs_no_marker() -> None:
    setup = Setup(1)
    setup.leaders.gone.add(1)
    setup.send(0)
    await until(lambda: setup.leaders.asked)
    setup.image.apply([TopicGone("t", TOPIC_ID)])
    await until(lambda: setup.done)
    setup.send(0, producer_id=6)
    assert setup.done == [5, 6]


async def test_what_another_coordinator_sends_now_is_sent_from_here_no_more() -> None:
    setup = Setup(1)
    setup.leaders.gone.add(1)
    setup.send(0, index=3)
    setup.send(0, producer_id=6, index=4)
    await until(lambda: setup.leaders.asked)
    setup.markers.drop(3)
    setup.leaders.gone.clear()
    setup.leaders.asked.clear()
    await until(lambda: setup.done)
    assert setup.done == [6]
    assert {producer_id for _, producer_id, _ in setup.leaders.marked()} == {6}
    assert setup.markers.endings == 0


async def test_a_request_holds_no_more_than_its_bound_and_the_rest_follows() -> None:
    count = MARKERS_MAX + MARKERS_MAX // 2
    setup = Setup(*[1] * count)
    setup.leaders.held = asyncio.Event()
    setup.send(*range(count))
    await until(lambda: setup.leaders.asked)
    assert len(setup.leaders.marked()) == MARKERS_MAX
    setup.leaders.held.set()
    await until(lambda: setup.done)
    assert sorted(index for _, _, index in setup.leaders.marked()) == list(range(count))


async def test_closing_leaves_nothing_behind() -> None:
    setup = Setup(1, -1)
    setup.leaders.held = asyncio.Event()
    setup.send(0, 1)
    await until(lambda: setup.leaders.asked)
    await setup.markers.close()
    assert not setup.done
    assert len(asyncio.all_tasks()) == 1
