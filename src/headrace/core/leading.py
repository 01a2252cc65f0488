"""What a leader knows of the other replicas of one partition, and what follows: high watermark, ISR, who may be told.

A partition with one replica has none of this: it commits by itself. Times are of the monotonic clock that fetch
sessions are told. Always holds: whoever may be in the ISR of the next record, committed or only proposed, holds the
high watermark back. So no acknowledged record can be missing at a member that is elected.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, Optional

from headrace.core.cluster import IsrMember, PartitionRecord
from headrace.core.coverage import LocalCoverage
from headrace.core.election import Nodes
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.core.fetch_entries import Entry

UNKNOWN_OFFSET = -1
RESUME_AFTER_MS = 5_000
"""A leader that stepped down and saw no new record serves again by proposing what is committed."""
PROPOSE_AGAIN_MS = 1_000
WATCHDOG_MS = 10_000
LAG_MS_MAX = 30_000

Reaction = Literal["resume", "wait", "deposed", "retry", "ignore"]

_RESUME = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_WAIT = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class Proposal(NamedTuple):
    """A change of the ISR, to be sent to the controller. Its recovery state is always `recovered`."""

    isr: tuple[IsrMember, ...]
    leader_epoch: int
    partition_epoch: int
    resume: bool = False


class FollowerState:
    """One follower. `entry` is the one of all its sessions' entries that speaks for it: the most recently listed."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "coverage",
        "entry",
        "healed_receipt",
        "listed_receipt",
        "log_start",
        "mark_ms",
        "mark_offset",
        "offset",
        "refused_epoch",
        "refused_ms",
        "was_in_step",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.offset = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        self.coverage: LocalCoverage | None = None
        self.caught_up_ms = caught_up_ms
        self.mark_offset = 1 << 62  # no fetch has seen a log end yet
        self.mark_ms = 0
        self.entry: Entry | None = None
        self.was_in_step = False
        self.healed_receipt = -1  # the receipt after which a fault of the entry ended by itself
        self.listed_receipt = -1
        self.refused_ms: int | None = None
        self.refused_epoch = -1

    def is_in_step(self, log_end: int) -> bool:
        entry = self.entry
        return entry is not None and entry.fault is None and entry.fetch_offset == log_end

    def is_in_sync(self, log_end: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.offset == log_end or self.is_in_step(log_end) or now_ms - self.caught_up_ms <= lag_ms_max

    # What fetch sessions tell. `last_fetch_ms` is that of the entry's session.

    def speak_through(self, entry: "Entry") -> Optional["Entry"]:
        """`entry` was listed: it speaks for the follower from now on. The one that did before, if it was another."""
        before = self.entry
        if before is entry:
            return None
        self.release()
        self.entry = entry
        return before

    def listed(self, log_end: int, now_ms: int, broker_epoch: int) -> None:
        """The entry that speaks for it was listed, and nothing is wrong with it."""
        entry = self.entry
        assert entry is not None
        self.broker_epoch = broker_epoch
        offset = self.offset = entry.fetch_offset
        self.log_start = entry.fetcher_log_start
        self.coverage = entry.coverage
        if offset >= log_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.mark_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.mark_ms)
        self.mark_offset, self.mark_ms = log_end, now_ms
        self.healed_receipt = -1
        self.listed_receipt = entry.session.receipts + 1  # counted when all that it lists is noted
        self.was_in_step = self.is_in_step(log_end)

    def looked_at(self, log_end: int) -> None:
        """Something happened to the entry that speaks for it, or to the log."""
        in_step = self.is_in_step(log_end)
        if self.was_in_step and not in_step:
            self.leave_step()
        self.was_in_step = in_step

    def healed(self) -> None:
        """A fault of the entry ended by itself: the fetch before that says nothing about being in sync."""
        if self.entry is not None:
            self.healed_receipt = self.entry.session.receipts

    def records_sent(self, log_end: int) -> None:
        """Records went out for the entry. If this request listed it, that has set the mark."""
        entry = self.entry
        if entry is None or self.listed_receipt == entry.session.receipts or self._is_void(entry):
            return
        self.mark_offset, self.mark_ms = log_end, entry.session.last_fetch_ms

    def leave_step(self) -> None:
        """When it stops being in step, for whatever reason: up to its last fetch it was. Before it asks for another."""
        entry = self.entry
        if not self.was_in_step or entry is None:
            return
        self.was_in_step = False
        if self._is_void(entry):
            return
        self.caught_up_ms = max(self.caught_up_ms, entry.session.last_fetch_ms)
        # Being in step, it asked for the log end as it was then.
        self.mark_offset, self.mark_ms = entry.fetch_offset, entry.session.last_fetch_ms

    def release(self) -> None:
        self.leave_step()
        self.entry = None
        self.healed_receipt = self.listed_receipt = -1

    def _is_void(self, entry: "Entry") -> bool:
        return self.healed_receipt == entry.session.receipts


class Leadership:
    """This node leads. `record` is committed; `sent` are the proposals made at its partition epoch."""

    __slots__ = (
        "_index",
        "_nodes",
        "_topic_id",
        "clock_ms",
        "epoch_start_offset",
        "followers",
        "lag_ms_max",
        "list_guard",
        "maximal_isr",
        "pending_since_ms",
        "record",
        "sent",
        "stepped_down_ms",
    )

    def __init__(
        self,
        record: PartitionRecord,
        topic_id: bytes,
        index: int,
        nodes: Nodes,
        log_end: int,
        now_ms: int,
        lag_ms_max: int = LAG_MS_MAX,
    ) -> None:
        self._topic_id = topic_id
        self._index = index
        self._nodes = nodes
        self.record = record
        self.epoch_start_offset = log_end
        self.list_guard = log_end
        self.lag_ms_max = lag_ms_max
        self.clock_ms = now_ms
        self.sent: list[Proposal] = []
        self.pending_since_ms = 0
        self.stepped_down_ms: int | None = None
        self.followers: dict[int, FollowerState] = {}
        self.maximal_isr = frozenset(record.isr_ids)
        self._follow_replicas(now_ms)

    @property
    def is_pending(self) -> bool:
        return bool(self.sent)

    def is_overdue(self, now_ms: int) -> bool:
        """Nothing came of the proposals: the record is to be read from the store itself."""
        return self.is_pending and now_ms - self.pending_since_ms > WATCHDOG_MS

    # Records.

    def adopt(self, record: PartitionRecord, log_end: int, now_ms: int) -> bool:
        """A newer record by which this node goes on leading. False when it is not newer."""
        if record.partition_epoch <= self.record.partition_epoch:
            return False
        bumped = record.leader_epoch != self.record.leader_epoch
        self.record = record
        self.sent.clear()
        self.stepped_down_ms = None
        self.maximal_isr = frozenset(record.isr_ids)
        self._follow_replicas(now_ms)
        if bumped:
            self.epoch_start_offset = log_end
            for follower in self.followers.values():
                # Their offsets stay: this log has only grown, and it is the same leader's.
                follower.caught_up_ms = now_ms if follower.broker_id in self.maximal_isr else 0
                follower.was_in_step = False
                follower.mark_offset, follower.mark_ms = 1 << 62, 0
        return True

    def _follow_replicas(self, now_ms: int) -> None:
        record = self.record
        for replica in [*self.followers]:
            if replica not in record.replicas:
                del self.followers[replica]
        for replica in record.replicas:
            if replica != record.leader and replica not in self.followers:
                caught_up_ms = now_ms if replica in self.maximal_isr else 0
                self.followers[replica] = FollowerState(replica, caught_up_ms)

    # The high watermark, and who may be acknowledged.

    def high_watermark(self, log_end: int, current: int, isr_min: int, now_ms: int) -> int:
        """Where it is now; never below `current`, which is where it was."""
        if self.is_under_min_isr(isr_min):
            return current
        self.clock_ms = max(self.clock_ms, now_ms)
        lowest = log_end
        for broker_id, follower in self.followers.items():
            if follower.offset < lowest and (
                broker_id in self.maximal_isr
                or (self.clock_ms - follower.caught_up_ms <= self.lag_ms_max and self._is_eligible(follower))
            ):
                lowest = follower.offset
        return max(lowest, current)

    def is_followed_to(self, offset: int) -> bool:
        """Whether whoever may lead next has asked in this leadership, from there or later on: what it had of another
        leader behind that offset, and nobody has committed, is gone."""
        followers = self.followers
        return all(member not in followers or followers[member].offset >= offset for member in self.maximal_isr)

    def isr_min(self, configured: int) -> int:
        return min(configured, len(self.record.replicas))

    def is_under_min_isr(self, configured: int) -> bool:
        """The committed ISR counts: what is only proposed may never be."""
        return len(self.record.isr) < self.isr_min(configured)

    def is_maximal_isr_under_min(self, configured: int) -> bool:
        return len(self.maximal_isr) < self.isr_min(configured)

    # Changes of the ISR.

    def _is_eligible(self, follower: FollowerState) -> bool:
        """Live, and what is known of it was said by its present registration."""
        broker = self._nodes.brokers.get(follower.broker_id)
        return (
            broker is not None
            and broker.epoch == follower.broker_epoch
            and self._nodes.is_live(follower.broker_id, self._topic_id, self._index)
        )

    def out_of_sync(self, log_end: int, now_ms: int, spared: frozenset[int] = frozenset()) -> set[int]:
        """Members that have to go. `spared` are nodes whose registration has only just vanished."""
        out = set()
        for broker_id in self.record.isr_ids:
            follower = self.followers.get(broker_id)
            if follower is None or broker_id in spared:
                continue
            is_live = self._nodes.is_live(broker_id, self._topic_id, self._index)
            if not is_live or not follower.is_in_sync(log_end, now_ms, self.lag_ms_max):
                out.add(broker_id)
        return out

    def joining(self, log_end: int, high_watermark: int, log_start: int, now_ms: int) -> list[IsrMember]:
        """Replicas that have everything that counts, and may become members.

        While too few are in sync the high watermark stands still, and a replica that is far behind may have reached it
        all the same: it would be thrown out at once, and proposed again at once, if it did not have to keep up too.
        """
        members = self.record.isr_ids
        return [
            IsrMember(broker_id, follower.broker_epoch)
            for broker_id, follower in self.followers.items()
            if broker_id not in members
            and follower.offset >= max(high_watermark, self.epoch_start_offset)
            and follower.log_start >= log_start
            and follower.is_in_sync(log_end, now_ms, self.lag_ms_max)
            and self._is_eligible(follower)
            and not self._was_just_refused(follower, now_ms)
        ]

    def _was_just_refused(self, follower: FollowerState, now_ms: int) -> bool:
        if follower.refused_ms is None or now_ms - follower.refused_ms >= PROPOSE_AGAIN_MS:
            return False
        return follower.refused_epoch == follower.broker_epoch

    def wanted_change(
        self,
        now_ms: int,
        *,
        log_end: int,
        high_watermark: int,
        log_start: int,
        spared: frozenset[int] = frozenset(),
    ) -> Proposal | None:
        """What to send now, if anything; whoever sends it says so to `proposed` in the same step."""
        if self.is_pending:
            return None
        record = self.record
        if record.recovering:
            return self._proposal(tuple(member for member in record.isr if member.broker_id == record.leader))
        out = self.out_of_sync(log_end, now_ms, spared)
        if out:
            return self._proposal(tuple(member for member in record.isr if member.broker_id not in out))
        joining = self.joining(log_end, high_watermark, log_start, now_ms)
        if joining:
            return self._proposal((*record.isr, *joining))
        if self.stepped_down_ms is not None and now_ms - self.stepped_down_ms >= RESUME_AFTER_MS:
            return self.resume()
        return None

    def resume(self) -> Proposal:
        """What is committed, as a new record: whatever else was sent at this partition epoch then fails."""
        return self._proposal(self.record.isr, resume=True)

    def _proposal(self, isr: tuple[IsrMember, ...], resume: bool = False) -> Proposal:
        return Proposal(isr, self.record.leader_epoch, self.record.partition_epoch, resume)

    def proposed(self, proposal: Proposal, now_ms: int) -> None:
        """It is about to be sent. Nobody forgets it before a newer record is there."""
        assert proposal.partition_epoch == self.record.partition_epoch
        if not self.sent:
            self.pending_since_ms = now_ms
        self.sent.append(proposal)
        self.maximal_isr = self.maximal_isr.union(member.broker_id for member in proposal.isr)

    def read_from_store(self, now_ms: int) -> Proposal:
        """The store had nothing newer: the last proposal is to be sent again."""
        self.pending_since_ms = now_ms
        return self.sent[-1]

    def answered(self, error: ErrorCode, proposal: Proposal, now_ms: int) -> Reaction:
        """The controller refused, or the request failed. Nothing is forgotten: that takes a newer record."""
        if proposal.partition_epoch != self.record.partition_epoch or not self.sent:
            return "ignore"
        if error in _RESUME:
            members = self.record.isr_ids
            for member in proposal.isr:
                if member.broker_id not in members and member.broker_id in self.followers:
                    follower = self.followers[member.broker_id]
                    follower.refused_ms, follower.refused_epoch = now_ms, member.broker_epoch
            if proposal.resume:
                return "retry"
            # The refusal of an earlier copy, while the Resume is on its way, needs no second one.
            return "ignore" if self.sent[-1].resume else "resume"
        if error in _WAIT:
            return "wait"
        return "deposed" if error == ErrorCode.STALE_BROKER_EPOCH else "retry"

    # Stepping down.

    def step_down(self, partition_epoch: int, now_ms: int) -> ErrorCode:
        """Asked by the controller. Good for this partition epoch only: any newer record ends it."""
        if partition_epoch != self.record.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        self.stepped_down_ms = now_ms
        return ErrorCode.NONE
