"""A manifest that cannot be read cuts its partition off no longer than it is so."""

import pytest

from headrace.broker import tier
from headrace.tier.memory import Mishap
from tests.broker.copying import TIERED, TieredWorld, copied, fill, pointer_of, tier_log_of
from tests.broker.support import until
from tests.broker.test_tier_inspection import inspect


@pytest.mark.parametrize("harm", ["empty", "rubbish", "gone", "bug"])
async def test_a_partition_goes_on_when_its_manifest_is_repaired(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "RETRY_S", 0.01)
    with TieredWorld() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=TIERED)
            await fill(client, 10)
            await copied(served)
        pointer = pointer_of(served)
        assert pointer is not None
        key, whole = pointer.manifest, world.bucket.objects[pointer.manifest]
        world.bucket.objects[key] = {"empty": b"", "rubbish": b"rubbish"}.get(harm, whole)
        if harm == "gone":
            del world.bucket.objects[key]

        def mishap(operation: str, name: str) -> Mishap:
            if harm == "bug" and operation == "get" and name == key:
                raise RuntimeError("of the store")
            return Mishap()

        world.bucket.mishap = mishap
        async with world.started() as served:
            await until(lambda: bool(tier_log_of(served).failure))
            (told,) = await inspect(await served.client())
            assert {"empty": "is empty", "rubbish": "does not begin", "gone": key, "bug": "of the store"}[harm] in told[
                "failure"
            ]
            world.bucket.objects[key] = whole
            world.bucket.mishap = lambda *_: Mishap()
            await until(lambda: tier_log_of(served).is_loaded.is_set())
            assert tier_log_of(served).failure == ""
            if harm == "bug":
                assert world.tracebacks.seen
                world.tracebacks.seen.clear()
