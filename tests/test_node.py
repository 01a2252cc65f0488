"""One node from start to stop, to kill, to the next start: what stays, what is refused, and in which words."""

import asyncio
import errno
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.node import Node
from headrace.node_config import NodeConfig, NotStarted
from headrace.storage.memory_files import CHANGES, MemoryFiles
from headrace.storage.os_files import OsFiles
from headrace.wire.messages.fetch import FetchResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.support import (
    EARLIEST,
    TOPIC,
    Client,
    World,
    delete_records,
    fetch_request,
    numbered,
    records_of,
    until,
    values_of,
)
from tests.net.loops import on_both_loops


class CountingFiles(MemoryFiles):
    """Notes every file that is opened, created, read, listed or measured."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []
        self.changed: list[str] = []

    def enter(self, operation: str, path: str, size: int = 0, life: int | None = None) -> int:
        self.touched.append(path)
        if operation in CHANGES and operation != "sync_directory":
            self.changed.append(path)
        return super().enter(operation, path, size, life)

    def size(self, path: str) -> int:
        self.touched.append(path)
        return super().size(path)


async def leader_epoch(client: Client) -> int:
    answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
    (topic,) = answer.topics
    return topic.partitions[0].leader_epoch


async def refused(node: Node) -> str:
    """The one sentence."""
    with pytest.raises(NotStarted) as refusal:
        await node.start()
    sentence = str(refusal.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("killed", [True, False])
async def test_a_restart_keeps_everything(killed: bool) -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            topic_id = await client.create_topic(settings={"segment.bytes": "300", "max.message.bytes": "12345"})
            for number in range(10):
                await client.produce(records_of([b"%d" % number + bytes(50)]))
            assert await delete_records(client, 4) == [(0, 4)]
            before = await client.ask(MetadataRequest(topics=None), MetadataResponse)
            if killed:
                await served.kill()
        async with world.started() as served:
            client = await served.client()
            assert [await client.offset(), await client.offset(EARLIEST)] == [10, 4]
            assert await client.read_all(4) == [b"%d" % number + bytes(50) for number in range(4, 10)]
            after = await client.ask(MetadataRequest(topics=None), MetadataResponse)
            assert after.cluster_id == before.cluster_id
            assert after.topics[0].topic_id == topic_id
            broker = served.node.broker
            assert broker is not None and broker.image.topics[TOPIC].config.max_message_bytes == 12345
            assert (await client.produce()).base_offset == 10


@on_both_loops
async def test_a_real_disk_keeps_everything_too() -> None:
    with World(files=OsFiles(50)) as world:
        data = str(world.directory / "data")
        for life in range(3):
            async with world.started(data=data) as served:
                client = await served.client()
                if not life:
                    await client.create_topic(partitions=20)
                for partition in range(20):
                    assert (await client.produce(numbered((1, 0, life)), partition)).base_offset == life
                if life == 1:
                    await served.kill()


@pytest.mark.parametrize("killed", [True, False])
async def test_every_start_leads_under_a_higher_epoch(killed: bool) -> None:
    with World() as world:
        epochs = []
        for life in range(4):
            async with world.started() as served:
                client = await served.client()
                if not life:
                    await client.create_topic()
                await client.produce()
                epochs.append(await leader_epoch(client))
                if killed:
                    await served.kill()
        assert epochs == sorted(set(epochs))


async def test_a_killed_node_loses_only_what_was_never_whole() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            for _ in range(3):
                await client.produce()
            await served.kill()
        path = f"/data/logs/{TOPIC}-0/{0:020d}.log"
        torn = world.memory.open(path)
        torn.write(torn.size(), [bytes(records_of())[:40]])
        async with world.started() as served:
            client = await served.client()
            assert await client.offset() == 3
            assert (await client.produce()).base_offset == 3


async def test_a_clean_restart_opens_no_log_until_somebody_asks() -> None:
    files = CountingFiles()
    with World(files=files) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(partitions=30)
            for partition in range(30):
                await client.produce(partition=partition)
        files.touched.clear()
        async with world.started() as served:
            client = await served.client()
            assert await client.offset(partition=7) == 1
            assert [path for path in files.touched if f"/{TOPIC}-" in path] == []
            assert values_of((await client.fetch(0, 7)).records) == [b"a value"]
            assert {path.split("/")[3] for path in files.touched if f"/{TOPIC}-" in path} == {f"{TOPIC}-7"}


async def test_a_start_and_stop_without_work_changes_nothing_but_what_it_remembers_of_itself() -> None:
    files = CountingFiles()
    with World(files=files) as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            await client.produce()
        files.changed.clear()
        async with world.started():
            pass
        assert {path for path in files.changed if not path.startswith("/data/meta.properties")} <= {"/data"}
        async with world.started() as served:
            assert await (await served.client()).offset() == 1


async def test_empty_partitions_have_no_files() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic(partitions=100)
            await client.produce(partition=3)
        names = world.memory.names("/data/logs")
        assert [name for name in names if name.startswith(TOPIC)] == [f"{TOPIC}-3"]


async def test_a_second_node_on_the_same_directory_is_refused_in_one_sentence() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            sentence = await refused(world.node())
            assert "/data" in sentence and "running" in sentence
            assert (await client.produce()).error_code == 0
        async with world.started() as served:
            assert await (await served.client()).offset() == 1


async def test_a_second_node_on_the_same_real_directory_is_refused_too() -> None:
    with World(files=OsFiles(50)) as world:
        data = str(world.directory / "data")
        async with world.started(data=data):
            other = Node(NodeConfig(node_id=1, listen="127.0.0.1:0", data=data, metadata=f"sqlite:{world.directory}/m"))
            assert data in await refused(other)


async def test_a_port_in_use_is_named_and_nothing_stays_locked() -> None:
    with World() as world, World() as other:
        async with world.started() as served:
            sentence = await refused(other.node(listen=served.node.address))
            assert served.node.address in sentence
            async with other.started() as started:  # its directory is free again
                await started.client()


async def test_a_metrics_port_in_use_is_refused_and_nothing_stays_open() -> None:
    with World() as world, World() as other:
        async with world.started() as served:
            node = other.node(metrics=served.node.metrics_address)
            await refused(node)
            host, _, port = node.address.rpartition(":")
            with pytest.raises(OSError):
                await asyncio.open_connection(host, int(port))
            async with other.started():
                pass


async def test_the_directory_of_another_node_is_refused() -> None:
    with World() as world:
        async with world.started():
            pass
        sentence = await refused(world.node(node_id=2))
        assert "node 1" in sentence and "node 2" in sentence


async def test_the_directory_of_another_cluster_is_refused() -> None:
    with World() as world:
        async with world.started():
            pass
        sentence = await refused(world.node(metadata=f"sqlite:{world.directory}/other.db"))
        assert "belongs to cluster" in sentence


def garbled(files: MemoryFiles) -> None:
    files.replace("/data/meta.properties", b"\xff\xfe\x00garbage\\u")


def halved(files: MemoryFiles) -> None:
    files.replace("/data/meta.properties", files.read("/data/meta.properties")[:20])


def from_the_future(files: MemoryFiles) -> None:
    old = files.read("/data/meta.properties")
    files.replace("/data/meta.properties", re.sub(rb"(?m)^version=.*$", b"version=99", old))


@pytest.mark.parametrize("harm", [garbled, halved, from_the_future])
async def test_meta_properties_that_nobody_understands_are_refused(harm: Callable[[MemoryFiles], None]) -> None:
    with World() as world:
        async with world.started():
            pass
        harm(world.memory)
        assert await refused(world.node())
        assert world.memory.exists("/data/meta.properties")


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"listen": "nowhere"}, "nowhere"),
        ({"listen": "127.0.0.1:99999"}, "99999"),
        ({"listen": "127.0.0.1:²"}, "²"),
        ({"metrics": "9092"}, "9092"),
        ({"metadata": "etcd:x"}, "etcd:x"),
        ({"metadata": "sqlite:"}, "sqlite:"),
        ({"metadata": "sqlite:/nowhere/at/all/m.db"}, "/nowhere"),
        ({"data": ""}, "--data"),
        ({"data": ","}, "--data"),
        ({"data": "/data,/data"}, "/data"),
        ({"settings": {"no.such.setting": "1"}}, "no.such.setting"),
        ({"settings": {"num.partitions": "many"}}, "many"),
        ({"listen": "256.0.0.1:0"}, "256.0.0.1"),
    ],
)
async def test_what_cannot_work_is_refused_by_naming_it(changed: dict[str, str], word: str) -> None:
    with World() as world:
        assert word in await refused(world.node(**changed))
        async with world.started():
            pass


async def test_a_disk_that_fails_at_the_start_is_told_in_one_sentence() -> None:
    with World() as world:
        world.memory.fail("make_directory", "*", errno.EACCES)
        assert "/data" in await refused(world.node())


async def test_directories_of_no_topic_are_kept_under_another_name() -> None:
    """Tsm-5."""
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            await client.produce()
        world.memory.make_directory("/data/logs/stranger-0")
        world.memory.make_directory("/data/logs/no-number-²")
        world.memory.create("/data/logs/stranger-0/precious")
        async with world.started() as served:
            assert await (await served.client()).offset() == 1
        names = world.memory.names("/data/logs")
        (stray,) = [name for name in names if name.startswith("stranger")]
        assert stray.endswith("-stray")
        assert world.memory.exists(f"/data/logs/{stray}/precious")
        assert f"{TOPIC}-0" in names


async def test_the_files_of_an_older_topic_of_the_same_name_are_set_aside() -> None:
    """The node was away while its topic was deleted and made again."""
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            await client.produce(records_of([b"old"]))
        old = world.memory.read(f"/data/logs/{TOPIC}-0/partition.metadata")
        async with world.started() as served:
            client = await served.client()
            await client.delete_topic()
            await client.create_topic()
            await client.produce(records_of([b"new"]))
            await served.kill()
        world.memory.replace(f"/data/logs/{TOPIC}-0/partition.metadata", old)
        async with world.started() as served:
            client = await served.client()
            assert await client.offset() == 0
            assert (await client.produce()).base_offset == 0
        assert [name for name in world.memory.names("/data/logs") if name.endswith("-stray")]


@pytest.mark.parametrize("made_again", [True, False])
async def test_a_deletion_undone_by_a_power_loss_brings_no_records_back(made_again: bool) -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            await client.produce(records_of([b"old"]))
        async with world.started() as served:
            client = await served.client()
            await client.delete_topic()
            if made_again:
                await client.create_topic(settings={"flush.messages": "1"})
                await client.produce(records_of([b"new"]))
            await served.kill()
        world.memory.lose_power()
        async with world.started() as served:
            client = await served.client()
            if not made_again:
                await client.create_topic()
            assert await client.read_all() == ([b"new"] if made_again else [])


async def test_a_log_shortened_by_somebody_else_counts_as_it_is() -> None:
    """Remembered offsets of a clean stop are not believed against the file."""
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            for number in range(3):
                await client.produce(records_of([b"%d" % number]))
        path = f"/data/logs/{TOPIC}-0/{0:020d}.log"
        world.memory.open(path).truncate(world.memory.size(path) - 1)
        async with world.started() as served:
            client = await served.client()
            answer = await client.produce(records_of([b"new"]))
            assert answer.error_code in (0, 56)
            if answer.error_code == 0:
                assert answer.base_offset == 2
                assert values_of((await client.fetch(0)).records) == [b"0", b"1", b"new"]


@on_both_loops
async def test_several_nodes_live_in_one_process_and_one_loop() -> None:
    async with AsyncExitStack() as stack:
        worlds = [stack.enter_context(World(node_id=number)) for number in (1, 2, 3)]
        nodes = [await stack.enter_async_context(world.started()) for world in worlds]
        assert len({served.node.address for served in nodes}) == 3
        for number, served in enumerate(nodes):
            client = await served.client()
            await client.create_topic(partitions=number + 1)
            await client.produce(records_of([b"%d" % number]))
        for number, served in enumerate(nodes):
            client = await served.client()
            answer = await client.ask(MetadataRequest(topics=None), MetadataResponse)
            assert [broker.node_id for broker in answer.brokers] == [number + 1]
            assert len(answer.topics[0].partitions) == number + 1
            assert values_of((await client.fetch(0)).records) == [b"%d" % number]


async def test_connections_leave_descriptors_for_files() -> None:
    with World(descriptors_max=32) as world:
        async with world.started() as served:
            clients = [await served.client() for _ in range(32 - 8 - 4)]
            raw = await served.raw()
            assert await raw.is_closed()
            raw.close()
            await clients[0].create_topic()
            assert (await clients[-1].produce()).error_code == 0


async def test_a_stopped_node_can_be_started_again() -> None:
    with World() as world:
        node = world.node()
        for _ in range(2):
            await node.start()
            await node.stop()
        await node.stop()  # once more does no harm


async def test_a_stop_answers_fetches_that_wait() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            waiting = client.peer.send(fetch_request(0, max_wait_ms=100_000), FetchResponse, 12)
            broker = served.node.broker
            assert broker is not None
            await until(lambda: broker.fetch_events._waiting)
            await served.node.stop()
            assert (await waiting).error_code == 0


async def test_a_node_that_could_not_stop_cleanly_recovers_at_the_next_start() -> None:
    with World() as world:
        async with world.started() as served:
            client = await served.client()
            await client.create_topic()
            await client.produce()
            world.memory.fail("sync", "*.log", errno.EIO)
        assert not world.memory.exists("/data/logs/.kafka_cleanshutdown")
        async with world.started() as served:
            client = await served.client()
            assert await client.offset() == 1
            assert (await client.produce()).base_offset == 1


async def test_all_paths_below_data_are_where_kafka_has_them() -> None:
    with World(files=OsFiles(50)) as world:
        data = world.directory / "data"
        async with world.started(data=str(data)) as served:
            client = await served.client()
            await client.create_topic()
            await client.produce()
        found = files_below(data)
        assert {
            "meta.properties",
            f"logs/{TOPIC}-0/{0:020d}.log",
            f"logs/{TOPIC}-0/{0:020d}.index",
            f"logs/{TOPIC}-0/{0:020d}.timeindex",
            f"logs/{TOPIC}-0/leader-epoch-checkpoint",
            f"logs/{TOPIC}-0/partition.metadata",
            "logs/.kafka_cleanshutdown",
        } <= found


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
