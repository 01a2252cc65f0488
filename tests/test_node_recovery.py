"""What a node makes of logs that a dead process left: what is written down first, and what counts when."""

import errno

import pytest

from headrace.node_config import NotStarted
from headrace.storage.segment import Segment
from tests.broker.support import TOPIC, World, records_of, until


async def killed_with_three_records(world: World) -> str:
    """The path of the log that it left."""
    async with world.started() as served:
        client = await served.client()
        await client.create_topic()
        for _ in range(3):
            await client.produce()
        await served.kill()
    return f"/data/logs/{TOPIC}-0/{0:020d}.log"


async def test_that_a_log_is_not_whole_is_written_down_before_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process dies in between, the next start must not take what is left for all there was."""
    with World() as world:
        path = await killed_with_three_records(world)
        world.memory.inode(path).data[-1] ^= 1
        noted: list[bool] = []
        cut = Segment.cut

        def looked(segment: Segment, position: int, end_offset: int) -> None:
            noted.append(b"headrace.intact.since=0\n" in world.memory.read("/data/meta.properties"))
            cut(segment, position, end_offset)

        monkeypatch.setattr(Segment, "cut", looked)
        async with world.started() as served:
            assert await (await served.client()).offset() == 2
        assert noted == [True]


async def test_a_log_is_not_cut_when_that_cannot_be_written_down() -> None:
    with World() as world:
        path = await killed_with_three_records(world)
        size = world.memory.size(path)
        world.memory.inode(path).data[-1] ^= 1
        world.memory.fail("rename", "/data/meta.properties*", errno.EIO, times=1 << 60)
        with pytest.raises(NotStarted, match=r"meta\.properties"):
            await world.node().start()
        assert world.memory.size(path) == size


async def test_what_a_dead_process_had_not_synced_counts_only_once_it_is() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(settings={"flush.messages": "1"})
            await client.produce(records_of([b"synced"]))
            world.offload.hold("files")
            unsynced = client.send(records_of([b"written"]))
            await until(lambda: world.offload.held("files"))
            await served.kill()
            unsynced.cancel()
        async with world.started() as served:
            told = await (await served.client()).read_all()
            await served.kill()
        world.memory.lose_power()
        async with world.started() as served:
            assert (await (await served.client()).read_all())[: len(told)] == told
