"""Records, nodes and followers' fetches for the tests of leading, without fetch sessions."""

from headrace.core.cluster import BrokerPut, ClusterImage, IsrMember, PartitionRecord, RegisteredBroker
from headrace.core.fetch_entries import Entry, View
from headrace.core.fetch_session import Fetcher, FetchSession
from headrace.core.leading import Leadership
from headrace.wire.messages.fetch import FetchPartition

T = bytes(range(16))
LAG_MS = 30_000


def nodes_with(*broker_ids: int) -> ClusterImage:
    """Node n is registered with epoch 10 + n, and lost nothing."""
    image = ClusterImage(0, {})
    image.apply(
        [BrokerPut(RegisteredBroker(n, 10 + n, "h", 9092, None, intact_since=1, last_epoch=9)) for n in broker_ids]
    )
    return image


def record(*isr: int, leader: int = 0, leader_epoch: int = 1, partition_epoch: int = 1) -> PartitionRecord:
    members = tuple(IsrMember(n, 10 + n) for n in isr)
    return PartitionRecord((0, 1, 2), members, leader, leader_epoch, partition_epoch)


def fetched(
    leadership: Leadership,
    broker_id: int,
    offset: int,
    now_ms: int,
    *,
    log_end: int = 10,
    log_start: int = 0,
    broker_epoch: int | None = None,
) -> None:
    """The follower lists the partition from this offset, in a session of its own that then says no more."""
    epoch = 10 + broker_id if broker_epoch is None else broker_epoch
    session = FetchSession(Fetcher("User:node", broker_id, epoch), True, View.LOG_END, "", 0, lambda _: False)
    asked = FetchPartition(partition=0, fetch_offset=offset, log_start_offset=log_start, partition_max_bytes=1)
    follower = leadership.followers[broker_id]
    follower.speak_through(Entry(session, T, asked))
    follower.listed(log_end, now_ms, epoch)
    session.last_fetch_ms = now_ms
    follower.release()
