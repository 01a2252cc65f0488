"""Metrics of the groups that this node coordinates."""

from collections import Counter
from collections.abc import Iterator

from headrace.broker.broker import Broker
from headrace.broker.metrics import Family, counter, gauge
from headrace.core.group_effects import GroupState


def families(broker: Broker) -> Iterator[Family]:
    groups, log = broker.groups, broker.groups.log
    states: Counter[GroupState] = Counter()
    offsets = 0
    for group in groups:
        states[group.state] += 1
        offsets += len(group.offsets)
    name = "kafka_coordinator_group_groupmetadatamanager_"
    yield gauge(name + "numoffsets", offsets)
    yield gauge(name + "numgroups", len(groups))
    for state in GroupState:
        yield gauge(f"{name}numgroups{state.value.lower()}", states[state])
    name = "kafka_server_group_coordinator_metrics_"
    yield counter(name + "offset_commit_total", groups.offsets_committed)
    yield counter(name + "offset_expiration_total", groups.offsets_expired)
    yield counter(name + "offset_deletion_total", groups.offsets_deleted)
    yield counter(name + "group_rebalance_total", groups.rebalances)
    yield counter(name + "group_completed_rebalance_total", groups.completed_rebalances)
    yield gauge(name + "partition_load_time_max", log.load_ms_max)
    yield gauge(name + "partition_load_time_avg", log.load_ms_sum / log.loads if log.loads else 0)
    yield gauge("headrace_groupwaitingrequests", groups.parked)
    yield gauge("headrace_groupmemberbytes", groups.metadata_bytes)
