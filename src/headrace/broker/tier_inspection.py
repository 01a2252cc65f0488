"""What of each partition that this node leads is in the tier, and may be read there: for people, and for who plans
reads of the objects themselves.

`verdict` says whether a segment belongs to the log as its leader has it; only those that are `inside` may be read.
`sections` are where in its object each part of a segment begins, and how many bytes it has.
`aborted_across` are aborted transactions that begin before the local log start and end behind it: all others that touch
what is in the tier alone stand in the indexes of its segments.
"""

from collections.abc import Sequence
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.tier import Tier, TierLog
from headrace.broker.tier_copier import candidates, copies
from headrace.core.tier_lineage import verdict
from headrace.core.tier_rows import COPY_FINISHED, Manifest
from headrace.errors import CorruptLog


def tell(broker: Broker, topics: Sequence[str]) -> list[dict[str, Any]]:
    """Of these topics; of none: of all."""
    tier, wanted = broker.tier, frozenset(topics)
    if tier is None:
        return []
    found = [one for one in tier.logs() if not wanted or one.partition.topic in wanted]
    found.sort(key=lambda one: (one.partition.topic, one.partition.index))
    return [_row(tier, one, broker.config.remote_storage_url) for one in found]


def _row(tier: Tier, tier_log: TierLog, url: str) -> dict[str, Any]:
    partition, manifest = tier_log.partition, tier_log.manifest
    told: dict[str, Any] = {
        "topic": partition.topic,
        "topic_id": partition.topic_id.hex(),
        "partition": partition.index,
        "leader_epoch": partition.leader_epoch,
        "url": url,
        "manifest": tier_log.manifest_key or None,
        "failure": tier.absence or tier_log.failure or tier_log.stopped or None,
    }
    try:
        # Opened first: it says what the other offsets are.
        epochs = partition.log.epochs.entries
        told |= {
            "log_start": partition.log_start_offset,
            "local_log_start": partition.local_log_start_offset,
            "last_stable": partition.last_stable_offset,
            "high_watermark": partition.high_watermark,
            "log_end": partition.log_end_offset,
            "local_bytes": partition.log.size_bytes,
            "epochs": [list(entry) for entry in epochs],
        }
        if manifest is not None:
            is_copying = copies(tier_log)
            waiting = candidates(tier_log) if is_copying else []
            told |= {
                "manifest_number": manifest.number,
                "highest_remote": tier_log.highest_remote_offset,
                "remote_bytes": manifest.bytes,
                "copying": is_copying,
                "lag_segments": len(waiting),
                "lag_bytes": sum(segment.bytes for segment in waiting),
                "aborted_across": [list(one) for one in partition.log.aborted_across_local_start()],
                "segments": _segments(tier, tier_log, manifest),
            }
    except (OSError, CorruptLog) as failure:
        told["failure"] = f"its log cannot be read: {failure}"
    return told


def _segments(tier: Tier, tier_log: TierLog, manifest: Manifest) -> list[dict[str, Any]]:
    partition = tier_log.partition
    epochs, log_end = partition.log.epochs.entries, partition.log_end_offset
    return [
        {
            "id": row.id,
            "base_offset": row.base_offset,
            "end_offset": row.end_offset,
            "bytes": row.bytes,
            "max_timestamp_ms": row.max_timestamp_ms,
            "epochs": [list(entry) for entry in row.epochs],
            "sections": row.sections.told(),
            "state": row.state.name.lower(),
            "verdict": str(verdict(row, epochs, log_end)) if row.state is COPY_FINISHED else None,
            "object": tier.segment_key(partition, row),
        }
        for row in sorted(manifest.rows, key=lambda row: (row.base_offset, row.id))
    ]
