"""A classic group: who is in it, which generation they are in, and what each request means for that.

Nothing here waits or sends. What is to be answered, and what must be in the log before somebody hears of it, is put
into `outbox`, which whoever called empties afterwards. Time is told by the caller, on a clock that never goes back;
`wake_ms` says when `tick` has to be called at the latest.

Always holds: a member whose join or sync waits does not expire (except one that is new); pending members, who were
told their id and have not come with it yet, are waited for as members are; a generation has members in it only after
all of them, or those that came in time, have joined it.
"""

from headrace.core.group_effects import Assigned, Emptied, GroupState, JoinAnswer, Store, Swapped
from headrace.core.group_members import (
    CONSUMER,
    Join,
    JoinWaiter,
    Member,
    SyncWaiter,
    elected_protocol,
    subscribed_topics,
)
from headrace.core.group_membership import NEVER_MS
from headrace.core.group_rebalancing import Rebalancing
from headrace.errors import ErrorCode

NEW_MEMBER_MS = 300_000
"""A new member that waits in a rebalance for so long is taken for one whose client gave up."""
GENERATION_MAX = 2**31 - 1

_NONE = ErrorCode.NONE


class Group(Rebalancing):
    # Joining.

    def join(self, join: Join, now_ms: int, initial_delay_ms: int, size_max: int) -> None:
        """Answered through the outbox, at once or when the rebalance is complete."""
        self._delay_ms = initial_delay_ms
        refused = self._join_refused(join, size_max)
        if refused:
            self._refuse(join.waiter, refused, join.member_id)
        elif not join.member_id:
            self._join_new(join, now_ms)
        elif join.member_id in self.pending and join.instance_id is None:
            self._add(join.member_id, join, now_ms)
        else:
            self._join_again(join, now_ms)
        self._complete_if_all_joined(now_ms)

    def rebalance(self, now_ms: int) -> None:
        """Whatever its members think."""
        if self.members:
            self._prepare(now_ms)

    def _join_refused(self, join: Join, size_max: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.generation >= GENERATION_MAX:
            return ErrorCode.INVALID_REQUEST
        if not self._has_room_for(join, size_max):
            if join.member_id in self.members:
                self._remove(self.members[join.member_id], ErrorCode.GROUP_MAX_SIZE_REACHED)
            self.pending.pop(join.member_id, None)
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._speaks(join):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return _NONE

    def _has_room_for(self, join: Join, size_max: int) -> bool:
        if self.state is GroupState.EMPTY or len(self.members) < size_max:
            return True
        known = self.members.get(join.member_id or self.static.get(join.instance_id or "", ""))
        if self.state is GroupState.PREPARING:
            waiting = sum(member.joining is not None for member in self.members.values())
            return waiting < size_max or (known is not None and known.joining is not None)
        return known is not None

    def _speaks(self, join: Join) -> bool:
        if not self.members:
            return bool(join.protocol_type and join.protocols)
        if join.protocol_type != self.protocol_type:
            return False
        own = self.members.get(join.member_id or self.static.get(join.instance_id or "", ""))
        spoken_before = {name for name, _ in own.protocols} if own is not None else ()
        others = len(self.members) - (own is not None)
        return any(self.spoken[name] - (name in spoken_before) == others for name, _ in join.protocols)

    def _join_new(self, join: Join, now_ms: int) -> None:
        instance_id = join.instance_id
        if instance_id is not None and instance_id in self.static:
            self._swap(self.static[instance_id], join, now_ms)
        elif instance_id is None and join.needs_known_id:
            self.pending[join.new_member_id] = now_ms + join.session_timeout_ms
            self._wake(self.pending[join.new_member_id])
            self._refuse(join.waiter, ErrorCode.MEMBER_ID_REQUIRED, join.new_member_id)
        else:
            self._add(join.new_member_id, join, now_ms)

    def _join_again(self, join: Join, now_ms: int) -> None:
        error = self._judge(join.member_id, join.instance_id)
        if error or self.state is GroupState.EMPTY:
            self._refuse(join.waiter, error or ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)
            return
        member = self.members[join.member_id]
        is_same = member.protocols == join.protocols
        is_leader = member.member_id == self.leader
        if is_same and (self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)):
            # It may not have heard the answer. A follower without news is told where the group is.
            self.outbox.append(JoinAnswer(join.waiter, self._joined(member)))
            self._touch(member, now_ms)
            return
        self._update(member, join, now_ms)
        self._prepare(now_ms)

    def _add(self, member_id: str, join: Join, now_ms: int) -> None:
        if self.state is GroupState.PREPARING and self._is_initial:
            self._has_grown = True
        if not self.members:
            self.protocol_type = join.protocol_type
        member = Member(member_id, join)
        member.joining = join.waiter
        member.expires_ms = now_ms + NEW_MEMBER_MS
        self._wake(member.expires_ms)
        self.enter(member)
        self.pending.pop(member_id, None)
        if not self.leader:
            self.leader = member_id
        self._prepare(now_ms)

    def _update(self, member: Member, join: Join, now_ms: int) -> None:
        if member.joining is not None:
            # The client has sent it again, and listens to the new one; the old one must not block its connection.
            self._refuse(member.joining, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self._say(member, join)
        member.client_id, member.client_host = join.client_id, join.client_host
        member.joining = join.waiter
        if not member.is_new:
            self._touch(member, now_ms)

    # Static members.

    def _swap(self, old_member_id: str, join: Join, now_ms: int) -> None:
        """A static member came back without its id: it gets another one, and the old one is fenced."""
        member = self.members[old_member_id]
        old_leader, old = self.leader, _as_join(member, join.waiter)
        self.outbox += self._let_go(member, ErrorCode.FENCED_INSTANCE_ID)
        self._rename(member, join.new_member_id)
        self._update(member, join, now_ms)
        if self.state is GroupState.STABLE and self._is_unmoved_by(member, old):
            member.joining = None
            swapped = Swapped(join.waiter, old_member_id, old_leader, old, join)
            self.outbox.append(Store(self._assignments(), swapped))
        else:
            self._prepare(now_ms)

    def _is_unmoved_by(self, member: Member, old: Join) -> bool:
        if elected_protocol(list(self.members.values())) != self.protocol_name:
            return False
        if self.protocol_type != CONSUMER:
            return True
        before = next((metadata for name, metadata in old.protocols if name == self.protocol_name), b"")
        return subscribed_topics(before) == subscribed_topics(member.metadata_for(self.protocol_name))

    def _swap_stored(self, swap: Swapped, error: ErrorCode, now_ms: int, was_appended: bool) -> None:
        member = self.members.get(swap.join.new_member_id)
        if member is None:
            self._refuse(swap.waiter, ErrorCode.UNKNOWN_MEMBER_ID, "")
        elif not error:
            is_leader = member.member_id == self.leader
            result = self._joined(member)
            if not swap.join.may_skip:
                # It must not take itself for the leader: a stable group takes no new assignment.
                result = result._replace(leader=swap.old_leader, members=())
            elif is_leader:
                result = result._replace(skip_assignment=True)
            self.outbox.append(JoinAnswer(swap.waiter, result))
        else:
            if not was_appended:
                self._rename(member, swap.old_member_id)
                self._say(member, swap.old)
                self._touch(member, now_ms)
            self._refuse(swap.waiter, error, "")

    def stored(self, store: Store, error: ErrorCode, now_ms: int, was_appended: bool = False) -> None:
        """What was asked for is in the log, or is not. `was_appended`: with an error, it may still come to be."""
        match store.purpose:
            case Assigned(generation):
                # Somebody may have joined or left meanwhile: then there is another generation on its way.
                if self.state is not GroupState.COMPLETING or generation != self.generation:
                    return
                if error:
                    self._fail_syncs(error)
                    self._prepare(now_ms)
                else:
                    self._assign(store.assignments, now_ms)
            case Swapped() as swap:
                self._swap_stored(swap, error, now_ms, was_appended)
            case Emptied():
                pass

    # Life.

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._judge(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._touch(self.members[member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else _NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not member_id and instance_id is not None:  # An administrator does not know the id.
            if instance_id not in self.static:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = self.static[instance_id]
        elif member_id in self.pending:
            del self.pending[member_id]
            self._complete_if_all_joined(now_ms)
            return _NONE
        error = self._judge(member_id, instance_id)
        if not error:
            self._leave(self.members[member_id], now_ms)
        return error

    def may_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, in_transaction: bool = False
    ) -> ErrorCode:
        """Also a sign of life."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return _NONE
        if generation < 0 and not member_id and instance_id is None:
            return _NONE if in_transaction else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._judge(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING and not in_transaction:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._touch(self.members[member_id], now_ms)
        return _NONE

    def disconnected(self, member_id: str, waiter: JoinWaiter | SyncWaiter, now_ms: int) -> None:
        """Nobody hears the answer any more. The member may come again, with the id that it knows."""
        member = self.members.get(member_id)
        if member is None:
            return
        if member.syncing is waiter:
            member.syncing = None
        elif member.joining is waiter:
            member.joining = None
            if member.is_new and member.instance_id is None:
                self._drop(member)
                self.pending[member_id] = now_ms + member.session_timeout_ms
                self._wake(self.pending[member_id])
        else:
            return
        self._touch(member, now_ms)

    def tick(self, now_ms: int) -> None:
        """Time has passed: sessions and waits that are over end."""
        self.wake_ms = NEVER_MS
        for member_id in [known for known, expires_ms in self.pending.items() if expires_ms <= now_ms]:
            del self.pending[member_id]
            self._complete_if_all_joined(now_ms)
        for member in [late for late in self.members.values() if late.expires_ms <= now_ms]:
            if self.members.get(member.member_id) is not member:
                continue
            if not member.is_new and (member.joining is not None or member.syncing is not None):
                member.expires_ms = now_ms + member.session_timeout_ms
            else:
                self._leave(member, now_ms)
        if self._join_due_ms <= now_ms and self.state is GroupState.PREPARING:
            self._join_due(now_ms)
        if self._sync_due_ms <= now_ms:
            self._sync_due(now_ms)
        self.wake_ms = min(
            self._join_due_ms,
            self._sync_due_ms,
            min(self.pending.values(), default=NEVER_MS),
            min((member.expires_ms for member in self.members.values()), default=NEVER_MS),
        )

    def _leave(self, member: Member, now_ms: int) -> None:
        self._drop(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now_ms)
        else:
            self._complete_if_all_joined(now_ms)

    def send_away(self, error: ErrorCode) -> None:
        """Whoever waits is answered, and may come again elsewhere."""
        for member in self.members.values():
            self.outbox += self._let_go(member, error)

    def die(self, error: ErrorCode) -> None:
        """Deleted, expired, or kept by another node from now on."""
        self.send_away(error)
        self.members.clear()
        self.spoken.clear()
        self.static.clear()
        self.pending.clear()
        self.unsynced.clear()
        self.metadata_bytes = 0
        self._join_due_ms = self._sync_due_ms = self.wake_ms = NEVER_MS
        self._enter(GroupState.DEAD)

    @property
    def is_blank(self) -> bool:
        """Nothing would be lost with it: no log holds anything of it."""
        return self.state is GroupState.EMPTY and not self.generation and not self.pending and not self.offsets


def _as_join(member: Member, waiter: JoinWaiter) -> Join:
    """What the member said when it last joined."""
    return Join(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocol_type="",
        protocols=member.protocols,
        new_member_id=member.member_id,
        waiter=waiter,
    )
