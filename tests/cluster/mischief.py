"""What is done to the nodes of a cluster, by a seed: killed, paused, stopped, started again, sometimes two at once."""

import os
import time
from collections import Counter
from random import Random, SystemRandom

from tests.servers.cluster import HeadraceCluster

LONGER_THAN_A_LEASE_S = 5.0


def chosen_seed() -> int:
    """CHAOS_SEED, or a new one in every run; a failure prints it."""
    seed = int(os.environ.get("CHAOS_SEED") or SystemRandom().getrandbits(32))
    print(f"CHAOS_SEED={seed}")
    return seed


class Mischief:
    def __init__(self, cluster: HeadraceCluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            victims = self.random.sample(sorted(self.cluster.nodes), 2 if self.random.random() < 0.15 else 1)
            deed = self.random.choice((self._kill, self._kill, self._kill_and_tell, self._pause, self._stop))
            for victim in victims:
                deed(victim)
            time.sleep(self.random.choice((0.0, 0.3, 1.0, 2.0, LONGER_THAN_A_LEASE_S)))
            for victim in victims:
                self._mend(victim)
            time.sleep(self.random.choice((0.2, 0.5, 1.0, 3.0)))

    def heal(self) -> None:
        for node_id in self.cluster.nodes:
            self._mend(node_id)

    def _kill(self, victim: int) -> None:
        self.done["killed"] += 1
        self.cluster.nodes[victim].kill()

    def _kill_and_tell(self, victim: int) -> None:
        self.done["killed and withdrawn"] += 1
        self.cluster.nodes[victim].kill()
        self.cluster.withdraw(victim)

    def _pause(self, victim: int) -> None:
        self.done["paused"] += 1
        self.cluster.pause(victim)

    def _stop(self, victim: int) -> None:
        self.done["stopped"] += 1
        self.cluster.nodes[victim].stop()

    def _mend(self, victim: int) -> None:
        node = self.cluster.nodes[victim]
        if node.process is not None and node.process.poll() is None:
            self.cluster.resume(victim)
        else:
            node.launch()
