"""A classic group: who is in it, which generation they are in, and what each request means for that.

Nothing here waits or sends. What is to be answered, and what must be in the log before somebody hears of it, is put
into `outbox`, which whoever called empties afterwards. Time is told by the caller, on a clock that never goes back;
`wake_ms` says when `tick` has to be called at the latest.

Always holds: a member whose join or sync waits does not expire (except one that is new); pending members, who were
told their id and have not come with it yet, are waited for as members are; a generation has members in it only after
all of them, or those that came in time, have joined it.
"""

from enum import StrEnum
from typing import NamedTuple

from headrace.core.group_members import (
    CONSUMER,
    Join,
    Joined,
    JoinedMember,
    JoinWaiter,
    Member,
    Synced,
    SyncWaiter,
    common_protocols,
    elected_protocol,
    subscribed_topics,
)
from headrace.core.group_offsets import GroupOffsets
from headrace.errors import ErrorCode

NEVER_MS = 1 << 62
NEW_MEMBER_MS = 300_000
"""A new member that waits in a rebalance for so long is taken for one whose client gave up."""
GENERATION_MAX = 2**31 - 1

_NONE = ErrorCode.NONE


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class JoinAnswer(NamedTuple):
    waiter: JoinWaiter
    result: Joined


class SyncAnswer(NamedTuple):
    waiter: SyncWaiter
    result: Synced


class Store(NamedTuple):
    """The group as it is now, with these assignments, goes to the log; then `stored` is called with `purpose`."""

    assignments: dict[str, bytes]
    purpose: "Purpose"


class Assigned(NamedTuple):
    """The leader of a generation has assigned."""

    generation: int


class Swapped(NamedTuple):
    """A static member came back under another id, and takes the place it had."""

    waiter: JoinWaiter
    old_member_id: str
    old_leader: str
    old: Join
    join: Join


class Emptied(NamedTuple):
    """The last member has left. Nobody waits for that to be known."""


Purpose = Assigned | Swapped | Emptied
Effect = JoinAnswer | SyncAnswer | Store


class Group:
    def __init__(self, group_id: str, index: int = -1) -> None:
        """`index`: the partition of `__consumer_offsets` that keeps it."""
        self.group_id = group_id
        self.index = index
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = None
        """By the wall clock; None right after a change: whoever called knows the time."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Instance ids and the member ids that hold them."""
        self.pending: dict[str, int] = {}
        """Ids that were given out, and when they expire."""
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment."""
        self.subscribed: frozenset[str] | None = frozenset()
        """Topics that members read; None when that is not known."""
        self.offsets = GroupOffsets(group_id)
        self.outbox: list[Effect] = []
        self.wake_ms = self.armed_ms = NEVER_MS
        self.metadata_bytes = self.counted_bytes = 0
        """What members said to their assignors, and how much of it whoever keeps groups has counted."""
        self.rebalances = self.completed_rebalances = 0
        self._join_due_ms = self._sync_due_ms = NEVER_MS
        self._initial_left_ms = 0
        self._is_initial = self._has_grown = False
        self._delay_ms = 0

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
        known = self.members.get(join.member_id or self.static.get(join.instance_id or "", ""))
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING:
            waiting = sum(member.joining is not None for member in self.members.values())
            return waiting < size_max or (known is not None and known.joining is not None)
        return known is not None or len(self.members) < size_max

    def _speaks(self, join: Join) -> bool:
        if not self.members:
            return bool(join.protocol_type and join.protocols)
        if join.protocol_type != self.protocol_type:
            return False
        spoken = {name for name, _ in join.protocols}
        own_id = join.member_id or self.static.get(join.instance_id or "", "")
        others = [member for member in self.members.values() if member.member_id != own_id]
        return not spoken.isdisjoint(common_protocols(others)) if others else bool(spoken)

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
        self.members[member_id] = member
        self.metadata_bytes += member.metadata_bytes
        self.pending.pop(member_id, None)
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id
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

    def _say(self, member: Member, join: Join) -> None:
        self.metadata_bytes -= member.metadata_bytes
        member.protocols = join.protocols
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.metadata_bytes += member.metadata_bytes

    def _swap(self, old_member_id: str, join: Join, now_ms: int) -> None:
        """A static member came back without its id: it gets another one, and the old one is fenced."""
        member = self.members[old_member_id]
        old_leader, old = self.leader, _as_join(member, join.waiter)
        for effect in self._let_go(member, ErrorCode.FENCED_INSTANCE_ID):
            self.outbox.append(effect)
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

    def _rename(self, member: Member, member_id: str) -> None:
        """In its place: the order of members is that in which they came."""
        old_id = member.member_id
        self.members = {member_id if key == old_id else key: kept for key, kept in self.members.items()}
        member.member_id = member_id
        if self.leader == old_id:
            self.leader = member_id
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member_id)

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

    # Rebalancing.

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

    def _sync_due(self, now_ms: int) -> None:
        self._sync_due_ms = NEVER_MS
        if self.state not in (GroupState.COMPLETING, GroupState.STABLE) or not self.unsynced:
            return
        for member_id in list(self.unsynced):
            if member_id in self.members:
                self._drop(self.members[member_id])
        self._prepare(now_ms)

    def _leave(self, member: Member, now_ms: int) -> None:
        self._drop(member)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now_ms)
        else:
            self._complete_if_all_joined(now_ms)

    def _remove(self, member: Member, error: ErrorCode) -> None:
        for effect in self._let_go(member, error):
            self.outbox.append(effect)
        del self.members[member.member_id]
        self.metadata_bytes -= member.metadata_bytes
        self.unsynced.discard(member.member_id)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def _drop(self, member: Member) -> None:
        self._remove(member, ErrorCode.UNKNOWN_MEMBER_ID)

    @staticmethod
    def _let_go(member: Member, error: ErrorCode) -> list[Effect]:
        effects: list[Effect] = []
        if member.joining is not None:
            effects.append(JoinAnswer(member.joining, Joined(error, member.member_id)))
        if member.syncing is not None:
            effects.append(SyncAnswer(member.syncing, Synced(error)))
        member.joining = member.syncing = None
        return effects

    def die(self, error: ErrorCode) -> None:
        """Deleted, expired, or kept by another node from now on."""
        for member in self.members.values():
            self.outbox += self._let_go(member, error)
        self.members.clear()
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

    # Small things.

    def _judge(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the one that holds its instance id."""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _joined(self, member: Member) -> Joined:
        is_leader = member.member_id == self.leader
        return Joined(
            _NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader,
            members=self.member_list() if is_leader else (),
        )

    def member_list(self) -> list[JoinedMember]:
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata_for(self.protocol_name))
            for member in self.members.values()
        ]

    def _synced(self, member: Member) -> Synced:
        return Synced(_NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}

    def _refuse(self, waiter: JoinWaiter, error: ErrorCode, member_id: str) -> None:
        self.outbox.append(JoinAnswer(waiter, Joined(error, member_id)))

    def _touch(self, member: Member, now_ms: int) -> None:
        member.expires_ms = now_ms + member.session_timeout_ms
        self._wake(member.expires_ms)

    def _wake(self, at_ms: int) -> None:
        if at_ms < self.wake_ms:
            self.wake_ms = at_ms

    def _enter(self, state: GroupState) -> None:
        if state is not self.state:
            self.state = state
            self.state_since_ms = None


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
