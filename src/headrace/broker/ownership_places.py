"""Where a resource is decided on: its partition's leader, or the controller for a name. Others say whom to ask."""

from typing import NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.core.acl import CLUSTER, Operation, Resource, ResourceType, topic
from headrace.core.ownership import Tenure
from headrace.errors import ErrorCode
from headrace.wire.messages.own import OwnLeader, OwnResult

_INDEX_CHARS_MAX = 10


class Elsewhere(NamedTuple):
    error: ErrorCode
    leader: OwnLeader


class Place(NamedTuple):
    """A partition that this node leads; or, without one, a name that it decides on as the controller."""

    hosted: Hosted | None


def partition_in(broker: Broker, resource: str) -> tuple[str, int] | None:
    """The topic and the index of a partition that exists under this name."""
    name, _, index = resource.rpartition("-")
    if not (name and index.isascii() and index.isdigit() and len(index) <= _INDEX_CHARS_MAX):
        return None
    if str(int(index)) != index or broker.image.partition(name, int(index)) is None:
        return None
    return name, int(index)


def locate(broker: Broker, resource: str) -> Place | Elsewhere:
    named = partition_in(broker, resource)
    if named is None:
        if broker.ownership.term and broker.controller.lease_valid():
            return Place(None)
        return Elsewhere(ErrorCode.NOT_COORDINATOR, _leader(broker, broker.controller_id, -1))
    hosted = broker.partitions.find_by_name(*named)
    if isinstance(hosted, ErrorCode) or hosted.error or not hosted.is_leading or not broker.controller.lease_valid():
        record = broker.image.partition(*named)
        assert record is not None
        leader = _leader(broker, record.leader, record.leader_epoch)
        return Elsewhere(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader)
    if hosted.own is not None and hosted.own.is_loading:
        return Elsewhere(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, _leader(broker, broker.node_id, hosted.leader_epoch))
    return Place(hosted)


def _leader(broker: Broker, broker_id: int, epoch: int) -> OwnLeader:
    node = broker.image.brokers.get(broker_id)
    if node is None:
        return OwnLeader(id=-1, epoch=epoch)
    return OwnLeader(id=broker_id, epoch=epoch, host=node.host, port=node.port)


def granted(broker: Broker, resource: str, tenure: Tenure) -> OwnResult:
    return OwnResult(
        resource=resource,
        generation=tenure.generation,
        fence_offset=tenure.fence_offset,
        leader=_leader(broker, broker.node_id, tenure.leader_epoch),
    )


def refused(broker: Broker, resource: str, error: ErrorCode, generation: int = 0) -> OwnResult:
    """Whom to ask instead is said where this node is the wrong one."""
    if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR):
        place = locate(broker, resource)
        named = partition_in(broker, resource)
        if isinstance(place, Elsewhere):
            leader = place.leader
        else:
            leader = _leader(broker, broker.node_id, -1 if place.hosted is None else place.hosted.leader_epoch)
        error = ErrorCode.NOT_COORDINATOR if named is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return OwnResult(resource=resource, generation=generation, error_code=error, leader=leader)
    return OwnResult(resource=resource, generation=generation, error_code=error)


def group_resource(name: str) -> Resource:
    return Resource(ResourceType.GROUP, name)


def may_claim(broker: Broker, principal: str, place: Place, *, resets: bool, exclusive: int) -> ErrorCode:
    """A claim needs some right to the topic; one that beats every fence, or keeps others out, that to change it."""
    if place.hosted is None:
        if resets and not broker.is_allowed(principal, Operation.ALTER, CLUSTER):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_REQUEST if exclusive else ErrorCode.NONE
    about = topic(place.hosted.topic)
    wanted = [Operation.ALTER] if resets or exclusive else [Operation.WRITE, Operation.READ]
    if not any(broker.is_allowed(principal, operation, about) for operation in wanted):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
