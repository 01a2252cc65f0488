"""Everything that runs during the demo, and what is seen of it."""

import time
import traceback
from collections.abc import Callable
from pathlib import Path

from demo.asker import Asker
from demo.evidence import Evidence, Happening
from demo.owners import Owners
from demo.plan import (
    LEDGER,
    NODE_SETTINGS,
    ORDERS,
    ORDERS_SETTINGS,
    PARCELS,
    PARCELS_SETTINGS,
    PARTITIONS,
    QUIET,
    QUIET_PARTITIONS,
    SUMS,
    SUMS_PARTITIONS,
    SUMS_SETTINGS,
)
from demo.queries import Queries
from demo.shop import Shop
from demo.terminal import Terminal
from demo.watcher import Watcher
from tests.servers.cluster import HeadraceCluster

FAILURES = "failures.log"
METRIC = "kafka_server_brokertopicmetrics_"


class Stage:
    def __init__(self, directory: Path, terminal: Terminal) -> None:
        self.directory = directory
        self.terminal = terminal
        self.seen = Evidence()
        self._began, self._began_ms = time.monotonic(), time.time() * 1000
        metadata = f"sqlite:{directory / 'nodes' / 'metadata.db'}"
        settings = {**NODE_SETTINGS, "remote.storage.url": str(directory / "tier")}
        self.cluster = HeadraceCluster(directory / "nodes", metadata, settings)
        self.shop: Shop | None = None
        self.queries: Queries | None = None
        self.watcher: Watcher | None = None
        self.owners = Owners(self.cluster.bootstrap, directory, self.seen.takeover)
        self._askers: list[Asker] = []

    def now_s(self) -> float:
        return time.monotonic() - self._began

    def s_of(self, wall_ms: float) -> float:
        """When that was, for what others tell by the clock on the wall."""
        return (wall_ms - self._began_ms) / 1000

    def happened(self, what: str) -> None:
        self.seen.happenings.append(Happening(self.now_s(), what))
        self.terminal.happened(self.now_s(), what)

    def attempt(self, what: str, step: Callable[[], object]) -> bool:
        """Whether it was done. What fails here broke a promise, whatever it was: the report says so, and goes on."""
        try:
            step()
        except Exception as failure:  # whatever it was: a demo that ends without a report proves nothing
            with (self.directory / FAILURES).open("a") as file:
                traceback.print_exception(failure, file=file)
            reason = (str(failure) or repr(failure)).splitlines()[0]
            self.seen.failures.append(f"{what}: {reason}")
            self.happened(f"This did not come to its end: {what}: {reason}")
            return False
        self.seen.played.append(what)
        return True

    # Beginning and end.

    def open(self) -> None:
        """Brokers, topics and Spark; then watchers, and the shop."""
        cluster = self.cluster
        cluster.start()
        cluster.create_topic(ORDERS, PARTITIONS, configs=ORDERS_SETTINGS)
        cluster.create_topic(SUMS, SUMS_PARTITIONS, configs=SUMS_SETTINGS)
        cluster.create_topic(LEDGER, 1)
        cluster.create_topic(PARCELS, PARTITIONS, configs=PARCELS_SETTINGS)
        cluster.create_topic(QUIET, QUIET_PARTITIONS)
        cluster.until_whole(ORDERS)
        self.happened(f"Three brokers serve {cluster.bootstrap}")
        self.queries = Queries(cluster.bootstrap, self.directory, self.now_s)
        self.queries.until_started()
        self.watcher = Watcher(cluster, self.seen.led, self.now_s)
        told = self.seen.ends, self.seen.ask_failures
        self._askers = [Asker(at, node, *told, self.now_s) for at, node in cluster.nodes.items()]
        self.shop = Shop(cluster.bootstrap, self.now_s)
        self.terminal.watch(self)

    def close_shop(self) -> None:
        assert self.shop is not None and self.watcher is not None
        self.seen.closed_s = self.now_s()
        try:
            self.shop.close()
        finally:
            self.seen.acked, self.seen.closing = self.shop.acked, self.shop.closing
            for asker in self._askers:
                asker.finish()
            self.watcher.finish()

    def end(self) -> None:
        """Whatever became of it, nothing stays."""
        if self.shop is not None:
            self.shop.abandon()
        self.owners.end()
        if self.queries is not None:
            self.queries.kill()
        self.cluster.kill()

    # Looks.

    @property
    def is_selling(self) -> bool:
        return self.shop is not None and self.shop.failure is None

    def acked(self) -> int:
        return len(self.shop.acked) if self.shop is not None else 0

    def metric(self, node_id: int, name: str) -> int:
        """Of all topics."""
        page = self.cluster.page(node_id, "/metrics").text
        found = next(line for line in page.splitlines() if line.startswith(f"{METRIC}{name} "))
        return int(float(found.split()[1]))

    def remote_segments(self) -> int:
        return sum(self.metric(node_id, "remotelogmetadatacount") for node_id in self.cluster.nodes)
