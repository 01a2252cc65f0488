"""What the observer of a world waits for."""

import asyncio

from headrace.metadata import records
from headrace.metadata.store import Cmp, Put
from headrace.sim.history import History
from headrace.sim.observer import Observer
from headrace.sim.world import World

LATE_MS = 3_000


def test_what_was_on_its_way_to_a_node_when_its_store_became_fast_again_is_waited_for() -> None:
    world = World(1, 2)
    observer = Observer(world, History(world.loop.time), 2)

    async def main() -> None:
        for node in world.nodes:
            node.start()
        await world.until_serving()
        late = world.nodes[0]
        assert late.store is not None
        late.store.delay_ms = LATE_MS
        name = records.ClusterRecord("another")
        put = Put(records.CLUSTER_KEY, records.encode(name))
        before = world.data.kvs[records.CLUSTER_KEY].mod_rev
        assert world.data.txn([Cmp(put.key, before)], [put], []).ok
        await asyncio.sleep(1)  # virtual: it begins to hear of it
        late.store.delay_ms = 0
        assert late.node is not None and late.node.broker is not None
        assert late.node.broker.image.rev < world.truth.rev
        await observer.until_informed()
        assert late.node.broker.image.cluster_id == name.id

    try:
        world.loop.run(main(), 60)
        assert world.loop.failures == []
    finally:
        world.close()
