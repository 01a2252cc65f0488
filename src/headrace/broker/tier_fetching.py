"""Fetches of what is in the tier alone: what a request asks for is loaded, and the request waits for it.

It waits no longer than `remote.fetch.max.wait.ms`, whatever the client says, and not at all if other partitions have
enough to answer with. What comes too late is at hand for the next request.
"""

from typing import TYPE_CHECKING

from headrace.broker.partitions import Hosted
from headrace.broker.tier_loads import RemotePartition, Want
from headrace.broker.tier_metrics import Counts
from headrace.broker.tier_reads import SPAN_BYTES, TierReads
from headrace.core.fetch_answer import Fetch
from headrace.core.fetch_entries import Replica, View
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import SegmentRow
from headrace.errors import CorruptLog
from headrace.tier.directory import DirectoryStore

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.tier import Tier

ANSWER_BYTES_MAX = 4 * SPAN_BYTES
"""While others wait. A request of many partitions holds the loop for about as long as ten of theirs, whatever it
brings: so it brings more than one span, and comes seldom."""

ASKS_MIN = 8
"""Of partitions that a small fetch asks for at once."""


def reads_for(broker: "Broker", tier: "Tier") -> TierReads:
    config = broker.config

    def remote_log_of(partition: RemotePartition) -> RemoteLog | None:
        assert isinstance(partition, Hosted)
        known = tier.log_of(partition)
        try:
            return None if known is None or known.manifest is None else known.remote
        except (OSError, CorruptLog):
            return None  # whoever reads the local part meets it, and takes the partition offline

    def key_of(partition: RemotePartition, row: SegmentRow) -> str:
        assert isinstance(partition, Hosted)
        return tier.segment_key(partition, row)

    def loaded(partition: RemotePartition) -> None:
        assert isinstance(partition, Hosted)
        broker.fetch_events.tier_loaded(partition)

    def counts_of(partition: RemotePartition) -> Counts:
        assert isinstance(partition, Hosted)
        return tier.metrics.of(partition.topic)

    def at_hand(replica: Replica, offset: int, is_committed: bool) -> bool:
        return reads.is_at_hand(replica, offset, is_committed)

    reads = TierReads(
        loop=broker.loop,
        clock=broker.clock,
        store=tier.store,
        near=tier.store if isinstance(tier.store, DirectoryStore) else None,
        remote_log_of=remote_log_of,
        key_of=key_of,
        loaded=loaded,
        counts_of=counts_of,
        cache_bytes=config.remote_read_cache_bytes,
        running_max=config.remote_log_reader_threads,
        waiting_max=config.remote_log_reader_max_pending_tasks,
    )
    broker.fetch_events.sessions.at_hand = at_hand
    tier.metrics.readers = reads.loads
    return reads


def ask_for(reads: TierReads, fetch: Fetch, wait_ms_max: int, *, others_wait: bool) -> frozenset[Replica]:
    """Loads what the fetch will read of the tier; returns those for which too much is asked already.

    What is in memory on this machine is read as local segments are, unless others wait meanwhile: for their sake the
    answer is then not a large one either.

    About as much as its answer can hold: what is loaded for nobody drives out what somebody waits for.
    """
    session = fetch.session
    if others_wait and reads.loads.is_near:
        fetch.bytes_max = min(fetch.bytes_max, ANSWER_BYTES_MAX)
        fetch.bytes_min = min(fetch.bytes_min, fetch.bytes_max)
    is_committed = session.view is View.STABLE
    asks, at_once, refused = 0, 0, []
    for entry in session.ready:
        if entry not in session.remote:
            continue
        assert entry.replica is not None
        want = Want(entry.replica, entry.fetch_offset, is_committed)
        loads = (0 if reads.is_at_hand(*want) else None) if others_wait else reads.load_at_once(want)
        if loads is None:
            if not reads.ask(want):
                refused.append(entry.replica)
            asks += 1
        elif loads:
            at_once += 1
        if asks + at_once >= max(ASKS_MIN, fetch.bytes_max // SPAN_BYTES):
            break
    if refused:
        fetch.bytes_min = 0
    elif asks:
        # Whoever does not want to wait gets what there is; but it would never get this if it did not wait at all.
        fetch.bytes_min = 1 if fetch.wait_ms_max <= 0 else max(fetch.bytes_min, 1)
        fetch.wait_ms_max = wait_ms_max
    return frozenset(refused)
