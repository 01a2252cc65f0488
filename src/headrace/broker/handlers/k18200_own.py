"""Own, version 0: who may read or write a partition, or call a name its own. See ownership_requests."""

from headrace.broker.broker import Broker
from headrace.broker.requests import Request
from headrace.wire.messages.own import OwnRequest


def handle(broker: Broker, request: Request[OwnRequest]) -> None:
    broker.own_requests.handle(request)
