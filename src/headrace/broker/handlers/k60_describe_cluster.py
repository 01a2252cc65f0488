"""DescribeCluster, versions 0-2: the nodes, and who the controller is.

1 may ask for controllers instead of brokers: every node is a broker here, so that gets 114.
2 may ask for fenced brokers: a node knows only those that are registered.
"""

from headrace.broker.broker import Broker
from headrace.broker.handlers.k03_metadata import CLUSTER_OPERATIONS, authorized
from headrace.broker.requests import Request
from headrace.core.acl import CLUSTER
from headrace.errors import ErrorCode
from headrace.wire.messages.metadata import (
    OPERATIONS_UNASKED,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


async def handle(broker: Broker, request: Request[DescribeClusterRequest]) -> DescribeClusterResponse:
    body = request.body
    if body.endpoint_type != BROKERS:
        error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"There are no endpoints of type {body.endpoint_type}"
        if body.endpoint_type == CONTROLLERS:
            error, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker's endpoint, not a controller's"
        return DescribeClusterResponse(
            error_code=error, error_message=message, cluster_id=broker.image.cluster_id, brokers=[]
        )
    operations = OPERATIONS_UNASKED
    if body.include_cluster_authorized_operations:
        operations = authorized(broker, request.principal, CLUSTER, CLUSTER_OPERATIONS)
    return DescribeClusterResponse(
        cluster_id=broker.image.cluster_id,
        controller_id=broker.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=known.id, host=known.host, port=known.port, rack=known.rack)
            for known in broker.image.brokers.values()
        ],
        cluster_authorized_operations=operations,
    )
