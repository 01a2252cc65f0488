"""What of partitions is in the tier, as their leaders tell it to the driver."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.leaders import ask_leaders
from headrace.core.producers import AbortedTransaction
from headrace.core.tier_lineage import RemoteLog, Verdict
from headrace.core.tier_rows import COPY_FINISHED, Section, Sections, SegmentRow
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.net.peer import Peer
from headrace.wire.messages.inspection import InspectRequest, InspectResponse

ASK_MS_MAX = 10_000
"""Without an answer all is fetched from brokers."""

REMEMBERED_MS_MAX = 30_000


@dataclass(frozen=True)
class Remote:
    """Only segments that belong to the log as its leader has it."""

    topic_id: bytes
    leader_epoch: int
    url: str
    local_start: int
    log: RemoteLog
    keys: Mapping[str, str]
    """Of objects, by the ids of segments."""
    aborted_across: tuple[AbortedTransaction, ...]
    """Those that begin before `local_start` and end behind it."""


async def ask_remote(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Remote]:
    """Those without a tier are left out, and those whose leader is not known to be the newest one. KafkaError."""

    async def ask(peer: Peer, some: Mapping[TopicPartition, None]) -> dict[TopicPartition, Remote | KafkaError | None]:
        request = InspectRequest(kind="tier", args=sorted({topic for topic, _ in some}))
        answer = await peer.request(request, InspectResponse)
        if answer.error_code:
            error = KafkaError(answer.error_code, "it is not told what is in the tier")
            return dict.fromkeys(some, error)
        found = {TopicPartition(told["topic"], told["partition"]): told for told in json.loads(answer.body)["tier"]}
        return {one: _remote(found.get(one), _epoch(cluster, one)) for one in some}

    wanted = dict.fromkeys(partitions)
    answers = await ask_leaders(cluster, wanted, ask, "what is in the tier is not known", ASK_MS_MAX)
    return {one: remote for one, remote in answers.items() if remote is not None}


class RemoteViews:
    """Remembers what leaders said: it is long, and planning asks for it again and again while a stream fills up.

    A segment once inside a log stays so for as long as its leader does; what expires meanwhile is missed when it is
    read. What began before the disk of a leader does is decided, so no transaction is aborted later on.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[TopicPartition, tuple[Remote, int]] = {}  # and when it was told

    async def ask(self, local_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, Remote]:
        """Of these partitions, up to these offsets at the least. See `ask_remote`."""
        now_ms = self._cluster.outside.clock.monotonic_ms()
        asked = [one for one, start in local_starts.items() if not self._is_fresh(one, start, now_ms)]
        for one in asked:
            self._known.pop(one, None)
        if asked:
            for one, remote in (await ask_remote(self._cluster, asked)).items():
                self._known[one] = remote, now_ms
        return {one: self._known[one][0] for one in local_starts if one in self._known}

    def _is_fresh(self, one: TopicPartition, local_start: int, now_ms: int) -> bool:
        if one not in self._known:
            return False
        remote, told_ms = self._known[one]
        topic, leader = self._cluster.topics.get(one.topic), self._cluster.leader(one)
        return (
            now_ms - told_ms < REMEMBERED_MS_MAX
            and remote.local_start >= local_start
            and leader is not None
            and leader.epoch == remote.leader_epoch
            and topic is not None
            and topic.topic_id == remote.topic_id
        )


def _epoch(cluster: Cluster, one: TopicPartition) -> int:
    leader = cluster.leader(one)
    return -1 if leader is None else leader.epoch


def _remote(told: dict[str, Any] | None, epoch: int) -> Remote | None:
    if told is None or told["leader_epoch"] < epoch or not told.get("segments") or "aborted_across" not in told:
        return None
    served = [one for one in told["segments"] if one["verdict"] == Verdict.INSIDE]
    epochs = [(entry[0], entry[1]) for entry in told["epochs"]]
    return Remote(
        bytes.fromhex(told["topic_id"]),
        told["leader_epoch"],
        told["url"],
        told["local_log_start"],
        RemoteLog([_row(one) for one in served], epochs, told["log_end"]),
        {one["id"]: one["object"] for one in served},
        tuple(AbortedTransaction(*one) for one in told["aborted_across"]),
    )


def _row(told: dict[str, Any]) -> SegmentRow:
    places: dict[str, Section] = {name: (at, size) for name, (at, size) in told["sections"].items()}
    sections = Sections(
        log=places["log"],
        index=places["index"],
        timeindex=places["timeindex"],
        txnindex=places.get("txnindex"),
        snapshot=places.get("snapshot"),
        epochs=places["epochs"],
    )
    return SegmentRow(
        told["id"],
        told["base_offset"],
        told["end_offset"],
        told["bytes"],
        told["max_timestamp_ms"],
        tuple((epoch, start) for epoch, start in told["epochs"]),
        COPY_FINISHED,
        -1,
        sections,
    )
