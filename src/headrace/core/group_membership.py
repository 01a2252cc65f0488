"""Who is in a group, who holds which instance id, and whose answer waits."""

from collections import Counter

from headrace.core.group_effects import Effect, GroupState, JoinAnswer, SyncAnswer
from headrace.core.group_members import Join, Joined, JoinedMember, JoinWaiter, Member, Synced
from headrace.core.group_offsets import GroupOffsets
from headrace.errors import ErrorCode

NEVER_MS = 1 << 62

_NONE = ErrorCode.NONE


class Membership:
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
        self.spoken: Counter[str] = Counter()
        """How many members speak each protocol."""
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

    def _judge(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the one that holds its instance id."""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def enter(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def _say(self, member: Member, join: Join) -> None:
        self._count(member, -1)
        member.protocols = join.protocols
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        self._count(member, 1)

    def _count(self, member: Member, sign: int) -> None:
        self.metadata_bytes += sign * member.metadata_bytes
        for name in {name for name, _ in member.protocols}:
            self.spoken[name] += sign
            if not self.spoken[name]:
                del self.spoken[name]

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

    def _remove(self, member: Member, error: ErrorCode) -> None:
        self.outbox += self._let_go(member, error)
        del self.members[member.member_id]
        self._count(member, -1)
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

    # Answers.

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

    # Time and state.

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
