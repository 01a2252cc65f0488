"""Ttxn-1: the coordinator dies in every state of a transaction, with the state's record committed, only copied, or only
written by itself. What comes of it is what the log says, and never both ends."""

from collections.abc import Awaitable, Callable

import pytest

from headrace.broker.coordinators.kept import Kept
from headrace.core.transaction import State, Transaction
from headrace.errors import ErrorCode
from tests.broker.dying import HOWS, WRITTEN, begins, die_in
from tests.broker.trio import Trio, play
from tests.broker.txn_owner import (
    SETTINGS,
    Owner,
    committed_values,
    coordinator_of,
    first_of,
    is_coordinating,
    kept_at,
    make_ready,
    no_marker_leaves,
    opened,
    other_nodes,
    settled,
    until_in_state,
)


def state_at(trio: Trio, node_id: int, state: State) -> Callable[[], bool]:
    def holds() -> bool:
        kept = trio.broker(node_id).transactions.find("an id")
        return isinstance(kept, Kept) and kept.transaction is not None and kept.transaction.state is state

    return holds


def run(scenario: Callable[[Trio], Awaitable[None]]) -> None:
    async def main(trio: Trio) -> None:
        await make_ready(trio)
        await scenario(trio)

    play(main, SETTINGS, replicates=True)


@pytest.mark.parametrize("how", HOWS)
def test_it_dies_when_a_producer_begins(how: str) -> None:
    async def scenario(trio: Trio) -> None:
        owner = Owner(trio)
        node_id = await coordinator_of(trio)
        await die_in(trio, how, begins(owner.init), state_at(trio, node_id, State.EMPTY))
        assert await settled(owner.init) == 0
        assert owner.claim.epoch == (0 if how == WRITTEN else 1)
        assert await settled(lambda: first_of(owner.add(0))) == 0
        assert await settled(lambda: owner.produce([b"1"])) == 0
        assert await settled(lambda: owner.end(commit=True)) == 0
        assert await committed_values(trio) == [b"1"]

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("how", HOWS)
def test_it_dies_when_a_transaction_is_opened(how: str, commit: bool) -> None:
    async def scenario(trio: Trio) -> None:
        owner = Owner(trio)
        assert await settled(owner.init) == 0
        node_id = await coordinator_of(trio)
        await die_in(trio, how, begins(lambda: first_of(owner.add(0))), state_at(trio, node_id, State.ONGOING))
        if how == WRITTEN:
            assert await settled(lambda: owner.end(commit)) == ErrorCode.INVALID_TXN_STATE
        assert await settled(lambda: first_of(owner.add(0))) == 0
        assert await settled(lambda: owner.produce([b"1"])) == 0
        assert await settled(lambda: owner.end(commit)) == 0
        assert await committed_values(trio) == ([b"1"] if commit else [])

    run(scenario)


@pytest.mark.parametrize("changes_its_mind", [False, True])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("how", HOWS)
def test_it_dies_when_an_end_is_decided(
    how: str, commit: bool, changes_its_mind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the producer then asks for the other end."""
    prepared = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT

    async def scenario(trio: Trio) -> None:
        owner = await opened(trio)
        node_id = await coordinator_of(trio)
        no_marker_leaves(trio, node_id, monkeypatch)
        await die_in(trio, how, begins(lambda: owner.end(commit)), state_at(trio, node_id, prepared))
        outcome = commit
        if changes_its_mind:
            code = await settled(lambda: owner.end(not commit))
            assert code == (0 if how == WRITTEN else ErrorCode.INVALID_TXN_STATE)
            outcome = not commit if how == WRITTEN else commit
        assert await settled(lambda: owner.end(outcome)) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT if outcome else State.COMPLETE_ABORT)
        assert await committed_values(trio) == ([b"1", b"2"] if outcome else [])

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("how", HOWS)
def test_it_dies_when_all_markers_are_written(how: str, commit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT

    async def scenario(trio: Trio) -> None:
        owner = await opened(trio)
        node_id = await coordinator_of(trio)
        transactions = trio.broker(node_id).transactions
        held: list[tuple[Kept, Transaction]] = []
        completes = transactions._marked
        monkeypatch.setattr(transactions, "_marked", lambda kept, known: held.append((kept, known)))
        assert await settled(lambda: owner.end(commit)) == 0
        await trio.until(lambda: held)
        await die_in(trio, how, lambda: completes(*held[0]), state_at(trio, node_id, complete))
        assert await settled(lambda: owner.end(commit)) == 0
        await until_in_state(trio, complete)
        assert await committed_values(trio) == ([b"1", b"2"] if commit else [])
        kept = kept_at(trio, await coordinator_of(trio))
        assert kept.transaction is not None and not kept.transaction.partitions

    run(scenario)


def test_one_that_was_paused_decides_nothing_when_it_wakes() -> None:
    """Its appends fail, and its markers lose by the epoch of the next coordinator."""

    async def scenario(trio: Trio) -> None:
        owner = await opened(trio)
        old = trio.world.nodes[await coordinator_of(trio) - 1]
        old.pause()
        await trio.until(lambda: any(is_coordinating(trio, other) for other in other_nodes(old.node_id)))
        assert await settled(lambda: owner.end(commit=False)) == 0
        old.resume()
        client = await trio.client(old.node_id)
        code = await owner.end(commit=True)
        assert code == ErrorCode.INVALID_TXN_STATE or code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        client.peer.close()
        await until_in_state(trio, State.COMPLETE_ABORT)
        assert await committed_values(trio) == []

    run(scenario)
