"""Three nodes that share 100,000 partitions of three copies: python -m bench.many_partitions [PARTITIONS]."""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.clusters import HeadraceNodes, wait_until
from bench.raw import RawClient
from bench.startup import machine

TOPICS = 10


def topics() -> list[str]:
    return [f"many-{number}" for number in range(TOPICS)]


def taken(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def create(nodes: HeadraceNodes, partitions: int) -> None:
    for topic in topics():
        with RawClient(nodes.port) as client:
            client.create_replicated(topic, partitions // TOPICS)
    whole(nodes, partitions)


def whole(nodes: HeadraceNodes, partitions: int) -> None:
    for topic in topics():
        nodes.wait_whole(topic, partitions // TOPICS)


def leaders_are(nodes: HeadraceNodes, ids: Sequence[int]) -> bool:
    """By what each living node tells."""
    for node_id in ids:
        with RawClient(nodes.ports[node_id]) as client:
            if any(told.leader not in ids for topic in topics() for told in client.describe(topic).values()):
                return False
    return True


def main() -> None:
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        nodes = HeadraceNodes(Path(directory))
        print(f"{machine()}; {len(nodes.ports)} nodes, {partitions:,} partitions, 3 copies of each", flush=True)
        nodes.start()
        try:
            print(
                f"{TOPICS} topics created, every ISR whole: {taken(lambda: create(nodes, partitions)):.1f} s",
                flush=True,
            )
            print(f"memory of all nodes: {nodes.rss_bytes() / 1e6:.0f} MB", flush=True)
            print(f"stopped, with leaders moved: {taken(nodes.stop):.1f} s", flush=True)
            print(f"started again, every node answers: {nodes.start():.1f} s", flush=True)
            print(f"then until every ISR is whole: {taken(lambda: whole(nodes, partitions)):.1f} s", flush=True)
            began = time.monotonic()
            nodes.die(1)
            wait_until(lambda: leaders_are(nodes, [2, 3]), "every partition has a living leader", 0.25)
            print(f"a node died, every partition is led again: {time.monotonic() - began:.1f} s", flush=True)
        finally:
            nodes.kill()


if __name__ == "__main__":
    main()
