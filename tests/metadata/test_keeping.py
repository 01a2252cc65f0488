"""The beats that keep a lease."""

import asyncio

from headrace.metadata.keeping import Keepers
from headrace.metadata.store import Lease, MetadataStoreError
from tests.broker.stepped import NOW_MS, SteppedClock
from tests.metadata.conftest import DEADLINE_S, until


class ScriptedBeats:
    """Each beat takes 3 s of the boot clock, and then does what is next in the script."""

    def __init__(self, *script: bool | None) -> None:
        self.clock = SteppedClock()
        self.script = list(script)
        self.keepers = Keepers(self.clock, self._beat)

    async def _beat(self, _: int) -> bool:
        if not self.script:
            await asyncio.Event().wait()
        self.clock.now_ms += 3_000
        answer = self.script.pop(0)
        if answer is None:
            raise MetadataStoreError("The metadata store is not available")
        return answer


async def test_a_beat_counts_from_when_it_was_sent() -> None:
    beats = ScriptedBeats(True, True)
    lease = Lease(1, 9_000, NOW_MS)
    beats.keepers.keep(lease, 1)
    await until(lambda: lease.beat_sent_ms == NOW_MS + 3_000)
    assert beats.clock.now_ms == NOW_MS + 6_000
    await beats.keepers.close()


async def test_a_beat_that_fails_counts_for_nothing_and_is_tried_again() -> None:
    beats = ScriptedBeats(None, None)
    lease = Lease(1, 9_000, NOW_MS)
    beats.keepers.keep(lease, 1)
    await until(lambda: not beats.script)
    assert lease.beat_sent_ms == NOW_MS
    assert not lease.lost.is_set()
    await beats.keepers.close()


async def test_a_lease_that_the_store_does_not_know_is_lost() -> None:
    beats = ScriptedBeats(True, None, False, True)
    lease = Lease(1, 9_000, NOW_MS)
    beats.keepers.keep(lease, 1)
    await asyncio.wait_for(lease.lost.wait(), DEADLINE_S)
    assert beats.script == [True]
    await beats.keepers.close()


async def test_a_lease_that_is_given_up_is_not_kept() -> None:
    beats = ScriptedBeats(*[True] * 100)
    lease = Lease(1, 1 << 40, NOW_MS)
    beats.keepers.keep(lease, 1)
    assert lease.is_valid(beats.clock.boot_ms())
    assert await beats.keepers.give_up(lease.id) is lease
    assert not lease.is_valid(beats.clock.boot_ms())
    left = len(beats.script)
    await asyncio.sleep(0.02)
    assert len(beats.script) == left
    assert await beats.keepers.give_up(lease.id) is None
