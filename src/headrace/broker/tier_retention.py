"""What a tiered partition keeps on this disk, and what its replicas report of it."""

import logging

from headrace.broker.broker import Broker
from headrace.broker.local_coverage import is_short
from headrace.broker.partitions import Hosted
from headrace.core.coverage import LocalCoverage
from headrace.core.epochs import NO_OFFSET
from headrace.errors import CorruptLog

log = logging.getLogger(__name__)


def enforce(broker: Broker, partition: Hosted, now_ms: int) -> None:
    """Only what the tier has for certain goes, and what is to be copied no more. Raises OSError, CorruptLog."""
    opened, config = partition.log, partition.config
    highest = None if broker.tier is None else broker.tier.highest_remote(partition)
    if highest is None:
        return
    if not config.remote_log_copy_disable:
        opened.roll_if_expired(now_ms, partition.high_watermark)
    if opened.enforce_local_retention(now_ms, partition.high_watermark, highest + 1):
        partition.local_log_start_moved(opened.local_log_start_offset)
        if partition.subscribers:  # who reads below it reads the tier, or is sent there
            broker.fetch_events.log_start_moved(partition)
    is_without_tier = config.remote_log_copy_disable and highest == NO_OFFSET
    if is_without_tier and opened.enforce_retention(now_ms, partition.high_watermark):
        broker.log_start_moved(partition, opened.log_start_offset)


def before_leading(broker: Broker, partition: Hosted) -> None:
    """A replica that was elected without what was committed may end before the log begins, by what is in force.

    It goes on there: offsets below the log start are over, and records that got them would be deleted.
    """
    stored = broker.image.tier.get((partition.topic_id, partition.index))
    if stored is None or stored.pointer.log_start_offset <= partition.log_end_offset or partition.fault:
        return
    start = stored.pointer.log_start_offset
    log.warning("%s ended at offset %d, and begins anew at %d", partition, partition.log_end_offset, start)
    try:
        partition.log.truncate_fully_and_start_at(start)
        partition.restarted_at(start)
    except (OSError, CorruptLog) as failure:
        broker.faults.failed(partition, "truncation", failure)


def begin_on_disk(broker: Broker, partition: Hosted) -> None:
    """Leading, without a tier any more: what this disk has not is nowhere, and the log begins where the disk does.

    A replica that was not in sync, or had not told, when the tier was given up may begin later than the leader then.
    """
    if partition.config.remote_storage_enable or not is_short(partition) or partition.fault:
        return
    if (partition.topic_id, partition.index) in broker.image.tier:
        return
    start = partition.local_log_start_offset
    log.warning(
        "%s begins at offset %d now: what was before it is neither on this node nor in a tier", partition, start
    )
    try:
        partition.log.advance_log_start(start)
        broker.log_start_moved(partition, start)
    except (OSError, CorruptLog) as failure:
        broker.faults.failed(partition, "moving of the log start", failure)


def local_coverage(partition: Hosted) -> LocalCoverage | None:
    """Of a tiered partition; None while its log was not opened, which costs too much for a report."""
    opened = partition.log_if_open
    if opened is None or not opened.exists:
        return None
    local = opened.local
    return LocalCoverage(
        local_log_start=partition.local_log_start_offset,
        coverage_since_ms=max(local.since_ms, 0),
        local_bytes=opened.size_bytes,
        at_local_retention=local.is_full,
    )
