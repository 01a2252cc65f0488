"""Of all who use a tier for the first time, one says which store it is."""

import pytest

from headrace.controller.tier_mark import TierMark
from headrace.metadata.memory import Fault, MemoryData, MemoryStore
from headrace.metadata.store import OutcomeUnknown
from tests.controller.world import started


async def test_the_first_mark_stays_for_ever() -> None:
    data = MemoryData()
    one, two = TierMark(MemoryStore(data)), TierMark(MemoryStore(data))
    assert await one.read() is None
    assert await one.claim("a") == "a"
    assert await two.claim("b") == "a" == await two.read()


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_DROPPED])
async def test_a_claim_in_doubt_is_made_again(fault: Fault) -> None:
    store = MemoryStore()
    mark = TierMark(store)
    store.faults.append(fault)
    with pytest.raises(OutcomeUnknown):
        await mark.claim("a")
    assert await mark.claim("a") == "a"


async def test_a_node_that_loads_the_metadata_is_not_troubled_by_the_mark() -> None:
    data = MemoryData()
    await TierMark(MemoryStore(data)).claim("a")
    assert (await started(MemoryStore(data))).image.cluster_id
