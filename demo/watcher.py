"""Who leads what, and why, as the nodes tell it: looked at again and again."""

import threading
from collections.abc import Callable

from demo.evidence import Led
from demo.inspecting import why
from demo.plan import ORDERS
from headrace.errors import KafkaError
from tests.servers.cluster import HeadraceCluster

PACE_S = 0.2


class Watcher:
    """In a thread of its own; adds to `led` whenever something changed."""

    def __init__(self, cluster: HeadraceCluster, led: list[Led], now_s: Callable[[], float]) -> None:
        self._cluster, self._led, self._now_s = cluster, led, now_s
        self._known: dict[int, tuple[int, int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def leader(self, partition: int) -> int:
        """-1: nobody, or not known."""
        return self._known.get(partition, (-1, -1))[1]

    def finish(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(PACE_S):
            for partition, (epoch, leader) in sorted(self._look().items()):
                known = self._known.get(partition, (-1, -1))
                if epoch >= known[0] and (epoch, leader) != known:
                    self._known[partition] = epoch, leader
                    self._led.append(Led(self._now_s(), partition, leader, epoch, self._because(partition)))

    def _look(self) -> dict[int, tuple[int, int]]:
        """Epoch and leader of each partition, from the node that knows the newest."""
        newest: dict[int, tuple[int, int]] = {}
        for node_id in self._cluster.nodes:
            answer = self._cluster.describe(ORDERS, by=node_id)
            for one in answer.topics[0].partitions if answer is not None else ():
                seen = one.leader_epoch, one.leader_id
                newest[one.partition_index] = max(newest.get(one.partition_index, seen), seen)
        return newest

    def _because(self, partition: int) -> str:
        try:
            return str(why(self._cluster, partition)["because"])
        except (KafkaError, LookupError):  # nobody decides at this moment
            return ""
