"""A group as its record holds it, and back."""

from collections.abc import Mapping

from headrace.core.group import Group
from headrace.core.group_effects import GroupState
from headrace.core.group_members import CONSUMER, Join, Joined, Member, subscribed_topics
from headrace.core.group_offsets import GroupOffsets
from headrace.errors import ErrorCode
from headrace.wire.group_records import GroupMember, GroupMetadataValue


def snapshot(group: Group, assignments: Mapping[str, bytes], now_ms: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader or None,
        current_state_timestamp=now_ms if group.state_since_ms is None else group.state_since_ms,
        members=[
            GroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )


def restored(group_id: str, index: int, value: GroupMetadataValue, offsets: GroupOffsets) -> Group:
    """As its last record says. Sessions begin when the group is told the time (`resume`)."""
    group = Group(group_id, index)
    group.offsets = offsets
    group.protocol_type = value.protocol_type or None
    group.generation = value.generation
    group.protocol_name = value.protocol
    for stored in value.members:
        member = _member(stored, value)
        group.enter(member)
    group.leader = (value.leader or "") if (value.leader or "") in group.members else next(iter(group.members), "")
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
    group.subscribed = _topics(group)
    return group


def resume(group: Group, now_ms: int) -> None:
    """This node coordinates it from now on: everybody has a whole session to come and say so."""
    for member in group.members.values():
        member.expires_ms = now_ms + member.session_timeout_ms
        group.wake_ms = min(group.wake_ms, member.expires_ms)


def _member(stored: GroupMember, value: GroupMetadataValue) -> Member:
    protocols = ((value.protocol, stored.subscription),) if value.protocol is not None else ()
    rebalance_ms = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
    join = Join(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=value.protocol_type,
        protocols=protocols,
        new_member_id=stored.member_id,
        waiter=_nobody,
    )
    member = Member(stored.member_id, join)
    member.is_new = False
    member.assignment = stored.assignment
    return member


def _topics(group: Group) -> frozenset[str] | None:
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER:
        return None
    topics = [subscribed_topics(member.metadata_for(group.protocol_name)) for member in group.members.values()]
    known = [named for named in topics if named is not None]
    return frozenset().union(*known) if len(known) == len(topics) else None


def _nobody(_: Joined) -> None:
    raise AssertionError(ErrorCode.UNKNOWN_SERVER_ERROR)
