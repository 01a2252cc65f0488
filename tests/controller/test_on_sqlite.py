"""The controller on the store that production uses."""

from pathlib import Path

from headrace.controller.controller import Controller
from headrace.controller.topics import MorePartitions, NewTopic
from headrace.core.cluster import ClusterImage
from headrace.metadata.sqlite import SqliteStore
from headrace.system import SystemClock, SystemRandom, ThreadOffload


async def test_what_one_run_made_is_there_in_the_next(tmp_path: Path) -> None:
    offload = ThreadOffload()
    for run in range(3):
        store = await SqliteStore.open(tmp_path / "headrace.db", offload, SystemClock())
        controller = Controller(store, ClusterImage(1, {}), SystemClock(), SystemRandom())
        await controller.start()
        await controller.register("127.0.0.1", 9092, origin="here")
        assert await controller.ready(30)
        topics = controller.image.topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == (
            {f"t{n}": 400 + n for n in range(run)} if run < 2 else {"t1": 401}
        )
        assert {record.leader_epoch for topic in topics.values() for record in topic.partitions} <= {run, 1}
        await controller.create_topics([NewTopic(f"t{run}", 10, settings={"retention.ms": "5"})])
        await controller.create_partitions(MorePartitions(f"t{run}", 400 + run))
        assert topics[f"t{run}"].config.retention_ms == 5
        assert await controller.producer_ids.next() == 1000 * run
        if run == 1:
            assert await controller.delete_topics([topics["t0"].id]) == [True]
        await controller.stop()
        await store.close()
    offload.close()
