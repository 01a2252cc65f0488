"""`headrace cluster status`: who leads, who follows how far behind, and where something is amiss."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headrace.cli import output
from headrace.cli.asking import Told, ask_all, say_who_is_silent
from headrace.client import Admin, BrokerDescription, PartitionDescription, TopicDescription

Document = dict[str, Any]


async def gather(admin: Admin, topics: Sequence[str]) -> Document:
    cluster = await admin.describe_cluster()
    described = await admin.describe_topics(topics or await admin.list_topics(internal=True))
    replicas = await ask_all(admin, "replicas", cluster.brokers, topics)
    heard = [node for node in cluster.brokers if node.node_id in replicas.by_node]
    guards, failures = await ask_all(admin, "guard", heard), await ask_all(admin, "failed", heard)
    say_who_is_silent(replicas)
    partitions = of_partitions(described, replicas, guards, failures)
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id if cluster.controller_id >= 0 else None,
        "nodes": [_of_node(node, described, replicas) for node in cluster.brokers],
        "partitions": partitions,
        "summary": summary(partitions),
    }


def of_partitions(topics: Sequence[TopicDescription], replicas: Told, guards: Told, failures: Told) -> list[Document]:
    leaders_words = {
        (node_id, told["topic"], told["partition"], told["leader_epoch"]): told
        for node_id, all_told in replicas.by_node.items()
        for told in all_told
    }
    guarded = {
        (told["topic"], told["partition"]): {"until": told["guard"], "for_ms": told["for_ms"]}
        for all_told in guards.by_node.values()
        for told in all_told
    }
    failed = _failed(failures)
    return [
        {
            **_of_partition(topic.name, partition, leaders_words),
            "guarded": (topic.name, partition.partition) in guarded,
            "guard": guarded.get((topic.name, partition.partition)),
            "failed": failed.get((topic.name, partition.partition), []),
        }
        for topic in topics
        for partition in topic.partitions
    ]


def _of_partition(topic: str, partition: PartitionDescription, leaders_words: Mapping[Any, Document]) -> Document:
    """The leader's word counts only for the epoch that the metadata names."""
    told = leaders_words.get((partition.leader, topic, partition.partition, partition.leader_epoch), {})
    return {
        "topic": topic,
        **partition._asdict(),
        "high_watermark": told.get("high_watermark"),
        "log_end": told.get("log_end"),
        "followers": told.get("followers", []),
    }


def _failed(failures: Told) -> dict[tuple[str, int], list[Document]]:
    found: dict[tuple[str, int], list[Document]] = {}
    for node_id, told in failures.by_node.items():
        for failed in told:
            row = {"node": node_id, "reason": failed["reason"], "since_ms": failed["since_ms"]}
            found.setdefault((failed["topic"], failed["partition"]), []).append(row)
    return found


def _of_node(node: BrokerDescription, topics: Sequence[TopicDescription], replicas: Told) -> Document:
    partitions = [partition for topic in topics for partition in topic.partitions]
    return {
        "id": node.node_id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack,
        "leads": sum(partition.leader == node.node_id for partition in partitions),
        "replicas": sum(node.node_id in partition.replicas for partition in partitions),
        "in_sync": sum(node.node_id in partition.isr for partition in partitions),
        "trouble": replicas.silent.get(node.node_id),
    }


def summary(partitions: Sequence[Document]) -> dict[str, int]:
    return {
        "partitions": len(partitions),
        "without_leader": sum(partition["leader"] is None for partition in partitions),
        "under_replicated": sum(len(partition["isr"]) < len(partition["replicas"]) for partition in partitions),
        "guarded": sum(partition["guarded"] for partition in partitions),
        "failed": sum(bool(partition["failed"]) for partition in partitions),
    }


def is_amiss(partition: Document) -> bool:
    return bool(notes(partition))


def notes(partition: Document) -> str:
    """What a person has to know of a partition; nothing when all is well."""
    found = []
    if partition["leader"] is None:
        found.append("no leader")
    missing = sorted(set(partition["replicas"]) - set(partition["isr"]))
    if missing:
        found.append(f"not in sync: {_list(missing)}")
    if guard := partition["guard"]:
        for_s = guard["for_ms"] / 1000
        found.append(f"offsets are not told before {guard['until']} is committed, for {for_s:.1f} s so far")
    found += [f"node {failed['node']} gave up: {failed['reason']}" for failed in partition["failed"]]
    return "; ".join(found)


def show(status: Document, amiss_only: bool) -> None:
    controller = (
        "nobody is controller" if status["controller"] is None else f"node {status['controller']} is controller"
    )
    output.line(f"cluster {status['cluster_id']}, {controller}")
    output.table(
        ["node", "address", "rack", "leads", "replicas", "in sync"],
        [[n["id"], n["address"], n["rack"] or "", n["leads"], n["replicas"], n["in_sync"]] for n in status["nodes"]],
    )
    shown = [partition for partition in status["partitions"] if not amiss_only or is_amiss(partition)]
    if shown:
        output.line("")
        output.table(
            ["topic", "partition", "leader", "epoch", "replicas", "in sync", "committed", "end", "lag", "note"],
            [_row(partition, {node["id"] for node in status["nodes"]}) for partition in shown],
        )
    output.line("")
    counts = status["summary"]
    output.line(
        f"{counts['partitions']} partitions: {counts['without_leader']} without leader, "
        f"{counts['under_replicated']} under-replicated, {counts['guarded']} guarded, {counts['failed']} failed"
    )


def _row(partition: Document, nodes: Collection[int]) -> list[object]:
    """What a leader remembers of a node that is down says nothing of its log."""
    followers = [follower for follower in partition["followers"] if follower["id"] in nodes]
    return [
        partition["topic"],
        partition["partition"],
        _or_unknown(partition["leader"], "none"),
        partition["leader_epoch"],
        _list(partition["replicas"]),
        _list(partition["isr"]),
        _or_unknown(partition["high_watermark"]),
        _or_unknown(partition["log_end"]),
        " ".join(f"{follower['id']}:{_or_unknown(follower['lag'])}" for follower in followers),
        notes(partition),
    ]


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _or_unknown(value: object, unknown: str = "?") -> object:
    return unknown if value is None else value
