"""The pages of the side port: /metrics, /metrics/partitions, /healthz, /readyz."""

from collections.abc import Callable, Iterator
from itertools import repeat

from headrace.broker import producer_metrics, replica_metrics, replicator_metrics
from headrace.broker.broker import Broker
from headrace.broker.coordinators import group_metrics, transaction_metrics
from headrace.broker.metrics import Family, Sample, counter, gauge, labelled, summary
from headrace.broker.partitions import Hosted
from headrace.broker.replicator import Replicator
from headrace.net.http import Page
from headrace.net.listener import Listener

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
SLICE_PARTITIONS = 200
"""Partitions whose series are written between two turns of the loop."""


class Monitoring:
    def __init__(self, broker: Broker, listener: Listener, is_serving: Callable[[], bool]) -> None:
        self._broker = broker
        self._listener = listener
        self._is_serving = is_serving

    def page(self, path: str) -> Page:
        if path == "/metrics":
            return Page(200, PROMETHEUS, (family.text() for family in self._families()))
        if path == "/metrics/partitions":
            return Page(200, PROMETHEUS, self._partition_series())
        if path == "/healthz":
            return Page(200, PLAIN, ["ok\n"])
        if path == "/readyz":
            return self._readiness()
        return Page(404, PLAIN, ["There are /metrics, /metrics/partitions, /healthz and /readyz.\n"])

    def _readiness(self) -> Page:
        offline = self._broker.faults.offline_directories
        if not self._is_serving():
            return Page(503, PLAIN, ["starting\n"])
        if offline:
            return Page(503, PLAIN, [f"offline: {', '.join(sorted(offline))}\n"])
        trouble = self._broker.store_health.trouble()
        if trouble:
            return Page(503, PLAIN, [trouble + "\n"])
        return Page(200, PLAIN, ["ready\n"])

    def _families(self) -> Iterator[Family]:
        broker, sessions = self._broker, self._broker.fetch_events.sessions
        yield from broker.metrics.families()
        yield from replica_metrics.families(broker)
        yield from broker.cleaner_stats.families(broker.clock.monotonic_ms())
        yield from broker.ownership.metrics.families()
        yield from group_metrics.families(broker)
        yield from transaction_metrics.families(broker.transactions)
        if isinstance(broker.roles.replicator, Replicator):
            yield from replicator_metrics.families(broker.roles.replicator, broker.clock.monotonic_ms())
        yield from producer_metrics.families(broker)
        if broker.tier is not None:
            yield from broker.tier.metrics.families()
        yield gauge("kafka_log_logmanager_offlinelogdirectorycount", len(broker.faults.offline_directories))
        yield counter(
            "headrace_recoverytruncatedbelowhighwatermark_total", broker.partitions.truncated_below_high_watermark
        )
        cache = "kafka_server_fetchsessioncache_"
        yield gauge(cache + "numincrementalfetchsessions", len(sessions.cache))
        yield gauge(cache + "numincrementalfetchpartitionscached", sessions.cache.partitions)
        yield counter(cache + "incrementalfetchsessionevictions_total", sessions.cache.evictions)
        yield Family(
            "headrace_fetchsessionerrors_total",
            "counter",
            [Sample(labelled(code=int(code)), count) for code, count in sorted(sessions.errors.items())]
            or [Sample("", 0)],
        )
        visited, returned = sessions.partitions_visited, sessions.partitions_returned
        yield summary("headrace_fetchpartitionsvisitedperrequest", visited, sessions.requests)
        yield summary("headrace_fetchpartitionsreturnedperrequest", returned, sessions.requests)
        yield gauge("kafka_server_socket_server_metrics_connection_count", len(self._listener.connections))

    def _partition_series(self) -> Iterator[str]:
        partitions = list(self._broker.partitions)
        yield from _in_slices("kafka_log_log_logstartoffset", partitions, [p.log_start_offset for p in partitions])
        yield from _in_slices("kafka_log_log_logendoffset", partitions, [p.log_end_offset for p in partitions])
        in_sync = [replica_metrics.in_sync_replicas(p) for p in partitions]
        yield from _in_slices("kafka_cluster_partition_insyncreplicascount", partitions, in_sync)
        lags = [replica_metrics.stable_offset_lag(p) for p in partitions]
        yield from _in_slices("kafka_cluster_partition_laststableoffsetlag", partitions, lags)
        if isinstance(self._broker.roles.replicator, Replicator):
            yield from replicator_metrics.lag_series(self._broker.roles.replicator)


def _in_slices(name: str, partitions: list[Hosted], values: list[int]) -> Iterator[str]:
    yield f"# TYPE {name} gauge\n"
    for at in range(0, len(partitions), SLICE_PARTITIONS):
        end = at + SLICE_PARTITIONS
        yield "".join(map(_series, repeat(name), partitions[at:end], values[at:end]))


def _series(name: str, partition: Hosted, value: int) -> str:
    return f"{name}{labelled(topic=partition.topic, partition=partition.index)} {value}\n"
