"""One fetch session: which of its partitions have news, kept up to date by events, so that a fetch looks at no other.

Every entry of the map is in at most one of
  ready   it has bytes to read, in the order in which they will be served;
  held    it has bytes to read, but a replication quota stops them;
  faults  it has an error or a diverging epoch, which every answer repeats until the fetcher or an event ends it;
and, unless it is in faults, it is in `quiet` exactly while the high watermark or the log start differ from what the
fetcher was told. An entry in none of them is clean, and costs nothing. Entries of `ready` whose records are in the tier
alone are in `remote` too; they count nothing as long as these are not at hand.

Where an entry of a follower is listed, and where it leaves or enters these sets, the leader is told: fetch_liveness.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.core import fetch_liveness
from headrace.core.fetch_entries import (
    RIDES_ALONG,
    UNLIMITED_BYTES,
    Entry,
    Fault,
    Replica,
    TopicKey,
    View,
    counted_bytes,
    fault_of,
    limit_of,
)
from headrace.core.ownership import NOBODY, Peer
from headrace.core.ownership_gate import Gated
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.core.fetch_answer import Fetch

EPOCH_MAX = 2**31 - 1
DEBUGGING_CONSUMER = -2

Throttled = Callable[[Entry], bool]
"""Whether a replication quota stops this follower's entry now."""

AtHand = Callable[[Replica, int, bool], bool]
"""Whether records of the tier, from that offset on, can be read now; with what was aborted, if committed ones are."""


def all_at_hand(replica: Replica, offset: int, is_committed: bool) -> bool:  # noqa: ARG001  # there is no tier
    return True


def next_epoch(epoch: int) -> int:
    """0 opens a session and -1 closes it, so neither comes again."""
    if epoch < 0:
        return -1
    return 1 if epoch == EPOCH_MAX else epoch + 1


class Fetcher(NamedTuple):
    """Who fetches. A session belongs to it whole: verdicts and liveness are cached in there."""

    principal: str
    replica_id: int  # of a node; -1 for consumers, -2 for one that debugs
    broker_epoch: int  # of that node's registration; -1 for others

    @property
    def privileged(self) -> bool:
        return self.replica_id >= 0

    @property
    def debugs(self) -> bool:
        """It reads what this very replica has, leader or not, up to its end."""
        return self.replica_id == DEBUGGING_CONSUMER


class FetchSession:
    __slots__ = (
        "acl_version",
        "announced",
        "at_hand",
        "available_bytes",
        "created_ms",
        "debugs",
        "epoch",
        "faults",
        "fetcher",
        "held",
        "id",
        "last_fetch_ms",
        "last_used_ms",
        "lost",
        "privileged",
        "quiet",
        "rack",
        "ready",
        "receipts",
        "remote",
        "size",
        "subscribed",
        "throttled",
        "topics",
        "unowned",
        "urgent",
        "uses_topic_ids",
        "view",
        "visitor",
        "waiter",
        "withheld",
    )

    def __init__(
        self,
        fetcher: Fetcher,
        uses_topic_ids: bool,
        view: View,
        rack: str,
        acl_version: int,
        throttled: Throttled,
        at_hand: AtHand = all_at_hand,
    ) -> None:
        self.id = 0  # until it gets a slot
        self.epoch = 0
        self.fetcher = fetcher
        self.privileged = fetcher.privileged
        self.debugs = fetcher.debugs
        self.uses_topic_ids = uses_topic_ids
        self.view = view
        self.rack = rack
        self.acl_version = acl_version
        self.throttled = throttled
        self.at_hand = at_hand
        self.created_ms = self.last_used_ms = self.last_fetch_ms = 0
        self.topics: dict[TopicKey, dict[int, Entry]] = {}
        self.size = 0
        self.ready: dict[Entry, int] = {}  # with the bytes that each counts for, valid while a fetch is parked
        self.held: dict[Entry, None] = {}
        self.remote: dict[Entry, None] = {}
        self.faults: dict[Entry, None] = {}
        self.quiet: dict[Entry, None] = {}
        self.lost: dict[Entry, None] = {}  # entries that another session of the same follower speaks for now
        self.receipts = 0  # requests received
        self.urgent = 0  # of the faults, those that cause an answer
        self.unowned = 0  # those for which an answer shall not wait long
        self.withheld = 0  # those that end by themselves: the fetcher is about to own the partition
        self.visitor: Peer = NOBODY  # the connection on which it came last
        self.available_bytes = 0  # always the sum over `ready` while a fetch is parked
        self.waiter: Fetch | None = None
        self.subscribed = False
        self.announced = False  # whether its first answer, which holds every entry, has been handed over

    def __iter__(self) -> Iterator[Entry]:
        for partitions in self.topics.values():
            yield from partitions.values()

    def belongs_to(self, fetcher: Fetcher) -> bool:
        own = self.fetcher
        if own.privileged or fetcher.privileged:
            return own == fetcher
        return own.principal == fetcher.principal

    # The map.

    def find(self, topic: TopicKey, index: int) -> Entry | None:
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def remove(self, entry: Entry) -> None:
        self._leave(entry)
        self.quiet.pop(entry, None)
        if entry.fault is not None:
            self.absolve(entry)
        partitions = self.topics[entry.topic]
        del partitions[entry.index]
        if not partitions:
            del self.topics[entry.topic]
        self.size -= 1

    # Where an entry belongs.

    def settle(self, entry: Entry) -> None:
        """Looks at everything. For listings, and for events after which anything may be different."""
        replica = entry.replica
        if replica is None or entry.fault is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return  # only a look-up ends that
        fault = fault_of(entry, replica)
        if fault is not None:
            self.blame(entry, fault)
            return
        if entry.fault is not None:
            self.absolve(entry)
            if self.privileged:
                fetch_liveness.healed(entry)
        self._weigh(entry, replica)
        if self.announced:
            self.compare(entry, replica)
        if self.privileged:
            fetch_liveness.looked_at(entry)

    def advance(self, entry: Entry, replica: Replica) -> None:
        """After the log end, the high watermark or the last stable offset rose, and nothing else happened."""
        if entry.fault is not None:
            self.settle(entry)
            return
        self._weigh(entry, replica)
        if self.announced:
            self.compare(entry, replica)
        if self.privileged:
            fetch_liveness.looked_at(entry)

    def blame(self, entry: Entry, fault: Fault) -> None:
        if entry.fault is None:
            self._leave(entry)
            self.quiet.pop(entry, None)
            self.faults[entry] = None
        else:
            self._count(entry.fault, -1)
        entry.fault = fault
        self._count(fault, 1)
        if self.privileged:
            fetch_liveness.looked_at(entry)

    def _count(self, fault: Fault, by: int) -> None:
        if fault not in RIDES_ALONG:
            self.urgent += by
        elif fault is Gated.UNOWNED:
            self.unowned += by
        elif fault is Gated.WAITS:
            self.withheld += by

    def absolve(self, entry: Entry) -> None:
        if entry.fault is not None:
            self._count(entry.fault, -1)
        entry.fault = None
        del self.faults[entry]

    def compare(self, entry: Entry, replica: Replica) -> None:
        """News of the offsets alone never cause an answer; they go with the next one."""
        if replica.high_watermark != entry.sent_high_watermark or replica.log_start_offset != entry.sent_log_start:
            self.quiet[entry] = None
        elif self.quiet:
            self.quiet.pop(entry, None)

    def _weigh(self, entry: Entry, replica: Replica) -> None:
        limit = limit_of(replica, self.view)
        if entry.fetch_offset >= limit:
            if self.ready or self.held:
                self._leave(entry)
            return
        if self.privileged:
            if self.throttled(entry):
                self._leave(entry)
                self.held[entry] = None
                return
            self.held.pop(entry, None)
        if entry.fetch_offset < replica.local_log_start_offset:
            self.remote[entry] = None
        elif self.remote:
            self.remote.pop(entry, None)
        if self.waiter is None:
            self.ready.setdefault(entry, 0)
            return
        # Storing under a key that is there already keeps its place in the order.
        counted = self._counted(entry, replica, limit)
        self.available_bytes += counted - self.ready.get(entry, 0)
        self.ready[entry] = counted

    def _counted(self, entry: Entry, replica: Replica, limit: int) -> int:
        if entry.fetch_offset >= replica.local_log_start_offset:
            return counted_bytes(entry, replica, limit)
        return UNLIMITED_BYTES if self.at_hand(replica, entry.fetch_offset, self.view is View.STABLE) else 0

    def _leave(self, entry: Entry) -> None:
        """Nothing to read, or not now."""
        counted = self.ready.pop(entry, 0)
        if self.remote:
            self.remote.pop(entry, None)
        if self.waiter is not None:
            self.available_bytes -= counted
        if self.held:
            self.held.pop(entry, None)

    # Whether there is an answer.

    def park(self, fetch: "Fetch") -> bool:
        """Makes the fetch wait, unless there is enough to answer it with now."""
        if fetch.wait_ms_max <= 0 or self._must_answer():
            return False
        available = 0
        for entry in self.ready:
            assert entry.replica is not None  # else it were in `faults`
            counted = self._counted(entry, entry.replica, limit_of(entry.replica, self.view))
            self.ready[entry] = counted
            available += counted
            if available >= fetch.bytes_min:
                return False
        if fetch.bytes_min <= 0:
            return False
        self.available_bytes = available
        self.waiter = fetch
        return True

    def wake(self) -> "Fetch | None":
        """The parked fetch, once, when it has become complete."""
        waiter = self.waiter
        if waiter is None or waiter.woken or not (self.available_bytes >= waiter.bytes_min or self._must_answer()):
            return None
        waiter.woken = True
        return waiter

    def _must_answer(self) -> bool:
        return self.urgent > 0 or (len(self.faults) == self.size and not self.unowned and not self.withheld)
