"""A coordinator whose time is over, and who cannot hear of its successor, promises nothing from memory (Ttxn-1)."""

from collections.abc import Awaitable, Callable

from headrace.core.transaction import State
from headrace.errors import ErrorCode
from tests.broker.asking import TOPIC
from tests.broker.trio import Trio, play
from tests.broker.txn_owner import (
    ID,
    SETTINGS,
    Owner,
    alone,
    committed_values,
    coordinator_of,
    first_of,
    is_coordinating,
    make_ready,
    opened,
    other_nodes,
    settled,
    until_in_state,
)

AGAIN = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS}
"""A producer that hears one of these looks for the coordinator, and asks again."""


def run(scenario: Callable[[Trio], Awaitable[None]]) -> None:
    async def main(trio: Trio) -> None:
        await make_ready(trio)
        await scenario(trio)

    play(main, SETTINGS, replicates=True)


async def succeeded(trio: Trio, owner: Owner) -> int:
    """The old coordinator. Neither the other nodes nor the metadata store reach it any more, clients do. The owner asks
    its successor."""
    old = await coordinator_of(trio)
    trio.store(old).unavailable = True
    alone(trio, old)
    others = other_nodes(old)
    await trio.until(lambda: any(is_coordinating(trio, other) for other in others))
    assert is_coordinating(trio, old), "it has heard of its successor"
    owner.at = next(other for other in others if is_coordinating(trio, other))
    return old


def heal(trio: Trio, old: int) -> None:
    trio.world.network.heal_all()
    trio.store(old).unavailable = False


def test_an_end_is_not_taken_for_one_that_it_remembers() -> None:
    async def scenario(trio: Trio) -> None:
        owner = await opened(trio, [b"1"])
        assert await settled(lambda: owner.end(commit=True)) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT)
        old = await succeeded(trio, owner)
        assert await settled(lambda: first_of(owner.add(0))) == 0
        assert await settled(lambda: owner.produce([b"2"])) == 0
        owner.at, new = old, owner.at
        assert await owner.end(commit=True) in AGAIN, "this transaction is open"
        owner.at = new
        assert await settled(lambda: owner.end(commit=True)) == 0
        heal(trio, old)
        assert await committed_values(trio) == [b"1", b"2"]

    run(scenario)


def test_it_lets_nobody_into_a_transaction_that_may_have_ended() -> None:
    async def scenario(trio: Trio) -> None:
        owner = await opened(trio, [b"1"])
        old = await succeeded(trio, owner)
        assert await settled(lambda: owner.end(commit=False)) == 0
        told: list[ErrorCode] = []
        trio.broker(old).transactions.verify(ID, owner.claim, [(TOPIC, 0)], lambda codes: told.extend(codes.values()))
        await trio.until(lambda: told)
        assert set(told) <= AGAIN
        owner.at = old
        assert await first_of(owner.add(0)) in AGAIN
        heal(trio, old)
        assert await committed_values(trio) == []

    run(scenario)


def test_nobody_is_fenced_by_what_it_remembers() -> None:
    async def scenario(trio: Trio) -> None:
        owner = Owner(trio)
        assert await settled(owner.init) == 0
        old = await succeeded(trio, owner)
        assert await settled(owner.init) == 0
        assert owner.claim.epoch == 1
        owner.at, new = old, owner.at
        assert await owner.init(given=owner.claim) in AGAIN
        assert await first_of(owner.add(0)) in AGAIN
        assert await owner.end(commit=True) in AGAIN
        owner.at = new
        assert await settled(lambda: first_of(owner.add(0))) == 0

    run(scenario)


def test_without_the_metadata_store_transactions_go_on() -> None:
    """All leases end, and nobody is elected: what is written again counts when it is committed."""

    async def scenario(trio: Trio) -> None:
        owner = await opened(trio, [b"1"])
        for node_id in (1, 2, 3):
            trio.store(node_id).unavailable = True
        await trio.until(lambda: not any(trio.broker(n).controller.lease_valid() for n in (1, 2, 3)))
        assert await settled(lambda: first_of(owner.add(0))) == 0, "it is in the transaction"
        assert await settled(lambda: owner.produce([b"2"])) == 0
        assert await settled(lambda: owner.end(commit=True)) == 0
        await until_in_state(trio, State.COMPLETE_COMMIT)
        assert await settled(lambda: owner.end(commit=True)) == 0, "the answer was lost"
        assert await settled(lambda: first_of(owner.add(0))) == 0
        assert await settled(lambda: owner.produce([b"3"])) == 0, "which its leader asks the coordinator for"
        assert await settled(lambda: owner.end(commit=True)) == 0
        for node_id in (1, 2, 3):
            trio.store(node_id).unavailable = False
        assert await committed_values(trio) == [b"1", b"2", b"3"]

    run(scenario)
