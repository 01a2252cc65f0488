"""Metrics of the transaction coordinator."""

from collections.abc import Iterator

from headrace.broker.coordinators.transactions import Transactions
from headrace.broker.metrics import Family, counter, gauge


def families(transactions: Transactions) -> Iterator[Family]:
    log, markers = transactions.log, transactions.markers
    coordinator = "kafka_server_transaction_coordinator_metrics_"
    yield gauge(coordinator + "partition_load_time_max", log.load_ms_max)
    yield gauge(coordinator + "partition_load_time_avg", log.load_ms_sum / log.loads if log.loads else 0)
    channel = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    yield gauge(channel + "unknowndestinationqueuesize", markers.waiting)
    yield gauge("headrace_transactionalidcount", len(transactions))
    yield gauge("headrace_transactionsongoing", len(transactions.ongoing))
    yield gauge("headrace_transactionsending", markers.endings)
    yield counter("headrace_transactionscommitted_total", transactions.committed)
    yield counter("headrace_transactionsaborted_total", transactions.aborted)
    yield counter("headrace_transactionstimedout_total", transactions.timed_out)
    yield counter("headrace_transactionalidsexpired_total", transactions.expired)
    yield counter("headrace_transactionmarkerssent_total", markers.sent)
    yield counter("headrace_transactionmarkersretried_total", markers.failed)
    groups, queries = transactions.groups, transactions.queries
    yield gauge("headrace_commitgroupqueries", len(queries))
    yield counter("headrace_commitgroupcommitted_total", groups.committed)
    yield counter("headrace_commitgrouprepeated_total", groups.repeated)
    yield counter("headrace_commitgrouprefused_total", groups.refused)
    yield counter("headrace_commitgroupsuperseded_total", queries.superseded)
