"""Granting: the owner changes in one step of the loop, and is told when what it must read is committed.

From that step on no record of the owner before gets an offset, and nothing is delivered to it: `fence_offset` is where
the log ended then.
"""

import asyncio

from headrace.broker.commits import Commits
from headrace.broker.ownership import Ownership, connections_of
from headrace.broker.ownership_keys import Written
from headrace.broker.partitions import Hosted
from headrace.core.cluster import OwnedRecord
from headrace.core.ownership import NO_FENCE, Entry, Identity, Member, Tenure
from headrace.core.ownership_rules import Decision
from headrace.errors import CorruptLog, ErrorCode
from headrace.net.connection import Connection

CONFIRM_MS = 5_000
"""How long a grant may wait until everything before it is committed and its generation is stored."""


class Terms:
    """What a claimer asks for beside the resource."""

    __slots__ = ("exclusive", "identity", "is_implied", "retain_ms")

    def __init__(self, identity: Identity, retain_ms: int, exclusive: int = 0, *, is_implied: bool = False) -> None:
        self.identity = identity
        self.retain_ms = retain_ms
        self.exclusive = exclusive
        self.is_implied = is_implied


class Grants:
    def __init__(self, loop: asyncio.AbstractEventLoop, commits: Commits, ownership: Ownership) -> None:
        self._loop = loop
        self._commits = commits
        self._ownership = ownership
        self._timers: dict[Tenure, asyncio.TimerHandle] = {}

    def hinders(self, hosted: Hosted | None, entry: Entry | None, decision: Decision, retain_ms: int) -> ErrorCode:
        """Why nothing is touched although the claim would win."""
        own, now_ms = self._ownership, self._ownership.clock.monotonic_ms()
        if hosted is not None:
            try:
                _ = hosted.log  # what is assigned is known for sure only then
            except (OSError, CorruptLog):
                return ErrorCode.KAFKA_STORAGE_ERROR
            if hosted.refuses_acks_all() and hosted.high_watermark < hosted.assigned_end_offset:
                return ErrorCode.REQUEST_TIMED_OUT
        has_key = entry is not None and entry.key.record is not None
        wants_key = not decision.resumes and (retain_ms or self._kept(entry, now_ms) is not None)
        is_full = own.image.owned_count >= own.image.broker_config.own_max_retained
        return ErrorCode.POLICY_VIOLATION if wants_key and not has_key and is_full else ErrorCode.NONE

    @staticmethod
    def _kept(entry: Entry | None, now_ms: int) -> OwnedRecord | None:
        """What a new owner takes over from the one before, or from the store."""
        if entry is None:
            return None
        return entry.retained(now_ms) if entry.tenure is None else entry.tenure.record

    def swap(
        self, entry: Entry, hosted: Hosted | None, decision: Decision, taker: Member, terms: Terms
    ) -> list[Connection]:
        """The taker owns it from here on. Returns the connections that did before."""
        own, now_ms = self._ownership, self._ownership.clock.monotonic_ms()
        before, kept = entry.tenure, self._kept(entry, now_ms)
        tenure = Tenure(decision.generation, terms.identity, [taker.peer], is_implied=terms.is_implied)
        if decision.resumes:
            tenure.exclusive = before.exclusive if before is not None else kept.exclusive if kept is not None else 0
            tenure.record = kept
            tenure.needs_key = before is not None and before.needs_key
        else:
            tenure.exclusive = terms.exclusive
            if terms.retain_ms or kept is not None:
                tenure.record = OwnedRecord(
                    generation=decision.generation,
                    principal=terms.identity.principal,
                    holder=terms.identity.holder,
                    retain_ms=max(terms.retain_ms, 0 if kept is None else kept.retain_ms),
                    topic_id="" if entry.gate is None else entry.gate.topic_id,
                    exclusive=terms.exclusive,
                )
                tenure.needs_key = True
        tenure.fence_offset = NO_FENCE if hosted is None else hosted.assigned_end_offset
        tenure.leader_epoch = -1 if hosted is None else hosted.leader_epoch
        tenure.granted_ms = now_ms
        victims = self._displace(entry, before, taker)
        entry.tenure = tenure
        own.metrics.owned += before is None
        taker.entries[entry] = None
        if entry.gate is not None:
            entry.gate.had_owner = True
        if isinstance(taker.peer, Connection):
            taker.peer.keep()
        self._count(decision, bool(victims), terms)
        own.changed(entry)
        return victims

    def _displace(self, entry: Entry, before: Tenure | None, taker: Member) -> list[Connection]:
        if before is None:
            return []
        self._forget_timer(before)
        for peer in before.peers:
            member = self._ownership.book.members.get(peer)
            if member is not None:
                member.entries.pop(entry, None)
        waiting, before.waiting = before.waiting, []
        for told in waiting:
            self._loop.call_soon(told, ErrorCode.ILLEGAL_GENERATION)
        return [peer for peer in connections_of(before.peers) if peer is not taker.peer]

    def _count(self, decision: Decision, has_victims: bool, terms: Terms) -> None:
        metrics = self._ownership.metrics
        metrics.grants += 1
        metrics.resumes += decision.resumes and not terms.is_implied
        metrics.takeovers += has_victims and not decision.resumes

    # Confirmation.

    def confirm(self, entry: Entry) -> None:
        """To be called once after a swap, when all of the claim's are done."""
        tenure = entry.tenure
        assert tenure is not None
        self._timers[tenure] = self._loop.call_later(CONFIRM_MS / 1000, self._timed_out, entry, tenure)
        if tenure.needs_key:
            assert tenure.record is not None
            self._ownership.keys.put(entry, tenure.record, lambda written: self._written(entry, tenure, written))
        self._look(entry, tenure)

    def _written(self, entry: Entry, tenure: Tenure, written: Written) -> None:
        if entry.tenure is not tenure:
            return
        if written is Written.DONE:
            tenure.needs_key = False
            self._look(entry, tenure)
        elif written is Written.NOT_LEADER:
            self._fail(entry, tenure, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self._fail(entry, tenure, ErrorCode.REQUEST_TIMED_OUT)

    def _look(self, entry: Entry, tenure: Tenure) -> None:
        if entry.tenure is not tenure:
            self._forget_timer(tenure)
            return
        if tenure.is_confirmed or tenure.needs_key:
            return
        where = self._ownership.where(entry)
        if isinstance(where, Hosted) and where.high_watermark < tenure.fence_offset:
            if where.waiting_acks is None:
                where.waiting_acks = {}
            where.waiting_acks[lambda: self._look(entry, tenure)] = None
            return
        if isinstance(where, Hosted) and not _is_followed(where, tenure):
            # Records of an earlier leader that are not committed may be where the fence is, until they are cut off.
            self._commits.follower_waits.setdefault(where, {})[lambda: self._look(entry, tenure)] = None
            return
        if where is None or not self._ownership.lease_valid():
            return  # whoever ends it tells
        self._forget_timer(tenure)
        tenure.is_confirmed = True
        self._ownership.metrics.confirmed_after(self._ownership.clock.monotonic_ms() - tenure.granted_ms)
        self._ownership.changed(entry)
        waiting, tenure.waiting = tenure.waiting, []
        for told in waiting:
            told(ErrorCode.NONE)

    def _timed_out(self, entry: Entry, tenure: Tenure) -> None:
        if entry.tenure is tenure and not tenure.is_confirmed:
            self._ownership.metrics.confirm_timeouts += 1
            self._fail(entry, tenure, ErrorCode.REQUEST_TIMED_OUT)
        self._forget_timer(tenure)

    def _fail(self, entry: Entry, tenure: Tenure, error: ErrorCode) -> None:
        """Nobody owns it. What may still be written is settled before anything else is said of it."""
        self._forget_timer(tenure)
        if tenure.needs_key and entry.doubt is None and entry.writing:
            entry.doubt = tenure.record
        self._ownership.drop(entry, error)

    def _forget_timer(self, tenure: Tenure) -> None:
        timer = self._timers.pop(tenure, None)
        if timer is not None:
            timer.cancel()


def _is_followed(hosted: Hosted, tenure: Tenure) -> bool:
    return hosted.leadership is None or hosted.leadership.is_followed_to(tenure.fence_offset)
