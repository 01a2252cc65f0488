"""Asks every node for the latest offsets, all the time and without metadata, as the most careless client would."""

import threading

from headrace.model import TopicPartition
from headrace.sim.history import History, ToldEnd
from tests.servers.caller import Caller
from tests.servers.process import BrokerProcess

PACE_S = 0.02
ANSWER_S_MAX = 3.0


class Asker:
    """One thread for a node: a node that is paused keeps nobody else from asking."""

    def __init__(self, node: BrokerProcess, topic: str, partitions: int, history: History) -> None:
        self.answers = 0
        self.refusals = 0
        self._node, self._topic, self._partitions, self._history = node, topic, partitions, history
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with Caller("127.0.0.1", self._node.port, ANSWER_S_MAX) as caller:
                    while not self._over.wait(PACE_S):
                        self._ask(caller)
            except OSError:
                self._over.wait(PACE_S)

    def _ask(self, caller: Caller) -> None:
        asked_s = self._history.now_s()
        told = caller.latest(self._topic, self._partitions)
        now_s = self._history.now_s()
        for at, (error, offset) in told.items():
            if error:
                self.refusals += 1
                continue
            self.answers += 1
            partition = TopicPartition(self._topic, at)
            self._history.add(ToldEnd(asked_s, now_s, f"asker of {self._node.name}", partition, offset))
