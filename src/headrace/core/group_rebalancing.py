"""How a group comes from one generation to the next: everybody joins, the leader assigns, everybody hears of it."""

from headrace.core.group_effects import Assigned, Emptied, GroupState, JoinAnswer, Store, SyncAnswer
from headrace.core.group_members import CONSUMER, Member, Synced, SyncWaiter, elected_protocol, subscribed_topics
from headrace.core.group_membership import NEVER_MS, Membership
from headrace.errors import ErrorCode

_NONE = ErrorCode.NONE


class Rebalancing(Membership):
    # Joins.

    def _prepare(self, now_ms: int) -> None:
        """Everybody shall join anew, or go on to wait for those who have not."""
        if self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now_ms)
            return
        if self.state is GroupState.DEAD:
            return
        if self.state is GroupState.COMPLETING:
            self._fail_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_due_ms = NEVER_MS
        self.unsynced.clear()
        self._is_initial = self.state is GroupState.EMPTY
        self._has_grown = False
        timeout_ms = self._rebalance_timeout_ms()
        if self._is_initial:
            self._initial_left_ms = max(timeout_ms - self._delay_ms, 0)
            timeout_ms = self._delay_ms
        self.rebalances += 1
        self._enter(GroupState.PREPARING)
        self._wait_for_joins(now_ms + timeout_ms)
        self._complete_if_all_joined(now_ms)

    def _wait_for_joins(self, until_ms: int) -> None:
        self._join_due_ms = until_ms
        self._wake(until_ms)

    def _complete_if_all_joined(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING or (self._is_initial and self.members):
            return  # a new group waits for those who come a little later
        if not self.pending and all(member.joining is not None for member in self.members.values()):
            self._complete_join(now_ms)

    def _join_due(self, now_ms: int) -> None:
        if self._is_initial and self._has_grown and self._initial_left_ms:
            delay_ms = min(self._delay_ms, self._initial_left_ms)
            self._has_grown = False
            self._initial_left_ms -= delay_ms
            self._wait_for_joins(now_ms + delay_ms)
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        self._join_due_ms = NEVER_MS
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._drop(member)
        if self.members and not self._elect_leader():
            # Only static members, of whom none has come: until one does, or their sessions are over.
            self._is_initial = False
            self._wait_for_joins(now_ms + max(self._rebalance_timeout_ms(), 1))
            return
        self._is_initial = False
        self.generation += 1
        self.unsynced.clear()
        if not self.members:
            self.protocol_name, self.leader = None, ""
            self.subscribed = frozenset()
            self._enter(GroupState.EMPTY)
            self.outbox.append(Store({}, Emptied()))
            return
        members = list(self.members.values())
        self.protocol_name = elected_protocol(members)
        self.subscribed = self._topics_of(members)
        self._enter(GroupState.COMPLETING)
        for member in members:
            if member.joining is not None:
                self.outbox.append(JoinAnswer(member.joining, self._joined(member)))
                member.joining = None
                self._touch(member, now_ms)
                self.unsynced.add(member.member_id)
            member.is_new = False
        self._sync_due_ms = now_ms + self._rebalance_timeout_ms()
        self._wake(self._sync_due_ms)

    def _elect_leader(self) -> bool:
        leader = self.members.get(self.leader)
        if leader is not None and leader.joining is not None:
            return True
        found = next((member for member in self.members.values() if member.joining is not None), None)
        if found is not None:
            self.leader = found.member_id
        return found is not None

    def _topics_of(self, members: list[Member]) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        topics = [subscribed_topics(member.metadata_for(self.protocol_name)) for member in members]
        known = [named for named in topics if named is not None]
        return frozenset().union(*known) if len(known) == len(topics) else None

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Assignments.

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        waiter: SyncWaiter,
        now_ms: int,
    ) -> None:
        """`protocol`: type and name as the member understood them, None where its client does not say."""
        error = self._sync_refused(member_id, instance_id, generation, protocol)
        if error:
            self.outbox.append(SyncAnswer(waiter, Synced(error)))
            return
        member = self.members[member_id]
        self._has_synced(member_id)
        self._touch(member, now_ms)
        if self.state is GroupState.STABLE:
            self.outbox.append(SyncAnswer(waiter, self._synced(member)))
            return
        if member.syncing is not None:
            self.outbox.append(SyncAnswer(member.syncing, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.syncing = waiter
        if member_id == self.leader:
            self.completed_rebalances += 1
            whole = {known: assignments.get(known, b"") for known in self.members}
            self.outbox.append(Store(whole, Assigned(generation)))

    def _sync_refused(
        self, member_id: str, instance_id: str | None, generation: int, protocol: tuple[str | None, str | None]
    ) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._judge(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if (protocol[0] is not None and protocol[0] != self.protocol_type) or (
            protocol[1] is not None and protocol[1] != self.protocol_name
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else _NONE

    def _has_synced(self, member_id: str) -> None:
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self._sync_due_ms = NEVER_MS

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> None:
        self._enter(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                self.outbox.append(SyncAnswer(member.syncing, self._synced(member)))
                member.syncing = None
                self._touch(member, now_ms)

    def _fail_syncs(self, error: ErrorCode) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.syncing is not None:
                self.outbox.append(SyncAnswer(member.syncing, Synced(error)))
                member.syncing = None

    def _sync_due(self, now_ms: int) -> None:
        self._sync_due_ms = NEVER_MS
        if self.state not in (GroupState.COMPLETING, GroupState.STABLE) or not self.unsynced:
            return
        for member_id in list(self.unsynced):
            if member_id in self.members:
                self._drop(self.members[member_id])
        self._prepare(now_ms)
