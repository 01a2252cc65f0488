"""A group, with members that say what the test says, and a log that takes everything unless told otherwise."""

import struct
from collections.abc import Sequence

from headrace.core.group import Group
from headrace.core.group_effects import GroupState, JoinAnswer, Store, SyncAnswer
from headrace.core.group_members import Join, Joined, Synced
from headrace.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
SIZE_MAX = 1_000


def topics(*names: str) -> bytes:
    """A consumer's subscription."""
    packed = [struct.pack(">h", len(name)) + name.encode() for name in names]
    return struct.pack(">hi", 1, len(names)) + b"".join(packed) + struct.pack(">i", 0)


RANGE = (("range", topics("orders")),)


class Asked:
    """A request that waits, or was answered."""

    def __init__(self) -> None:
        self.joined: Joined | None = None
        self.synced: Synced | None = None

    def join(self, result: Joined) -> None:
        assert self.joined is None, "answered twice"
        self.joined = result

    def sync(self, result: Synced) -> None:
        assert self.synced is None, "answered twice"
        self.synced = result

    @property
    def error(self) -> ErrorCode:
        answer = self.joined or self.synced
        assert answer is not None, "it waits"
        return answer.error

    @property
    def waits(self) -> bool:
        return self.joined is None and self.synced is None

    @property
    def member_id(self) -> str:
        assert self.joined is not None, "it waits"
        return self.joined.member_id


class Stage:
    def __init__(self, *, delay_ms: int = 0, size_max: int = SIZE_MAX) -> None:
        self.group = Group("a group")
        self.now_ms = 1_000_000
        self.delay_ms = delay_ms
        self.size_max = size_max
        self.holds_stores = False
        self.stores: list[Store] = []
        """In the order in which they were asked for; those that are held wait for `store`."""
        self.held: list[Store] = []
        self._ids = 0

    def is_in(self, state: GroupState) -> bool:
        return self.group.state is state

    def settle(self) -> None:
        while self.group.outbox:
            outbox, self.group.outbox = self.group.outbox, []
            for effect in outbox:
                if isinstance(effect, Store):
                    self.stores.append(effect)
                    if self.holds_stores:
                        self.held.append(effect)
                    else:
                        self.group.stored(effect, ErrorCode.NONE, self.now_ms)
                elif isinstance(effect, JoinAnswer):
                    effect.waiter(effect.result)
                else:
                    assert isinstance(effect, SyncAnswer)
                    effect.waiter(effect.result)
        while self.group.wake_ms <= self.now_ms:
            self.group.tick(self.now_ms)
            self.settle()

    def store(self, error: ErrorCode = ErrorCode.NONE, was_appended: bool = False) -> None:
        self.group.stored(self.held.pop(0), error, self.now_ms, was_appended)
        self.settle()

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        known_id: bool = False,
        may_skip: bool = True,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> Asked:
        self._ids += 1
        asked = Asked()
        join = Join(
            member_id=member_id,
            instance_id=instance_id,
            client_id="client",
            client_host="/host",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=tuple(protocols),
            new_member_id=f"{instance_id or 'm'}-{self._ids}",
            needs_known_id=known_id,
            may_skip=may_skip,
            waiter=asked.join,
        )
        self.group.join(join, self.now_ms, self.delay_ms, self.size_max)
        self.settle()
        return asked

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> Asked:
        asked = Asked()
        said = self.group.generation if generation is None else generation
        self.group.sync(member_id, instance_id, said, protocol, assignments or {}, asked.sync, self.now_ms)
        self.settle()
        return asked

    def beat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        said = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, said, self.now_ms)

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        error = self.group.leave(member_id, instance_id, self.now_ms)
        self.settle()
        return error

    def gone(self, member_id: str, asked: Asked) -> None:
        """The connection of a request that waits has closed."""
        member = self.group.members[member_id]
        waiter = member.joining or member.syncing
        assert waiter is not None and asked.waits
        self.group.disconnected(member_id, waiter, self.now_ms)
        self.settle()

    def pass_ms(self, time_ms: int) -> None:
        """With everything that is due on the way."""
        end_ms = self.now_ms + time_ms
        while self.group.wake_ms <= end_ms:
            self.now_ms = max(self.group.wake_ms, self.now_ms)
            self.group.tick(self.now_ms)
            self.settle()
        self.now_ms = end_ms

    def stable(self, count: int = 1, **join: object) -> list[str]:
        """Member ids of a group in which everybody has its assignment; the first leads."""
        delay_ms, self.delay_ms = self.delay_ms, 1
        asked = [self.join(**join) for _ in range(count)]  # type: ignore[arg-type]  # passed on
        self.pass_ms(count)
        self.delay_ms = delay_ms
        ids = [one.member_id for one in asked]
        self.sync_all(ids)
        return ids

    def sync_all(self, ids: list[str]) -> None:
        """The leader assigns to everybody its own id."""
        whole = {member_id: member_id.encode() for member_id in ids}
        waiting = [self.sync(member_id, whole if member_id == self.group.leader else None) for member_id in ids]
        assert [one.error for one in waiting] == [ErrorCode.NONE] * len(ids)
