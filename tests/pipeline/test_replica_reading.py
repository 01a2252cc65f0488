"""A piece of a replica that changes while it is read: retention is no harm, and hides none."""

import pytest

from headrace.client.cluster import Cluster
from headrace.errors import ErrorCode
from headrace.pipeline import replica_reading
from headrace.pipeline.batch_checks import Stretch
from headrace.pipeline.replica_reading import Piece, Topic, check
from headrace.wire.messages.fetch import PartitionData
from tests.pipeline.test_batch_checks import batch

TOPIC = Topic("127.0.0.1:1", "t", bytes(16), is_compacted=False, timeout_ms=1_000)
END = 40
AT_ONCE = 5


class Shrinking:
    """A node whose log begins at `start_then` once something of it was read."""

    def __init__(self, start_then: int, *, without: tuple[int, ...] = (), epoch_then: int = 0) -> None:
        self._start, self._start_then = 0, start_then
        bases = [base for base in range(0, END, 2) if base not in without]
        self._batches = {
            base: batch(base, epoch=epoch_then if base >= start_then else 1, producer=(7, 0, base)) for base in bases
        }

    async def fetch(self, _cluster: Cluster, _topic: Topic, _node: int, _partition: int, offset: int) -> PartitionData:
        answer = PartitionData(partition_index=0, high_watermark=END, records=None)
        if offset < self._start:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return answer
        held = [one for base, one in self._batches.items() if base >= offset]
        answer.records = b"".join(held[:AT_ONCE])
        self._start = self._start_then
        return answer

    async def ends(self, _cluster: Cluster, _topic: Topic, _node: int, _partition: int) -> tuple[int, int]:
        return self._start, END


def read(node: Shrinking, monkeypatch: pytest.MonkeyPatch) -> Stretch:
    monkeypatch.setattr(replica_reading, "fetch", node.fetch)
    monkeypatch.setattr(replica_reading, "ends", node.ends)
    return check(TOPIC, Piece(0, 1, 0, END))


def test_retention_that_overtakes_the_reading_of_a_piece_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    stretch = read(Shrinking(start_then=20, epoch_then=1), monkeypatch)
    assert stretch.findings == [] and stretch.was_cut
    assert (stretch.batches, stretch.next_offset) == (AT_ONCE + 10, END)


def test_behind_what_retention_took_gaps_are_found_as_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stretch = read(Shrinking(start_then=20, epoch_then=1, without=(34,)), monkeypatch)
    assert [(one.kind, one.offset) for one in stretch.findings] == [("offsets", 36)]


def test_a_leader_epoch_that_goes_back_is_found_also_across_what_retention_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stretch = read(Shrinking(start_then=20, epoch_then=0), monkeypatch)
    assert [(one.kind, one.offset) for one in stretch.findings] == [("epochs", 20)]
