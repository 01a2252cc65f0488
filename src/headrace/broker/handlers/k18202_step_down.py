"""StepDown, version 0, between nodes: the controller is about to move leaderships, whose leader stops serving first.

It is answered after that, for one partition epoch; any newer record by which this node leads ends it.
"""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.replication import StepDownRequest, StepDownResponse, StepDownResult


def handle(broker: Broker, request: Request[StepDownRequest]) -> None:
    body = request.body
    refusal = ErrorCode.NONE
    if not broker.allowed_on_cluster(request.principal, Operation.CLUSTER_ACTION):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif body.controller_epoch < broker.controller_epoch:
        refusal = ErrorCode.NOT_CONTROLLER
    results = [
        StepDownResult(
            topic_id=asked.topic_id,
            partition=asked.partition,
            error_code=refusal or broker.roles.step_down(asked.topic_id, asked.partition, asked.partition_epoch),
        )
        for asked in body.partitions
    ]
    request.reply(StepDownResponse(partitions=results))
