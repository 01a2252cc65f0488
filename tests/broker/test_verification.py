"""The coordinator is asked before a partition takes the first records of a transaction: once, and with a bound."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.broker import verification as module
from headrace.broker.verification import Verification
from headrace.core.verified import Verified
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.produce import ProduceResponse
from headrace.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.broker.asking import only_partition, produce_request, records_of
from tests.broker.marked import PID, end, in_transaction, offset_of, produce
from tests.broker.stepped import SteppedClock
from tests.broker.support import serving
from tests.broker.trio import Trio, play
from tests.broker.txn_owner import SETTINGS, Owner, coordinator_of, first_of, make_ready, settled
from tests.core.test_partition import partition_with

OTHER_NODE = 2
AWAY = ErrorCode.NOT_ENOUGH_REPLICAS

Told = list[tuple[ErrorCode, Verified | None]]


class Bench(Verification):
    """Asks a coordinator on another node, which answers when the test says so."""

    def __init__(self) -> None:
        self.peers = SimpleNamespace(ask=self._hear)
        broker: Any = SimpleNamespace(
            node_id=1,
            loop=asyncio.get_running_loop(),
            clock=SteppedClock(),
            config=SimpleNamespace(transaction_partition_verification_enable=True),
            peers=self.peers,
        )
        super().__init__(broker)
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.answers: list[asyncio.Future[ErrorCode | PeerLost]] = []
        self.partition: Any = partition_with()

    def _coordinator_of(self, transactional_id: str) -> int:
        del transactional_id
        return OTHER_NODE

    async def _hear(self, node_id: int, request: AddPartitionsToTxnRequest, *_: object) -> AddPartitionsToTxnResponse:
        assert node_id == OTHER_NODE
        self.asked.append(request)
        answer: asyncio.Future[ErrorCode | PeerLost] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        code = await answer
        if isinstance(code, PeerLost):
            raise code
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                                for index in topic.partitions
                            ],
                        )
                        for topic in asked.topics
                    ],
                )
                for asked in request.transactions
            ]
        )

    def ask(self, pid: int = PID, *, epoch: int = 0, tid: str = "t") -> Told:
        told: Told = []
        self.verify(self.partition, tid, pid, epoch, lambda error, verified: told.append((error, verified)), 0)
        return told

    async def answer(self, code: ErrorCode | PeerLost = ErrorCode.NONE) -> None:
        await turns()
        self.answers.pop(0).set_result(code)
        await turns()

    def claims(self) -> list[list[tuple[str, int, int]]]:
        return [[(t.transactional_id, t.producer_id, t.producer_epoch) for t in r.transactions] for r in self.asked]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, AWAY),
        (ErrorCode.NETWORK_EXCEPTION, AWAY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, AWAY),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, AWAY),
        (ErrorCode.NOT_COORDINATOR, AWAY),
        (PeerLost("gone"), AWAY),
    ],
)
async def test_a_producer_hears_what_its_version_can_deal_with(said: ErrorCode | PeerLost, heard: ErrorCode) -> None:
    bench = Bench()
    told = bench.ask()
    await bench.answer(said)
    ((error, verified),) = told
    assert error is heard
    assert (verified is None) == bool(heard)
    assert bench.waiting == 0 and bench.failures == bool(heard)


async def test_what_is_asked_meanwhile_goes_together_in_the_next_request() -> None:
    bench = Bench()
    first = bench.ask(1, tid="a")
    await turns()
    later = [bench.ask(pid, tid=tid) for pid, tid in ((2, "b"), (3, "c"))]
    await bench.answer()
    assert first and later == [[], []]
    await bench.answer()
    assert all(told[0][0] is ErrorCode.NONE for told in later)
    assert bench.claims() == [[("a", 1, 0)], [("b", 2, 0), ("c", 3, 0)]]


async def test_the_same_question_is_asked_once_and_answered_in_order() -> None:
    bench = Bench()
    heard: list[int] = []
    for number in range(3):
        bench.verify(bench.partition, "t", PID, 0, lambda *_, n=number: heard.append(n), number)
        await turns()
    await bench.answer()
    assert heard == [0, 1, 2] and len(bench.asked) == 1


async def test_two_owners_of_one_transactional_id_are_asked_about_one_after_the_other() -> None:
    bench = Bench()
    bench.ask(9, tid="x")
    await turns()
    old, new = bench.ask(PID, epoch=0), bench.ask(8, epoch=1)
    await bench.answer()
    await bench.answer(ErrorCode.PRODUCER_FENCED)
    assert (old[0][0], new) == (ErrorCode.INVALID_PRODUCER_EPOCH, [])
    await bench.answer()
    assert new[0][0] is ErrorCode.NONE
    assert bench.claims()[1:] == [[("t", PID, 0)], [("t", 8, 1)]]


async def test_there_is_a_bound_for_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    bench = Bench()
    waiting = [bench.ask(1), bench.ask(1)]
    assert [bench.ask(1), bench.ask(2)] == [[(AWAY, None)], [(AWAY, None)]]
    await bench.answer()
    assert all(told[0][0] is ErrorCode.NONE for told in waiting)
    bench.ask(2)
    assert bench.waiting == 1
    await bench.close()


async def test_what_is_open_here_already_is_not_asked_about() -> None:
    bench = Bench()
    told = bench.ask()
    await bench.answer()
    raw = in_transaction(0)
    bench.partition.admit(memoryview(raw), SteppedClock().now_ms, told[0][1])
    assert bench.ask() == [(ErrorCode.NONE, None)]


async def test_without_a_coordinator_producers_are_told_to_come_again_and_without_an_id_they_are_refused() -> None:
    async with serving() as (_, client):
        assert (await produce(client, in_transaction(0))).error_code == AWAY
        assert (await produce(client, in_transaction(0), tid=None)).error_code == ErrorCode.INVALID_TXN_STATE
        assert await client.offset() == 0


async def two_partitions(trio: Trio) -> tuple[Owner, int]:
    """A transaction with one partition of two in it, both led by a node that does not coordinate it."""
    await make_ready(trio, 2)
    owner = Owner(trio)
    assert await settled(owner.init) == 0
    assert await settled(lambda: first_of(owner.add(0))) == 0
    coordinator = await coordinator_of(trio)
    leader = next(n for n in (1, 2, 3) if n != coordinator)
    for index in (0, 1):
        record = trio.record(index)
        if record.leader != leader:
            await move(trio, index, leader)
    return owner, leader


async def move(trio: Trio, index: int, leader: int) -> None:
    record = trio.record(index)
    moved = replace(
        record, leader=leader, leader_epoch=record.leader_epoch + 1, partition_epoch=record.partition_epoch + 1
    )
    assert trio.write(moved, index=index)
    await trio.leads(leader, index)


def held_back(trio: Trio, leader: int) -> "asyncio.Future[None]":
    """What that node asks a coordinator is answered when the result is set."""
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    peers = trio.broker(leader).peers
    ask = peers.ask

    async def late(*args: Any) -> Any:
        answer = await ask(*args)
        if isinstance(args[1], AddPartitionsToTxnRequest):
            await held
        return answer

    changed: Any = peers
    changed.ask = late
    return held


def test_a_request_waits_for_the_coordinator_and_the_other_partitions_of_it_do_not() -> None:
    async def scenario(trio: Trio) -> None:
        owner, leader = await two_partitions(trio)
        client = await trio.client(leader)
        held = held_back(trio, leader)
        pid, epoch = owner.claim
        request = produce_request(
            {0: records_of([b"in"], producer=(pid, epoch, 0), transactional=True), 1: records_of([b"plain"])}
        )
        request.transactional_id = owner.id
        answering = client.peer.send(request, ProduceResponse, 12)
        await trio.until(lambda: trio.partition(leader, 1).high_watermark == 1)
        await asyncio.sleep(1)
        assert not answering.done() and trio.partition(leader).log_end_offset == 0
        held.set_result(None)
        codes = [p.error_code for p in (await answering).responses[0].partition_responses]
        assert codes == [0, 0]
        assert trio.partition(leader).log_end_offset == 1

    play(scenario, SETTINGS, replicates=True)


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.TRANSACTION_ABORTABLE), (10, ErrorCode.INVALID_TXN_STATE)]
)
def test_ttxn_3_a_marker_that_comes_while_the_coordinator_is_asked_voids_its_answer(
    version: int, code: ErrorCode
) -> None:
    async def scenario(trio: Trio) -> None:
        owner, leader = await two_partitions(trio)
        client, other = await trio.client(leader), await trio.client(leader)
        held = held_back(trio, leader)  # it says yes, and that is on its way
        pid, epoch = owner.claim
        request = produce_request({0: records_of([b"late"], producer=(pid, epoch, 0), transactional=True)})
        request.transactional_id = owner.id
        answering = client.peer.send(request, ProduceResponse, version)
        await asyncio.sleep(1)
        assert await end(other, False, pid=pid, epoch=epoch) == [0]
        held.set_result(None)
        assert only_partition(await answering).error_code == code
        assert trio.partition(leader).log.producers.first_open_offset is None
        assert await offset_of(other) == (0, 1)

    play(scenario, SETTINGS, replicates=True)
