"""Thin replicas as the image knows them, and why a replica leads: in words that people understand."""

from typing import Any

from headrace.core.cluster import NO_LEADER, ClusterImage, Topic
from headrace.core.coverage import (
    LocalCoverage,
    Thresholds,
    counting,
    is_complete,
    is_thin,
    thin_replicas,
    thresholds_of,
)
from headrace.core.election import is_held_back, is_intact

NOTHING: frozenset[int] = frozenset()


def thin_of(image: ClusterImage, topic: Topic, index: int, now_ms: int) -> frozenset[int]:
    """`now_ms` is of the wall clock."""
    if not image.coverage:
        return NOTHING
    thresholds = thresholds_of(topic.config)
    stored = image.coverage.get((topic.id, index))
    if thresholds is None or stored is None:
        return NOTHING
    return thin_replicas(stored.record, topic.partitions[index].replicas, image.brokers, thresholds, now_ms)


def thin_and_held_back(image: ClusterImage, now_ms: int) -> tuple[int, int]:
    """How many replicas are thin, and how many partitions are not led by their first replica for that."""
    count = held_back = 0
    for topic_id, index in image.coverage:
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            thin = thin_of(image, topic, index, now_ms)
            count += len(thin)
            held_back += is_held_back(topic.partitions[index], topic_id, index, image, thin)
    return count, held_back


def why(image: ClusterImage, topic: Topic, index: int, now_ms: int) -> dict[str, Any]:
    """Why this replica leads, who is passed over and for what, and when that ends."""
    record, thresholds = topic.partitions[index], thresholds_of(topic.config)
    stored = image.coverage.get((topic.id, index))
    known = {} if stored is None else counting(stored.record, image.brokers)
    log_start = -1 if stored is None else stored.record.log_start
    thin = thin_of(image, topic, index, now_ms)
    members = {member.broker_id: member for member in record.isr}
    replicas = []
    for replica in record.replicas:
        local = known.get(replica)
        is_live = image.is_live(replica, topic.id, index)
        is_valid = is_live and replica in members and is_intact(members[replica], image.brokers)
        verdict, reason = _verdict(local, log_start, thresholds, now_ms)
        replicas.append(
            {
                "id": replica,
                "leads": replica == record.leader,
                "live": is_live,
                "in_sync": replica in members,
                "can_lead": is_valid,
                "thin": replica in thin,
                "verdict": verdict,
                "reason": reason,
                "ends_ms": _ends_ms(local, thresholds) if replica in thin else None,
                **(
                    {}
                    if local is None
                    else {
                        "local_log_start": local.local_log_start,
                        "covers_ms": max(0, now_ms - local.coverage_since_ms),
                        "local_bytes": local.local_bytes,
                        "at_local_retention": local.at_local_retention,
                    }
                ),
            }
        )
    return {
        "topic": topic.name,
        "partition": index,
        "leader": record.leader,
        "leader_epoch": record.leader_epoch,
        "log_start": log_start,
        "threshold_ms": None if thresholds is None or thresholds.ms <= 0 else thresholds.ms,
        "threshold_bytes": None if thresholds is None or thresholds.bytes <= 0 else thresholds.bytes,
        "report_interval_ms": image.broker_config.leader_election_local_log_report_interval_ms,
        "tiered": topic.config.remote_storage_enable,
        "held_back": is_held_back(record, topic.id, index, image, thin),
        "because": _because(record.leader, replicas),
        "replicas": replicas,
    }


def _verdict(
    local: LocalCoverage | None, log_start: int, thresholds: Thresholds | None, now_ms: int
) -> tuple[str, str]:
    if thresholds is None:
        return "off", "no threshold is set, or the topic is not tiered"
    if local is None:
        return "unknown", "it has not reported, which never counts against it"
    if is_complete(local, log_start):
        return "complete", "nothing is in the tier alone"
    if local.at_local_retention:
        return "full", "it holds all that local retention lets it keep"
    spans = []
    if thresholds.ms > 0:
        spans.append(f"{max(0, now_ms - local.coverage_since_ms)} of {thresholds.ms} ms")
    if thresholds.bytes > 0:
        spans.append(f"{local.local_bytes} of {thresholds.bytes} bytes")
    is_short = is_thin(local, log_start, thresholds, now_ms)
    return ("thin" if is_short else "eligible"), f"its own disk covers {', '.join(spans)}"


def _ends_ms(local: LocalCoverage | None, thresholds: Thresholds | None) -> int | None:
    """By time alone; what is written until then may end it before."""
    if local is None or thresholds is None or thresholds.ms <= 0:
        return None
    return local.coverage_since_ms + thresholds.ms


def _because(leader: int, replicas: list[dict[str, Any]]) -> str:
    if leader == NO_LEADER:
        return "no replica in sync is live"
    if not any(replica["leads"] for replica in replicas):
        return "it leads until a replica of the new assignment does"
    ahead = []
    for replica in replicas:
        if replica["leads"]:
            break
        ahead.append(replica)
    if not ahead:
        return _because_first(replicas)
    if all(replica["can_lead"] and not replica["thin"] for replica in ahead):
        return "it has led since the others could not; leadership goes back to the first replica at the next check"
    said = [
        f"{replica['id']} is passed over: {replica['reason']}"
        if replica["can_lead"] and replica["thin"]
        else f"{replica['id']} cannot lead"
        if not replica["can_lead"]
        else f"{replica['id']} could lead"
        for replica in ahead
    ]
    return "; ".join(said)


def _because_first(replicas: list[dict[str, Any]]) -> str:
    first, *others = replicas
    able = [replica for replica in others if replica["can_lead"]]
    if first["thin"] and not able:
        return f"no other replica can lead; {first['reason']}"
    if first["thin"] and all(replica["thin"] for replica in able):
        return "all that can lead have little on their own disks, and it is the first replica"
    return "it is the first replica"
