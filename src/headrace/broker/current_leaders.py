"""Who leads a partition, told with an error, so that the client need not ask for metadata first."""

from collections.abc import Iterable

from headrace.broker.broker import Broker
from headrace.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint


def current_leader(broker: Broker, topic: str | bytes, index: int) -> LeaderIdAndEpoch | None:
    """As far as this node knows."""
    image = broker.image
    known = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return None
    record = known.partitions[index]
    return LeaderIdAndEpoch(leader_id=record.leader, leader_epoch=record.leader_epoch)


def endpoints(broker: Broker, leaders: Iterable[LeaderIdAndEpoch | None]) -> list[NodeEndpoint]:
    ids = dict.fromkeys(leader.leader_id for leader in leaders if leader is not None)
    nodes = [broker.image.brokers[broker_id] for broker_id in ids if broker_id in broker.image.brokers]
    return [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]
