"""Who leads a partition. Decided from the record and from who is registered now, never from what happened when.

An ISR entry is *intact* if its node lost nothing of its log since the registration that the entry names; an entry that
is not is dropped while an intact one remains, live or not, and is not elected before. Only leaders remove intact ones.

`thin` are replicas that come last among those that may be elected (coverage.py): who may be is decided without it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

import msgspec

from headrace.core.cluster import NO_LEADER, IsrMember, PartitionRecord, RegisteredBroker
from headrace.core.coverage import order
from headrace.errors import ErrorCode

Kind = Literal["clean", "unclean", "not intact", "none", "dropped"]


class Nodes(Protocol):
    """What an election needs of the image."""

    brokers: dict[int, RegisteredBroker]

    def is_live(self, broker_id: int, topic_id: bytes, index: int) -> bool: ...
    def is_reachable(self, broker_id: int, topic_id: bytes, index: int) -> bool: ...


class Election(NamedTuple):
    """A record to write. `dropped`: the leader stays, entries went. `none`: it has no leader now."""

    record: PartitionRecord
    kind: Kind


def is_intact(member: IsrMember, brokers: Mapping[int, RegisteredBroker]) -> bool:
    broker = brokers.get(member.broker_id)
    if broker is None:
        return True
    epoch = member.broker_epoch
    return broker.intact_since <= epoch and (epoch <= broker.last_epoch or epoch == broker.epoch)


def elect(
    record: PartitionRecord, topic_id: bytes, index: int, nodes: Nodes, unclean: bool, thin: Collection[int] = ()
) -> Election | None:
    """What the record must become: entries dropped and a leader chosen in one step. None when it stays as it is."""
    isr = kept_entries(record, nodes)
    if _leads_on(record, isr, topic_id, index, nodes):
        if len(isr) == len(record.isr):
            return None
        return Election(_changed(record, isr=isr), "dropped")
    chosen = _first_valid(record, isr, topic_id, index, nodes, thin)
    if chosen == NO_LEADER and _is_kept_for_lack_of_others(record, isr, topic_id, index, nodes):
        chosen = record.leader
    if chosen != NO_LEADER:
        return Election(_led_by(record, chosen, isr, nodes), "clean")
    live = [replica for replica in record.replicas if nodes.is_live(replica, topic_id, index)]
    if not any(is_intact(member, nodes.brokers) for member in isr):
        members = record.isr_ids
        chosen = next((replica for replica in live if replica in members), NO_LEADER)
        if chosen != NO_LEADER:
            return Election(_led_by(record, chosen, _alone(chosen), nodes), "not intact")
    if unclean and live:
        led = _led_by(record, live[0], _alone(live[0]), nodes)
        return Election(msgspec.structs.replace(led, recovering=True), "unclean")
    if record.leader == NO_LEADER:
        return None if len(isr) == len(record.isr) else Election(_changed(record, isr=isr), "dropped")
    return Election(_changed(record, isr=isr, leader=NO_LEADER, leader_epoch=record.leader_epoch + 1), "none")


def elect_preferred(
    record: PartitionRecord, topic_id: bytes, index: int, nodes: Nodes, thin: Collection[int] = ()
) -> PartitionRecord | ErrorCode:
    """The first replica leads, or everything stays: 84 when it leads already, 80 when it cannot or shall not yet.

    A first replica that is thin waits. Meanwhile a leader that is not stays, so that leadership does not move twice.
    """
    preferred = record.replicas[0]
    isr = kept_entries(record, nodes)
    if record.leader == preferred and _leads_on(record, isr, topic_id, index, nodes):
        return ErrorCode.ELECTION_NOT_NEEDED
    chosen = preferred if _is_valid(preferred, isr, topic_id, index, nodes) else NO_LEADER
    if thin:
        valid = [r for r in order(record.replicas, thin) if _is_valid(r, isr, topic_id, index, nodes)]
        if valid and valid[0] not in thin and (chosen == NO_LEADER or chosen in thin):
            chosen = NO_LEADER if record.leader in valid and record.leader not in thin else valid[0]
    if chosen == NO_LEADER:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return _led_by(record, chosen, isr, nodes)


def is_held_back(
    record: PartitionRecord, topic_id: bytes, index: int, nodes: Nodes, thin: Collection[int] = ()
) -> bool:
    """The first replica could lead, and does not because it is thin and another is not."""
    preferred = record.replicas[0]
    if record.leader == preferred or preferred not in thin:
        return False
    isr = kept_entries(record, nodes)
    valid = [replica for replica in record.replicas if _is_valid(replica, isr, topic_id, index, nodes)]
    return preferred in valid and any(replica not in thin for replica in valid)


def elect_unclean(record: PartitionRecord, topic_id: bytes, index: int, nodes: Nodes) -> Election | ErrorCode:
    """Somebody asks for a leader at any price: 84 when there is one, 83 when nobody is live."""
    if record.leader != NO_LEADER and _leads_on(record, kept_entries(record, nodes), topic_id, index, nodes):
        return ErrorCode.ELECTION_NOT_NEEDED
    elected = elect(record, topic_id, index, nodes, unclean=True)
    if elected is None or elected.record.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return elected


def move_from(
    record: PartitionRecord, topic_id: bytes, index: int, nodes: Nodes, leaving: int, thin: Collection[int] = ()
) -> PartitionRecord | None:
    """The record by which another valid replica leads in place of `leaving`, which stays in the ISR; None: nobody."""
    if record.leader != leaving:
        return None
    isr = kept_entries(record, nodes)
    others = (replica for replica in order(record.replicas, thin) if replica != leaving)
    chosen = next((replica for replica in others if _is_valid(replica, isr, topic_id, index, nodes)), NO_LEADER)
    return None if chosen == NO_LEADER else _led_by(record, chosen, isr, nodes)


def is_preferred_available(
    record: PartitionRecord, topic_id: bytes, index: int, nodes: Nodes, thin: Collection[int] = ()
) -> bool:
    """Whether the rebalancer would move the leadership, to the first replica or away from one that is thin."""
    return record.leader != record.replicas[0] and not isinstance(
        elect_preferred(record, topic_id, index, nodes, thin), ErrorCode
    )


def kept_entries(record: PartitionRecord, nodes: Nodes) -> tuple[IsrMember, ...]:
    """The ISR without entries that are not intact, unless none is."""
    if all(is_intact(member, nodes.brokers) for member in record.isr):
        return record.isr
    return tuple(member for member in record.isr if is_intact(member, nodes.brokers)) or record.isr


def _entry(isr: Iterable[IsrMember], broker_id: int) -> IsrMember | None:
    return next((member for member in isr if member.broker_id == broker_id), None)


def _is_valid(broker_id: int, isr: tuple[IsrMember, ...], topic_id: bytes, index: int, nodes: Nodes) -> bool:
    entry = _entry(isr, broker_id)
    return entry is not None and is_intact(entry, nodes.brokers) and nodes.is_live(broker_id, topic_id, index)


def _first_valid(
    record: PartitionRecord,
    isr: tuple[IsrMember, ...],
    topic_id: bytes,
    index: int,
    nodes: Nodes,
    thin: Collection[int],
) -> int:
    if _is_valid(record.leader, isr, topic_id, index, nodes):
        return record.leader
    return next((r for r in order(record.replicas, thin) if _is_valid(r, isr, topic_id, index, nodes)), NO_LEADER)


def _leads_on(record: PartitionRecord, isr: tuple[IsrMember, ...], topic_id: bytes, index: int, nodes: Nodes) -> bool:
    """The leader leads in this very registration. One that is shutting down does, until it is asked to step down."""
    entry = _entry(isr, record.leader)
    broker = nodes.brokers.get(record.leader)
    if entry is None or broker is None or entry.broker_epoch != broker.epoch:
        return False
    return is_intact(entry, nodes.brokers) and nodes.is_reachable(record.leader, topic_id, index)


def _is_kept_for_lack_of_others(
    record: PartitionRecord, isr: tuple[IsrMember, ...], topic_id: bytes, index: int, nodes: Nodes
) -> bool:
    entry = _entry(isr, record.leader)
    return entry is not None and is_intact(entry, nodes.brokers) and nodes.is_reachable(record.leader, topic_id, index)


def _alone(broker_id: int) -> tuple[IsrMember, ...]:
    return (IsrMember(broker_id, -1),)


def _led_by(record: PartitionRecord, leader: int, isr: tuple[IsrMember, ...], nodes: Nodes) -> PartitionRecord:
    """A new leadership: entries name the present registrations of the leader and of whoever else is intact."""
    brokers = nodes.brokers
    renewed = tuple(
        IsrMember(member.broker_id, brokers[member.broker_id].epoch)
        if member.broker_id == leader or (member.broker_id in brokers and is_intact(member, brokers))
        else member
        for member in isr
    )
    return _changed(record, isr=renewed, leader=leader, leader_epoch=record.leader_epoch + 1)


def _changed(
    record: PartitionRecord,
    *,
    isr: tuple[IsrMember, ...],
    leader: int | None = None,
    leader_epoch: int | None = None,
) -> PartitionRecord:
    return msgspec.structs.replace(
        record,
        isr=isr,
        leader=record.leader if leader is None else leader,
        leader_epoch=record.leader_epoch if leader_epoch is None else leader_epoch,
        partition_epoch=record.partition_epoch + 1,
    )
