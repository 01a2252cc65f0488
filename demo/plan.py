"""What is played: topics, sizes and settings. Small segments, so that many of them are in the tier after a minute."""

from typing import Final

ORDERS: Final = "orders"
SUMS: Final = "sums"
LEDGER: Final = "ledger"
PARCELS: Final = "parcels"
QUIET: Final = "quiet"
NODE_IDS: Final = (1, 2, 3)
PARTITIONS: Final = 3
QUIET_PARTITIONS: Final = 90

ORDERS_PER_S: Final = 400
AHEAD_MAX: Final = 3_000
"""The shop waits when it is so many orders ahead of one that is not acknowledged: no partition of the topic is further
ahead of another one."""
WINDOW_S: Final = 600
LATE_S: Final = 5_400
"""Of the shop's time, in which an order is a second after the one before. Beyond AHEAD_MAX it is what the shop sells
while a query is told one after the other how far the partitions go."""

SCHEMA: Final = "number long, customer string, region string, cents long, at timestamp, note string"

SEGMENT_BYTES: Final = 256 << 10
ELIGIBLE_MS: Final = 12_000
"""A replica that began behind the tier leads again when its own disk covers so much (KIP-1303)."""

NODE_SETTINGS: Final = {
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "follower.fetch.last.tiered.offset.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.election.local.log.report.interval.ms": "200",
    "replica.lag.time.max.ms": "4000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
PARCEL_BYTES: Final = SEGMENT_BYTES * 3 // 5
"""Two of them do not fit into a segment."""

SUMS_PARTITIONS: Final = 2
SUMS_SETTINGS: Final = {"message.timestamp.type": "LogAppendTime"}
"""So that brokers say when a sum was written, and not Spark."""

PARCELS_SETTINGS: Final = {"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "2"}
ORDERS_SETTINGS: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(5 * SEGMENT_BYTES),
    "leader.election.eligible.local.log.ms": str(ELIGIBLE_MS),
    "min.insync.replicas": "2",
}
