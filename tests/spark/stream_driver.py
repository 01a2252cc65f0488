"""What Spark does with the driver of a stream, without Spark: offsets go through their text each time."""

import json

from headrace.model import TopicPartition
from headrace.spark.offsets import StreamOffset, from_json
from headrace.spark.options import read_options
from headrace.spark.stream_planning import StreamPlanner
from tests.spark.fake_view import FakeLog, FakeView

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class HandClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class Driver:
    """Does what Spark does: hands the text of an offset back, and plans between two."""

    def __init__(self, view: FakeView, **options: str) -> None:
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest", **options}
        self.view = view
        self.clock = HandClock()
        given = {name: text for name, text in given.items() if text}
        self.planner = StreamPlanner(read_options(given, "stream"), view, self.clock)
        self.at = through_text(self.planner.initial())
        self.is_limited = len(options) > 0

    def batch(self) -> list[tuple[int, int, int]] | None:
        """Partition, begin and end of its pieces; None if Spark would make none."""
        found = self.planner.next(self.at, self.is_limited)
        if found is self.at:
            return None
        before, self.at = self.at, through_text(found)
        return self.pieces(before, self.at)

    def pieces(self, start: StreamOffset, end: StreamOffset) -> list[tuple[int, int, int]]:
        return [
            (piece.range.partition.partition, piece.range.start, piece.range.end)
            for piece in self.planner.pieces(start, end)
        ]


def through_text(offset: StreamOffset) -> StreamOffset:
    return from_json(json.loads(json.dumps(offset.to_json())))


def two(end_0: int = 10, end_1: int = 20) -> FakeView:
    return FakeView({T0: FakeLog(end=end_0), T1: FakeLog(end=end_1)})
