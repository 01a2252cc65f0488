"""Metrics of producers and of transactions, as the partitions that this node has see them."""

from collections.abc import Iterator

from headrace.broker.broker import Broker
from headrace.broker.metrics import Family, counter, gauge, summary
from headrace.core.producers import ProducerTable

LATE_MS = 300_000
"""How much longer than any transaction may last one is open that its coordinator has forgotten."""


def families(broker: Broker) -> Iterator[Family]:
    tables = [partition.log.producers for partition in broker.partitions.open]
    yield gauge("kafka_server_replicamanager_produceridcount", sum(map(len, tables)))
    now_ms = broker.clock.wall_ms()
    lasts_ms_max = broker.config.transaction_max_timeout_ms + LATE_MS
    late = sum(has_late_transaction(table, now_ms, lasts_ms_max) for table in tables)
    yield gauge("kafka_server_replicamanager_partitionswithlatetransactionscount", late)
    asked = broker.verification
    yield counter("headrace_transactionverificationfailures_total", asked.failures)
    yield summary("kafka_server_addpartitionstotxnmanager_verificationtimems", asked.waited_ms, asked.answered)


def has_late_transaction(table: ProducerTable, now_ms: int, lasts_ms_max: int) -> bool:
    producer = table.oldest_open
    return producer is not None and now_ms - producer.alive_ms > lasts_ms_max
