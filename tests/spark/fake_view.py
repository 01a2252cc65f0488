"""A view of logs that a test changes by hand."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.log_view import Ends, TopicNow
from headrace.spark.options import Selection

OLD, NEW = bytes([1] * 16), bytes([2] * 16)


@dataclass
class FakeLog:
    start: int = 0
    end: int = 0
    epoch: int = 0
    epoch_ends: dict[int, int] = field(default_factory=dict)
    high_watermark: int | None = None
    """If it is not the end of what may be read."""
    late_high_watermark: int | None = None
    """What it is for who waits."""
    record_bytes: float | None = None


@dataclass
class FakeView:
    logs: dict[TopicPartition, FakeLog] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    times: dict[TopicPartition, list[tuple[int, int]]] = field(default_factory=dict)
    epochs_asked: int = 0
    stale_ids: dict[str, bytes] = field(default_factory=dict)
    """What metadata says to who does not ask for it anew."""
    late: set[str] = field(default_factory=set)
    """Topics that metadata leaves out for now, though they are there."""

    def topics(self, selection: Selection, ttl_ms: int) -> dict[str, TopicNow]:
        assert ttl_ms >= 0
        found = {}
        for topic in sorted({one.topic for one in self.logs} - self.late):
            indexes = tuple(sorted(one.partition for one in self.logs if one.topic == topic))
            ids = self.stale_ids if ttl_ms and topic in self.stale_ids else self.ids
            found[topic] = TopicNow(ids.get(topic, OLD), indexes)
        for topic in selection.topics:
            if topic not in found:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
        return found

    def missing(self, topics: Iterable[str]) -> set[str]:
        return set(topics) - {one.topic for one in self.logs}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Ends]:
        return {one: Ends(self.logs[one].start, self.logs[one].end, self.logs[one].epoch) for one in partitions}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        assert all(time_ms >= 0 for time_ms in times_ms.values()), "numbers below zero mean other things to brokers"
        return {
            one: next((offset for time, offset in self.times.get(one, []) if time >= time_ms), None)
            for one, time_ms in times_ms.items()
        }

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.epochs_asked += 1
        return {one: self.logs[one].epoch_ends.get(epoch) for one, epoch in epochs.items()}

    def high_watermarks(self, reached: Mapping[TopicPartition, int], patience_ms: int) -> dict[TopicPartition, int]:
        marks = {}
        for one in reached:
            log = self.logs[one]
            mark = log.high_watermark if log.high_watermark is not None else log.end
            is_late = log.late_high_watermark is not None and patience_ms >= 1_000
            marks[one] = log.late_high_watermark if is_late and log.late_high_watermark is not None else mark
        return marks

    def bytes_per_record(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        known = {one: self.logs[one].record_bytes for one in partitions}
        return {one: size for one, size in known.items() if size is not None}
