"""Load on a cluster, mischief, and the verdict."""

import time
from collections import Counter
from pathlib import Path

from headrace.sim.checkers import check
from headrace.sim.history import Acked, Final, GivenUp, History, Read
from tests.cluster.asker import Asker
from tests.cluster.load import AioLoad, JavaLoad, RdLoad, read_everything
from tests.cluster.mischief import Mischief
from tests.servers.cluster import HeadraceCluster

TOPIC = "chaos"
PARTITIONS = 3


def play(cluster: HeadraceCluster, mischief: Mischief, seconds: float, scratch: Path) -> None:
    cluster.create_topic(TOPIC, PARTITIONS, configs={"min.insync.replicas": "2", "segment.bytes": "65536"})
    cluster.until_whole(TOPIC)
    history = History(time.monotonic)
    bootstrap = cluster.bootstrap
    askers = [Asker(node, TOPIC, PARTITIONS, history) for node in cluster.nodes.values()]
    loads: list[JavaLoad | RdLoad | AioLoad] = [
        JavaLoad(bootstrap, TOPIC, PARTITIONS, history, scratch),
        RdLoad(bootstrap, TOPIC, PARTITIONS, history),
        AioLoad(bootstrap, TOPIC, PARTITIONS, history),
    ]
    try:
        mischief.run(seconds)
    finally:
        mischief.heal()
        for node in cluster.nodes.values():
            node.wait_ready()
        for load in loads:
            load.finish()
        for asker in askers:
            asker.finish()
    cluster.until_whole(TOPIC)
    cluster.until_equal(TOPIC, PARTITIONS)
    read_everything(bootstrap, TOPIC, PARTITIONS, history)
    history.events += cluster.replicas(TOPIC, PARTITIONS)
    acked = Counter(event.client for event in history.events if isinstance(event, Acked))
    read = Counter(event.client for event in history.events if isinstance(event, Read))
    given_up = [event for event in history.events if isinstance(event, GivenUp)]
    told, refused = sum(asker.answers for asker in askers), sum(asker.refusals for asker in askers)
    print(f"{dict(mischief.done)}; acknowledged {dict(acked)}, read {dict(read)}, given up {len(given_up)}; ", end="")
    print(f"asked for ends: {told} answers, {refused} refusals")
    there = {(event.partition, event.value) for event in history.events if isinstance(event, Final)}
    somewhere = [acked for load in loads if isinstance(load, RdLoad) for acked in load.acked_somewhere]
    print(f"acknowledged without an offset: {len(somewhere)}")
    assert there.issuperset(somewhere)
    violations = check(history.events)
    assert not violations, "\n".join(map(str, violations[:10]))
    assert not given_up, given_up[:3]
    assert set(acked) == set(read) == {load.name for load in loads}
    assert told > 0
