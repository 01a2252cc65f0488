"""Produce and fetch requests at partitions that somebody owns; and client ids that claim by themselves."""

from collections.abc import Callable, Iterable

from headrace.broker.broker import Broker
from headrace.broker.ownership_grants import Terms
from headrace.broker.ownership_places import group_resource
from headrace.broker.partitions import Hosted, HostedTopic
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.core.fetch_session import FetchSession
from headrace.core.ownership import PRODUCE, Entry, Identity, Member, Refused
from headrace.core.ownership_gate import Pass
from headrace.core.ownership_rules import Action, decide_token, look
from headrace.core.ownership_tokens import Token
from headrace.errors import ErrorCode
from headrace.net.connection import Connection
from headrace.wire.messages.fetch import FetchRequest
from headrace.wire.messages.produce import ProduceRequest

TOPIC_IDS_SINCE = 13


def holds_back(broker: Broker, request: Request[ProduceRequest], again: Callable[[], None]) -> bool:
    """Whether a produce request waits for the confirmation of its own grant. It is then begun again.

    To be asked when there is any gate on this node, or the client.id may claim.
    """
    connection = request.connection
    token = broker.ownership.book.token_of(connection)
    by_id = request.version >= TOPIC_IDS_SINCE
    for topic in request.body.topic_data:
        partitions = broker.partitions
        hosted = partitions.topic_by_id(topic.topic_id) if by_id else partitions.topic_by_name(topic.name)
        if hosted is None or not broker.is_allowed(request.principal, Operation.WRITE, hosted.resource):
            continue
        for data in topic.partition_data:
            partition = hosted.partitions.get(data.index)
            if partition is None or partition.error:
                continue
            if token is not None:
                claim_by_token(broker, partition, connection, token)
            if _waits(partition, connection, again):
                connection.hold_back()
                return True
    return False


def _waits(partition: Hosted, connection: Connection, again: Callable[[], None]) -> bool:
    gate = partition.own
    if gate is None or gate.judge(PRODUCE, connection) is not Pass.WAITS:
        return False
    tenure = gate.unconfirmed(connection)
    if tenure is None:
        return False
    tenure.waiting.append(lambda _: again())
    return True


def claim_for_fetch(broker: Broker, request: Request[FetchRequest], session: FetchSession | None) -> None:
    """What a fetch reads is claimed first, if its client.id says so."""
    token = broker.ownership.book.token_of(request.connection)
    if token is None:
        return
    for partition in _fetched(broker, request, session):
        if not partition.error:
            claim_by_token(broker, partition, request.connection, token)


def _fetched(broker: Broker, request: Request[FetchRequest], session: FetchSession | None) -> Iterable[Hosted]:
    by_id, principal = request.version >= TOPIC_IDS_SINCE, request.principal
    for topic in request.body.topics:
        partitions = broker.partitions
        hosted: HostedTopic | None
        hosted = partitions.topic_by_id(topic.topic_id) if by_id else partitions.topic_by_name(topic.topic)
        if hosted is not None and broker.is_allowed(principal, Operation.READ, hosted.resource):
            found = (hosted.partitions.get(asked.partition) for asked in topic.partitions)
            yield from (partition for partition in found if partition is not None)
    for entry in list(session or ()):
        if isinstance(entry.replica, Hosted) and entry.fault is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            yield entry.replica


def claim_by_token(broker: Broker, partition: Hosted, connection: Connection, token: Token) -> None:
    """The gate judges afterwards: whether it is owned now, or somebody else's, or not to be had."""
    own = broker.ownership
    if not broker.is_allowed(connection.principal, Operation.READ, group_resource(token.group)):
        return  # an ordinary client.id
    gate = own.gate_of(partition)
    gate.had_owner = True
    if gate.is_loading or not own.lease_valid():
        return
    entry = gate.entries.get(token.group)
    if entry is not None and entry.doubt is not None and entry.tenure is None:
        own.keys.settle([entry], lambda: None)
        return
    identity = Identity(connection.principal, connection.client_id or "")
    member = own.book.member(connection)
    decision = decide_token(token.number, identity, look(entry, connection, own.clock.monotonic_ms()))
    if decision.action is Action.KEEP:
        return
    if decision.action is not Action.REFUSE and _is_full(broker, member, entry):
        member.shut_out.add(gate)
        return
    if decision.action is Action.JOIN:
        assert entry is not None and entry.tenure is not None
        entry.tenure.peers[connection] = None
        member.entries[entry] = None
        connection.keep()
        return
    if decision.action is Action.REFUSE:
        own.metrics.rejections += 1
        if entry is not None:
            address, wall_ms = connection.peer, broker.clock.wall_ms()
            entry.refused = Refused(connection.client_id or "", address, token.number, wall_ms)
        return
    retain_ms = broker.config.own_generation_retention_max_ms
    hindrance = broker.own_grants.hinders(partition, entry, decision, retain_ms)
    if hindrance:
        if hindrance is ErrorCode.POLICY_VIOLATION:
            member.shut_out.add(gate)
        return
    member.shut_out.discard(gate)
    entry = own.ensure(partition, token.group, str(partition))
    victims = broker.own_grants.swap(entry, partition, decision, member, Terms(identity, retain_ms, is_implied=True))
    own.sever(victims, member)
    broker.own_grants.confirm(entry)


def _is_full(broker: Broker, member: Member, entry: Entry | None) -> bool:
    """The limits of claims count for those by client.id too."""
    config = broker.config
    if len(member.entries) >= config.own_max_resources_per_connection:
        return True
    is_one_more = entry is None or entry.tenure is None
    return is_one_more and broker.ownership.metrics.owned >= config.own_max_entries
