"""Metrics of the tier, under Kafka's names: of all topics together, and of each tiered topic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from headrace.broker.metrics import Family, Sample, gauge, labelled
from headrace.broker.partitions import Hosted
from headrace.core.tier_rows import SegmentRow
from headrace.core.tiering import LocalSegment

PREFIX = "kafka_server_brokertopicmetrics_"
READER = "kafka_log_remote_remotestoragethreadpool_remotelogreader"


@dataclass(slots=True)
class Counts:
    """Of one topic, since the start of this node. Who reads from the tier counts here too."""

    copied_bytes: int = 0
    copy_requests: int = 0
    copy_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    fetched_bytes: int = 0
    fetch_requests: int = 0
    fetch_errors: int = 0
    aux_requests: int = 0
    aux_errors: int = 0


NAMES = {
    "copied_bytes": "remotecopybytes_total",
    "copy_requests": "remotecopyrequests_total",
    "copy_errors": "remotecopyerrors_total",
    "delete_requests": "remotedeleterequests_total",
    "delete_errors": "remotedeleteerrors_total",
    "fetched_bytes": "remotefetchbytes_total",
    "fetch_requests": "remotefetchrequests_total",
    "fetch_errors": "remotefetcherrors_total",
    "aux_requests": "buildremotelogauxstaterequests_total",
    "aux_errors": "buildremotelogauxstateerrors_total",
}


@dataclass(slots=True)
class Lag:
    """Of one partition that this node leads."""

    copy_bytes: int = 0
    copy_segments: int = 0
    delete_bytes: int = 0
    delete_segments: int = 0
    remote_bytes: int = 0
    remote_rows: int = 0


LAGS = {
    "copy_bytes": "remotecopylagbytes",
    "copy_segments": "remotecopylagsegments",
    "delete_bytes": "remotedeletelagbytes",
    "delete_segments": "remotedeletelagsegments",
    "remote_bytes": "remotelogsizebytes",
    "remote_rows": "remotelogmetadatacount",
}


class Readers(Protocol):
    """Who reads from the tier."""

    @property
    def waiting(self) -> int: ...
    @property
    def idle_share(self) -> float: ...


class TierMetrics:
    def __init__(self) -> None:
        self.readers: Readers | None = None
        self._counts: dict[str, Counts] = {}
        self._lags: dict[Hosted, Lag] = {}
        self.size_computation_ms = 0
        """How long it took last to find what retention keeps of one partition."""

    def of(self, topic: str) -> Counts:
        found = self._counts.get(topic)
        if found is None:
            found = self._counts[topic] = Counts()
        return found

    def lag(self, partition: Hosted) -> Lag:
        found = self._lags.get(partition)
        if found is None:
            found = self._lags[partition] = Lag()
        return found

    def lags(self, partition: Hosted, segments: Sequence[LocalSegment]) -> None:
        lag = self.lag(partition)
        lag.copy_segments, lag.copy_bytes = len(segments), sum(segment.bytes for segment in segments)

    def to_delete(self, partition: Hosted, rows: Sequence[SegmentRow]) -> None:
        lag = self.lag(partition)
        lag.delete_segments, lag.delete_bytes = len(rows), sum(row.bytes for row in rows)

    def sized(self, partition: Hosted, remote_bytes: int, rows: int) -> None:
        lag = self.lag(partition)
        lag.remote_bytes, lag.remote_rows = remote_bytes, rows

    def ended(self, partition: Hosted) -> None:
        """This node does not lead it any more: whoever does tells."""
        self._lags.pop(partition, None)

    def forget(self, topic: str) -> None:
        self._counts.pop(topic, None)

    def families(self) -> Iterator[Family]:
        for field in fields(Counts):
            by_topic = {topic: getattr(counts, field.name) for topic, counts in self._counts.items()}
            yield _family(PREFIX + NAMES[field.name], "counter", by_topic)
        for field in fields(Lag):
            sums: dict[str, int] = {}
            for partition, lag in self._lags.items():
                sums[partition.topic] = sums.get(partition.topic, 0) + getattr(lag, field.name)
            yield _family(PREFIX + LAGS[field.name], "gauge", sums)
        yield gauge(PREFIX + "remotelogsizecomputationtime", self.size_computation_ms)
        if self.readers is not None:
            yield gauge(READER + "taskqueuesize", self.readers.waiting)
            yield gauge(READER + "avgidlepercent", self.readers.idle_share)


def _family(name: str, kind: str, by_topic: dict[str, int]) -> Family:
    samples = [Sample("", sum(by_topic.values()))]
    samples += [Sample(labelled(topic=topic), value) for topic, value in sorted(by_topic.items())]
    return Family(name, kind, samples)
