"""Questions about partitions, asked of their leaders until each has its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.net.peer import Peer, PeerLost
from headrace.wire.errors import ProtocolError, Unencodable

V = TypeVar("V")
R = TypeVar("R")
Ask = Callable[[Peer, Mapping[TopicPartition, V]], Awaitable[Mapping[TopicPartition, R | KafkaError]]]


async def ask_leaders(
    cluster: Cluster, wanted: Mapping[TopicPartition, V], ask: Ask[V, R], what: str, timeout_ms: int
) -> dict[TopicPartition, R]:
    """`ask` puts one request to one leader. What can be tried again is, until the time is up; else KafkaError.

    Metadata is asked for anew before another try, unless the leader only said that it does not know yet
    (OFFSET_NOT_AVAILABLE): then it is the leader.
    """
    results: dict[TopicPartition, R] = {}
    await cluster.know({topic for topic, _ in wanted}, timeout_ms)
    with cluster.tries(timeout_ms) as tries:
        while len(results) < len(wanted):
            rounds = [
                _ask_one(cluster, node_id, {partition: wanted[partition] for partition in partitions}, ask)
                for node_id, partitions in _by_leader(cluster, wanted.keys() - results.keys()).items()
            ]
            refused: dict[TopicPartition, KafkaError] = {}
            for answers in await asyncio.gather(*rounds):
                for partition, answer in answers.items():
                    if isinstance(answer, KafkaError):
                        refused[partition] = answer
                    elif partition in wanted:
                        results[partition] = answer
            for error in refused.values():
                if not error.retriable:
                    raise error
            if len(results) < len(wanted):
                reason = next(iter(refused.values()), "an answer left partitions out")
                await tries.again(f"{what}: {reason}")
                if any(error.code != ErrorCode.OFFSET_NOT_AVAILABLE for error in refused.values()) or not refused:
                    await cluster.refresh_patiently(tries.left_ms)
    return results


def check_exists(cluster: Cluster, partition: TopicPartition) -> None:
    topic = cluster.topics.get(partition.topic)
    if topic is None or partition.partition not in topic.leaders:
        count = 0 if topic is None else len(topic.leaders)
        text = f"topic {partition.topic!r} has {count} partitions; there is no partition {partition.partition}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _by_leader(cluster: Cluster, partitions: set[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
    grouped: dict[int | None, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        check_exists(cluster, partition)
        leader = cluster.leader(partition)
        grouped.setdefault(None if leader is None else leader.node_id, []).append(partition)
    return grouped


async def _ask_one(
    cluster: Cluster, node_id: int | None, wanted: Mapping[TopicPartition, V], ask: Ask[V, R]
) -> Mapping[TopicPartition, R | KafkaError]:
    if node_id is None:
        return {p: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{p} has no leader") for p in wanted}
    try:
        return await ask(await cluster.peer(node_id), wanted)
    except (PeerLost, TimeoutError) as error:
        return {p: KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{p}: broker {node_id}: {error}") for p in wanted}
    except Unencodable as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except ProtocolError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cluster.bootstrap}: {error}") from error
