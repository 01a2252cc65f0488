"""What the driver of a streaming query decides: where it begins, how far a micro-batch goes, and what is lost.

Between calls it remembers only what makes it faster or gentler; all that has to be right is in the offsets.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.admission import RECORD_BYTES_ASSUMED, Admission
from headrace.spark.beginning import Beginnings, missing_partitions
from headrace.spark.bounds import begin_offsets, selected
from headrace.spark.log_view import Ends, LogView, TopicNow
from headrace.spark.offsets import ByPartition, StreamOffset
from headrace.spark.option_values import OptionRefused
from headrace.spark.options import SourceOptions
from headrace.spark.planning import Cold, Piece, Range, no_tier, plan
from headrace.spark.verdicts import DataLoss, Loss, named_gone, recreated_without

log = logging.getLogger(__name__)


class Clock(Protocol):
    def monotonic_ms(self) -> int: ...


class StreamPlanner:
    def __init__(self, options: SourceOptions, view: LogView, clock: Clock, cold: Cold = no_tier) -> None:
        self._options = options
        self._view = view
        self._clock = clock
        self._cold = cold
        self._beginnings = Beginnings(options, view)
        self._seen: tuple[dict[str, TopicNow], dict[TopicPartition, Ends]] | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._is_to_freeze = False
        self._has_warned = False
        self._refusal: OptionRefused | KafkaError | None = None  # why it is not known where the query begins
        self._admission = Admission(
            options.offsets_per_trigger_max,
            options.offsets_per_trigger_min,
            options.trigger_delay_ms_max,
            options.bytes_per_trigger_max,
        )

    def initial(self) -> StreamOffset:
        """Spark asks this also of a query whose first batch is planned already, and what is there now may not be what
        the options were written for: a refusal is left to who really begins there."""
        self._refusal = None
        try:
            topics, ends = self._look()
            begins = begin_offsets(self._options.starting, ends, self._view, self._options.is_time_miss_an_error)
        except (OptionRefused, KafkaError) as refusal:
            if isinstance(refusal, KafkaError) and refusal.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._refusal = refusal
            return StreamOffset({}, is_first=True)
        self._beginnings.query_begins(begins)
        ids = {topic: now.topic_id for topic, now in topics.items()}
        # Of an offset that is named and not written yet, no epoch tells where it was cut.
        epochs = {one: now.epoch for one, now in ends.items() if begins[one] <= now.end}
        return StreamOffset(begins, ids, epochs, is_first=True)

    def freeze(self) -> None:
        """The query ends when it has read what is there now."""
        self._is_to_freeze = True
        try:
            self._freeze_at(self._look()[1])
        except (OptionRefused, KafkaError) as error:
            # What is there is seen by the next look, or that tells how far the topic was read.
            if isinstance(error, KafkaError) and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    def _freeze_at(self, ends: Mapping[TopicPartition, Ends]) -> None:
        self._target = {one: now.end for one, now in ends.items()}
        self._is_to_freeze = False

    def latest(self) -> StreamOffset:
        """Of all there is, for who watches the lag: as it was seen when the last batch was planned."""
        topics, ends = self._seen or self._look()
        return StreamOffset({one: now.end for one, now in ends.items()}, {t: now.topic_id for t, now in topics.items()})

    def next(self, start: StreamOffset, is_limited: bool) -> StreamOffset:
        """Where the next micro-batch ends; `start` itself if there is nothing, or not enough."""
        self._check_known(start)
        topics, ends = self._look_after(start)
        if self._is_to_freeze:
            self._freeze_at(ends)
        found = self._beginnings.find(start, topics, ends)
        if found.losses:  # perhaps of a topic that was made anew since metadata was asked for
            topics, ends = self._look_after(start, ttl_ms=0)
            found = self._beginnings.find(start, topics, ends, self._options.end_patience_ms)
        lost = self._accepted(found.losses)
        for topic in sorted(found.gone - start.gone):
            log.warning("topic %r was deleted: what was written to it since it was looked at last was not read", topic)
        begins = found.offsets
        latest = {one: max(now.end, begins[one]) for one, now in ends.items()}
        if self._target is not None:
            # What was lost or made anew meanwhile has offsets of its own.
            latest = {
                one: end if one in lost else max(begins[one], min(end, self._target.get(one, begins[one])))
                for one, end in latest.items()
            }
        chosen = self._admitted(begins, latest) if is_limited else latest
        is_news = bool(lost) or not found.gone <= start.gone
        if all(chosen[one] <= begins[one] for one in chosen) and not is_news:
            return start
        ids = {topic: now.topic_id for topic, now in topics.items()}
        kept = _kept(start, topics, ends)
        return StreamOffset(
            offsets={**kept, **chosen},
            topic_ids={**start.topic_ids, **ids},
            epochs={**_only(start.epochs, kept), **{one: now.epoch for one, now in ends.items()}},
            begins=begins if start.is_first else _only(begins, found.moved),
            gone=frozenset(found.gone),
        )

    def pieces(self, start: StreamOffset, end: StreamOffset) -> list[Piece]:
        """Of the batch between two offsets, the same whenever it is asked for."""
        if end.is_first or start == end:
            return []  # Spark makes a first batch also of nothing
        known: Mapping[str, bytes] = end.topic_ids
        begins: Mapping[TopicPartition, int] = {}
        if end.is_of_connector:
            known = {topic: now.topic_id for topic, now in self._topics().items()}
            begins = self._begins_of_connector(start, end)
        ranges = []
        for one, end_offset in end.offsets.items():
            begin = begins.get(one, end.begin_of(one, start))
            if begin is not None and begin < end_offset:
                epoch = end.epochs.get(one, -1)
                ranges.append(Range(one, known.get(one.topic, bytes(16)), begin, end_offset, epoch))
        return plan(ranges, self._options.partitions_min, self._options.records_per_partition_max, self._cold)

    def _begins_of_connector(self, start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, int]:
        """Of a batch that Spark's own connector has planned and not finished: where new partitions begin, of which it
        does not write that down. OptionRefused for its first batch, if that began at what was the latest offset."""
        self._check_known(start)
        if start.is_first and self._options.may_begin_at_latest:
            raise OptionRefused(
                "the first batch of this checkpoint was begun by Spark's own connector and not finished, and where it "
                "begins stands only in sources/0/0 of the checkpoint: give the JSON that is there as option "
                "startingOffsets, and no time to begin at, or let the connector finish the batch"
            )
        new = [one for one in end.offsets if one not in start.offsets]
        return {one: now.start for one, now in self._view.ends(new).items()} if new else {}

    def _check_known(self, start: StreamOffset) -> None:
        if self._refusal is not None and start.is_first and not start.offsets:
            raise self._refusal

    def _topics(self, ttl_ms: int | None = None) -> dict[str, TopicNow]:
        ttl_ms = self._options.metadata_ttl_ms if ttl_ms is None else ttl_ms
        return self._view.topics(self._options.selection, ttl_ms)

    def _look(self, ttl_ms: int | None = None) -> tuple[dict[str, TopicNow], dict[TopicPartition, Ends]]:
        selection = self._options.selection
        for ttl in (ttl_ms, 0, 0):
            topics = self._topics(ttl)
            try:
                self._seen = topics, self._view.ends(selected(selection, topics))
                return self._seen
            except KafkaError as error:
                # Of those that a pattern found one may have been deleted since.
                if selection.pattern is None or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                failure = error
        raise failure

    def _look_after(
        self, start: StreamOffset, ttl_ms: int | None = None
    ) -> tuple[dict[str, TopicNow], dict[TopicPartition, Ends]]:
        """DataLoss if a topic that is named was read before, and is not there any more, or not with all partitions that
        are assigned."""
        try:
            return self._look(ttl_ms)
        except OptionRefused:
            assigned = self._options.selection.partitions
            for one in sorted(missing_partitions(start, self._topics(ttl_ms=0)).intersection(assigned)):
                raise DataLoss(recreated_without(one, start.offsets[one])) from None
            raise
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or start.is_first:
                raise
            missing = self._view.missing(self._options.selection.named)
            for one, offset in sorted(start.offsets.items()):
                if one.topic in missing:
                    raise DataLoss(named_gone(one, offset)) from error
            raise

    def _accepted(self, losses: list[Loss]) -> set[TopicPartition]:
        """DataLoss for the first, unless the query is to go on."""
        for loss in losses:
            if self._options.fails_on_data_loss:
                raise DataLoss(loss)
            log.warning("%s", loss)
        return {loss.partition for loss in losses}

    def _admitted(
        self, begins: Mapping[TopicPartition, int], latest: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if self._admission.is_unlimited:
            return latest
        sizes = {}
        if self._admission.bytes_max is not None:
            sizes = self._record_bytes([one for one in latest if latest[one] > begins[one]])
        # Who is to end has nothing to wait for: what is left out now would not be read.
        may_wait = self._target is None
        return self._admission.ends(begins, latest, sizes, self._clock.monotonic_ms(), may_wait=may_wait)

    def _record_bytes(self, partitions: list[TopicPartition]) -> dict[TopicPartition, float]:
        sizes = self._view.bytes_per_record(partitions) if partitions else {}
        if partitions and not sizes and not self._has_warned:
            self._has_warned = True
            log.warning(
                "brokers do not tell how large records of %s are: for maxBytesPerTrigger each counts as %d bytes",
                partitions[0],
                RECORD_BYTES_ASSUMED,
            )
        return sizes


def _only(numbers: ByPartition, some: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return {one: numbers[one] for one in some if one in numbers}


def _kept(
    start: StreamOffset, topics: Mapping[str, TopicNow], ends: Mapping[TopicPartition, Ends]
) -> dict[TopicPartition, int]:
    """Partitions that are not read now keep their places, in case they are again: of topics that a pattern does not
    find, and those that nobody asks for any more. Not those of a topic that was made anew."""
    missing = missing_partitions(start, topics)
    return {
        one: offset
        for one, offset in start.offsets.items()
        if one not in ends
        and one not in missing
        and (one.topic not in topics or start.topic_ids.get(one.topic) in (None, topics[one.topic].topic_id))
    }
