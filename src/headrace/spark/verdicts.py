"""What became of records that were to be read and are not there: one of five things, each with its own sentence."""

from dataclasses import dataclass
from enum import Enum

from headrace.model import ZERO_UUID, TopicPartition


class Verdict(Enum):
    AGED_OUT = "AGED_OUT"
    """Deleted before they were read, by retention or by DeleteRecords."""
    RECREATED = "RECREATED"
    """The topic was deleted and made anew: what was read is of another log."""
    GONE = "GONE"
    """The topic was deleted."""
    TRUNCATED = "TRUNCATED"
    """The log was cut below what was read, as an unclean election does."""
    NOT_YET = "NOT_YET"
    """Nobody has written them."""


class Query(Enum):
    """What asked for the records. Ways out of a loss are not the same for all."""

    BATCH = "batch"
    NAMED = "a stream that names its topics"
    PATTERN = "a stream whose topics a pattern finds"


@dataclass(frozen=True)
class Place:
    """Up to where a query has read; what it does not know is None."""

    offset: int
    topic_id: bytes | None = None
    epoch: int | None = None
    """Of a leader whose log reached as far."""
    is_read: bool = True
    """Whether all before it was there once; not if somebody only named the offset."""


@dataclass(frozen=True)
class LogNow:
    topic_id: bytes
    start: int
    end: int
    """The high watermark, for who has read up to a place: what is committed may end before it."""
    epoch_end: int | None = None
    """Where the place's epoch, or the last one before it, ends now; None if that was not asked for or is not known."""


@dataclass(frozen=True)
class Loss:
    verdict: Verdict
    partition: TopicPartition
    sentence: str
    resume_at: int
    """Where reading goes on if the loss is accepted."""

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.sentence}"


class DataLoss(Exception):
    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        super().__init__(str(loss))

    def __reduce__(self) -> tuple[type["DataLoss"], tuple[Loss]]:
        return DataLoss, (self.loss,)


def judge(partition: TopicPartition, place: Place, log: LogNow) -> Loss | None:
    """None if the log goes on where the place is."""
    if is_another(place.topic_id, log.topic_id):
        return recreated(partition, place.offset, log.start)
    if place.offset < log.start:
        return aged_out(partition, place.offset, log.start)
    if log.epoch_end is not None:
        # Where the log ends for readers tells nothing then: after a clean election it may be behind for a while.
        return truncated(partition, place, max(log.start, log.epoch_end)) if log.epoch_end < place.offset else None
    if place.offset <= log.end:
        return None
    return truncated(partition, place, log.end) if place.is_read else not_yet(partition, place.offset, log.end)


def is_another(before: bytes | None, now: bytes) -> bool:
    """Whether two ids are those of different topics; brokers that have none tell zeros."""
    return before not in (None, ZERO_UUID) and now not in (ZERO_UUID, before)


def recreated(partition: TopicPartition, offset: int, start: int, query: Query = Query.NAMED) -> Loss:
    advice = (
        "Load it again (spark.read) to read them"
        if query is Query.BATCH
        else f"Begin with a new checkpoint; or set failOnDataLoss to false, and the new topic is read from its "
        f"beginning, offset {start}"
    )
    return Loss(Verdict.RECREATED, partition, f"{_made_anew(partition, offset)}. {advice}", start)


def recreated_without(partition: TopicPartition, offset: int) -> Loss:
    """The new topic does not have this partition, which is assigned."""
    text = (
        f"{_made_anew(partition, offset)}, and there is no {partition} any more. Leave it out of option assign, and "
        f"begin with a new checkpoint; or leave it out and set failOnDataLoss to false, and the rest of what is "
        f"assigned is read from its beginning"
    )
    return Loss(Verdict.RECREATED, partition, text, 0)


def _made_anew(partition: TopicPartition, offset: int) -> str:
    return (
        f"topic {partition.topic!r} was deleted and made anew after {partition} had been read up to offset {offset}: "
        f"the records of now are others"
    )


def gone(partition: TopicPartition, offset: int, resume_at: int, query: Query = Query.PATTERN) -> Loss:
    """Of a batch that was planned, or of a pattern's topic."""
    advice = {
        Query.BATCH: "Load it again (spark.read), without the topic if it names it",
        # Of a batch that was begun, Spark reads the same again.
        Query.NAMED: "Leave it out of what the query names, and set failOnDataLoss to false, to go on with others",
        Query.PATTERN: "Set failOnDataLoss to false to go on without it",
    }
    text = (
        f"topic {partition.topic!r} was deleted, and of {partition} only what is before offset {offset} is known to be "
        f"read: the rest is lost. {advice[query]}"
    )
    return Loss(Verdict.GONE, partition, text, resume_at)


def named_gone(partition: TopicPartition, offset: int) -> Loss:
    """Before a batch was planned."""
    text = (
        f"topic {partition.topic!r}, which the query names, was deleted, and of {partition} only what is before offset "
        f"{offset} is known to be read. Leave it out of what the query names to go on with others; if it was made "
        f"again, begin with a new checkpoint"
    )
    return Loss(Verdict.GONE, partition, text, offset)


def aged_out(partition: TopicPartition, offset: int, start: int) -> Loss:
    text = (
        f"records of {partition} from offset {offset} to {start - 1} were deleted, by retention or on request, before "
        f"they were read. Raise retention.ms or retention.bytes of the topic, or read more often; set failOnDataLoss "
        f"to false to go on at offset {start}"
    )
    return Loss(Verdict.AGED_OUT, partition, text, start)


def truncated(partition: TopicPartition, place: Place, cut_at: int, query: Query = Query.NAMED) -> Loss:
    doubt = "" if place.topic_id else ", or the topic was made anew: this checkpoint holds no topic id to tell"
    advice = (
        "load it again (spark.read) to read what is there now"
        if query is Query.BATCH
        else f"set failOnDataLoss to false to read on what was written there since, from offset {cut_at}"
    )
    text = (
        f"{partition} had reached offset {place.offset}, and of that only what is before {cut_at} is left: an unclean "
        f"election cut the log{doubt}. See unclean.leader.election.enable; {advice}"
    )
    return Loss(Verdict.TRUNCATED, partition, text, cut_at)


def not_yet(partition: TopicPartition, offset: int, end: int) -> Loss:
    text = (
        f"offset {offset} of {partition} is not written yet: the log ends at {end}. Name an offset up to that, or set "
        f"failOnDataLoss to false to take the end instead"
    )
    return Loss(Verdict.NOT_YET, partition, text, end)
