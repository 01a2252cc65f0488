"""Who owns what on this node: partitions that it leads, and names while it is the controller.

Everything here happens in single steps of the loop. An ownership lives as long as its connection and the leadership
under which it was granted; what outlives it is written by ownership_keys, and granted anew by ownership_grants.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from headrace.broker.ownership_keys import KeyWriter
from headrace.broker.ownership_metrics import OwnMetrics
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted, Partitions
from headrace.controller.controller import Controller
from headrace.core.cluster import Diff, Owned
from headrace.core.ownership import NO_KEY, Book, Entry, Key, Member
from headrace.core.ownership_gate import Gate
from headrace.errors import ErrorCode
from headrace.net.connection import Connection
from headrace.runtime import Clock

log = logging.getLogger(__name__)

YOUNG_MS = 1_000
"""How long after a change of leaders standbys let the owner come back first."""
LOOK_S_MAX = 1.0
"""How often the lease is looked at, at least, while somebody owns something."""
LOOK_S_MIN = 0.02


class Ownership:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
        events: FetchEvents,
        lease_remaining_ms: Callable[[], int],
    ) -> None:
        self.metrics = OwnMetrics()
        self.book = Book(self._reads_tokens)
        self.gates: dict[Hosted, Gate] = {}
        """Partitions that somebody owns or owned, or that only an owner may use; of these alone `own` is set."""
        self.names: dict[tuple[str, str], Entry] = {}
        self.connections: Callable[[], Iterable[Connection]] = tuple
        """All that stand at present."""
        self.on_unowned: Callable[[Entry], None] = lambda _: None
        """Whoever waits for the resource may look again."""
        self.clock = clock
        self.controller = controller
        self.image = controller.image
        self.keys = KeyWriter(loop, clock, controller.own_keys, self.where, self.changed)
        self._loop = loop
        self._partitions = partitions
        self._events = events
        self._lease_remaining_ms = lease_remaining_ms
        self._hosted: dict[Gate, Hosted] = {}
        self._begun_ms: dict[Hosted, int] = {}
        self._leaderships: dict[Gate, object] = {}
        self._term = 0
        self._term_begun_ms = 0
        self._young_timer: asyncio.TimerHandle | None = None
        self._lease_timer: asyncio.TimerHandle | None = None
        self._was_valid = True

    def _reads_tokens(self) -> bool:
        config = self.image.broker_config
        return config.own_enable and config.own_client_id_enable

    def lease_valid(self) -> bool:
        return self.controller.lease_valid()

    # Places.

    @property
    def term(self) -> int:
        """Of this node as controller, 0 while it is not. Names of an earlier term are not owned any more."""
        if self._term != self.controller.ledger.epoch:
            self._begin_term(self.controller.ledger.epoch)
        return self._term

    def where(self, entry: Entry) -> Hosted | int | None:
        """The partition, or the term; None when this node is not the one to ask any more."""
        if entry.gate is not None:
            hosted = self._hosted.get(entry.gate)
            return None if hosted is None or hosted.error else hosted
        return self.term if self.names.get((entry.group, entry.resource)) is entry and self._term else None

    def find(self, hosted: Hosted | None, group: str, resource: str) -> Entry | None:
        if hosted is None:
            return self.names.get((group, resource)) if self.term else None
        return None if hosted.own is None else hosted.own.entries.get(group)

    def ensure(self, hosted: Hosted | None, group: str, resource: str) -> Entry:
        found = self.find(hosted, group, resource)
        if found is not None:
            return found
        gate = None if hosted is None else self.gate_of(hosted)
        entry = Entry(group, resource, gate, self._key_of(group, resource))
        if gate is None:
            self.names[group, resource] = entry
        else:
            gate.entries[group] = entry
        self._watch_lease()
        return entry

    def _key_of(self, group: str, resource: str) -> Key:
        owned = self.image.owned_of(group, resource)
        return NO_KEY if owned is None else Key(owned.record, owned.rev)

    def is_young(self, hosted: Hosted | None) -> int:
        """For how many ms more the leadership is so young that an owner may come back first."""
        begun_ms = self._term_begun_ms if hosted is None else self._begun_ms.get(hosted)
        return 0 if begun_ms is None else max(0, begun_ms + YOUNG_MS - self.clock.monotonic_ms())

    # Gates.

    def gate_of(self, hosted: Hosted) -> Gate:
        if hosted.own is not None:
            return hosted.own
        gate = Gate(hosted.topic_id.hex(), self.book, self.lease_valid, self.clock.monotonic_ms)
        hosted.own = self.gates[hosted] = gate
        self._hosted[gate] = hosted
        self._leaderships[gate] = hosted.leadership
        gate.groups = (hosted.config.own_produce_group, hosted.config.own_fetch_group)
        gate.settle()
        self._watch_lease()
        return gate

    def hosted(self, hosted: Hosted) -> None:
        """A partition is here. One without other replicas may be used at once."""
        if not hosted.error:
            self.look(hosted)

    def look(self, hosted: Hosted) -> None:
        """Gives a partition the gate that its topic's settings and the store's memory ask for, if any."""
        groups = (hosted.config.own_produce_group, hosted.config.own_fetch_group)
        remembered = self.image.owned.get(str(hosted)) if self.image.owned else None
        gate = hosted.own
        if gate is None:
            if not any(groups) and not remembered:
                return
            gate = self.gate_of(hosted)
        gate.groups = groups
        for group, owned in (remembered or {}).items():
            if group not in gate.entries and owned.record.topic_id == gate.topic_id:
                self._remember(Entry(group, str(hosted), gate, Key(owned.record, owned.rev)))
        self._settle(gate)
        self._tidy_gate(gate)

    def _remember(self, entry: Entry) -> None:
        """The loss was not seen here: time begins with the leadership."""
        assert entry.key.record is not None
        if entry.gate is None:
            self.names[entry.group, entry.resource] = entry
        else:
            entry.gate.entries[entry.group] = entry
        entry.expires_ms = self.clock.monotonic_ms() + entry.key.record.retain_ms
        self.keys.expire_later(entry)

    def _settle(self, gate: Gate) -> None:
        gate.settle()
        hosted = self._hosted.get(gate)
        if hosted is not None and hosted.subscribers:
            self._events.ownership_changed(hosted)

    def changed(self, entry: Entry) -> None:
        """Something of the entry is different now: who is kept out, and whether anybody would miss it."""
        gate = entry.gate
        if gate is None:
            if entry.is_idle and self.names.get((entry.group, entry.resource)) is entry:
                del self.names[entry.group, entry.resource]
            return
        if entry.is_idle and gate.entries.get(entry.group) is entry:
            del gate.entries[entry.group]
        self._settle(gate)
        self._tidy_gate(gate)

    def _tidy_gate(self, gate: Gate) -> None:
        hosted = self._hosted.get(gate)
        if hosted is not None and not gate.is_needed:
            self._drop_gate(hosted, gate)
            if hosted.subscribers:
                self._events.ownership_changed(hosted)

    def _drop_gate(self, hosted: Hosted, gate: Gate) -> None:
        hosted.own = None
        del self.gates[hosted], self._hosted[gate], self._leaderships[gate]

    # The end of an ownership.

    def drop(self, entry: Entry, error: ErrorCode) -> None:
        """Nobody owns it any more. Whoever waits for its confirmation gets this error."""
        tenure = entry.tenure
        if tenure is None:
            return
        entry.tenure = None
        self.metrics.owned -= 1
        for peer in tenure.peers:
            member = self.book.members.get(peer)
            if member is not None:
                member.entries.pop(entry, None)
                if not member.entries and isinstance(peer, Connection):
                    peer.is_kept = False
        if tenure.record is not None:
            entry.expires_ms = self.clock.monotonic_ms() + tenure.record.retain_ms
            self.keys.expire_later(entry)
        waiting, tenure.waiting = tenure.waiting, []
        self.changed(entry)
        for told in waiting:
            told(error)
        if entry.standbys:
            self.on_unowned(entry)

    def _let_go(self, entry: Entry, error: ErrorCode) -> None:
        """The leadership is over, or the topic: its owner is told, and keeps its connection."""
        tenure = entry.tenure
        if tenure is None:
            if entry.standbys:
                self.on_unowned(entry)
            return
        members = [self.book.members.get(peer) for peer in tenure.peers]
        self.drop(entry, error)
        for member in members:
            if member is not None:
                member.has_lost = True
                if member.keep_alive is not None:
                    member.keep_alive()

    def sever(self, victims: Collection[Connection], taker: Member | None = None) -> None:
        """Nothing more is done for these connections, nor for those that stand for them; they own nothing.

        Those that stand for the taker are spared.
        """
        doomed = dict.fromkeys(victims)
        bound = [member for victim in victims if (member := self.book.members.get(victim)) is not None and member.bound]
        if bound:
            for connection in self.connections():
                if any(member in self.book.bound_to(connection) for member in bound):
                    doomed[connection] = None
        for connection in doomed:
            if taker is not None and (connection is taker.peer or taker in self.book.bound_to(connection)):
                continue
            log.info("closing the connection of %s: it does not own any more what it owned", connection.peer)
            self.metrics.severed += 1
            connection.close()
            self._events.connection_closed(connection)
            self.connection_closed(connection)

    def connection_closed(self, connection: Connection) -> None:
        member = self.book.forget(connection)
        if member is None:
            return
        for entry in list(member.entries):
            tenure = entry.tenure
            if tenure is None:
                continue
            tenure.peers.pop(connection, None)
            if not tenure.peers:
                self.drop(entry, ErrorCode.NETWORK_EXCEPTION)

    # Leaderships.

    def began(self, hosted: Hosted) -> None:
        """This node leads the partition, or goes on to lead it under another epoch."""
        gate = hosted.own
        if gate is not None and (gate.had_owner or gate.entries):
            if hosted.leadership is not None and self._leaderships.get(gate) is hosted.leadership:
                return
            self.ended(hosted)
        if hosted.leader_epoch > 0:
            self._begun_ms.pop(hosted, None)
            self._begun_ms[hosted] = self.clock.monotonic_ms()
            if self._young_timer is None:
                self._young_timer = self._loop.call_later(YOUNG_MS / 1000, self._forget_grown_up)
        self.look(hosted)
        self._check_loaded(hosted)
        if hosted.own is not None:
            self._leaderships[hosted.own] = hosted.leadership

    def _forget_grown_up(self) -> None:
        """One timer for all leaderships, the oldest of which come first."""
        self._young_timer = None
        while self._begun_ms and not self.is_young(next(iter(self._begun_ms))):
            del self._begun_ms[next(iter(self._begun_ms))]
        if self._begun_ms:
            self._young_timer = self._loop.call_later(YOUNG_MS / 1000, self._forget_grown_up)

    def _check_loaded(self, hosted: Hosted) -> None:
        """A record that was read from the store may be newer than what the image holds of owners."""
        topic = self.image.topics_by_id.get(hosted.topic_id)
        leadership = hosted.leadership
        if topic is None or leadership is None:
            return
        is_loading = leadership.record.partition_epoch > topic.partitions[hosted.index].partition_epoch
        if is_loading:
            self.gate_of(hosted).is_loading = True
        elif hosted.own is not None and hosted.own.is_loading:
            hosted.own.is_loading = False
            self.look(hosted)

    def ended(self, hosted: Hosted) -> None:
        """It is not the leader any more, or stepped down, or the partition is gone."""
        self._begun_ms.pop(hosted, None)
        gate = hosted.own
        if gate is None:
            return
        self._drop_gate(hosted, gate)
        for entry in list(gate.entries.values()):
            self._let_go(entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        gate.entries.clear()

    def _begin_term(self, term: int) -> None:
        names, self.names = self.names, {}
        self._term, self._term_begun_ms = term, self.clock.monotonic_ms()
        for entry in names.values():
            self._let_go(entry, ErrorCode.NOT_COORDINATOR)
        if term:
            for resource, groups in self.image.owned.items():
                for group, owned in groups.items():
                    if not owned.record.topic_id:
                        self._remember(Entry(group, resource, None, Key(owned.record, owned.rev)))

    # Changes of the metadata.

    def applied(self, diff: Diff) -> None:
        deleted = {topic.id for topic in diff.topics_deleted} if self.gates else ()
        for hosted in [hosted for hosted in self.gates if hosted.topic_id in deleted]:
            self.ended(hosted)
        for topic in diff.topics_configured:
            for hosted in self._partitions.hosted_of(topic.id):
                if hosted.own is not None or not hosted.error:
                    self.look(hosted)
        for group, resource in diff.owned_changed:
            self._heard(group, resource, self.image.owned_of(group, resource))
        if diff.controller_changed:
            _ = self.term
        if diff.partitions_changed and self.gates:
            for hosted, gate in list(self.gates.items()):
                if gate.is_loading:
                    self._check_loaded(hosted)

    def _heard(self, group: str, resource: str, owned: Owned | None) -> None:
        for entry in self._entries(group, resource):
            if self.image.rev < entry.key.rev:
                continue  # what was written here is newer
            entry.key = NO_KEY if owned is None else Key(owned.record, owned.rev)
            if entry.doubt is not None and entry.doubt == entry.key.record:
                entry.doubt = None
                if entry.tenure is None:
                    self.keys.expire_later(entry)
            self.changed(entry)

    def _entries(self, group: str, resource: str) -> list[Entry]:
        found = [self.names.get((group, resource))]
        topic, _, index = resource.rpartition("-")
        if topic in self.image.topics and index.isdecimal():
            hosted = self._partitions.find_by_name(topic, int(index))
            if isinstance(hosted, Hosted) and hosted.own is not None:
                found.append(hosted.own.entries.get(group))
        return [entry for entry in found if entry is not None]

    # The lease.

    def _watch_lease(self) -> None:
        if self._lease_timer is None:
            self._look_at_lease()

    def _look_at_lease(self) -> None:
        self._lease_timer = None
        if not self.gates and not self.names:
            return
        is_valid = self.lease_valid()
        if is_valid != self._was_valid:
            self._was_valid = is_valid
            if is_valid:
                for gate in list(self._hosted):
                    self._settle(gate)
            else:
                self._lease_ended()
        _ = self.term
        wait_s = min(max(self._lease_remaining_ms() / 1000, LOOK_S_MIN), LOOK_S_MAX) if is_valid else 0.1
        self._lease_timer = self._loop.call_later(wait_s, self._look_at_lease)

    def _lease_ended(self) -> None:
        """Others may lead soon: owners are told now, in the only way that is left."""
        entries = [entry for gate in self.gates.values() for entry in gate.entries.values()]
        owned = [entry for entry in (*entries, *self.names.values()) if entry.tenure is not None]
        victims = [peer for entry in owned if entry.tenure is not None for peer in entry.tenure.peers]
        log.warning("the lease of this node has ended: %d ownerships end with it", len(owned))
        self.sever(connections_of(victims))
        for entry in owned:
            self.drop(entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # The end.

    async def close(self) -> None:
        for timer in (self._lease_timer, self._young_timer):
            if timer is not None:
                timer.cancel()
        await self.keys.close()


def connections_of(peers: Iterable[object]) -> list[Connection]:
    return [peer for peer in dict.fromkeys(peers) if isinstance(peer, Connection)]
