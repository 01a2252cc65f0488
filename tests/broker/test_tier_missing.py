"""A node without a tier, in a cluster that has tiered topics."""

import pytest

from headrace.broker.tier_missing import watch
from headrace.core.cluster import Diff
from headrace.errors import ErrorCode
from headrace.node_config import NotStarted
from headrace.wire.messages.offsets import ListOffsetsPartition
from tests.broker.copying import OFTEN, TieredWorld, copied, fill, partition_of, pointer_of, tiering
from tests.broker.support import EARLIEST, LATEST, MAX_TIMESTAMP, TOPIC, World, until
from tests.broker.test_tier_expiry import alter

TIERED = {"remote.storage.enable": "true", "segment.bytes": "300"}


async def refusal_of(world: World) -> str:
    world.settings = {}
    node = world.node()
    try:
        with pytest.raises(NotStarted) as refused:
            await node.start()
    finally:
        await node.stop()
    return str(refused.value)


async def test_it_does_not_start_and_says_what_to_do() -> None:
    with TieredWorld() as world:
        async with world.started() as served:
            client = await served.client()
            for name in (TOPIC, "one", "three", "two"):
                await client.create_topic(name, settings=TIERED)
            await client.create_topic("plain")
        said = await refusal_of(world)
        assert f"tiered topics ({TOPIC}, one, three and 1 more)" in said
        assert "remote.log.storage.system.enable=true" in said and "remote.log.delete.on.disable=true" in said
        world.settings = OFTEN
        async with world.started():
            pass


async def test_it_starts_once_the_tier_is_given_up_and_not_before_its_objects_are_gone() -> None:
    with TieredWorld() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings=TIERED)
            await fill(client)
            await copied(served)
        assert TOPIC in await refusal_of(world)
        world.settings = OFTEN
        async with world.started() as served:
            assert await alter(served, remote_storage_enable="false", remote_log_delete_on_disable="true") == 0
            await until(lambda: pointer_of(served) is None and world.segments() == {})
        world.settings = {}
        async with world.started() as served:
            client = await served.client()
            assert len(await client.read_all(await client.offset(EARLIEST))) > 0


async def test_a_store_that_is_named_and_not_used_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with World(settings={"remote.storage.url": "/objects"}) as world:
        async with world.started():
            assert "remote.storage.url has no effect" in caplog.text


async def test_what_becomes_tiered_while_it_runs_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with tiering() as (_, served, _):
        assert served.node.broker is not None
        image = served.node.broker.image
        look, diff = watch(image), Diff(topics_created=[image.topics[TOPIC]])
        look(diff)
        look(Diff(topics_configured=[image.topics[TOPIC]]))
        assert caplog.text.count(f"topic {TOPIC} is tiered, and this node has no tier") == 1


async def test_where_records_are_missing_it_answers_with_an_error() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            await fill(client)
            partition_of(served).local_log_start_moved(5)
            for timestamp in (0, MAX_TIMESTAMP):
                (answer,) = await client.list_offsets(ListOffsetsPartition(partition_index=0, timestamp=timestamp))
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await client.fetch(0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.offset(LATEST) == 12
