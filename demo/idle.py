"""KIP-227: what a fetch costs that finds nothing new, beside one that names every partition; and that it finds news."""

from demo.evidence import IdleFetch
from demo.plan import QUIET, QUIET_PARTITIONS
from headrace.wire.frames import encode_request, encode_response
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.servers.cluster import HeadraceCluster

VERSION = 12
CLIENT = "caller"
WAIT_MS = 50
NEW_SESSION, NO_SESSION = 0, 0


def measure(cluster: HeadraceCluster, node_id: int) -> IdleFetch:
    """A consumer of all quiet partitions that the node leads: its first fetch, the one after it, and one with news."""
    led = [index for index, seen in cluster.seen(QUIET).items() if seen.leader == node_id]
    assert led, f"node {node_id} leads no quiet partition"
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in led]
    with cluster.call(node_id) as caller:
        full = _request(NO_SESSION, NEW_SESSION, [FetchTopic(topic=QUIET, partitions=partitions)])
        first = caller.ask(full, VERSION, FetchResponse)
        idle = _request(first.session_id, 1, [])
        second = caller.ask(idle, VERSION, FetchResponse)
        stored = caller.produce(QUIET, b"news", led[0])
        third = caller.ask(_request(first.session_id, 2, []), VERSION, FetchResponse)
    assert not first.error_code and not second.error_code and first.session_id
    assert not stored.error and not third.error_code
    named = sum(len(topic.partitions) for topic in third.responses)
    return IdleFetch(node_id, len(led), _sent(full), _answered(first), _sent(idle), _answered(second), named)


def measure_all(cluster: HeadraceCluster) -> list[IdleFetch]:
    assert len(cluster.seen(QUIET)) == QUIET_PARTITIONS
    return [measure(cluster, node_id) for node_id in cluster.nodes]


def _request(session_id: int, epoch: int, topics: list[FetchTopic]) -> FetchRequest:
    return FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics)


def _sent(request: FetchRequest) -> int:
    return sum(map(len, encode_request(request, VERSION, 1, CLIENT)))


def _answered(response: FetchResponse) -> int:
    return sum(map(len, encode_response(response, VERSION, 1)))
