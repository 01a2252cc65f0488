"""Owners that are displaced in the middle of a transaction. Scenarios by their ids."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.net.peer import PeerLost
from tests.broker.marked import UNVERIFIED, end, fetch_committed, in_transaction, produce, read_committed
from tests.broker.owning import owner
from tests.broker.support import records_of, serving, until


async def test_a_takeover_does_not_end_the_open_transaction_of_the_owner_before() -> None:
    """Town-28: its records are below the fence, its marker is not; who reads what is committed waits for that."""
    async with serving(UNVERIFIED) as (served, client):
        old, new = await owner(served), await owner(served)
        await old.granted(exclusive=3)
        assert (await produce(old, in_transaction(0, b"open"))).base_offset == 0
        claimed = await new.claim(1, exclusive=3)
        assert (claimed.generation, claimed.fence_offset) == (2, 1)
        assert (await new.produce(records_of([b"mine"]))).base_offset == 1
        assert await new.read_all() == [b"open", b"mine"]
        fetched = await fetch_committed(new, 0)
        assert (fetched.error_code, fetched.last_stable_offset, fetched.records) == (0, 0, b"")
        assert await end(client, False) == [0]
        assert await read_committed(new) == [b"mine"]


async def test_a_batch_that_waits_for_its_coordinator_when_its_owner_is_displaced_is_never_stored() -> None:
    """Town-9 for the first batch of a transaction: it is tested again where its offset would be assigned."""
    async with serving() as (served, client):
        broker = served.node.broker
        assert broker is not None
        asked: list[tuple[Any, ...]] = []
        old, new = await owner(served), await owner(served)
        await old.granted()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(broker.verification), "verify", lambda *args: asked.append(args[1:]))
            sent = asyncio.ensure_future(produce(old, in_transaction(0, b"late")))
            await until(lambda: asked)
        assert (await new.claim(1)).fence_offset == 0
        ((partition, _, producer_id, epoch, then, sequence),) = asked
        then(ErrorCode.NONE, partition.begin_verification(producer_id, epoch, sequence, 0))
        assert (await client.produce(records_of([b"next"]))).base_offset == 0
        assert await client.read_all() == [b"next"]
        with pytest.raises(PeerLost):
            await sent
