"""What monitoring is told of replication to this node, under Kafka's names."""

from collections.abc import Iterator

from headrace.broker.metrics import Family, Sample, counter, labelled
from headrace.broker.replicator import Replicator

FETCHERS = "kafka_server_replicafetchermanager_"
MOVERS = "kafka_server_replicaalterlogdirsmanager_"
LAG = "kafka_server_fetcherlagmetrics_consumerlag"
SLICE_PARTITIONS = 200
"""Partitions whose series are written between two turns of the loop."""


def families(replicator: Replicator, now_ms: int) -> Iterator[Family]:
    fetchers = list(replicator.fetchers.values())
    of_replicas = labelled(clientId="Replica")
    values = {
        "failedpartitionscount": len(replicator.failed),
        "maxlag": max((lag for fetcher in fetchers for lag in fetcher.lags().values()), default=0),
        "minfetchrate": min((fetcher.rate.per_second(now_ms) for fetcher in fetchers), default=0),
        "deadthreadcount": sum(fetcher.is_dead for fetcher in fetchers),
    }
    for name, value in values.items():
        yield Family(FETCHERS + name, "gauge", [Sample(of_replicas, value)])
    # Moves between log directories are not offered, and so none of them fails.
    yield Family(MOVERS + "failedpartitionscount", "gauge", [Sample(labelled(clientId="ReplicaAlterLogDirs"), 0)])
    yield counter("kafka_server_brokertopicmetrics_replicationbytesin_total", replicator.logs.appended_bytes)


def lag_series(replicator: Replicator) -> Iterator[str]:
    """How far each partition is behind its leader's high watermark. One that failed has no lag."""
    yield f"# TYPE {LAG} gauge\n"
    for fetcher in list(replicator.fetchers.values()):
        lags = list(fetcher.lags().items())
        for at in range(0, len(lags), SLICE_PARTITIONS):
            yield "".join(
                f"{LAG}{labelled(clientId=fetcher, topic=partition.topic, partition=partition.index)} {lag}\n"
                for partition, lag in lags[at : at + SLICE_PARTITIONS]
            )
