"""ElectLeaders, versions 0-2: leaderships back to the first replicas (0), or to a replica that lost records (1, v1)."""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.controller.controller import Elected
from headrace.controller.topics import Refusal
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.elections import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1
MESSAGES = {
    ErrorCode.REQUEST_TIMED_OUT: "It is not known yet whether the leader has changed",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition is led as it should be",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The first replica cannot lead now, has too little on its own disk "
    "(headrace cluster why), or the leader did not step down",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica is there to lead",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such partition",
}


async def handle(broker: Broker, request: Request[ElectLeadersRequest]) -> ElectLeadersResponse:
    body = request.body
    if not broker.allowed_on_cluster(request.principal, Operation.ALTER):
        return refuse_all(
            body, Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{request.principal} may not elect leaders")
        )
    if body.election_type not in (PREFERRED, UNCLEAN):
        return refuse_all(body, Refusal(ErrorCode.INVALID_REQUEST, f"There is no election {body.election_type}"))
    kind = "unclean" if body.election_type == UNCLEAN else "preferred"
    named = None if body.topic_partitions is None else _named(body)
    outcome = await broker.controller.elect_leaders(
        "unclean" if kind == "unclean" else "preferred", named, timeout_ms=body.timeout_ms
    )
    if isinstance(outcome, Refusal):
        return refuse_all(body, outcome)
    topics: dict[str, list[PartitionResult]] = {}
    for elected in outcome:
        topics.setdefault(elected.topic, []).append(_result(elected))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=results) for name, results in topics.items()
        ]
    )


def _named(body: ElectLeadersRequest) -> list[tuple[str, int]]:
    return [(asked.topic, index) for asked in body.topic_partitions or () for index in asked.partitions]


def _result(elected: Elected) -> PartitionResult:
    error = ErrorCode.REQUEST_TIMED_OUT if elected.error is None else elected.error
    return PartitionResult(partition_id=elected.partition, error_code=error, error_message=MESSAGES.get(error))


def refuse_all(body: ElectLeadersRequest, refusal: Refusal) -> ElectLeadersResponse:
    """Version 0 has no code for the whole answer, so that each partition gets it too."""
    results = [
        ReplicaElectionResult(
            topic=asked.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=refusal.code, error_message=refusal.message)
                for index in asked.partitions
            ],
        )
        for asked in body.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=refusal.code, replica_election_results=results)
