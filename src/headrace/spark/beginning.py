"""Where a micro-batch begins, and what is not there any more of what it was to read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model import ZERO_UUID, TopicPartition
from headrace.spark.log_view import Ends, LogView, TopicNow
from headrace.spark.offsets import StreamOffset
from headrace.spark.option_values import EARLIEST
from headrace.spark.options import SourceOptions
from headrace.spark.verdicts import LogNow, Loss, Place, Verdict, aged_out, gone, is_another, judge, recreated


@dataclass
class Beginning:
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    moved: set[TopicPartition] = field(default_factory=set)
    """Those that do not begin where the batch before ended."""
    losses: list[Loss] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    """Topics that were deleted."""


class Beginnings:
    """Of the batches of one query."""

    def __init__(self, options: SourceOptions, view: LogView) -> None:
        self._starting = options.starting
        self._selection = options.selection
        self._view = view
        self._found: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}  # as they were seen last

    def query_begins(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Where this process found that the query begins, when it looked first."""
        self._found = {**offsets, **self._found}

    def find(
        self,
        start: StreamOffset,
        topics: Mapping[str, TopicNow],
        ends: Mapping[TopicPartition, Ends],
        patience_ms: int | None = None,
    ) -> Beginning:
        """Of the batch after `start`. A new partition is read from its beginning. `patience_ms`: how long a log may
        take to reach the place up to which it was read; None for a first look, whose losses may be none."""
        found = Beginning()
        self._ends.update((one, now.end) for one, now in ends.items())
        epoch_ends = self._epoch_ends(start, topics, ends)
        ahead = _ahead(start, topics, ends, epoch_ends)
        without = {one.topic for one in missing_partitions(start, topics)}
        # Nobody has read what is only named.
        marks = self._view.high_watermarks(ahead, 0 if start.is_first else patience_ms or 0) if ahead else {}
        for one, now in ends.items():
            offset = start.offsets.get(one)
            if offset is None or _is_successor(one.topic, start, topics):
                found.offsets[one] = now.start
                found.moved.add(one)
                if now.start > 0:  # whatever was there before, the query was to read it
                    found.losses.append(aged_out(one, 0, now.start))
                continue
            place = Place(offset, start.topic_ids.get(one.topic), start.epochs.get(one), not start.is_first)
            end = max(now.end, marks.get(one, now.end))
            state = LogNow(topics[one.topic].topic_id, now.start, end, epoch_ends.get(one))
            loss = recreated(one, offset, now.start) if one.topic in without else judge(one, place, state)
            found.offsets[one] = offset
            if loss is None:
                continue
            found.offsets[one] = loss.resume_at
            found.moved.add(one)
            if not (loss.verdict is Verdict.AGED_OUT and start.is_first and self._is_earliest(one, offset)):
                found.losses.append(loss)
        self._find_gone(start, topics, patience_ms is not None, found)
        return found

    def _find_gone(
        self, start: StreamOffset, topics: Mapping[str, TopicNow], is_patient: bool, into: Beginning
    ) -> None:
        """A topic of which all had been read, as far as this process has seen, is no loss."""
        places = {one: offset for one, offset in start.offsets.items() if one.topic not in topics}
        absent = {one.topic for one in places if self._selection.is_matched(one.topic)}
        new = absent - start.gone
        into.gone = (absent & start.gone) | (self._view.missing(new) if is_patient else new)
        for one, offset in sorted(places.items()):
            is_unread = one not in self._ends or offset < self._ends[one]
            if one.topic in into.gone - start.gone and is_unread:
                into.losses.append(gone(one, offset, offset))

    def _is_earliest(self, one: TopicPartition, offset: int) -> bool:
        """Whether nobody named that offset, and all from it on was there when this process looked first: whoever wants
        all there is misses nothing if it has gone since."""
        return self._starting.is_at(EARLIEST, one) and one in self._found and offset >= self._found[one]

    def _epoch_ends(
        self, start: StreamOffset, topics: Mapping[str, TopicNow], ends: Mapping[TopicPartition, Ends]
    ) -> dict[TopicPartition, int | None]:
        """Only of partitions that have had another leader since: of the others nothing can have been cut."""
        asked = {
            one: epoch
            for one, epoch in start.epochs.items()
            if one in ends
            and 0 <= epoch < ends[one].epoch
            and start.topic_ids.get(one.topic) == topics[one.topic].topic_id
        }
        return self._view.epoch_ends(asked) if asked else {}


def missing_partitions(start: StreamOffset, topics: Mapping[str, TopicNow]) -> set[TopicPartition]:
    """Those that were read and that their topics do not have: no topic gets fewer, so these were made anew. Of one that
    is known to be the same, it is the metadata that are behind."""
    return {
        one
        for one in start.offsets
        if one.topic in topics
        and one.partition not in topics[one.topic].partitions
        and not _is_the_same(start.topic_ids.get(one.topic), topics[one.topic].topic_id)
    }


def _is_the_same(before: bytes | None, now: bytes) -> bool:
    return before == now and now != ZERO_UUID


def _is_successor(topic: str, start: StreamOffset, topics: Mapping[str, TopicNow]) -> bool:
    """Of one that had gone, which was told then."""
    return topic in start.gone and is_another(start.topic_ids.get(topic), topics[topic].topic_id)


def _ahead(
    start: StreamOffset,
    topics: Mapping[str, TopicNow],
    ends: Mapping[TopicPartition, Ends],
    epoch_ends: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int]:
    """Places behind the end of what may be read now, of which no epoch tells whether the log was cut."""
    return {
        one: offset
        for one, offset in start.offsets.items()
        if one in ends
        and offset > ends[one].end
        and epoch_ends.get(one) is None
        and start.topic_ids.get(one.topic, topics[one.topic].topic_id) == topics[one.topic].topic_id
    }
