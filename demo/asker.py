"""Asks every node for the latest offsets, all the time, as the most careless client would."""

import threading
from collections.abc import Callable

from demo.evidence import ToldEnd
from demo.plan import ORDERS, PARTITIONS
from tests.servers.caller import Caller
from tests.servers.process import BrokerProcess

PACE_S = 0.1
ANSWER_S_MAX = 3.0


class Asker:
    """One thread for one node. It asks to the end, whatever comes; what is no answer is noted in `failures`."""

    def __init__(
        self, node_id: int, node: BrokerProcess, ends: list[ToldEnd], failures: list[str], now_s: Callable[[], float]
    ) -> None:
        self._node_id, self._node, self._ends, self._now_s = node_id, node, ends, now_s
        self._failures = failures
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"asker {node_id}", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with Caller(self._node.host, self._node.port, ANSWER_S_MAX) as caller:
                    while not self._over.wait(PACE_S):
                        self._ask(caller)
            except OSError:  # the node is dead, or starts
                self._over.wait(PACE_S)
            except Exception as failure:  # a thread that ends in silence would ask, and prove, nothing
                self._failures.append(f"at {self._now_s():.2f} s node {self._node_id} gave no answer: {failure!r}")
                self._over.wait(PACE_S)

    def _ask(self, caller: Caller) -> None:
        asked_s = self._now_s()
        told = caller.latest(ORDERS, PARTITIONS)
        at_s = self._now_s()
        self._ends += [
            ToldEnd(asked_s, at_s, self._node_id, partition, int(one.error), one.offset)
            for partition, one in told.items()
        ]
