"""The groups that this node coordinates: those whose partition of `__consumer_offsets` it leads.

What a request means is decided in `core.group`. Here its effects happen: answers are sent, and what must be in the log
first is appended, and answered when it is committed.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_expiry import forget_topics
from headrace.broker.coordinators.group_replay import Replay
from headrace.broker.coordinators.state_log import StateLog
from headrace.broker.coordinators.wakes import Wakes
from headrace.core.group import Group
from headrace.core.group_effects import GroupState, Store, SyncAnswer
from headrace.core.group_members import Join, JoinWaiter, SyncWaiter
from headrace.core.group_storing import resume, snapshot
from headrace.core.internal_topics import CONSUMER_OFFSETS
from headrace.core.verified import Verified
from headrace.errors import ErrorCode
from headrace.model import Buffer
from headrace.net.connection import Connection
from headrace.wire.batch import BatchHeader, Record
from headrace.wire.group_records import group_key, group_value

GROUPS_MAX: Final = 1_000_000
"""That one node coordinates. One more is refused (44)."""
METADATA_BYTES_MAX: Final = 256 << 20
"""What members of all groups may say to their assignors; whoever joins beyond it is refused (81)."""
GROUP_ID_BYTES_MAX: Final = 32_767
"""More does not fit into a record's key."""

Waiter = JoinWaiter | SyncWaiter


class Groups:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: dict[int, dict[str, Group]] = {}
        self._replays: dict[int, Replay] = {}
        self._open: dict[int, dict[int, set[Group]]] = {}
        """By partition and producer: where offsets wait for the end of its transaction."""
        self._parked: dict[Connection, dict[Waiter, tuple[Group, str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakes = Wakes(broker.loop, broker.clock, self._tick)
        self.metadata_bytes = self.rebalances = self.completed_rebalances = 0
        self.offsets_committed = self.offsets_expired = self.offsets_deleted = 0
        self.log = StateLog(broker, CONSUMER_OFFSETS, self, self._replay)
        broker.on_connection_closed.append(self._connection_closed)

    async def close(self) -> None:
        self._wakes.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def __iter__(self) -> Iterator[Group]:
        """Of partitions that are loaded."""
        for index in self.log.led_indexes:
            yield from self._kept[index].values()

    # Finding.

    def find(self, group_id: str) -> Group | ErrorCode | None:
        """None: nothing is known of it."""
        index = self.log.index_of(group_id)
        if index is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        led = self.log.led(index)
        return led if isinstance(led, ErrorCode) else self._kept[index].get(group_id)

    def find_or_make(self, group_id: str) -> Group | ErrorCode:
        found = self.find(group_id)
        if found is not None:
            return found
        if len(group_id.encode()) > GROUP_ID_BYTES_MAX:
            return ErrorCode.INVALID_GROUP_ID
        if len(self) >= GROUPS_MAX:
            return ErrorCode.POLICY_VIOLATION
        index = self.log.index_of(group_id)
        assert index is not None
        group = self._kept[index][group_id] = Group(group_id, index)
        return group

    def forget(self, group: Group) -> None:
        """It is deleted or has expired."""
        if self._kept.get(group.index, {}).get(group.group_id) is group:
            del self._kept[group.index][group.group_id]
        group.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.settle(group)

    def topics_deleted(self, topics: Sequence[str]) -> None:
        """Whoever reads topics of the same names some day does not go on where others stopped."""
        deleted_ms = self._broker.clock.wall_ms()
        task = self._broker.loop.create_task(forget_topics(self._broker, topics, deleted_ms))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Requests.

    def join(self, group: Group, join: Join, connection: Connection) -> None:
        now_ms, config = self._broker.clock.monotonic_ms(), self._broker.config
        self._park(connection, join.waiter, group, join.member_id or join.new_member_id)
        size_max = config.group_max_size
        if self.metadata_bytes >= METADATA_BYTES_MAX:
            size_max = 0
        group.join(join, now_ms, config.group_initial_rebalance_delay_ms, size_max)
        self.settle(group)

    def sync(
        self,
        group: Group,
        member: tuple[str, str | None, int],
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        waiter: SyncWaiter,
        connection: Connection,
    ) -> None:
        """`member`: its id, instance id and generation."""
        member_id, instance_id, generation = member
        self._park(connection, waiter, group, member_id)
        now_ms = self._broker.clock.monotonic_ms()
        group.sync(member_id, instance_id, generation, protocol, assignments, waiter, now_ms)
        self.settle(group)

    # Effects.

    def settle(self, group: Group) -> None:
        """After whatever was done to the group."""
        if group.state_since_ms is None:
            group.state_since_ms = self._broker.clock.wall_ms()
        while group.outbox:
            outbox, group.outbox = group.outbox, []
            for effect in outbox:
                if isinstance(effect, Store):
                    self._store(group, effect)
                elif isinstance(effect, SyncAnswer):
                    effect.waiter(effect.result)
                else:
                    effect.waiter(effect.result)
        if group.metadata_bytes != group.counted_bytes:
            self.metadata_bytes += group.metadata_bytes - group.counted_bytes
            group.counted_bytes = group.metadata_bytes
        if group.rebalances or group.completed_rebalances:
            self.rebalances += group.rebalances
            self.completed_rebalances += group.completed_rebalances
            group.rebalances = group.completed_rebalances = 0
        if group.is_blank:
            self._kept.get(group.index, {}).pop(group.group_id, None)
            group.state = GroupState.DEAD
        self._wakes.arm(group)

    def _store(self, group: Group, store: Store) -> None:
        broker = self._broker
        value = group_value(snapshot(group, store.assignments, broker.clock.wall_ms()))

        def stored(error: ErrorCode, was_appended: bool) -> None:
            group.stored(store, error, broker.clock.monotonic_ms(), was_appended)
            self.settle(group)

        error = self.append(group, [(group_key(group.group_id), value)], lambda error: stored(error, True))
        if error:
            group.stored(store, error, broker.clock.monotonic_ms())

    def append(
        self,
        group: Group,
        entries: Sequence[tuple[bytes, bytes | None]],
        answer: Callable[[ErrorCode], None],
        on_committed: Callable[[], None] | None = None,
        producer: tuple[int, int] | None = None,
        verified: Verified | None = None,
    ) -> ErrorCode:
        """`answer` is called once, if NONE is returned: when it is committed, cannot be, or takes too long (15).

        `on_committed` is called when it is, however long that took.
        """
        timer: asyncio.TimerHandle | None = None

        def finish(error: ErrorCode) -> None:
            nonlocal timer
            if not error and on_committed is not None:
                on_committed()
            if timer is not None:
                timer.cancel()
                timer = None
                answer(error)

        def late() -> None:
            nonlocal timer
            timer = None
            answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        error = self.log.append(group.index, entries, finish, producer=producer, verified=verified)
        if not error:
            timer = self._broker.loop.call_later(self._broker.config.offsets_commit_timeout_ms / 1000, late)
        return error

    def _tick(self, group: Group, now_ms: int) -> None:
        group.tick(now_ms)
        self.settle(group)

    # Whoever waits.

    def _park(self, connection: Connection, waiter: Waiter, group: Group, member_id: str) -> None:
        self._parked.setdefault(connection, {})[waiter] = (group, member_id)

    def unpark(self, connection: Connection, waiter: Waiter) -> None:
        """It is answered."""
        waiting = self._parked.get(connection)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._parked[connection]

    def _connection_closed(self, connection: Connection) -> None:
        for waiter, (group, member_id) in self._parked.pop(connection, {}).items():
            group.disconnected(member_id, waiter, self._broker.clock.monotonic_ms())
            self.settle(group)

    def answer_all(self) -> None:
        """The node stops: nobody shall wait for others who cannot come any more."""
        for group in {group for waiting in self._parked.values() for group, _ in waiting.values()}:
            group.send_away(ErrorCode.NOT_COORDINATOR)
            self.settle(group)

    @property
    def parked(self) -> int:
        return sum(map(len, self._parked.values()))

    # Transactions.

    def opened(self, group: Group, producer_id: int) -> None:
        """Offsets of the group wait for the end of the producer's transaction."""
        self._open[group.index].setdefault(producer_id, set()).add(group)

    def transaction_ended(self, index: int, producer_id: int, committed: bool) -> None:
        """Its marker in this partition of `__consumer_offsets` is committed."""
        replay = self._replays.get(index)
        if replay is not None:
            replay.markers.append((producer_id, committed))
            return
        for group in self._open.get(index, {}).pop(producer_id, ()):
            self.offsets_committed += group.offsets.end(producer_id, committed)
            self.settle(group)

    # Leaderships of `__consumer_offsets`.

    def begin(self, index: int, leader_epoch: int) -> None:  # noqa: ARG002  # groups do not tell it to anybody
        self._replays[index] = Replay(index)

    def replay(self, index: int, header: BatchHeader, records: Sequence[Record]) -> None:
        raise NotImplementedError  # it is given the bytes

    def _replay(self, index: int, header: BatchHeader, chunk: Buffer, pos: int) -> None:
        self._replays[index].batch(header, chunk, pos)

    def loaded(self, index: int) -> None:
        replay = self._replays.pop(index)
        now_ms, size_max = self._broker.clock.monotonic_ms(), self._broker.config.group_max_size
        self._kept[index] = replay.groups
        self._open[index] = replay.open
        for group in replay.finish():
            resume(group, now_ms)
            if len(group.members) > size_max:
                group.rebalance(now_ms)
            self.settle(group)
        for producer_id, committed in replay.markers:
            self.transaction_ended(index, producer_id, committed)

    def ended(self, index: int) -> None:
        self._replays.pop(index, None)
        self._open.pop(index, None)
        for group in self._kept.pop(index, {}).values():
            group.die(ErrorCode.NOT_COORDINATOR)
            self.settle(group)
