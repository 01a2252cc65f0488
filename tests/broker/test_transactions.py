"""The transaction coordinator on three nodes: requests, their codes, and what readers see."""

import asyncio
import errno
from typing import Any

import pytest

from headrace.broker.coordinators import transactions as coordinator
from headrace.broker.handlers import k24_add_partitions_to_txn
from headrace.core import transaction
from headrace.core.internal_topics import TRANSACTION_STATE
from headrace.core.transaction import Claim, State
from headrace.core.transactional_id import attempt_id
from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from headrace.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.broker.asking import TOPIC
from tests.broker.trio import Scenario, Trio, play
from tests.broker.txn_owner import (
    ID,
    NOBODY,
    SETTINGS,
    Owner,
    all_values,
    alone,
    committed_values,
    coordinator_of,
    first_of,
    kept_at,
    make_ready,
    opened,
    settled,
    until_in_state,
)


def run(scenario: Scenario, settings: dict[str, str] | None = None) -> None:
    play(scenario, {**SETTINGS, **(settings or {})}, replicates=True)


def test_what_is_committed_is_read_and_what_is_aborted_is_not() -> None:
    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio, [b"1", b"2"])
        assert await owner.end(commit=True) == 0
        assert await settled(lambda: first_of(owner.add(0))) == 0
        assert await settled(lambda: owner.produce([b"3"])) == 0
        assert await owner.end(commit=False) == 0
        assert await settled(lambda: first_of(owner.add(0))) == 0
        assert await settled(lambda: owner.produce([b"4"])) == 0
        assert await owner.end(commit=True) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT)
        assert await committed_values(trio) == [b"1", b"2", b"4"]
        assert [value for value in await all_values(trio) if value is not None and len(value) == 1] == [
            b"1",
            b"2",
            b"3",
            b"4",
        ]

    run(scenario)


def test_a_zombie_is_fenced_and_nothing_of_it_is_read() -> None:
    """Ttxn-2."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        old = await opened(trio, [b"old"])
        new = Owner(trio)
        assert await new.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await settled(new.init) == 0
        assert new.claim == (old.claim.producer_id, old.claim.epoch + 2)
        for version, code in ((4, ErrorCode.PRODUCER_FENCED), (1, ErrorCode.INVALID_PRODUCER_EPOCH)):
            assert await old.end(commit=True, version=version) == code
        for version, code in ((3, ErrorCode.PRODUCER_FENCED), (1, ErrorCode.INVALID_PRODUCER_EPOCH)):
            assert await old.add(0, version=version) == {0: code}
        for version, code in ((5, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.INVALID_PRODUCER_EPOCH)):
            assert await old.init(given=old.claim, version=version) == code
        assert await old.produce([b"later"]) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await committed_values(trio) == []

    run(scenario)


def test_records_that_come_after_the_abort_are_refused_and_leave_no_hanging_transaction() -> None:
    """Ttxn-3."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio, [b"1"])
        assert await owner.end(commit=False) == 0
        await until_in_state(trio, State.COMPLETE_ABORT)
        await committed_values(trio)
        assert await owner.produce([b"2"], version=11) == ErrorCode.TRANSACTION_ABORTABLE
        assert await owner.produce([b"2"], version=10) == ErrorCode.INVALID_TXN_STATE
        assert await committed_values(trio) == []

    run(scenario)


def test_a_transaction_whose_producer_is_gone_ends_by_itself() -> None:
    """Ttxn-4: within its time, ten seconds and a sweep."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio, [b"1"], timeout_ms=5_000)
        begun_s = trio.world.loop.now_s
        await until_in_state(trio, State.COMPLETE_ABORT)
        assert 4.9 < trio.world.loop.now_s - begun_s < 5 + 10 + 1
        assert await committed_values(trio) == []
        assert await owner.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert trio.broker(await coordinator_of(trio)).transactions.timed_out == 1
        assert await settled(owner.init) == 0

    run(scenario)


@pytest.mark.parametrize("transactional_id", [ID, attempt_id("jobs", "query", 0, 0, "run", 0)])
def test_a_first_question_meets_a_disk_that_fails(transactional_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ends the leadership within the very question: the producer hears of it, and finds the next coordinator."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = Owner(trio, transactional_id)
        owner.at = await coordinator_of(trio)
        failing = trio.partition(owner.at, 0, TRANSACTION_STATE)

        def admit(*_: object) -> None:
            raise OSError(errno.EIO, "the disk fails")

        monkeypatch.setattr(type(failing), "admit_own", admit)
        assert await owner.init() == ErrorCode.NOT_COORDINATOR
        monkeypatch.undo()
        owner.at = None
        assert await settled(owner.init) == 0

    run(scenario)


def test_an_id_whose_epochs_are_used_up_gets_another_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ttxn-5."""
    monkeypatch.setattr(transaction, "EXHAUSTED_EPOCH", 2)

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = Owner(trio)
        for epoch in (0, 1, 2):
            assert await settled(owner.init) == 0
            assert owner.claim.epoch == epoch
        first = owner.claim
        assert await settled(lambda: owner.init(given=first)) == 0
        assert owner.claim.producer_id != first.producer_id and owner.claim.epoch == 0
        last = owner.claim
        assert await settled(lambda: owner.init(given=first)) == 0
        assert owner.claim == last

    run(scenario)


def test_an_answer_that_was_lost_is_given_again_by_the_next_coordinator() -> None:
    """Ttxn-6, for the end of a transaction and for an epoch."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio, [b"1"])
        assert await owner.end(commit=True) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT)
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        assert await settled(lambda: owner.end(commit=True)) == 0
        assert await owner.end(commit=False) == ErrorCode.INVALID_TXN_STATE
        before = owner.claim
        assert await settled(lambda: owner.init(given=before)) == 0
        bumped = owner.claim
        assert bumped == (before.producer_id, before.epoch + 1)
        for node in trio.world.nodes:
            if not node.is_alive:
                node.start()
                await trio.serves(node.node_id)
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        assert await settled(lambda: owner.init(given=before)) == 0
        assert owner.claim == bumped
        assert await committed_values(trio) == [b"1"]

    run(scenario)


def test_while_a_decision_is_not_committed_everybody_else_waits() -> None:
    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio)
        node_id = await coordinator_of(trio)
        alone(trio, node_id)
        client = await trio.client(node_id)
        kept = kept_at(trio, node_id)
        asked = asyncio.ensure_future(owner.ask(_end_of(owner, commit=True), EndTxnResponse, at=node_id))
        await trio.until(lambda: kept.is_pending)
        other = await owner.ask(_end_of(owner, commit=False), EndTxnResponse, at=node_id)
        assert other.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (await asked).error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        client.peer.close()
        trio.world.network.heal_all()
        assert await settled(lambda: owner.end(commit=True)) == 0
        assert await committed_values(trio) == [b"1", b"2"]

    run(scenario)


def _end_of(owner: Owner, commit: bool) -> EndTxnRequest:
    claim = owner.claim
    return EndTxnRequest(
        transactional_id=ID, producer_id=claim.producer_id, producer_epoch=claim.epoch, committed=commit
    )


def test_partitions_join_all_or_none() -> None:
    async def scenario(trio: Trio) -> None:
        await make_ready(trio, partitions=2)
        owner = Owner(trio)
        assert await settled(owner.init) == 0
        assert await owner.add(0, 7, 1) == {
            0: ErrorCode.OPERATION_NOT_ATTEMPTED,
            7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            1: ErrorCode.OPERATION_NOT_ATTEMPTED,
        }
        assert await owner.add(0, topic="__consumer_offsets") == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        known = kept_at(trio, await coordinator_of(trio)).transaction
        assert known is not None and known.state is State.EMPTY
        assert await owner.add(0, 1) == {0: 0, 1: 0}
        assert await owner.end(commit=True) == 0

    run(scenario)


def test_requests_that_name_nobody_or_somebody_else_are_refused() -> None:
    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = Owner(trio)
        owner.claim = Claim(5, 0)
        assert await owner.add(0) == {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert await owner.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        owner.claim = NOBODY
        assert await owner.init(timeout_ms=900_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await owner.init(timeout_ms=0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await owner.init(given=Claim(5, -1)) == ErrorCode.INVALID_REQUEST
        assert await settled(owner.init) == 0
        assert await owner.end(commit=True) == ErrorCode.INVALID_TXN_STATE
        stranger = Owner(trio)
        stranger.claim = Claim(owner.claim.producer_id + 1, 0)
        assert await stranger.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await stranger.init(given=stranger.claim) == ErrorCode.PRODUCER_FENCED
        for bad in (Owner(trio, ""), Owner(trio, "x" * 32_768)):
            assert await bad.init() == ErrorCode.INVALID_REQUEST
            assert await bad.end(commit=True) != 0

    run(scenario)


def test_nodes_ask_for_many_transactions_at_once_whether_partitions_are_in_them() -> None:
    async def scenario(trio: Trio) -> None:
        await make_ready(trio, partitions=2)
        owner = await opened(trio)
        client = await trio.client(await coordinator_of(trio))

        def asked(transactional_id: str, claim: Claim) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=claim.producer_id,
                producer_epoch=claim.epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1])],
            )

        newer = Claim(owner.claim.producer_id, owner.claim.epoch + 1)
        request = AddPartitionsToTxnRequest(
            transactions=[asked(ID, owner.claim), asked("unknown", owner.claim), asked(ID, newer), asked("", newer)]
        )
        answer = await client.ask(request, AddPartitionsToTxnResponse, 4)
        codes = [
            [p.partition_error_code for p in result.topic_results[0].results_by_partition]
            for result in answer.results_by_transaction
        ]
        assert codes == [
            [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE],
            [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2,
            [ErrorCode.PRODUCER_FENCED] * 2,
            [ErrorCode.INVALID_REQUEST] * 2,
        ]
        assert (await client.ask(AddPartitionsToTxnRequest(), AddPartitionsToTxnResponse, 4)).error_code == 0

    run(scenario)


def test_transactions_are_described_and_listed() -> None:
    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio)
        client = await trio.client(await coordinator_of(trio))
        request = DescribeTransactionsRequest(transactional_ids=[ID, "other", ""])
        known, unknown, empty = (await client.ask(request, DescribeTransactionsResponse)).transaction_states
        assert (known.error_code, known.transaction_state, known.transaction_timeout_ms) == (0, "Ongoing", 60_000)
        assert (known.producer_id, known.producer_epoch) == owner.claim
        assert [(topic.topic, topic.partitions) for topic in known.topics] == [(TOPIC, [0])]
        assert known.transaction_start_time_ms > 0
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST

        async def listed(request: ListTransactionsRequest) -> list[tuple[str, str]]:
            answer = await client.ask(request, ListTransactionsResponse)
            return [(one.transactional_id, one.transaction_state) for one in answer.transaction_states]

        assert await listed(ListTransactionsRequest()) == [(ID, "Ongoing")]
        assert await listed(ListTransactionsRequest(state_filters=["Ongoing"])) == [(ID, "Ongoing")]
        assert await listed(ListTransactionsRequest(state_filters=["Empty"])) == []
        assert await listed(ListTransactionsRequest(producer_id_filters=[owner.claim.producer_id])) == [(ID, "Ongoing")]
        assert await listed(ListTransactionsRequest(producer_id_filters=[-5])) == []
        assert await listed(ListTransactionsRequest(duration_filter=600_000)) == []
        assert await listed(ListTransactionsRequest(transactional_id_pattern="an.*")) == [(ID, "Ongoing")]
        assert await listed(ListTransactionsRequest(transactional_id_pattern="an")) == []
        bad = await client.ask(ListTransactionsRequest(transactional_id_pattern="(an"), ListTransactionsResponse)
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        strange = await client.ask(ListTransactionsRequest(state_filters=["Asleep"]), ListTransactionsResponse)
        assert strange.unknown_state_filters == ["Asleep"] and not strange.transaction_states

    run(scenario)


def test_an_id_that_nobody_uses_is_forgotten_and_one_with_an_open_transaction_is_not() -> None:
    settings = {
        "transactional.id.expiration.ms": "20000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    }

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio, timeout_ms=600_000)
        idle = Owner(trio, "idle")
        assert await settled(idle.init) == 0
        transactions = trio.broker(await coordinator_of(trio)).transactions
        await trio.until(lambda: transactions.find("idle") is None)
        assert transactions.expired == 1
        assert await settled(lambda: owner.end(commit=True)) == 0
        trio.world.nodes[await coordinator_of(trio) - 1].kill()
        assert trio.broker(await coordinator_of(trio)).transactions.find("idle") is None
        assert await settled(idle.init) == 0
        assert idle.claim.epoch == 0

    run(scenario, settings)


def test_a_transaction_whose_last_record_is_refused_is_completed_when_the_log_takes_records_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is left between an end and its completion."""

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = await opened(trio)
        broker = trio.broker(await coordinator_of(trio))
        refusals = 0
        append = broker.transactions.log.append

        def refuse_completions(*args: Any, **options: Any) -> ErrorCode:
            nonlocal refusals
            kept = kept_at(trio, broker.node_id)
            if refusals < 5 and kept.transaction is not None and kept.transaction.state is State.PREPARE_COMMIT:
                refusals += 1
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return append(*args, **options)

        monkeypatch.setattr(broker.transactions.log, "append", refuse_completions)
        assert await owner.end(commit=True) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT)
        assert refusals == 5
        assert await committed_values(trio) == [b"1", b"2"]

    run(scenario)


def test_too_many_partitions_at_once_close_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k24_add_partitions_to_txn, "PARTITIONS_MAX", 3)

    async def scenario(trio: Trio) -> None:
        await make_ready(trio, partitions=2)
        owner = Owner(trio)
        assert await settled(owner.init) == 0
        assert await owner.add(0, 1) == {0: 0, 1: 0}
        with pytest.raises(PeerLost):
            await owner.add(0, 1, 2)

    run(scenario)


def test_there_is_a_bound_for_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "TRANSACTIONAL_IDS_MAX", 1)

    async def scenario(trio: Trio) -> None:
        await make_ready(trio)
        owner = Owner(trio)
        assert await settled(owner.init) == 0
        assert await Owner(trio, "one more").init() == ErrorCode.POLICY_VIOLATION
        assert await settled(owner.init) == 0

    run(scenario)
